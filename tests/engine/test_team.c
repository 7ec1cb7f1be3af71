/* Several engines on one thread: each one's requests come to the same end as alone, each
 * gets its share of the steps, and they come and go while others run. */
#define MODEL TINY
#include "engine/harness.h"

#include <pthread.h>

#define N_RUNS   6
#define N_TOKENS 24

/* Requests of an engine, with prompts of their own. */
typedef struct team_load {
    int32_t prompts[N_RUNS][40];
    harness_run runs[N_RUNS];
} team_load;

static void load_make(team_load *l, int32_t n_vocab, uint64_t seed, int32_t max_tokens) {
    for (int i = 0; i < N_RUNS; i++) {
        for (int k = 0; k < 40; k++) {
            l->prompts[i][k] = (int32_t)(rng_next(&seed) % (uint64_t)n_vocab);
        }
        l->runs[i] = (harness_run){.prompt = l->prompts[i], .n_prompt = 10 + 5 * i};
        sampling_params_init(&l->runs[i].sampling);
        l->runs[i].sampling.max_tokens = max_tokens;
        l->runs[i].sampling.ignore_eos = true;
        l->runs[i].sampling.temperature = 0.0f;
    }
}

static void load_submit(harness *h, team_load *l) {
    for (int i = 0; i < N_RUNS; i++) {
        harness_submit(h, &l->runs[i]);
        assert_int_equal(l->runs[i].error, QUIRE_OK);
    }
}

static void load_expect_same(const team_load *a, const team_load *b) {
    for (int i = 0; i < N_RUNS; i++) {
        assert_int_equal(a->runs[i].finish, b->runs[i].finish);
        assert_int_equal(a->runs[i].n_tokens, b->runs[i].n_tokens);
        assert_memory_equal(a->runs[i].tokens, b->runs[i].tokens, sizeof(int32_t) * N_TOKENS);
    }
}

static harness_options beside(const harness *h, const char *path) {
    harness_options o = harness_defaults;
    o.beside = h;
    o.path = path;
    o.n_threads = 2;
    return o;
}

/* What the engine of that model gives alone. */
static void run_alone(const char *path, uint64_t seed, team_load *l) {
    harness h = {0};
    const harness_options o = beside(NULL, path);
    harness_open(&o, &h);
    load_make(l, h.n_vocab, seed, N_TOKENS);
    load_submit(&h, l);
    harness_wait(&h, N_RUNS);
    harness_close(&h);
}

TEST(engines_of_a_team_give_what_each_gives_alone) {
    static team_load alone[3], together[3];
    const char *paths[3] = {TINY, SIBLING, TINY};
    harness h[3] = {0};
    for (int i = 0; i < 3; i++) {
        run_alone(paths[i], 7 + (uint64_t)i, &alone[i]);
    }
    for (int i = 0; i < 3; i++) {
        const harness_options o = beside(i > 0 ? &h[0] : NULL, paths[i]);
        harness_open(&o, &h[i]);
        assert_ptr_equal(h[i].e->team, h[0].e->team);
        assert_int_equal(h[i].b->ops->n_workers(h[i].b), 2);
        load_make(&together[i], h[i].n_vocab, 7 + (uint64_t)i, N_TOKENS);
        harness_hold(&h[i]);
    }
    for (int i = 0; i < 3; i++) {
        load_submit(&h[i], &together[i]);
    }
    for (int i = 0; i < 3; i++) {
        engine_release(h[i].e);
    }
    for (int i = 0; i < 3; i++) {
        harness_wait(&h[i], N_RUNS);
        load_expect_same(&alone[i], &together[i]);
    }
    harness_close(&h[0]); /* the first one, whose compute threads the others go on to use */
    load_make(&together[2], h[2].n_vocab, 9, N_TOKENS);
    load_submit(&h[2], &together[2]);
    harness_wait(&h[2], N_RUNS);
    load_expect_same(&alone[2], &together[2]);
    harness_close(&h[1]);
    harness_close(&h[2]);
}

