/* Calls of programs that wait: for room among others, for a place in a full engine, for
 * an answer that never comes. */
#include "base/mem.h"
#include "base/rng.h"
#include "execute/engine_call.h"
#include "program_world.h"

PROGRAM_TESTS(512)

/* More sequences than an engine takes wait for their turn. */
TEST(calls_that_are_many_wait_for_their_turn) {
    seen got;
    quire_state *p = program_of(
        ps, "{\"steps\": [\"Once\", {\"fork\": 300, \"steps\": [{\"select\": \"x\", \"choices\": [\" a\", "
            "\" b\", \" c\", \" d\"]}, {\"gen\": \"y\", \"n\": 4, \"max_tokens\": 1}]}]}");
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    assert_int_equal(got.n[QUIRE_PROGRAM_VALUE], 600);
    quire_state_close(p);
    p = program_of(ps, "{\"steps\": [\"Once\", {\"fork\": 300, \"steps\": [{\"gen\": \"y\", \"n\": 8, "
                       "\"max_tokens\": 50}]}]}");
    quire_program_event ev;
    for (int i = 0; i < 20;) {
        if (quire_programs_next(ps, &ev)) {
            i++;
        } else {
            quire_programs_wait(ps, 1000000);
        }
    }
    quire_state_close(p); /* those that wait are given up too */
    wait_until_idle(e);
}

TEST(a_thousand_programs_run_at_once) {
    enum { N = 1000 };
    static const char json[] =
        "{\"fields\": {\"temperature\": 0, \"max_tokens\": 2}, \"steps\": [\"Once upon a time\", "
        "{\"gen\": \"a\"}, \" and\", {\"gen\": \"b\"}]}";
    static quire_state *all[N];
    quire_program_event ev;
    int n_over = 0;
    for (int i = 0; i < N; i++) {
        all[i] = program_of(ps, json);
    }
    for (int64_t end_us = clock_us() + 120000000; n_over < N && clock_us() < end_us;) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
            continue;
        }
        assert_true(ev.kind != QUIRE_PROGRAM_FAILED);
        n_over += ev.kind == QUIRE_PROGRAM_IDLE ? 1 : 0;
    }
    assert_int_equal(n_over, N);
    const quire_variable a = variable_of(all[0], "a", -1), b = variable_of(all[0], "b", -1);
    expect_completion(e, "Once upon a time", "{\"temperature\": 0, \"max_tokens\": 2}", &a);
    for (int i = 0; i < N; i++) {
        assert_string_equal(variable_of(all[i], "a", -1).text, a.text);
        assert_string_equal(variable_of(all[i], "b", -1).text, b.text);
    }
    for (int i = 0; i < N; i++) {
        quire_state_close(all[i]);
    }
}

/* An executor whose calls never end, as over an API that does not answer. */
typedef struct silent {
    int n_calls;
    int64_t longest_us; /* that it was to wait; INT64_MAX: for ever */
} silent;

static quire_err silent_begin(void *executor, program_call *c, quire_error *err) {
    (void)c, (void)err;
    ((silent *)executor)->n_calls++;
    return QUIRE_OK;
}

static void silent_cancel(void *executor, program_call *c) {
    (void)c;
    ((silent *)executor)->n_calls--;
}

static void silent_drop(void *executor, quire_state *s) {
    (void)executor, (void)s;
}

static bool silent_poll(void *executor) {
    (void)executor;
    return false;
}

static void silent_wait(void *executor, int64_t timeout_us) {
    silent *x = executor;
    int64_t us = timeout_us < 0 ? INT64_MAX : timeout_us;
    x->longest_us = us > x->longest_us ? us : x->longest_us;
}

static void silent_close(void *executor) {
    (void)executor;
}

TEST(a_program_whose_calls_never_end_is_awaited_as_long_as_its_time) {
    static const program_ops ops = {.gen = silent_begin,
                                    .cancel = silent_cancel,
                                    .drop = silent_drop,
                                    .poll = silent_poll,
                                    .wait = silent_wait,
                                    .close = silent_close};
    static const char json[] = "{\"steps\": [\"a\", {\"gen\": \"x\"}]}";
    silent x = {0};
    quire_programs *own;
    quire_state *p;
    quire_error err = {0};
    quire_program_limits limits;
    quire_program_event ev = {.size = sizeof ev};
    bool has_failed = false;
    quire_program_limits_init(&limits);
    limits.max_us = 20000;
    quire_state_options o = {.size = sizeof o, .limits = &limits};
    assert_int_equal(programs_open(&ops, &x, &own), QUIRE_OK);
    assert_int_equal(quire_program_open(own, json, sizeof json - 1, &o, &p, &err), QUIRE_OK);
    while (ev.kind != QUIRE_PROGRAM_IDLE) {
        if (!quire_programs_next(own, &ev)) {
            ev.kind = QUIRE_PROGRAM_TEXT;
            quire_programs_wait(own, -1);
        }
        has_failed = has_failed || ev.kind == QUIRE_PROGRAM_FAILED;
    }
    assert_true(has_failed && x.longest_us <= limits.max_us);
    assert_int_equal(x.n_calls, 0);
    quire_state_close(p);
    quire_programs_close(own);
}

