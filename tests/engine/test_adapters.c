/* Adapters: logits and tokens under one are the same bits alone, beside others, beside
 * the base, in any order, after it was freed and loaded again, through the prefix cache,
 * samples, preemption by both ways, drafts and tiers; the base's rows are those of an
 * engine without adapters. */
#include "adapter_world.h"
#include "test.h"

enum { N_PROMPT = 70, N_NEW = 16, N_STRANGERS = 5 };

static int32_t prompt[N_PROMPT];

static void world_open(const harness_options *o, harness *h, world_adapters *l) {
    *h = (harness){0};
    harness_open(o, h);
    adapters_load(h, l);
}

static void world_close(harness *h, world_adapters *l) {
    engine_stop(h->e);
    adapters_drop(h, l);
    harness_close(h);
}

/* ---- one way ---- */

typedef struct way {
    harness_options o;
    int own;      /* the adapter; -1: the base */
    int32_t from; /* its first position */
    int32_t n_strangers;
    bool reloads;  /* it is freed and loaded again first */
    bool repeats;  /* the same request ran before, and left its pages */
    bool is_first; /* it is submitted before the strangers */
    bool no_logits;
} way;

typedef struct outcome {
    float *logits;
    size_t n_bytes;
    int32_t tokens[N_NEW];
    token_logprob logprobs[N_NEW];
    int32_t n_cached, n_preempted;
    quire_stats stats; /* of the whole engine */
} outcome;

static void submit_strangers(harness *h, const way *w, world_adapters *l, harness_run *runs) {
    for (int32_t i = 0; i < w->n_strangers; i++) {
        int k = i % (WORLD_ADAPTERS + 1) - 1;
        bool has = k >= 0 && w->o.max_adapters > 0;
        runs[i] = (harness_run){.prompt = prompt,
                                .n_prompt = 20 + 9 * i,
                                .sampling = greedy(24 + 3 * i),
                                .adapter = has ? &l->refs[k] : NULL,
                                .namespace = adapter_namespace(has ? k : -1)};
        harness_submit(h, &runs[i]);
    }
}

static void run_way(const way *w, outcome *out) {
    static harness_run runs[N_STRANGERS + 2];
    static world_adapters l;
    harness h = {0};
    memset(runs, 0, sizeof runs);
    harness_open(&w->o, &h);
    if (w->o.max_adapters > 0) {
        adapters_load(&h, &l);
    }
    if (w->reloads) {
        adapter_drop_one(&h, &l, w->own);
        adapter_load_one(&h, &l, w->own);
    }
    *out = (outcome){.n_bytes = (size_t)N_PROMPT * (size_t)h.n_vocab * sizeof(float)};
    out->logits = mem_new(1, out->n_bytes);
    harness_run *own = &runs[N_STRANGERS];
    *own = (harness_run){.prompt = prompt,
                         .n_prompt = N_PROMPT,
                         .sampling = greedy(N_NEW),
                         .logprobs = out->logprobs,
                         .logprobs_width = 1,
                         .adapter = w->own >= 0 ? &l.refs[w->own] : NULL,
                         .adapter_from = w->from,
                         .namespace = adapter_namespace(w->from > 0 ? -1 : w->own)};
    harness_run *before = &runs[N_STRANGERS + 1];
    if (w->repeats) {
        *before = *own;
        harness_submit(&h, before);
        harness_wait(&h, 1);
    }
    own->logits = w->repeats || w->no_logits ? NULL : out->logits;
    harness_hold(&h); /* all at once */
    if (w->is_first) {
        harness_submit(&h, own);
    }
    submit_strangers(&h, w, &l, runs);
    if (!w->is_first) {
        harness_submit(&h, own);
    }
    harness_wait(&h, w->n_strangers + 1);
    assert_int_equal(own->finish, FINISH_LENGTH);
    memcpy(out->tokens, own->tokens, sizeof out->tokens);
    out->n_cached = own->n_cached;
    out->n_preempted = own->n_preempted;
    engine_stop(h.e);
    engine_stats_read(h.e, &out->stats);
    if (w->o.max_adapters > 0) {
        adapters_drop(&h, &l);
    }
    harness_close(&h);
}

