/* Automata over characters: products, lists of names, placing. */
#include "grammar/dfa.h"

#include <assert.h>
#include <stdlib.h>

#include "base/utf8.h"

#define EDGES_A_STEP 8      /* edges looked at per step of the budget */
#define REPLACEMENT  0xFFFD /* stands for bytes that are not part of a character */

void dfa_pool_init(dfa_pool *p, build *b) {
    *p = (dfa_pool){.b = b};
    uint32_t any = dfa_new(p);
    dfa_add_state(p, any, true);
    dfa_add_edge(p, any, 0, NFA_MAX_CHAR, 0);
}

void dfa_pool_deinit(dfa_pool *p) {
    assert(p != NULL);
    for (uint32_t i = 0; i < p->all.n; i++) {
        mem_free(p->all.p[i].lengths.sets);
        NFA_FREE(p->b, p->all.p[i].states);
        NFA_FREE(p->b, p->all.p[i].edges);
    }
    NFA_FREE(p->b, p->all);
    NFA_FREE(p->b, p->made);
    NFA_FREE(p->b, p->made_texts);
    hash_index_deinit(&p->index);
    *p = (dfa_pool){0};
}

uint32_t dfa_new(dfa_pool *p) {
    assert(p != NULL);
    if (!NFA_ADD(p->b, p->all, (dfa){0})) {
        return DFA_ANY;
    }
    return p->all.n - 1;
}

void dfa_add_state(dfa_pool *p, uint32_t x, bool accepts) {
    assert(p != NULL);
    if (p->b->failed != QUIRE_OK) {
        return;
    }
    dfa *d = &p->all.p[x];
    if (d->states.n >= DFA_MAX_STATES) {
        (void)build_fail(p->b, QUIRE_UNSUPPORTED, -1,
                         "a pattern or its combination with other constraints takes over %d states",
                         DFA_MAX_STATES);
        return;
    }
    nfa_dstate *s = NFA_PUSH(p->b, d->states);
    if (s != NULL) {
        *s = (nfa_dstate){.first = d->edges.n, .other = NFA_NONE, .accepts = accepts};
    }
}

void dfa_add_edge(dfa_pool *p, uint32_t x, uint32_t lo, uint32_t hi, uint32_t to) {
    assert(p != NULL);
    if (p->b->failed != QUIRE_OK) {
        return;
    }
    dfa *d = &p->all.p[x];
    nfa_dstate *s = &d->states.p[d->states.n - 1];
    dfa_edge *last = s->n > 0 ? &d->edges.p[s->first + s->n - 1] : NULL;
    if (last != NULL && last->to == to && last->hi + 1 == lo) {
        last->hi = hi;
    } else {
        if (!NFA_ADD(p->b, d->edges, (dfa_edge){lo, hi, to})) {
            return;
        }
        s = &d->states.p[d->states.n - 1];
        s->n++;
    }
    if (hi < NFA_MAX_CHAR) {
        return;
    }
    s->other = to; /* edges to the default target are left out */
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (d->edges.p[s->first + i].to != to) {
            d->edges.p[s->first + n++] = d->edges.p[s->first + i];
        }
    }
    s->n = n & NFA_MAX_DEDGES;
    d->edges.n = s->first + n;
}

static uint32_t dfa_step(const dfa *d, uint32_t state, uint32_t c, uint32_t *until) {
    const nfa_dstate *s = &d->states.p[state];
    *until = NFA_MAX_CHAR;
    for (uint32_t i = 0; i < s->n; i++) {
        const dfa_edge *e = &d->edges.p[s->first + i];
        if (c < e->lo) {
            *until = e->lo - 1;
            return s->other;
        }
        if (c <= e->hi) {
            *until = e->hi;
            return e->to;
        }
    }
    return s->other;
}

/* ---- trimming ---- */

static uint32_t kept(const bool *live, uint32_t to) {
    return to != NFA_NONE && live[to] ? to : NFA_NONE;
}

