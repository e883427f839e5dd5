/*
 * The one table of configuration keys. A line here is everything that is needed for a key: parsing,
 * validation, documentation and the sample file follow from it. Sections are kept together, in the
 * order of the documentation.
 */
#include <stddef.h>

#include "daemon/config/config.h"

#define F(member) offsetof(struct config, member)
#define LATER NO_FIELD

/* What a container may not do by default. */
#define DROPPED                                                                                \
    "[\"AUDIT_WRITE\", \"MKNOD\", \"NET_ADMIN\", \"NET_RAW\", \"SYS_ADMIN\", \"SYS_MODULE\", " \
    "\"SYS_PTRACE\", \"SYS_TIME\", \"SYS_TTY_CONFIG\"]"

static const char *const loops[] = {"auto", "uvloop", "asyncio", NULL};
static const char *const https[] = {"auto", "httptools", "h11", NULL};
static const char *const runtimes[] = {"native", "docker", "kubernetes", NULL};
static const char *const ingress_modes[] = {"direct", "gateway", NULL};
static const char *const route_modes[] = {"wildcard", "header", "uri", NULL};
static const char *const egress_modes[] = {"dns", "dns+nft", NULL};
static const char *const store_types[] = {"sqlite", "postgresql", NULL};
static const char *const tenant_providers[] = {"file", "http", NULL};
static const char *const secure_types[] = {"", "gvisor", "kata", "firecracker", NULL};
static const char *const workload_providers[] = {"batchsandbox", "agent-sandbox", NULL};
static const char *const shutdown_policies[] = {"Delete", "Retain", NULL};
static const char *const networks[] = {"none", "nat", NULL};
static const char *const profiles[] = {"strict", "default", "docker", "nested", NULL};

