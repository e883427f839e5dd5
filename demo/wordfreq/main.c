#include "wordfreq.h"

#include <stdio.h>

int main(void) {
    struct counts c = {0};
    char buf[65536];
    size_t n = fread(buf, 1, sizeof buf, stdin);
    if (counts_add_text(&c, buf, n) < 0)
        return 1;
    counts_sort(&c);
    for (size_t i = 0; i < c.len && i < 10; i++)
        printf("%6zu %s\n", c.v[i].n, c.v[i].word);
    counts_free(&c);
    return 0;
}
