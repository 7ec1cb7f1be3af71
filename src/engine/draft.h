/* Drafts: tokens that are guessed to come next, so that one step can verify several (verify.h) where it would have computed one.
 *
 * A drafter is asked, once a step, for the sequences that decode: it leaves a tree of guesses with each (draft_tree.h), a line unless the
 * options allow branches. Known tokens of a sequence that it is asked for never change, so what a drafter keeps of these stays true; a
 * rolled back or steered stream goes on as another sequence. Where a drafter wrote on, tokens[0..draft.n_agreed) are still what it saw.
 * Drafts change how fast tokens come, never which ones (docs/design.md, Drafts), so a drafter may guess as it likes; it must guess the same
 * in every run of the same requests, for figures to repeat.
 *
 * How deep they are asked to go adapts to each sequence: at first the most that the options allow; twice as deep as before where they were
 * accepted to the end, up to that; one deeper than they were accepted where not. After DRAFT_PATIENCE times in a row in which none was, the
 * sequence pauses for 1, 2, 4 .. 16 steps, longer each time, until one is accepted again.
 *
 * Forced tokens (jump.h) are drafts too, and need no drafter. Owner: the engine thread. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/draft_types.h"

#define DRAFT_PATIENCE 3

struct engine;
struct sequence;
typedef struct draft_ops {
    /* For each of seqs[0..n): guesses into draft.tree, which is empty, no more than draft.wanted. The tokens behind the known ones may be
     * used to write on. */
    void (*propose)(drafter *d, struct engine *e, struct sequence *const *seqs, int32_t n);
    /* s gives its pages back (over: it ends, else it is preempted): forget what is kept of it. NULL: nothing is. */
    void (*forget)(drafter *d, struct sequence *s, bool over);
    void (*close)(drafter *d);
} draft_ops;

/* The head of every drafter's own struct. */
struct drafter {
    const draft_ops *ops;
};

/* Rows a step whose logits are wanted, for the backend's step_open: what max_seqs sequences with all their drafts take, at most max_rows.
 */
int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows);

/* Opens the drafter that e->options.draft names, e->drafter; needs e->layout and e->limits. QUIRE_UNSUPPORTED where a layer's state cannot
 * be rolled back. */
quire_err draft_open(struct engine *e, quire_error *err);
void draft_close(struct engine *e);

/* Once a step, before it is planned: sets draft.tree and draft.n_jump_forward of every running sequence. O(running) and the drafter's own
 * work. */
void draft_propose(struct engine *e);
/* What became of a sequence's drafts, or forced tokens. */
typedef struct draft_outcome {
    int32_t n, n_accepted; /* nodes that were verified; of these, now known tokens */
    int32_t n_first;       /* the first of those, on the branch of first children */
    bool is_jump_forward, to_end;   /* they were no guesses; they are a whole branch: nothing was guessed behind the last */
} draft_outcome;

/* Whether s's drafts are accepted by rejection sampling. */
bool draft_by_rejection(const struct engine *e, const struct sequence *s);
/* s may have ended with them. */
void draft_report(struct engine *e, struct sequence *s, const draft_outcome *o);
/* s gives its pages back. */
void draft_forget(struct engine *e, struct sequence *s, bool over);

#endif
