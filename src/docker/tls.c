/*
 * TLS of an engine that listens on TCP: one context per engine, one session per connection. The
 * peer's certificate and name are always checked; there is no way to turn that off.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "docker/internal.h"

void tls_why(char *ret, size_t size) {
    unsigned long code = ERR_peek_last_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    str_copy(ret, size, text ? text : "no reason given");
    ERR_clear_error();
}

/* ---- the socket under a session: send() instead of write(), which would raise SIGPIPE ---- */

static int on_write(BIO *b, const char *data, int len) {
    ssize_t n = send((int)(intptr_t)BIO_get_data(b), data, (size_t)len, MSG_NOSIGNAL);

    BIO_clear_retry_flags(b);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(b);
    return (int)n;
}

static int on_read(BIO *b, char *buf, int size) {
    ssize_t n = recv((int)(intptr_t)BIO_get_data(b), buf, (size_t)size, 0);

    BIO_clear_retry_flags(b);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(b);
    return (int)n;
}

static long on_ctrl(BIO *b, int cmd, long num, void *ptr) {
    return cmd == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void make_method(void) {
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "engine socket");
    if (!method)
        return;
    BIO_meth_set_write(method, on_write);
    BIO_meth_set_read(method, on_read);
    BIO_meth_set_ctrl(method, on_ctrl);
}

/* ---- context ---- */

static int load_failed(struct err *err, const char *path) {
    char why[120];

    if (access(path, R_OK) < 0) {
        ERR_clear_error();
        return err_set(err, -ENOENT, "cannot read the certificate file %s: %s", path,
                       strerror(errno));
    }
    tls_why(why, sizeof why);
    return err_set(err, -ENOENT, "cannot use the certificate file %s: %s", path, why);
}

static int load_dir(SSL_CTX *ctx, const char *dir, struct err *err) {
    _cleanup_free_ char *ca = str_printf("%s/ca.pem", dir);
    _cleanup_free_ char *cert = str_printf("%s/cert.pem", dir);
    _cleanup_free_ char *key = str_printf("%s/key.pem", dir);

    if (!ca || !cert || !key)
        return engine_oom(err);
    if (SSL_CTX_load_verify_locations(ctx, ca, NULL) != 1)
        return load_failed(err, ca);
    /* an engine may ask for no certificate of ours: then neither file is there */
    if (access(cert, F_OK) < 0 && access(key, F_OK) < 0)
        return 0;
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return load_failed(err, cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return load_failed(err, key);
    if (SSL_CTX_check_private_key(ctx) != 1) {
        ERR_clear_error();
        return err_set(err, -ENOENT, "%s does not belong to %s", key, cert);
    }
    return 0;
}

static int no_passphrase(char *buf, int size, int rwflag, void *ud) {
    return 0; /* never ask a terminal */
}

int tls_context_new(const char *dir, SSL_CTX **ret, struct err *err) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    int r = 0;

    pthread_once(&method_once, make_method);
    if (!ctx || !method) {
        SSL_CTX_free(ctx);
        ERR_clear_error();
        return engine_oom(err);
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (dir)
        r = load_dir(ctx, dir, err);
    else if (SSL_CTX_set_default_verify_paths(ctx) != 1)
        r = err_set(err, -ENOENT, "cannot read the system's certificate authorities");
    ERR_clear_error();
    if (r < 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

int tls_session_new(SSL_CTX *ctx, int fd, const char *host, SSL **ret, struct err *err) {
    unsigned char ip[sizeof(struct in6_addr)];
    bool is_ip = inet_pton(AF_INET, host, ip) == 1 || inet_pton(AF_INET6, host, ip) == 1;
    SSL *ssl = SSL_new(ctx);
    BIO *bio = BIO_new(method);
    bool ok;

    if (!ssl || !bio) {
        SSL_free(ssl);
        BIO_free(bio);
        ERR_clear_error();
        return engine_oom(err);
    }
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio); /* owns it */
    if (is_ip)
        ok = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    else
        ok = SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
    if (!ok) {
        SSL_free(ssl);
        ERR_clear_error();
        return err_set(err, -EINVAL, "the Docker host \"%s\" is no name for a certificate", host);
    }
    SSL_set_connect_state(ssl);
    *ret = ssl;
    return 0;
}
