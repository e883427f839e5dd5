/*
 * WebSocket (RFC 6455), both sides. Masking, control frames, fragmentation, UTF-8 of text and of
 * close reasons, close codes and size limits are checked; pings are answered. No extensions.
 */
#pragma once

#include "net/sock.h"

struct h1_req;
struct ws;

enum ws_kind { WS_TEXT = 1, WS_BINARY = 2 };

struct ws_ops {
    void (*on_message)(struct ws *w, enum ws_kind kind, const char *data, size_t len,
                       void *ud); /* whole messages */
    void (*on_drain)(struct ws *w, void *ud);
    /* once; w is dead after it. code 1005 = none given, 1006 = connection lost */
    void (*on_close)(struct ws *w, int code, const char *reason, void *ud);
};

#define WS_MAX_MESSAGE_DEFAULT ((size_t)16 << 20)

/* Checks the handshake (version 13, key) and answers 101; on a bad one answers 400/426 and returns
 * -EBADMSG. protocol: chosen subprotocol or NULL. The request is over either way. */
int ws_accept(struct h1_req *r, const char *protocol, const struct ws_ops *ops, void *ud,
              struct ws **ret);
/* Speaks client-side WebSocket on a socket whose handshake is done. */
int ws_client(struct sock *s, const struct ws_ops *ops, void *ud, struct ws **ret);
/* 24 characters + NUL for Sec-WebSocket-Key; and the accept value that must come back. */
void ws_make_key(char ret[25]);
void ws_accept_value(const char *key, char ret[29]);

void ws_set_max_message(struct ws *w, size_t bytes); /* larger: close 1009 */
ssize_t ws_send(struct ws *w, enum ws_kind kind, const void *data,
                size_t len); /* queued bytes or -errno */
ssize_t ws_ping(struct ws *w);
/* Every ping_ms a ping, and close 1006 when nothing at all came for dead_ms. 0 = off. */
void ws_keepalive(struct ws *w, unsigned ping_ms, unsigned dead_ms);
void ws_read_stop(struct ws *w);
void ws_read_start(struct ws *w);
size_t ws_queued(const struct ws *w);
/* Starts the close handshake (at most 2 s for the peer's answer); on_close follows. reason is cut
 * to 123 bytes of UTF-8. */
void ws_close(struct ws *w, int code, const char *reason);
void ws_free(struct ws *w); /* at once, without on_close */
