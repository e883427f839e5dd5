#include "base/json.h"

#include <string.h>

#include "base/test.h"

static bool refused(const char *s) {
    struct err e = {0};
    json_t *j = json_parse(s, strlen(s), &e);
    json_decref(j);
    return !j && e.msg[0];
}

TEST(strictness) {
    ASSERT(refused("{\"a\":1,\"a\":2}"));
    ASSERT(refused("{\"a\":\"\xff\"}"));
    ASSERT(refused("\"\\u0000\""));
    ASSERT(refused("{} x") && refused("") && refused("NaN") && refused("[1,]"));
    char deep[400] = "";
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    ASSERT(refused(deep));
}

TEST(first_value_only) {
    _cleanup_json_ json_t *j = json_parse_first("{\"a\":1} trailing", 16, NULL);
    ASSERT_INT(json_int(j, "a", 0), 1);
    ASSERT(json_str(j, "a") == NULL && json_bool(j, "b", true));
    _cleanup_buf_ struct buf b = BUF_INIT(0);
    ASSERT_OK(buf_json(&b, j));
    ASSERT_STR(b.data, "{\"a\":1}");
}
TEST_MAIN()
