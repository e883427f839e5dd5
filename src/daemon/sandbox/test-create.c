/* Creates in the order of the wire: which refusal wins, what reaches the driver, what is undone. */
#include "daemon/sandbox/test-kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "daemon/sandbox/ossfs.h"

static void set_up_shared(void) {
    set_up();
    service_close(svc);
    uv_run(&loop, UV_RUN_DEFAULT);
    fake_share(drv);
    start_service();
}

static void add_volume(struct create_request *rq, struct volume_request v) {
    rq->volumes = reallocarray(rq->volumes, rq->n_volumes + 1, sizeof *rq->volumes);
    v.name = v.name ? strdup(v.name) : str_printf("v%zu", rq->n_volumes);
    v.mount_path = str_printf("/mnt/%s", v.name);
    v.sub_path = v.sub_path ? strdup(v.sub_path) : NULL;
    v.host_path = strdup(v.host_path ? v.host_path : "");
    v.claim = v.claim ? strdup(v.claim) : NULL;
    v.n_backends = 1;
    rq->volumes[rq->n_volumes++] = v;
}

static void add_claim(struct create_request *rq, const char *claim, bool make, bool end) {
    add_volume(rq, (struct volume_request){.kind = VOLUME_NAMED,
                                           .claim = (char *)claim,
                                           .create_if_missing = make,
                                           .delete_on_termination = end});
}

static void add_bucket(struct create_request *rq, const char *bucket, const char *secret) {
    add_volume(rq, (struct volume_request){.kind = VOLUME_OSS});
    struct oss_request *o = &rq->volumes[rq->n_volumes - 1].oss;
    o->bucket = strdup(bucket);
    o->endpoint = strdup("example.invalid");
    o->version = strdup("2.0");
    o->key_id = strdup("id");
    o->key_secret = strdup(secret);
}

/* ---- the order ---- */

enum step {
    S_RENEW,
    S_TEMPLATE,
    S_SNAPSHOT,
    S_LIFECYCLE,
    S_POOL,
    S_ENTRYPOINT,
    S_METADATA,
    S_PLATFORM,
    S_TIMEOUT,
    S_SECURE,
    S_POLICY,
    S_MEMORY,
    S_CPU,
    S_GPU,
    S_NETWORK,
    S_EGRESS,
    S_VOLUME,
    S_IMAGE,
    S_LATE,
    S_CREATE,
    N_STEPS
};

static const struct {
    enum fault fault;
    const char *text;
} steps[N_STEPS] = {
    [S_RENEW] = {FAULT_INVALID, "access.renew.extend.seconds"},
    [S_TEMPLATE] = {FAULT_TEMPLATE, "Template"},
    [S_SNAPSHOT] = {FAULT_SNAPSHOT, "Snapshots"},
    [S_LIFECYCLE] = {FAULT_INVALID, "lifecycle hooks are not supported by the Docker provider."},
    [S_POOL] = {FAULT_POOL_REF, "poolRef"},
    [S_ENTRYPOINT] = {FAULT_ENTRYPOINT, "Entrypoint must contain at least one command."},
    [S_METADATA] = {FAULT_LABEL, "a b"},
    [S_PLATFORM] = {FAULT_INVALID, "darwin"},
    [S_TIMEOUT] = {FAULT_INVALID, "configured maximum of 3600s"},
    [S_SECURE] = {FAULT_INVALID, "secureAccess is not supported when runtime.type='docker'"},
    [S_POLICY] = {FAULT_INVALID, "no policies on this network"},
    [S_MEMORY] = {FAULT_INVALID, "Invalid resourceLimits.memory: ''"},
    [S_CPU] = {FAULT_INVALID, "Invalid resourceLimits.cpu: '0'"},
    [S_GPU] = {FAULT_INVALID, "Invalid resourceLimits.gpu: 'two'"},
    [S_NETWORK] = {FAULT_INVALID, "docker network create"},
    [S_EGRESS] = {FAULT_INVALID, "OPENSANDBOX_EGRESS_POLICY_FILE"},
    [S_VOLUME] = {FAULT_VOLUME_NAMED, "claimName"},
    [S_IMAGE] = {FAULT_PULL, "registry"},
    [S_LATE] = {FAULT_INVALID, "/dev/kvm"},
    [S_CREATE] = {FAULT_AGENT_COPY, "agent"},
};

