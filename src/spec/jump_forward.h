/* Jump-forward: if a request's rules leave exactly one possible next token, it is not
 * sampled. Such tokens enter a step as drafts whose rows need no logits (docs/design.md,
 * Drafts), so one step computes several, and the output is unchanged. The rules are a
 * constraint (sample/constraint.h), which reports what it forces, or allowed_token_ids
 * with one id. */
#ifndef SPEC_JUMP_FORWARD_H
#define SPEC_JUMP_FORWARD_H

#include "core/model_desc.h"
#include "sample/sampler.h"
#include "spec/draft.h"
#include "spec/draft_tree.h"

/* Fills an empty tree with a line of at most `most` tokens that must come next after a
 * sequence with this context. False: several tokens are possible, or sampling would have
 * another effect (mirostat's state, an error because nothing is allowed). Changes nothing
 * but the constraint's caches. O(most), plus the constraint's time. */
bool jump_forward_propose(const sample_context *c, const model_desc *d, int32_t most, draft_tree *out);

/* The outlook of a sequence under a constraint: tokens that must, or are likely to,
 * follow its last token. It depends on the constraint's state alone, so the thread that
 * samples that token can compute it at once, and the proposal of drafts takes no time. */

/* Computes s->outlook after its first n_known tokens, which its constraint's state
 * includes: at most `most` tokens that the constraint forces, or else guesses that are
 * worth their cost. One thread per sequence. Time: the constraint's. */
void outlook_find(draft_seq *s, const model_desc *d, int32_t n_known, int32_t most, const guess_worth *worth);

/* Copies the outlook into s's empty tree, computing it first if needed. False: there is
 * no outlook. */
bool outlook_propose(draft_seq *s, const model_desc *d, int32_t most, const guess_worth *worth);

#define OUTLOOK_MOST_ROW 100.0f

/* Computes which guesses are worth their rows in a step in which n_seqs sequences decode.
 * step_us, row_us: measured cost of a step without its rows, and of each row; row_us 0:
 * unknown. A correct guess saves a share of a step's fixed cost, so nothing if step_us is
 * 0. With few sequences rows cost little, since the weights are read anyway; with many
 * they take time from others. doubt: factor by which guesses were right less often than
 * required; 1: often enough. */
static inline guess_worth outlook_worth(int32_t n_seqs, double step_us, double row_us, float doubt) {
    float least = 0.18f + 0.07f * (float)n_seqs, row = 0.0f;
    if (row_us > 0.0) {
        float part = (float)(row_us / (step_us + row_us)) * doubt;
        least = part > least ? part : least;
        row = step_us > 0.0 ? (float)(row_us / step_us) * doubt * (float)n_seqs : OUTLOOK_MOST_ROW;
    }
    return (guess_worth){least < 0.9f ? least : 0.9f, row < OUTLOOK_MOST_ROW ? row : OUTLOOK_MOST_ROW};
}

#endif
