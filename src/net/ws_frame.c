/*
 * Frame decoder and encoder (see ws_frame.h).
 *
 * Owns the message being assembled. Invariants: the declared length of a frame is checked before a
 * byte of it is stored; text is checked as it comes, so bad UTF-8 fails at once and not at the end
 * of the message; memory grows with what arrived, never with what was announced.
 */
#include "net/ws_frame.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#define KEEP_CAPACITY \
    ((size_t)64 << 10) /* a larger message buffer is given back after its message */

void ws_decoder_init(struct ws_decoder *d, bool is_server, size_t max_message) {
    *d = (struct ws_decoder){.expect_mask = is_server, .max_message = max_message, .need_head = 2};
    buf_init(&d->message, max_message ? max_message : 1);
}

void ws_decoder_done(struct ws_decoder *d) {
    buf_done(&d->message);
}

static int fail(struct ws_decoder *d, int code, const char *reason) {
    d->fail_code = code;
    d->fail_reason = reason;
    return -EBADMSG;
}

bool ws_close_code_is_valid(int code) {
    if (code >= 3000 && code <= 4999)
        return true;
    return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
}

void ws_mask(char *data, size_t len, const unsigned char mask[4], unsigned phase) {
    unsigned char m[8];
    uint64_t wide, word;
    size_t i = 0;

    for (unsigned k = 0; k < 8; k++)
        m[k] = mask[(phase + k) % 4];
    memcpy(&wide, m, 8);
    for (; i + 8 <= len; i += 8) {
        memcpy(&word, data + i, 8);
        word ^= wide;
        memcpy(data + i, &word, 8);
    }
    for (; i < len; i++)
        data[i] = (char)(data[i] ^ m[i % 8]);
}

size_t ws_encode_header(unsigned char ret[WS_MAX_HEADER], enum ws_opcode op, uint64_t len,
                        const unsigned char *mask) {
    unsigned char mask_bit = mask ? 0x80 : 0;
    size_t n = 2, bytes = len < 126 ? 0 : len < 65536 ? 2 : 8;

    ret[0] = (unsigned char)(0x80 | op);
    ret[1] = (unsigned char)(mask_bit | (bytes == 0 ? len : bytes == 2 ? 126u : 127u));
    for (size_t i = 0; i < bytes; i++)
        ret[n++] = (unsigned char)(len >> (8 * (bytes - 1 - i)));
    if (mask) {
        memcpy(ret + n, mask, 4);
        n += 4;
    }
    return n;
}

/* ---- frame headers ---- */

/* The first two bytes are there: what can be refused now is, and the header's full length is known.
 */
static int check_start(struct ws_decoder *d) {
    unsigned op = d->head[0] & 0x0f, len7 = d->head[1] & 0x7f;
    bool masked = d->head[1] & 0x80, control = op & 8;

    if (d->head[0] & 0x70)
        return fail(d, 1002, "reserved bits are set");
    if ((op > WS_OP_BINARY && op < WS_OP_CLOSE) || op > WS_OP_PONG)
        return fail(d, 1002, "unknown opcode");
    if (masked != d->expect_mask)
        return fail(d, 1002,
                    masked ? "a masked frame from the server"
                           : "an unmasked frame from the client");
    d->opcode = (enum ws_opcode)op;
    d->fin = d->head[0] & 0x80;
    if (control && !d->fin)
        return fail(d, 1002, "a fragmented control frame");
    if (control && len7 > WS_MAX_CONTROL)
        return fail(d, 1002, "a control frame longer than 125 bytes");
    if (op == WS_OP_CONT && d->message_opcode == WS_OP_CONT)
        return fail(d, 1002, "a continuation without a beginning");
    if ((op == WS_OP_TEXT || op == WS_OP_BINARY) && d->message_opcode != WS_OP_CONT)
        return fail(d, 1002, "a new message before the end of another");
    d->need_head = 2 + (len7 == 126 ? 2 : len7 == 127 ? 8 : 0) + (masked ? 4 : 0);
    return 0;
}

static int finish_header(struct ws_decoder *d) {
    unsigned len7 = d->head[1] & 0x7f;
    size_t bytes = len7 == 126 ? 2 : len7 == 127 ? 8 : 0;
    uint64_t len = bytes ? 0 : len7;

    for (size_t i = 0; i < bytes; i++)
        len = len << 8 | d->head[2 + i];
    if ((bytes == 2 && len < 126) || (bytes == 8 && len < 65536))
        return fail(d, 1002, "a length that is not in its shortest form");
    if (len >> 63)
        return fail(d, 1002, "a length with its highest bit set");
    if (!(d->opcode & 8)) {
        if (len > d->max_message || d->message.len > d->max_message - len)
            return fail(d, 1009, "the message is too large");
        if (d->opcode != WS_OP_CONT)
            d->message_opcode = d->opcode;
    }
    if (d->expect_mask)
        memcpy(d->mask, d->head + 2 + bytes, 4);
    d->left = len;
    d->mask_phase = 0;
    d->n_control = 0;
    d->n_head = 0;
    d->need_head = 2;
    d->in_payload = true;
    return 0;
}

