/* Branches: sequences that go on from tokens of another, their fork parent. A fork runs beside its fork parent; one that replaces it
 * (rollback, steer) begins as the fork parent ends. Both are one operation: the branch is a sequence of its own, made whole by the
 * submitting thread, that takes part in the fork parent's pages up to where they leave each other; what it writes into a page that is not
 * its own is copied first (kv/table.h). So readers never see tokens change: those of the fork parent end, those of the branch begin.
 *
 * A fork parent is held, not looked up: it may end, by itself or cancelled, before its branch comes to the engine thread. The branch is
 * then a request like any other, which finds what the fork parent left in the prefix cache. Either way it computes the same bits
 * (docs/design.md, Determinism).
 *
 * All by the engine thread. */
#ifndef ENGINE_BRANCH_H
#define ENGINE_BRANCH_H

#include "engine/state.h"

/* Takes in s, which has a fork parent, and those that follow it: it runs from now on where the fork parent runs and there is a place, else
 * it waits. */
void branch_enter(engine *e, sequence *s);
/* Notes the state from which s's next token is chosen, for branches from there. */
static inline void branch_note_mirostat(sequence *s) {
    if (s->mus) {
        s->mus[s->n_known - s->n_prompt] = s->mirostat_mu;
    }
}

#endif
