/*
 * Creates against a scripted engine: which requests go out, and what happens when they fail. Names
 * in comments are the seed's tests whose rule is pinned.
 */
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/path.h"
#include "base/test.h"
#include "daemon/driver/docker/agent_priv.h"
#include "daemon/driver/docker/test-engine.h"

/* What the engine has, and what it is told to refuse. */
struct world {
    struct fake_engine f;
    const char *info_os, *info_arch; /* NULL: /info fails */
    const char *image_arch;          /* NULL: no image is there */
    const char *image_labels;        /* JSON text */
    const char *pulled_arch;         /* what a pull brings; NULL = the pull fails */
    const char *create_error, *start_error, *put_error, *helper_error; /* messages */
    int start_failures; /* how often start_error comes; 0 = always */
    bool no_execd, no_opt;
    unsigned pull_ms;    /* a pull takes so long */
    unsigned containers; /* made so far */
    json_t *body;        /* of the last create of a sandbox */
    char *state;
    bool sees_us;       /* the engine reads our files */
    char *probe_source; /* what the last probe bound */
};

static void say(struct fake_answer *a, int status, const char *message) {
    a->status = status;
    buf_printf(&a->body, "{\"message\":\"%s\"}", message);
}

static void answer_image(struct world *w, struct fake_answer *a) {
    if (!w->image_arch)
        return;
    a->status = 200;
    buf_printf(
        &a->body,
        "{\"Id\":\"sha256:1\",\"Os\":\"linux\",\"Architecture\":\"%s\",\"Config\":{\"Labels\":"
        "%s}}",
        w->image_arch, w->image_labels ? w->image_labels : "null");
}

static void answer_pull(struct world *w, struct fake_answer *a) {
    a->status = 200;
    if (w->pull_ms) { /* others come in meanwhile */
        pthread_mutex_unlock(&w->f.lock);
        (void)poll(NULL, 0, (int)w->pull_ms);
        pthread_mutex_lock(&w->f.lock);
    }
    if (w->pulled_arch)
        w->image_arch = w->pulled_arch;
    buf_str(&a->body, w->pulled_arch ? "{\"status\":\"done\"}\n"
                                     : "{\"errorDetail\":{\"message\":\"registry says no\"},"
                                       "\"error\":\"registry says no\"}\n");
}

static void answer_create(struct world *w, const struct fake_request *q, struct fake_answer *a) {
    bool helper = !strstr(q->query, "name=sandbox-") || strstr(q->query, "name=sandbox-execd-");
    const char *error = helper ? w->helper_error : w->create_error;

    if (error) {
        say(a, 500, error);
        return;
    }
    if (strstr(q->query, "name=sandbox-execd-probe-")) {
        _cleanup_json_ json_t *body = json_parse(q->body, q->body_len, NULL);
        const json_t *mounts = json_object_get(json_object_get(body, "HostConfig"), "Mounts");
        free(w->probe_source);
        w->probe_source = strdup(json_str(json_array_get(mounts, 0), "Source"));
    } else if (!helper) {
        json_decref(w->body);
        w->body = json_parse(q->body, q->body_len, NULL);
    }
    a->status = 201;
    buf_printf(&a->body, "{\"Id\":\"c%u\"}", ++w->containers);
}

static void answer_start(struct world *w, struct fake_answer *a) {
    if (!w->start_error) {
        a->status = 204;
        return;
    }
    say(a, 500, w->start_error);
    if (w->start_failures && --w->start_failures == 0)
        w->start_error = NULL;
}

/* The script plays an engine that sees our files: it reads the probe's file itself. */
static bool answer_probe(const struct world *w, const struct fake_request *q,
                         struct fake_answer *a) {
    char *content = NULL;
    size_t len;

    if (!strstr(q->query, "cove-probe") || !w->probe_source)
        return false;
    if (w->sees_us && path_read_file_at(AT_FDCWD, w->probe_source, 4096, &content, &len) == 0) {
        a->status = 200;
        a->type = "application/x-tar";
        tar_file(&a->body, "cove-probe", 0644, content, len);
        tar_end(&a->body);
        free(content);
    }
    return true;
}

