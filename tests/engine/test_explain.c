/* What a request is told about its way through the engine: each cause of waiting is made
 * to happen, and must be named. */

#include "engine/harness.h"
#include "test.h"

enum { LONG = 400, PAGE = 16 };

static int32_t first[LONG], second[LONG];
static int64_t page_bytes; /* of the last engine */

static harness_run run_of(const int32_t *prompt, int32_t n, int32_t max_tokens) {
    return (harness_run){.prompt = prompt, .n_prompt = n, .sampling = greedy(max_tokens), .explain = true};
}

static int64_t sum_of_waits(const quire_explain *x) {
    int64_t us = 0;
    for (int i = 0; i < QUIRE_N_WAITS; i++) {
        us += x->wait_us[i];
        assert_true(x->n_waits[i] > 0 || x->wait_us[i] == 0);
    }
    return us;
}

/* Runs a and b, who begin together, to their ends; what b was told. */
static const quire_explain *run_two(const harness_options *o, harness_run *a, harness_run *b) {
    harness h = {0};
    harness_options together = *o;
    together.starts_paused = true;
    harness_open(&together, &h);
    harness_submit(&h, a);
    harness_submit(&h, b);
    harness_wait(&h, 2);
    quire_stats s;
    do {
        engine_stats_read(h.e, &s);
    } while (s.requests_finished[FINISH_LENGTH - 1] < 2);
    assert_int_equal(s.n_pages_held, 0);
    page_bytes = h.layout.page_bytes;
    harness_close(&h);
    assert_int_equal(a->finish, FINISH_LENGTH);
    assert_int_equal(b->finish, FINISH_LENGTH);
    const quire_explain *x = &a->report->report, *y = &b->report->report;
    assert_int_equal(sum_of_waits(x), x->queue_us);
    assert_int_equal(sum_of_waits(y), y->queue_us);
    /* every microsecond from submission to end belongs to one stage */
    assert_int_equal(x->queue_us + x->prefill_us + x->decode_us + y->queue_us + y->prefill_us + y->decode_us,
                     a->whole_us + b->whole_us);
    return y;
}

static void drop(harness_run *a, harness_run *b) {
    mem_free(a->report);
    mem_free(b->report);
}

/* Whether that is the only cause besides its turn. */
static void waited_only_for(const quire_explain *x, quire_wait cause) {
    for (int i = 0; i < QUIRE_N_WAITS; i++) {
        if (i == (int)cause) {
            assert_true(x->n_waits[i] > 0);
            assert_true(x->wait_us[i] > 0);
        } else if (i != QUIRE_WAIT_TURN) {
            assert_int_equal(x->n_waits[i], 0);
        }
    }
}

TEST(who_finds_all_slots_taken_waited_for_a_slot) {
    harness_options o = harness_defaults;
    o.max_seqs = 1;
    harness_run a = run_of(first, 20, 100), b = run_of(second, 20, 5);
    waited_only_for(run_two(&o, &a, &b), QUIRE_WAIT_SLOT);
    drop(&a, &b);
}

TEST(who_finds_no_pages_waited_for_pages) {
    harness_options o = harness_defaults;
    o.n_pages = 16;
    o.max_rows = 256; /* rows are no reason to wait */
    harness_run a = run_of(first, 150, 60), b = run_of(second, 100, 5);
    waited_only_for(run_two(&o, &a, &b), QUIRE_WAIT_PAGES);
    drop(&a, &b);
}

TEST(who_gets_no_rows_waited_for_the_budget) {
    harness_options o = harness_defaults;
    o.max_rows = 16;
    harness_run a = run_of(first, LONG, 3), b = run_of(second, 20, 5);
    waited_only_for(run_two(&o, &a, &b), QUIRE_WAIT_BUDGET);
    drop(&a, &b);
}

TEST(who_is_held_for_anothers_prefill_waited_for_the_prefix) {
    harness_options o = harness_defaults;
    o.chunk = 16;
    harness_run a = run_of(first, LONG, 3), b = run_of(first, LONG - 3, 3);
    const quire_explain *x = run_two(&o, &a, &b);
    waited_only_for(x, QUIRE_WAIT_PREFIX);
    assert_true(x->matched >= (LONG - 3) / PAGE * PAGE);
    drop(&a, &b);
}

