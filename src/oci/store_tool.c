/*
 * A thin command over the image store and the runtime configuration, for the integration tests
 * (tests/integration/test_images.py). Not installed. Answers are JSON on stdout, errors one line on
 * stderr with exit status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "oci/runtime_config.h"
#include "oci/seccomp.h"
#include "oci/store.h"

static int fail(const struct err *err) {
    fprintf(stderr, "%d %s\n", -err->code, err_text(err));
    return 1;
}

static int print(json_t *j) {
    int r = json_dumpf(j, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(j);
    puts("");
    return r < 0;
}

static json_t *image_json(const struct image *img) {
    json_t *layers = json_array();

    for (size_t i = 0; i < img->n_layers; i++)
        json_array_append_new(layers,
                              json_pack("{s:s, s:s, s:s}", "name", img->layers[i].name, "path",
                                        img->layers[i].path, "link", img->layers[i].link));
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:I, s:s, s:s}", "id", img->id, "reference",
                     img->reference, "layers", layers, "cwd", img->cwd, "user", img->user, "size",
                     (json_int_t)img->size_bytes, "env", img->env.n ? img->env.v[0] : "", "cmd",
                     img->cmd.n ? img->cmd.v[0] : "");
}

static void show_progress(const struct store_progress *p, void *ud) {
    fprintf(stderr, "progress %s %u/%u bytes=%llu entries=%llu\n", p->phase, p->layer, p->layers,
            (unsigned long long)p->bytes, (unsigned long long)p->entries);
}

/* import REFERENCE SOURCE|- [FORMAT [CONFIG|- [REF_NAME]]]; with "-" as source the cancel
 * descriptor is 3 when open. */
static int do_import(struct store *s, char **argv, int n, struct err *err) {
    static const char *const formats[] = {"auto", "tar", "dir", "oci", "docker"};
    struct store_import_opts o = STORE_IMPORT_OPTS_INIT;
    _cleanup_json_ json_t *config = NULL;
    _cleanup_image_ struct image img = {0};
    _cleanup_close_ int fd = -1;

    o.reference = argv[0];
    o.progress = getenv("PROGRESS") ? show_progress : NULL;
    uint64_t cancel;
    if (getenv("CANCEL") && str_to_u64(getenv("CANCEL"), &cancel) == 0)
        o.cancel_fd = (int)cancel;
    for (size_t i = 0; n > 2 && i < ARRAY_SIZE(formats); i++)
        if (str_eq(argv[2], formats[i]))
            o.format = (enum store_format)i;
    if (n > 3 && !str_eq(argv[3], "-") && !(config = json_parse(argv[3], strlen(argv[3]), err)))
        return -EINVAL;
    o.config = config;
    o.ref_name = n > 4 ? argv[4] : NULL;
    fd = str_eq(argv[1], "-") ? dup(0) : open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, -errno, "%s", argv[1]);
    int r = store_import(s, fd, &o, &img, err);
    if (r == 0)
        print(image_json(&img));
    return r;
}

static int do_list(struct store *s, struct err *err) {
    struct image *images;
    size_t n;
    int r = store_list(s, &images, &n, err);

    if (r < 0)
        return r;
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, image_json(&images[i]));
    image_list_free(images, n);
    print(out);
    return 0;
}

static int do_resolve(struct store *s, const char *reference, struct err *err) {
    _cleanup_image_ struct image img = {0};
    int r = store_resolve(s, reference, &img, err);
    if (r == 0)
        print(image_json(&img));
    return r;
}

static int do_inspect(struct store *s, const char *reference, struct err *err) {
    json_t *j;
    int r = store_inspect(s, reference, &j, err);
    if (r == 0)
        print(j);
    return r;
}

static int do_gc(struct store *s, char **in_use, struct err *err) {
    size_t freed;
    int r = store_gc(s, (const char *const *)in_use, &freed, err);
    if (r == 0)
        print(json_integer((json_int_t)freed));
    return r;
}

static int do_skeleton(struct store *s, int kind, struct err *err) {
    _cleanup_free_ char *path = NULL;
    int r = store_skeleton(s, (enum store_skeleton)kind, &path, err);
    if (r == 0)
        puts(path);
    return r;
}

/* config USERNS COMMAND...: a config.json that crun can run, with the base filter of the default
 * profile. */
static int do_config(struct store *s, char **argv, struct err *err) {
    _cleanup_(seccomp_filter_done) struct seccomp_filter f = {0};
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    struct runtime_config c;
    int r = seccomp_base_filter(store_fd(s), NULL, PROFILE_DEFAULT, false, &f, err);

    if (r < 0)
        return r;
    runtime_config_init(&c);
    c.args = (const char *const *)argv;
    c.env = env;
    c.hostname = "cove-test";
    c.seccomp_bpf_base64 = f.bpf_base64;
    r = security_profile_caps(PROFILE_DEFAULT, false, &c.caps, err);
    if (r == 0)
        r = runtime_config_write(&c, &b, err);
    if (r == 0)
        puts(b.data);
    return r;
}

int main(int argc, char **argv) {
    _cleanup_(store_freep) struct store *s = NULL;
    const char *max_bytes = getenv("MAX_BYTES"), *max_entries = getenv("MAX_ENTRIES");
    struct store_opts opts = {.user_dir = getenv("USER_DIR")};
    struct err err = {0};
    int r;

    if (argc < 3)
        return 2;
    if ((max_bytes && str_to_u64(max_bytes, &opts.max_layer_bytes) < 0) ||
        (max_entries && str_to_u64(max_entries, &opts.max_entries) < 0))
        return 2;
    r = store_open(argv[1], &opts, &s, &err);
    if (r < 0)
        return fail(&err);
    const char *cmd = argv[2];
    if (str_eq(cmd, "import") && argc >= 5)
        r = do_import(s, argv + 3, argc - 3, &err);
    else if (str_eq(cmd, "list"))
        r = do_list(s, &err);
    else if (str_eq(cmd, "resolve") && argc == 4)
        r = do_resolve(s, argv[3], &err);
    else if (str_eq(cmd, "inspect") && argc == 4)
        r = do_inspect(s, argv[3], &err);
    else if (str_eq(cmd, "remove") && argc >= 4)
        r = store_remove(s, argv[3], (const char *const *)argv + 4, &err);
    else if (str_eq(cmd, "gc"))
        r = do_gc(s, argv + 3, &err);
    else if (str_eq(cmd, "skeleton") && argc == 4)
        r = do_skeleton(s, argv[3][0] - '0', &err);
    else if (str_eq(cmd, "config") && argc >= 4)
        r = do_config(s, argv + 3, &err);
    else if (!str_eq(cmd, "open"))
        return 2;
    return r < 0 ? fail(&err) : 0;
}
