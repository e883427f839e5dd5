/*
 * The daemon's configuration: one TOML file, a table of all its keys (config_keys.c) that drives
 * parsing, validation, the documentation and the sample file, and a few environment variables.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

struct config {
    /* [server] */
    char *host; /* listening address of the TCP side */
    int64_t port;
    int64_t keep_alive_s, limit_concurrency, graceful_shutdown_s, backlog, workers;
    char *api_key; /* NULL or blank = none; secret */
    char *eip;
    int64_t max_sandbox_timeout_s; /* 0 = no ceiling */
    int64_t max_body_bytes;
    char *socket_path; /* NULL = from the state directory's run directory */
    int64_t socket_mode;
    char *socket_group;
    /* [log] */
    char *log_level;
    bool log_json;
    /* [runtime] */
    char *runtime_type; /* "native", "docker" … */
    /* [storage] */
    struct strv allowed_host_paths;
    /* [native] */
    char *state_dir, *store_dir, *run_dir, *lease_dir,
        *libexec_dir; /* store_dir, libexec_dir: NULL = default */
    char *oci_runtime, *profile, *subnet, *default_network, *warm_image;
    struct strv dns;
    bool userns, access_token;
    int64_t uid_base, uid_count, default_pids, netns_pool, parked_pool, warm_pool, start_timeout_ms;

    bool insecure_ok; /* OPENSANDBOX_INSECURE_SERVER=YES */
    char *path;       /* the file that was read; NULL = none */
};

/*
 * Reads a file (NULL: SANDBOX_CONFIG_PATH, else /etc/cove/coved.toml, else ~/.sandbox.toml, else
 * none) and the environment. A file that was named must exist. Errors name file, line, key and what
 * was expected; values never appear in them. Unknown keys are warnings, appended to `warnings` one
 * line each (may be NULL).
 */
int config_load(const char *path, struct config *ret, struct strv *warnings, struct err *err);
/* The same from memory, without the environment; `name` stands for the file in errors. */
int config_parse(const char *text, size_t len, const char *name, struct config *ret,
                 struct strv *warnings, struct err *err);
void config_done(struct config *c);
int config_log_level(const struct config *c, enum log_level *ret);

void config_write_doc(struct buf *out);    /* Markdown, for docs/configuration.md */
void config_write_sample(struct buf *out); /* a commented file with every key that has an effect */

/* ---- the table ---- */
enum key_type { KEY_TEXT, KEY_INT, KEY_FLOAT, KEY_BOOL, KEY_LIST, KEY_MAP };
enum {
    KEY_SECRET = 1,             /* never shown */
    KEY_NONEMPTY = 2,           /* a text must not be blank */
    KEY_IGNORED = 4,            /* has no meaning here, by nature */
    KEY_LATER = 8,              /* checked, but not used by this version */
    KEY_REQUIRED_POSITIVE = 16, /* KEY_FLOAT: > 0 */
};
struct config_key {  /* NOLINT(clang-analyzer-optin.performance.Padding): in the order of reading */
    const char *key; /* "server.port"; "[]" stands for the index of a list of tables */
    enum key_type type;
    const char *dflt; /* TOML text of the default; NULL = unset */
    int64_t min, max; /* of integers; lengths of texts and lists when max > 0 */
    unsigned flags;
    size_t offset;              /* in struct config; NO_FIELD = not kept */
    const char *const *choices; /* NULL-terminated */
    const char *help;
};
#define NO_FIELD ((size_t)-1)
extern const struct config_key config_keys[]; /* ended by key NULL */