/* Breaks every rule from a step on. */
static struct create_request breaking(enum step from) {
    struct create_request rq = {.image = strdup("busybox"),
                                .timeout_s = from <= S_TIMEOUT ? 7200 : 600,
                                .has_template = from <= S_TEMPLATE,
                                .has_lifecycle = from <= S_LIFECYCLE,
                                .secure_access = from <= S_SECURE};
    rq.extensions = json_object();
    rq.limits = json_object();
    if (from <= S_RENEW)
        json_object_set_new(rq.extensions, "access.renew.extend.seconds", json_string(" "));
    if (from <= S_POOL)
        json_object_set_new(rq.extensions, "poolRef", json_string("p"));
    if (from <= S_SNAPSHOT)
        rq.snapshot_id = strdup("none");
    if (from > S_ENTRYPOINT)
        strv_add(&rq.entrypoint, "sleep");
    rq.metadata = json_pack("{s:s}", from <= S_METADATA ? "a b" : "a", "c");
    rq.os = strdup(from <= S_PLATFORM ? "darwin" : "linux");
    rq.arch = strdup("amd64");
    rq.policy = json_object();
    if (from <= S_MEMORY)
        json_object_set_new(rq.limits, "memory", json_string(""));
    if (from <= S_CPU)
        json_object_set_new(rq.limits, "cpu", json_string("0"));
    json_object_set_new(rq.limits, "gpu", json_string(from <= S_GPU ? "two" : "2"));
    if (from <= S_EGRESS)
        strv_add(&rq.env, "OPENSANDBOX_EGRESS_TOKEN=mine");
    add_claim(&rq, from <= S_VOLUME ? "Not A Name" : "data", true, true);
    return rq;
}

static void break_driver(enum step from) {
    fake_fail(drv, FAKE_POLICY, -EINVAL, "no policies on this network", from <= S_POLICY ? 99 : 0);
    fake_fail(drv, FAKE_NETWORK, -EINVAL, "no such network: docker network create x",
              from <= S_NETWORK ? 99 : 0);
    fake_fail(drv, FAKE_IMAGE, DRIVER_IMAGE_PULL, "the registry is down", from <= S_IMAGE ? 99 : 0);
    fake_fail(drv, FAKE_LATE, -EINVAL, "missing: /dev/kvm", from <= S_LATE ? 99 : 0);
    fake_fail(drv, FAKE_CREATE, DRIVER_AGENT_COPY, "the agent cannot be copied",
              from <= S_CREATE ? 99 : 0);
}

TEST(the_first_broken_rule_of_the_table_wins) {
    max_timeout_s = 3600;
    set_up_shared();
    for (enum step s = 0; s < N_STEPS; s++) {
        break_driver(s);
        struct result c = create_with(breaking(s));
        if (c.fault != steps[s].fault || !strstr(c.text, steps[s].text))
            test_fail(__FILE__, __LINE__, "step %d: %d %s", s, c.fault, c.text);
        ASSERT_INT(fake_calls(drv, FAKE_CREATE), s < S_CREATE ? 0 : 1);
        ASSERT(!fake_has_volume(drv, "data")); /* undone, or never made */
    }
    break_driver(N_STEPS);
    ASSERT_INT(create_with(breaking(N_STEPS)).fault, FAULT_NONE);
    ASSERT(fake_has_volume(drv, "data"));
    tear_down();
}

