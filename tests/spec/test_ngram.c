/* Prompt lookup: what is looked up, and the trees that come of it. */

#include "spec/draft.h"
#include "test.h"

/* draft_ngram's tree as a line of tokens; returns its length. */
static int32_t look_up(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max,
                       int32_t wanted, draft_tree *out) {
    *out = (draft_tree){0};
    draft_ngram(tokens, n, lookup_min, lookup_max, &(draft_bounds){wanted, wanted, 1}, out);
    for (int32_t i = 0; i < out->n; i++) {
        assert_int_equal(out->parents[i], i - 1);
    }
    return out->n;
}

TEST(the_longest_suffix_is_looked_up_and_repetitions_are_gone_round) {
    static const int32_t t[] = {1, 2, 3, 9, 2, 3, 8, 1, 2, 3}, again[] = {5, 7, 6, 7, 6},
                         round[] = {7, 6, 7, 6, 7};
    draft_tree out;
    assert_int_equal(look_up(t, 10, 1, 4, 3, &out), 3);
    assert_int_equal(out.tokens[0], 9); /* 1 2 3 stands at 0, the shorter 2 3 at 4 */
    assert_int_equal(out.tokens[1], 2);
    assert_int_equal(look_up(t, 10, 1, 2, 3, &out), 3);
    assert_int_equal(out.tokens[0], 8); /* no longer than 2: the latest */
    assert_int_equal(look_up(t, 10, 4, 4, 3, &out), 0);
    assert_int_equal(look_up(again, 5, 1, 4, 5, &out), 5);
    assert_memory_equal(out.tokens, round, sizeof round);
    assert_int_equal(look_up(t, 1, 1, 4, 3, &out), 0);
    assert_int_equal(look_up(t, 0, 1, 4, 3, &out), 0);
}

TEST(places_that_go_on_otherwise_are_branches) {
    /* 1 2 3 is followed by 9, 2 3 by 8 twice, 3 by 6 */
    static const int32_t t[] = {1, 2, 3, 9, 2, 3, 8, 4, 2, 3, 8, 5, 3, 6, 1, 2, 3};
    static const int32_t tokens[] = {9, 2, 8, 6}, wider[] = {9, 2, 3, 8, 5, 6, 1};
    static const int8_t parents[] = {-1, 0, -1, -1}, wider_parents[] = {-1, 0, 1, -1, 3, -1, 5};
    draft_tree out = {0};
    draft_ngram(t, 17, 1, 4, &(draft_bounds){4, 4, 3}, &out);
    assert_int_equal(out.n, 4);
    assert_memory_equal(out.tokens, tokens, sizeof tokens);
    assert_memory_equal(out.parents, parents, sizeof parents);
    out = (draft_tree){0};
    draft_ngram(t, 17, 1, 4, &(draft_bounds){7, 3, 8}, &out);
    assert_int_equal(out.n, 7);
    assert_memory_equal(out.tokens, wider, 5 * sizeof *wider);
    assert_int_equal(out.tokens[5], 6);
    assert_memory_equal(out.parents, wider_parents, sizeof wider_parents);
    out = (draft_tree){0};
    draft_ngram(t, 17, 2, 4, &(draft_bounds){6, 6, 8}, &out);
    assert_int_equal(out.n, 6); /* 3 alone does not count */
    assert_int_equal(out.tokens[0], 9);
    assert_int_equal(out.tokens[3], 8);
}

TEST_MAIN(NULL, NULL)