/* Files of an execd image: their content is the platform of the image. */
static void answer_archive(struct world *w, const struct fake_request *q, struct fake_answer *a) {
    bool is_execd = strstr(q->query, "execd"), is_launcher = strstr(q->query, "bootstrap.sh");
    const char *content = w->image_arch ? w->image_arch : "?";

    if (answer_probe(w, q, a))
        return;
    if ((!is_execd && !is_launcher) || (is_execd && w->no_execd))
        return;
    a->status = 200;
    a->type = "application/x-tar";
    tar_file(&a->body, is_execd ? "execd" : "bootstrap.sh", 0755, content, strlen(content));
    tar_end(&a->body);
}

static void answer_inspect(struct world *w, struct fake_answer *a) {
    json_t *labels = json_object_get(w->body, "Labels");
    json_t *j =
        json_pack("{s:s, s:{s:s,s:i,s:b,s:s,s:s}, s:{s:O}, s:{s:s}}", "Id", "c", "State", "Status",
                  w->state ? w->state : "exited", "ExitCode", 7, "Running",
                  w->state && str_eq(w->state, "running"), "StartedAt", "2026-01-01T00:00:00Z",
                  "FinishedAt", "2026-01-01T00:00:01Z", "Config", "Labels",
                  labels ? labels : json_null(), "HostConfig", "NetworkMode", "bridge");
    char id[16];
    snprintf(id, sizeof id, "c%u", w->containers);
    json_object_set_new(j, "Id", json_string(id));
    a->status = 200;
    buf_json(&a->body, j);
    json_decref(j);
}

static void answer(struct fake_engine *f, const struct fake_request *q, struct fake_answer *a) {
    struct world *w = f->ud;
    bool get = str_eq(q->method, "GET"), post = str_eq(q->method, "POST");

    if (str_eq(q->path, "/info") && w->info_os) {
        a->status = 200;
        buf_printf(&a->body, "{\"OSType\":\"%s\",\"Architecture\":\"%s\"}", w->info_os,
                   w->info_arch);
    } else if (str_eq(q->path, "/info")) {
        say(a, 500, "no info");
    } else if (str_starts(q->path, "/images/") && get) {
        answer_image(w, a);
    } else if (str_eq(q->path, "/images/create")) {
        if (*q->auth)
            strv_add(&f->log, "AUTH");
        answer_pull(w, a);
    } else if (str_eq(q->path, "/containers/create")) {
        answer_create(w, q, a);
    } else if (str_ends(q->path, "/start") && post) {
        answer_start(w, a);
    } else if (str_ends(q->path, "/archive") && get) {
        answer_archive(w, q, a);
    } else if (str_ends(q->path, "/archive")) {
        if (w->put_error)
            say(a, 500, w->put_error);
        else if (!w->no_opt || !strstr(q->query, "opt"))
            a->status = 200;
    } else if (str_ends(q->path, "/json") && get) {
        answer_inspect(w, a);
    } else if (str_eq(q->method, "DELETE")) {
        a->status = 204;
    }
}

static struct docker *start(struct world *w, const struct docker_config *c) {
    w->f.answer = answer;
    w->f.ud = w;
    if (!w->info_os) {
        w->info_os = "linux";
        w->info_arch = "x86_64";
    } else if (!*w->info_os) {
        w->info_os = NULL;
    }
    fake_engine_start(&w->f);
    struct docker *k = fake_docker_new(&w->f, c);
    k->agent->binds_known = -1; /* unless a test says otherwise */
    return k;
}

static void stop(struct world *w, struct docker *k) {
    fake_docker_free(k);
    fake_engine_stop(&w->f);
    json_decref(w->body);
}

static unsigned pulls(struct world *w) {
    return fake_engine_count(&w->f, "POST /images/create");
}

static int ensure(struct docker *k, const char *os, const char *arch, struct err *err) {
    const struct image_wish wish = {.ref = "python:3.11", .os = os, .arch = arch};
    return pulls_ensure(k, &wish, err);
}

/* ---- images ---- */

/* test_ensure_image_available_repulls_when_cached_platform_mismatch,
 * test_pull_image_passes_platform_to_docker_api */