TEST(what_the_driver_says_keeps_its_meaning) {
    set_up_shared();
    static const struct {
        enum fake_op op;
        int code;
        enum fault want;
    } cases[] = {
        {FAKE_NETWORK, -EIO, FAULT_NETWORK},
        {FAKE_IMAGE, -ENOENT, FAULT_IMAGE},
        {FAKE_IMAGE, -EINVAL, FAULT_INVALID},
        {FAKE_CREATE, DRIVER_AGENT_START, FAULT_AGENT_START},
        {FAKE_CREATE, DRIVER_BOOTSTRAP, FAULT_BOOTSTRAP},
        {FAKE_CREATE, DRIVER_IMAGE_PULL, FAULT_PULL},
        {FAKE_CREATE, -EIO, FAULT_CREATE},
        {FAKE_CREATE, -ENOSPC, FAULT_FULL},
        {FAKE_VOLUME_OPEN, DRIVER_VOLUME_INSPECT, FAULT_VOLUME_INSPECT},
        {FAKE_VOLUME_OPEN, -EIO, FAULT_VOLUME_INSPECT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct create_request rq = request();
        add_claim(&rq, "data", true, false);
        fake_fail(drv, cases[i].op, cases[i].code, "the very words", 1);
        struct result c = create_with(rq);
        if (c.fault != cases[i].want || !strstr(c.text, "the very words"))
            test_fail(__FILE__, __LINE__, "case %zu: %d %s", i, c.fault, c.text);
        ASSERT_INT(fake_count(drv), 0);
    }
    tear_down();
}

/* ---- what reaches the driver ---- */

TEST(the_whole_request_reaches_the_driver) {
    set_up_shared();
    drv->rules.isolation = true;
    struct create_request rq = request();
    rq.os = strdup(" Linux ");
    rq.arch = strdup("ARM64");
    rq.limits = json_pack("{s:s,s:s,s:s,s:s,s:s}", "cpu", "0.3333", "memory", "1G", "gpu", "ALL",
                          "disk", "lots", "fantasy", "x");
    rq.policy = json_pack("{s:s,s:[]}", "defaultAction", "deny", "egress");
    rq.extensions = json_pack("{s:s,s:s,s:s,s:s}", "access.renew.extend.seconds", " 300 ",
                              "opensandbox.extensions.note", "n", "other", "o",
                              "bootstrap.execd.isolation", "enable");
    rq.metadata = json_pack("{s:s}", "team", "x");
    rq.registry_user = strdup("me");
    rq.registry_password = strdup("secret-word");
    struct result c = create_with(rq);
    ASSERT_INT(c.fault, FAULT_NONE);
    _cleanup_json_ json_t *s = fake_last_spec(drv);
    ASSERT_STR(json_str(s, "os"), "linux");
    ASSERT_STR(json_str(s, "arch"), "arm64");
    ASSERT_INT(json_int(s, "cpuNanos", 0), 333300000);
    ASSERT_INT(json_int(s, "cpuMillis", 0), 333);
    ASSERT_INT(json_int(s, "memoryBytes", 0), 1000000000);
    ASSERT_INT(json_int(s, "gpus", 0), -1);
    ASSERT_INT(json_int(s, "diskBytes", 0), 0);
    ASSERT_STR(json_str(s, "renewExtend"), "300");
    ASSERT(json_bool(s, "isolation", false) && !json_bool(s, "credentialProxy", false));
    ASSERT_STR(json_str(json_object_get(s, "limits"), "fantasy"), "x");
    ASSERT_STR(json_str(json_object_get(s, "policy"), "defaultAction"), "deny");
    ASSERT_STR(json_str(json_object_get(s, "labels"), "team"), "x");
    ASSERT_INT(json_object_size(json_object_get(s, "extensions")), 1);
    ASSERT_INT(json_int(s, "expiresUs", 0), wall + 600 * 1000000LL);
    /* credentials are for the create only, and never written */
    ASSERT(!c.sb->spec.registry_user && !c.sb->spec.registry_password);
    _cleanup_free_ char *wal = str_printf("%s-wal", file), *text = NULL;
    size_t len;
    ASSERT_OK(path_read_file_at(AT_FDCWD, wal, 1 << 24, &text, &len));
    ASSERT(!memmem(text, len, "secret-word", 11));
    tear_down();
}

static bool in_list(const json_t *list, const char *what) {
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        if (strcmp(json_string_value(v), what) == 0)
            return true;
    }
    return false;
}

