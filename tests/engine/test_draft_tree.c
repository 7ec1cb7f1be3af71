/* Trees of drafts change nothing (draft_case.h). */
#include "draft_case.h"

/* Branches change nothing either, and more than the first one is gone down: several
 * tokens are accepted in steps that a line would not have had them from. */
TEST(trees_change_nothing) {
    draft_options o = ngram;
    o.tree_width = 3;
    o.n_tokens = 9;
    matrix(COMPUTE_INT8, DTYPE_F16, &o, (engine_ablations){0}, "ngram, trees", false);
    o = suffix;
    o.tree_width = DRAFT_MAX_WIDTH;
    o.n_tokens = DRAFT_MAX;
    o.suffix_factor = 16;
    o.suffix_min_prob = 0.01;
    matrix(COMPUTE_F32, DTYPE_F32, &o, (engine_ablations){.fixed_draft_length = true}, "suffix, trees", true);
}

TEST_MAIN(lists_open, lists_close)
