/* Whether a text of limited length can be completed. */
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