TEST(image_of_another_platform_is_pulled_again) {
    struct world w = {.image_arch = "amd64", .pulled_arch = "arm64"};
    struct docker *k = start(&w, NULL);
    struct err err = {0};
    ASSERT_OK(ensure(k, "linux", "arm64", &err));
    ASSERT_INT(pulls(&w), 1);
    ASSERT_INT(fake_engine_count(&w.f, "fromImage=python&tag=3.11&platform=linux%2Farm64"), 1);
    ASSERT_INT(fake_engine_count(&w.f, "AUTH"), 0);
    ASSERT_OK(ensure(k, "linux", "arm64", &err)); /* there now */
    ASSERT_INT(pulls(&w), 1);
    stop(&w, k);
}

/* test_ensure_image_available_repulls_when_platform_omitted_and_cached_arch_differs */
TEST(image_of_another_machine_is_pulled_again) {
    struct world w = {.image_arch = "arm64", .pulled_arch = "amd64"};
    struct docker *k = start(&w, NULL);
    struct err err = {0};
    ASSERT_OK(ensure(k, NULL, NULL, &err));
    ASSERT_INT(fake_engine_count(&w.f, "platform=linux%2Famd64"), 1);
    stop(&w, k);
}

/* test_ensure_image_available_does_not_repull_when_platform_omitted_and_cached_amd64; the engine's
 * platform is asked for once */
TEST(image_that_fits_is_not_pulled) {
    struct world w = {.image_arch = "amd64"};
    struct docker *k = start(&w, NULL);
    struct err err = {0};
    ASSERT_OK(ensure(k, NULL, NULL, &err));
    ASSERT_OK(ensure(k, NULL, NULL, &err));
    ASSERT_OK(ensure(k, "linux", "amd64", &err));
    ASSERT_INT(pulls(&w), 0);
    ASSERT_INT(fake_engine_count(&w.f, "GET /info"), 1);
    stop(&w, k);
}

TEST(image_of_an_unknown_engine_is_taken_as_it_is) {
    struct world w = {.info_os = "", .image_arch = "riscv64"};
    struct docker *k = start(&w, NULL);
    struct err err = {0};
    ASSERT_OK(ensure(k, NULL, NULL, &err));
    ASSERT_INT(pulls(&w), 0);
    stop(&w, k);
}

/* test_pull_image_skips_platform_for_windows_profile,
 * test_ensure_image_available_skips_windows_platform_mismatch_repull */
TEST(image_of_windows_has_no_platform) {
    struct world w = {.image_arch = "amd64", .pulled_arch = "amd64"};
    struct docker *k = start(&w, NULL);
    struct err err = {0};
    ASSERT_OK(ensure(k, "windows", "amd64", &err));
    ASSERT_INT(pulls(&w), 0);
    w.image_arch = NULL;
    ASSERT_OK(ensure(k, "windows", "amd64", &err));
    ASSERT_INT(pulls(&w), 1);
    ASSERT_INT(fake_engine_count(&w.f, "platform="), 0);
    stop(&w, k);
}

/* A missing image is pulled as it was asked for: without a platform when none was named. */
TEST(image_that_is_missing) {
    struct world w = {.pulled_arch = "amd64"};
    struct docker *k = start(&w, NULL);
    struct err err = {0};
    ASSERT_OK(ensure(k, NULL, NULL, &err));
    ASSERT_INT(pulls(&w), 1);
    ASSERT_INT(fake_engine_count(&w.f, "platform="), 0);
    w.image_arch = NULL;
    w.pulled_arch = NULL;
    ASSERT_INT(ensure(k, NULL, NULL, &err), DRIVER_IMAGE_PULL);
    ASSERT_INT(err.code, DRIVER_IMAGE_PULL);
    ASSERT(strstr(err.msg, "registry says no") && strstr(err.msg, "python:3.11"));
    stop(&w, k);
}

