#include "wordfreq.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int add_word(struct counts *c, const char *s, size_t len) {
    for (size_t i = 0; i < c->len; i++) {
        if (strlen(c->v[i].word) == len && strncmp(c->v[i].word, s, len) == 0) {
            c->v[i].n++;
            return 0;
        }
    }
    if (c->len == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 64;
        struct count *v = realloc(c->v, cap * sizeof *v);
        if (!v)
            return -1;
        c->v = v;
        c->cap = cap;
    }
    c->v[c->len].word = strndup(s, len);
    if (!c->v[c->len].word)
        return -1;
    c->v[c->len++].n = 1;
    return 0;
}

int counts_add_text(struct counts *c, const char *text, size_t len) {
    char word[64];
    size_t n = 0;
    for (size_t i = 0; i <= len; i++) {
        unsigned char ch = i < len ? (unsigned char)text[i] : ' ';
        if (isalpha(ch) && n < sizeof word) {
            word[n++] = (char)tolower(ch);
        } else if (!isalpha(ch) && n > 0) {
            if (add_word(c, word, n) < 0)
                return -1;
            n = 0;
        }
    }
    return 0;
}

static int by_count(const void *a, const void *b) {
    const struct count *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return strcmp(x->word, y->word);
}

void counts_sort(struct counts *c) {
    if (c->len)
        qsort(c->v, c->len, sizeof *c->v, by_count);
}

size_t counts_of(const struct counts *c, const char *word) {
    for (size_t i = 0; i < c->len; i++)
        if (strcmp(c->v[i].word, word) == 0)
            return c->v[i].n;
    return 0;
}

void counts_free(struct counts *c) {
    for (size_t i = 0; i < c->len; i++)
        free(c->v[i].word);
    free(c->v);
    memset(c, 0, sizeof *c);
}