static bool same(const outcome *a, const outcome *b, bool with_logits) {
    return memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0 &&
           memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) == 0 &&
           (!with_logits || memcmp(a->logits, b->logits, a->n_bytes) == 0);
}

static outcome expect(const outcome *base, const way *w, const char *what) {
    outcome other;
    run_way(w, &other);
    if (!same(base, &other, !w->repeats && !w->no_logits)) {
        fail_msg("%s under %s: other bits", what, adapter_namespace(w->own));
    }
    if (w->repeats) {
        assert_true(other.n_cached >= N_PROMPT - 16);
    }
    mem_free(other.logits);
    return other;
}

static way usual(int own) {
    way w = {.o = harness_defaults, .own = own};
    w.o.max_adapters = WORLD_ADAPTERS;
    return w;
}

static void all_ways(compute_mode compute, int own) {
    outcome alone;
    way w = usual(own);
    w.o.compute = compute;
    run_way(&w, &alone);
    w.n_strangers = N_STRANGERS;
    (void)expect(&alone, &w, "beside others");
    w.is_first = true;
    (void)expect(&alone, &w, "before others");
    w.o.chunk = 7;
    w.o.n_threads = 2;
    (void)expect(&alone, &w, "in chunks, on two threads");
    w.o.max_adapters = 2; /* others wait for a slot */
    (void)expect(&alone, &w, "with two slots");
    w = usual(own);
    w.o.compute = compute;
    w.repeats = true;
    (void)expect(&alone, &w, "from the prefix cache");
    w = usual(own);
    w.o.compute = compute;
    w.reloads = own >= 0;
    w.n_strangers = 2;
    (void)expect(&alone, &w, "loaded again");
    mem_free(alone.logits);
}

TEST(logits_under_an_adapter_do_not_depend_on_how_they_were_run) {
    all_ways(COMPUTE_F32, 0);
    all_ways(COMPUTE_BF16, 2);
    all_ways(COMPUTE_INT8, 1);
    all_ways(COMPUTE_INT8, 2);
}

TEST(the_bases_rows_are_those_of_an_engine_without_adapters) {
    for (compute_mode compute = COMPUTE_F32; compute <= COMPUTE_INT8; compute++) {
        outcome without, with, other;
        way w = {.o = harness_defaults, .own = -1};
        w.o.compute = compute;
        run_way(&w, &without);
        w = usual(-1);
        w.o.compute = compute;
        w.n_strangers = N_STRANGERS;
        run_way(&w, &with);
        assert_true(same(&without, &with, true));
        for (w.own = 0; w.own < WORLD_ADAPTERS; w.own++) {
            run_way(&w, &other);
            assert_false(same(&without, &other, true)); /* the adapter does something */
            mem_free(other.logits);
        }
        mem_free(without.logits);
        mem_free(with.logits);
    }
}

TEST(few_pages_preempt_and_change_no_bit) {
    for (preempt_mode mode = PREEMPT_RECOMPUTE; mode <= PREEMPT_SWAP; mode++) {
        outcome alone;
        way w = usual(1);
        run_way(&w, &alone);
        w.n_strangers = 1;
        w.o.n_pages = 8; /* the stranger was there first, and needs a third */
        w.o.preempt = mode;
        w.o.swap_bytes = mode == PREEMPT_SWAP ? 1 << 24 : 0;
        w.no_logits = true; /* else it would not be swapped out */
        const outcome other = expect(&alone, &w, mode == PREEMPT_SWAP ? "swapped" : "computed again");
        assert_true(other.n_preempted > 0);
        assert_int_equal(other.stats.swapped_out > 0, mode == PREEMPT_SWAP);
        mem_free(alone.logits);
    }
}

TEST(drafts_are_verified_under_the_adapter) {
    outcome alone;
    way w = usual(2);
    run_way(&w, &alone);
    w.o.draft =
        (draft_options){.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};
    w.n_strangers = 3;
    assert_true(expect(&alone, &w, "with drafts").stats.draft_tokens > 0);
    mem_free(alone.logits);
}

/* ---- tiers ---- */

enum { N_KINDS = 4, WANTED_FROM = N_PROMPT - 5, N_OTHER = 150, N_OTHERS = 4 };

/* Of the base, of two adapters, and of one that is activated within the prompt. */
static const struct {
    int own;
    int32_t from;
} kinds[N_KINDS] = {{-1, 0}, {0, 0}, {1, 0}, {2, 48}};

