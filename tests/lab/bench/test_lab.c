/* Workloads on the real engine: worked example 24 to the exact token and page, and the
 * same answers with each mechanism switched off. */
#include <stdlib.h>

#include "lab/bench/lab.h"
#include "test.h"

static quire_options options_for(const workload *w) {
    quire_options o;
    quire_options_init(&o);
    o.model = getenv("QUIRE_TEST_LONG") != NULL ? "builtin" : "builtin-small";
    o.n_threads = 2;
    o.max_seqs = w->max_seqs;
    o.max_batched_tokens = w->max_rows;
    o.n_pages = 2048;
    o.step_target_us = 0;
    return o;
}

static lab_result run_without(engine_ablations off, const quire_options *o, workload *w) {
    quire_error err = {.message = ""};
    variant v = {.options = *o,
                 .off = off,
                 .requests = w->requests,
                 .n = w->n,
                 .at_once = w->n,
                 .max_len = w->max_len};
    if (variants_run(&v, 1, 1, true, &err) != QUIRE_OK) {
        fail_msg("%s: %s", w->name, err.message);
    }
    return v.best;
}

static lab_result run(const quire_options *o, workload *w) {
    return run_without((engine_ablations){0}, o, w);
}

static workload make(const char *name) {
    quire_error err = {.message = ""};
    workload w;
    if (workload_make(name, 2048, &w, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return w;
}

/* Worked example 24. */
TEST(eight_users_compute_their_system_prompt_once) {
    workload w = make("chatbot");
    quire_options o = options_for(&w);
    lab_result shared = run(&o, &w);
    assert_int_equal(shared.n_prompt, 16240);
    assert_int_equal(shared.n_prompt_computed, 2240);
    assert_int_equal(shared.n_cached, 14000);
    assert_int_equal(shared.n_pages_most, 221);
    o.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    lab_result apart = run(&o, &w);
    assert_int_equal(apart.n_prompt_computed, 16240);
    assert_int_equal(apart.n_cached, 0);
    assert_int_equal(apart.n_pages_most, 1096);
    assert_int_equal(apart.n_output, 1200);
    assert_true(apart.digest == shared.digest);
    workload_free(&w);
}

/* After a first turn of 60 tokens and an answer of 80, every later one finds all but the
 * answer's last token, which is never computed. */
TEST(a_conversation_finds_what_was_said) {
    workload w = make("chat");
    quire_options o = options_for(&w);
    lab_result r = run(&o, &w);
    assert_int_equal(r.n_prompt, 8 * (60 + 180 + 300 + 420));
    assert_int_equal(r.n_prompt - r.n_cached, r.n_prompt_computed);
    /* the 20 tokens in common are computed once */
    assert_int_equal(r.n_prompt_computed, 60 + 7 * 40 + 8 * 3 * 41);
    o.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    lab_result none = run(&o, &w);
    assert_int_equal(none.n_prompt_computed, none.n_prompt);
    assert_true(none.digest == r.digest);
    workload_free(&w);
}

TEST(nothing_is_found_where_nothing_is_shared) {
    workload w = make("unique");
    quire_options o = options_for(&w);
    lab_result r = run(&o, &w);
    assert_int_equal(r.n_cached, 0);
    assert_int_equal(r.n_prompt_computed, 24 * 300);
    workload_free(&w);
}

TEST(every_switch_leaves_the_answers_as_they_are) {
    workload w = make("json");
    w.n = 9;
    quire_options o = options_for(&w);
    for (int i = 0; i < w.n; i++) {
        w.requests[i].n_output = 20;
        w.requests[i].n_samples = i % 3 == 0 ? 3 : 1;
        w.requests[i].temperature = i % 2 == 0 ? 1.0f : 0.0f;
    }
    lab_result all = run(&o, &w);
    quire_options ways[7];
    engine_ablations off[7] = {0};
    for (int i = 0; i < 7; i++) {
        ways[i] = o;
    }
    ways[0].prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    ways[1].prefix_cache = QUIRE_PREFIX_CACHE_PAGE;
    off[2].no_fork_sharing = true;
    ways[3].no_chunked_prefill = true;
    ways[4].max_seqs = 1;
    ways[5].prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    off[5].no_fork_sharing = true;
    ways[6].no_cascade = true;
    ways[5].n_pages = 52; /* not all of them at once: preemption */
    for (int i = 0; i < 7; i++) {
        lab_result r = run_without(off[i], &ways[i], &w);
        assert_true(r.digest == all.digest && r.n_output == all.n_output);
        assert_true(r.n_prompt_computed >= all.n_prompt_computed || i == 2);
        assert_true(i != 5 || r.n_preemptions > 0);
    }
    workload_free(&w);
}

TEST_MAIN(NULL, NULL)
