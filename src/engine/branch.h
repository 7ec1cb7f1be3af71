/* A branch is a sequence that continues from the tokens of another sequence, its fork
 * parent.
 *
 * A fork runs beside its fork parent. A branch that replaces it (rollback, steer) begins
 * as the fork parent ends. Both are one operation. The submitting thread makes the branch
 * as a new sequence. The engine then shares the fork parent's pages with it up to the
 * fork position; a shared page is copied before the branch writes to it (kv/table.h). So
 * readers never see a token change: the fork parent's tokens end, and the branch's begin.
 *
 * A branch holds a reference to its fork parent, so the fork parent may end or be
 * cancelled before the branch reaches the engine thread. Then the branch is a request
 * like any other and reuses what the fork parent left in the prefix cache. Either way it
 * computes the same bits (docs/design.md, Determinism).
 *
 * The engine thread makes all calls. */
#ifndef ENGINE_BRANCH_H
#define ENGINE_BRANCH_H

#include "engine/state.h"

/* Adds s, which has a fork parent, and its children. True: the fork parent runs and there
 * is a free place, so s shares its pages and, unless these cover all that it needs, runs.
 * False: s must wait like any other sequence. */
bool branch_enter(engine *e, sequence *s);
/* Saves the mirostat state with which s's token at `position` is sampled, for branches
 * that begin there. */
static inline void branch_note_mirostat(sequence *s, int32_t position) {
    if (s->mus) {
        s->mus[position - s->task.n_prompt] = s->mirostat_mu;
    }
}

#endif