TEST(image_of_a_snapshot_is_never_pulled) {
    struct world w = {.image_arch = "arm64", .pulled_arch = "amd64"};
    struct docker *k = start(&w, NULL);
    const struct image_wish wish = {.ref = "snap:1", .never_pull = true};
    struct err err = {0};
    ASSERT_OK(pulls_ensure(k, &wish, &err)); /* whatever its platform */
    w.image_arch = NULL;
    ASSERT_INT(pulls_ensure(k, &wish, &err), DRIVER_IMAGE_PULL);
    ASSERT_INT(pulls(&w), 0);
    stop(&w, k);
}

struct puller {
    struct docker *k;
    const char *user;
    int result;
    struct err err;
    pthread_t thread;
};

static void *run_puller(void *arg) {
    struct puller *p = arg;
    const struct image_wish wish = {
        .ref = "python:3.11", .user = p->user, .password = p->user ? "pw" : NULL};
    p->result = pulls_ensure(p->k, &wish, &p->err);
    return NULL;
}

static void pull_at_once(struct docker *k, struct puller *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        p[i].k = k;
        ASSERT(pthread_create(&p[i].thread, NULL, run_puller, &p[i]) == 0);
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(p[i].thread, NULL);
}

/* Row 1: concurrent creates of one missing image share a pull, other credentials have their own. */
TEST(image_pulls_are_joined) {
    struct world w = {.pulled_arch = "amd64", .pull_ms = 300};
    struct puller p[16] = {0};
    struct docker *k = start(&w, NULL);
    pull_at_once(k, p, 16);
    for (size_t i = 0; i < 16; i++)
        ASSERT_OK(p[i].result);
    ASSERT_INT(pulls(&w), 1);
    ASSERT_INT(fake_engine_count(&w.f, "AUTH"), 0);
    stop(&w, k);
}

TEST(image_pulls_fail_together) {
    struct world w = {.pull_ms = 300};
    struct puller p[8] = {0};
    struct docker *k = start(&w, NULL);
    pull_at_once(k, p, 8);
    for (size_t i = 0; i < 8; i++) {
        ASSERT_INT(p[i].result, DRIVER_IMAGE_PULL);
        ASSERT(strstr(p[i].err.msg, "registry says no"));
        ASSERT(!strstr(p[i].err.msg, "pw"));
    }
    ASSERT_INT(pulls(&w), 1);
    stop(&w, k);
}

TEST(image_pulls_of_other_credentials_are_not_joined) {
    struct world w = {.pull_ms = 300};
    struct puller p[4] = {{.user = "a"}, {.user = "b"}, {.user = "a"}, {0}};
    struct docker *k = start(&w, NULL);
    pull_at_once(k, p, 4);
    ASSERT_INT(pulls(&w), 3);
    ASSERT_INT(fake_engine_count(&w.f, "AUTH"), 2);
    stop(&w, k);
}

/* ---- networks ---- */

/* test_validate_network_skipped_for_builtin_modes,
 * test_create_sandbox_fails_when_user_defined_network_not_found */
TEST(network_check) {
    static const char *const builtin[] = {"host", "bridge", "none", "container:x"};
    struct world w = {0};
    struct docker *k = start(&w, NULL);
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_SIZE(builtin); i++) {
        k->config.network_mode = builtin[i];
        ASSERT_OK(docker_check_network(&k->driver, &err));
    }
    ASSERT_INT(w.f.log.n, 0);
    k->config.network_mode = "My-Net";
    ASSERT_INT(docker_check_network(&k->driver, &err), -EINVAL);
    ASSERT(strstr(err.msg, "My-Net") && strstr(err.msg, "docker network create"));
    stop(&w, k);
}

/* ---- the agent of an image ---- */

static const struct docker_config with_image = {.execd_image = "execd:1"};