/* ---- calls that wait for others ---- */

static bool is_waiting(const quire_state *s) {
    return s->call != NULL && ((const engine_call *)s->call->of_executor)->is_waiting;
}

/* Appends a gen of n outputs to s; events come until it waits for its turn, if it is
 * to. */
static void append_gen(quire_state *s, int n, bool waits) {
    char fields[64];
    quire_program_event ev;
    quire_error err = {0};
    int length = snprintf(fields, sizeof fields, "{\"n\": %d, \"max_tokens\": 1}", n);
    assert_int_equal(quire_state_gen(s, "x", fields, (size_t)length, &err), QUIRE_OK);
    for (int i = 0; waits && !is_waiting(s); i++) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
        } else {
            assert_int_not_equal(ev.kind, QUIRE_PROGRAM_VALUE);
        }
        assert_true(i < 1000);
    }
}

static const program_record *last_record(const quire_state *s) {
    return &s->root->records[s->record];
}

/* The first turn is that of the shallow gen, which the deeper one of its program takes;
 * then comes another program's, and the one that was given in return. */
TEST(calls_that_wait_go_depth_first) {
    static const int32_t ids[] = {300, 301};
    engine_executor *x = ps->executor;
    quire_state *p, *forks[2], *q;
    quire_error err = {0};
    seen got;
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_tokens(p, ids, 2, &err), QUIRE_OK);
    assert_int_equal(quire_state_fork(p, 2, forks, &err), QUIRE_OK);
    append_gen(forks[1], 1, false);
    run_to_idle(ps, &got);
    x->n_running += MAX_RUNNING - 1; /* as if others ran */
    append_gen(forks[0], 200, true);
    assert_int_equal(quire_state_open(ps, NULL, &q, &err), QUIRE_OK);
    assert_int_equal(quire_state_tokens(q, ids, 2, &err), QUIRE_OK);
    append_gen(q, MAX_RUNNING, true);
    append_gen(forks[1], 2, true);
    x->n_running -= MAX_RUNNING - 1;
    run_to_idle(ps, &got);
    run_to_idle(ps, &got);
    assert_true(last_record(forks[1])->end_us <= last_record(q)->submitted_us);
    assert_true(last_record(q)->end_us <= last_record(forks[0])->submitted_us);
    quire_state_close(p);
    quire_state_close(q);
}

/* Who waits for room for many sequences is not passed for ever by calls of few. */
TEST(a_call_that_has_room_waits_after_others_that_have_not) {
    static const int32_t ids[] = {300, 301};
    engine_executor *x = ps->executor;
    quire_state *many, *one;
    quire_error err = {0};
    seen got;
    x->n_running += 1; /* as if another ran */
    assert_int_equal(quire_state_open(ps, NULL, &many, &err), QUIRE_OK);
    assert_int_equal(quire_state_tokens(many, ids, 2, &err), QUIRE_OK);
    append_gen(many, MAX_RUNNING, true);
    assert_int_equal(quire_state_open(ps, NULL, &one, &err), QUIRE_OK);
    assert_int_equal(quire_state_tokens(one, ids, 2, &err), QUIRE_OK);
    append_gen(one, 1, true);
    x->n_running -= 1;
    run_to_idle(ps, &got);
    run_to_idle(ps, &got);
    assert_true(last_record(many)->end_us <= last_record(one)->submitted_us);
    quire_state_close(many);
    quire_state_close(one);
}

/* ---- the order of turns, against a list that is searched ---- */

enum { N_CALLS = 300, N_ROOTS = 4 };

typedef struct made_call {
    program_root *root;
    quire_state state;
    program_call call;
    engine_call *k;
} made_call;

/* The place in `line` of the call whose turn it is: the first's, or that of the deepest
 * of its program, of equally deep ones the one that came first. */
