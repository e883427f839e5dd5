#include "base/clock.h"

#include <errno.h>

#include "base/test.h"

static void check(const char *in, const char *want) {
    char out[RFC3339_SIZE];
    int64_t us;
    ASSERT_OK(rfc3339_parse(in, &us));
    rfc3339_format(us, out);
    ASSERT_STR(out, want);
}

TEST(rfc3339_forms) {
    check("2025-01-02T03:04:05Z", "2025-01-02T03:04:05Z");
    check("2025-01-02T03:04:05.5Z", "2025-01-02T03:04:05.500000Z");
    check("2025-01-02T03:04:05.123456789+02:00", "2025-01-02T01:04:05.123456Z");
    check("2025-01-02 03:04:05", "2025-01-02T03:04:05Z");
    check("2024-02-29T23:59:60-0530", "2024-03-01T05:30:00Z");
    check("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.500000Z");
}

TEST(rfc3339_refusals) {
    static const char *const bad[] = {"",
                                      "2025-01-02",
                                      "2025-13-01T00:00:00Z",
                                      "2023-02-29T00:00:00Z",
                                      "2025-01-01T24:00:00Z",
                                      "2025-01-01T00:00:00.Z",
                                      "2025-01-01T00:00:00Zx",
                                      "2025-01-01T00:00:00+25:00",
                                      "tomorrow",
                                      "2025-01-01T00:00:00.1234567890Z"};
    int64_t us;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ASSERT_INT(rfc3339_parse(bad[i], &us), -EINVAL);
}
TEST_MAIN()
