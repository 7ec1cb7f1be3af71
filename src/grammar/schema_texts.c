/* The texts of an automaton and their number, where they are few. */
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

/* Adds what follows one more character; false: that is too many. */
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
    bool few = q->other == NFA_NONE; /* else almost every character is allowed */
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
        /* a longer text comes through a state twice */
        few = length < d->states.n && build_step(s->b, from->n);
        for (uint32_t i = 0; i < from->n && few; i++) {
            if (d->states.p[from->p[i].state].accepts && (few = *n < SCHEMA_FEW)) {
                texts[(*n)++] = from->p[i].text;
            }
            few = few && add_all_longer(s, d, &from->p[i], to);
        }
    }
    return few;
}

static uint32_t n_surrogates(uint32_t lo, uint32_t hi) {
    lo = lo < 0xD800 ? 0xD800 : lo;
    hi = hi > 0xDFFF ? 0xDFFF : hi;
    return lo <= hi ? hi - lo + 1 : 0;
}

/* From state q on, by what is known of the states after it; 0: not yet. As many as
 * NFA_FEW_NAMES + 1 are more. */
static uint32_t schema_texts_count_from(const dfa *d, uint32_t q, const uint32_t *known) {
    const nfa_dstate *s = &d->states.p[q];
    uint64_t n = s->accepts, others = NFA_MAX_CHAR + 1u - 0x800u;
    for (uint32_t k = 0; k <= s->n; k++) {
        const dfa_edge *e = k < s->n ? &d->edges.p[s->first + k] : NULL;
        uint32_t to = e != NULL ? e->to : s->other;
        uint64_t chars = e != NULL ? (uint64_t)e->hi - e->lo + 1 - n_surrogates(e->lo, e->hi) : others;
        others -= e != NULL ? chars : 0;
        if (to != NFA_NONE && known[to] == 0) {
            return 0;
        }
        n += to != NFA_NONE ? chars * known[to] : 0;
    }
    return n > NFA_FEW_NAMES ? NFA_FEW_NAMES + 1 : (uint32_t)n;
}

uint32_t schema_count_texts(schema *s, uint32_t x) {
    const dfa *d = &s->dfas->all.p[x];
    uint32_t *known = schema_keep(s, d->states.n, sizeof *known);
    for (bool changed = known != NULL; changed && known[0] == 0;) { /* states of a circle are never known */
        changed = false;
        for (uint32_t q = d->states.n; q-- > 0 && build_step(s->b, 1 + d->states.p[q].n);) {
            bool is_new = known[q] == 0 && (known[q] = schema_texts_count_from(d, q, known)) != 0;
            changed = changed || is_new;
        }
    }
    return known == NULL || known[0] == 0 || known[0] > NFA_FEW_NAMES ? NFA_NONE : known[0];
}
