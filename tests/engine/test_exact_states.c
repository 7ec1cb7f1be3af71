/* The determinism rule for real models with recurrent states (make_states.h): logits, and
 * log-probabilities of what is generated, are the same bytes however pages, chunks,
 * batches and threads are cut, and whatever is cached, preempted, swapped, forked or
 * drafted. QUIRE_TEST_LONG: more random ways; QUIRE_TEST_SEED=n repeats a run. After
 * each run the same text goes on, from the states that the run left. */
#include <stdio.h>

#include "backend/cpu/linear_ops.h"
#include "core/kv_layout.h"
#include "harness.h"
#include "model/make_states.h"
#include "sample/constraints.h"
#include "test.h"

enum { VOCAB = 40, N_PROMPT = 70, N_STRANGERS = 7, N_OUT = 40, N_BEHIND = 5, WIDTH = 3, MAX_LEN = 120 };

static uint64_t seed;
static int32_t prompt[N_PROMPT], strangers[N_STRANGERS][96];
static harness_options defaults;
static model_desc desc;
static int64_t n_accepted, n_rejected, n_swapped; /* over all tests */

/* Logits of the prompt, what comes after it, and logits of what follows that. */
typedef struct outcome {
    float logits[N_PROMPT][VOCAB], behind[N_BEHIND][VOCAB];
    int32_t tokens[N_OUT];
    token_logprob logprobs[N_OUT][WIDTH];
} outcome;

typedef enum company { ALONE, FIRST, LAST } company;

/* ---- adapters ---- */

enum { N_TUNED = 2, TUNED_RANK = 3 };

/* Of an open engine. The first is that of the run, from position tuned_from on, and of
 * some strangers; the others have the second, or none. */
static bool has_tuned;
static int32_t tuned_from;
static adapter_ref tuned[N_TUNED];

