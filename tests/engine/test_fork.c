
#include "core/params.h"
#include "engine/harness.h"
#include "test.h"

enum { MAX_SAMPLES = 64 };

/* One group: its prompt, and what came of each sample. */
typedef struct group {
    int32_t prompt[400];
    int32_t n_prompt, n;
    sampling_params sampling;
    harness_run runs[MAX_SAMPLES];
} group;

static void group_init(group *g, harness *h, int32_t n_prompt, int32_t n, float temperature,
                       int32_t max_tokens) {
    uint64_t seed = 5 + (uint64_t)n_prompt;
    g->n_prompt = n_prompt;
    g->n = n;
    g->sampling = greedy(max_tokens);
    g->sampling.temperature = temperature;
    g->sampling.seed = 99;
    random_prompt(&seed, h->n_vocab, n_prompt, g->prompt);
    for (int32_t i = 0; i < n; i++) {
        g->runs[i] = (harness_run){.prompt = g->prompt, .n_prompt = n_prompt, .sampling = g->sampling};
    }
}

static engine_request request_of(harness *h, group *g) {
    int32_t *tokens = mem_new((size_t)g->n_prompt, sizeof *tokens);
    memcpy(tokens, g->prompt, (size_t)g->n_prompt * sizeof *tokens);
    return (engine_request){.tokens = tokens,
                            .n_tokens = g->n_prompt,
                            .sampling = g->sampling,
                            .namespace = "test",
                            .n_namespace = 4,
                            .out = h->out};
}

static void submit(harness *h, group *g, request_id *ids) {
    void *users[MAX_SAMPLES];
    quire_error err = {0};
    engine_request r = request_of(h, g);
    for (int32_t i = 0; i < g->n; i++) {
        users[i] = &g->runs[i];
    }
    assert_int_equal(engine_submit_samples(h->e, &r, g->n, users, ids, &err), QUIRE_OK);
}

/* Sample k of g as a request of its own. */
static void run_alone(harness *h, group *g, int32_t k, harness_run *out) {
    quire_error err = {0};
    engine_request r = request_of(h, g);
    *out = g->runs[k];
    out->n_tokens = 0;
    r.sample_index = (uint32_t)k;
    r.user = out;
    assert_int_equal(engine_submit(h->e, &r, &out->id, &err), QUIRE_OK);
    harness_wait(h, 1);
}

static int64_t rows_so_far(harness *h) {
    return harness_idle_stats(h).step_rows;
}

TEST(a_group_equals_its_samples_alone_and_computes_the_prompt_once) {
    static const int32_t lengths[] = {1, 15, 16, 37, 200};
    for (int cache = 0; cache < 2; cache++) {
        for (int warm = 0; warm < 2; warm++) {
            harness_options o = harness_defaults;
            o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
            harness h;
            harness_open(&o, &h);
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                static group g;
                request_id ids[MAX_SAMPLES];
                group_init(&g, &h, lengths[i], 6, warm ? 1.0f : 0.0f, 9);
                int64_t before = rows_so_far(&h);
                submit(&h, &g, ids);
                harness_wait(&h, g.n);
                /* the last token of each is never computed */
                assert_int_equal(rows_so_far(&h) - before, g.n_prompt + g.n * 8);
                for (int32_t k = 0; k < g.n; k++) {
                    harness_run alone;
                    run_alone(&h, &g, k, &alone);
                    assert_int_equal(g.runs[k].finish, FINISH_LENGTH);
                    assert_int_equal(g.runs[k].n_tokens, 9);
                    assert_memory_equal(g.runs[k].tokens, alone.tokens, 9 * sizeof(int32_t));
                    assert_true(warm || memcmp(g.runs[k].tokens, g.runs[0].tokens, 9 * sizeof(int32_t)) == 0);
                }
            }
            harness_close(&h);
        }
    }
}

TEST(without_sharing_every_sample_computes_the_prompt_and_says_the_same) {
    static group shared, apart;
    group *groups[] = {&shared, &apart};
    for (int i = 0; i < 2; i++) {
        harness_options o = harness_defaults;
        request_id ids[MAX_SAMPLES];
        harness h;
        o.prefix_cache = PREFIX_CACHE_NONE;
        o.ablations.no_fork_sharing = i == 1;
        harness_open(&o, &h);
        group_init(groups[i], &h, 37, 6, 1.0f, 9);
        submit(&h, groups[i], ids);
        harness_wait(&h, 6);
        assert_int_equal(rows_so_far(&h), (i == 1 ? 6 : 1) * 37 + 6 * 8);
        harness_close(&h);
    }
    for (int k = 0; k < 6; k++) {
        assert_memory_equal(shared.runs[k].tokens, apart.runs[k].tokens, 9 * sizeof(int32_t));
    }
}

TEST(many_samples_hold_their_prompt_once) {
    for (int cache = 0; cache < 2; cache++) {
        harness_options o = harness_defaults;
        o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        o.max_seqs = 64;
        o.n_pages = 25 + 64 + 2; /* 400 tokens of prompt, and one page for each sample */
        harness h;
        harness_open(&o, &h);
        static group g;
        request_id ids[MAX_SAMPLES];
        group_init(&g, &h, 400, 64, 1.0f, 16);
        submit(&h, &g, ids);
        harness_wait(&h, g.n);
        quire_stats s = harness_idle_stats(&h);
        assert_int_equal(s.preemptions, 0);
        assert_int_equal(s.step_rows, 400 + 64 * 15);
        harness_close(&h);
    }
}