static size_t turn_by_search(made_call *const *line, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        const made_call *a = line[i], *b = line[best];
        bool is_deeper = a->state.depth > b->state.depth ||
                         (a->state.depth == b->state.depth && a->k->arrival < b->k->arrival);
        best = a->root == line[0]->root && is_deeper ? i : best;
    }
    return best;
}

static void let_wait(made_call *m, engine_executor *x, program_root *root, int32_t depth) {
    m->root = root;
    m->state = (quire_state){.root = root, .depth = depth};
    m->call = (program_call){.state = &m->state};
    m->k = mem_new(1, sizeof *m->k);
    assert_non_null(m->k);
    *m->k = (engine_call){.x = x, .c = &m->call};
    assert_true(exec_must_wait(m->k, 1));
}

TEST(turns_are_those_that_a_search_finds) {
    static made_call made[N_CALLS];
    static program_root roots[N_ROOTS];
    made_call *line[N_CALLS];
    const uint64_t seed = rng_os_seed();
    uint64_t r = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    engine_executor x = {.n_running = MAX_RUNNING};
    size_t n = 0, next = 0;
    while (next < N_CALLS || n > 0) {
        const uint64_t what = rng_next(&r) % 8;
        if (what < 4 && next < N_CALLS) {
            line[n] = &made[next++];
            let_wait(line[n++], &x, &roots[rng_next(&r) % N_ROOTS], (int32_t)(rng_next(&r) % 5));
            continue;
        }
        if (n == 0) {
            continue;
        }
        size_t at = rng_next(&r) % n; /* one is cancelled */
        if (what != 4) {
            at = turn_by_search(line, n);
            x.n_running = 0;
            assert_ptr_equal(exec_take_turn(&x), line[at]->k);
            x.n_running = MAX_RUNNING;
        }
        exec_call_free(line[at]->k);
        line[at] = what != 4 ? line[0] : line[at]; /* the first has its place in return */
        for (size_t i = what != 4 ? 0 : at; i + 1 < n; i++) {
            line[i] = line[i + 1];
        }
        n--;
    }
    assert_null(x.waiting);
    for (int i = 0; i < N_ROOTS; i++) {
        assert_null(roots[i].of_executor);
    }
}

/* ---- a full engine ---- */

enum { N_PLACES = 1024 }; /* of an engine with few sequences */

/* Takes all places: rows that nobody reads as long as q is not. */
static quire_stream *take_all_places(quire_queue *q) {
    static int32_t ids[N_PLACES][2];
    static quire_input inputs[N_PLACES];
    const quire_embed_options o = {.pooling = "mean", .normalize = 0};
    const int64_t n_before = stats_of(e).step_rows;
    quire_request *r;
    quire_stream *s;
    quire_error err = {0};
    for (int i = 0; i < N_PLACES; i++) {
        ids[i][0] = 5 + i % 20;
        ids[i][1] = 30 + i / 20;
        inputs[i] = (quire_input){.ids = ids[i], .n_ids = 2};
    }
    assert_int_equal(quire_request_embed(e, inputs, N_PLACES, &o, &r, &err), QUIRE_OK);
    assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
    while (stats_of(e).step_rows < n_before + N_PLACES) {
        sleep_ms(1);
    }
    wait_until_idle(e);
    return s;
}

/* Gives n of the places back. */
static void give_places(quire_queue *q, int n) {
    quire_event ev;
    while (n > 0) {
        next_event(q, &ev);
        n -= ev.kind == QUIRE_EVENT_END ? 1 : 0;
    }
}

static void give_all_places(quire_queue *q, quire_stream *s) {
    quire_event ev = {0};
    while (ev.kind != QUIRE_EVENT_DONE) {
        next_event(q, &ev);
    }
    quire_stream_release(s);
}

/* A plain request is refused: the engine is full, and what was submitted before has been
 * refused a place too. */
static void expect_refused(quire_queue *q) {
    response a;
    submit(e, q, &a, "{\"prompt\": [300], \"max_tokens\": 1}");
    wait_done(q, &a);
    assert_int_equal(a.error.code, QUIRE_BUSY);
    quire_stream_release(a.stream);
    response_clear(&a);
}

#define WAITS                                                                                                \
    "{\"steps\": [{\"tokens\": [300, 301]}, {\"fork\": [[{\"gen\": \"a\", \"n\": 3, \"max_tokens\": 2}], "   \
    "[{\"gen\": \"b\", "                                                                                     \
    "\"max_tokens\": 2}, \" and\", {\"gen\": \"d\", \"max_tokens\": 2}], [{\"select\": \"c\", \"choices\": " \
    "[\" a\", \" b\"]}]]}]}"