enum { N_FLOOD = 4 };

/* Far more requests than can be done meanwhile. */
static void flood_submit(harness *h, team_load flood[N_FLOOD]) {
    harness_hold(h);
    for (int k = 0; k < N_FLOOD; k++) {
        load_make(&flood[k], h->n_vocab, 100 + (uint64_t)k, 400);
        load_submit(h, &flood[k]);
    }
    engine_release(h->e);
}

static void flood_end(harness *h, team_load flood[N_FLOOD]) {
    int32_t n_ended = 0;
    for (int k = 0; k < N_FLOOD; k++) {
        for (int i = 0; i < N_RUNS; i++) {
            engine_cancel(h->e, flood[k].runs[i].id);
            n_ended += flood[k].runs[i].finish != FINISH_NONE;
        }
    }
    harness_wait(h, N_FLOOD * N_RUNS - n_ended);
}

/* Time of two engines' steps while one of them has requests, as the team measured it: what
 * else the machine does meanwhile counts for whoever's step it delays, for team and test
 * alike. */
static struct {
    const backend_ops *own; /* what is wrapped */
    backend_ops ops;
    const harness *few, *flooded;
    const backend *last; /* of the step before; NULL: it does not count */
    double longest_us, few_us, flooded_us;
} shares;

static void share_add(const harness *h, double *sum_us) {
    const double us = h->e->turn.step_us;
    *sum_us += us;
    shares.longest_us = us > shares.longest_us ? us : shares.longest_us;
}

static void share_wait(backend *b) {
    shares.own->step_wait(b);
    const engine *e = shares.few != NULL ? shares.few->e : NULL;
    const bool counts = e != NULL && !atomic_load(&e->paused) && e->sched.n_running + e->sched.n_waiting > 0;
    if (counts && shares.last == shares.few->b) {
        share_add(shares.few, &shares.few_us);
    } else if (counts && shares.last == shares.flooded->b) {
        share_add(shares.flooded, &shares.flooded_us);
    }
    shares.last = counts ? b : NULL;
}

static const backend_ops *share_wrap(const backend_ops *ops, const model_desc *d) {
    (void)d;
    if (shares.own == NULL) { /* for the first engine: the team's thread reads it afterwards */
        shares.own = ops;
        shares.ops = *ops;
        shares.ops.step_wait = share_wait;
    }
    assert_ptr_equal(shares.own, ops);
    return &shares.ops;
}

/* An engine whose steps are counted. */
static harness_options counted(const harness *host) {
    harness_options o = beside(host, TINY);
    o.wrap = share_wrap;
    return o;
}

/* While `few` has requests, `flooded` has no more time than they: its share is a half. */
static void expect_share(harness *few, harness *flooded) {
    static team_load flood[N_FLOOD], l;
    harness_hold(few);
    harness_hold(flooded);
    shares.few_us = shares.flooded_us = shares.longest_us = 0;
    shares.flooded = flooded;
    shares.few = few;
    shares.last = NULL;
    flood_submit(flooded, flood);
    load_make(&l, few->n_vocab, 7, N_TOKENS);
    load_submit(few, &l);
    engine_release(few->e);
    harness_wait(few, N_RUNS);
    print_message("%.0f us beside %.0f us of a flood; longest step: %.0f us\n", shares.few_us,
                  shares.flooded_us, shares.longest_us);
    assert_true(shares.few_us > 0 && shares.flooded_us <= shares.few_us + 3 * shares.longest_us);
    flood_end(flooded, flood);
    shares.few = NULL;
}

TEST(a_flood_of_one_engine_leaves_the_other_its_share) {
    harness h[2] = {0};
    for (int i = 0; i < 2; i++) {
        const harness_options o = counted(i > 0 ? &h[0] : NULL);
        harness_open(&o, &h[i]);
    }
    expect_share(&h[1], &h[0]);
    harness_close(&h[1]);
    harness_close(&h[0]);
}

