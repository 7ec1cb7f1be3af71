/* Lists of token sequences. */
#include "core/sampling_lists.h"
#include "test.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_sequences_are_copied_few_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
