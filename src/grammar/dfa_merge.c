/* Makes a dfa smaller before it is placed: states that do the same become one, and those
 * that nothing reaches are dropped.
 *
 * One pass from the last state to the first, so that a state is compared when its targets
 * after it have been. That finds all equal ends of lists of names, and most of what
 * patterns leave; targets before a state count as themselves, so some equal states on
 * cycles stay. */
#include "grammar/dfa.h"

#include <assert.h>

typedef struct merge {
    dfa *d;
    uint32_t *map;    /* map[state]: the one that represents it */
    hash_index index; /* of those */
} merge;

static uint32_t dfa_merge_mix(uint32_t h, uint32_t v) {
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ (h >> 15);
}

/* A target as its state sees it: later states are replaced by those that they merged
 * with. */
static uint32_t seen(const merge *m, uint32_t state, uint32_t to) {
    return to == NFA_NONE ? NFA_NONE : to == state ? NFA_NONE - 1 : to > state ? m->map[to] : to;
}

static uint32_t hash_state(const merge *m, uint32_t i) {
    const nfa_dstate *s = &m->d->states.p[i];
    uint32_t h = dfa_merge_mix(dfa_merge_mix(s->n, (uint32_t)s->accepts | (uint32_t)s->silent << 1),
                               seen(m, i, s->other));
    for (uint32_t k = 0; k < s->n; k++) {
        const dfa_edge *e = &m->d->edges.p[s->first + k];
        h = dfa_merge_mix(dfa_merge_mix(dfa_merge_mix(h, e->lo), e->hi), seen(m, i, e->to));
    }
    return h;
}

static bool dfa_merge_is_same(const merge *m, uint32_t i, uint32_t j) {
    const nfa_dstate *a = &m->d->states.p[i], *b = &m->d->states.p[j];
    bool same = a->n == b->n && a->accepts == b->accepts && a->silent == b->silent &&
                seen(m, i, a->other) == seen(m, j, b->other);
    for (uint32_t k = 0; k < a->n && same; k++) {
        const dfa_edge *e = &m->d->edges.p[a->first + k], *f = &m->d->edges.p[b->first + k];
        same = e->lo == f->lo && e->hi == f->hi && seen(m, i, e->to) == seen(m, j, f->to);
    }
    return same;
}

static void find_same(build *b, merge *m) {
    for (uint32_t i = m->d->states.n; i-- > 0 && build_step(b, 1 + m->d->states.p[i].n);) {
        uint32_t hash = hash_state(m, i);
        m->map[i] = i;
        HASH_INDEX_EACH(&m->index, hash, other) {
            if (dfa_merge_is_same(m, i, other)) {
                m->map[i] = other;
                break;
            }
        }
        if (m->map[i] == i && !build_index(b, &m->index, hash, i)) {
            return;
        }
    }
}

/* Appends the state that represents `to` to the new order, if it is not there;
 * number[state]: its place there, plus 1. */
static void dfa_merge_reach(const merge *m, uint32_t to, uint32_t *number, uint32_t *order, uint32_t *n) {
    if (to != NFA_NONE && number[m->map[to]] == 0) {
        order[*n] = m->map[to];
        number[m->map[to]] = ++*n;
    }
}

static uint32_t moved(const merge *m, const uint32_t *number, uint32_t to) {
    return to != NFA_NONE ? number[m->map[to]] - 1 : NFA_NONE;
}

/* Writes the states that are reached, in the order in which they are, to out. */
static void rebuild(dfa_pool *p, const merge *m, uint32_t *number, uint32_t *order, dfa *out) {
    uint32_t n = 0;
    dfa_merge_reach(m, 0, number, order, &n);
    for (uint32_t i = 0; i < n && p->b->failed == QUIRE_OK; i++) {
        const nfa_dstate *s = &m->d->states.p[order[i]];
        for (uint32_t k = 0; k < s->n; k++) {
            dfa_merge_reach(m, m->d->edges.p[s->first + k].to, number, order, &n);
        }
        dfa_merge_reach(m, s->other, number, order, &n);
        nfa_dstate *state = NFA_PUSH(p->b, out->states);
        if (state == NULL) {
            return;
        }
        *state = (nfa_dstate){.first = out->edges.n,
                              .other = moved(m, number, s->other),
                              .accepts = s->accepts,
                              .silent = s->silent};
        for (uint32_t k = 0; k < s->n; k++) {
            dfa_edge e = m->d->edges.p[s->first + k], *edge;
            e.to = moved(m, number, e.to);
            dfa_edge *last = state->n > 0 ? &out->edges.p[out->edges.n - 1] : NULL;
            if (last != NULL && last->to == e.to && last->hi + 1 == e.lo) {
                last->hi = e.hi;
                continue;
            }
            if ((edge = NFA_PUSH(p->b, out->edges)) == NULL) {
                return;
            }
            *edge = e;
            state->n++;
        }
    }
}

void dfa_merge(dfa_pool *p, uint32_t x) {
    assert(p != NULL);
    if (p->b->failed != QUIRE_OK || p->all.p[x].merged) {
        return;
    }
    dfa *d = &p->all.p[x], made = {.placed = d->placed, .merged = true};
    uint32_t n = d->states.n;
    merge m = {.d = d, .map = mem_new(3 * (size_t)n, sizeof *m.map)};
    if (m.map == NULL) {
        (void)build_fail(p->b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
    } else {
        find_same(p->b, &m);
        rebuild(p, &m, m.map + n, m.map + 2 * (size_t)n, &made);
    }
    mem_free(m.map);
    hash_index_deinit(&m.index);
    dfa old = *d;
    if (p->b->failed == QUIRE_OK) {
        *d = made;
        made = old;
    }
    NFA_FREE(p->b, made.states);
    NFA_FREE(p->b, made.edges);
}
