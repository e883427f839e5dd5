/*
 * cove-unpack: unpacks one archive or copies one directory into a directory, locked in (see
 * unpack.h). Started by the image store (store_child.c) only.
 *
 *   cove-unpack --mode layer|plain|archive|copy|probe [--max-bytes N] [--max-entries N]
 *
 * Descriptors: 0 = the archive (copy: the directory), 1 = JSON lines, 2 = one line when it fails,
 * 3 = the empty destination directory (probe: any empty directory). Lines:
 * {"type":"progress","bytes","entries"}, last {"type":"result",…} with exit status 0, or
 * {"type":"error","errno","message"} with status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "oci/unpack.h"

#define DEST_FD 3
#define PROGRESS_MS 100
#define PROBE_FILE_MAX 65536 /* stdout may be a file */

enum mode { MODE_LAYER, MODE_PLAIN, MODE_ARCHIVE, MODE_COPY, MODE_PROBE, MODE_COUNT };
static const char *const mode_names[MODE_COUNT] = {"layer", "plain", "archive", "copy", "probe"};

struct args {
    enum mode mode;
    struct tree_limits limits;
};

static int parse_args(int argc, char **argv, struct args *ret) {
    static const struct option options[] = {{"mode", required_argument, NULL, 'm'},
                                            {"max-bytes", required_argument, NULL, 'b'},
                                            {"max-entries", required_argument, NULL, 'e'},
                                            {0}};
    int c, r = 0;

    ret->mode = MODE_COUNT;
    ret->limits = (struct tree_limits){.bytes = (uint64_t)64 << 30, .entries = 2000000};
    while (r == 0 && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'm') {
            for (ret->mode = 0; ret->mode < MODE_COUNT && !str_eq(optarg, mode_names[ret->mode]);)
                ret->mode++;
        } else if (c == 'b') {
            r = str_to_u64(optarg, &ret->limits.bytes);
        } else if (c == 'e') {
            r = str_to_u64(optarg, &ret->limits.entries);
        } else {
            r = -EINVAL;
        }
    }
    if (r == 0 && ret->limits.bytes > INT64_MAX)
        r = -ERANGE;
    return r < 0 || optind != argc || ret->mode == MODE_COUNT ? -EINVAL : 0;
}

static int print_line(struct buf *b) {
    buf_char(b, '\n');
    return buf_ok(b) ? fd_write_full(STDOUT_FILENO, b->data, b->len) : -ENOBUFS;
}

static void print_progress(const struct tree_stats *st, void *ud) {
    int64_t *last = ud, now = clock_mono_ms();
    _cleanup_buf_ struct buf b = BUF_INIT(4096);

    if (now - *last < PROGRESS_MS)
        return;
    *last = now;
    buf_printf(&b, "{\"type\":\"progress\",\"bytes\":%llu,\"entries\":%llu}",
               (unsigned long long)st->bytes, (unsigned long long)st->entries);
    if (print_line(&b) < 0)
        _exit(1); /* nobody listens any more: the layer is lost */
}

static int print_result(const struct tree_stats *st, const struct unpack_result *res) {
    _cleanup_buf_ struct buf b = BUF_INIT(4096);

    buf_printf(&b,
               "{\"type\":\"result\",\"diffId\":\"%s\",\"digest\":\"%s\",\"inputBytes\":%llu,"
               "\"bytes\":%llu,",
               res->diff_id, res->digest, (unsigned long long)res->input_bytes,
               (unsigned long long)st->bytes);
    buf_printf(&b,
               "\"entries\":%llu,\"whiteouts\":%llu,\"skipped\":{\"devices\":%llu,\"sockets\":%llu,"
               "\"xattrs\":%llu}}",
               (unsigned long long)st->entries, (unsigned long long)st->whiteouts,
               (unsigned long long)st->skipped_devices, (unsigned long long)st->skipped_sockets,
               (unsigned long long)st->skipped_xattrs);
    return print_line(&b);
}

static int print_error(const struct err *err) {
    _cleanup_buf_ struct buf b = BUF_INIT(16384);
    const char *text = err_text(err);

    buf_printf(&b, "{\"type\":\"error\",\"errno\":%d,\"message\":", -err->code);
    buf_json_str(&b, text, strlen(text));
    buf_char(&b, '}');
    print_line(&b);
    dprintf(STDERR_FILENO, "cove-unpack: %s\n", text);
    return 1;
}

/* Loads what is loaded on first use, while files can still be opened. */
static int prepare(struct err *err) {
    unsigned char d[EVP_MAX_MD_SIZE];

    umask(0);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!setlocale(
            LC_CTYPE,
            "C.UTF-8")) /* names are bytes; libarchive converts them when the locale is not UTF-8 */
        return err_set(err, -EOPNOTSUPP, "the locale C.UTF-8 is missing");
    if (!EVP_Digest("", 0, d, NULL, EVP_sha256(), NULL))
        return err_set(err, -EOPNOTSUPP, "sha256 is not available");
    return 0;
}

static int run_probe(struct err *err) {
    _cleanup_close_ int root = -1;
    _cleanup_buf_ struct buf b = BUF_INIT(4096);
    const char *format = "";
    int r = unpack_jail(DEST_FD, PROBE_FILE_MAX, &root, err);

    if (r == 0)
        r = unpack_probe(STDIN_FILENO, &format, err);
    if (r < 0)
        return r;
    buf_printf(&b, "{\"type\":\"result\",\"format\":\"%s\"}", format);
    return print_line(&b);
}

static int run_unpack(const struct args *a, struct err *err) {
    static const enum tree_mode tree_modes[] = {TREE_LAYER, TREE_PLAIN, TREE_ARCHIVE, TREE_PLAIN};
    struct unpack_result res = {0};
    _cleanup_close_ int root = -1;
    int64_t last = 0;
    int r = unpack_jail(DEST_FD, a->limits.bytes, &root, err);

    if (r < 0)
        return r;
    _cleanup_(tree_freep) struct tree *t = tree_new(root, tree_modes[a->mode], &a->limits);
    if (!t)
        return err_set(err, -ENOMEM, "out of memory");
    tree_set_progress(t, print_progress, &last);
    if (a->mode == MODE_COPY)
        r = unpack_dir(STDIN_FILENO, t, &res, err);
    else
        r = unpack_tar(STDIN_FILENO, t, &a->limits, &res, err);
    return r < 0 ? r : print_result(tree_stats(t), &res);
}

int main(int argc, char **argv) {
    struct args a;
    struct err err = {0};

    if (parse_args(argc, argv, &a) < 0) {
        err_set(&err, -EINVAL,
                "usage: cove-unpack --mode layer|plain|archive|copy|probe [--max-bytes N] "
                "[--max-entries N]");
        return print_error(&err);
    }
    int r = prepare(&err);
    if (r == 0)
        r = a.mode == MODE_PROBE ? run_probe(&err) : run_unpack(&a, &err);
    if (r < 0 && !err.code)
        err_sys(&err, r, "writing the result");
    return r < 0 ? print_error(&err) : 0;
}
