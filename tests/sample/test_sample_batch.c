/* A batch gives each row what it gets alone, on any number of threads. */
#include <string.h>

#include "base/rng.h"
#include "sample/sampler.h"
#include "test.h"

enum { N_VOCAB = 2000, N_ROWS = 40, N_TOKENS = 5 };

static float given[N_ROWS][N_VOCAB], logits[N_ROWS][N_VOCAB];
static int n_runs;

static void run_on(void *threads, thread_pool_fn fn, void *context, int32_t n_tasks) {
    n_runs++;
    thread_pool_run(threads, fn, context, n_tasks);
}

TEST(rows_of_a_batch_are_sampled_as_alone) {
    static const int32_t tokens[N_TOKENS] = {1, 2, 3, 4, 5};
    static sampling_params params[N_ROWS];
    static sample_row rows[N_ROWS];
    sample_result results[N_ROWS];
    thread_pool *threads;
    sample_pool pool;
    uint64_t seed = 7;
    assert_int_equal(thread_pool_open(3, &threads), QUIRE_OK);
    assert_int_equal(sample_pool_open(N_VOCAB, 16, thread_pool_size(threads), run_on, threads, &pool),
                     QUIRE_OK);
    for (int32_t i = 0; i < N_ROWS; i++) {
        sampling_params_init(&params[i]);
        params[i].temperature = i % 4 == 0 ? 0.0f : 0.7f;
        params[i].top_p = i % 3 == 0 ? 0.9f : 1.0f;
        params[i].repetition_penalty = i % 5 == 0 ? 1.3f : 1.0f;
        params[i].seed = (uint64_t)(i / 2); /* every two differ in their sample only */
        for (int32_t k = 0; k < N_VOCAB; k++) {
            given[i][k] = (float)(rng_next(&seed) % 1000) * 5e-3f;
        }
        given[i][i] = i == 17 ? 1.0f / 0.0f : given[i][i];
        results[i] = NOT_SAMPLED;
        rows[i] = (sample_row){
            .logits = logits[i],
            .context = {&params[i], tokens, .n_tokens = 1 + i % N_TOKENS, .sample_index = (uint32_t)i},
            .result = &results[i]};
    }
    memcpy(logits, given, sizeof logits);
    sample_batch(&pool, rows, N_ROWS);
    assert_int_equal(n_runs, 1);
    memcpy(logits, given, sizeof logits);
    for (int32_t i = 0; i < N_ROWS; i++) {
        sample_result alone = NOT_SAMPLED;
        sample_row row = rows[i];
        row.result = &alone;
        sample_batch(&pool, &row, 1);
        assert_int_equal(alone.error, i == 17 ? QUIRE_NUMERIC : QUIRE_OK);
        assert_int_equal(results[i].error, alone.error);
        assert_int_equal(results[i].token, alone.token);
        assert_int_equal(alone.token < 0, i == 17);
        memcpy(logits[i], given[i], sizeof logits[i]);
        sample_context c = rows[i].context; /* by the sampler itself, with the noise of its own key */
        c.noise = sample_noise_of((sample_key){params[i].seed, (uint32_t)i, (uint32_t)c.n_tokens});
        int32_t token = -1;
        assert_int_equal(sampler_sample(pool.samplers[0], logits[i], &c, &token), alone.error);
        assert_int_equal(i == 17 ? -1 : token, alone.token);
    }
    assert_int_equal(n_runs, 1); /* one row wakes no worker */
    sample_pool_close(&pool);
    thread_pool_close(threads);
}

TEST(a_goal_is_what_is_done_with_a_row) {
    static const int32_t tokens[] = {3};
    sampling_params p;
    sample_pool pool;
    sample_result result = NOT_SAMPLED;
    float row[4] = {1.0f, 2.0f, 0.5f, 4.0f};
    sampling_params_init(&p);
    p.repetition_penalty = 2.0f;
    p.top_k = 1;
    assert_int_equal(sample_pool_open(4, 4, 1, NULL, NULL, &pool), QUIRE_OK);
    sample_row r = {.goal = SAMPLE_ADJUST,
                    .logits = row,
                    .context = {.params = &p, .tokens = tokens, .n_tokens = 1},
                    .result = &result};
    sample_batch(&pool, &r, 1);
    assert_true(result.error == QUIRE_OK && result.token == -1 && row[3] == 2.0f);
    row[3] = 8.0f; /* 4 after the penalty */
    r.goal = SAMPLE_DISTRIBUTION;
    sample_batch(&pool, &r, 1);
    assert_true(r.probs[3] == 1.0f && r.probs[1] == 0.0f && result.token == -1);
    sample_pool_close(&pool);
}

TEST_MAIN(NULL, NULL)