/* test_fetch_execd_archive_caches_by_platform_key */
TEST(agent_archives_by_platform) {
    struct world w = {.image_arch = "amd64", .pulled_arch = "arm64"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    struct archive *a, *b, *c;
    ASSERT_OK(archive_get(k, ARCHIVE_IMAGE, "linux/amd64", false, &a, &err));
    ASSERT_OK(archive_get(k, ARCHIVE_IMAGE, "linux/amd64", false, &b, &err));
    ASSERT(a == b);
    ASSERT_INT(fake_engine_count(&w.f, "POST /containers/create"), 1);
    ASSERT_OK(archive_get(k, ARCHIVE_IMAGE, "linux/arm64", false, &c, &err));
    ASSERT_INT(fake_engine_count(&w.f, "POST /containers/create"), 2);
    ASSERT_INT(fake_engine_count(&w.f, "platform=linux%2Farm64&name=sandbox-execd-"), 1);
    ASSERT(memmem(a->tar.data, a->tar.len, "amd64", 5));
    ASSERT(memmem(c->tar.data, c->tar.len, "arm64", 5));
    ASSERT_INT(fake_engine_count(&w.f, "/start"), 0); /* never started */
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c"), 2);
    archive_put(k, a);
    archive_put(k, b);
    archive_put(k, c);
    stop(&w, k);
}

/* test_fetch_execd_archive_maps_platform_typeerror_to_invalid_parameter */
TEST(agent_of_an_old_engine) {
    struct world w = {.f = {.api_version = "1.40"}, .image_arch = "arm64"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    struct archive *a;
    ASSERT_INT(archive_get(k, ARCHIVE_IMAGE, "linux/arm64", false, &a, &err), -EINVAL);
    ASSERT(strstr(err.msg, "platform-aware container create"));
    stop(&w, k);
}

TEST(agent_that_is_missing_or_does_not_start) {
    struct world w = {.image_arch = "amd64", .no_execd = true};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    struct archive *a;
    ASSERT_INT(archive_get(k, ARCHIVE_IMAGE, "linux/amd64", false, &a, &err), DRIVER_AGENT_COPY);
    ASSERT(strstr(err.msg, "/execd"));
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c1"), 1);
    w.helper_error = "no space left";
    ASSERT_INT(archive_get(k, ARCHIVE_IMAGE, "linux/amd64", false, &a, &err), DRIVER_AGENT_START);
    ASSERT(strstr(err.msg, "no space left"));
    w.helper_error = NULL;
    w.no_execd = false;
    ASSERT_OK(
        archive_get(k, ARCHIVE_IMAGE, "linux/amd64", false, &a, &err)); /* failures are not kept */
    archive_put(k, a);
    stop(&w, k);
}

/* ---- bound or copied ---- */

static char *make_dir(const char *name) {
    char *path = str_printf("/tmp/cove-test-%d-%s", getpid(), name);
    ASSERT(path && mkdir(path, 0755) == 0);
    return path;
}

struct own {
    struct world w;
    struct docker_config c;
    struct docker *k;
    struct utsname machine;
    char *state, *libexec;
};

/* Our own agent, and an engine of this machine that has not been probed yet. */
static void start_own(struct own *o, bool sees_us) {
    ASSERT(uname(&o->machine) == 0);
    o->state = make_dir("state");
    o->libexec = make_dir("libexec");
    _cleanup_free_ char *program = path_join(o->libexec, "cove-execd");
    ASSERT_OK(path_write_file_at(AT_FDCWD, program, "the agent", 9, 0755, false));
    o->c = (struct docker_config){.state_dir = o->state, .libexec_dir = o->libexec};
    o->w.image_arch = o->w.info_arch = o->machine.machine;
    o->w.info_os = "linux";
    o->w.sees_us = sees_us;
    o->k = start(&o->w, &o->c);
    o->k->agent->binds_known = 0;
}

static void stop_own(struct own *o) {
    stop(&o->w, o->k);
    free(o->w.probe_source);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, o->state));
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, o->libexec));
    free(o->state);
    free(o->libexec);
}

static int create(struct docker *k, struct err *err);

static const json_t *mount_of(const struct world *w, size_t i) {
    return json_array_get(json_object_get(json_object_get(w->body, "HostConfig"), "Mounts"), i);
}

