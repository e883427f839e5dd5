/*
 * A user's program: only the installed header, plain C, linked once with the shared and once with
 * the static library. It has functions whose names the library uses inside, which must not clash.
 */
#include <cove/cove.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int str_eq(const char *a, const char *b);
void *map_new(void);

/* Same names as in the library, other meanings. */
int str_eq(const char *a, const char *b) {
    return 42;
}
void *map_new(void) {
    return NULL;
}

static int n, failed;
static void check(int ok, const char *name) {
    failed += !ok;
    printf("%sok %d - %s\n", ok ? "" : "not ", ++n, name);
}

int main(void) {
    struct cove_client *c = NULL;
    struct cove_error err;
    check(COVE_API_VERSION == 100, "version_macro");
    check(strcmp(cove_version(), "0.1.0") == 0, "version");
    check(cove_client_new("unix:/nonexistent/x", NULL, &c, &err) == 0 && c, "client");
    check(strcmp(cove_client_address(c), "unix:/nonexistent/x") == 0, "address");
    check(cove_client_ping(c, NULL, &err) < 0 && strstr(err.message, "nothing listens"),
          "no_server");
    check(cove_client_free(c) == NULL, "free");
    check(cove_client_new("nonsense", NULL, &c, &err) == -EINVAL && err.code == -EINVAL,
          "bad_address");
    check(str_eq("a", "a") == 42 && map_new() == NULL, "own_names");
    printf("1..%d\n", n);
    return failed != 0;
}