uint32_t dfa_trim(dfa_pool *p, uint32_t x) {
    assert(x < p->all.n);
    dfa *d = &p->all.p[x];
    bool *live = p->b->failed == QUIRE_OK ? build_new(p->b, d->states.n, sizeof *live) : NULL;
    if (live == NULL) {
        return DFA_ANY;
    }
    for (bool changed = true; changed && p->b->failed == QUIRE_OK;) {
        changed = false;
        for (uint32_t i = d->states.n; i-- > 0 && build_step(p->b, 1 + d->states.p[i].n);) {
            const nfa_dstate *s = &d->states.p[i];
            bool lives = s->accepts || kept(live, s->other) != NFA_NONE;
            for (uint32_t k = 0; k < s->n && !lives; k++) {
                lives = kept(live, d->edges.p[s->first + k].to) != NFA_NONE;
            }
            changed = changed || (lives && !live[i]);
            live[i] = live[i] || lives;
        }
    }
    for (uint32_t i = 0; i < d->states.n; i++) {
        nfa_dstate *s = &d->states.p[i];
        uint32_t n = 0;
        s->other = kept(live, s->other);
        for (uint32_t k = 0; k < s->n; k++) {
            dfa_edge e = d->edges.p[s->first + k];
            e.to = kept(live, e.to);
            if (e.to != s->other) {
                d->edges.p[s->first + n++] = e;
            }
        }
        s->n = n & NFA_MAX_DEDGES;
    }
    mem_free(live);
    return p->b->failed == QUIRE_OK ? x : DFA_ANY;
}

bool dfa_is_empty(const dfa_pool *p, uint32_t x) {
    assert(x < p->all.n);
    const dfa *d = &p->all.p[x];
    return p->b->failed == QUIRE_OK && !d->states.p[0].accepts && d->states.p[0].other == NFA_NONE &&
           d->states.p[0].n == 0;
}

bool dfa_accepts_within(const dfa_pool *p, uint32_t x, str text, int64_t *steps) {
    assert(x < p->all.n);
    const dfa *d = &p->all.p[x];
    uint32_t s = 0, until;
    for (size_t i = 0, len; i < text.n && s != NFA_NONE && *steps >= 0; i += len) {
        int32_t c = utf8_decode(text.p + i, text.n - i, &len);
        *steps -= 1 + d->states.p[s].n / EDGES_A_STEP;
        s = dfa_step(d, s, c >= 0 ? (uint32_t)c : REPLACEMENT, &until);
    }
    return s != NFA_NONE && d->states.p[s].accepts;
}

bool dfa_accepts(const dfa_pool *p, uint32_t x, str text) {
    assert(x < p->all.n);
    const dfa *d = &p->all.p[x];
    uint32_t s = 0, until;
    for (size_t i = 0, len; i < text.n && s != NFA_NONE; i += len) {
        s = dfa_step(d, s, (uint32_t)utf8_next(text.p + i, &len), &until);
    }
    return s != NFA_NONE && d->states.p[s].accepts;
}

/* ---- products ---- */

typedef struct pair {
    uint32_t x, y, number;
} pair;

typedef struct product {
    dfa_pool *p;
    NFA_VEC(pair) pairs;
    hash_index index; /* index of pairs */
} product;

static uint32_t pair_of(product *q, uint32_t x, uint32_t y) {
    uint32_t hash = x * 0x9E3779B1u ^ y * 0x85EBCA6Bu;
    HASH_INDEX_EACH(&q->index, hash, i) {
        if (q->pairs.p[i].x == x && q->pairs.p[i].y == y) {
            return i;
        }
    }
    pair *n = NFA_PUSH(q->p->b, q->pairs);
    if (n == NULL) {
        return 0;
    }
    *n = (pair){x, y, 0};
    return build_index(q->p->b, &q->index, hash, q->pairs.n - 1) ? q->pairs.n - 1 : 0;
}

static bool accepts(const dfa *d, uint32_t s) {
    return s != NFA_NONE && d->states.p[s].accepts;
}

/* The target for a pair of targets; NFA_NONE: nothing can follow. */
static uint32_t pair_target(product *q, uint32_t x, uint32_t y, dfa_op op) {
    bool dead =
        op == DFA_OR ? x == NFA_NONE && y == NFA_NONE : x == NFA_NONE || (op == DFA_AND && y == NFA_NONE);
    return dead ? NFA_NONE : pair_of(q, x, y);
}

uint32_t dfa_make_combined(dfa_pool *p, uint32_t x, uint32_t y, dfa_op op) {
    assert(p != NULL);
    if (p->b->failed != QUIRE_OK || (op == DFA_AND && (x == DFA_ANY || x == y)) ||
        (op == DFA_OR && y == DFA_ANY)) {
        return y;
    }
    if ((op == DFA_AND && y == DFA_ANY) || (op == DFA_OR && (x == DFA_ANY || x == y))) {
        return x;
    }
    product q = {.p = p};
    uint32_t out = dfa_new(p);
    (void)pair_of(&q, 0, 0);
    for (uint32_t i = 0; i < q.pairs.n && build_step(p->b, 1); i++) {
        const dfa *dx = &p->all.p[x], *dy = &p->all.p[y];
        pair at = q.pairs.p[i];
        bool ax = accepts(dx, at.x), ay = accepts(dy, at.y);
        dfa_add_state(p, out, op == DFA_AND ? ax && ay : op == DFA_OR ? ax || ay : ax && !ay);
        for (uint32_t c = 0; c <= NFA_MAX_CHAR && build_step(p->b, 1);) {
            uint32_t until_x = NFA_MAX_CHAR, until_y = NFA_MAX_CHAR;
            uint32_t to_x = at.x != NFA_NONE ? dfa_step(dx, at.x, c, &until_x) : NFA_NONE;
            uint32_t to_y = at.y != NFA_NONE ? dfa_step(dy, at.y, c, &until_y) : NFA_NONE;
            uint32_t until = until_x < until_y ? until_x : until_y;
            dfa_add_edge(p, out, c, until, pair_target(&q, to_x, to_y, op));
            c = until + 1;
        }
    }
    NFA_FREE(p->b, q.pairs);
    hash_index_deinit(&q.index);
    return dfa_trim(p, out);
}

