/* Progress of a prompt: each step's chunk is announced before the first token, and a
 * reader that is late gets one event for all. Pages are audited after each step. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "engine/harness.h"
#include "test.h"

enum { LONG = 400, CHUNK = 64, PAGES = 64 };

static int32_t prompt[LONG], other[LONG];

static harness_run run_of(const int32_t *tokens, int32_t n, int32_t max_tokens) {
    return (harness_run){
        .prompt = tokens, .n_prompt = n, .sampling = greedy(max_tokens), .shows_progress = true};
}

static void open_steps(harness *h, int32_t n_pages) {
    harness_options o = harness_defaults;
    o.chunk = CHUNK;
    o.n_pages = n_pages;
    harness_open(&o, h);
    harness_take_over(h);
}

/* The next event; false: there is none. */
static bool pop(harness *h, engine_event *ev) {
    bool has = engine_out_pop(h->out, ev);
    assert_true(!has || ev->n_processed == 0 || (ev->token == -1 && ev->finish == FINISH_NONE));
    return has;
}

TEST(every_chunk_is_announced_and_the_last_is_the_whole_prompt) {
    harness h = {0};
    engine_event ev;
    int64_t last_us = 0;
    open_steps(&h, PAGES);
    harness_run r = run_of(prompt, LONG, 2);
    harness_submit(&h, &r);
    for (int32_t done = 0; done < LONG;) {
        assert_true(harness_step(&h));
        done = done + CHUNK < LONG ? done + CHUNK : LONG;
        assert_true(pop(&h, &ev));
        assert_int_equal(ev.n_processed, done);
        assert_int_equal(ev.n_cached, 0);
        assert_ptr_equal(ev.user, &r);
        assert_true(ev.processed_us > last_us);
        last_us = ev.processed_us;
        assert_true(done == LONG || !pop(&h, &ev));
    }
    assert_true(pop(&h, &ev));
    assert_true(ev.token >= 0);
    assert_false(pop(&h, &ev));
    while (harness_step(&h)) {
    }
    assert_true(pop(&h, &ev)); /* the second token, and no more of the prompt */
    assert_true(ev.token >= 0 && ev.n_processed == 0);
    assert_true(pop(&h, &ev));
    assert_int_equal(ev.finish, FINISH_LENGTH);
    harness_close(&h);
}

TEST(a_late_reader_gets_the_newest_number_alone) {
    harness h = {0};
    engine_event ev;
    open_steps(&h, PAGES);
    harness_run r = run_of(prompt, LONG, 3);
    harness_submit(&h, &r);
    assert_true(harness_step(&h));
    assert_true(harness_step(&h));
    assert_true(pop(&h, &ev));
    assert_int_equal(ev.n_processed, 2 * CHUNK);
    assert_false(pop(&h, &ev));
    while (harness_step(&h)) { /* the engine does not wait for the reader */
    }
    assert_true(pop(&h, &ev));
    assert_int_equal(ev.n_processed, LONG);
    for (int i = 0; i < 3; i++) {
        assert_true(pop(&h, &ev));
        assert_true(ev.token >= 0);
    }
    assert_true(pop(&h, &ev));
    assert_int_equal(ev.finish, FINISH_LENGTH);
    assert_false(pop(&h, &ev));
    harness_close(&h);
}

TEST(what_the_cache_had_counts_as_processed) {
    harness h = {0};
    engine_event ev;
    open_steps(&h, PAGES);
    harness_run first = run_of(prompt, 200, 1), again = run_of(prompt, LONG, 1);
    first.shows_progress = false;
    harness_submit(&h, &first);
    (void)harness_steps(&h, 100);
    harness_submit(&h, &again);
    for (int32_t done = 200 + CHUNK;; done += CHUNK) {
        assert_true(harness_step(&h));
        assert_true(pop(&h, &ev));
        assert_int_equal(ev.n_cached, 200);
        assert_int_equal(ev.n_processed, done < LONG ? done : LONG);
        if (done >= LONG) {
            break;
        }
    }
    (void)harness_steps(&h, 100);
    assert_int_equal(again.n_cached, 200);
    harness_close(&h);
}

