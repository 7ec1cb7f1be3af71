/* The texts of an automaton, where they are few. */
#include "base/utf8.h"
#include "grammar/value_shape.h"

/* A text that is read up to a state. */
typedef struct partial {
    str text;
    uint32_t state;
} partial;

typedef struct partials {
    partial p[SCHEMA_FEW];
    uint32_t n;
} partials;

/* Adds what stands behind one character more; false: that is too many. */
static bool add_longer(schema *s, const partial *at, uint32_t c, uint32_t state, partials *to) {
    char bytes[4];
    size_t n = utf8_encode((int32_t)c, bytes);
    char *text = to->n < SCHEMA_FEW ? schema_keep(s, at->text.n + n, 1) : NULL;
    if (text != NULL) {
        mem_copy(text, at->text.p, at->text.n);
        memcpy(text + at->text.n, bytes, n);
        to->p[to->n++] = (partial){{text, at->text.n + n}, state};
    }
    return text != NULL;
}

static bool add_all_longer(schema *s, const dfa *d, const partial *at, partials *to) {
    const nfa_dstate *q = &d->states.p[at->state];
    bool few = q->other == NFA_NONE; /* else almost every character may come */
    for (uint32_t i = 0; few && i < q->n; i++) {
        const dfa_edge *e = &d->edges.p[q->first + i];
        for (uint32_t c = e->lo; few && e->to != NFA_NONE && c <= e->hi; c++) {
            few = (c >= 0xD800 && c <= 0xDFFF) || add_longer(s, at, c, e->to, to);
        }
    }
    return few;
}

bool schema_few_texts(schema *s, uint32_t x, str texts[SCHEMA_FEW], uint32_t *n) {
    partials two[2] = {{.p = {{{"", 0}, 0}}, .n = 1}, {.n = 0}};
    bool few = true;
    *n = 0;
    for (uint32_t length = 0; few && two[length % 2].n > 0; length++) {
        const dfa *d = &s->dfas->all.p[x];
        const partials *from = &two[length % 2];
        partials *to = &two[(length + 1) % 2];
        to->n = 0;
        few = length < d->states.n && build_step(s->b, from->n); /* a longer text comes through a state twice */
        for (uint32_t i = 0; i < from->n && few; i++) {
            if (d->states.p[from->p[i].state].accepts && (few = *n < SCHEMA_FEW)) {
                texts[(*n)++] = from->p[i].text;
            }
            few = few && add_all_longer(s, d, &from->p[i], to);
        }
    }
    return few;
}