/* The time that it had alone is not held against it: not by an engine that was idle
 * meanwhile, nor by one that came after. */
TEST(an_engine_that_was_alone_has_its_share_as_before) {
    static team_load alone[N_FLOOD];
    harness h[3] = {0};
    for (int i = 0; i < 2; i++) {
        const harness_options o = counted(i > 0 ? &h[0] : NULL);
        harness_open(&o, &h[i]);
    }
    flood_submit(&h[0], alone);
    harness_wait(&h[0], N_FLOOD * N_RUNS);
    expect_share(&h[0], &h[1]);
    const harness_options o = counted(&h[0]);
    harness_open(&o, &h[2]);
    expect_share(&h[0], &h[2]);
    for (int i = 2; i >= 0; i--) {
        harness_close(&h[i]);
    }
}

typedef struct visitor {
    const harness *host;
    const team_load *expected;
    uint64_t seed;
    int32_t n_rounds;
} visitor;

/* Opens an engine beside the host's, runs requests, and closes it, over and over; every
 * other time with requests that are not over. */
static void *visit(void *arg) {
    const visitor *v = arg;
    team_load *l = mem_new(1, sizeof *l);
    assert_non_null(l);
    for (int32_t i = 0; i < v->n_rounds; i++) {
        harness h = {0};
        const harness_options o = beside(v->host, SIBLING);
        harness_open(&o, &h);
        load_make(l, h.n_vocab, v->seed, i % 2 == 0 ? N_TOKENS : 400);
        load_submit(&h, l);
        if (i % 2 == 0) {
            harness_wait(&h, N_RUNS);
            load_expect_same(v->expected, l);
        } else {
            engine_stop(h.e);
            harness_wait(&h, N_RUNS);
            for (int k = 0; k < N_RUNS; k++) { /* one may be over, where this thread had to wait */
                assert_true(l->runs[k].finish == FINISH_CANCELLED || l->runs[k].n_tokens == 400);
            }
        }
        harness_close(&h);
    }
    mem_free(l);
    return NULL;
}

TEST(engines_come_and_go_while_another_runs) {
    enum { N_VISITORS = 3, ROUNDS = 6 };
    static team_load alone, expected, l;
    pthread_t threads[N_VISITORS];
    harness host = {0};
    run_alone(TINY, 5, &alone);
    run_alone(SIBLING, 3, &expected);
    const harness_options o = beside(NULL, TINY);
    harness_open(&o, &host);
    visitor v = {.host = &host, .expected = &expected, .seed = 3, .n_rounds = ROUNDS};
    for (int i = 0; i < N_VISITORS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &v), 0);
    }
    for (int i = 0; i < 20; i++) {
        load_make(&l, host.n_vocab, 5, N_TOKENS);
        load_submit(&host, &l);
        harness_wait(&host, N_RUNS);
        load_expect_same(&alone, &l);
    }
    for (int i = 0; i < N_VISITORS; i++) {
        pthread_join(threads[i], NULL);
    }
    harness_close(&host);
}

/* ---- one budget for all of their pages ---- */

enum { PAGES = 64, SIZE = 16, FLOOR = 18, N_LONG = 6, LONG_TOKENS = 240 };

/* Options of an engine that shares memory of PAGES pages of TINY; its longest sequence has
 * FLOOR pages. */
static harness_options sharing(const harness *host, const char *path) {
    harness_options o = beside(host, path);
    harness like = {0};
    const harness_options plain = beside(NULL, path), tiny = beside(NULL, TINY);
    harness_open(&tiny, &like);
    o.budget_bytes = PAGES * like.layout.page_bytes;
    harness_close(&like);
    harness_open(&plain, &like);
    o.n_pages = (int32_t)(o.budget_bytes / like.layout.page_bytes);
    harness_close(&like);
    o.floor_pages = FLOOR;
    o.page_tokens = SIZE;
    return o;
}

