#include "base/cidr.h"
#include "base/test.h"

TEST(lists_of_networks) {
    static const struct {
        const char *entry, *peer;
        bool is_in;
    } cases[] = {
        {"10.0.0.0/8", "10.255.1.2", true},      {"10.0.0.0/8", "11.0.0.1", false},
        {"10.1.2.3", "10.1.2.3", true},          {"10.1.2.3", "10.1.2.4", false},
        {"10.1.2.0/23", "10.1.3.9", true},       {"10.1.2.0/23", "10.1.4.1", false},
        {"0.0.0.0/0", "8.8.8.8", true},          {"0.0.0.0/0", "::1", false},
        {"10.0.0.0/8", "::ffff:10.1.1.1", true}, {"::1", "::1", true},
        {"fd00::/8", "fdff::1", true},           {"fd00::/8", "fe00::1", false},
    };
    static const char *const bad[] = {"",        "10.0.0.0/33", "10.0.0",  "x",
                                      "::1/129", "::/-1",       "1.1.1.1/"};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *list[] = {"bogus", cases[i].entry, NULL};
        ASSERT(cidr_is_valid(cases[i].entry));
        ASSERT_INT(cidr_list_has(list, cases[i].peer), cases[i].is_in);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ASSERT(!cidr_is_valid(bad[i]));
    ASSERT(!cidr_list_has(NULL, "1.1.1.1"));
}

TEST_MAIN()