TEST(variables_of_the_guard_are_split_off) {
    set_up_shared();
    for (int policy = 0; policy < 3; policy++) { /* none, a policy, with the credential proxy */
        struct create_request rq = request();
        rq.policy = policy ? json_object() : NULL;
        rq.credential_proxy = policy == 2;
        strv_add(&rq.env, "A=1");
        strv_add(&rq.env, "EMPTY=");
        strv_add(&rq.env, "OPENSANDBOX_ID=mine");
        strv_add(&rq.env, "OPENSANDBOX_EGRESS_LOG_LEVEL=debug");
        strv_add(&rq.env, "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=false");
        strv_add(&rq.env, "SSL_CERT_FILE=/mine");
        struct result c = create_with(rq);
        ASSERT_INT(c.fault, FAULT_NONE);
        _cleanup_json_ json_t *s = fake_last_spec(drv);
        const json_t *env = json_object_get(s, "env"), *guard = json_object_get(s, "guardEnv");
        _cleanup_free_ char *id = str_printf("OPENSANDBOX_ID=%s", c.id);
        ASSERT_INT(json_array_size(env), policy ? 6 : 5);
        ASSERT(in_list(env, "EMPTY=") && in_list(env, "SSL_CERT_FILE=/mine"));
        ASSERT_STR(json_string_value(json_array_get(env, json_array_size(env) - 1)), id);
        ASSERT(!in_list(env, "OPENSANDBOX_EGRESS_LOG_LEVEL=debug"));
        ASSERT(in_list(env, "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=false") == (policy == 1));
        ASSERT(in_list(env, "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true") == (policy == 2));
        ASSERT_INT(json_array_size(guard), policy ? 2 : 0);
        ASSERT(in_list(guard, "OPENSANDBOX_EGRESS_LOG_LEVEL=debug") == (policy > 0));
    }
    /* the proxy sets the switch when the request has none; a plain policy does not */
    for (int proxied = 0; proxied < 2; proxied++) {
        struct create_request rq = request();
        rq.policy = json_object();
        rq.credential_proxy = proxied;
        ASSERT_INT(create_with(rq).fault, FAULT_NONE);
        _cleanup_json_ json_t *s = fake_last_spec(drv);
        ASSERT(in_list(json_object_get(s, "env"),
                       "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT=true") == proxied);
        ASSERT(json_bool(s, "credentialProxy", false) == proxied);
    }
    tear_down();
}

TEST(a_windows_profile_has_least_amounts_and_no_limits) {
    set_up_shared();
    static const struct {
        const char *cpu, *memory, *disk, *text; /* text NULL = fine */
    } cases[] = {
        {"1", "2G", "32G", "resourceLimits.cpu >= 2"},
        {"2", "2G", "32G", "resourceLimits.memory >= 4G"},
        {"2", "4G", "32G", "resourceLimits.disk >= 64G"},
        {"x", "4G", "64G", "Invalid resourceLimits.cpu"},
        {"4", "8G", "64G", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct create_request rq = request();
        strv_done(&rq.entrypoint);
        strv_add(&rq.entrypoint, "cmd /c \"echo ready\"");
        rq.os = strdup("windows");
        rq.arch = strdup("amd64");
        rq.limits = json_pack("{s:s,s:s,s:s}", "cpu", cases[i].cpu, "memory", cases[i].memory,
                              "disk", cases[i].disk);
        struct result c = create_with(rq);
        ASSERT_INT(c.fault, cases[i].text ? FAULT_INVALID : FAULT_NONE);
        ASSERT(!cases[i].text || strstr(c.text, cases[i].text));
    }
    _cleanup_json_ json_t *s = fake_last_spec(drv);
    ASSERT_INT(json_int(s, "memoryBytes", -1), 0);
    ASSERT_INT(json_int(s, "cpuMillis", -1), 0);
    ASSERT_STR(json_str(json_object_get(s, "limits"), "memory"), "8G");
    ASSERT_INT(json_array_size(json_object_get(s, "entrypoint")), 1); /* as given, unsplit */
    drv->rules.windows = false;
    struct create_request rq = request();
    rq.os = strdup("windows");
    rq.arch = strdup("amd64");
    ASSERT_INT(create_with(rq).fault, FAULT_INVALID);
    tear_down();
}

TEST(what_a_driver_does_not_do_is_refused_by_name) {
    set_up();
    static const struct {
        const char *limit, *extension, *value, *text;
        bool auth, policy;
    } cases[] = {
        {.limit = "gpu", .value = "1", .text = "resourceLimits.gpu is not supported"},
        {.limit = "fantasy", .value = "1", .text = "resourceLimits.fantasy is not supported"},
        {.limit = "pids", .value = "none", .text = "Invalid resourceLimits.pids"},
        {.extension = "bootstrap.execd.isolation", .value = "enable", .text = "isolation"},
        {.extension = "cove.fantasy", .value = "1", .text = "cove.fantasy"},
        {.auth = true, .text = "image.auth is not supported by the native provider."},
        {.policy = true, .text = "networkPolicy is not supported by the native provider."},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct create_request rq = request();
        if (cases[i].limit)
            rq.limits = json_pack("{s:s}", cases[i].limit, cases[i].value);
        if (cases[i].extension)
            rq.extensions = json_pack("{s:s}", cases[i].extension, cases[i].value);
        rq.registry_user = cases[i].auth ? strdup("me") : NULL;
        rq.policy = cases[i].policy ? json_object() : NULL;
        struct result c = create_with(rq);
        if (c.fault != FAULT_INVALID || !strstr(c.text, cases[i].text))
            test_fail(__FILE__, __LINE__, "case %zu: %d %s", i, c.fault, c.text);
    }
    drv->rules = (struct driver_rules){.provider = "docker"};
    static const char *const ours[][2] = {
        {"cove.network", "none"}, {"cove.cwd", "/w"}, {"cove.entrypoint", "none"}};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
        struct create_request rq = request();
        rq.extensions = json_pack("{s:s}", ours[i][0], ours[i][1]);
        struct result c = create_with(rq);
        ASSERT_INT(c.fault, FAULT_INVALID);
        ASSERT(strstr(c.text, ours[i][0]) && strstr(c.text, "Docker"));
    }
    struct create_request rq = request();
    rq.limits = json_pack("{s:s}", "disk", "1G");
    ASSERT_INT(create_with(rq).fault, FAULT_INVALID);
    tear_down();
}

