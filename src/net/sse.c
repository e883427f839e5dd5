/* Event streams (see sse.h): framing only; the exchange does the rest. Loop thread only. */
#include "net/sse.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"

#define EVENT_MAX ((size_t)32 << 20)

void sse_start(struct h1_req *r) {
    static const struct h1_header headers[] = {
        {"Content-Type", "text/event-stream"},
        {"Cache-Control", "no-cache"},
        {"Connection", "keep-alive"},
        {"X-Accel-Buffering", "no"},
        {NULL, NULL},
    };
    h1_start(r, 200, headers, -1);
}

ssize_t sse_bare(struct h1_req *r, const char *json, size_t len) {
    _cleanup_buf_ struct buf b = BUF_INIT(EVENT_MAX);

    if (buf_reserve(&b, len + 2) < 0)
        return -ENOBUFS;
    buf_append(&b, json, len);
    buf_append(&b, "\n\n", 2);
    return h1_write(r, b.data, b.len);
}

ssize_t sse_event(struct h1_req *r, const char *event, const char *data, size_t len) {
    _cleanup_buf_ struct buf b = BUF_INIT(EVENT_MAX);
    const char *end = data + len;

    if (event && strpbrk(event, "\r\n"))
        return -EINVAL;
    if (event)
        buf_printf(&b, "event: %s\n", event);
    for (;;) { /* CR, LF and CR LF all end a line for the receiver */
        const char *stop = data;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        buf_append(&b, "data: ", 6);
        buf_append(&b, data, (size_t)(stop - data));
        buf_char(&b, '\n');
        if (stop == end)
            break;
        data = stop + 1;
        if (*stop == '\r' && data < end && *data == '\n')
            data++;
    }
    buf_char(&b, '\n');
    return buf_ok(&b) ? h1_write(r, b.data, b.len) : -ENOBUFS;
}