/* An adapter of all linears but those that are computed in f32. */
static const adapter *tuned_load(const harness *h, uint64_t of) {
    enum { MOST = 64, WIDEST = 256 };
    static float a[MOST][TUNED_RANK * WIDEST], b[MOST][TUNED_RANK * WIDEST];
    static tensor_view views[2 * MOST];
    adapter_change changes[MOST];
    adapter *out;
    quire_error err = {0};
    int32_t n = 0;
    for (const linear *w = ((const cpu_backend *)h->b)->linear_state->loaded; w != NULL; w = w->next, n++) {
        const int64_t n_in = w->layout.n_in, n_out = w->layout.n_out;
        assert_true(n < MOST && n_in <= WIDEST && n_out <= WIDEST);
        for (int32_t i = 0; i < TUNED_RANK * WIDEST; i++) {
            a[n][i] = (float)(rng_next(&of) % 2001) * 2e-4f - 0.2f;
            b[n][i] = (float)(rng_next(&of) % 2001) * 2e-4f - 0.2f;
        }
        views[2 * n] = (tensor_view){.name = "A",
                                     .type = DTYPE_F32,
                                     .n_dims = 2,
                                     .dims = {TUNED_RANK, n_in, 1, 1},
                                     .data = a[n],
                                     .n_bytes = sizeof(float) * TUNED_RANK * (size_t)n_in};
        views[2 * n + 1] = (tensor_view){.name = "B",
                                         .type = DTYPE_F32,
                                         .n_dims = 2,
                                         .dims = {n_out, TUNED_RANK, 1, 1},
                                         .data = b[n],
                                         .n_bytes = sizeof(float) * TUNED_RANK * (size_t)n_out};
        changes[n] = (adapter_change){.w = w, .a = &views[2 * n], .b = &views[2 * n + 1], .scale = 0.5f};
    }
    if (h->b->ops->adapter_load(h->b, changes, n, &out, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return out;
}

static void states_open(const harness_options *o, harness *h) {
    harness_options own = *o;
    own.max_adapters = has_tuned ? N_TUNED : 0;
    harness_open(&own, h);
    for (int i = 0; i < N_TUNED && has_tuned; i++) {
        tuned[i] = (adapter_ref){.weights = tuned_load(h, 7 + (uint64_t)i), .rank = TUNED_RANK};
        atomic_store(&tuned[i].holders, 1);
    }
}

static void states_close(harness *h) {
    engine_stop(h->e);
    for (int i = 0; i < N_TUNED && has_tuned; i++) {
        assert_int_equal(atomic_load(&tuned[i].holders), 1);
        h->b->ops->adapter_free(h->b, (adapter *)(uintptr_t)tuned[i].weights);
    }
    harness_close(h);
}

/* Gives a request the adapter of that number. */
static void states_tune(harness_run *r, int i) {
    static const char *const names[] = {"tuned", "otherwise tuned"};
    if (has_tuned && i < N_TUNED) {
        r->adapter = &tuned[i];
        r->adapter_from = i == 0 && tuned_from < r->n_prompt ? tuned_from : 0;
        r->namespace = r->adapter_from > 0 ? NULL : names[i];
    }
}

/* ---- running ---- */

static harness_run request_of(outcome *out) {
    memset(out, 0, sizeof *out);
    harness_run r = {.prompt = prompt,
                     .n_prompt = N_PROMPT,
                     .sampling = greedy(N_OUT),
                     .logits = out->logits[0],
                     .logprobs = out->logprobs[0],
                     .logprobs_width = WIDTH};
    states_tune(&r, 0);
    return r;
}

static void take_run(const harness_run *r, outcome *out) {
    assert_int_equal(r->finish, FINISH_LENGTH);
    assert_int_equal(r->n_tokens, N_OUT);
    memcpy(out->tokens, r->tokens, sizeof out->tokens);
}

/* The prompt, what came after it, and N_BEHIND more tokens, from where the cache
 * allows. */
static void go_on(harness *h, outcome *out) {
    enum { N = N_PROMPT + N_OUT + N_BEHIND };
    static float logits[N][VOCAB];
    int32_t all[N];
    memcpy(all, prompt, sizeof prompt);
    memcpy(all + N_PROMPT, out->tokens, sizeof out->tokens);
    memcpy(all + N_PROMPT + N_OUT, strangers[0], N_BEHIND * sizeof *all);
    harness_run r = {.prompt = all,
                     .n_prompt = N,
                     .sampling = greedy(1),
                     .logits = logits[0],
                     .logits_first = N - N_BEHIND};
    states_tune(&r, 0);
    harness_submit(h, &r);
    harness_wait(h, 1);
    assert_int_equal(r.finish, FINISH_LENGTH);
    memcpy(out->behind, logits[N - N_BEHIND], sizeof out->behind);
}

static quire_stats run_way(const harness_options *o, company with, outcome *out) {
    static harness_run runs[N_STRANGERS + 1];
    harness h = {0};
    const int32_t n = with != ALONE ? N_STRANGERS : 0;
    states_open(o, &h);
    runs[0] = request_of(out);
    harness_hold(&h);
    if (with != LAST) {
        harness_submit(&h, &runs[0]);
    }
    for (int32_t i = 0; i < n; i++) {
        runs[i + 1] =
            (harness_run){.prompt = strangers[i], .n_prompt = 5 + 13 * i, .sampling = greedy(10 + 3 * i)};
        states_tune(&runs[i + 1], i % 3);
        harness_submit(&h, &runs[i + 1]);
    }
    if (with == LAST) {
        harness_submit(&h, &runs[0]);
    }
    harness_wait(&h, n + 1);
    take_run(&runs[0], out);
    go_on(&h, out);
    quire_stats stats = harness_idle_stats(&h);
    desc = *model_description(h.m);
    states_close(&h);
    return stats;
}

static void same(const outcome *a, const outcome *b, const char *what, int32_t n) {
    if (memcmp(a->logits, b->logits, sizeof a->logits) != 0) {
        fail_msg("%s %d: logits of the prompt differ", what, (int)n);
    }
    if (memcmp(a->tokens, b->tokens, sizeof a->tokens) != 0 ||
        memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) != 0) {
        fail_msg("%s %d: what is generated differs", what, (int)n);
    }
    if (memcmp(a->behind, b->behind, sizeof a->behind) != 0) {
        fail_msg("%s %d: what follows differs", what, (int)n);
    }
}

static quire_stats compare(const outcome *base, const harness_options *o, company with, const char *what,
                           int32_t n) {
    static outcome other;
    quire_stats stats = run_way(o, with, &other);
    same(base, &other, what, n);
    return stats;
}

/* Pages of one sequence of MAX_LEN tokens, with so many states. */
static int32_t pages_of_one(int32_t page_tokens, int32_t n_states) {
    kv_layout l;
    int32_t n = 0;
    quire_error err = {.message = ""};
    const kv_types types = {defaults.kv, defaults.kv, defaults.state};
    assert_int_equal(kv_layout_init(&desc, types, page_tokens, &l, &err), QUIRE_OK);
    for (int32_t g = 0; g < l.n_groups; g++) {
        const bool is_state = l.groups[g].kind == LAYER_STATE;
        n += is_state ? n_states * l.groups[g].state_pages : (int32_t)kv_pages_for(MAX_LEN, page_tokens);
    }
    return n;
}

/* Enough for some sequences at first, and in the end for one. */
static int32_t scarce_pages(int32_t page_tokens) {
    return pages_of_one(page_tokens, 3) + 2;
}

/* ---- the ways ---- */

static void cut_otherwise(const outcome *base) {
    static const int32_t pages[] = {1, 4, 16, 64}, chunks[] = {1, 3, 16, 64, 0};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        harness_options v = defaults;
        v.page_tokens = pages[i];
        v.n_pages = 8192 / pages[i];
        (void)compare(base, &v, i % 2 == 0 ? ALONE : FIRST, "page size", pages[i]);
    }
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        harness_options v = defaults;
        v.chunk = chunks[i];
        (void)compare(base, &v, i % 2 == 0 ? LAST : ALONE, "chunk", chunks[i]);
    }
    harness_options v = defaults;
    (void)compare(base, &v, FIRST, "strangers after", N_STRANGERS);
    (void)compare(base, &v, LAST, "strangers before", N_STRANGERS);
    v.prefix_cache = PREFIX_CACHE_NONE;
    (void)compare(base, &v, LAST, "no cache", 0);
    v.n_threads = 2;
    (void)compare(base, &v, FIRST, "threads", 2);
}

