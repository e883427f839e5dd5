#include "base/json.h"

#include <pthread.h>
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

static void *parse_deep(void *arg) {
    struct err err = {0};
    const char *text = arg;
    json_t *j = json_parse(text, strlen(text), &err);

    return j || !strstr(err.msg, "deeper") ? (void *)1 : NULL;
}

/* Workers have little stack; what comes from a runtime is parsed there. */
TEST(deep_nesting_needs_no_stack) {
    static char text[400001];
    pthread_attr_t attr;
    pthread_t t;
    void *bad;

    for (size_t i = 0; i + 5 < sizeof text; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 128 << 10);
    for (size_t n = sizeof text - 1; n > 1000; n /= 40) {
        text[n] = 0;
        ASSERT(pthread_create(&t, &attr, parse_deep, text) == 0);
        ASSERT(pthread_join(t, &bad) == 0);
        ASSERT(bad == NULL);
    }
    pthread_attr_destroy(&attr);
    /* brackets in texts are none */
    memset(text, '[', 1000);
    text[0] = text[999] = '"';
    text[500] = '\\';
    text[501] = '"';
    text[1000] = 0;
    _cleanup_json_ json_t *j = json_parse(text, 1000, NULL);
    ASSERT(json_is_string(j));
}

TEST_MAIN()
