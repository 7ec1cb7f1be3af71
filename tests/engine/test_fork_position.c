/* What a branch takes of its fork parent, and from whom: pages of its own tenant only,
 * pages that are still there, and a fork parent that is the one it names. Every step is
 * the test's. */
#include <stdio.h>

#include "seed.h"
#include "window_world.h"

enum { N_PROMPT = 37, N_GIVEN = 8, N_MORE = 30 };

/* A branch of a fork parent, and its whole text up to where it begins. */
typedef struct twig {
    harness_run run;
    int32_t tokens[256];
} twig;

/* Goes on from the fork parent's first `position` tokens, with given[0..n_given) after
 * them and n_more of its own. */
static void branch_off(harness *h, const harness_run *fork_from, int32_t position, const int32_t *given,
                       int32_t n_given, int32_t n_more, const char *namespace, twig *out) {
    quire_error err = {0};
    int32_t n = position + n_given, *tokens = mem_new((size_t)n, sizeof *tokens);
    memcpy(tokens, fork_from->prompt, (size_t)fork_from->n_prompt * sizeof *tokens);
    memcpy(tokens + fork_from->n_prompt, fork_from->tokens,
           (size_t)(position - fork_from->n_prompt) * sizeof *tokens);
    if (n_given > 0) {
        memcpy(tokens + position, given, (size_t)n_given * sizeof *tokens);
    }
    *out = (twig){
        .run = {.prompt = out->tokens, .n_prompt = n, .sampling = greedy(n - fork_from->n_prompt + n_more)}};
    memcpy(out->tokens, tokens, (size_t)n * sizeof *tokens);
    engine_request r = {.tokens = tokens,
                        .n_tokens = n,
                        .sampling = out->run.sampling,
                        .namespace = namespace,
                        .n_namespace = strlen(namespace),
                        .fork_position = position,
                        .n_prompt = fork_from->n_prompt,
                        .out = h->out,
                        .user = &out->run};
    assert_int_equal(engine_fork_acquire(h->e, fork_from->id, &r.fork_from), QUIRE_OK);
    assert_int_equal(engine_submit(h->e, &r, &out->run.id, &err), QUIRE_OK);
    engine_fork_release(r.fork_from);
}

/* Tokens that `namespace` finds of a text in the cache. */
static int32_t found_by(harness *h, const char *namespace, const int32_t *text, int32_t n) {
    harness_run r = {.prompt = text, .n_prompt = n, .sampling = greedy(1), .namespace = namespace};
    harness_submit(h, &r);
    harness_steps(h, 10);
    assert_int_equal(r.finish, FINISH_LENGTH);
    return r.n_cached;
}

/* A tenant's branch of another tenant's stream is a request like any other: it computes
 * all its tokens, and what it computes is its own tenant's. */
static void check_tenants(const char *namespace, bool same) {
    static harness_run fork_from;
    static twig fork;
    static int32_t prompt[N_PROMPT], given[N_GIVEN], text[256];
    harness h = {0};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    harness_open(&o, &h);
    harness_take_over(&h);
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    fork_from =
        (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(80), .namespace = "test"};
    harness_submit(&h, &fork_from);
    harness_steps(&h, 11);
    assert_int_equal(fork_from.n_tokens, 11);
    for (int i = 0; i < N_GIVEN; i++) {
        given[i] = 100 + i;
    }
    given[0] += fork_from.tokens[5] == given[0]; /* not what the fork parent says there */
    int32_t at = N_PROMPT + 5, n = at + N_GIVEN;
    branch_off(&h, &fork_from, at, given, N_GIVEN, N_MORE, namespace, &fork);
    assert_true(harness_step(&h));
    assert_int_equal(h.e->step.rows.n_rows, 1 + (same ? N_GIVEN : n)); /* one is the fork parent's */
    harness_steps(&h, 200);
    assert_int_equal(fork.run.finish, FINISH_LENGTH);
    assert_int_equal(fork.run.n_tokens, N_MORE);
    assert_int_equal(fork_from.finish, FINISH_LENGTH);
    memcpy(text, fork.tokens, (size_t)n * sizeof *text);
    memcpy(text + n, fork.run.tokens, N_MORE * sizeof *text);
    assert_true(found_by(&h, namespace, text, n + N_MORE) >= n + N_MORE - 1);
    if (!same) { /* a chance token apart, "test" finds what its own fork parent says and no more */
        twig other = fork;
        memcpy(other.tokens, text, sizeof text);
        assert_in_range(found_by(&h, "test", text, n + N_MORE), at, at + 1);
    }
    harness_run again = {.prompt = text, .n_prompt = n, .sampling = greedy(N_MORE), .namespace = "nobody"};
    harness_submit(&h, &again);
    harness_steps(&h, 100);
    assert_memory_equal(again.tokens, fork.run.tokens, N_MORE * sizeof(int32_t));
    harness_close(&h);
}

TEST(a_branch_takes_no_page_of_another_tenants_stem) {
    check_tenants("test", true);
    check_tenants("tesu", false);
    check_tenants("tes", false); /* a name that begins another is another name */
    check_tenants("test2", false);
}

/* A place in the table goes to the next request once its end was read; who still names
 * the one before has no fork parent. */