static void run_kind(harness *h, world_adapters *l, int kind, float *logits, harness_run *out) {
    const int own = kinds[kind].own;
    const int32_t from = kinds[kind].from;
    *out = (harness_run){.prompt = prompt,
                         .n_prompt = N_PROMPT,
                         .sampling = greedy(N_NEW),
                         .logits = logits,
                         .logits_first = WANTED_FROM,
                         .adapter = own >= 0 ? &l->refs[own] : NULL,
                         .adapter_from = from,
                         .namespace = adapter_namespace(from > 0 ? -1 : own)};
    harness_submit(h, out);
    harness_wait(h, 1);
    assert_int_equal(out->finish, FINISH_LENGTH);
}

/* Requests that take all of a small pool. */
static void run_others(harness *h) {
    static int32_t others[N_OTHERS][N_OTHER];
    static harness_run r;
    uint64_t seed = 5;
    for (int i = 0; i < N_OTHERS; i++) {
        random_prompt(&seed, h->n_vocab, N_OTHER, others[i]);
        r = (harness_run){.prompt = others[i], .n_prompt = N_OTHER, .sampling = greedy(2)};
        harness_submit(h, &r);
        harness_wait(h, 1);
    }
}

/* Each kind comes back from a tier with the bits that it has in an engine without
 * cache. */
static void there_and_back(harness_options o, bool opens_anew) {
    static harness_run cold[N_KINDS], warm;
    static world_adapters l;
    harness h;
    harness_options plain = harness_defaults;
    size_t width = 0;
    float *want[N_KINDS], *got = NULL;
    plain.max_adapters = WORLD_ADAPTERS;
    plain.prefix_cache = PREFIX_CACHE_NONE;
    world_open(&plain, &h, &l);
    width = (size_t)h.n_vocab;
    got = mem_new(N_PROMPT * width, sizeof *got);
    for (int k = 0; k < N_KINDS; k++) {
        want[k] = mem_new(N_PROMPT * width, sizeof *want[k]);
        run_kind(&h, &l, k, want[k], &cold[k]);
    }
    world_close(&h, &l);
    world_open(&o, &h, &l);
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < N_KINDS; k++) {
            const int64_t before = harness_idle_stats(&h).promoted_tokens;
            memset(got, 0, N_PROMPT * width * sizeof *got);
            run_kind(&h, &l, k, got, &warm);
            assert_memory_equal(got + WANTED_FROM * width, want[k] + WANTED_FROM * width,
                                5 * width * sizeof *got);
            assert_memory_equal(warm.tokens, cold[k].tokens, sizeof(int32_t) * N_NEW);
            const int64_t promoted = harness_idle_stats(&h).promoted_tokens - before;
            /* the activated one finds the base's pages, in the first round too */
            assert_int_equal(promoted, kinds[k].from > 0 ? kinds[k].from : round * 64);
            run_others(&h);
        }
        if (opens_anew && round == 0) {
            world_close(&h, &l);
            world_open(&o, &h, &l);
        }
    }
    world_close(&h, &l);
    for (int k = 0; k < N_KINDS; k++) {
        mem_free(want[k]);
    }
    mem_free(got);
}

TEST(pages_come_back_from_tiers_under_their_own_adapter) {
    char path[96];
    harness_options o = harness_defaults;
    o.max_adapters = 2;
    o.n_pages = 25;
    o.tiers = (engine_tiers){.version = "test", .wait_us = 10000000, .host_bytes = 64 << 20};
    there_and_back(o, false);
    (void)snprintf(path, sizeof path, "%s/tier", world_root);
    o.tiers = (engine_tiers){.version = "test",
                             .wait_us = 10000000,
                             .file_path = path,
                             .file_bytes = 64 << 20,
                             .write = TIER_WRITE_THROUGH};
    there_and_back(o, true);
}

/* ---- activated adapters ---- */

