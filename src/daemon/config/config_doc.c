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
    "`coved init-config` writes a commented file. SIGHUP reads `server.api_key`, "
    "`server.api_keys` and `log.level` again.\n"
    "In paths a leading `~/` stands for the home folder.\n\n"
    "| environment | effect |\n|---|---|\n"
    "| `SANDBOX_CONFIG_PATH` | the file, when `--config` is not given |\n"
    "| `OPENSANDBOX_SERVER_API_KEY` | replaces `server.api_key` whenever it is set, also when "
    "empty |\n"
    "| `OPENSANDBOX_INSECURE_SERVER` | exactly `YES`: TCP opens without an API key |\n"
    "| `DOCKER_HOST`, `DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH` | the Docker Engine |\n"
    "| `OPENSANDBOX_STORE_POSTGRESQL_DSN` | replaces `store.postgresql.dsn` |\n"
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
    if (strcmp(k->key, "egress.upstream_proxy.url") == 0)
        return "\"http://127.0.0.1:3128\"";
    switch (k->type) {
    case KEY_INT:
        return "3600";
    case KEY_LIST:
        return "[]";
    case KEY_MAP:
        return "{}";
    case KEY_TEXT:
        return k->flags & KEY_NONEMPTY ? "\"...\"" : "\"\"";
    default:
        return "";
    }
}

/* Is the key of no use when runtime.type is `type`? */
static bool is_for_another(const struct config_key *k, const char *type) {
    static const char *const docker_only[] = {
        "docker.", "egress.", "proxy.", "secure_runtime.", "storage.ossfs_", "runtime.execd_"};

    if (strcmp(type, "docker") == 0)
        return str_starts(k->key, "native.");
    for (size_t i = 0; i < ARRAY_SIZE(docker_only); i++)
        if (str_starts(k->key, docker_only[i]))
            return true;
    return false;
}

static void write_section(struct buf *out, const struct config_key *k, size_t n) {
    /* a table inside another one counts as given, even when it is empty */
    bool is_inner = memchr(k->key, '.', n) != NULL;
    buf_printf(out, "\n%s[%.*s]\n", is_inner ? "#" : "", (int)n, k->key);
}

void config_write_sample(struct buf *out, const char *type) {
    const struct config_key *before = NULL;

    buf_str(out, "# Configuration of coved. Every line that is commented out shows its default.\n");
    for (const struct config_key *k = config_keys; k->key; k++) {
        size_t n = section_length(k->key);
        if (k->flags & (KEY_LATER | KEY_IGNORED | KEY_ALIAS) || is_for_another(k, type))
            continue;
        if (!before || !same_section(before, k))
            write_section(out, k, n);
        buf_printf(out, "# %s\n", k->help);
        if (strcmp(k->key, "runtime.type") == 0)
            buf_printf(out, "type = \"%s\"\n", type);
        else
            buf_printf(out, "#%s = %s\n", k->key + n + 1, k->dflt ? k->dflt : placeholder(k));
        before = k;
    }
}
