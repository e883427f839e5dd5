/* The metadata filter of a list: a form-encoded text inside the (already decoded) query value.
 * Pure. */
#include <string.h>

#include "daemon/api/opensandbox/dialect.h"

#define MAX_PAIRS 256

json_t *parse_metadata_filter(const char *text) {
    struct query q = {0};
    json_t *o = NULL;

    size_t pairs = 1;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "&");
        if (!memchr(p, '=', n))
            return NULL;
        p += n;
        if (*p && !*++p)
            return NULL; /* a '&' at the end: an empty segment */
        pairs++;
    }
    if (!*text || pairs > MAX_PAIRS + 1 || query_parse(text, strlen(text), &q) < 0)
        return NULL;
    o = json_object();
    for (size_t i = 0; i < q.keys.n; i++) {
        if (json_object_set_new(o, q.keys.v[i], json_string(q.values.v[i])) < 0) { /* not UTF-8 */
            json_decref(o);
            o = NULL;
            break;
        }
    }
    query_done(&q);
    return o;
}