static void preempted(const outcome *base) {
    harness_options v = defaults;
    const bool has_pages = pages_of_one(1, 0) > 0;
    v.max_model_len = MAX_LEN;
    for (int way = 0; way < 3; way++) {
        v.n_pages = scarce_pages(v.page_tokens);
        v.swap_bytes = way > 0 ? 1 << 24 : 0;
        v.preempt = way > 0 ? PREEMPT_SWAP : PREEMPT_RECOMPUTE;
        v.prefix_cache = way == 2 ? PREFIX_CACHE_NONE : PREFIX_CACHE_TOKEN;
        quire_stats s = compare(base, &v, LAST, "preempted", way);
        /* states alone do not grow */
        assert_true(s.preemptions > 0 || !has_pages);
        assert_true(way < 2 || !has_pages || (s.swapped_out > 0 && s.swapped_in > 0));
        n_swapped += s.swapped_in;
    }
}

/* After prefixes of several lengths that were computed before, and after itself. */
static void warm(const outcome *base) {
    static outcome again;
    for (int32_t n = 5; n < N_PROMPT; n += 23) {
        harness h = {0};
        states_open(&defaults, &h);
        for (int round = 0; round < 2; round++) {
            harness_run prefix = {.prompt = prompt, .n_prompt = n, .sampling = greedy(3)},
                        r = request_of(&again);
            states_tune(&prefix, tuned_from > 0 ? N_TUNED : 0); /* those of the base, where it is activated */
            r.logits_first = N_PROMPT - 1;
            harness_submit(&h, &prefix);
            harness_wait(&h, 1);
            harness_submit(&h, &r);
            harness_wait(&h, 1);
            /* of an activated adapter's prompt no more than the base's part, as far as it
             * has states */
            assert_true(tuned_from > 0 ? r.n_cached <= tuned_from
                                       : r.n_cached >= (round == 0 ? n - 1 : N_PROMPT - 1));
            take_run(&r, &again);
            go_on(&h, &again);
            memcpy(again.logits, base->logits, (N_PROMPT - 1) * sizeof again.logits[0]);
            same(base, &again, "behind a prefix of", n);
        }
        states_close(&h);
    }
}

