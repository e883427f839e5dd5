/*
 * The client object: one private event loop, one pool of connections. Blocking calls run the loop
 * until their own exchange is over; nothing runs between calls. Belongs to one thread; only
 * cove_client_interrupt() may come from elsewhere.
 */
#include <errno.h>
#include <string.h>

#include "client/internal.h"

const char *cove_version(void) {
    return COVE_VERSION;
}

void cove_free(void *p) {
    free(p);
}

static void on_wake(uv_async_t *a) {
    /* its work is to end uv_run(); the flag is read there */
}

static int client_setup_loop(struct cove_client *c, struct cove_error *err) {
    int r = uv_loop_init(&c->loop);
    if (r < 0)
        return cerr_sys(err, r, "cannot make an event loop");
    r = uv_async_init(&c->loop, &c->wake, on_wake);
    if (r < 0) {
        uv_loop_close(&c->loop);
        return cerr_sys(err, r, "cannot make an event loop");
    }
    uv_unref((uv_handle_t *)&c->wake);
    c->pool = h1_pool_new(&c->loop, 4, 60000);
    if (!c->pool) {
        uv_close((uv_handle_t *)&c->wake, NULL);
        uv_run(&c->loop, UV_RUN_DEFAULT);
        uv_loop_close(&c->loop);
        return cerr_oom(err);
    }
    return 0;
}

int cove_client_new(const char *address, const char *api_key, struct cove_client **ret,
                    struct cove_error *err) {
    if (!address)
        address = getenv("COVE_HOST");
    if (str_is_empty(address))
        address = COVE_DEFAULT_ADDRESS;
    if (!api_key)
        api_key = getenv("OPEN_SANDBOX_API_KEY");

    struct address a;
    int r = address_parse(address, &a, err);
    if (r < 0)
        return r;
    _cleanup_free_ struct cove_client *c = calloc(1, sizeof(*c));
    if (!c) {
        address_done(&a);
        return cerr_oom(err);
    }
    c->unix_path = a.unix_path;
    c->host = a.host;
    c->port = a.port;
    c->address = strdup(address);
    c->api_key = str_is_empty(api_key) ? NULL : strdup(api_key);
    r = !c->address || (!str_is_empty(api_key) && !c->api_key) ? cerr_oom(err)
                                                               : client_setup_loop(c, err);
    if (r < 0) {
        address_done(&a);
        free(c->address);
        free(c->api_key);
        return r;
    }
    *ret = TAKE_PTR(c);
    return 0;
}

struct cove_client *cove_client_free(struct cove_client *c) {
    if (!c)
        return NULL;
    h1_pool_free(c->pool);
    uv_close((uv_handle_t *)&c->wake, NULL);
    uv_run(&c->loop, UV_RUN_DEFAULT); /* until every handle has been closed */
    uv_loop_close(&c->loop);
    agent_done(&c->agent);
    free(c->unix_path);
    free(c->host);
    free(c->address);
    if (c->api_key)
        explicit_bzero(c->api_key, strlen(c->api_key));
    free(c->api_key);
    free(c);
    return NULL;
}

const char *cove_client_address(const struct cove_client *c) {
    return c->address;
}

void cove_client_interrupt(struct cove_client *c) {
    atomic_store(&c->interrupted, true);
    uv_async_send(&c->wake);
}

void cove_client_interrupt_clear(struct cove_client *c) {
    atomic_store(&c->interrupted, false);
}

bool client_take_interrupt(struct cove_client *c) {
    return atomic_exchange(&c->interrupted, false);
}