static int read_header(struct ws_decoder *d, const char **data, size_t *len) {
    while (*len > 0) {
        d->head[d->n_head++] = (unsigned char)**data;
        (*data)++;
        (*len)--;
        if (d->n_head == 2) {
            int r = check_start(d);
            if (r < 0)
                return r;
        }
        if (d->n_head >= 2 && d->n_head == d->need_head)
            return finish_header(d);
    }
    return 0;
}

/* ---- payload ---- */

/* Checks what came since the last call; a sequence cut at the end is fine unless the message ends
 * there. */
static int check_utf8(struct ws_decoder *d, bool is_end) {
    const char *s = d->message.data;

    while (d->utf8_checked < d->message.len) {
        if ((unsigned char)s[d->utf8_checked] < 0x80) {
            d->utf8_checked++;
            continue;
        }
        int n = utf8_next(s + d->utf8_checked, d->message.len - d->utf8_checked);
        if (n == 0 || (n < 0 && is_end))
            return fail(d, 1007, "the text is not UTF-8");
        if (n < 0)
            break;
        d->utf8_checked += (size_t)n;
    }
    return 0;
}

static int take_payload(struct ws_decoder *d, const char *data, size_t n) {
    char *dst;

    if (d->opcode & 8) {
        dst = d->control + d->n_control;
        memcpy(dst, data, n);
        d->n_control += n;
    } else {
        int r = buf_append(&d->message, data, n);
        if (r < 0)
            return fail(d, r == -ENOBUFS ? 1009 : 1011,
                        r == -ENOBUFS ? "the message is too large" : "out of memory");
        dst = d->message.data + d->message.len - n;
    }
    if (d->expect_mask) {
        ws_mask(dst, n, d->mask, d->mask_phase);
        d->mask_phase = (unsigned)((d->mask_phase + n) % 4);
    }
    return !(d->opcode & 8) && d->message_opcode == WS_OP_TEXT ? check_utf8(d, false) : 0;
}

static int close_event(struct ws_decoder *d, struct ws_event *ret) {
    unsigned char *p = (unsigned char *)d->control;

    *ret = (struct ws_event){WS_OP_CLOSE, "", 0, 1005};
    if (d->n_control == 0)
        return 1;
    if (d->n_control == 1)
        return fail(d, 1002, "a close frame of one byte");
    ret->close_code = p[0] << 8 | p[1];
    if (!ws_close_code_is_valid(ret->close_code))
        return fail(d, 1002, "a close code that must not travel");
    d->control[d->n_control] = 0;
    ret->data = d->control + 2;
    ret->len = d->n_control - 2;
    return utf8_is_valid(ret->data, ret->len) ? 1 : fail(d, 1007, "the close reason is not UTF-8");
}

/* The frame is complete. 1 = so is an event. */
static int end_of_frame(struct ws_decoder *d, struct ws_event *ret) {
    d->in_payload = false;
    if (d->opcode == WS_OP_CLOSE)
        return close_event(d, ret);
    if (d->opcode & 8) {
        *ret = (struct ws_event){.opcode = d->opcode, .data = d->control, .len = d->n_control};
        return 1;
    }
    if (!d->fin)
        return 0;
    if (d->message_opcode == WS_OP_TEXT && check_utf8(d, true) < 0)
        return -EBADMSG;
    *ret = (struct ws_event){.opcode = d->message_opcode,
                             .data = d->message.data ? d->message.data : "",
                             .len = d->message.len};
    d->message_opcode = WS_OP_CONT;
    return 1;
}

int ws_decode(struct ws_decoder *d, const char **data, size_t *len, struct ws_event *ret) {
    int r = 0;

    if (d->fail_code)
        return -EBADMSG;
    if (d->message_opcode == WS_OP_CONT && d->message.len) { /* the last event's message was used */
        if (d->message.cap > KEEP_CAPACITY)
            buf_done(&d->message);
        else
            buf_clear(&d->message);
        d->utf8_checked = 0;
    }
    while (r == 0) {
        if (!d->in_payload) {
            if (*len == 0)
                return 0;
            r = read_header(d, data, len);
            if (r < 0 || !d->in_payload)
                return r;
        }
        size_t n = (size_t)MIN(d->left, (uint64_t)*len);
        if (n) {
            r = take_payload(d, *data, n);
            if (r < 0)
                return r;
            d->left -= n;
            *data += n;
            *len -= n;
        }
        if (d->left)
            return 0;
        r = end_of_frame(d, ret);
    }
    return r;
}