/* Branches of a running request, and what takes its place. */
static void forked(const outcome *base) {
    for (int32_t at = 0; at < N_OUT; at += 7) {
        static outcome own, other;
        harness h = {0};
        quire_error err = {.message = ""};
        engine_fork *held;
        states_open(&defaults, &h);
        harness_take_over(&h);
        harness_run r = request_of(&own), branch = request_of(&other);
        const char *namespace = branch.namespace != NULL ? branch.namespace : "test";
        harness_submit(&h, &r);
        (void)harness_steps(&h, at + 1);
        assert_int_equal(engine_fork_acquire(h.e, r.id, &held), QUIRE_OK);
        engine_request q = {.tokens = mem_new(N_PROMPT + N_OUT, sizeof(int32_t)),
                            .n_tokens = N_PROMPT + at,
                            .n_prompt = N_PROMPT,
                            .fork_from = held,
                            .fork_position = N_PROMPT + at,
                            .fork_replaces = at % 2 == 1,
                            .sampling = greedy(N_OUT),
                            .logprobs_width = WIDTH,
                            .adapter = branch.adapter,
                            .adapter_from = branch.adapter_from,
                            .namespace = namespace,
                            .n_namespace = strlen(namespace),
                            .out = h.out,
                            .user = &branch};
        memcpy(q.tokens, prompt, sizeof prompt);
        memcpy(q.tokens + N_PROMPT, base->tokens, (size_t)at * sizeof *q.tokens);
        assert_int_equal(engine_submit(h.e, &q, &branch.id, &err), QUIRE_OK);
        engine_fork_release(held);
        while (harness_steps(&h, 1000) > 0) {
        }
        assert_int_equal(branch.finish, FINISH_LENGTH);
        assert_int_equal(branch.n_tokens, N_OUT - at);
        assert_memory_equal(branch.tokens, base->tokens + at, (size_t)(N_OUT - at) * sizeof *branch.tokens);
        assert_memory_equal(other.logprobs, base->logprobs[at],
                            (size_t)(N_OUT - at) * sizeof base->logprobs[0]);
        assert_true(at % 2 == 1 || memcmp(own.logprobs, base->logprobs, sizeof own.logprobs) == 0);
        states_close(&h);
    }
}

static const draft_options drafts[] = {
    {.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4},
    {.method = DRAFT_METHOD_NGRAM, .n_tokens = 6, .lookup_min = 1, .lookup_max = 3, .tree_width = 2},
    {.method = DRAFT_METHOD_SUFFIX,
     .n_tokens = 6,
     .suffix_depth = 12,
     .suffix_texts = 20,
     .suffix_factor = 2.0,
     .suffix_min_prob = 0.01}};

