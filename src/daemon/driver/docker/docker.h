/*
 * The Docker driver: sandboxes are containers of a Docker Engine, as lifecycle.md §4 describes them
 * (names, labels, environment, guard sidecar), so that tools of the field recognise them.
 *
 * describe() gives, all optional: {"containerId","name","image","status","error": text,
 * "running","paused","oomKilled": bool, "exitCode": int, "createdAt","startedAt","finishedAt": text
 * (RFC 3339), "nanoCpus","memoryBytes","pidsLimit": int, "networks": {name: address}, "ports":
 * {"44772/tcp": "ip:port" or null}, "labels": {…}, "env": ["K=V"], "health": {"status": text,
 * "log": [text]}}. Values are as the engine has them: the dialect masks secrets.
 */
#pragma once

#include "daemon/driver/driver.h"

struct docker_config {
    const char *state_dir;   /* of this daemon: its containers are marked with it */
    const char *libexec_dir; /* where cove-execd lies; NULL = beside the program */
    const char *engine_host; /* NULL = DOCKER_HOST, else the usual socket */
    unsigned api_timeout_s;  /* 0 = 180 */
    const char *execd_image; /* NULL = our own agent */
    bool run_as_init;
    bool access_token_checked; /* the service gives tokens: they go into the containers */
    const char *network_mode;  /* "host", "bridge", "none", "container:X" or a network's name */
    const char *host_ip;       /* NULL */
    const char *server_host;   /* [server] host, for the proxy's way to published ports */
    const char *const *drop_capabilities;           /* NULL-terminated */
    const char *apparmor_profile, *seccomp_profile; /* NULL or "" = the engine's */
    bool no_new_privileges;
    int64_t pids_limit; /* 0 = none */
    unsigned port_min, port_max;
    const char *publish_host;
    const json_t *sandbox_env;        /* object text -> text; NULL = none */
    const char *const *sandbox_binds; /* NULL-terminated; NULL = none */
    bool resolve_internal;            /* [proxy] */
    bool allow_isolation;             /* extension bootstrap.execd.isolation may be used */
    const char *runtime; /* of sandboxes (secure runtime); NULL = the engine's default */
    bool is_gvisor;      /* policies are refused */
    /* [egress] */
    const char *egress_image, *egress_mode, *otlp_endpoint;
    bool disable_ipv6;
    double readiness_timeout_s;
    const char *upstream_proxy, *upstream_proxy_auth, *upstream_ca_path;
    const char *legacy_metadata_dir; /* records of an opensandbox-server: ~/.opensandbox/metadata */
    unsigned start_timeout_ms;       /* until the agent answers; 0 = 10000 */
};

/* Connects to the engine, checks the runtime and starts the event thread. -EHOSTUNREACH when there
 * is no engine. Strings and lists are copied. */
int docker_driver_new(const struct docker_config *c, struct driver **ret, struct err *err);
extern const char *const docker_crash_points[];
