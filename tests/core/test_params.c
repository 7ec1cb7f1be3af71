/* Defaults, bounds and lists of sampling parameters. */
#include "test.h"

#include <string.h>

#include "core/params.h"

TEST(sampling_starts_with_no_cut_and_no_limit) {
    sampling_params p;
    memset(&p, 0xff, sizeof p);
    sampling_params_init(&p);
    assert_true(p.temperature == 1.0f && p.top_p == 1.0f && p.min_p == 0.0f);
    assert_int_equal(p.top_k, 0);
    assert_int_equal(p.max_tokens, -1);
    assert_int_equal(p.min_tokens, 0);
    assert_false(p.ignore_eos);
    assert_false(p.has_seed);
    assert_int_equal(p.n_stop_tokens, 0);
}

/* Lists of token sequences. */

TEST(many_sequences_are_copied_few_times) {
    enum { N = 20000 };
    sampling_lists *lists = sampling_lists_new();
    token_seqs *s = &lists->bad_words;
    int n_moved = 0;
    for (int32_t i = 0; i < N; i++) {
        const int32_t *starts = s->starts, *tokens = s->tokens;
        const int32_t added[3] = {i, i + 1, i + 2};
        assert_int_equal(token_seqs_add(s, added, 1 + i % 3), QUIRE_OK);
        n_moved += (s->starts != starts) + (s->tokens != tokens);
    }
    assert_true(n_moved < 200);
    assert_int_equal(s->n, N);
    assert_int_equal(s->starts[0], 0);
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(s->starts[i + 1] - s->starts[i], 1 + i % 3);
        assert_int_equal(s->tokens[s->starts[i]], i);
        assert_int_equal(s->tokens[s->starts[i + 1] - 1], i + i % 3);
    }
    sampling_lists_drop(lists);
}

TEST_MAIN(NULL, NULL)