static void drafted(const outcome *base) {
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
        for (int way = 0; way < 4; way++) {
            harness_options v = defaults;
            v.draft = drafts[i];
            v.page_tokens = way % 2 == 0 ? 16 : 4;
            v.chunk = way == 1 ? 3 : 0;
            v.max_model_len = MAX_LEN;
            v.n_pages = way == 2 ? scarce_pages(v.page_tokens) : v.n_pages;
            v.swap_bytes = way == 3 ? 1 << 24 : 0;
            quire_stats s = compare(base, &v, way == 0 ? ALONE : LAST, "drafted", (int32_t)i);
            n_accepted += s.draft_accepted;
            n_rejected += s.draft_tokens - s.draft_accepted;
        }
    }
}

/* All of it at once, at random. */
static void random_ways(const outcome *base, uint64_t *r) {
    static const int32_t pages[] = {1, 2, 4, 8, 16, 32, 64}, chunks[] = {0, 0, 1, 3, 7, 16, 64};
    const int n = getenv("QUIRE_TEST_LONG") != NULL ? 300 : 12;
    for (int round = 0; round < n; round++) {
        harness_options v = defaults;
        v.page_tokens = pages[rng_next(r) % 7];
        v.chunk = chunks[rng_next(r) % 7];
        v.max_rows = 8 << rng_next(r) % 5;
        v.max_seqs = 1 + (int32_t)(rng_next(r) % 8);
        v.n_threads = 1 + (int32_t)(rng_next(r) % 2);
        v.max_model_len = MAX_LEN;
        v.n_pages = pages_of_one(v.page_tokens, 1 + (int32_t)(rng_next(r) % 6)) + (int32_t)(rng_next(r) % 8);
        v.swap_bytes = rng_next(r) % 2 == 0 ? (int64_t)1 << (14 + rng_next(r) % 10) : 0;
        v.preempt = rng_next(r) % 2 == 0 ? PREEMPT_SWAP : PREEMPT_AUTO;
        v.prefix_cache = rng_next(r) % 4 == 0 ? PREFIX_CACHE_NONE : PREFIX_CACHE_TOKEN;
        v.tiers.host_bytes = v.prefix_cache == PREFIX_CACHE_TOKEN && rng_next(r) % 4 == 0 ? 1 << 18 : 0;
        v.tiers.version = "v";
        v.tiers.wait_us = 10000;
        if (rng_next(r) % 3 > 0) {
            v.draft = drafts[rng_next(r) % 3];
        }
        (void)compare(base, &v, rng_next(r) % 2 == 0 ? FIRST : LAST, "random way", round);
    }
}

/* Tokens that a rule forces are computed together: the state after them is the same. */
static void forced(void) {
    static outcome one_by_one, together;
    for (int jumps = 0; jumps < 2; jumps++) {
        harness h = {0};
        harness_options v = defaults;
        outcome *out = jumps ? &together : &one_by_one;
        v.ablations.no_jump_forward = !jumps;
        states_open(&v, &h);
        choice_constraint *c = choice_new(VOCAB, false);
        choice_add(c, strangers[3], N_OUT);
        choice_add(c, strangers[4], N_OUT);
        harness_run r = request_of(out);
        r.logprobs_width = 0;
        r.constraint = &c->head;
        harness_submit(&h, &r);
        harness_wait(&h, 1);
        constraint_drop(&c->head);
        take_run(&r, out);
        go_on(&h, out);
        assert_true((harness_idle_stats(&h).jump_forward_tokens > 20) == jumps);
        states_close(&h);
    }
    same(&one_by_one, &together, "forced", N_OUT);
}

