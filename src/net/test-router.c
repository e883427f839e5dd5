/* Route tables: precedence, parameters, refusals. */
#include "net/router.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "base/test.h"

static void nothing(struct h1_req *r, const struct route_match *m, void *ud) {
}

static const struct route table[] = {
    {"GET", "/", nothing},
    {"GET", "/v1/sandboxes", nothing},
    {"POST", "/v1/sandboxes", nothing},
    {"GET", "/v1/sandboxes/{id}", nothing},
    {"DELETE", "/v1/sandboxes/{id}", nothing},
    {"GET", "/v1/sandboxes/list", nothing},
    {"GET", "/v1/sandboxes/{id}/endpoints/{port}", nothing},
    {"*", "/v1/sandboxes/{id}/proxy/{port}/{rest...}", nothing},
    {"GET", "/v1/sandboxes/{id}/proxy/{port}/health", nothing},
    {"HEAD", "/only-head", nothing},
    {"GET", "/slash/", nothing},
    {"*", "/any", nothing},
    {"PUT", "/any", nothing},
    {NULL, NULL, NULL},
};

static const struct {
    const char *method, *path;
    enum route_result result;
    const char *pattern; /* or the Allow value for ROUTE_BAD_METHOD */
    const char *params;  /* joined by '|' */
} cases[] = {
    {"GET", "/", ROUTE_OK, "/", ""},
    {"GET", "/v1/sandboxes", ROUTE_OK, "/v1/sandboxes", ""},
    {"HEAD", "/v1/sandboxes", ROUTE_BAD_METHOD, "GET, POST", ""},
    {"HEAD", "/only-head", ROUTE_OK, "/only-head", ""},
    {"GET", "/only-head", ROUTE_BAD_METHOD, "HEAD", ""},
    {"PATCH", "/v1/sandboxes", ROUTE_BAD_METHOD, "GET, POST", ""},
    {"POST", "/v1/sandboxes/abc", ROUTE_BAD_METHOD, "GET, DELETE", ""},
    {"GET", "/v1/sandboxes/abc", ROUTE_OK, "/v1/sandboxes/{id}", "abc"},
    {"GET", "/v1/sandboxes/a%2Fb%20c", ROUTE_OK, "/v1/sandboxes/{id}", "a/b c"},
    {"GET", "/v1/sandboxes/list", ROUTE_OK, "/v1/sandboxes/list", ""},
    {"DELETE", "/v1/sandboxes/list", ROUTE_OK, "/v1/sandboxes/{id}", "list"},
    {"GET", "/%76%31/sandboxes", ROUTE_OK, "/v1/sandboxes", ""},
    {"GET", "/v1%2Fsandboxes", ROUTE_NOT_FOUND, NULL, ""},
    {"GET", "/v1/sandboxes/", ROUTE_NOT_FOUND, NULL, ""},
    {"GET", "/v1//sandboxes", ROUTE_NOT_FOUND, NULL, ""},
    {"GET", "//v1/sandboxes", ROUTE_NOT_FOUND, NULL, ""},
    {"GET", "/v1/sandboxes/a/endpoints/80", ROUTE_OK, "/v1/sandboxes/{id}/endpoints/{port}",
     "a|80"},
    {"GET", "/v1/sandboxes/a/endpoints/", ROUTE_NOT_FOUND, NULL, ""},
    {"PUT", "/v1/sandboxes/a/proxy/80/x/y%2Fz//w", ROUTE_OK,
     "/v1/sandboxes/{id}/proxy/{port}/{rest...}", "a|80|x/y%2Fz//w"},
    {"PUT", "/v1/sandboxes/a/proxy/80/", ROUTE_OK, "/v1/sandboxes/{id}/proxy/{port}/{rest...}",
     "a|80|"},
    {"PUT", "/v1/sandboxes/a/proxy/80", ROUTE_NOT_FOUND, NULL, ""},
    {"GET", "/v1/sandboxes/a/proxy/80/health", ROUTE_OK, "/v1/sandboxes/{id}/proxy/{port}/health",
     "a|80"},
    {"PUT", "/v1/sandboxes/a/proxy/80/health", ROUTE_OK,
     "/v1/sandboxes/{id}/proxy/{port}/{rest...}", "a|80|health"},
    {"GET", "/slash", ROUTE_NOT_FOUND, NULL, ""},
    {"GET", "/slash/", ROUTE_OK, "/slash/", ""},
    {"GET", "/any", ROUTE_OK, "/any", ""},
    {"HEAD", "/any", ROUTE_OK, "/any", ""},
    {"GET", "/v1/sandboxes/%zz", ROUTE_BAD_PATH, NULL, ""},
    {"GET", "/v1/sandboxes/a%00b", ROUTE_BAD_PATH, NULL, ""},
    {"GET", "", ROUTE_NOT_FOUND, NULL, ""},
    {"OPTIONS", "*", ROUTE_BAD_PATH, NULL, ""},
    {"GET",
     "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/30/31/32/33/"
     "34",
     ROUTE_NOT_FOUND, NULL, ""},
    {"PUT",
     "/v1/sandboxes/a/proxy/80/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/"
     "30/31/32/33/34",
     ROUTE_OK, "/v1/sandboxes/{id}/proxy/{port}/{rest...}",
     "a|80|6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/30/31/32/33/34"},
};

TEST(finds) {
    struct router *r;

    ASSERT_OK(router_new(table, &r));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct route *route = NULL;
        struct route_match m;
        char *allow = NULL, joined[256] = "";
        enum route_result got = router_find(r, cases[i].method, cases[i].path, &route, &m, &allow);

        if (got != cases[i].result)
            test_fail(__FILE__, __LINE__, "%s %s: result %d, expected %d", cases[i].method,
                      cases[i].path, got, cases[i].result);
        for (size_t k = 0; k < m.n_params; k++) {
            strncat(joined, k ? "|" : "", sizeof joined - strlen(joined) - 1);
            strncat(joined, m.params[k], sizeof joined - strlen(joined) - 1);
        }
        if (got == ROUTE_OK)
            ASSERT_STR(route->pattern, cases[i].pattern);
        ASSERT_STR(joined, cases[i].params);
        if (got == ROUTE_BAD_METHOD)
            ASSERT_STR(allow, cases[i].pattern);
        route_match_done(&m);
        free(allow);
    }
    router_free(r);
}

TEST(method_given_by_name_wins_over_any) {
    const struct route *route = NULL;
    struct route_match m;
    struct router *r;

    ASSERT_OK(router_new(table, &r));
    ASSERT_INT(router_find(r, "PUT", "/any", &route, &m, NULL), ROUTE_OK);
    ASSERT_STR(route->method, "PUT");
    route_match_done(&m);
    router_free(r);
}

TEST(bad_patterns) {
    static const char *const bad[] = {"",
                                      "v1",
                                      "/{}",
                                      "/{a",
                                      "/a}",
                                      "/x{a}",
                                      "/{a}x",
                                      "/{rest...}/x",
                                      "/{...}x",
                                      "/{a}{b}",
                                      "/{a}/{b}/{c}/{d}/{e}/{f}/{g}"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const struct route t[] = {{"GET", bad[i], nothing}, {NULL, NULL, NULL}};
        struct router *r = NULL;
        int e = router_new(t, &r);
        if (e != -EINVAL)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken (%d)", bad[i], e);
    }
}

TEST_MAIN()
