#include <stdlib.h>

#include <math.h>

#include "base/rng.h"
#include "sample/logprobs.h"
#include "test.h"

TEST(ranks_of_equal_logits_are_the_worst_of_them) {
    const float logits[] = {1, 3, 2, 3, 0};
    token_logprob top[5];
    double normalizer = logprobs_normalizer(logits, 5);
    logprobs_top(logits, 5, normalizer, 5, top);
    const int32_t ids[] = {1, 3, 2, 0, 4}, ranks[] = {2, 2, 3, 4, 5};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(top[i].id, ids[i]);
        assert_int_equal(top[i].rank, ranks[i]);
    }
    assert_int_equal(logprobs_of(logits, 5, normalizer, 3).rank, 2);
}

TEST(masked_tokens_come_last_and_have_no_probability) {
    const float logits[] = {-INFINITY, 0, -INFINITY};
    token_logprob top[3];
    double normalizer = logprobs_normalizer(logits, 3);
    logprobs_top(logits, 3, normalizer, 3, top);
    assert_true(top[0].id == 1 && top[0].logprob == 0.0f && top[0].rank == 1);
    assert_true(top[1].id == 0 && top[1].logprob == -INFINITY && top[1].rank == 3);
}

TEST(the_likeliest_are_those_that_sorting_finds) {
    uint64_t random = 7;
    print_message("seed 7\n");
    for (int round = 0; round < 300; round++) {
        float logits[64];
        int32_t n = 1 + (int32_t)(rng_next(&random) % 64), k = 1 + (int32_t)(rng_next(&random) % (uint64_t)n);
        for (int32_t i = 0; i < n; i++) {
            logits[i] = (float)(rng_next(&random) % 9); /* many ties */
        }
        token_logprob top[64];
        double sum = 0.0, normalizer = logprobs_normalizer(logits, n);
        logprobs_top(logits, n, normalizer, k, top);
        for (int32_t i = 0; i < k; i++) {
            int32_t better = 0;
            for (int32_t j = 0; j < n; j++) {
                better += logits[j] > logits[top[i].id] || (logits[j] == logits[top[i].id] && j < top[i].id);
            }
            token_logprob alone = logprobs_of(logits, n, normalizer, top[i].id);
            assert_int_equal(better, i);
            assert_int_equal(alone.rank, top[i].rank);
            assert_true(alone.logprob == top[i].logprob);
        }
        for (int32_t i = 0; i < n; i++) {
            sum += exp((double)logits[i] - normalizer);
        }
        assert_true(fabs(sum - 1.0) < 1e-9);
    }
}

TEST(ids_that_are_named_come_after_the_likeliest) {
    const float logits[] = {1, 3, 2, -INFINITY, 0};
    const int32_t ids[] = {4, 3, 1};
    token_logprob all[6];
    sampling_params p;
    sampling_params_init(&p);
    p.lists = sampling_lists_new();
    assert_int_equal(sampling_lists_set_scored(p.lists, ids, 3), QUIRE_OK);
    double normalizer = logprobs_normalizer(logits, 5);
    logprobs_report(logits, 5, 2, &p, 6, all);
    assert_true(all[0].id == 2 && all[0].rank == 2 && all[1].id == 1 && all[1].rank == 1 && all[2].id == 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(all[3 + i].id, ids[i]);
        assert_true(all[3 + i].rank == 0 &&
                    all[3 + i].logprob == (float)((double)logits[ids[i]] - normalizer));
    }
    logprobs_report(logits, 5, 2, &p, 4, all);
    assert_true(all[0].id == 2 && all[1].id == 4 && all[3].id == 1);
    assert_int_equal(sampling_lists_set_scored(p.lists, NULL, 0), QUIRE_OK);
    logprobs_report(logits, 5, 2, &p, 2, all);
    assert_true(all[1].id == 1);
    sampling_lists_drop(p.lists);
}

TEST_MAIN(NULL, NULL)