/* Events of the programs as far as they come while plain requests are refused; none says
 * that a step failed. */
static void run_while_full(quire_queue *plain) {
    quire_program_event ev;
    for (int i = 0; i < 4; i++) {
        while (quire_programs_next(ps, &ev)) {
            assert_int_equal(ev.kind, QUIRE_PROGRAM_VALUE);
        }
        expect_refused(plain);
    }
}

TEST(a_full_engine_lets_programs_wait_and_refuses_others) {
    quire_queue *rows = queue_new(e), *plain = queue_new(e);
    const int64_t n_refused = stats_of(e).requests_refused;
    seen got;
    quire_stream *all = take_all_places(rows);
    quire_state *p = program_of(ps, WAITS);
    run_while_full(plain);
    give_places(rows, 1); /* enough for the prefix, and then for steps of one sequence */
    for (quire_program_event ev = {.kind = QUIRE_PROGRAM_TEXT}; ev.kind != QUIRE_PROGRAM_VALUE;) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
        }
    }
    give_all_places(rows, all);
    run_to_idle(ps, &got);
    assert_int_equal(got.n[QUIRE_PROGRAM_FAILED], 0);
    assert_int_equal(stats_of(e).requests_refused, n_refused + 4);
    quire_state_close(p);
    quire_queue_close(rows);
    quire_queue_close(plain);
}

/* Submits a row that is not read. False: it was refused. */
static bool take_place(quire_queue *q) {
    static const int32_t ids[] = {300, 302};
    const quire_input input = {.ids = ids, .n_ids = 2};
    const quire_embed_options o = {.pooling = "mean", .normalize = 0};
    wait_until_idle(e); /* all that was computed is counted */
    const int64_t n_rows = stats_of(e).step_rows, n_refused = stats_of(e).requests_refused;
    quire_request *r;
    quire_stream *s;
    quire_error err = {0};
    assert_int_equal(quire_request_embed(e, &input, 1, &o, &r, &err), QUIRE_OK);
    assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
    while (stats_of(e).step_rows == n_rows && stats_of(e).requests_refused == n_refused) {
        sleep_ms(1);
    }
    return stats_of(e).requests_refused == n_refused;
}

/* Requests that come whenever a place is free take no more than every other one. */
TEST(a_step_that_waits_for_many_places_gets_every_other_one) {
    enum { N = 4 };
    quire_queue *rows = queue_new(e), *plain = queue_new(e);
    static const char gen[] =
        "{\"steps\": [{\"tokens\": [300, 301]}, {\"gen\": \"a\", \"n\": 4, \"max_tokens\": 1}]}";
    quire_queue *takers[2 * N];
    int n_taken = 0;
    seen got;
    quire_stream *all = take_all_places(rows);
    quire_state *p = program_of(ps, gen);
    run_while_full(plain);
    for (int i = 0; i < 2 * N; i++) {
        takers[i] = queue_new(e);
        give_places(rows, 1);
        n_taken += take_place(takers[i]) ? 1 : 0;
    }
    assert_int_equal(n_taken, N);
    run_to_idle(ps, &got);
    assert_int_equal(got.n[QUIRE_PROGRAM_VALUE], 1);
    quire_state_close(p);
    for (int i = 0; i < N; i++) {
        assert_true(take_place(takers[i]));
    }
    p = program_of(ps, gen);
    run_while_full(plain);
    give_places(rows, 2);
    assert_true(take_place(takers[0]));
    assert_false(take_place(plain));
    quire_state_close(p); /* the places saved for it are free for all */
    while (!quire_programs_idle(ps)) {
        quire_program_event ev;
        assert_false(quire_programs_next(ps, &ev));
        quire_programs_wait(ps, 1000);
    }
    assert_true(take_place(takers[0]));
    for (int i = 0; i < 2 * N; i++) {
        quire_queue_close(takers[i]);
    }
    give_all_places(rows, all);
    quire_queue_close(rows);
    quire_queue_close(plain);
}

