/* Drafts are guesses of the next tokens, so that one step can verify several tokens (verify.h) where it would have computed one.
 *
 * Once a step the engine calls the drafter for the sequences that decode. It fills a tree of guesses for each (draft_tree.h), which is a
 * line unless the options allow branches. Known tokens of a sequence never change, so what a drafter keeps about them stays true; a stream
 * that is rolled back or steered continues as another sequence. Where a drafter wrote behind the known tokens, tokens[0..draft.n_agreed)
 * are still what it saw. Drafts change how fast tokens come, never which ones (docs/design.md, Drafts), so a drafter may guess freely. It
 * must guess the same in every run of the same requests, so that figures repeat.
 *
 * The depth adapts to each sequence. It begins at the most that the options allow. It doubles, up to that, when a draft was accepted to its
 * end; else it becomes one more than was accepted. After DRAFT_PATIENCE drafts in a row without an accepted token the sequence pauses for
 * 1, 2, 4 .. 16 steps, longer each time, until one is accepted again.
 *
 * Jump-forward tokens (jump_forward.h) are drafts too, and need no drafter. Owner: the engine thread. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/draft_types.h"

#define DRAFT_PATIENCE 3

struct engine;
struct sequence;
typedef struct draft_ops {
    /* For each of seqs[0..n): puts guesses into draft.tree, which is empty, within draft.wanted. The array behind the known tokens may be
     * used as scratch. */
    void (*propose)(drafter *d, struct engine *e, struct sequence *const *seqs, int32_t n);
    /* Forgets what is kept about s, which releases its pages (over: it ends, else it is preempted). NULL: nothing is kept. */
    void (*forget)(drafter *d, struct sequence *s, bool over);
    void (*close)(drafter *d);
} draft_ops;

/* The first member of every drafter's own struct. */
struct drafter {
    const draft_ops *ops;
};

/* Rows a step whose logits are wanted, for the backend's step_open: those of max_seqs sequences with all their drafts, at most max_rows. */
int32_t draft_max_out(const draft_options *o, int32_t max_seqs, int32_t max_rows);

/* Opens the drafter that e->options.draft names as e->drafter. Needs e->layout and e->sched.limits. QUIRE_UNSUPPORTED where a layer's state
 * cannot be rolled back. */
quire_err draft_open(struct engine *e, quire_error *err);
void draft_close(struct engine *e);

/* Sets draft.tree and draft.n_jump_forward of every running sequence. Once a step, before planning. O(running), and the drafter's own
 * work. */
void draft_propose(struct engine *e);
/* The result of verifying a sequence's draft or its jump-forward tokens. */
typedef struct draft_outcome {
    int32_t n, n_accepted; /* nodes that were verified; how many of them became known tokens */
    int32_t n_first;       /* how many of the accepted are on the branch of first children */
    bool is_jump_forward, to_end;   /* they were jump-forward tokens; a whole branch was accepted, up to its last node */
} draft_outcome;

/* Whether s's drafts are accepted by rejection sampling. */
bool draft_by_rejection(const struct engine *e, const struct sequence *s);
/* Adapts the depth and the counters to the result. s may have ended with these tokens. */
void draft_report(struct engine *e, struct sequence *s, const draft_outcome *o);
/* Calls the drafter's forget for s, which releases its pages. */
void draft_forget(struct engine *e, struct sequence *s, bool over);

#endif
