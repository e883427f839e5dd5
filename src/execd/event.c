/* Event texts (see event.h). Pure functions of their arguments and the clock. */
#include "execd/event.h"

#include <string.h>

#include "base/clock.h"

static void str(struct buf *b, const char *s) {
    buf_json_str(b, s, strlen(s));
}

static void end(struct buf *b, int64_t now_ms) {
    buf_printf(b, ",\"timestamp\":%lld}\n\n", (long long)now_ms);
}

void event_init(struct buf *b, const char *id) {
    buf_str(b, "{\"type\":\"init\",\"text\":");
    str(b, id);
    end(b, clock_wall_ms());
}

void event_ping(struct buf *b) {
    buf_str(b, "{\"type\":\"ping\",\"text\":\"pong\"");
    end(b, clock_wall_ms());
}

void event_output(struct buf *b, const char *name, const char *text, size_t len, int64_t now_ms) {
    buf_printf(b, "{\"type\":\"%s\",\"text\":", name);
    buf_json_str(b, text, len);
    end(b, now_ms);
}

void event_complete(struct buf *b, int64_t execution_ms) {
    buf_printf(b, "{\"type\":\"execution_complete\",\"execution_time\":%lld",
               (long long)MAX(execution_ms, (int64_t)0));
    end(b, clock_wall_ms());
}

void event_error(struct buf *b, const char *ename, const char *evalue, const char *trace1,
                 const char *trace2) {
    buf_str(b, "{\"type\":\"error\",\"error\":{\"ename\":");
    str(b, ename);
    buf_str(b, ",\"evalue\":");
    str(b, evalue);
    buf_str(b, ",\"traceback\":[");
    str(b, trace1);
    if (trace2) {
        buf_char(b, ',');
        str(b, trace2);
    }
    buf_str(b, "]}");
    end(b, clock_wall_ms());
}
