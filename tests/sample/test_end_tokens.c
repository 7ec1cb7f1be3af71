/* Which tokens end a sequence, and which min_tokens forbids for a while. */

#include "sample/constraint.h"
#include "test.h"

static const model_desc desc = {.n_eos = 2, .eos = {7, 9}};

TEST(eos_and_stop_tokens_end_a_sequence) {
    sampling_params p = {.n_stop_tokens = 2, .stop_tokens = {9, 4}};
    assert_int_equal(end_token_kind(&p, &desc, 7), END_EOS);
    assert_int_equal(end_token_kind(&p, &desc, 9), END_EOS); /* both */
    assert_int_equal(end_token_kind(&p, &desc, 4), END_STOP_TOKEN);
    assert_int_equal(end_token_kind(&p, &desc, 8), END_NONE);
    int32_t list[4];
    assert_int_equal(end_tokens_list(&p, &desc, NULL), 4);
    assert_int_equal(end_tokens_list(&p, &desc, list), 4);
    assert_memory_equal(list, ((int32_t[]){7, 9, 9, 4}), sizeof list);
}

TEST(ignored_eos_goes_on_and_is_delayed_all_the_same) {
    sampling_params p = {.ignore_eos = true, .n_stop_tokens = 1, .stop_tokens = {4}};
    assert_int_equal(end_token_kind(&p, &desc, 7), END_NONE);
    assert_int_equal(end_token_kind(&p, &desc, 4), END_STOP_TOKEN);
    int32_t list[1];
    assert_int_equal(end_tokens_list(&p, &desc, NULL), 1);
    assert_int_equal(end_tokens_list(&p, &desc, list), 1);
    assert_int_equal(list[0], 4);
    assert_false(end_token_is_delayed(&p, &desc, 7));
    p.min_tokens = 3;
    assert_true(end_token_is_delayed(&p, &desc, 7));
    assert_true(end_token_is_delayed(&p, &desc, 4));
    assert_false(end_token_is_delayed(&p, &desc, 5));
}

TEST_MAIN(NULL, NULL)
