/* The model that computes nothing, in a real engine: each step is recorded with its
 * number of rows, and requests end as they should. */

#include "base/mem.h"
#include "engine/engine.h"
#include "lab/bench/null_model.h"
#include "test.h"

TEST(a_real_engine_runs_over_it_and_every_step_is_noted) {
    enum { N = 8, PROMPT = 20, OUT = 50 };
    null_model *null;
    kv_layout layout;
    engine *e;
    engine_out *out;
    wake reader;
    quire_error err;
    assert_int_equal(null_model_open(1000, &null), QUIRE_OK);
    assert_int_equal(kv_layout_init(model_description(null->m), kv_both(DTYPE_F32), 16, &layout, &err),
                     QUIRE_OK);
    /* or the first could end before the last is there */
    engine_options o = {.prefix_cache = PREFIX_CACHE_TOKEN,
                        .page_tokens = 16,
                        .n_pages = 64,
                        .max_model_len = 100,
                        .max_batched_tokens = 64,
                        .max_seqs = N,
                        .max_requests = N,
                        .starts_paused = true};
    assert_int_equal(engine_open(null->m, null->b, &layout, &o, &e, &err), QUIRE_OK);
    assert_int_equal(wake_init(&reader), QUIRE_OK);
    assert_int_equal(engine_out_open(e, &reader, &out), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        engine_request r = {.tokens = mem_new(PROMPT, sizeof(int32_t)),
                            .n_tokens = PROMPT,
                            .namespace = "t",
                            .n_namespace = 1,
                            .out = out};
        request_id id;
        r.tokens[0] = i;
        sampling_params_init(&r.sampling);
        r.sampling.temperature = 0;
        r.sampling.has_seed = true;
        r.sampling.max_tokens = OUT;
        assert_int_equal(engine_submit(e, &r, &id, &err), QUIRE_OK);
    }
    engine_release(e);
    int32_t n_tokens = 0;
    for (int ended = 0; ended < N;) {
        engine_event ev;
        if (!engine_out_pop(out, &ev)) {
            wake_wait(&reader, -1);
            continue;
        }
        if (ev.finish == FINISH_NONE) {
            assert_int_equal(ev.token, 3); /* what the null model's row says */
            n_tokens++;
        } else {
            assert_int_equal(ev.finish, FINISH_LENGTH);
            ended++;
        }
    }
    assert_int_equal(n_tokens, N * OUT);
    quire_stats s;
    do {
        engine_stats_read(e, &s);
    } while (s.n_requests_running > 0);
    engine_out_close(out);
    engine_close(e);
    assert_int_equal(null->n_steps, s.steps - 1); /* each but the first, which has none before it */
    int32_t n_full = 0;
    for (int32_t i = 0; i < null->n_steps; i++) {
        assert_true(null->steps[i].wall_ns > 0);
        assert_true(null->steps[i].collect_ns > 0 && null->steps[i].collect_ns < null->steps[i].wall_ns);
        assert_true(null->steps[i].cpu_ns >= 0);
        n_full += null->steps[i].n_seqs == N && null->steps[i].n_rows == N;
    }
    assert_in_range(n_full, OUT - N, OUT); /* three prompts a step */
    wake_deinit(&reader);
    null_model_close(null);
}

TEST_MAIN(NULL, NULL)