TEST(what_waits_for_a_place_is_cancelled_and_closed) {
    quire_queue *rows = queue_new(e), *plain = queue_new(e);
    quire_program_limits limits;
    quire_program_limits_init(&limits);
    limits.max_us = 1000;
    const quire_state_options o = {.size = sizeof o, .limits = &limits};
    quire_state *p, *late;
    quire_error err = {0};
    quire_program_event ev = {.kind = QUIRE_PROGRAM_TEXT};
    seen got;
    quire_stream *all = take_all_places(rows);
    p = program_of(ps, WAITS);
    run_while_full(plain);
    quire_state_cancel(p);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_CANCELLED);
    quire_state_close(p);
    p = program_of(ps, WAITS);
    run_while_full(plain);
    quire_state_close(p);
    /* it wakes by itself when its time is over */
    assert_int_equal(quire_program_open(ps, WAITS, sizeof WAITS - 1, &o, &late, &err), QUIRE_OK);
    while (ev.kind != QUIRE_PROGRAM_FAILED) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, -1);
        }
    }
    assert_int_equal(ev.error->code, QUIRE_TOO_LARGE);
    quire_state_close(late);
    while (!quire_programs_idle(ps)) {
        assert_false(quire_programs_next(ps, &ev));
        quire_programs_wait(ps, 1000000);
    }
    p = program_of(ps, WAITS); /* the programs are closed with it */
    run_while_full(plain);
    quire_programs_close(ps);
    give_all_places(rows, all);
    assert_int_equal(quire_programs_open(e, &ps), QUIRE_OK);
    quire_queue_close(rows);
    quire_queue_close(plain);
}

/* Turns are by arrival, and a program's is taken by its deepest step, which gives its own
 * in return. */
TEST(steps_wait_for_places_depth_first) {
    static const struct {
        uint64_t program;
        int32_t depth, turn;
    } steps[] = {{7, 1, 3}, {7, 1, 4}, {8, 9, 2}, {7, 2, 1}, {7, 3, 0}};
    enum { N = sizeof steps / sizeof *steps };
    quire_queue *rows = queue_new(e), *plain = queue_new(e), *q = queue_new(e);
    response a[N];
    quire_stream *all = take_all_places(rows);
    quire_event ev;
    for (int i = 0; i < N; i++) {
        quire_request *r = request_of(e, "{\"prompt\": [300], \"max_tokens\": 1}");
        quire_request_step(r, steps[i].program, steps[i].depth);
        submit_request(q, r, &a[i]);
    }
    expect_refused(plain);
    assert_false(quire_queue_next(q, &ev));
    give_places(rows, 1);
    for (int turn = 0; turn < N; turn++) { /* each gives its place to the next one */
        for (ev.kind = QUIRE_EVENT_START; ev.kind != QUIRE_EVENT_DONE; take(&ev)) {
            next_event(q, &ev);
        }
        int i = 0;
        while (steps[i].turn != turn) {
            i++;
        }
        assert_true(a[i].done);
    }
    give_all_places(rows, all);
    for (int i = 0; i < N; i++) {
        quire_stream_release(a[i].stream);
        response_clear(&a[i]);
    }
    quire_queue_close(rows);
    quire_queue_close(plain);
    quire_queue_close(q);
}

/* A gen that was prepared while another ran, and that finds too few places when it starts. */
TEST(a_prepared_gen_waits_for_places_too) {
    quire_queue *rows = queue_new(e);
    quire_stream *all = take_all_places(rows);
    quire_program_event ev = {0};
    seen got;
    give_places(rows, 1);
    quire_state *p = program_of(
        ps,
        "{\"steps\": [{\"tokens\": [300, 301]}, {\"gen\": \"a\", \"max_tokens\": 100, \"ignore_eos\": true}, "
        "{\"tokens\": [302]}, {\"gen\": \"b\", \"n\": 2, \"max_tokens\": 1}]}");
    while (ev.kind != QUIRE_PROGRAM_VALUE) { /* of a */
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
        }
    }
    for (int i = 0; i < 5; i++) { /* b starts */
        while (quire_programs_next(ps, &ev)) {
        }
        quire_programs_wait(ps, 20000);
    }
    give_all_places(rows, all);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    quire_state_close(p);
    quire_queue_close(rows);
}

/* Who waits for a place learns of it where it waits: the ring is taken there. */
TEST(a_place_that_another_gives_back_ends_a_wait) {
    quire_queue *rows = queue_new(e), *plain = queue_new(e), *q = queue_new(e);
    response a;
    quire_event ev;
    quire_stream *all = take_all_places(rows);
    quire_request *r = request_of(e, "{\"prompt\": [300], \"max_tokens\": 1}");
    quire_request_step(r, 7, 1);
    submit_request(q, r, &a);
    expect_refused(plain);
    assert_false(quire_queue_next(q, &ev));
    give_places(rows, 1);
    quire_queue_wait(q, -1);
    wait_done(q, &a);
    assert_int_equal(a.error.code, QUIRE_OK);
    quire_stream_release(a.stream);
    response_clear(&a);
    give_all_places(rows, all);
    quire_queue_close(rows);
    quire_queue_close(plain);
    quire_queue_close(q);
}