TEST(no_timeout_means_manual_clean_up) {
    set_up_shared();
    struct create_request rq = request();
    rq.timeout_s = 0;
    rq.metadata = json_object();
    struct result c = create_with(rq);
    ASSERT(c.sb->expires_us == 0 && c.sb->spec.expires_us == 0 && c.sb->heap_pos == 0);
    rq = request();
    rq.timeout_s = INT64_MAX / 2;
    c = create_with(rq);
    ASSERT_INT(c.fault, FAULT_INVALID);
    ASSERT(strstr(c.text, "too large"));
    tear_down();
}

/* ---- volumes ---- */

static const json_t *mount_of(const json_t *spec, size_t i) {
    return json_array_get(json_object_get(spec, "mounts"), i);
}

TEST(named_volumes_are_made_and_end_as_asked) {
    set_up_shared();
    _cleanup_free_ char *there = path_join(dir, "there"), *part = path_join(there, "a/b");
    ASSERT_OK(path_mkdirs_at(AT_FDCWD, there, 0755));
    fake_add_volume(drv, "there", "local", there);
    fake_add_volume(drv, "remote", "nfs", NULL);
    struct create_request rq = request();
    add_claim(&rq, "mine", true, true);
    add_claim(&rq, "mine", true, true); /* one volume, mounted twice */
    add_claim(&rq, "stays", true, false);
    add_claim(&rq, "there", true, true);
    add_claim(&rq, "remote", false, false);
    add_volume(&rq,
               (struct volume_request){
                   .kind = VOLUME_NAMED, .claim = "there", .sub_path = "a//b/", .read_only = true});
    struct result c = create_with(rq), r;
    ASSERT_INT(c.fault, FAULT_NONE);
    _cleanup_json_ json_t *s = fake_last_spec(drv);
    const json_t *own = json_object_get(s, "ownVolumes");
    ASSERT_INT(json_array_size(own),
               1); /* made here and to end: neither what stays nor what was there */
    ASSERT(in_list(own, "mine"));
    ASSERT_STR(json_str(mount_of(s, 3), "volume"), "there");
    ASSERT_STR(json_str(mount_of(s, 5), "source"), part);
    ASSERT(!json_str(mount_of(s, 5), "volume") && json_bool(mount_of(s, 5), "readOnly", false));
    restart();
    OP(r, service_delete(svc, c.id, on_op, &r));
    ASSERT_INT(r.fault, FAULT_NONE);
    ASSERT(!fake_has_volume(drv, "mine") && fake_has_volume(drv, "stays"));
    ASSERT(fake_has_volume(drv, "there"));
    tear_down();
}

