/* Calls on volumes and networks. */
#include <errno.h>

#include "docker/internal.h"

int engine_volume_create(struct engine *e, const char *name, const json_t *labels, json_t **ret,
                         struct err *err) {
    _cleanup_json_ json_t *body = json_pack("{s:s, s:O*}", "Name", name, "Labels", labels);

    if (!body)
        return err_set(err, -EINVAL, "the volume's name is no UTF-8");
    return engine_do(e, "POST", "/volumes/create", NULL, body, ret, err);
}

int engine_volume_inspect(struct engine *e, const char *name, json_t **ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    int r = engine_path(&path, "/volumes/", name, "", err);

    return r < 0 ? r : engine_do(e, "GET", path.data, NULL, NULL, ret, err);
}

int engine_volume_list(struct engine *e, const json_t *filters, json_t **ret, struct err *err) {
    _cleanup_buf_ struct buf query = BUF_INIT((size_t)1 << 20);
    _cleanup_json_ json_t *answer = NULL;
    json_t *list;
    int r;

    if (engine_query_json(&query, "filters", filters) < 0)
        return engine_oom(err);
    r = engine_do(e, "GET", "/volumes", &query, NULL, &answer, err);
    if (r < 0)
        return r;
    list = json_object_get(answer, "Volumes"); /* null when there are none */
    list = json_is_array(list) ? json_incref(list) : json_array();
    if (!list)
        return engine_oom(err);
    *ret = list;
    return 0;
}

int engine_volume_remove(struct engine *e, const char *name, bool force, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192), query = BUF_INIT(64);
    int r = engine_path(&path, "/volumes/", name, "", err);

    if (r < 0)
        return r;
    if (force)
        engine_query_add(&query, "force", "1");
    return engine_do(e, "DELETE", path.data, &query, NULL, NULL, err);
}

int engine_network_inspect(struct engine *e, const char *name, json_t **ret, struct err *err) {
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    int r = engine_path(&path, "/networks/", name, "", err);

    return r < 0 ? r : engine_do(e, "GET", path.data, NULL, NULL, ret, err);
}
