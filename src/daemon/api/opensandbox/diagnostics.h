/* The texts of diagnostics (lifecycle.md 7.7). Pure functions; see diagnostics_text.c. */
#pragma once

#include "daemon/api/opensandbox/dialect.h"

#define DIAG_MAX_LOG ((size_t)1 << 20) /* bytes of a log that are shown */
#define DIAG_SINCE_DEFAULT_S 600       /* what an unreadable `since` counts as */

bool diag_is_secret_name(const char *name, size_t len);

/* The service's own record in the form of a driver's description (docker.h). New reference. */
json_t *diag_own_details(const struct sandbox *sb);
void diag_put_inspect(struct buf *b, const json_t *d, const struct sandbox *sb);
/* limit: results of health probes that are shown */
void diag_put_events(struct buf *b, const json_t *d, const struct sandbox *sb, int64_t limit);

/* Valid UTF-8, every bad byte replaced; malloc'd, NULL on -ENOMEM. */
char *diag_to_utf8(const char *s);
/* Start of the last n lines; *ret_more: there were others before. */
const char *diag_last_lines(const char *s, int64_t n, bool *ret_more);
/* Start of the last max bytes, at a line. */
const char *diag_last_bytes(const char *s, size_t max, bool *ret_cut);
/* Seconds of "90", "10m", "2 h"; DIAG_SINCE_DEFAULT_S for anything else. */
int64_t diag_parse_since(const char *s);
