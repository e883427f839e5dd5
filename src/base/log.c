/* Logging (see log.h). State: level, format, program name, files; set before threads start. */
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"

static enum log_level max_level = LOG_INFO;
static bool as_json;
static char program_name[32] = "cove";
static struct log_file *file_of_all, *file_of_requests; /* NULL = stderr */
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_setup(enum log_level level, bool json, const char *program) {
    max_level = level;
    as_json = json;
    str_copy(program_name, sizeof program_name, program);
}

void log_to_files(struct log_file *all, struct log_file *requests) {
    file_of_all = all;
    file_of_requests = requests;
}

bool log_is_on(enum log_level level) {
    return level <= max_level;
}

int log_level_parse(const char *name, enum log_level *ret) {
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
        if (str_ieq(name, level_names[i])) {
            *ret = (enum log_level)i;
            return 0;
        }
    if (str_ieq(name, "warning")) {
        *ret = LOG_WARN;
        return 0;
    }
    return -EINVAL;
}

static bool is_plain(const char *s) {
    if (!*s)
        return false;
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == '"' || *s == '=' || *s == '\\' ||
            (unsigned char)*s >= 0x7f)
            return false;
    return true;
}

static void put_field(struct buf *b, const struct log_field *f) {
    const char *v = f->str ? f->str : "-";

    buf_printf(b, " %s=", f->key);
    if (!f->is_str)
        buf_printf(b, "%lld", (long long)f->num);
    else if (is_plain(v))
        buf_str(b, v);
    else
        buf_json_str(b, v, strlen(v));
}

static void put_text(struct buf *b, enum log_level level, const char *msg,
                     const struct log_field *f) {
    char ts[RFC3339_SIZE];
    rfc3339_format(clock_wall_us(), ts);
    buf_printf(b, "%s %-5s %s: %s", ts, level_names[level], program_name, msg);
    for (; f->key; f++)
        put_field(b, f);
}

static void put_json(struct buf *b, enum log_level level, const char *msg,
                     const struct log_field *f) {
    char ts[RFC3339_SIZE];
    rfc3339_format(clock_wall_us(), ts);
    buf_printf(b, "{\"ts\":\"%s\",\"level\":\"%s\",\"program\":\"%s\",\"msg\":", ts,
               level_names[level], program_name);
    buf_json_str(b, msg, strlen(msg));
    for (; f->key; f++) {
        buf_printf(b, ",\"%s\":", f->key);
        if (!f->is_str)
            buf_printf(b, "%lld", (long long)f->num);
        else if (!f->str)
            buf_str(b, "null");
        else
            buf_json_str(b, f->str, strlen(f->str));
    }
    buf_char(b, '}');
}

/* The layout of files: level, local time, request id in brackets, program, message, other fields.
 */
static void put_file_text(struct buf *b, enum log_level level, const char *msg,
                          const struct log_field *f) {
    static const char *const names[] = {"ERROR:   ", "WARNING: ", "INFO:    ", "DEBUG:   "};
    time_t now = (time_t)(clock_wall_us() / 1000000);
    const char *request = "-";
    struct tm tm;
    char ts[40];

    for (const struct log_field *i = f; i->key; i++)
        if (i->is_str && i->str && strcmp(i->key, "request_id") == 0)
            request = i->str;
    if (!localtime_r(&now, &tm) || !strftime(ts, sizeof ts, "%Y-%m-%d %H:%M:%S%z", &tm))
        str_copy(ts, sizeof ts, "-");
    buf_printf(b, "%s %s [%s] %s: %s", names[level], ts, request, program_name, msg);
    for (; f->key; f++)
        if (strcmp(f->key, "request_id") != 0)
            put_field(b, f);
}

static void put_line(struct log_file *file, enum log_level level, const char *msg,
                     const struct log_field *fields) {
    _cleanup_buf_ struct buf b = BUF_INIT(64 << 10);
    int saved = errno;

    if (as_json)
        put_json(&b, level, msg, fields);
    else if (file)
        put_file_text(&b, level, msg, fields);
    else
        put_text(&b, level, msg, fields);
    buf_char(&b, '\n');
    if (b.data && file)
        log_file_write(file, b.data, b.len);
    else if (b.data)
        fd_write_full(2, b.data, b.len);
    errno = saved;
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields) {
    put_line(file_of_all, level, msg, fields);
}

void log_write_access(const char *msg, const struct log_field *fields) {
    put_line(file_of_requests, LOG_INFO, msg, fields);
}