TEST(the_next_request_in_its_place_is_no_stem_for_who_named_the_last) {
    harness h = {0};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    harness_open(&o, &h);
    harness_take_over(&h);
    int32_t prompt[N_PROMPT];
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    harness_run first = {.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(2), .namespace = "one"},
                second = first;
    second.namespace = "two";
    harness_submit(&h, &first);
    request_id was = first.id;
    engine_fork *fork_from;
    assert_int_equal(engine_fork_acquire(h.e, was, &fork_from), QUIRE_OK);
    engine_fork_release(fork_from);
    harness_steps(&h, 10);
    harness_submit(&h, &second);
    assert_int_equal(second.id.index, was.index);
    assert_int_not_equal(second.id.generation, was.generation);
    assert_int_equal(engine_fork_acquire(h.e, was, &fork_from), QUIRE_NOT_FOUND);
    assert_null(fork_from);
    assert_int_equal(engine_fork_acquire(h.e, second.id, &fork_from), QUIRE_OK);
    engine_fork_release(fork_from);
    harness_steps(&h, 10);
    harness_close(&h);
}

/* The tenant of a steered stream pays for the tokens that it gives, as for those of a
 * prompt. */
TEST(what_a_branch_is_given_is_paid_for) {
    static harness_run fork_from;
    static twig fork;
    int32_t prompt[N_PROMPT], given[N_GIVEN];
    harness h = {0};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    harness_open(&o, &h);
    harness_take_over(&h);
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    random_prompt(&seed, h.n_vocab, N_GIVEN, given);
    fork_from = (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(80)};
    harness_submit(&h, &fork_from);
    harness_steps(&h, 11);
    const scheduler *s = &h.e->sched;
    int32_t slot = s->running[0]->tenant_slot;
    double before = service_counters_of(&s->service, slot);
    branch_off(&h, &fork_from, N_PROMPT + 5, given, N_GIVEN, N_MORE, "test", &fork);
    assert_true(harness_step(&h));
    assert_int_equal(h.e->step.rows.n_rows, 1 + N_GIVEN);
    assert_true(service_counters_of(&s->service, slot) - before ==
                N_GIVEN * SERVICE_PROMPT_WEIGHT + 2 * SERVICE_OUTPUT_WEIGHT);
    harness_steps(&h, 200);
    assert_int_equal(fork.run.finish, FINISH_LENGTH);
    harness_close(&h);
}

/* ---- windows that have gone on ---- */

enum { SHORT_PROMPT = 19, LONG_OUT = 200, PAGE = 8, GROWN = 110 };

/* Whether a fork parent that has computed n_computed tokens still has the pages that a
 * window sees from token n. */
static bool has_window(int32_t n, int32_t n_computed) {
    int32_t first = n < WINDOW ? 0 : n - WINDOW + 1, kept = n_computed < WINDOW ? 0 : n_computed - WINDOW + 1;
    return first / PAGE >= kept / PAGE;
}

/* Forks of a long fork parent from everywhere: whose window the fork parent still has
 * shares its pages and computes a row; whose window has gone is computed again. */
static void check_windows(layer_kind odd, prefix_cache cache) {
    static harness_run plain, fork_from;
    static twig fork;
    int32_t prompt[SHORT_PROMPT], n_shared = 0, n_again = 0;
    harness h;
    harness_options o = harness_defaults;
    o.page_tokens = PAGE;
    o.max_rows = 256; /* a whole text in a step */
    o.prefix_cache = cache;
    random_prompt(&seed, 2048, SHORT_PROMPT, prompt);
    plain = fork_from =
        (harness_run){.prompt = prompt, .n_prompt = SHORT_PROMPT, .sampling = greedy(LONG_OUT)};
    open_windowed(o, LAYER_WINDOW, odd, false, &h);
    harness_submit(&h, &plain);
    harness_wait(&h, 1);
    harness_close(&h);
    open_windowed(o, LAYER_WINDOW, odd, true, &h);
    harness_take_over(&h);
    harness_submit(&h, &fork_from);
    harness_steps(&h, GROWN - SHORT_PROMPT);
    const sequence *s = running_at(h.e, 0);
    for (int32_t back = 0; back < 90; back += back < 20 ? 1 : 11) {
        int32_t at = s->task.n_known - back;
        bool shared = has_window(at - 1, s->task.kv.n_computed);
        branch_off(&h, &fork_from, at, NULL, 0, 2, "test", &fork);
        assert_true(harness_step(&h));
        int32_t rows = h.e->step.rows.n_rows - 1;
        if (cache == PREFIX_CACHE_NONE || shared) {
            assert_int_equal(rows, shared ? 1 : at);
        } else {
            assert_in_range(rows, 1, at);
        }
        n_shared += shared;
        n_again += !shared;
        harness_steps(&h, 1);
        assert_int_equal(fork.run.finish, FINISH_LENGTH);
        assert_memory_equal(fork.run.tokens, plain.tokens + at - SHORT_PROMPT, 2 * sizeof(int32_t));
    }
    assert_true(n_shared > 2 && n_again > 2);
    harness_steps(&h, LONG_OUT);
    /* forks write into no page of their fork parent */
    assert_memory_equal(fork_from.tokens, plain.tokens, LONG_OUT * sizeof(int32_t));
    harness_close(&h);
}

TEST(a_branch_from_before_its_stems_window_is_computed_again) {
    static const layer_kind odd[] = {LAYER_WINDOW, LAYER_FULL};
    for (int i = 0; i < 2; i++) {
        check_windows(odd[i], PREFIX_CACHE_NONE);
        check_windows(odd[i], PREFIX_CACHE_TOKEN);
    }
}

TEST_MAIN_SEEDED(NULL, NULL)
