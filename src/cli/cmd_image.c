/* cove image ls, import, rm. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/option_values.h"

static void add_image(struct table *t, const json_t *image, int64_t now) {
    char size[32], age[32] = "-";
    int64_t us;
    const char *created = json_str(image, "importedAt") ? json_str(image, "importedAt")
                                                        : json_str(image, "createdAt");
    format_bytes((uint64_t)MAX(json_int(image, "sizeBytes", 0), 0), size, sizeof(size));
    if (created && rfc3339_parse(created, &us) == 0)
        format_age(now - us, age, sizeof(age));
    char id[13] = "";
    const char *full = json_str(image, "id");
    str_copy(id, sizeof(id), full ? full : "");
    table_add(t, json_str(image, "reference"));
    table_add(t, id);
    table_add(t, size);
    table_add(t, age);
}

int cmd_image_ls(const struct args *a) {
    static const char *const heads[] = {"IMAGE", "ID", "SIZE", "AGE"};
    struct cove_error err = {0};
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_free_ char *text = NULL;
    if (!c)
        return EXIT_FAILED;
    if (cove_image_list(c, &text, &err) < 0)
        return fail(a, EXIT_FAILED, &err);
    _cleanup_json_ json_t *images = json_parse(text, strlen(text), NULL);
    if (arg_given(a, OPT_JSON)) {
        print_json(images, stdout);
        return 0;
    }
    struct table t;
    size_t i;
    json_t *image;
    table_init(&t, heads, ARRAY_SIZE(heads));
    json_array_foreach(images, i, image) {
        const char *name = json_str(image, "reference");
        if (arg_given(a, OPT_QUIET))
            printf("%s\n", name ? name : "");
        else
            add_image(&t, image, clock_wall_us());
    }
    if (!arg_given(a, OPT_QUIET))
        table_print(&t, stdout);
    table_done(&t);
    return 0;
}

static void on_progress(uint64_t done, uint64_t total, void *ud) {
    progress_bytes(done, total);
}

int cmd_image_import(const struct args *a) {
    struct cove_error err = {0};
    const char *path = a->words[0];
    _cleanup_free_ char *name = str_starts(a->words[1], "local/")
                                    ? strdup(a->words[1])
                                    : str_printf("local/%s", a->words[1]);
    _cleanup_close_ int file = -1;
    int fd = STDIN_FILENO;
    if (!str_eq(path, "-")) {
        fd = file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            return fail_text(a, EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
        struct stat st;
        if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
            return fail_text(a, EXIT_FAILED,
                             "%s is a directory: pack it, as in tar -C %s -c . | cove image import "
                             "- %s",
                             path, path, a->words[1]);
    } else if (isatty(STDIN_FILENO)) {
        return fail_text(a, EXIT_USAGE,
                         "\"-\" reads the archive from stdin, and stdin is a terminal");
    }
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    if (!c || !name)
        return EXIT_FAILED;
    struct cove_copy_options o = COVE_COPY_OPTIONS_INIT;
    o.on_progress = on_progress;
    _cleanup_free_ char *json = NULL;
    progress_begin("Importing");
    int r = cove_image_import(c, name, fd, &o, &json, &err);
    progress_end();
    if (r < 0)
        return fail(a, EXIT_FAILED, &err);
    if (arg_given(a, OPT_JSON))
        print_json_text(json, stdout);
    else
        printf("%s\n", name);
    return 0;
}

int cmd_image_rm(const struct args *a) {
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_json_ json_t *removed = json_array();
    int status = 0;
    if (!c)
        return EXIT_FAILED;
    for (size_t i = 0; i < a->n_words; i++) {
        struct cove_error err = {0};
        int r = cove_image_remove(c, a->words[i], &err);
        if (r == -ENOENT && err.http_status == 404 && arg_given(a, OPT_FORCE))
            continue;
        if (r < 0) {
            status = fail(a, EXIT_FAILED, &err);
            continue;
        }
        json_array_append_new(removed, json_string(a->words[i]));
        if (!arg_given(a, OPT_JSON))
            printf("%s\n", a->words[i]);
    }
    if (arg_given(a, OPT_JSON))
        print_json(removed, stdout);
    return status;
}