/* ---- names, lengths ---- */

static int dfa_compare_names(const void *x, const void *y) {
    const str *a = x, *b = y;
    int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    return c != 0 ? c : a->n < b->n ? -1 : a->n > b->n;
}

/* Work to do: names from[0 .. n) share their first `depth` bytes. Adds the state after
 * these, and then those after longer prefixes. */
typedef struct name_group {
    uint32_t first, n, state;
    size_t depth;
} name_group;

uint32_t dfa_make_names(dfa_pool *p, const str *names, uint32_t n) {
    uint32_t x = dfa_new(p);
    str *sorted = build_new(p->b, n, sizeof *sorted);
    NFA_VEC(name_group) groups = {0};
    name_group *root = sorted != NULL ? NFA_PUSH(p->b, groups) : NULL;
    if (root != NULL) {
        *root = (name_group){0, n, 0, 0};
        mem_copy(sorted, names, n * sizeof *names);
        qsort(sorted, n, sizeof *sorted, dfa_compare_names);
    }
    for (uint32_t g = 0; g < groups.n && build_step(p->b, 1); g++) {
        name_group at = groups.p[g];
        uint32_t i = at.first, end = at.first + at.n, from = 0;
        dfa_add_state(p, x, i < end && sorted[i].n == at.depth);
        while (i < end && sorted[i].n == at.depth) {
            i++;
        }
        while (i < end && build_step(p->b, 1)) {
            size_t len;
            uint32_t c = (uint32_t)utf8_next(sorted[i].p + at.depth, &len), first = i;
            while (i < end && sorted[i].n >= at.depth + len &&
                   memcmp(sorted[i].p + at.depth, sorted[first].p + at.depth, len) == 0) {
                i++;
            }
            if (c > from) {
                dfa_add_edge(p, x, from, c - 1, NFA_NONE);
            }
            dfa_add_edge(p, x, c, c, groups.n);
            from = c + 1;
            (void)NFA_ADD(p->b, groups, (name_group){first, i - first, 0, at.depth + len});
        }
        dfa_add_edge(p, x, from, NFA_MAX_CHAR, NFA_NONE);
    }
    NFA_FREE(p->b, groups);
    mem_free(sorted);
    return dfa_trim(p, x);
}

uint32_t dfa_make_length(dfa_pool *p, uint32_t min, uint32_t max) {
    uint32_t x = dfa_new(p), last = max != NFA_NONE ? max : min;
    for (uint32_t i = 0; i <= last && build_step(p->b, 1); i++) {
        dfa_add_state(p, x, i >= min);
        dfa_add_edge(p, x, 0, NFA_MAX_CHAR, i < last ? i + 1 : max == NFA_NONE ? i : NFA_NONE);
    }
    return dfa_trim(p, x);
}

/* Adds edges for characters lo to hi of a state, to twice the targets in x. */
static void add_doubled(dfa_pool *p, uint32_t out, uint32_t x, uint32_t state, uint32_t lo, uint32_t hi) {
    for (uint32_t c = lo, until; c <= hi && build_step(p->b, 1); c = until + 1) {
        uint32_t to = dfa_step(&p->all.p[x], state, c, &until);
        until = until < hi ? until : hi;
        dfa_add_edge(p, out, c, until, to != NFA_NONE ? to * 2 : NFA_NONE);
    }
}

