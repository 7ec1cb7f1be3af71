/* Sequences whose rules do not fit into steps sit out until a thread outside has made
 * their masks: that decides when tokens come, never which. */
#include "draft_case.h"
#include "outside.h"

#include "base/clock.h"
#include "engine/rule_step.h"

/* Beside drafts, forced tokens, samples, preemption and swapped pages. */
TEST(sequences_that_sit_out_get_the_same_tokens) {
    static workload base, with;
    static const draft_options none = {0};
    static const draft_options tree = {
        .method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4, .tree_width = 2};
    const struct {
        const char *what;
        const draft_options *draft;
        int32_t page_tokens, n_pages, max_rows, max_seqs, n_threads;
        int64_t swap_bytes;
    } ways[] = {
        {"plain", &none, 16, 1024, 128, 16, 1, 0},     {"drafts", &ngram, 16, 1024, 128, 16, 2, 0},
        {"trees", &tree, 1, 4096, 128, 16, 1, 0},      {"preempted", &ngram, 4, 80, 64, 16, 1, 0},
        {"swapped", &none, 4, 80, 64, 16, 2, 1 << 26}, {"few at a time", &ngram, 4, 2048, 24, 5, 1, 0}};
    harness_options o = harness_defaults;
    run(&o, &base);
    assert_int_equal(base.stats.rules_outside, 0);
    constraint *plain = brackets;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outside out;
        outsiders = outside_open(&out);
        brackets = slow_brackets_new(plain->n_vocab);
        o.draft = *ways[i].draft;
        o.page_tokens = ways[i].page_tokens;
        o.n_pages = ways[i].n_pages;
        o.max_rows = ways[i].max_rows;
        o.max_seqs = ways[i].max_seqs;
        o.n_threads = ways[i].n_threads;
        o.swap_bytes = ways[i].swap_bytes;
        run(&o, &with);
        print_stats(ways[i].what, &with);
        print_message("%d masks made outside\n", (int)with.stats.rules_outside);
        same(&base, &with, ways[i].what);
        assert_true(with.stats.rules_outside > 20);
        assert_true(strcmp(ways[i].what, "preempted") != 0 || with.stats.preemptions > 0);
        outside_close(&out);
        assert_int_equal(out.n_run, with.stats.rules_outside);
        constraint_drop(brackets);
    }
    brackets = plain;
    outsiders = (engine_outside){0};
}

TEST(without_threads_outside_a_step_does_it_all) {
    static workload base, with;
    harness_options o = harness_defaults;
    run(&o, &base);
    constraint *plain = brackets;
    brackets = slow_brackets_new(plain->n_vocab);
    run(&o, &with);
    same(&base, &with, "nobody outside");
    assert_int_equal(with.stats.rules_outside, 0);
    constraint_drop(brackets);
    brackets = plain;
}

/* ---- while a rule is outside ---- */

/* Within steps there is no mask from the third token on. */
static quire_err later(const constraint *c, const void *state, uint64_t *bits) {
    bool is_slow = work_room_current != NULL && ((const brackets_state *)state)->n_tokens >= 3;
    return is_slow ? QUIRE_BUSY : brackets_mask(c, state, bits);
}

typedef struct held {
    harness h;
    outside out;
    constraint *slow;
    constraint_ops ops;
    harness_run with, beside; /* one whose rule is held back; one without */
    int32_t prompts[2][24];
} held;

/* Steps until the rule of w->with is outside, where it is held. */
static void held_open(held *w, int32_t n_pages) {
    harness_options o = harness_defaults;
    uint64_t seed = 3;
    o.page_tokens = 4;
    o.n_pages = n_pages;
    *w = (held){0};
    harness_open(&o, &w->h);
    harness_take_over(&w->h);
    w->slow = brackets_new(w->h.n_vocab);
    w->ops = *w->slow->ops;
    w->ops.mask = later;
    w->slow->ops = &w->ops;
    for (int i = 0; i < 2; i++) {
        random_prompt(&seed, w->h.n_vocab, 24, w->prompts[i]);
    }
    w->beside = (harness_run){.prompt = w->prompts[0], .n_prompt = 24, .sampling = greedy(100)};
    w->with =
        (harness_run){.prompt = w->prompts[1], .n_prompt = 24, .sampling = greedy(60), .constraint = w->slow};
    w->with.outside = outside_open(&w->out);
    outside_hold(&w->out, true);
    harness_submit(&w->h, &w->beside);
    harness_submit(&w->h, &w->with);
    for (int i = 0; outside_waiting(&w->out) == 0; i++) {
        assert_true(i < 1000 && harness_step(&w->h));
    }
}

static void held_read(held *w) {
    bool ended;
    while (harness_read(&w->h, &ended)) {
    }
}

static void held_steps(held *w, int n) {
    for (int i = 0; i < n; i++) {
        (void)harness_step(&w->h);
    }
    held_read(w);
}

/* Steps until the one whose rule was held back has ended. The thread outside may have to
 * wait for a processor. */