TEST(agent_is_bound_where_the_engine_sees_our_files) {
    struct own o = {0};
    struct err err = {0};
    char *content;
    size_t len;
    start_own(&o, true);
    ASSERT_OK(create(o.k, &err));
    ASSERT_OK(create(o.k, &err));
    ASSERT_INT(fake_engine_count(&o.w.f, "create?name=sandbox-execd-probe-"), 1);
    ASSERT_INT(fake_engine_count(&o.w.f, "PUT "), 0);
    ASSERT_STR(json_str(mount_of(&o.w, 0), "Target"), "/opt/opensandbox/execd");
    ASSERT_STR(json_str(mount_of(&o.w, 1), "Target"), "/opt/opensandbox/bootstrap.sh");
    for (size_t i = 0; i < 2; i++) {
        ASSERT(json_bool(mount_of(&o.w, i), "ReadOnly", false));
        ASSERT_OK(path_read_file_at(AT_FDCWD, json_str(mount_of(&o.w, i), "Source"), 4096, &content,
                                    &len));
        ASSERT_STR(content, "the agent");
        free(content);
    }
    ASSERT(access(o.w.probe_source, F_OK) < 0); /* cleared away */
    stop_own(&o);
}

TEST(agent_is_copied_where_it_does_not) {
    struct own o = {0};
    struct err err = {0};
    start_own(&o, false);
    ASSERT_OK(create(o.k, &err));
    ASSERT_OK(create(o.k, &err));
    ASSERT_INT(fake_engine_count(&o.w.f, "create?name=sandbox-execd-probe-"), 1);
    ASSERT_INT(fake_engine_count(&o.w.f, "PUT "), 2);
    ASSERT(!mount_of(&o.w, 0));
    stop_own(&o);
}

TEST(agent_that_cannot_run_bound_is_copied) {
    struct own o = {.w = {.start_error = "exec: /opt/opensandbox/bootstrap.sh: permission denied",
                          .start_failures = 1}};
    struct err err = {0};
    start_own(&o, true);
    ASSERT_OK(create(o.k, &err));
    ASSERT_INT(fake_engine_count(&o.w.f, "PUT "), 1);
    ASSERT(!mount_of(&o.w, 0));
    ASSERT_OK(create(o.k, &err)); /* for good */
    ASSERT_INT(fake_engine_count(&o.w.f, "/start"), 3);
    ASSERT_INT(fake_engine_count(&o.w.f, "PUT "), 2);
    stop_own(&o);
}

/* A refusal that has nothing to do with our files is no answer. */
TEST(agent_probe_is_repeated_after_a_fault) {
    struct own o = {.w = {.helper_error = "no space left"}};
    struct err err = {0};
    start_own(&o, true);
    ASSERT_OK(create(o.k, &err));
    ASSERT_INT(fake_engine_count(&o.w.f, "PUT "), 1);
    o.w.helper_error = NULL;
    ASSERT_OK(create(o.k, &err));
    ASSERT_INT(fake_engine_count(&o.w.f, "PUT "), 1);
    ASSERT(mount_of(&o.w, 1));
    stop_own(&o);
}

/* ... but not for ever. */
TEST(agent_probe_is_given_up) {
    struct own o = {.w = {.helper_error = "no space left"}};
    struct err err = {0};
    start_own(&o, true);
    for (int i = 0; i < 8; i++)
        ASSERT_OK(create(o.k, &err));
    ASSERT_INT(fake_engine_count(&o.w.f, "create?name=sandbox-execd-probe-"), 5);
    ASSERT_INT(fake_engine_count(&o.w.f, "PUT "), 8);
    stop_own(&o);
}

TEST(agent_of_another_machine) {
    struct own o = {0};
    struct err err = {0};
    start_own(&o, false);
    o.w.info_arch = o.w.image_arch = "riscv64";
    ASSERT_INT(create(o.k, &err), DRIVER_AGENT_COPY);
    ASSERT(strstr(err.msg, "runtime.execd_image"));
    stop_own(&o);
}

/* ---- creates ---- */

static struct sandbox_spec make_spec(void) {
    struct sandbox_spec s = {.image = strdup("python:3.11")};
    str_copy(s.id, sizeof s.id, "0a1b2c3d-0000-4000-8000-000000000001");
    strv_add(&s.entrypoint, "python");
    return s;
}

static int create(struct docker *k, struct err *err) {
    struct sandbox_spec s = make_spec();
    struct instance_info info;
    int r = docker_create(&k->driver, &s, &info, NULL, err);
    sandbox_spec_done(&s);
    return r;
}