static kv_budget_counts count_budget(const harness *h) {
    return kv_budget_count(h->budget);
}

/* Long sequences of an engine. */
static void long_submit(harness *h, team_load *l, uint64_t seed) {
    load_make(l, h->n_vocab, seed, LONG_TOKENS);
    load_submit(h, l);
}

static void long_expect(const team_load *alone, const team_load *l) {
    for (int i = 0; i < N_LONG; i++) {
        assert_int_equal(l->runs[i].finish, FINISH_LENGTH);
        assert_int_equal(l->runs[i].n_tokens, LONG_TOKENS);
        assert_memory_equal(alone->runs[i].tokens, l->runs[i].tokens, sizeof(int32_t) * LONG_TOKENS);
    }
}

static void long_alone(const char *path, uint64_t seed, team_load *l) {
    harness h = {0};
    const harness_options o = beside(NULL, path);
    harness_open(&o, &h);
    long_submit(&h, l, seed);
    harness_wait(&h, N_LONG);
    harness_close(&h);
}

/* Each engine's sequences would take the whole budget twice. All of them end, with the
 * tokens that they have alone. */
TEST(engines_whose_sequences_exceed_their_budget_all_end) {
    static team_load alone[3], together[3];
    const char *paths[3] = {TINY, SIBLING, TINY};
    harness h[3] = {0};
    int64_t preemptions = 0;
    for (int i = 0; i < 3; i++) {
        harness_options o = sharing(i > 0 ? &h[0] : NULL, paths[i]);
        o.floor_pages = i == 1 ? FLOOR : FLOOR + 1;
        long_alone(paths[i], 20 + (uint64_t)i, &alone[i]);
        harness_open(&o, &h[i]);
        harness_hold(&h[i]);
    }
    assert_true(count_budget(&h[0]).promised_bytes <= count_budget(&h[0]).bytes);
    for (int i = 0; i < 3; i++) {
        long_submit(&h[i], &together[i], 20 + (uint64_t)i);
    }
    for (int i = 0; i < 3; i++) {
        engine_release(h[i].e);
    }
    for (int i = 0; i < 3; i++) {
        quire_stats stats;
        harness_wait(&h[i], N_LONG);
        long_expect(&alone[i], &together[i]);
        engine_stats_read(h[i].e, &stats);
        preemptions += stats.preemptions;
    }
    print_message("%d preemptions\n", (int)preemptions);
    assert_true(preemptions > 0);
    for (int i = 2; i > 0; i--) {
        harness_close(&h[i]);
    }
    harness_close(&h[0]);
}

/* What an idle engine has cached makes room for another one, without a preemption, and
 * statistics say so. */
TEST(cached_pages_of_an_idle_engine_become_anothers) {
    static team_load alone, l;
    harness h[2] = {0};
    long_alone(TINY, 31, &alone);
    for (int i = 0; i < 2; i++) {
        const harness_options o = sharing(i > 0 ? &h[0] : NULL, TINY);
        harness_open(&o, &h[i]);
    }
    for (int i = 0; i < 2; i++) {
        quire_stats stats[2];
        quire_page_memory m[2];
        /* two at a time: PAGES hold them, and no third one */
        for (int k = 0; k < N_LONG; k += 2) {
            load_make(&l, h[i].n_vocab, 31, LONG_TOKENS);
            harness_submit(&h[i], &l.runs[k]);
            harness_submit(&h[i], &l.runs[k + 1]);
            harness_wait(&h[i], 2);
            assert_memory_equal(alone.runs[k].tokens, l.runs[k].tokens, sizeof(int32_t) * LONG_TOKENS);
        }
        for (int k = 0; k < 2; k++) {
            engine_stats_read(h[k].e, &stats[k]);
            engine_page_memory_read(h[k].e, &m[k]);
            assert_int_equal(stats[k].preemptions, 0);
        }
        assert_true(stats[i].n_pages_cached > PAGES / 2);
        assert_int_equal(m[0].own_bytes + m[1].own_bytes, m[0].used_bytes);
        assert_int_equal(m[0].used_bytes, count_budget(&h[0]).used_bytes);
        assert_true(i == 0 || stats[0].n_pages_cached < PAGES / 2);
    }
    harness_close(&h[1]);
    harness_close(&h[0]);
}