TEST(where_places_to_run_are_fewer_than_samples_the_rest_wait) {
    for (int cache = 0; cache < 2; cache++) {
        harness_options o = harness_defaults;
        o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        o.max_seqs = 3;
        o.n_pages = 12; /* preempts, too */
        harness h;
        harness_open(&o, &h);
        static group g;
        request_id ids[MAX_SAMPLES];
        group_init(&g, &h, 37, 8, 1.0f, 40);
        submit(&h, &g, ids);
        harness_wait(&h, g.n);
        for (int32_t k = 0; k < g.n; k++) {
            harness_run alone;
            run_alone(&h, &g, k, &alone);
            assert_int_equal(g.runs[k].n_tokens, 40);
            assert_memory_equal(g.runs[k].tokens, alone.tokens, 40 * sizeof(int32_t));
        }
        harness_close(&h);
    }
}

TEST(whoever_is_cancelled_the_others_come_out) {
    print_message("seed 3\n");
    uint64_t random = 3;
    harness_options o = harness_defaults;
    o.chunk = 8; /* the parent takes many steps */
    harness h;
    harness_open(&o, &h);
    for (int round = 0; round < 40; round++) {
        static group g;
        request_id ids[MAX_SAMPLES];
        group_init(&g, &h, 300, 5, 1.0f, 4);
        g.prompt[0] = 1 + round; /* not in the cache yet */
        submit(&h, &g, ids);
        uint32_t victims = (uint32_t)rng_next(&random) & 31u;
        for (int32_t k = 0; k < g.n; k++) {
            if (victims >> k & 1u) {
                engine_cancel(h.e, ids[k]);
            }
        }
        harness_wait(&h, g.n);
        for (int32_t k = 0; k < g.n; k++) {
            bool spared = !(victims >> k & 1u);
            assert_true(spared ? g.runs[k].finish == FINISH_LENGTH && g.runs[k].n_tokens == 4
                               : g.runs[k].finish == FINISH_CANCELLED || g.runs[k].finish == FINISH_LENGTH);
        }
    }
    quire_stats s = harness_idle_stats(&h);
    assert_int_equal(s.n_pages_held, 0);
    harness_close(&h);
}

/* Its samples are submitted at the same time: their time of admission is that of the one
 * that computes the prompt. */
TEST(a_group_that_does_not_fit_in_the_table_is_busy_as_a_whole) {
    harness h;
    harness_open(&harness_defaults, &h);
    static group g;
    static harness_run more[300];
    void *users[300];
    request_id ids[300];
    quire_error err = {0};
    group_init(&g, &h, 5, 1, 0.0f, 2);
    engine_request r = request_of(&h, &g);
    for (int i = 0; i < 300; i++) {
        users[i] = &more[i];
    }
    assert_int_equal(engine_submit_samples(h.e, &r, 257, users, ids, &err), QUIRE_BUSY);
    assert_int_equal(engine_submit_samples(h.e, &r, 256, users, ids, &err), QUIRE_OK);
    for (int i = 1; i < 256; i++) {
        assert_int_equal(h.e->entries[ids[i].index].sequence->task.submitted_us,
                         h.e->entries[ids[0].index].sequence->task.submitted_us);
    }
    harness_wait(&h, 256);
    harness_close(&h);
}

/* Its token could be the only one allowed, so that drafts would be sure to be right; but
 * the children need its row of logits, and its pages as they are. */
TEST(nothing_is_drafted_for_a_parent_before_its_children_fork) {
    static const int32_t one[] = {321};
    static harness_run first;
    static group g;
    request_id ids[MAX_SAMPLES];
    void *users[MAX_SAMPLES];
    quire_error err = {0};
    harness h;
    harness_open(&harness_defaults, &h);
    harness_take_over(&h);
    group_init(&g, &h, 20, 3, 0.0f, 50);
    g.sampling.lists = sampling_lists_new();
    assert_true(g.sampling.lists != NULL && sampling_lists_set_allowed(g.sampling.lists, one, 1) == QUIRE_OK);
    first = g.runs[0];
    first.sampling = g.sampling;
    harness_submit(&h, &first);
    (void)harness_steps(&h, 1);
    engine_request r = request_of(&h, &g);
    mem_free(r.tokens);
    r.n_tokens = g.n_prompt + first.n_tokens;
    r.tokens = mem_new((size_t)r.n_tokens, sizeof *r.tokens);
    memcpy(r.tokens, g.prompt, (size_t)g.n_prompt * sizeof *r.tokens);
    memcpy(r.tokens + g.n_prompt, first.tokens, (size_t)first.n_tokens * sizeof *r.tokens);
    assert_int_equal(engine_fork_acquire(h.e, first.id, &r.fork_from), QUIRE_OK);
    r.fork_position = r.n_tokens;
    r.n_prompt = g.n_prompt;
    for (int32_t i = 0; i < g.n; i++) {
        users[i] = &g.runs[i];
    }
    assert_int_equal(engine_submit_samples(h.e, &r, g.n, users, ids, &err), QUIRE_OK);
    int32_t n_parents = 0, n_drafts = 0;
    assert_true(step_submit(h.e));
    for (int32_t i = 0; i < h.e->sched.n_running; i++) {
        const sequence *s = running_at(h.e, i);
        n_parents += s->next_child != NULL;
        n_drafts += s->draft.tree.n;
        assert_true(s->next_child == NULL || s->draft.tree.n == 0);
    }
    assert_int_equal(n_parents, 1);
    assert_true(n_drafts > 0); /* the first's */
    step_collect(h.e);
    (void)harness_steps(&h, 1000);
    engine_fork_release(r.fork_from);
    for (int32_t i = 0; i < g.n; i++) {
        assert_int_equal(g.runs[i].finish, FINISH_LENGTH);
        assert_int_equal(g.runs[i].tokens[0], 321);
    }
    harness_close(&h);
    sampling_lists_drop(g.sampling.lists);
}

TEST_MAIN(NULL, NULL)