static void held_finish(held *w) {
    for (int64_t end_us = clock_us() + 60000000; w->with.finish == FINISH_NONE && clock_us() < end_us;) {
        if (!harness_step(&w->h)) {
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
        held_read(w);
    }
}

static void held_close(held *w) {
    outside_close(&w->out);
    for (int i = 0; i < 400 && (w->with.finish == FINISH_NONE || w->beside.finish == FINISH_NONE); i++) {
        held_steps(w, 1);
    }
    assert_true(w->with.finish != FINISH_NONE && w->beside.finish != FINISH_NONE);
    constraint_drop(w->slow);
    harness_close(&w->h);
}

TEST(others_go_on_while_one_sits_out_with_its_pages) {
    static held w;
    held_open(&w, 200);
    held_read(&w);
    int32_t n_with = w.with.n_tokens, n_beside = w.beside.n_tokens;
    held_steps(&w, 20);
    assert_int_equal(w.with.n_tokens, n_with);
    assert_int_equal(w.beside.n_tokens, n_beside + 20);
    assert_int_equal(w.h.e->sched.n_running, 2);
    outside_hold(&w.out, false);
    held_finish(&w);
    assert_int_equal(w.with.finish, FINISH_LENGTH);
    assert_int_equal(w.with.n_preempted, 0);
    held_close(&w);
}

TEST(one_that_sits_out_is_cancelled_at_once) {
    static held w;
    held_open(&w, 200);
    engine_cancel(w.h.e, w.with.id);
    held_steps(&w, 1);
    assert_int_equal(w.with.finish, FINISH_CANCELLED);
    assert_int_equal(w.h.e->sched.n_running, 1);
    assert_true(atomic_load(w.out.works[0]->is_off));
    held_close(&w);
}

/* All sit out: nothing is computed, and nobody loses pages over it. */
TEST(where_all_sit_out_nothing_is_preempted) {
    static held w;
    held_open(&w, 200);
    engine_cancel(w.h.e, w.beside.id);
    held_steps(&w, 1);
    for (int i = 0; i < 10; i++) {
        assert_false(harness_step(&w.h));
    }
    assert_int_equal(w.h.e->sched.n_running, 1);
    assert_int_equal(w.h.e->sched.counts.preemptions, 0);
    engine_cancel(w.h.e, w.with.id);
    held_close(&w);
}

/* The one beside needs the pages: they are taken, and the sequence waits until its rule
 * is back. */
TEST(one_that_sits_out_may_be_preempted) {
    static held w;
    held_open(&w, 34); /* the one beside alone takes 31 */
    held_steps(&w, 90);
    assert_int_equal(w.h.e->sched.n_running + (w.beside.finish != FINISH_NONE), 1);
    assert_int_equal(w.h.e->sched.n_waiting, 1);
    held_steps(&w, 60);
    assert_int_equal(w.beside.finish, FINISH_LENGTH);
    assert_int_equal(w.h.e->sched.n_waiting, 1); /* there is room, but its rule is outside */
    outside_hold(&w.out, false);
    held_finish(&w);
    assert_int_equal(w.with.finish, FINISH_LENGTH);
    assert_int_equal(w.with.n_preempted, 1);
    held_close(&w);
}

TEST(an_engine_closes_while_a_rule_is_outside) {
    static held w;
    held_open(&w, 200);
    engine_cancel(w.h.e, w.with.id);
    engine_cancel(w.h.e, w.beside.id);
    held_steps(&w, 1);
    engine_stop(w.h.e);
    outside_close(&w.out); /* its work has the last reference to the sequence */
    constraint_drop(w.slow);
    harness_close(&w.h);
}

/* ---- failures ---- */

static quire_err fails_later(const constraint *c, const void *state, uint64_t *bits) {
    if (((const brackets_state *)state)->n_tokens >= 3) {
        return work_room_current != NULL ? QUIRE_BUSY : QUIRE_TOO_LARGE;
    }
    return brackets_mask(c, state, bits);
}

TEST(a_rule_that_fails_outside_ends_its_request_alone) {
    harness h = {0};
    outside out;
    harness_options o = harness_defaults;
    static harness_run runs[2];
    int32_t prompt[24];
    uint64_t seed = 3;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, 24, prompt);
    constraint *c = slow_brackets_new(h.n_vocab);
    constraint_ops failing = *c->ops;
    failing.mask = fails_later;
    c->ops = &failing;
    for (int i = 0; i < 2; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = 24, .sampling = greedy(40)};
    }
    runs[0].constraint = c;
    runs[0].outside = outside_open(&out);
    harness_submit(&h, &runs[0]);
    harness_submit(&h, &runs[1]);
    harness_wait(&h, 2);
    assert_int_equal(runs[0].finish, FINISH_ERROR);
    assert_int_equal(runs[0].error, QUIRE_TOO_LARGE);
    assert_int_equal(runs[0].n_tokens, 3);
    assert_int_equal(runs[1].finish, FINISH_LENGTH);
    outside_close(&out);
    constraint_drop(c);
    harness_close(&h);
}

TEST_MAIN(lists_open, lists_close)