TEST(refused_volumes_leave_nothing) {
    set_up_shared();
    fake_add_volume(drv, "remote", "nfs", "/x");
    fake_add_volume(drv, "nowhere", "local", NULL);
    fake_add_volume(drv, "unseen", "local", "/no/such/place");
    const struct {
        struct volume_request v;
        enum fault want;
    } cases[] = {
        {{.claim = "none"}, FAULT_VOLUME_MISSING},
        {{.claim = "remote", .sub_path = "a"}, FAULT_VOLUME_SUBPATH_DRIVER},
        {{.claim = "nowhere", .sub_path = "a"}, FAULT_VOLUME_SUBPATH_DRIVER},
        {{.claim = "unseen", .sub_path = "a"}, FAULT_VOLUME_SUB_PATH},
        {{.claim = "A"}, FAULT_VOLUME_NAMED},
        {{.claim = "opensandbox-runtime-0a1b"}, FAULT_VOLUME_NAMED},
        {{.claim = "opensandbox-win-oem-0a1b"}, FAULT_VOLUME_NAMED},
        {{.claim = "remote", .sub_path = "../a"}, FAULT_VOLUME_SUB_PATH},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct create_request rq = request();
        struct volume_request v = cases[i].v;
        v.kind = VOLUME_NAMED;
        add_claim(&rq, "mine", true, true);
        add_volume(&rq, v);
        struct result c = create_with(rq);
        if (c.fault != cases[i].want)
            test_fail(__FILE__, __LINE__, "case %zu: %d %s", i, c.fault, c.text);
        ASSERT(!fake_has_volume(drv, "mine"));
    }
    ASSERT_INT(fake_calls(drv, FAKE_CREATE), 0);
    drv->rules.named_volumes = false;
    struct create_request rq = request();
    add_claim(&rq, "mine", true, true);
    ASSERT_INT(create_with(rq).fault, FAULT_VOLUME_UNSUPPORTED);
    tear_down();
}

TEST(a_part_of_a_volume_stays_inside) {
    set_up_shared();
    _cleanup_free_ char *top = str_printf("%s/vol", dir), *out = path_join(top, "out"),
                        *deep = path_join(top, "a/b"), *in = path_join(top, "in");
    ASSERT_OK(path_mkdirs_at(AT_FDCWD, deep, 0755));
    ASSERT(symlink("/etc", out) == 0 && symlink("a", in) == 0);
    fake_add_volume(drv, "data", "local", top);
    static const struct {
        const char *sub, *want; /* below the volume; NULL = refused */
    } cases[] = {
        {"a/b", "/a/b"}, {"in/b", "/a/b"},  {"new/dir", "/new/dir"},
        {"out", NULL},   {"out/new", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct create_request rq = request();
        add_volume(&rq, (struct volume_request){.kind = VOLUME_NAMED,
                                                .claim = "data",
                                                .sub_path = (char *)cases[i].sub});
        struct result c = create_with(rq);
        if (!cases[i].want) {
            ASSERT_INT(c.fault, FAULT_VOLUME_SUB_PATH);
            ASSERT(strstr(c.text, "symlink"));
            continue;
        }
        ASSERT_INT(c.fault, FAULT_NONE);
        _cleanup_free_ char *want = str_printf("%s%s", top, cases[i].want);
        ASSERT_STR(c.sb->spec.mounts[0].source, want);
    }
    ASSERT(access("/etc/new", F_OK) < 0);
    tear_down();
}

/* Volumes that cannot be removed are no reason to fail, nor to hide the first error. */
TEST(the_first_error_stays) {
    set_up_shared();
    struct create_request rq = request();
    add_claim(&rq, "mine", true, true);
    fake_fail(drv, FAKE_CREATE, -EIO, "the first", 1);
    fake_fail(drv, FAKE_VOLUME_REMOVE, -EBUSY, "the second", 1);
    struct result c = create_with(rq);
    ASSERT_INT(c.fault, FAULT_CREATE);
    ASSERT(strstr(c.text, "the first") && !strstr(c.text, "the second"));
    tear_down();
}

/* A program that mounts nothing and one that is not there: the manager has its own tests. */
TEST(object_storage_is_undone_when_it_cannot_be_mounted) {
    set_up_shared();
    setenv("PATH", "/nowhere", 1);
    struct create_request rq = request();
    add_claim(&rq, "mine", true, true);
    add_bucket(&rq, "bucket", "very-secret");
    add_bucket(&rq, "bucket", "very-secret");
    struct result c = create_with(rq);
    ASSERT_INT(c.fault, FAULT_OSS_MOUNT);
    ASSERT(!strstr(c.text, "very-secret"));
    ASSERT(!fake_has_volume(drv, "mine"));
    _cleanup_free_ char *path = path_join(oss_root, "bucket");
    ASSERT_INT(ossfs_users(svc->oss, path), 0);
    ASSERT_INT(fake_calls(drv, FAKE_CREATE), 0);
    drv->rules.oss_volumes = false;
    rq = request();
    add_bucket(&rq, "bucket", "s");
    ASSERT_INT(create_with(rq).fault, FAULT_VOLUME_UNSUPPORTED);
    tear_down();
}

TEST_MAIN()
