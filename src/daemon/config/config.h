/*
 * The daemon's configuration: one TOML file, a table of all its keys (config_keys.c) that drives
 * parsing, validation, the documentation and the sample file, and a few environment variables.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"

#define CONFIG_DEFAULT_KEY "default" /* the name of server.api_key */

struct config {
    /* [server] */
    char *host; /* listening address of the TCP side */
    int64_t port;
    int64_t keep_alive_s, limit_concurrency, graceful_shutdown_s, backlog, workers;
    char *api_key;    /* NULL or blank = none; secret */
    json_t *api_keys; /* name -> key, beside api_key; NULL = none; secret */
    bool metrics_public;
    struct strv trusted_proxies;
    char *eip;
    int64_t max_sandbox_timeout_s; /* 0 = no ceiling */
    int64_t max_body_bytes;
    char *socket_path; /* NULL = from the state directory's run directory */
    int64_t socket_mode;
    char *socket_group;
    char *state_dir, *run_dir, *libexec_dir; /* libexec_dir NULL = default */
    /* [log] */
    char *log_level;
    bool log_json, log_file_enabled;
    char *log_file_path, *log_access_path;
    int64_t log_max_bytes, log_backups;
    /* [runtime] */
    char *runtime_type; /* see config_is_docker */
    char *execd_image;  /* NULL = our own agent */
    bool execd_run_as_init;
    /* [storage], [store], [proxy], [ingress] */
    struct strv allowed_host_paths;
    char *ossfs_mount_root, *ingress_mode;
    char *proxy_address; /* NULL = eip's, else as asked */
    bool proxy_resolve_internal;
    struct {
        char *type, *path, *pg_dsn; /* pg_dsn: secret */
        int64_t pg_min_pool, pg_max_pool, pg_connect_timeout_s;
        double pg_pool_timeout_s, pg_recovery_interval_s;
    } store;
    struct {
        char *network_mode, *host_ip, *apparmor_profile, *seccomp_profile, *publish_host,
            *legacy_metadata_dir;
        int64_t api_timeout_s; /* 0 = unset */
        int64_t pids_limit, port_min, port_max;
        struct strv drop_capabilities, sandbox_binds;
        json_t *sandbox_env; /* text -> text; NULL = none */
        bool no_new_privileges, access_token, allow_isolation;
    } docker;
    struct {
        char *image, *mode, *otlp_endpoint; /* image NULL = no network policies */
        char *proxy_url, *proxy_authorization, *proxy_ca_path;
        double readiness_timeout_s;
        bool disable_ipv6;
    } egress;
    struct {
        char *type, *docker_runtime, *k8s_class; /* see config_secure_runtime */
    } secure;
    struct {
        int64_t min_interval_s, redis_readers;
        char *redis_dsn, *redis_queue;
        bool enabled, redis_enabled;
    } renew;
    struct {
        char *endpoint, *service_name;
        int64_t interval_ms;
        bool enabled;
    } otel;
    /* [native] */
    char *store_dir, *lease_dir; /* store_dir NULL = default */
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
bool config_has_key(const struct config *c); /* any API key */
bool config_is_docker(const struct config *c);
/* Name of the engine's runtime for sandboxes; NULL = the engine's default. */
const char *config_secure_runtime(const struct config *c);
int config_log_level(const struct config *c, enum log_level *ret);

void config_write_doc(struct buf *out); /* Markdown, for docs/configuration.md */
/* A commented file with every key that has an effect when runtime.type is `type`. */
void config_write_sample(struct buf *out, const char *type);

/* ---- the table ---- */
enum key_type { KEY_TEXT, KEY_INT, KEY_FLOAT, KEY_BOOL, KEY_LIST, KEY_MAP };
enum {
    KEY_SECRET = 1,             /* never shown */
    KEY_NONEMPTY = 2,           /* a text must not be blank */
    KEY_IGNORED = 4,            /* has no meaning here, by nature */
    KEY_LATER = 8,              /* checked, but not used by this version */
    KEY_REQUIRED_POSITIVE = 16, /* KEY_FLOAT: > 0 */
    KEY_PATH = 32,              /* a leading "~/" stands for the home folder */
    KEY_ALIAS = 64,             /* another name of a key; the last one in the file holds */
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
