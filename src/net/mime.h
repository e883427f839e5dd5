/*
 * Structured header values such as `form-data; name="a"; filename="b"`: a token followed by
 * parameters. Quoted strings are understood; a backslash escapes only '"' and '\' in them, so that
 * Windows paths of careless senders stay whole.
 */
#pragma once

#include "base/buf.h"

/* The leading token ("multipart/form-data"), trimmed. *s moves behind it. -EINVAL when there is
 * none. */
int mime_token(const char **s, struct buf *ret);
/*
 * Next parameter: 1 with name (lower case) and value replaced, 0 at the end, -EINVAL on bad syntax,
 * -ENOBUFS past the buffers' maxima. *s moves on.
 */
int mime_param(const char **s, struct buf *ret_name, struct buf *ret_value);
