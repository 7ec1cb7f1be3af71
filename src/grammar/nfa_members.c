/* How many members an object needs until its required names and its rules are
 * satisfied. */
#include "grammar/nfa.h"

bool nfa_text_can_end(const nfa *a, const nfa_text *t, uint32_t state, uint32_t count) {
    if (count > t->max) {
        return false;
    }
    if (count >= t->min && t->far != NFA_NONE && (t->max == NFA_NONE || t->max - count >= t->far)) {
        return true;
    }
    uint32_t most = t->max == NFA_NONE ? NFA_NONE : t->max - count, period = t->n_sets - t->loop,
             words = nfa_text_words(t);
    /* from there on sets come again */
    uint32_t i = count < t->min ? t->min - count : 0, last = (i > t->loop ? i : t->loop) + period;
    for (; i < last && i <= most; i++) {
        uint32_t set = i < t->n_sets ? i : t->loop + (i - t->loop) % period;
        if ((a->text_sets.p[t->sets + set * words + state / 64] >> (state % 64) & 1) != 0) {
            return true;
        }
    }
    return false;
}

#define N_SETS (1u << NFA_MAX_RULES)

/* to[r | rules of p] is at most one more than from[r]. */
static void nfa_members_take(const nfa_part *p, uint32_t all, const uint32_t *from, uint32_t *to) {
    for (uint32_t r = 0; r <= all; r++) {
        uint32_t *one = &to[r | p->rules];
        if (from[r] != NFA_NONE && from[r] + 1 < *one) {
            *one = from[r] + 1;
        }
    }
}

uint32_t nfa_members_needed(const nfa *a, const nfa_object *o, nfa_room room, uint32_t satisfied,
                            uint32_t next, const uint64_t *seen) {
    uint32_t least[N_SETS], with[N_SETS], end; /* by satisfied rules */
    for (uint32_t r = 0; r < N_SETS; r++) {
        least[r] = r == satisfied ? 0 : NFA_NONE;
    }
    for (uint32_t i = 0; i < o->n; i = end) {
        const nfa_part *p = &a->parts.p[o->first + i];
        bool may = p->name >= next && (seen == NULL || (seen[p->name / 64] >> (p->name % 64) & 1) == 0);
        memcpy(with, least, sizeof with);
        if (may && p->required) {
            memset(with, 0xFF, sizeof with);
        }
        for (end = i; end < o->n && p[end - i].name == p->name; end++) {
            if (may && nfa_fits(room, p[end - i].entry)) {
                nfa_members_take(&p[end - i], o->rules, least, with);
            }
        }
        memcpy(least, with, sizeof least);
    }
    /* each open member that is needed satisfies one rule more */
    for (uint32_t round = 0; round < NFA_MAX_RULES; round++) {
        for (uint32_t i = o->n; i < o->n + o->n_open; i++) {
            if (nfa_fits(room, a->parts.p[o->first + i].entry)) {
                nfa_members_take(&a->parts.p[o->first + i], o->rules, least, least);
            }
        }
    }
    return least[o->rules];
}
