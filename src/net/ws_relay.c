/* Following WebSocket frames on their way through (see ws_relay.h). */
#include "net/ws_relay.h"

#include <string.h>
#include <sys/random.h>

#define CODE_NORMAL 1000
#define CODE_GOING_AWAY 1001
#define CODE_INTERNAL 1011

void ws_relay_init(struct ws_relay *r, bool to_client) {
    *r = (struct ws_relay){.to_client = to_client, .need_head = 2};
}

/* The code that may travel instead of one that must not. 0 stands for none. */
static int mapped(const struct ws_relay *r, int code) {
    if (ws_close_code_is_valid(code))
        return code;
    if (code == 0 || (code == 1005 && !r->to_client))
        return CODE_NORMAL;
    return r->to_client ? CODE_INTERNAL : CODE_GOING_AWAY;
}

static bool is_masked(const struct ws_relay *r) {
    return r->head[1] & 0x80;
}

/* How long the header is, as far as its first two bytes tell. */
static size_t header_size(const struct ws_relay *r) {
    unsigned n = r->head[1] & 0x7f;
    return 2 + (n == 126 ? 2 : n == 127 ? 8 : 0) + (is_masked(r) ? 4 : 0);
}

static uint64_t payload_size(const struct ws_relay *r) {
    unsigned n = r->head[1] & 0x7f;
    size_t bytes = n == 126 ? 2 : n == 127 ? 8 : 0;
    uint64_t size = bytes ? 0 : n;

    for (size_t i = 0; i < bytes; i++)
        size = size << 8 | r->head[2 + i];
    return size;
}

/* Takes header bytes; true: the header is whole. */
static bool take_header(struct ws_relay *r, unsigned char c) {
    r->head[r->n_head++] = c;
    if (r->n_head == 2)
        r->need_head = header_size(r);
    if (r->n_head < r->need_head)
        return false;
    r->left = payload_size(r);
    r->in_close = (r->head[0] & 0x0f) == WS_OP_CLOSE;
    r->n_control = 0;
    return true;
}

static void next_frame(struct ws_relay *r) {
    r->n_head = 0;
    r->need_head = 2;
}

/* The held-back close frame goes out, with a code that may travel. */
static ssize_t put_close(struct ws_relay *r, ssize_t (*forward)(void *, const char *, size_t),
                         void *ud) {
    const unsigned char *mask = is_masked(r) ? r->head + r->need_head - 4 : NULL;
    char frame[WS_MAX_HEADER + WS_MAX_CONTROL + 2];
    unsigned char b[2] = {0};
    size_t n = r->n_control;

    for (size_t i = 0; i < 2 && i < n; i++)
        b[i] = (unsigned char)r->control[i] ^ (mask ? mask[i] : 0);
    int code = n >= 2 ? b[0] << 8 | b[1] : n == 1 ? 1 : 0, good = mapped(r, code);
    if (good != code && n < 2)
        n = 2;
    b[0] = (unsigned char)(good >> 8);
    b[1] = (unsigned char)good;
    for (size_t i = 0; i < 2; i++)
        r->control[i] = (char)(b[i] ^ (mask ? mask[i] : 0));
    r->closed = good;
    size_t head = ws_encode_header((unsigned char *)frame, WS_OP_CLOSE, n, mask);
    memcpy(frame + head, r->control, n);
    return forward(ud, frame, head + n);
}

/* Uses bytes of the close frame's payload. */
static size_t hold_back(struct ws_relay *r, const char *data, size_t len) {
    size_t n = (size_t)MIN((uint64_t)len, r->left);

    memcpy(r->control + r->n_control, data, n);
    r->n_control += n;
    r->left -= n;
    return n;
}

ssize_t ws_relay_feed(struct ws_relay *r, const char *data, size_t len,
                      ssize_t (*forward)(void *ud, const char *data, size_t len), void *ud) {
    size_t from = 0, at = 0; /* [from, at) may pass and has not yet */
    ssize_t sent = 0;

    while (at < len && !r->is_raw) {
        if (r->n_head == 0 && ((unsigned char)data[at] & 0x0f) == WS_OP_CLOSE) {
            if (at > from && (sent = forward(ud, data + from, at - from)) < 0)
                return sent;
            from = at;
            r->in_close = true;
        }
        if (r->n_head < r->need_head) {
            bool whole = take_header(r, (unsigned char)data[at++]);
            bool fits = (r->head[0] & 0x70) == 0 && (r->head[1] & 0x7f) <= WS_MAX_CONTROL;
            if (r->in_close && r->n_head == 2 && !fits) { /* no close frame anybody would take */
                r->is_raw = true;
                if ((sent = forward(ud, (const char *)r->head, 2)) < 0)
                    return sent;
                from = at;
                break;
            }
            if (r->in_close)
                from = at;
            if (!whole)
                continue;
        } else if (r->in_close) {
            at += hold_back(r, data + at, len - at);
            from = at;
        } else {
            size_t n = (size_t)MIN((uint64_t)(len - at), r->left);
            at += n;
            r->left -= n;
        }
        if (r->left > 0)
            continue;
        if (r->in_close && (sent = put_close(r, forward, ud)) < 0)
            return sent;
        r->is_raw = r->in_close; /* nothing may follow */
        r->in_close = false;
        next_frame(r);
    }
    return from < len ? forward(ud, data + from, len - from) : sent;
}

size_t ws_relay_end(const struct ws_relay *r, const struct ws_relay *other,
                    char ret[WS_MAX_HEADER + 2]) {
    unsigned char key[4] = {0}, b[2];
    int code = other->closed ? other->closed : r->to_client ? CODE_INTERNAL : CODE_GOING_AWAY;
    const unsigned char *mask = r->to_client ? NULL : key;

    if (r->closed || r->is_raw || (r->n_head > 0 && !r->in_close))
        return 0;
    if (mask && getrandom(key, sizeof key, GRND_NONBLOCK) < 0)
        return 0;
    b[0] = (unsigned char)(code >> 8);
    b[1] = (unsigned char)code;
    size_t head = ws_encode_header((unsigned char *)ret, WS_OP_CLOSE, 2, mask);
    for (size_t i = 0; i < 2; i++)
        ret[head + i] = (char)(b[i] ^ key[i]);
    return head + 2;
}
