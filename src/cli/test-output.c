/* Tables and advice. */
#include <errno.h>
#include <string.h>

#include "base/test.h"
#include "cli/output.h"

TEST(table_is_aligned_and_clean) {
    static const char *const heads[] = {"NAME", "STATE"};
    struct table t;
    table_init(&t, heads, 2);
    table_add(&t, "a\033[31mb\n"); /* what a name may hold must not reach the terminal */
    table_add(&t, "Running");
    table_add(&t, "\xc3\xa4\xc3\xb6");
    table_add(&t, "");
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    table_print(&t, f);
    fclose(f);
    ASSERT_STR(text, "NAME       STATE\n"
                     "a?[31mb?   Running\n"
                     "\xc3\xa4\xc3\xb6         -\n");
    free(text);
    table_done(&t);
}

TEST(advice_fits_the_failure) {
    struct cove_error e = {.code = -ENOENT, .message = "nothing listens at unix:/x"};
    ASSERT(strstr(advice_for(&e), "start the daemon"));
    e = (struct cove_error){
        .code = -EACCES, .http_status = 401, .message = "cannot list sandboxes: no key"};
    ASSERT(strstr(advice_for(&e), "OPEN_SANDBOX_API_KEY"));
    e = (struct cove_error){
        .code = -EINVAL, .http_status = 400, .message = "cannot create the sandbox: no such image"};
    ASSERT(!advice_for(&e));
}

TEST_MAIN()
