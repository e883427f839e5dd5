/* Answers every handler uses: the error envelope, empty successes, JSON (execd.md 1.1, 1.3). */
#pragma once

#include "base/json.h"
#include "net/h1_server.h"

#define ERR_BODY "INVALID_REQUEST_BODY"
#define ERR_QUERY "MISSING_QUERY"
#define ERR_RUNTIME "RUNTIME_ERROR"
#define ERR_NOT_FOUND "FILE_NOT_FOUND"
#define ERR_CONTEXT "CONTEXT_NOT_FOUND"
#define ERR_NOT_SUPPORTED "NOT_SUPPORTED"
#define ERR_FILE "INVALID_FILE"
#define ERR_FILE_METADATA "INVALID_FILE_METADATA"
#define ERR_FILE_CONTENT "INVALID_FILE_CONTENT"
#define ERR_UNKNOWN "UNKNOWN"
#define ERR_CONNECTED "ALREADY_CONNECTED"
#define ERR_UNAVAILABLE "SERVICE_UNAVAILABLE"
#define ERR_INITIALIZED "ALREADY_INITIALIZED"

/* {"code":…,"message":…}; both always present and non-empty. */
void reply_error(struct h1_req *r, int status, const char *code, const char *fmt, ...)
    _printf_(4, 5);
void reply_error_with(struct h1_req *r, int status, const struct h1_header *headers,
                      const char *code, const char *msg);
/* Status from a file operation's errno: 404 FILE_NOT_FOUND for ENOENT, else 500 RUNTIME_ERROR. */
void reply_errno(struct h1_req *r, int error, const struct err *err);
void reply_empty(struct h1_req *r);                       /* 200 with Content-Length: 0 */
void reply_json(struct h1_req *r, int status, json_t *j); /* takes j; NULL = out of memory, 500 */