TEST(of_samples_the_first_is_announced) {
    harness h = {0};
    engine_event ev;
    harness_run runs[3];
    void *users[3];
    request_id ids[3];
    quire_error err;
    int32_t n_progress = 0, n_ends = 0;
    open_steps(&h, PAGES);
    int32_t *tokens = mem_new(LONG, sizeof *tokens);
    memcpy(tokens, prompt, sizeof prompt);
    for (int i = 0; i < 3; i++) {
        users[i] = &runs[i];
    }
    engine_request r = {
        .tokens = tokens, .n_tokens = LONG, .sampling = greedy(1), .shows_progress = true, .out = h.out};
    assert_int_equal(engine_submit_samples(h.e, &r, 3, users, ids, &err), QUIRE_OK);
    while (harness_step(&h)) {
        while (pop(&h, &ev)) {
            assert_true(ev.n_processed == 0 || ev.user == &runs[0]);
            n_progress += ev.n_processed > 0;
            n_ends += ev.finish != FINISH_NONE;
        }
    }
    assert_int_equal(n_progress, (LONG + CHUNK - 1) / CHUNK);
    assert_int_equal(n_ends, 3);
    harness_close(&h);
}

/* The older one's tokens take the pages of the younger one, whose prompt is computed
 * again: it is not announced again. */
TEST(a_preempted_prompt_never_goes_back) {
    harness h = {0};
    engine_event ev;
    int32_t last = 0;
    open_steps(&h, 24);
    harness_run old = run_of(other, 100, 120), young = run_of(prompt, 240, 40);
    old.shows_progress = false;
    harness_submit(&h, &old);
    harness_submit(&h, &young);
    for (int n_ends = 0; n_ends < 2;) {
        assert_true(harness_step(&h));
        while (pop(&h, &ev)) {
            if (ev.n_processed > 0) {
                assert_ptr_equal(ev.user, &young);
                assert_true(ev.n_processed > last);
                last = ev.n_processed;
            }
            if (ev.finish != FINISH_NONE) {
                ((harness_run *)ev.user)->n_preempted = ev.n_preempted;
                n_ends++;
            }
        }
    }
    assert_int_equal(last, 240);
    assert_true(young.n_preempted > 0);
    harness_close(&h);
}

TEST(who_does_not_ask_gets_tokens_alone) {
    harness h = {0};
    engine_event ev;
    open_steps(&h, PAGES);
    harness_run r = run_of(prompt, LONG, 1);
    r.shows_progress = false;
    harness_submit(&h, &r);
    while (harness_step(&h)) {
    }
    assert_true(pop(&h, &ev));
    assert_true(ev.token >= 0 && ev.n_processed == 0);
    assert_true(pop(&h, &ev));
    assert_int_equal(ev.finish, FINISH_LENGTH);
    harness_close(&h);
}

/* Takes the progress of a search, and says so without any order between the threads. */
static atomic_bool is_taken;
static void *take_progress(void *user) {
    engine_event ev;
    assert_true(pop(user, &ev));
    assert_int_equal(ev.n_processed, LONG);
    assert_int_equal(ev.n_cached, 0);
    atomic_store_explicit(&is_taken, true, memory_order_relaxed);
    return NULL;
}

/* ThreadSanitizer finds a write after the first chunk to what progress tells. */
TEST(a_late_reader_of_a_search_reads_what_no_step_writes) {
    harness h = {0};
    harness_run runs[3];
    void *users[3] = {&runs[0], &runs[1], &runs[2]};
    request_id ids[3];
    quire_error err;
    pthread_t reader;
    open_steps(&h, PAGES);
    int32_t *tokens = mem_new(LONG, sizeof *tokens), n_ends = 0;
    memcpy(tokens, prompt, sizeof prompt);
    engine_request r = {.tokens = tokens,
                        .n_tokens = LONG,
                        .sampling = greedy(8),
                        .beams = {.width = 3, .n_groups = 1, .length_penalty = 1.0f},
                        .shows_progress = true,
                        .out = h.out};
    assert_int_equal(engine_submit_samples(h.e, &r, 3, users, ids, &err), QUIRE_OK);
    for (int32_t done = 0; done < LONG; done += CHUNK) {
        assert_true(harness_step(&h));
    }
    assert_int_equal(pthread_create(&reader, NULL, take_progress, &h), 0);
    while (!atomic_load_explicit(&is_taken, memory_order_relaxed)) {
        (void)sched_yield();
    }
    while (harness_step(&h)) {
    }
    assert_int_equal(pthread_join(reader, NULL), 0);
    for (engine_event ev; pop(&h, &ev);) {
        assert_true(ev.n_processed == 0 && ev.n_cached == 0);
        n_ends += ev.finish != FINISH_NONE;
    }
    assert_int_equal(n_ends, 3);
    harness_close(&h);
}

int main(void) {
    uint64_t seed = 5;
    random_prompt(&seed, 2048, LONG, prompt);
    random_prompt(&seed, 2048, LONG, other);
    return tests_run(NULL, NULL);
}
