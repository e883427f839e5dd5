/* The table of keys as Markdown and as a commented sample file. Pure. */
#include <stdio.h>
#include <string.h>

#include "daemon/config/config.h"

static size_t section_length(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? (size_t)(dot - key) : 0;
}

static bool same_section(const struct config_key *a, const struct config_key *b) {
    size_t n = section_length(a->key);
    return n == section_length(b->key) && strncmp(a->key, b->key, n) == 0;
}

static void write_type(struct buf *out, const struct config_key *k) {
    static const char *const names[] = {"text",    "integer",       "number",
                                        "boolean", "list of texts", "table of texts"};

    if (k->choices) {
        for (const char *const *c = k->choices; *c; c++)
            buf_printf(out, "%s`%s`", c == k->choices ? "" : ", ", **c ? *c : "\"\"");
    } else if (k->type == KEY_INT && k->max < INT32_MAX) {
        buf_printf(out, "integer %lld…%lld", (long long)k->min, (long long)k->max);
    } else if (k->type == KEY_INT) {
        buf_printf(out, "integer ≥ %lld", (long long)k->min);
    } else {
        buf_str(out, names[k->type]);
    }
}

static const char preface[] =
    "# Configuration\n\n"
    "<!-- Made by `coved --print-config-doc` from the table in src/daemon/config/config_keys.c. "
    "-->\n\n"
    "`coved` reads one TOML file: `--config FILE`, else `SANDBOX_CONFIG_PATH`, else "
    "`/etc/cove/coved.toml`, else\n"
    "`~/.sandbox.toml`; without any file the defaults below hold. Files of OpenSandbox's server "
    "are understood as they\n"
    "are: every key of it is checked, and those that have no effect here say so. A bad value stops "
    "the start with file,\n"
    "line, key and what was expected (never the value); an unknown key is a warning. `coved "
    "--check-config` only checks,\n"
    "`coved init-config` writes a commented file. SIGHUP reads `server.api_key` and `log.level` "
    "again.\n\n"
    "| environment | effect |\n|---|---|\n"
    "| `SANDBOX_CONFIG_PATH` | the file, when `--config` is not given |\n"
    "| `OPENSANDBOX_SERVER_API_KEY` | replaces `server.api_key` whenever it is set, also when "
    "empty |\n"
    "| `OPENSANDBOX_INSECURE_SERVER` | exactly `YES`: TCP opens without an API key |\n"
    "| `COVE_LIBEXEC` | folder of the helper programs |\n"
    "| `NOTIFY_SOCKET` | the service manager, told when the daemon serves and when it ends |\n\n";

void config_write_doc(struct buf *out) {
    const struct config_key *before = NULL;

    buf_str(out, preface);

    for (const struct config_key *k = config_keys; k->key; before = k, k++) {
        size_t n = section_length(k->key);
        if (!before || !same_section(before, k))
            buf_printf(out,
                       "%s### `[%.*s]`\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                       before ? "\n" : "", (int)n, k->key);
        buf_printf(out, "| `%s` | ", k->key + n + 1);
        write_type(out, k);
        if (k->dflt)
            buf_printf(out, " | `%s` | ", k->dflt);
        else
            buf_str(out, " | – | ");
        buf_printf(out, "%s%s%s |\n", k->help, k->flags & KEY_SECRET ? " Secret." : "",
                   k->flags & KEY_LATER ? " *Checked; not used by this version.*" : "");
    }
}

/* Something of the right type for a key that is unset by default. */
static const char *placeholder(const struct config_key *k) {
    switch (k->type) {
    case KEY_INT:
        return "3600";
    case KEY_LIST:
        return "[]";
    case KEY_TEXT:
        return k->flags & KEY_NONEMPTY ? "\"...\"" : "\"\"";
    default:
        return "";
    }
}

void config_write_sample(struct buf *out) {
    const struct config_key *before = NULL;

    buf_str(out, "# Configuration of coved. Every line that is commented out shows its default.\n");
    for (const struct config_key *k = config_keys; k->key; k++) {
        size_t n = section_length(k->key);
        if (k->flags & (KEY_LATER | KEY_IGNORED))
            continue;
        if (!before || !same_section(before, k))
            buf_printf(out, "\n[%.*s]\n", (int)n, k->key);
        buf_printf(out, "# %s\n", k->help);
        buf_printf(out, "#%s = %s\n", k->key + n + 1, k->dflt ? k->dflt : placeholder(k));
        before = k;
    }
}
