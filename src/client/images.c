/* The server's image store over the API: list, import of a file-system archive, removal. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "client/internal.h"
#include "net/url.h"

int cove_image_list(struct cove_client *c, char **ret_json, struct cove_error *err) {
    struct transport_req rq = {.method = "GET", .target = "/v1/images"};
    _cleanup_json_ json_t *j = NULL;
    int r = transport_json(c, &rq, &j, "list images", err);
    if (r < 0)
        return r;
    json_t *items = json_is_array(j) ? j : json_object_get(j, "items");
    if (!json_is_array(items))
        return cerr_set(err, -EBADMSG, "cannot list images: the server's answer has no items");
    *ret_json = json_dumps(items, JSON_COMPACT);
    return *ret_json ? 0 : cerr_oom(err);
}

struct import {
    int fd;
    uint64_t done, total;
    struct cove_copy_options o;
};

static ssize_t import_read(void *buf, size_t size, void *ud) {
    struct import *im = ud;
    ssize_t n = read(im->fd, buf, size);
    if (n < 0)
        return -errno;
    im->done += (uint64_t)n;
    if (im->o.on_progress)
        im->o.on_progress(im->done, im->total, im->o.ud);
    return n;
}

int cove_image_import(struct cove_client *c, const char *name, int fd,
                      const struct cove_copy_options *o, char **ret_json, struct cove_error *err) {
    struct import im = {.fd = fd};
    struct stat st;
    OPTIONS_COPY(&im.o, o);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        im.total = (uint64_t)st.st_size;
    _cleanup_free_ char *enc = url_encode(name, false);
    _cleanup_free_ char *target = enc ? str_printf("/v1/images?name=%s", enc) : NULL;
    if (!target)
        return cerr_oom(err);
    struct transport_req rq = {.method = "POST",
                               .target = target,
                               .content_type = "application/x-tar",
                               .read_body = import_read,
                               .body_length = -1,
                               .ud = &im,
                               .silence_ms = UINT_MAX};
    _cleanup_json_ json_t *j = NULL;
    int r = transport_json(c, &rq, &j, "import the image", err);
    if (r < 0)
        return r;
    if (ret_json && !(*ret_json = json_dumps(j, JSON_COMPACT)))
        return cerr_oom(err);
    return 0;
}

int cove_image_remove(struct cove_client *c, const char *name, struct cove_error *err) {
    _cleanup_free_ char *enc = url_encode(name, true);
    _cleanup_free_ char *target = enc ? str_printf("/v1/images/%s", enc) : NULL;
    if (!target)
        return cerr_oom(err);
    struct transport_req rq = {.method = "DELETE", .target = target};
    return transport_ok(c, &rq, NULL, "remove the image", err);
}
