/* Image references and the credentials that go with them. Pure. */
#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "docker/internal.h"

int engine_ref_split(const char *ref, char **ret_repo, char **ret_tag) {
    const char *at = strchr(ref, '@');
    size_t repo_len = at ? (size_t)(at - ref) : strlen(ref); /* a digest's slash is no part of it */
    const char *slash = memrchr(ref, '/', repo_len), *colon = memrchr(ref, ':', repo_len);
    _cleanup_free_ char *repo = NULL, *tag = NULL;

    if (colon && slash && colon < slash) /* a registry's port */
        colon = NULL;
    if (colon) {
        size_t name_len = (size_t)(colon - ref);
        if (!at)
            tag = str_ndup(colon + 1, repo_len - name_len - 1);
        repo_len = name_len;
        if (!at && !tag)
            return -ENOMEM;
        if (tag && !*tag)
            return -EINVAL;
    }
    if (at)
        tag = strdup(at + 1);
    else if (!colon)
        tag = strdup("latest");
    repo = str_ndup(ref, repo_len);
    if (!tag || !repo)
        return -ENOMEM;
    if (!*repo || !*tag || *repo == '/' || str_ends(repo, "/"))
        return -EINVAL;
    *ret_repo = TAKE_PTR(repo);
    *ret_tag = TAKE_PTR(tag);
    return 0;
}

/* The registry a reference names: what stands before the first slash, when that looks like a host.
 * The engine knows its default registry by an address of an older API. */
static char *registry_of(const char *ref) {
    const char *slash = strchr(ref, '/');
    size_t n = slash ? (size_t)(slash - ref) : 0;
    bool is_host = n && (memchr(ref, '.', n) || memchr(ref, ':', n) ||
                         (n == strlen("localhost") && strncmp(ref, "localhost", n) == 0));

    if (!is_host || (n == strlen("docker.io") && strncmp(ref, "docker.io", n) == 0))
        return strdup("https://index.docker.io/v1/");
    return str_ndup(ref, n);
}

void engine_wipe(char *secret) {
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void wipe_buf(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

int engine_auth_header(const char *ref, const char *user, const char *password, char **ret) {
    _cleanup_free_ char *registry = registry_of(ref);
    _cleanup_(wipe_buf) struct buf b = BUF_INIT((size_t)256 << 10);
    const char *secret = password ? password : "";
    char *text;

    /* written by hand: a JSON library would leave copies behind */
    if (!registry || buf_reserve(&b, 256 + 8 * (strlen(user) + strlen(secret)) + strlen(registry)))
        return -ENOMEM;
    buf_str(&b, "{\"username\":");
    buf_json_str(&b, user, strlen(user));
    buf_str(&b, ",\"password\":");
    buf_json_str(&b, secret, strlen(secret));
    buf_str(&b, ",\"serveraddress\":");
    buf_json_str(&b, registry, strlen(registry));
    buf_char(&b, '}');
    if (!buf_ok(&b))
        return -ENOMEM;
    text = base64_encode(b.data, b.len);
    if (!text)
        return -ENOMEM;
    for (char *p = text; *p; p++) /* the URL's alphabet, padding kept */
        *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
    *ret = text;
    return 0;
}
