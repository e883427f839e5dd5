/* cove cp: files and directories in and out. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/connect.h"
#include "cli/output.h"
#include "cli/term.h"
#include "cli/option_values.h"

struct copy {
    size_t skipped;
    uint64_t bytes;
};

static void on_progress(uint64_t done, uint64_t total, void *ud) {
    struct copy *cp = ud;
    cp->bytes = done;
    progress_bytes(done, total);
}

static void on_skip(const char *path, const char *why, void *ud) {
    struct copy *cp = ud;
    cp->skipped++;
    warn("left out %s: %s", path, why);
}

static int do_copy(struct cove_client *c, const char *id, const char *remote, const char *local,
                   bool in, struct copy *cp, struct cove_error *err) {
    struct cove_copy_options o = COVE_COPY_OPTIONS_INIT;
    o.on_progress = on_progress;
    o.on_skip = on_skip;
    o.ud = cp;
    if (str_eq(local, "-"))
        return in ? cove_file_upload(c, id, STDIN_FILENO, remote, 0, &o, err)
                  : cove_file_download(c, id, remote, STDOUT_FILENO, &o, err);
    return in ? cove_copy_in(c, id, local, remote, &o, err)
              : cove_copy_out(c, id, remote, local, &o, err);
}

int cmd_cp(const struct args *a) {
    const char *from = split_remote(a->words[0]), *to = split_remote(a->words[1]);
    if (!from == !to)
        return fail_text(
            a, EXIT_USAGE,
            from ? "copying from sandbox to sandbox is not possible: copy to a file here first"
                 : "one of the two must be in a sandbox, as in 3f2a:/tmp/file");
    bool in = to != NULL;
    const char *remote = in ? to : from, *word = in ? a->words[1] : a->words[0];
    if (*remote != '/')
        return fail_text(a, EXIT_USAGE,
                         "the path in the sandbox must be absolute, as in 3f2a:/tmp/file");
    _cleanup_free_ char *name = str_ndup(word, (size_t)(remote - word) - 1);
    _cleanup_(cove_client_freep) struct cove_client *c = connect_daemon(a);
    _cleanup_free_ char *id = c && name ? resolve_running(a, c, name) : NULL;
    if (!id)
        return EXIT_FAILED;
    struct copy cp = {0};
    struct cove_error err = {0};
    signals_setup(1); /* half-written files are taken back */
    signals_interrupt(c);
    progress_begin("Copying");
    int r = do_copy(c, id, remote, in ? a->words[0] : a->words[1], in, &cp, &err);
    progress_end();
    signals_interrupt(NULL);
    if (r < 0 && signals_pending())
        return 128 + signals_taken();
    if (r < 0)
        return fail(a, EXIT_FAILED, &err);
    if (arg_given(a, OPT_JSON))
        fprintf(str_eq(a->words[1], "-") ? stderr : stdout, "{\"bytes\":%llu,\"skipped\":%zu}\n",
                (unsigned long long)cp.bytes, cp.skipped);
    return cp.skipped ? EXIT_FAILED : 0;
}