uint32_t dfa_make_quoted(dfa_pool *p, uint32_t x, char quote) {
    assert(x < p->all.n);
    static const char escaped[] = "\"'\\nrt", meant[] = "\"'\\\n\r\t";
    uint32_t out = dfa_new(p), until, q = (uint32_t)quote;
    for (uint32_t i = 0; i < p->all.p[x].states.n && build_step(p->b, 1); i++) {
        dfa_add_state(p, out, p->all.p[x].states.p[i].accepts); /* number 2 i */
        dfa_add_edge(p, out, 0, 0x1F, NFA_NONE);
        add_doubled(p, out, x, i, 0x20, q - 1);
        dfa_add_edge(p, out, q, q, NFA_NONE);
        add_doubled(p, out, x, i, q + 1, '\\' - 1);
        dfa_add_edge(p, out, '\\', '\\', i * 2 + 1);
        add_doubled(p, out, x, i, '\\' + 1, NFA_MAX_CHAR);
        dfa_add_state(p, out, false); /* number 2 i + 1: after a backslash */
        if (p->b->failed == QUIRE_OK) {
            p->all.p[out].states.p[p->all.p[out].states.n - 1].silent = true;
        }
        uint32_t from = 0;
        for (int k = 0; escaped[k] != 0; k++) {
            uint32_t c = (uint32_t)escaped[k], to = dfa_step(&p->all.p[x], i, (uint32_t)meant[k], &until);
            dfa_add_edge(p, out, from, c - 1, NFA_NONE);
            dfa_add_edge(p, out, c, c, to != NFA_NONE ? to * 2 : NFA_NONE);
            from = c + 1;
        }
        dfa_add_edge(p, out, from, NFA_MAX_CHAR, NFA_NONE);
    }
    return dfa_trim(p, out);
}

static bool is_open(const nfa_dstate *d, bool all) {
    return all ? d->free : d->roomy;
}

/* Whether every character that JSON does not escape leads to a roomy state; all: whether
 * every character leads to a free one. */
static bool stays_open(const nfa *a, const nfa_dstate *d, bool all) {
    uint32_t from = all ? 0 : 0x20;
    for (uint32_t k = 0; k < d->n; k++) {
        const nfa_dedge *e = &a->dedges.p[d->first + k];
        bool counts = all || (e->hi >= 0x20 && !(e->lo == e->hi && (e->lo == '"' || e->lo == '\\')));
        if (counts && (e->to == 0 || !is_open(&a->dstates.p[e->to], all))) {
            return false;
        }
        from = e->lo <= from ? (uint32_t)e->hi + 1 : from;
    }
    return from > NFA_MAX_CHAR || (d->other != NFA_NONE && is_open(&a->dstates.p[d->other], all));
}

/* Clears roomy (all: free) in the states from which a dead end can be reached. */
static void dfa_find_open(dfa_pool *p, uint32_t base, uint32_t n, bool all) {
    nfa *a = &p->b->a;
    for (bool changed = true; changed && p->b->failed == QUIRE_OK;) {
        changed = false;
        for (uint32_t i = n; i-- > 0 && build_step(p->b, 1);) {
            nfa_dstate *d = &a->dstates.p[base + i];
            if (is_open(d, all) && !stays_open(a, d, all)) {
                d->free = d->free && !all;
                d->roomy = d->roomy && all;
                changed = true;
            }
        }
    }
}

uint32_t dfa_place(dfa_pool *p, uint32_t x) {
    assert(x < p->all.n);
    nfa *a = &p->b->a;
    dfa *d = &p->all.p[x];
    if (p->b->failed != QUIRE_OK || d->placed != 0) {
        return p->b->failed != QUIRE_OK ? 0 : d->placed - 1;
    }
    dfa_merge(p, x);
    if (a->dstates.n == 0) {
        (void)NFA_ADD(p->b, a->dstates, (nfa_dstate){.other = NFA_NONE});
    }
    uint32_t base = a->dstates.n, *first = NFA_PUSH(p->b, a->dfas);
    if (first == NULL) {
        return 0;
    }
    if (base + d->states.n > NFA_MAX_DSTATES) {
        (void)build_fail(p->b, QUIRE_TOO_LARGE, -1, "patterns and lists of names take over %u states",
                         NFA_MAX_DSTATES);
        return 0;
    }
    *first = base;
    for (uint32_t i = 0; i < d->states.n; i++) {
        nfa_dstate s = d->states.p[i], *to = NFA_PUSH(p->b, a->dstates);
        uint32_t first_edge = s.first;
        if (to == NULL) {
            return 0;
        }
        s.first = a->dedges.n;
        s.other = s.other != NFA_NONE ? s.other + base : NFA_NONE;
        s.roomy = s.free = true;
        *to = s;
        for (uint32_t k = 0; k < s.n; k++) {
            dfa_edge e = d->edges.p[first_edge + k];
            if (!NFA_ADD(p->b, a->dedges, nfa_dedge_of(e.lo, e.hi, e.to != NFA_NONE ? e.to + base : 0))) {
                return 0;
            }
        }
    }
    dfa_find_open(p, base, d->states.n, false);
    dfa_find_open(p, base, d->states.n, true);
    d->placed = a->dfas.n;
    return a->dfas.n - 1;
}
