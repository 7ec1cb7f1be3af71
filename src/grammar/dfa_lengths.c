/* The numbers of characters with which a dfa's texts can be completed from each of its
 * states.
 *
 * Set 0 has the accepting states, set i + 1 those that lead to one of set i. Each set
 * follows from the one before, so where one comes again all that follow do. */
#include "grammar/dfa.h"

enum { MOST_SETS = 4096, MOST_WORDS = 1 << 17 };

static bool dfa_lengths_has(const uint64_t *set, uint32_t state) {
    return (set[state / 64] >> (state % 64) & 1) != 0;
}

/* Whether an edge of s leads to a state of `behind`, or to a silent one of `now`, whose
 * character does not count. */
static bool leads(const dfa *d, const nfa_dstate *s, const uint64_t *behind, const uint64_t *now) {
    for (uint32_t k = 0; k <= s->n; k++) {
        uint32_t to = k < s->n ? d->edges.p[s->first + k].to : s->other;
        if (to != NFA_NONE && dfa_lengths_has(d->states.p[to].silent ? now : behind, to)) {
            return true;
        }
    }
    return false;
}

/* The set before `behind`: silent states first, since others look at them. */
static void step_back(build *b, const dfa *d, const uint64_t *behind, uint64_t *now) {
    for (int silent = 1; silent >= 0; silent--) {
        for (uint32_t i = 0; i < d->states.n && build_step(b, 1); i++) {
            const nfa_dstate *s = &d->states.p[i];
            if (s->silent == (silent != 0) && leads(d, s, behind, now)) {
                now[i / 64] |= (uint64_t)1 << (i % 64);
            }
        }
    }
}

static void first_set(const dfa *d, uint64_t *set) {
    for (uint32_t i = 0; i < d->states.n; i++) {
        set[i / 64] |= (uint64_t)d->states.p[i].accepts << (i % 64);
    }
}

static bool dfa_lengths_is_full(const uint64_t *set, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!dfa_lengths_has(set, i)) {
            return false;
        }
    }
    return true;
}

/* From when on each state was in some set; and whether the sets that come again are all
 * full. */
static void find_bounds(const dfa *d, dfa_lengths *l, uint64_t *seen) {
    bool full = true;
    l->far = l->rich = NFA_NONE;
    for (uint32_t i = 0; i < l->n_sets; i++) {
        for (uint32_t w = 0; w < l->words; w++) {
            seen[w] |= l->sets[(size_t)i * l->words + w];
        }
        l->far = l->far == NFA_NONE && dfa_lengths_is_full(seen, d->states.n) ? i : l->far;
        full = full && (i < l->loop || dfa_lengths_is_full(l->sets + (size_t)i * l->words, d->states.n));
    }
    l->rich = full ? l->loop : NFA_NONE;
}

/* Finds the sets; where none comes again out->sets stays NULL. */
static void find_lengths(dfa_pool *p, const dfa *d, dfa_lengths *out) {
    uint32_t words = (d->states.n + 63) / 64,
             most = MOST_WORDS / words < MOST_SETS ? MOST_WORDS / words : MOST_SETS;
    uint64_t *sets = mem_new(((size_t)most + 1) * words, sizeof *sets);
    if (sets == NULL) {
        (void)build_fail(p->b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
        return;
    }
    *out = (dfa_lengths){.sets = sets, .words = words, .n_sets = 1, .loop = NFA_NONE};
    first_set(d, sets);
    while (out->n_sets <= most && out->loop == NFA_NONE && p->b->failed == QUIRE_OK) {
        uint64_t *now = sets + (size_t)out->n_sets * words;
        step_back(p->b, d, now - words, now);
        for (uint32_t i = out->n_sets; i-- > 0 && out->loop == NFA_NONE && build_step(p->b, 1);) {
            out->loop = memcmp(sets + (size_t)i * words, now, words * sizeof *now) == 0 ? i : NFA_NONE;
        }
        out->n_sets += out->loop == NFA_NONE;
    }
    uint64_t *seen = out->loop != NFA_NONE && p->b->failed == QUIRE_OK ? mem_new(words, sizeof *seen) : NULL;
    if (seen == NULL) {
        mem_free(sets);
        *out = (dfa_lengths){0};
        return;
    }
    find_bounds(d, out, seen);
    mem_free(seen);
}

const dfa_lengths *dfa_lengths_of(dfa_pool *p, uint32_t x) {
    dfa_merge(p, x);
    if (p->b->failed == QUIRE_OK && !p->all.p[x].measured) {
        dfa_lengths found = {0};
        find_lengths(p, &p->all.p[x], &found);
        p->all.p[x].lengths = found;
        p->all.p[x].measured = true;
    }
    return p->b->failed == QUIRE_OK && p->all.p[x].lengths.sets != NULL ? &p->all.p[x].lengths : NULL;
}

bool dfa_lengths_meet(const dfa_lengths *l, uint32_t min, uint32_t max, bool *all) {
    bool some = false;
    *all = true;
    for (uint32_t i = 0; i < l->n_sets; i++) {
        bool may = (l->sets[(size_t)i * l->words] & 1) != 0, recurs = i >= l->loop;
        uint32_t period = l->n_sets - l->loop;
        uint64_t from = i,
                 /* the first of at least min */
            first = min > i && recurs ? i + (uint64_t)(min - i + period - 1) / period * period : i;
        some = some || (may && first >= min && first <= max);
        *all = *all && (!may || (from >= min && from <= max && (!recurs || max == NFA_NONE)));
    }
    return some;
}