static void check(state_model kind, compute_mode compute, dtype kv, dtype state) {
    static outcome base;
    model_plan plan;
    temp_dir d = temp_new();
    strbuf b = {0};
    plan_states(&plan, kind);
    put_plan(&b, &plan);
    write_file(temp_path(&d, "m.gguf"), b.p, b.n);
    strbuf_deinit(&b);
    defaults = harness_defaults;
    defaults.path = temp_path(&d, "m.gguf");
    defaults.compute = compute;
    defaults.kv = kv;
    defaults.state = state;
    (void)run_way(&defaults, ALONE, &base);
    if (has_tuned) {
        static outcome plain;
        has_tuned = false;
        (void)run_way(&defaults, ALONE, &plain);
        has_tuned = true;
        assert_memory_equal(base.logits, plain.logits, (size_t)tuned_from * sizeof plain.logits[0]);
        assert_memory_not_equal(base.logits[tuned_from], plain.logits[tuned_from], sizeof plain.logits[0]);
    }
    cut_otherwise(&base);
    preempted(&base);
    warm(&base);
    forked(&base);
    drafted(&base);
    forced();
    random_ways(&base, &seed);
    temp_delete(&d, (const char *[]){"m.gguf", NULL});
}

TEST(convolutions_do_not_depend_on_how_they_were_run) {
    check(STATE_MODEL_CONV, COMPUTE_F32, DTYPE_F32, DTYPE_F32);
}

TEST(delta_rules_do_not_depend_on_how_they_were_run) {
    check(STATE_MODEL_DELTA, COMPUTE_F32, DTYPE_F32, DTYPE_F32);
    check(STATE_MODEL_DELTA, COMPUTE_BF16, DTYPE_BF16, DTYPE_F32);
}

TEST(heads_of_mamba_2_beside_attention_do_not_depend_on_how_they_were_run) {
    check(STATE_MODEL_HEADS, COMPUTE_F32, DTYPE_F32, DTYPE_F32);
    check(STATE_MODEL_HEADS, COMPUTE_INT8, DTYPE_I8, DTYPE_F32);
}

TEST(states_alone_do_not_depend_on_how_they_were_run) {
    check(STATE_MODEL_SCAN, COMPUTE_F32, DTYPE_F32, DTYPE_F32);
}

TEST(states_of_bf16_do_not_depend_on_how_they_were_run) {
    check(STATE_MODEL_CONV, COMPUTE_F32, DTYPE_F32, DTYPE_BF16);
    check(STATE_MODEL_DELTA, COMPUTE_F32, DTYPE_F32, DTYPE_BF16);
    check(STATE_MODEL_HEADS, COMPUTE_INT8, DTYPE_I8, DTYPE_BF16);
    check(STATE_MODEL_SCAN, COMPUTE_F32, DTYPE_F32, DTYPE_BF16);
}

/* All rows under an adapter, or those from within the prompt on, beside other adapters
 * and the base. */
TEST(states_under_adapters_do_not_depend_on_how_they_were_run) {
    has_tuned = true;
    check(STATE_MODEL_CONV, COMPUTE_INT8, DTYPE_BF16, DTYPE_F32);
    check(STATE_MODEL_DELTA, COMPUTE_F32, DTYPE_F32, DTYPE_F32);
    check(STATE_MODEL_SCAN, COMPUTE_F32, DTYPE_F32, DTYPE_F32);
    tuned_from = 37;
    check(STATE_MODEL_HEADS, COMPUTE_BF16, DTYPE_BF16, DTYPE_F32);
    check(STATE_MODEL_DELTA, COMPUTE_INT8, DTYPE_I8, DTYPE_BF16);
    has_tuned = false;
    tuned_from = 0;
}

/* Of all of them together: one says the same again and again, another hardly ever. */
TEST(everything_happened) {
    print_message("drafts: %d accepted, %d rejected\n", (int)n_accepted, (int)n_rejected);
    assert_true(n_accepted > 0 && n_rejected > 0 && n_swapped > 0);
}

int main(void) {
    const char *given = getenv("QUIRE_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    random_prompt(&seed, VOCAB, N_PROMPT, prompt);
    for (int i = 0; i < N_STRANGERS; i++) {
        random_prompt(&seed, VOCAB, 96, strangers[i]);
        memcpy(strangers[i], prompt, (size_t)(i % 3) * 17 * sizeof *prompt); /* some begin alike */
    }
    return tests_run(NULL, NULL);
}
