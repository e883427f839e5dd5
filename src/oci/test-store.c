/*
 * The store's C interface as the daemon uses it: threads, progress, results as structures. Files,
 * crashes and hostile archives are in tests/integration/test_images*.py.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/test.h"
#include "oci/store.h"

struct box {
    char path[64];
    char *source; /* a small directory to import */
    struct store *s;
    struct err err;
};

static struct store *open_store(const char *dir, const struct store_opts *opts) {
    _cleanup_free_ char *path = str_printf("%s/store", dir);
    struct store *s = NULL;
    struct err err = {0};
    if (store_open(path, opts, &s, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err_text(&err));
    return s;
}

static struct box box_new(void) {
    struct box b = {.path = "/tmp/cove-test-store-XXXXXX"};
    const struct store_opts opts = {.unpack_path = UNPACK_PATH};

    ASSERT(mkdtemp(b.path));
    b.source = str_printf("%s/source", b.path);
    ASSERT_INT(mkdir(b.source, 0755), 0);
    _cleanup_free_ char *file = str_printf("%s/f", b.source);
    ASSERT_OK(path_write_file_at(AT_FDCWD, file, "12345", 5, 0644, false));
    b.s = open_store(b.path, &opts);
    return b;
}

static void box_end(struct box *b) {
    store_free(b->s);
    free(b->source);
    ASSERT_OK(path_remove_tree_at(AT_FDCWD, b->path));
}

static int import(struct box *b, const char *name, const char *config, struct image *ret) {
    struct store_import_opts o = STORE_IMPORT_OPTS_INIT;
    _cleanup_json_ json_t *j = config ? json_parse(config, strlen(config), NULL) : NULL;
    _cleanup_close_ int fd = open(b->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    o.reference = name;
    o.config = j;
    return store_import(b->s, fd, &o, ret, &b->err);
}

TEST(import_and_resolve) {
    struct box b = box_new();
    _cleanup_image_ struct image a = {0}, c = {0};

    ASSERT_OK(import(&b, "local/x:1",
                     "{\"Env\":[\"A=1\",\"B=2\"],\"Entrypoint\":[\"e\"],\"Cmd\":[\"c\",\"d\"],"
                     "\"WorkingDir\":\"/w\",\"User\":\"7\"}",
                     &a));
    ASSERT_OK(store_resolve(b.s, "local/x:1", &c, &b.err));
    ASSERT_STR(a.id, c.id);
    ASSERT_STR(c.reference, "local/x:1");
    ASSERT_INT(c.n_layers, 1);
    ASSERT_INT(c.env.n, 2);
    ASSERT_STR(c.env.v[1], "B=2");
    ASSERT_STR(c.entrypoint.v[0], "e");
    ASSERT_STR(c.cmd.v[1], "d");
    ASSERT_STR(c.cwd, "/w");
    ASSERT_STR(c.user, "7");
    ASSERT_STR(c.os, "linux");
    ASSERT_INT(c.size_bytes, 5);
    ASSERT(c.imported_us > 0);
    ASSERT_INT(c.created_us, c.imported_us);
    _cleanup_free_ char *file = str_printf("%s/f", c.layers[0].path),
                        *link = str_printf("%s/%s/f", store_path(b.s), c.layers[0].link);
    ASSERT_INT(access(file, R_OK), 0);
    ASSERT_INT(access(link, R_OK), 0);
    box_end(&b);
}

TEST(empty_configuration) {
    struct box b = box_new();
    _cleanup_image_ struct image a = {0};

    ASSERT_OK(import(&b, "local/x", NULL, &a));
    ASSERT_STR(a.cwd, "");
    ASSERT_STR(a.user, "");
    ASSERT_INT(a.env.n + a.cmd.n + a.entrypoint.n, 0);
    box_end(&b);
}

TEST(list_and_remove) {
    struct box b = box_new();
    struct image *images;
    size_t n, freed;
    _cleanup_image_ struct image a = {0};

    ASSERT_OK(import(&b, "local/z", NULL, &a));
    ASSERT_OK(import(&b, "local/a", NULL, NULL));
    ASSERT_OK(store_list(b.s, &images, &n, &b.err));
    ASSERT_INT(n, 2);
    ASSERT_STR(images[0].reference, "local/a");
    ASSERT_STR(images[1].reference, "local/z");
    image_list_free(images, n);
    const char *in_use[] = {a.layers[0].name, NULL};
    ASSERT_OK(store_remove(b.s, "local/a", in_use, &b.err));
    ASSERT_OK(store_remove(b.s, "local/z", in_use, &b.err));
    ASSERT_INT(access(a.layers[0].path, F_OK), 0);
    ASSERT_OK(store_gc(b.s, NULL, &freed, &b.err));
    ASSERT_INT(freed, 1);
    ASSERT(access(a.layers[0].path, F_OK) < 0);
    ASSERT_INT(store_remove(b.s, "local/z", NULL, &b.err), -ENOENT);
    ASSERT(strstr(err_text(&b.err), "local/z"));
    ASSERT_INT(store_resolve(b.s, "local/z", &a, &b.err), -ENOENT);
    ASSERT_INT(store_resolve(b.s, "", &a, &b.err), -EINVAL);
    ASSERT_INT(store_resolve(b.s, NULL, &a, &b.err), -EINVAL);
    box_end(&b);
}

struct worker {
    struct box *b;
    pthread_t thread;
    char name[32];
    int result;
};

static void *work(void *ud) {
    struct worker *w = ud;
    struct store_import_opts o = STORE_IMPORT_OPTS_INIT;
    struct err err = {0};
    _cleanup_close_ int fd = open(w->b->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *path = NULL;

    o.reference = w->name;
    w->result = store_import(w->b->s, fd, &o, NULL, &err);
    for (int i = 0; w->result == 0 && i < 4; i++) {
        free(path);
        path = NULL;
        w->result = store_skeleton(w->b->s, (enum store_skeleton)i, &path, &err);
    }
    if (w->result == 0)
        w->result = store_gc(w->b->s, NULL, NULL, &err);
    free(path);
    return NULL;
}

/* One `struct store` in many threads: imports of one content, skeletons, garbage collection at the
 * same time. */
TEST(threads) {
    struct box b = box_new();
    struct worker w[6];
    struct image *images;
    size_t n;

    for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
        w[i] = (struct worker){.b = &b};
        snprintf(w[i].name, sizeof w[i].name, "local/%zu", i);
        ASSERT_INT(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
        pthread_join(w[i].thread, NULL);
        ASSERT_INT(w[i].result, 0);
    }
    ASSERT_OK(store_list(b.s, &images, &n, &b.err));
    ASSERT_INT(n, ARRAY_SIZE(w));
    image_list_free(images, n);
    box_end(&b);
}

static void count_progress(const struct store_progress *p, void *ud) {
    ASSERT_STR(p->phase, "layer");
    ASSERT_INT(p->layers, 1);
    ++*(int *)ud;
}

TEST(progress_and_cancel) {
    struct box b = box_new();
    struct store_import_opts o = STORE_IMPORT_OPTS_INIT;
    _cleanup_close_ int fd = open(b.source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int calls = 0, p[2];

    o.reference = "local/x";
    o.progress = count_progress;
    o.ud = &calls;
    ASSERT_OK(store_import(b.s, fd, &o, NULL, &b.err));
    ASSERT(calls > 0);
    ASSERT_INT(pipe2(p, O_CLOEXEC), 0);
    fd_close(p[1]);
    o.cancel_fd = p[0]; /* canceled before it begins */
    o.reference = "local/y";
    ASSERT_INT(store_import(b.s, fd, &o, NULL, &b.err), -ECANCELED);
    fd_close(p[0]);
    ASSERT_INT(store_resolve(b.s, "local/y", &(struct image){0}, &b.err), -ENOENT);
    box_end(&b);
}

TEST(missing_helper) {
    struct box b = box_new();
    const struct store_opts opts = {.unpack_path = "/nonexistent/cove-unpack"};

    store_free(b.s);
    b.s = open_store(b.path, &opts);
    ASSERT_INT(import(&b, "local/x", NULL, NULL), -ENOENT);
    ASSERT(strstr(err_text(&b.err), "/nonexistent/cove-unpack"));
    box_end(&b);
}

/* A helper that talks nonsense, or not at all, is an error and never a hang. */
TEST(lying_helpers) {
    static const char *const scripts[] = {
        "#!/bin/sh\necho nonsense\n",
        "#!/bin/sh\necho '{\"type\":\"result\"}'\n",
        "#!/bin/sh\necho '{\"type\":\"result\",\"diffId\":\"../../x\",\"digest\":\"\"}'\n",
        "#!/bin/sh\nexit 0\n",
        "#!/bin/sh\necho message >&2\nexit 3\n",
        "#!/bin/sh\nkill -SYS $$\n",
        "#!/bin/sh\nexec head -c 100000 /dev/zero\n",
        "#!/bin/sh\necho '{\"type\":\"error\",\"errno\":28,\"message\":\"full\"}'\nexit 1\n",
    };
    static const char *const want[] = {"unknown line", "bad result",  "bad result",  "status 0",
                                       "message",      "not allowed", "65536 bytes", "full"};
    struct box b = box_new();
    _cleanup_free_ char *helper = str_printf("%s/helper", b.path);
    const struct store_opts opts = {.unpack_path = helper};

    store_free(b.s);
    b.s = open_store(b.path, &opts);
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        ASSERT_OK(
            path_write_file_at(AT_FDCWD, helper, scripts[i], strlen(scripts[i]), 0700, false));
        ASSERT(import(&b, "local/x", NULL, NULL) < 0);
        if (!strstr(err_text(&b.err), want[i]))
            test_fail(__FILE__, __LINE__, "helper %zu: \"%s\" lacks \"%s\"", i, err_text(&b.err),
                      want[i]);
    }
    ASSERT_INT(b.err.code, -ENOSPC);
    box_end(&b);
}

TEST(store_at_odd_places) {
    struct store *s;
    struct err err = {0};

    ASSERT_INT(store_open("/nonexistent/dir/store", NULL, &s, &err), -ENOENT);
    ASSERT(strstr(err_text(&err), "/nonexistent/dir/store"));
    ASSERT_INT(store_open("/etc/passwd", NULL, &s, &err), -ENOTDIR);
}

TEST_MAIN()
