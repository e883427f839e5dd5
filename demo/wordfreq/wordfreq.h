/* Counts words of a text, case folded; the demo's little library. */
#pragma once
#include <stddef.h>

struct count {
    char *word;
    size_t n;
};
struct counts {
    struct count *v;
    size_t len, cap;
};

int counts_add_text(struct counts *c, const char *text,
                    size_t len);    /* 0 or -1 when out of memory */
void counts_sort(struct counts *c); /* most frequent first, then by name */
size_t counts_of(const struct counts *c, const char *word);
void counts_free(struct counts *c);
