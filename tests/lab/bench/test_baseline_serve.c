/* Serving without paging gives the engine's answers, and computes the padding and dead
 * rows that it reports. */

#include "lab/bench/headline_execute.h"
#include "test.h"

enum { N = 6, MAX_LEN = 128, MAX_SEQS = 4 };

static const int32_t lengths[N] = {30, 5, 17, 60, 1, 33}, answers[N] = {10, 25, 3, 12, 20, 8};

typedef struct fixture {
    quire_options engine;
    uint64_t digest; /* of the engine's answers */
} fixture;

static baseline_result serve(fixture *w, bool is_static, reservation how, int32_t n_pages) {
    quire_error err = {.message = ""};
    baseline_options o = {is_static, how, n_pages, MAX_SEQS, MAX_LEN};
    const model_runner_options bo = {.engine = &w->engine,
                                     .page_tokens = BASELINE_PAGE,
                                     .n_pages = n_pages + baseline_extra_pages(&o),
                                     .max_rows = 64,
                                     .max_seqs = 2 * MAX_SEQS,
                                     .max_len = MAX_LEN};
    baseline_result r;
    model_runner b;
    if (model_runner_open(&bo, &b, &err) != QUIRE_OK ||
        baseline_serve(&b, &o, lengths, answers, N, &r, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(w->digest == 0 || r.digest == w->digest);
    assert_true(r.used > 0 && r.used <= 1);
    model_runner_close(&b);
    return r;
}

static void fixture_open(fixture *w) {
    *w = (fixture){.digest = 0};
    quire_options_init(&w->engine);
    w->engine.model = "builtin";
    w->engine.n_threads = 2;
    w->digest = serve(w, false, RESERVE_PAGED, 64).digest;
}

/* Batches of 4 and 2: prompts padded to 60 and 33, steps until 25 and 20. */
TEST(a_static_server_computes_pads_and_dead_rows) {
    fixture w;
    fixture_open(&w);
    baseline_result r = serve(&w, true, RESERVE_MAX, 4 * 8);
    assert_int_equal(r.n_padding, (30 + 55 + 43 + 0) + (32 + 0));
    assert_int_equal(r.n_dead, (15 + 0 + 22 + 13) + (0 + 12));
    assert_int_equal(r.n_steps, 25 + 20);
    assert_int_equal(r.n_rows, 4 * 60 + 2 * 33 + 4 * 24 + 2 * 19);
    assert_int_equal(r.most_at_once, 4);
}

TEST(by_iteration_a_server_computes_no_row_in_vain) {
    fixture w;
    fixture_open(&w);
    for (reservation how = RESERVE_MAX; how <= RESERVE_GROWING; how++) {
        baseline_result r = serve(&w, false, how, 16);
        assert_int_equal(r.n_padding + r.n_dead, 0);
        assert_true(r.n_dropped > 0 ||
                    r.n_rows == 30 + 5 + 17 + 60 + 1 + 33 + (10 + 25 + 3 + 12 + 20 + 8) - N);
        assert_int_equal(r.most_at_once <= 2, how == RESERVE_MAX); /* 16 pages hold two of the longest */
        assert_int_equal(r.copied_bytes > 0, how == RESERVE_GROWING);
        assert_true(how == RESERVE_GROWING || r.n_dropped == 0);
    }
    assert_true(serve(&w, false, RESERVE_GROWING, 9).n_dropped > 0);
}

TEST(what_does_not_fit_in_memory_is_refused) {
    fixture w;
    quire_error err;
    model_runner b;
    baseline_result r;
    fixture_open(&w);
    const model_runner_options bo = {.engine = &w.engine,
                                     .page_tokens = BASELINE_PAGE,
                                     .n_pages = 64,
                                     .max_rows = 64,
                                     .max_seqs = 2 * MAX_SEQS,
                                     .max_len = MAX_LEN};
    baseline_options small = {false, RESERVE_MAX, 4, MAX_SEQS, MAX_LEN},
                     is_static = {true, RESERVE_MAX, 4, MAX_SEQS, MAX_LEN},
                     shorter = {false, RESERVE_MAX, 32, MAX_SEQS, 64};
    assert_int_equal(model_runner_open(&bo, &b, &err), QUIRE_OK);
    assert_int_equal(baseline_serve(&b, &small, lengths, answers, N, &r, &err), QUIRE_TOO_LARGE);
    assert_int_equal(baseline_serve(&b, &is_static, lengths, answers, N, &r, &err), QUIRE_TOO_LARGE);
    assert_int_equal(baseline_serve(&b, &shorter, lengths, answers, N, &r, &err), QUIRE_TOO_LARGE);
    model_runner_close(&b);
}

TEST_MAIN(NULL, NULL)
