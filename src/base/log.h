/*
 * Structured logging, to stderr or into files. Text for people, JSON lines by option. Thread-safe;
 * one write(2) per line. Values are never secrets: callers leave tokens and bodies out. Library
 * code stays at debug.
 *
 *   log_info("listening", LOG_STR("addr", addr), LOG_INT("port", port));
 *   log_error("create failed", LOG_REQ(request_id), LOG_ERR(&err));
 */
#pragma once

#include "base/err.h"
#include "base/log_file.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log_field {
    const char *key; /* NULL ends the list */
    const char *str; /* used when not NULL */
    int64_t num;
    bool is_str;
};

#define LOG_STR(k, v) ((struct log_field){.key = (k), .str = (v), .is_str = true})
#define LOG_INT(k, v) ((struct log_field){.key = (k), .num = (int64_t)(v)})
#define LOG_REQ(id) LOG_STR("request_id", id)
#define LOG_ERR(e) LOG_STR("error", err_text(e))

void log_setup(enum log_level max_level, bool json, const char *program);
/* From now on lines go into files, requests (log_access) into one of their own; NULL, NULL: back to
 * stderr. The files are borrowed. Before threads start, or when they have ended. Lines of text have
 * the layout of OpenSandbox's server there: "INFO:     TIME [REQUEST ID] PROGRAM: MESSAGE". */
void log_to_files(struct log_file *all, struct log_file *requests);
bool log_is_on(enum log_level level);
int log_level_parse(const char *name,
                    enum log_level *ret); /* error, warn(ing), info, debug; any case */
void log_write(enum log_level level, const char *msg, const struct log_field *fields);
void log_write_access(const char *msg, const struct log_field *fields);

#define log_at(level, msg, ...)                                                             \
    do {                                                                                    \
        if (log_is_on(level))                                                               \
            log_write(level, msg, (const struct log_field[]){{0}, ##__VA_ARGS__, {0}} + 1); \
    } while (0)
/* One finished request, at level info. */
#define log_access(msg, ...)                                                                \
    do {                                                                                    \
        if (log_is_on(LOG_INFO))                                                            \
            log_write_access(msg, (const struct log_field[]){{0}, ##__VA_ARGS__, {0}} + 1); \
    } while (0)
#define log_error(msg, ...) log_at(LOG_ERROR, msg, ##__VA_ARGS__)
#define log_warn(msg, ...) log_at(LOG_WARN, msg, ##__VA_ARGS__)
#define log_info(msg, ...) log_at(LOG_INFO, msg, ##__VA_ARGS__)
#define log_debug(msg, ...) log_at(LOG_DEBUG, msg, ##__VA_ARGS__)