/* test_create_and_start_container_uses_unconstrained_platform_for_execd; no platform argument */
TEST(create_takes_the_agent_of_the_images_platform) {
    struct world w = {.info_os = "linux", .info_arch = "arm64", .image_arch = "arm64"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    ASSERT_OK(create(k, &err));
    ASSERT_INT(fake_engine_count(&w.f, "platform=linux%2Farm64&name=sandbox-execd-"), 1);
    ASSERT_INT(fake_engine_count(&w.f, "create?name=sandbox-0a1b2c3d"), 1);
    ASSERT_INT(fake_engine_count(&w.f, "PUT /containers/c2/archive"), 1);
    stop(&w, k);
}

/* test_create_sandbox_passes_platform_to_container_create,
 * test_create_and_start_container_maps_platform_typeerror_to_invalid_parameter */
TEST(create_passes_the_platform) {
    struct world w = {.image_arch = "arm64"};
    struct docker *k = start(&w, &with_image);
    struct sandbox_spec s = make_spec();
    struct instance_info info;
    struct err err = {0};
    s.os = strdup("linux");
    s.arch = strdup("arm64");
    ASSERT_OK(docker_create(&k->driver, &s, &info, NULL, &err));
    ASSERT_INT(fake_engine_count(&w.f, "platform=linux%2Farm64&name=sandbox-0a1b"), 1);
    stop(&w, k);
    struct world old = {.f = {.api_version = "1.40"}, .image_arch = "arm64"};
    k = start(&old, &with_image);
    ASSERT_INT(docker_create(&k->driver, &s, &info, NULL, &err), -EINVAL);
    ASSERT(strstr(err.msg, "platform-aware container create"));
    stop(&old, k);
    sandbox_spec_done(&s);
}

/* test_prepare_runtime_failure_triggers_cleanup */
TEST(create_removes_the_container_after_a_failure) {
    struct world w = {.image_arch = "amd64", .put_error = "tarfile error"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    ASSERT_INT(create(k, &err), DRIVER_AGENT_COPY);
    ASSERT(strstr(err.msg, "tarfile error"));
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c2?v=1&force=1"), 1);
    ASSERT_INT(map_size(k->boxes), 0);
    w.put_error = NULL;
    w.start_error = "OCI runtime create failed";
    ASSERT_INT(create(k, &err), -EIO);
    ASSERT(strstr(err.msg, "OCI runtime create failed"));
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c3?v=1&force=1"), 1);
    w.create_error = "bad mount";
    ASSERT_INT(create(k, &err), -EIO);
    ASSERT(strstr(err.msg, "bad mount"));
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers"), 3); /* the helper's among them */
    stop(&w, k);
}

/* Which fault is told when both would come: the container's. */
TEST(create_tells_the_containers_fault_before_the_agents) {
    struct world w = {
        .image_arch = "amd64", .helper_error = "no helper", .create_error = "no container"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    ASSERT_INT(create(k, &err), -EIO);
    ASSERT(strstr(err.msg, "no container"));
    w.create_error = NULL;
    ASSERT_INT(create(k, &err), DRIVER_AGENT_START);
    ASSERT(strstr(err.msg, "no helper"));
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c1?"), 1);
    stop(&w, k);
}

static const char *label_of(const struct world *w, const char *key) {
    return json_str(json_object_get(w->body, "Labels"), key);
}

/* Row 4: fresh ports after a conflict, and bindings and labels follow. */
TEST(create_tries_again_with_fresh_ports) {
    struct world w = {.image_arch = "amd64",
                      .start_error = "Bind for 0.0.0.0:1 failed: port is already allocated",
                      .start_failures = 2};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    ASSERT_OK(create(k, &err));
    ASSERT_INT(fake_engine_count(&w.f, "/start"), 3);
    ASSERT_INT(fake_engine_count(&w.f, "create?name=sandbox-0a1b2c3d"), 3);
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c2?v=1&force=1"), 1);
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c3?v=1&force=1"), 1);
    const json_t *bound = json_array_get(
        json_object_get(json_object_get(json_object_get(w.body, "HostConfig"), "PortBindings"),
                        "44772/tcp"),
        0);
    ASSERT_STR(label_of(&w, LABEL_AGENT_PORT), json_str(bound, "HostPort"));
    w.start_error = "port is already allocated";
    w.start_failures = 0;
    ASSERT_INT(create(k, &err), -EIO); /* after three */
    ASSERT(strstr(err.msg, "port is already allocated"));
    ASSERT_INT(fake_engine_count(&w.f, "/start"), 6);
    ASSERT_INT(fake_engine_count(&w.f, "DELETE /containers/c7?v=1&force=1"), 1);
    stop(&w, k);
}

/* Row 18 and 4.7: nothing is published without a network of its own. */
TEST(create_publishes_only_where_it_means_something) {
    static const char *const modes[] = {"host", "none", "container:x", "Net"};
    struct world w = {.image_arch = "amd64"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        k->config.network_mode = modes[i];
        ASSERT_OK(create(k, &err));
        const json_t *host = json_object_get(w.body, "HostConfig");
        ASSERT_STR(json_str(host, "NetworkMode"), modes[i]);
        ASSERT_INT(json_object_get(host, "PortBindings") != NULL, i == 3);
        ASSERT_INT(label_of(&w, LABEL_AGENT_PORT) != NULL, i == 3);
    }
    stop(&w, k);
}

/* Row 10 */
TEST(create_blanks_reserved_labels_of_the_image) {
    struct world w = {.image_arch = "amd64",
                      .image_labels =
                          "{\"opensandbox.io/expires-at\":\"2001-01-01T00:00:00Z\","
                          "\"opensandbox.io/egress-auth-token\":\"t\",\"vendor\":\"v\"}"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    ASSERT_OK(create(k, &err));
    ASSERT_STR(label_of(&w, LABEL_EXPIRES_AT), "");
    ASSERT_STR(label_of(&w, LABEL_GUARD_TOKEN), "");
    ASSERT(!label_of(&w, "vendor"));
    stop(&w, k);
}

/* An image without /opt: it is made open before the agent is unpacked in it. */
TEST(create_in_an_image_without_opt) {
    struct world w = {.image_arch = "amd64", .no_opt = true};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    ASSERT_INT(create(k, &err), DRIVER_AGENT_COPY); /* the script never has one */
    ASSERT_INT(fake_engine_count(&w.f, "PUT /containers/c2/archive"), 3);
    stop(&w, k);
}

static unsigned changes;
static struct instance_info last_change;

static void on_change(const struct instance_info *info, void *ud) {
    (void)ud;
    changes++;
    last_change = *info;
}

/* A container that has ended already is a create all the same; its end is told. */
TEST(create_of_what_ends_at_once) {
    struct world w = {.image_arch = "amd64"};
    struct docker *k = start(&w, &with_image);
    struct err err = {0};
    k->driver.events.on_change = on_change;
    ASSERT_OK(create(k, &err));
    ASSERT_INT(changes, 1);
    ASSERT_INT(last_change.state, INST_EXITED);
    ASSERT_INT(last_change.exit_code, 7);
    ASSERT_INT(map_size(k->boxes), 1);
    stop(&w, k);
}

TEST(create_whose_agent_is_late) {
    struct world w = {.image_arch = "amd64", .state = "running"};
    const struct docker_config c = {.execd_image = "execd:1", .start_timeout_ms = 200};
    struct docker *k = start(&w, &c);
    struct err err = {0};
    ASSERT_OK(create(k, &err)); /* the client's own check finds out */
    stop(&w, k);
}

TEST(create_refuses_paths_with_colons) {
    struct world w = {.image_arch = "amd64"};
    struct docker *k = start(&w, &with_image);
    struct sandbox_spec s = make_spec();
    struct instance_info info;
    struct err err = {0};
    s.mounts = calloc(1, sizeof *s.mounts);
    s.n_mounts = 1;
    s.mounts[0] = (struct mount_spec){.source = strdup("/a:/etc"), .target = strdup("/b")};
    ASSERT_INT(docker_create(&k->driver, &s, &info, NULL, &err), -EINVAL);
    ASSERT_INT(w.f.log.n, 0);
    sandbox_spec_done(&s);
    stop(&w, k);
}

TEST_MAIN()
