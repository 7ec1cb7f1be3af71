/* Several engines on one thread: each one's requests come to the same end as alone, each
 * gets its share of the steps, and they come and go while others run. */
#define MODEL TINY
#include "engine/team.h"
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

/* Requests of `few` take no more steps of `flooded` than they have of their own, and a few:
 * its share is a half. */
static void expect_share(harness *few, harness *flooded) {
    static team_load flood[N_FLOOD], l;
    engine_profile before, after;
    flood_submit(flooded, flood);
    load_make(&l, few->n_vocab, 7, N_TOKENS);
    engine_profile_read(flooded->e, &before);
    load_submit(few, &l);
    harness_wait(few, N_RUNS);
    engine_profile_read(flooded->e, &after);
    /* steps of few rows take less time than those of many, so the flood has fewer */
    assert_true(after.steps - before.steps <= 4 * N_TOKENS);
    flood_end(flooded, flood);
}

TEST(a_flood_of_one_engine_leaves_the_other_its_share) {
    harness h[2] = {0};
    for (int i = 0; i < 2; i++) {
        const harness_options o = beside(i > 0 ? &h[0] : NULL, TINY);
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
        const harness_options o = beside(i > 0 ? &h[0] : NULL, TINY);
        harness_open(&o, &h[i]);
    }
    flood_submit(&h[0], alone);
    harness_wait(&h[0], N_FLOOD * N_RUNS);
    expect_share(&h[0], &h[1]);
    const harness_options o = beside(&h[0], TINY);
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
            assert_int_equal(l->runs[0].finish, FINISH_CANCELLED);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_of_a_team_give_what_each_gives_alone),
        cmocka_unit_test(a_flood_of_one_engine_leaves_the_other_its_share),
        cmocka_unit_test(an_engine_that_was_alone_has_its_share_as_before),
        cmocka_unit_test(engines_come_and_go_while_another_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
