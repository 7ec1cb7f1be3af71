/* Verification: the walk down a draft, its rows, rejection sampling; and tokens that need
 * none since a rule forces them. */
#include <math.h>
#include <string.h>

#include "spec/jump_forward.h"
#include "spec/verify.h"
#include "test.h"

/*  the last known token -- 5 (0) -- 6 (1) -- 7 (2)
 *                        |        \- 8 (3)
 *                        \- 9 (4)                 */
static void plant(draft_seq *d) {
    static const int32_t tokens[] = {5, 6, 7, 8, 9}, parents[] = {DRAFT_ROOT, 0, 1, 0, DRAFT_ROOT};
    *d = (draft_seq){0};
    for (int32_t i = 0; i < 5; i++) {
        assert_int_equal(draft_tree_add(&d->tree, parents[i], tokens[i]), i);
    }
}

TEST(a_walk_goes_down_the_branch_of_the_sampled_tokens) {
    draft_seq d;
    plant(&d);
    verify_walk w = verify_begin(&d, 5, false);
    assert_int_equal(verify_row(&w, 40), 40);
    assert_true(verify_advance(&w, 5) && !w.outcome.to_end);
    assert_int_equal(verify_row(&w, 40), 41);
    assert_false(verify_advance(&w, 9)); /* on another branch */
    assert_true(verify_advance(&w, 8) && w.outcome.to_end);
    assert_int_equal(verify_row(&w, 40), 44);
    assert_false(verify_advance(&w, 8));
    assert_int_equal(w.outcome.n_accepted, 2);
    assert_int_equal(w.outcome.n_first, 1);
    w = verify_begin(&d, 3, false); /* 8 and 9 were not computed */
    assert_false(verify_advance(&w, 9));
    assert_true(verify_advance(&w, 5));
    assert_false(verify_advance(&w, 8));
    assert_true(verify_advance(&w, 6) && verify_advance(&w, 7) && w.outcome.to_end);
    assert_int_equal(w.outcome.n_first, 3);
}

TEST(forced_tokens_share_one_row) {
    static const int32_t one[] = {3}, two[] = {3, 4};
    const model_desc desc = {0};
    sampling_params p;
    draft_seq d = {0};
    const sample_context c = {.params = &p};
    sampling_params_init(&p);
    assert_false(jump_forward_propose(&c, &desc, 4, &d.tree));
    p.lists = sampling_lists_new();
    assert_true(p.lists && sampling_lists_set_allowed(p.lists, two, 2) == QUIRE_OK);
    assert_false(jump_forward_propose(&c, &desc, 4, &d.tree));
    assert_int_equal(sampling_lists_set_allowed(p.lists, one, 1), QUIRE_OK);
    p.no_repeat_ngram_size = 2; /* the one token may be an error */
    assert_false(jump_forward_propose(&c, &desc, 4, &d.tree));
    p.no_repeat_ngram_size = 0;
    p.mirostat = MIROSTAT_1;
    assert_false(jump_forward_propose(&c, &desc, 4, &d.tree));
    assert_int_equal(d.tree.n, 0);
    p.mirostat = MIROSTAT_OFF;
    assert_true(jump_forward_propose(&c, &desc, 4, &d.tree));
    assert_int_equal(d.n_jump_forward = d.tree.n, 4);
    verify_walk w = verify_begin(&d, 4, false);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(verify_row(&w, 40), -1);
        assert_true(verify_advance(&w, 3));
    }
    assert_int_equal(verify_row(&w, 40), 40);
    assert_true(w.outcome.is_jump_forward);
    sampling_lists_drop(p.lists);
}

enum { N_VOCAB = 10, N_DRAWS = 40000 };

/* Whatever was guessed, and however sure the drafter was, a token is as likely as without
 * drafts. */
TEST(judged_tokens_are_distributed_as_sampled_ones) {
    static const float logits[N_VOCAB] = {0.0f, 1.0f, -1.0f, 0.5f, -3.0f, 1.5f, 0.2f, -0.5f, 0.7f, 1.1f};
    sampling_params p;
    sample_pool pool;
    draft_seq d;
    float row[N_VOCAB];
    float *probs;
    double wanted[N_VOCAB];
    int32_t counts[N_VOCAB] = {0}, n_accepted = 0;
    sampling_params_init(&p);
    assert_int_equal(sample_pool_open(N_VOCAB, 16, 1, NULL, NULL, &pool), QUIRE_OK);
    plant(&d);
    sample_context c = {.params = &p};
    memcpy(row, logits, sizeof row);
    assert_int_equal(sampler_distribution(pool.samplers[0], row, &c, &probs), QUIRE_OK);
    for (int32_t i = 0; i < N_VOCAB; i++) {
        wanted[i] = (double)probs[i];
    }
    for (int32_t k = 0; k < N_DRAWS; k++) {
        sample_result result = NOT_SAMPLED;
        sample_row judged = {.logits = row, .context = c, .result = &result};
        p.seed = (uint64_t)k;
        verify_walk w = verify_begin(&d, 5, true);
        assert_true(verify_is_judged(&w));
        memcpy(row, logits, sizeof row);
        verify_judge(&w, &pool, &judged);
        assert_int_equal(result.error, QUIRE_OK);
        counts[result.token]++;
        n_accepted += verify_advance(&w, result.token);
    }
    for (int32_t i = 0; i < N_VOCAB; i++) {
        double mean = N_DRAWS * wanted[i], deviation = sqrt(mean * (1 - wanted[i]));
        assert_true(fabs(counts[i] - mean) < 4 * deviation);
    }
    assert_int_equal(n_accepted, counts[5] + counts[9]);
    verify_walk w = verify_begin(&d, 5, false); /* the exact rule judges nothing */
    assert_false(verify_is_judged(&w));
    w = verify_begin(&d, 0, true);
    assert_false(verify_is_judged(&w));
    sample_pool_close(&pool);
}

TEST_MAIN(NULL, NULL)