TEST(what_was_reused_is_told_with_the_page_that_was_copied) {
    harness h = {0};
    harness_open(&harness_defaults, &h);
    harness_run a = run_of(first, 100, 2), b = run_of(first, 103, 2), c = run_of(second, 37, 2);
    harness_run *runs[] = {&a, &b, &c};
    static int32_t longer[103];
    memcpy(longer, first, 100 * sizeof *first);
    b.prompt = longer;
    for (int i = 0; i < 3; i++) {
        longer[100] = a.n_tokens > 0 && a.tokens[0] == 5 ? 6 : 5; /* not what follows in a */
        harness_submit(&h, runs[i]);
        harness_wait(&h, 1);
    }
    assert_int_equal(a.report->report.matched, 0);
    assert_int_equal(b.report->report.matched, 100);
    assert_int_equal(b.report->report.copied, 100 % PAGE);
    assert_int_equal(c.report->report.matched, 0);
    for (int i = 0; i < 3; i++) {
        mem_free(runs[i]->report);
    }
    harness_close(&h);
}

TEST(tokens_from_a_tier_are_told_and_waited_for) {
    harness h = {0};
    harness_options o = harness_defaults;
    o.n_pages = 26; /* one of them and its response */
    o.tiers = (engine_tiers){.version = "test", .wait_us = 10000000, .host_bytes = 64 << 20};
    harness_open(&o, &h);
    harness_run a = run_of(first, LONG, 2), b = run_of(second, LONG, 2), again = run_of(first, LONG, 2);
    harness_run *runs[] = {&a, &b, &again};
    for (int i = 0; i < 3; i++) {
        harness_submit(&h, runs[i]);
        harness_wait(&h, 1);
    }
    const quire_explain *x = &again.report->report;
    assert_int_equal(x->tier, (LONG - 1) / PAGE * PAGE);
    assert_int_equal(x->matched, x->tier);
    assert_true(x->n_waits[QUIRE_WAIT_TIER] > 0);
    assert_int_equal(a.report->report.tier + b.report->report.tier, 0);
    for (int i = 0; i < 3; i++) {
        mem_free(runs[i]->report);
    }
    harness_close(&h);
}

TEST(chunks_are_told_by_step_and_tokens) {
    static const int32_t expected[] = {32, 32, 32, 4};
    harness h = {0};
    harness_options o = harness_defaults;
    o.chunk = 32;
    harness_open(&o, &h);
    harness_run a = run_of(first, 100, 7), many = run_of(second, LONG, 2);
    harness_submit(&h, &a);
    harness_wait(&h, 1);
    const quire_explain *x = &a.report->report;
    assert_int_equal(x->n_chunks, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(x->chunks[i].tokens, expected[i]);
        assert_int_equal(x->chunks[i].step, i);
    }
    assert_int_equal(x->n_decodes, 6);
    assert_true(x->prefill_us > 0 && x->decode_us > 0);
    mem_free(a.report);
    harness_close(&h);
    o.chunk = 4; /* more chunks than are listed */
    harness_open(&o, &h);
    harness_submit(&h, &many);
    harness_wait(&h, 1);
    assert_int_equal(many.report->report.n_chunks, LONG / 4);
    assert_int_equal(many.report->report.chunks[QUIRE_EXPLAIN_CHUNKS - 1].tokens, 4);
    mem_free(many.report);
    harness_close(&h);
}