/* clang-format off */
const struct config_key config_keys[] = {
    /* key, type, default, min, max, flags, field, choices, help */
    {"server.host", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY, F(host), NULL, "Address, or name of addresses, the TCP side listens on; unset: 0.0.0.0 with the docker runtime, 127.0.0.1 with the native one."},
    {"server.port", KEY_INT, "8080", 1, 65535, 0, F(port), NULL, "Port of the TCP side."},
    {"server.api_key", KEY_TEXT, NULL, 0, 0, KEY_SECRET, F(api_key), NULL, "Key that clients send as OPEN-SANDBOX-API-KEY on the TCP side. Empty: none. OPENSANDBOX_SERVER_API_KEY replaces it. Reloaded by SIGHUP."},
    {"server.eip", KEY_TEXT, NULL, 0, 0, 0, F(eip), NULL, "Public host (and port) put into endpoint addresses instead of the server's own."},
    {"server.api_keys", KEY_MAP, NULL, 0, 0, KEY_SECRET, F(api_keys), NULL, "More API keys by name: NAME = \"key\". The name of the key that was used is in the request log. Reloaded by SIGHUP."},
    {"server.trusted_proxies", KEY_LIST, "[]", 0, 0, 0, F(trusted_proxies), NULL, "Addresses and networks (10.0.0.1, 10.0.0.0/8, fd00::/8) of proxies in front of the daemon whose X-Forwarded-* headers are believed."},
    {"server.metrics_public", KEY_BOOL, "false", 0, 0, 0, F(metrics_public), NULL, "GET /metrics needs no API key."},
    {"server.socket", KEY_TEXT, NULL, 0, 0, 0, F(socket_path), NULL, "Unix socket; default: api.sock in server.run_dir. Its permissions are its authentication."},
    {"server.socket_mode", KEY_INT, "0o660", 0, 511, 0, F(socket_mode), NULL, "Permissions of the Unix socket."},
    {"server.socket_group", KEY_TEXT, NULL, 0, 0, 0, F(socket_group), NULL, "Group that owns the Unix socket; default: the daemon's."},
    {"server.max_sandbox_timeout_seconds", KEY_INT, NULL, 60, INT32_MAX, 0, F(max_sandbox_timeout_s), NULL, "Ceiling of the timeout in a create; renewals are not bounded. Unset: none."},
    {"server.max_body_bytes", KEY_INT, "1048576", 1024, 1 << 30, 0, F(max_body_bytes), NULL, "Largest body of a control request; proxied bodies are not limited."},
    {"server.timeout_keep_alive", KEY_INT, "30", 1, 86400, 0, F(keep_alive_s), NULL, "Seconds an idle connection is kept."},
    {"server.limit_concurrency", KEY_INT, "20000", 0, 1000000, 0, F(limit_concurrency), NULL, "Most connections at the same time; 0: no limit."},
    {"server.timeout_graceful_shutdown", KEY_INT, "5", 1, 3600, 0, F(graceful_shutdown_s), NULL, "Seconds that requests in flight get at shutdown."},
    {"server.backlog", KEY_INT, "2048", 1, 65535, 0, F(backlog), NULL, "Connections waiting to be accepted."},
    {"server.thread_pool_size", KEY_INT, "64", 1, 1024, 0, F(workers), NULL, "Most sandbox operations at the same time. Threads start when needed."},
    {"server.state_dir", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY | KEY_PATH, F(state_dir), NULL, "State database and what must outlive the machine, of every runtime. One daemon per directory. Unset: /var/lib/cove, or, when the daemon is not root, STATE_DIRECTORY of the service manager, else ~/.local/state/cove."},
    {"server.run_dir", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY | KEY_PATH, F(run_dir), NULL, "Sockets and what does not outlive the machine, of every runtime; on tmpfs. Unset: /run/cove, or, when the daemon is not root, RUNTIME_DIRECTORY of the service manager, else XDG_RUNTIME_DIR/cove, else run in server.state_dir."},
    {"server.libexec_dir", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY | KEY_PATH, F(libexec_dir), NULL, "Helper programs; default: COVE_LIBEXEC, else next to the program."},
    {"server.loop", KEY_TEXT, "\"auto\"", 0, 0, KEY_IGNORED, NO_FIELD, loops, "Accepted for compatibility."},
    {"server.http", KEY_TEXT, "\"auto\"", 0, 0, KEY_IGNORED, NO_FIELD, https, "Accepted for compatibility."},

    {"log.level", KEY_TEXT, "\"info\"", 3, 16, 0, F(log_level), NULL, "error, warning, info or debug, any case. Reloaded by SIGHUP."},
    {"log.json", KEY_BOOL, "false", 0, 0, 0, F(log_json), NULL, "Lines of JSON instead of text."},
    {"log.file_enabled", KEY_BOOL, "false", 0, 0, 0, F(log_file_enabled), NULL, "Log into files instead of standard error; requests go into a file of their own."},
    {"log.file_path", KEY_TEXT, "\"~/logs/opensandbox/server.log\"", 0, 0, KEY_NONEMPTY | KEY_PATH, F(log_file_path), NULL, "Log file. Its folders are made."},
    {"log.access_file_path", KEY_TEXT, "\"~/logs/opensandbox/access.log\"", 0, 0, KEY_NONEMPTY | KEY_PATH, F(log_access_path), NULL, "Log file of requests."},
    {"log.file_max_bytes", KEY_INT, "104857600", 1, INT64_MAX, 0, F(log_max_bytes), NULL, "Size at which a log file is rotated."},
    {"log.file_backup_count", KEY_INT, "5", 0, 10000, 0, F(log_backups), NULL, "Rotated log files kept; 0: a full file is begun anew. SIGHUP and SIGUSR1 open the files by their names again."},

    {"runtime.type", KEY_TEXT, "\"native\"", 0, 0, 0, F(runtime_type), runtimes, "Where sandboxes run: native (namespaces and cgroups of this machine) or docker (containers of a Docker Engine)."},
    {"runtime.execd_image", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY, F(execd_image), NULL, "Image that carries the agent (docker); unset: the daemon's own agent."},
    {"runtime.execd_run_as_init", KEY_BOOL, "false", 0, 0, 0, F(execd_run_as_init), NULL, "The agent is process 1 of every sandbox (docker); always so in native sandboxes."},

    {"native.state_dir", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY | KEY_PATH | KEY_ALIAS, F(state_dir), NULL, "Older name of server.state_dir."},
    {"native.store_dir", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY | KEY_PATH, F(store_dir), NULL, "Image store; default: store in server.state_dir. Daemons may share one."},
    {"native.run_dir", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY | KEY_PATH | KEY_ALIAS, F(run_dir), NULL, "Older name of server.run_dir."},
    {"native.lease_dir", KEY_TEXT, "\"/run/cove/leases\"", 0, 0, KEY_NONEMPTY | KEY_PATH, F(lease_dir), NULL, "Id and address ranges in use, shared by all daemons of the machine."},
    {"native.libexec_dir", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY | KEY_PATH | KEY_ALIAS, F(libexec_dir), NULL, "Older name of server.libexec_dir."},
    {"native.runtime", KEY_TEXT, "\"crun\"", 0, 0, KEY_NONEMPTY, F(oci_runtime), NULL, "OCI runtime: a path, or a name in the system's program folders (/usr/bin and the like)."},
    {"native.profile", KEY_TEXT, "\"default\"", 0, 0, 0, F(profile), profiles, "Capabilities and system calls of sandboxes."},
    {"native.userns", KEY_BOOL, "true", 0, 0, 0, F(userns), NULL, "A user namespace and an id range of its own for every sandbox."},
    {"native.uid_base", KEY_INT, "1000000000", 100000, 4000000000, 0, F(uid_base), NULL, "First user and group id given to sandboxes."},
    {"native.uid_count", KEY_INT, "1073741824", 65536, 3000000000, 0, F(uid_count), NULL, "Ids in all ranges together."},
    {"native.subnet", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY, F(subnet), NULL, "IPv4 network of sandboxes with outbound access, at least a /22; default: a free one is chosen."},
    {"native.dns", KEY_LIST, NULL, 0, 0, 0, F(dns), NULL, "Name servers of sandboxes; default: the host's."},
    {"native.default_network", KEY_TEXT, "\"none\"", 0, 0, 0, F(default_network), networks, "Network of sandboxes that ask for none in particular (extension cove.network): none, or nat for outbound connections."},
    {"native.access_token", KEY_BOOL, "true", 0, 0, 0, F(access_token), NULL, "Agents demand a token, which endpoint answers carry. Off only for clients that ignore endpoint headers."},
    {"native.default_pids", KEY_INT, "1024", 16, 4194304, 0, F(default_pids), NULL, "Process limit of sandboxes that ask for none."},
    {"native.netns_pool", KEY_INT, "8", 0, 1024, 0, F(netns_pool), NULL, "Network namespaces kept ready."},
    {"native.parked_pool", KEY_INT, "4", 0, 1024, 0, F(parked_pool), NULL, "Sandbox processes kept ready inside their cgroups."},
    {"native.warm_image", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY, F(warm_image), NULL, "Image of which started sandboxes are kept ready (native.warm_pool); default: none."},
    {"native.warm_pool", KEY_INT, "0", 0, 64, 0, F(warm_pool), NULL, "Started sandboxes of native.warm_image kept ready; creates of that image take them."},
    {"native.start_timeout_ms", KEY_INT, "20000", 100, 600000, 0, F(start_timeout_ms), NULL, "Time limit for the runtime and the agent's first answer."},

    {"storage.allowed_host_paths", KEY_LIST, "[]", 0, 0, 0, F(allowed_host_paths), NULL, "Host paths that volumes may name, with everything below them. Empty: none (the operator on the Unix socket may name any)."},
    {"storage.volume_default_size", KEY_TEXT, "\"1Gi\"", 0, 0, KEY_IGNORED, NO_FIELD, NULL, "Size of volumes made by the server (kubernetes)."},
    {"storage.ossfs_mount_root", KEY_TEXT, "\"/mnt/ossfs\"", 0, 0, KEY_PATH, F(ossfs_mount_root), NULL, "Folder under which object storage is mounted (docker)."},

    {"store.type", KEY_TEXT, "\"sqlite\"", 0, 0, 0, F(store.type), store_types, "Where snapshots are recorded (docker): an SQLite file or a PostgreSQL database. That of an OpenSandbox server is taken over as it is."},
    {"store.path", KEY_TEXT, "\"~/.opensandbox/opensandbox.db\"", 0, 0, KEY_NONEMPTY | KEY_PATH, F(store.path), NULL, "SQLite file of the records. Its folder is made."},
    {"store.postgresql.dsn", KEY_TEXT, NULL, 0, 0, KEY_SECRET, F(store.pg_dsn), NULL, "Connection text. OPENSANDBOX_STORE_POSTGRESQL_DSN replaces it."},
    {"store.postgresql.min_pool_size", KEY_INT, "1", 0, 10000, 0, F(store.pg_min_pool), NULL, "Connections kept."},
    {"store.postgresql.max_pool_size", KEY_INT, "10", 1, 10000, 0, F(store.pg_max_pool), NULL, "Most connections."},
    {"store.postgresql.connect_timeout_seconds", KEY_INT, "5", 1, 86400, 0, F(store.pg_connect_timeout_s), NULL, "Time limit of a connect."},
    {"store.postgresql.pool_timeout_seconds", KEY_FLOAT, "5.0", 0, 0, KEY_REQUIRED_POSITIVE, F(store.pg_pool_timeout_s), NULL, "Time limit for a free connection."},
    {"store.postgresql.snapshot_recovery_interval_seconds", KEY_FLOAT, "15.0", 0, 0, KEY_REQUIRED_POSITIVE, F(store.pg_recovery_interval_s), NULL, "Interval of snapshot recovery."},

    {"proxy.public_address", KEY_TEXT, NULL, 0, 0, 0, F(proxy_address), NULL, "Public address (host, port and path) of this server in addresses of its proxy; unset: server.eip, else the address that the client used."},
    {"proxy.resolve_internal", KEY_BOOL, "true", 0, 0, 0, F(proxy_resolve_internal), NULL, "The proxy goes to container addresses (docker); off: to published ports, for servers that cannot route to the bridge. Native sandboxes are always reached in their network namespace."},

    {"docker.network_mode", KEY_TEXT, "\"host\"", 0, 0, KEY_NONEMPTY, F(docker.network_mode), NULL, "Network of containers: host, bridge, none, container:NAME or the name of a network. With host, sandboxes and whoever reaches the proxy get to every port of this machine's loopback: bridge is safer."},
    {"docker.api_timeout", KEY_INT, NULL, 1, 86400, 0, F(docker.api_timeout_s), NULL, "Seconds a call to the engine may take; unset: 180."},
    {"docker.host_ip", KEY_TEXT, NULL, 0, 0, 0, F(docker.host_ip), NULL, "Host address in endpoints when the daemon itself runs in a container."},
    {"docker.drop_capabilities", KEY_LIST, DROPPED, 0, 0, 0, F(docker.drop_capabilities), NULL, "Capabilities containers do not get; an empty list drops none."},
    {"docker.apparmor_profile", KEY_TEXT, NULL, 0, 0, 0, F(docker.apparmor_profile), NULL, "AppArmor profile of containers; empty: the engine's."},
    {"docker.no_new_privileges", KEY_BOOL, "true", 0, 0, 0, F(docker.no_new_privileges), NULL, "Processes of containers cannot gain privileges."},
    {"docker.seccomp_profile", KEY_TEXT, NULL, 0, 0, 0, F(docker.seccomp_profile), NULL, "Seccomp profile of containers; empty: the engine's."},
    {"docker.pids_limit", KEY_INT, "4096", 1, INT32_MAX, 0, F(docker.pids_limit), NULL, "Process limit of containers."},
    {"docker.port_range_min", KEY_INT, "40000", 1024, 65535, 0, F(docker.port_min), NULL, "Lowest host port that is published."},
    {"docker.port_range_max", KEY_INT, "60000", 1024, 65535, 0, F(docker.port_max), NULL, "Highest host port that is published; at least 100 above the lowest."},
    {"docker.publish_host", KEY_TEXT, "\"0.0.0.0\"", 0, 0, 0, F(docker.publish_host), NULL, "IPv4 address of this machine that ports are published on. 127.0.0.1: only the server's proxy leads to sandboxes."},
    {"docker.sandbox_env", KEY_MAP, NULL, 0, 0, 0, F(docker.sandbox_env), NULL, "Variables of every sandbox; those of a request win."},
    {"docker.sandbox_binds", KEY_LIST, "[]", 0, 0, 0, F(docker.sandbox_binds), NULL, "Binds of every sandbox, \"SOURCE:TARGET[:MODE]\"; not checked against storage.allowed_host_paths."},
    {"docker.access_token", KEY_BOOL, "false", 0, 0, 0, F(docker.access_token), NULL, "Agents in containers demand a token, which endpoint answers carry. Off: anyone who reaches a published port commands the sandbox."},
    {"docker.allow_isolation", KEY_BOOL, "false", 0, 0, 0, F(docker.allow_isolation), NULL, "Requests may ask for isolated sessions (extension bootstrap.execd.isolation), which gives the container SYS_ADMIN and takes its seccomp and AppArmor profiles away."},
    {"docker.legacy_metadata_dir", KEY_TEXT, "\"~/.opensandbox/metadata\"", 0, 0, KEY_PATH, F(docker.legacy_metadata_dir), NULL, "Records of an OpenSandbox server (changed metadata and expirations), read when its sandboxes are taken over. Empty: none."},

    {"ingress.mode", KEY_TEXT, "\"direct\"", 0, 0, 0, F(ingress_mode), ingress_modes, "How endpoints are reached: direct; gateway belongs to kubernetes."},
    {"ingress.gateway.address", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Address of the gateway, without a scheme."},
    {"ingress.gateway.route.mode", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, route_modes, "How the gateway tells sandboxes apart."},
    {"ingress.secure_access.active_key", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Id of the signing key in use."},
    {"ingress.secure_access.keys[].key_id", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Id of a signing key: one character 0-9, a-z."},
    {"ingress.secure_access.keys[].key", KEY_TEXT, NULL, 0, 0, KEY_SECRET | KEY_LATER, LATER, NULL, "Signing key, base64."},

    {"egress.image", KEY_TEXT, NULL, 0, 0, KEY_NONEMPTY, F(egress.image), NULL, "Image of the network guard (docker); needed for sandboxes with a network policy."},
    {"egress.mode", KEY_TEXT, "\"dns\"", 0, 0, 0, F(egress.mode), egress_modes, "What the network guard enforces: names only, or names and addresses."},
    {"egress.disable_ipv6", KEY_BOOL, "true", 0, 0, 0, F(egress.disable_ipv6), NULL, "No IPv6 in guarded sandboxes."},
    {"egress.otlp_endpoint", KEY_TEXT, NULL, 0, 0, 0, F(egress.otlp_endpoint), NULL, "http or https address to which the guard sends metrics."},
    {"egress.readiness_timeout_seconds", KEY_FLOAT, "30.0", 0, 0, KEY_REQUIRED_POSITIVE, F(egress.readiness_timeout_s), NULL, "Seconds within which a guard must be ready."},
    {"egress.requests", KEY_MAP, NULL, 0, 0, KEY_LATER, LATER, NULL, "Guaranteed resources of the guard (kubernetes)."},
    {"egress.limits", KEY_MAP, NULL, 0, 0, KEY_LATER, LATER, NULL, "Limits of the guard (kubernetes)."},
    {"egress.upstream_proxy.url", KEY_TEXT, NULL, 0, 0, KEY_SECRET, F(egress.proxy_url), NULL, "Proxy that the guard uses: http or https, host and port. Needs egress.mode dns+nft."},
    {"egress.upstream_proxy.authorization", KEY_TEXT, NULL, 0, 0, KEY_SECRET, F(egress.proxy_authorization), NULL, "Authorization header for that proxy."},
    {"egress.upstream_proxy.ca_cert_path", KEY_TEXT, NULL, 0, 0, 0, F(egress.proxy_ca_path), NULL, "Certificate of that proxy: a file on the engine's machine (docker)."},
    {"egress.upstream_proxy.ca_secret_name", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Certificate of that proxy (kubernetes)."},

    {"tenants.provider", KEY_TEXT, "\"file\"", 0, 0, KEY_LATER, LATER, tenant_providers, "Where tenants come from (kubernetes). The section is refused by the native runtime."},
    {"tenants.endpoint", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Address of the tenant service."},
    {"tenants.max_stale_seconds", KEY_FLOAT, "300.0", 0, 0, KEY_LATER, LATER, NULL, "How long answers of a failing tenant service are used."},
    {"tenants.timeout_seconds", KEY_FLOAT, "5.0", 0, 0, KEY_REQUIRED_POSITIVE | KEY_LATER, LATER, NULL, "Time limit of the tenant service."},
    {"tenants.auth_header", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Header sent to the tenant service."},
    {"tenants.auth_token", KEY_TEXT, NULL, 0, 0, KEY_SECRET | KEY_LATER, LATER, NULL, "Value of that header."},

    {"otel.enabled", KEY_BOOL, "false", 0, 0, 0, F(otel.enabled), NULL, "Export of metrics to an OpenTelemetry collector (OTLP over HTTP)."},
    {"otel.endpoint", KEY_TEXT, NULL, 0, 0, 0, F(otel.endpoint), NULL, "Base address of the collector, http only; unset: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT, http://localhost:4318."},
    {"otel.service_name", KEY_TEXT, "\"opensandbox-server\"", 0, 0, 0, F(otel.service_name), NULL, "Name of this service in metrics."},
    {"otel.export_interval_millis", KEY_INT, "60000", 1000, INT32_MAX, 0, F(otel.interval_ms), NULL, "Interval of the export."},

    {"secure_runtime.type", KEY_TEXT, "\"\"", 0, 0, 0, F(secure.type), secure_types, "Isolation beyond namespaces: the engine runs sandboxes with gVisor or Kata Containers."},
    {"secure_runtime.docker_runtime", KEY_TEXT, NULL, 0, 0, 0, F(secure.docker_runtime), NULL, "Name of that runtime in the engine; unset: runsc for gvisor, kata-runtime for kata."},
    {"secure_runtime.k8s_runtime_class", KEY_TEXT, NULL, 0, 0, 0, F(secure.k8s_class), NULL, "Name of its RuntimeClass (kubernetes)."},

    {"renew_intent.enabled", KEY_BOOL, "false", 0, 0, 0, F(renew.enabled), NULL, "Access through the proxy renews sandboxes that ask for it (extension access.renew.extend.seconds)."},
    {"renew_intent.min_interval_seconds", KEY_INT, "60", 1, 86400, 0, F(renew.min_interval_s), NULL, "Shortest time between two such renewals."},
    {"renew_intent.redis.enabled", KEY_BOOL, "false", 0, 0, 0, F(renew.redis_enabled), NULL, "Renewals come from a queue."},
    {"renew_intent.redis.dsn", KEY_TEXT, NULL, 0, 0, KEY_SECRET, F(renew.redis_dsn), NULL, "Address of the queue."},
    {"renew_intent.redis.queue_key", KEY_TEXT, "\"opensandbox:renew:intent\"", 0, 0, KEY_NONEMPTY, F(renew.redis_queue), NULL, "Name of the queue."},
    {"renew_intent.redis.consumer_concurrency", KEY_INT, "8", 1, 1024, 0, F(renew.redis_readers), NULL, "Readers of the queue."},

    {"kubernetes.kubeconfig_path", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Cluster access; unset: in-cluster."},
    {"kubernetes.namespace", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Namespace of sandboxes."},
    {"kubernetes.informer_resync_seconds", KEY_INT, "300", 1, 86400, KEY_LATER, LATER, NULL, "Full resynchronisation of the cache."},
    {"kubernetes.informer_watch_timeout_seconds", KEY_INT, "60", 1, 86400, KEY_LATER, LATER, NULL, "Length of a watch."},
    {"kubernetes.read_qps", KEY_FLOAT, "0.0", 0, 0, KEY_LATER, LATER, NULL, "Reads per second; 0: no limit."},
    {"kubernetes.read_burst", KEY_INT, "0", 0, INT32_MAX, KEY_LATER, LATER, NULL, "Burst of reads."},
    {"kubernetes.write_qps", KEY_FLOAT, "0.0", 0, 0, KEY_LATER, LATER, NULL, "Writes per second; 0: no limit."},
    {"kubernetes.write_burst", KEY_INT, "0", 0, INT32_MAX, KEY_LATER, LATER, NULL, "Burst of writes."},
    {"kubernetes.workload_provider", KEY_TEXT, "\"batchsandbox\"", 0, 0, KEY_LATER, LATER, workload_providers, "Kind of the sandbox resource."},
    {"kubernetes.batchsandbox_template_file", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Base of that resource."},
    {"kubernetes.sandbox_create_timeout_seconds", KEY_INT, "60", 1, 86400, KEY_LATER, LATER, NULL, "Time limit of a create."},
    {"kubernetes.sandbox_create_poll_interval_seconds", KEY_FLOAT, "1.0", 0, 0, KEY_REQUIRED_POSITIVE | KEY_LATER, LATER, NULL, "Fallback interval while waiting."},
    {"kubernetes.execd_init_resources.limits", KEY_MAP, NULL, 0, 0, KEY_LATER, LATER, NULL, "Limits of the agent's installer."},
    {"kubernetes.execd_init_resources.requests", KEY_MAP, NULL, 0, 0, KEY_LATER, LATER, NULL, "Requests of the agent's installer."},
    {"kubernetes.image_pull_policy", KEY_TEXT, "\"IfNotPresent\"", 0, 0, KEY_LATER, LATER, NULL, "When images are pulled."},
    {"kubernetes.insecure_skip_tls_verify", KEY_BOOL, "false", 0, 0, KEY_LATER, LATER, NULL, "Do not check the cluster's certificate."},
    {"kubernetes.pool_acquisition_timeout_seconds", KEY_INT, "30", 1, 86400, KEY_LATER, LATER, NULL, "Time limit for a pool member."},
    {"kubernetes.fastpath_endpoint", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Micro-VM service."},
    {"kubernetes.fastpath_timeout_seconds", KEY_FLOAT, "30.0", 1, 0, KEY_LATER, LATER, NULL, "Its time limit."},
    {"kubernetes.fastpath_wait_ready_seconds", KEY_FLOAT, "30.0", 1, 0, KEY_LATER, LATER, NULL, "Time limit until ready."},
    {"kubernetes.fastpath_resource_pool", KEY_TEXT, "\"default-pool\"", 0, 0, KEY_LATER, LATER, NULL, "Its pool."},
    {"kubernetes.template_s3_publish_secret", KEY_TEXT, "\"sandbox-oss-credentials\"", 0, 0, KEY_LATER, LATER, NULL, "Name of the secret for publishing templates."},

    {"agent_sandbox.template_file", KEY_TEXT, NULL, 0, 0, KEY_LATER, LATER, NULL, "Base of the sandbox resource."},
    {"agent_sandbox.shutdown_policy", KEY_TEXT, "\"Delete\"", 0, 0, KEY_LATER, LATER, shutdown_policies, "What happens at expiry."},
    {"agent_sandbox.ingress_enabled", KEY_BOOL, "true", 0, 0, KEY_LATER, LATER, NULL, "Endpoints through an ingress."},
    {NULL},
};
/* clang-format on */
