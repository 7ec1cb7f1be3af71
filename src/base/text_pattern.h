/* Finds one text in a stream of bytes: the automaton of Knuth, Morris and Pratt (1977).
 * Its state, kept by the caller, is the length of the longest prefix of the text that is
 * a suffix of the bytes read; state n: the text is complete. Immutable: any thread. */
#ifndef BASE_TEXT_PATTERN_H
#define BASE_TEXT_PATTERN_H

#include "base/mem.h"
#include "base/str.h"

/* Zero-initialised: an empty pattern, which is never found. */
typedef struct text_pattern {
    char *text;
    size_t n;
    /* [n] border[k]: length of the longest proper prefix of text[0..k] that ends it
     * too */
    size_t *border;
} text_pattern;

/* Returns the state after the byte c. */
static inline size_t text_pattern_step(const text_pattern *p, size_t state, char c) {
    while (state > 0 && (state == p->n || p->text[state] != c)) {
        state = p->border[state - 1];
    }
    return p->n > 0 && p->text[state] == c ? state + 1 : 0;
}

static inline void text_pattern_deinit(text_pattern *p) {
    mem_free(p->text);
    mem_free(p->border);
    *p = (text_pattern){0};
}

/* Makes a pattern of a copy of the text. QUIRE_NO_MEMORY: call deinit too. */
static inline quire_err text_pattern_init(text_pattern *p, str text) {
    p->text = mem_dup(text.p, text.n);
    p->border = mem_new(text.n, sizeof *p->border);
    TRY(mem_check(p->text));
    TRY(mem_check(p->border));
    p->n = text.n;
    for (size_t k = 1; k < text.n; k++) {
        p->border[k] = text_pattern_step(p, p->border[k - 1], text.p[k]);
    }
    return QUIRE_OK;
}

#endif