TEST(preemptions_are_told_with_what_they_cost) {
    for (int swapping = 0; swapping < 2; swapping++) {
        harness_options o = harness_defaults;
        o.n_pages = 10;
        o.prefix_cache = PREFIX_CACHE_NONE;
        o.swap_bytes = swapping ? 64 << 20 : 0;
        o.preempt = PREEMPT_SWAP;
        harness_run a = run_of(first, 40, 100), b = run_of(second, 40, 100);
        const quire_explain *x = run_two(&o, &a, &b);
        assert_int_equal(a.report->report.n_preemptions, 0);
        assert_int_equal(x->n_preemptions, 1);
        const quire_explain_preemption *p = &x->preemptions[0];
        assert_memory_equal(p, &x->preempted, sizeof *p);
        assert_true(p->us > 0);
        assert_true(x->wait_us[QUIRE_WAIT_PAGES] > 0);
        assert_true(p->us >= x->wait_us[QUIRE_WAIT_PAGES]);
        if (swapping) {
            assert_int_equal(p->recomputed, 0);
            assert_int_equal(p->swapped_bytes, 2 * 5 * page_bytes); /* there and back */
            assert_int_equal(x->n_chunks, 1);
        } else {
            assert_in_range(p->recomputed, 64, 96); /* five pages each, when the tenth is full */
            assert_int_equal(p->swapped_bytes, 0);
            assert_int_equal(x->n_chunks, 2);
        }
        drop(&a, &b);
    }
}

TEST(a_sample_is_told_that_its_prompt_was_shared) {
    harness h = {0};
    harness_open(&harness_defaults, &h);
    harness_run runs[3];
    void *users[3];
    request_id ids[3];
    quire_error err;
    int32_t *tokens = mem_new(LONG, sizeof *tokens);
    memcpy(tokens, first, LONG * sizeof *first);
    for (int i = 0; i < 3; i++) {
        runs[i] = run_of(first, LONG, 3);
        users[i] = &runs[i];
    }
    engine_request r = {
        .tokens = tokens, .n_tokens = LONG, .sampling = greedy(3), .explain = true, .out = h.out};
    assert_int_equal(engine_submit_samples(h.e, &r, 3, users, ids, &err), QUIRE_OK);
    harness_wait(&h, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(runs[i].report->report.shared, i == 0 ? 0 : LONG);
        assert_int_equal(runs[i].report->report.n_chunks, i == 0 ? 4 : 0);
        assert_int_equal(runs[i].report->report.n_waits[QUIRE_WAIT_PREFIX], i == 0 ? 0 : 1);
        mem_free(runs[i].report);
    }
    harness_close(&h);
}

/* Three that begin together are told how many were before them. */
static void told_places(admission_policy policy, const int32_t priorities[3], const int32_t places[3]) {
    harness h = {0};
    harness_options o = harness_defaults;
    o.schedule = policy;
    o.max_seqs = 1;
    o.starts_paused = true;
    harness_open(&o, &h);
    harness_run runs[3];
    for (int i = 0; i < 3; i++) {
        runs[i] = run_of(first, 20, 3);
        runs[i].priority = priorities[i];
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(runs[i].report->n_ahead, places[i]);
        assert_int_equal(runs[i].report->order, policy);
        mem_free(runs[i].report);
    }
    harness_close(&h);
}

TEST(a_place_in_the_queue_is_told_by_the_order_of_the_policy) {
    told_places(ADMISSION_FCFS, (int32_t[]){0, -1, 0}, (int32_t[]){0, 1, 2});
    told_places(ADMISSION_PRIORITY, (int32_t[]){5, 0, 3}, (int32_t[]){0, 0, 1});
    told_places(ADMISSION_PREFIX, (int32_t[]){0, 0, 0}, (int32_t[]){0, 1, 2});
    /* of one tenant */
    told_places(ADMISSION_FAIR, (int32_t[]){0, 0, 0}, (int32_t[]){0, 1, 2});
}

TEST(who_does_not_ask_is_told_nothing) {
    harness h = {0};
    harness_open(&harness_defaults, &h);
    harness_run a = run_of(first, 20, 3);
    a.explain = false;
    harness_submit(&h, &a);
    harness_wait(&h, 1);
    assert_null(a.report);
    harness_close(&h);
}

int main(void) {
    uint64_t seed = 11;
    random_prompt(&seed, 2048, LONG, first);
    random_prompt(&seed, 2048, LONG, second);
    print_message("seed 11\n");
    return tests_run(NULL, NULL);
}