/* What an engine has parked is held, and gives way to one that is below its floor. */
TEST(parks_of_an_engine_give_way_to_another_below_its_floor) {
    static team_load alone, l[2];
    harness h[2] = {0};
    engine_park *parks[N_LONG];
    quire_stats stats;
    long_alone(TINY, 51, &alone);
    for (int i = 0; i < 2; i++) {
        harness_options o = sharing(i > 0 ? &h[0] : NULL, TINY);
        o.parked_bytes = o.budget_bytes;
        harness_open(&o, &h[i]);
    }
    load_make(&l[0], h[0].n_vocab, 50, LONG_TOKENS);
    for (int i = 0; i < N_LONG; i++) {
        assert_int_equal(engine_park_open(h[0].e, &parks[i]), QUIRE_OK);
        l[0].runs[i].park = parks[i];
        harness_submit(&h[0], &l[0].runs[i]);
        harness_wait(&h[0], 1);
    }
    engine_stats_read(h[0].e, &stats);
    assert_true(stats.n_pages_held > PAGES - FLOOR);
    long_submit(&h[1], &l[1], 51);
    harness_wait(&h[1], N_LONG);
    long_expect(&alone, &l[1]);
    engine_stats_read(h[0].e, &stats);
    assert_true(stats.n_pages_held <= PAGES - FLOOR);
    assert_true(stats.n_pages_held > 0);
    long_submit(&h[1], &l[1], 51); /* it runs on while the other one closes, with what it holds */
    engine_stop(h[0].e);
    for (int i = 0; i < N_LONG; i++) {
        engine_park_close(parks[i]);
    }
    engine_out_close(h[0].out);
    engine_close(h[0].e);
    h[0].e = NULL;
    harness_wait(&h[1], N_LONG);
    long_expect(&alone, &l[1]);
    harness_close(&h[1]);
    harness_close(&h[0]);
}

/* Engines come, with weights that take of the memory of pages, while another one holds all
 * of it, and go. One that does not fit is refused. */
TEST(engines_of_one_budget_come_and_go_while_another_holds_all_of_it) {
    static team_load host_alone, guest_alone, l[2];
    harness host = {0}, guest, refused;
    long_alone(TINY, 41, &host_alone);
    long_alone(SIBLING, 42, &guest_alone);
    harness_options o = sharing(NULL, TINY), small = o;
    harness_open(&o, &host);
    const kv_budget_counts before = count_budget(&host);
    small = sharing(&host, SIBLING);
    for (int round = 0; round < 4; round++) {
        quire_error err;
        long_submit(&host, &l[0], 41);
        small.fixed_bytes = before.bytes / 8;
        harness_open(&small, &guest);
        assert_true(count_budget(&host).fixed_bytes == small.fixed_bytes);
        small.fixed_bytes = before.bytes / 2;
        assert_int_equal(harness_try_open(&small, &refused, &err), QUIRE_NO_MEMORY);
        assert_non_null(strstr(err.message, "do not fit"));
        harness_close(&refused);
        if (round % 2 == 0) {
            long_submit(&guest, &l[1], 42);
            harness_wait(&guest, N_LONG);
            long_expect(&guest_alone, &l[1]);
        }
        harness_close(&guest);
        harness_wait(&host, N_LONG);
        long_expect(&host_alone, &l[0]);
        const kv_budget_counts after = count_budget(&host);
        assert_true(after.fixed_bytes == 0 && after.promised_bytes == before.promised_bytes &&
                    after.n_pools == 1);
    }
    harness_close(&host);
}

TEST_MAIN(NULL, NULL)
