#include "wordfreq.h"

#include <stdio.h>
#include <string.h>

static int failures;
#define CHECK(e) ((e) ? printf("ok   %s\n", #e) : (failures++, printf("FAIL %s\n", #e)))

int main(void) {
    struct counts c = {0};
    const char *text = "To be, or not to be: that is the question. To sleep!";
    CHECK(counts_add_text(&c, text, strlen(text)) == 0);
    CHECK(counts_of(&c, "to") == 3);
    CHECK(counts_of(&c, "be") == 2);
    CHECK(counts_of(&c, "question") == 1);
    CHECK(counts_of(&c, "missing") == 0);
    counts_sort(&c);
    CHECK(strcmp(c.v[0].word, "to") == 0);
    CHECK(strcmp(c.v[1].word, "be") == 0);
    counts_free(&c);
    printf("%d failures\n", failures);
    return failures != 0;
}