TEST(rows_before_the_invocation_are_the_bases_and_share_its_pages) {
    outcome base, cold;
    const int32_t from = 48;
    way w = usual(-1);
    run_way(&w, &base);
    w.own = 0;
    w.from = from;
    run_way(&w, &cold);
    size_t row = base.n_bytes / N_PROMPT;
    assert_memory_equal(base.logits, cold.logits, (size_t)from * row);
    assert_memory_not_equal((char *)base.logits + (size_t)from * row,
                            (char *)cold.logits + (size_t)from * row, row);
    /* after a base request of the same prompt, and then after itself */
    static harness_run runs[4];
    static world_adapters l;
    harness h = {0};
    memset(runs, 0, sizeof runs);
    harness_open(&w.o, &h);
    adapter_load_one(&h, &l, 0);
    for (int i = 0; i < 4; i++) {
        bool has = i == 1 || i == 2;
        runs[i] = (harness_run){.prompt = prompt,
                                .n_prompt = N_PROMPT,
                                .sampling = greedy(N_NEW),
                                .adapter = has ? &l.refs[0] : NULL,
                                .adapter_from = has ? from : 0,
                                .namespace = adapter_namespace(-1)};
        harness_submit(&h, &runs[i]);
        harness_wait(&h, 1);
        assert_memory_equal(runs[i].tokens, has ? cold.tokens : base.tokens, sizeof cold.tokens);
    }
    assert_int_equal(runs[1].n_cached, from);
    assert_int_equal(runs[2].n_cached, from); /* what it computed itself is nobody's */
    assert_true(runs[3].n_cached >= N_PROMPT - 1);
    engine_stop(h.e);
    adapter_drop_one(&h, &l, 0);
    harness_close(&h);
    mem_free(base.logits);
    mem_free(cold.logits);
}

/* The base's pages of 4,096 tokens are used, and every row of the adapter's after them is
 * that of a run which computed all of it. */
TEST(a_long_prefix_of_the_base_is_an_activated_adapters_too) {
    enum { N_PREFIX = 4096, N_OWN = 40, N_ALL = N_PREFIX + N_OWN };
    static int32_t tokens[N_ALL];
    static harness_run cold, base, warm;
    static world_adapters l;
    harness_options o = harness_defaults;
    harness h;
    uint64_t seed = 8;
    o.max_adapters = 1;
    o.max_model_len = N_ALL + N_NEW;
    o.compute = COMPUTE_INT8;
    o.kv = DTYPE_BF16;
    o.prefix_cache = PREFIX_CACHE_NONE;
    float *want = NULL, *got = NULL;
    size_t own = 0, n_bytes = 0;
    for (int is_warm = 0; is_warm < 2; is_warm++) {
        world_open(&o, &h, &l);
        if (!is_warm) {
            random_prompt(&seed, h.n_vocab, N_ALL, tokens);
            n_bytes = (size_t)N_ALL * (size_t)h.n_vocab * sizeof(float);
            own = (size_t)N_PREFIX * (size_t)h.n_vocab;
            want = mem_new(1, n_bytes);
            got = mem_new(1, n_bytes);
        }
        base = (harness_run){.prompt = tokens, .n_prompt = N_PREFIX, .sampling = greedy(1)};
        harness_run *r = is_warm ? &warm : &cold;
        *r = (harness_run){.prompt = tokens,
                           .n_prompt = N_ALL,
                           .sampling = greedy(N_NEW),
                           .logits = is_warm ? got : want,
                           .logits_first = N_PREFIX,
                           .adapter = &l.refs[0],
                           .adapter_from = N_PREFIX};
        if (is_warm) {
            harness_submit(&h, &base);
            harness_wait(&h, 1);
        }
        harness_submit(&h, r);
        harness_wait(&h, 1);
        assert_int_equal(r->finish, FINISH_LENGTH);
        world_close(&h, &l);
        o.prefix_cache = PREFIX_CACHE_TOKEN;
    }
    assert_int_equal(cold.n_cached, 0);
    assert_int_equal(warm.n_cached, N_PREFIX);
    assert_memory_equal(got + own, want + own, n_bytes - own * sizeof *got);
    assert_memory_equal(warm.tokens, cold.tokens, sizeof(int32_t) * N_NEW);
    mem_free(want);
    mem_free(got);
}

static int set_up(void **state) {
    harness h = {0};
    uint64_t seed = 11;
    harness_open(&harness_defaults, &h);
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    harness_close(&h);
    return adapters_write(state);
}

TEST_MAIN(set_up, adapters_remove)
