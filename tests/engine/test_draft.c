/* Speculation changes no token, no log-probability, no end and nothing that is cached: one workload, run without drafts and with them in every
 * way, compared to the byte. The engine of a debug build audits pages and index after each step (kv_check, kv_index_check). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/sampling_lists.h"
#include "engine/draft_ngram.h"
#define MODEL BUILTIN
#include "harness.h"

enum { N_REQUESTS = 12, N_SAMPLES = 3, MAX_TOKENS = 48, WIDTH = 3 };

/* What came of one sequence. */
typedef struct outcome {
    int32_t tokens[MAX_TOKENS], n;
    token_logprob logprobs[MAX_TOKENS][WIDTH];
    finish_reason finish;
    bool stopped_by_eos;
} outcome;

typedef struct workload {
    int32_t prompts[N_REQUESTS][96], n_prompt[N_REQUESTS];
    sampling_params sampling[N_REQUESTS];
    int32_t logprobs_width[N_REQUESTS];
    outcome outcomes[N_REQUESTS + N_SAMPLES - 1];
    engine_stats stats;
} workload;

static sampling_lists *only_few;

/* The counters once everything has ended: an end can be read before its step is counted. */
static engine_stats settled(const harness *h) {
    engine_stats s;
    do {
        engine_stats_read(h->e, &s);
    } while (s.n_running + s.n_waiting > 0);
    return s;
}

/* Prompts that repeat themselves, so that something can be guessed, and every kind of sampling. */
static void workload_init(workload *w, int32_t n_vocab) {
    uint64_t seed = 77;
    *w = (workload){0};
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        int32_t period[17], n = 5 + i;
        random_prompt(&seed, n_vocab, n, period);
        w->n_prompt[i] = 40 + 4 * i;
        for (int32_t k = 0; k < w->n_prompt[i]; k++) {
            w->prompts[i][k] = period[k % n];
        }
        w->sampling[i] = greedy(MAX_TOKENS - i % 3);
        w->sampling[i].seed = 1000 + (uint64_t)i;
    }
    w->sampling[1].temperature = 0.4f;
    w->sampling[2].temperature = 1.0f;
    w->sampling[2].top_p = 0.6f;
    w->sampling[3].repetition_penalty = 1.1f;
    w->sampling[3].frequency_penalty = 0.2f;
    w->sampling[4].temperature = 0.5f;
    w->sampling[4].mirostat = MIROSTAT_2;
    w->sampling[4].mirostat_tau = 2.0f;
    w->sampling[4].mirostat_eta = 0.1f;
    w->sampling[5].temperature = 0.7f;
    w->sampling[5].top_k = 5;
    w->sampling[5].xtc_probability = 0.3f;
    w->sampling[5].xtc_threshold = 0.1f;
    w->sampling[6].dry_multiplier = 0.5f;
    w->sampling[6].dry_base = 1.75f;
    w->sampling[6].dry_allowed_length = 4;
    w->sampling[7].min_tokens = 20;
    w->sampling[7].lists = only_few;
    w->sampling[7].temperature = 0.3f;
    w->sampling[7].n_stop_tokens = 1;
    w->sampling[7].stop_tokens[0] = only_few->allowed[0];
    w->sampling[8].lists = only_few;
    w->sampling[8].temperature = 0.2f;
    w->sampling[9].lists = only_few;
    w->sampling[9].no_repeat_ngram_size = 9;
    w->logprobs_width[0] = w->logprobs_width[2] = w->logprobs_width[7] = WIDTH;
    w->sampling[10].ignore_eos = false;
    w->sampling[11].temperature = 0.3f; /* N_SAMPLES of it */
    w->sampling[11].lists = only_few;
}

static void submit(harness *h, workload *w, int32_t i) {
    quire_error err = {0};
    request_id ids[N_SAMPLES];
    void *users[N_SAMPLES];
    int32_t *tokens = mem_new((size_t)w->n_prompt[i], sizeof *tokens);
    memcpy(tokens, w->prompts[i], (size_t)w->n_prompt[i] * sizeof *tokens);
    for (int32_t k = 0; k < N_SAMPLES; k++) {
        users[k] = &w->outcomes[i + k];
    }
    engine_request r = {.tokens = tokens,
                        .n_tokens = w->n_prompt[i],
                        .sampling = w->sampling[i],
                        .logprobs_width = w->logprobs_width[i],
                        .space = "test",
                        .n_space = 4,
                        .out = h->out};
    assert_int_equal(engine_submit_samples(h->e, &r, i == N_REQUESTS - 1 ? N_SAMPLES : 1, users, ids, &err), QUIRE_OK);
}

static void take(const engine_event *ev) {
    outcome *o = ev->user;
    if (ev->finish != FINISH_NONE) {
        o->finish = ev->finish;
        o->stopped_by_eos = ev->stopped_by_eos;
        return;
    }
    assert_in_range(o->n, 0, MAX_TOKENS - 1);
    if (ev->logprobs) {
        memcpy(o->logprobs[o->n], ev->logprobs, sizeof o->logprobs[0]);
    }
    o->tokens[o->n++] = ev->token;
}

/* Runs the workload twice over one engine, so that the second time much is found in the cache; the second outcomes must be the first ones. */
static void run(const harness_options *o, workload *w) {
    harness h = {0};
    harness_open(o, &h);
    workload_init(w, h.n_vocab);
    static outcome first[N_REQUESTS + N_SAMPLES - 1];
    for (int round = 0; round < 2; round++) {
        memset(w->outcomes, 0, sizeof w->outcomes);
        for (int32_t i = 0; i < N_REQUESTS; i++) {
            submit(&h, w, i);
        }
        for (int32_t n = N_REQUESTS + N_SAMPLES - 1; n > 0;) {
            engine_event ev;
            if (!engine_out_pop(h.out, &ev)) {
                wake_wait(&h.reader, -1);
                continue;
            }
            take(&ev);
            n -= ev.finish != FINISH_NONE;
        }
        if (round == 0) {
            memcpy(first, w->outcomes, sizeof first);
        }
    }
    assert_memory_equal(first, w->outcomes, sizeof first);
    w->stats = settled(&h);
    harness_close(&h);
}

static void same(const workload *a, const workload *b, const char *what) {
    for (int32_t i = 0; i < N_REQUESTS + N_SAMPLES - 1; i++) {
        const outcome *x = &a->outcomes[i], *y = &b->outcomes[i];
        if (memcmp(x, y, sizeof *x) != 0) {
            int32_t k = 0;
            while (k < x->n && x->tokens[k] == y->tokens[k]) {
                k++;
            }
            fail_msg("%s: sequence %d differs: %d and %d tokens, alike up to %d", what, (int)i, (int)x->n, (int)y->n, (int)k);
        }
    }
}

static const draft_options ngram = {.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};

static void print_stats(const char *what, const workload *w) {
    print_message("%s: %d steps, %d drafts of %d tokens, %d accepted, %d preemptions\n", what, (int)w->stats.steps, (int)w->stats.drafts,
                  (int)w->stats.draft_tokens, (int)w->stats.draft_accepted, (int)w->stats.preemptions);
}

/* All ways to run with drafts, against one run without. */
static void matrix(compute_mode compute, dtype kv, const draft_options *draft, const char *name, bool all) {
    static workload base, with;
    harness_options o = harness_defaults;
    o.compute = compute;
    o.kv = kv;
    run(&o, &base);
    assert_int_equal(base.stats.drafts, 0);
    o.draft = *draft;
    const struct {
        const char *what;
        int32_t page_tokens, n_pages, chunk, max_rows, max_seqs, n_threads;
        prefix_cache cache;
        int64_t swap_bytes;
    } ways[] = {
        {"plain", 16, 1024, 0, 128, 16, 1, PREFIX_CACHE_TOKEN, 0},     {"pages of 1", 1, 4096, 0, 128, 16, 1, PREFIX_CACHE_TOKEN, 0},
        {"pages of 64", 64, 256, 0, 128, 16, 2, PREFIX_CACHE_PAGE, 0}, {"no cache", 4, 2048, 0, 512, 16, 1, PREFIX_CACHE_NONE, 0},
        {"chunk 3", 4, 2048, 3, 24, 5, 1, PREFIX_CACHE_TOKEN, 0},      {"few rows", 16, 1024, 0, 17, 16, 1, PREFIX_CACHE_TOKEN, 0},
        {"preempted", 4, 80, 0, 64, 16, 1, PREFIX_CACHE_TOKEN, 0},     {"preempted, no cache", 8, 36, 16, 64, 16, 1, PREFIX_CACHE_NONE, 0},
        {"swapped", 4, 80, 0, 64, 16, 1, PREFIX_CACHE_TOKEN, 1 << 26},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += all ? 1 : 3) {
        harness_options v = o;
        v.page_tokens = ways[i].page_tokens;
        v.n_pages = ways[i].n_pages;
        v.chunk = ways[i].chunk;
        v.max_rows = ways[i].max_rows;
        v.max_seqs = ways[i].max_seqs;
        v.n_threads = ways[i].n_threads;
        v.prefix_cache = ways[i].cache;
        v.swap_bytes = ways[i].swap_bytes;
        run(&v, &with);
        print_stats(ways[i].what, &with);
        same(&base, &with, ways[i].what);
        assert_true(with.stats.draft_accepted > 0 && with.stats.draft_accepted < with.stats.draft_tokens);
        assert_true(strncmp(ways[i].what, "preempted", 9) != 0 || with.stats.preemptions > 0);
        assert_int_equal(with.stats.n_running, 0);
        if (i == 0) {
            print_message("%s: %d steps without, %d with\n", name, (int)base.stats.steps, (int)with.stats.steps);
            assert_true(with.stats.steps < base.stats.steps);
        }
    }
}

static void ngram_drafts_change_nothing(void **state) {
    (void)state;
    matrix(COMPUTE_F32, DTYPE_F32, &ngram, "ngram", true);
    matrix(COMPUTE_INT8, DTYPE_BF16, &ngram, "ngram", false);
}

static const draft_options suffix = {
    .method = DRAFT_METHOD_SUFFIX, .n_tokens = 6, .suffix_depth = 12, .suffix_texts = 100, .suffix_factor = 2.0, .suffix_min_prob = 0.1};

static void suffix_drafts_change_nothing(void **state) {
    (void)state;
    matrix(COMPUTE_F32, DTYPE_F32, &suffix, "suffix", false);
    matrix(COMPUTE_INT8, DTYPE_BF16, &suffix, "suffix", false);
}

/* Branches change nothing either, and more than the first one is gone down: several tokens are accepted in steps that a line would not have had them from. */
static void trees_change_nothing(void **state) {
    (void)state;
    draft_options o = ngram;
    o.tree_width = 3;
    o.n_tokens = 9;
    matrix(COMPUTE_INT8, DTYPE_F16, &o, "ngram, trees", false);
    o = suffix;
    o.tree_width = DRAFT_MAX_WIDTH;
    o.n_tokens = DRAFT_MAX;
    o.suffix_factor = 16;
    o.suffix_min_prob = 0.01;
    o.fixed_length = true;
    matrix(COMPUTE_F32, DTYPE_F32, &o, "suffix, trees", true);
}

/* A draft model, open. */
typedef struct second {
    backend *b;
    model *m;
    kv_layout layout;
} second;

static draft_options second_open(second *x, const char *path, compute_mode compute, int32_t n_pages) {
    quire_error err = {0};
    model_file *f;
    backend_options bo = {.compute = compute, .isa = "auto", .n_threads = 1};
    step_limits limits = {.max_rows = 512, .max_seqs = 16, .max_out = 16};
    assert_int_equal(model_file_open(path, &f, &err), QUIRE_OK);
    assert_int_equal(backend_cpu_open(&bo, &x->b, &err), QUIRE_OK);
    assert_int_equal(model_open(f, x->b, 2048, &x->m, &err), QUIRE_OK);
    model_file_close(f);
    assert_int_equal(kv_layout_init(model_description(x->m), DTYPE_F32, 16, &x->layout, &err), QUIRE_OK);
    assert_int_equal(x->b->ops->step_open(x->b, &limits, &x->layout, model_description(x->m)->n_vocab, &err), QUIRE_OK);
    assert_int_equal(x->b->ops->kv_open(x->b, n_pages, &err), QUIRE_OK);
    return (draft_options){.method = DRAFT_METHOD_MODEL, .n_tokens = 4, .model = {x->m, x->b, &x->layout, n_pages, 2048}};
}

static void second_close(second *x) {
    model_close(x->m);
    x->b->ops->close(x->b);
}

static void drafts_of_a_second_model_change_nothing(void **state) {
    (void)state;
    second x;
    draft_options o = second_open(&x, "models/builtin-small.gguf", COMPUTE_F32, 512);
    matrix(COMPUTE_F32, DTYPE_F32, &o, "sibling", true);
    o.tree_width = 3;
    o.n_tokens = 6;
    matrix(COMPUTE_F32, DTYPE_F32, &o, "sibling, trees", false);
    second_close(&x);
    o = second_open(&x, "models/builtin-small.gguf", COMPUTE_INT8, 30); /* not enough pages for all: some are not drafted for */
    matrix(COMPUTE_INT8, DTYPE_BF16, &o, "sibling, few pages", false);
    second_close(&x);
}

/* The model drafting for itself is always right, sampled text included: drafts share the noise, and what was computed of drafts stays in step. */
static void a_model_that_drafts_for_itself_is_always_right(void **state) {
    (void)state;
    static workload base, with;
    second x;
    harness_options o = harness_defaults;
    run(&o, &base);
    o.draft = second_open(&x, o.path, COMPUTE_F32, 2048);
    run(&o, &with);
    print_stats("itself", &with);
    same(&base, &with, "itself");
    assert_true(with.stats.draft_tokens > 500);
    assert_int_equal(with.stats.draft_accepted, with.stats.draft_tokens);
    second_close(&x);
}

enum { N_DRAWS = 4000, N_GROUP = 100, N_CELLS = 36 };

/* How often the third and the fourth token of an answer were which two of the allowed six, in N_DRAWS samples. */
static void count_pairs(const harness_options *o, uint64_t seed, int32_t *counts, engine_stats *stats) {
    static const int32_t prompt[] = {17, 300, 4, 1200, 55, 90, 300, 17, 55, 4, 90, 1200, 17, 4, 300, 90, 55, 1200, 17, 300, 4};
    static outcome outcomes[N_GROUP];
    harness h = {0};
    harness_open(o, &h);
    memset(counts, 0, N_CELLS * sizeof *counts);
    for (int32_t k = 0; k < N_DRAWS / N_GROUP; k++) {
        quire_error err = {0};
        request_id ids[N_GROUP];
        void *users[N_GROUP];
        int32_t *tokens = mem_new(21, sizeof *tokens);
        memcpy(tokens, prompt, sizeof prompt);
        memset(outcomes, 0, sizeof outcomes);
        for (int32_t i = 0; i < N_GROUP; i++) {
            users[i] = &outcomes[i];
        }
        engine_request r = {.tokens = tokens, .n_tokens = 21, .sampling = greedy(4), .space = "test", .n_space = 4, .out = h.out};
        r.sampling.temperature = 1.0f;
        r.sampling.seed = seed + (uint64_t)k;
        r.sampling.lists = only_few;
        assert_int_equal(engine_submit_samples(h.e, &r, N_GROUP, users, ids, &err), QUIRE_OK);
        for (int32_t n = N_GROUP; n > 0;) {
            engine_event ev;
            if (!engine_out_pop(h.out, &ev)) {
                wake_wait(&h.reader, -1);
                continue;
            }
            take(&ev);
            n -= ev.finish != FINISH_NONE;
        }
        for (int32_t i = 0; i < N_GROUP; i++) {
            int32_t cell[2] = {0, 0};
            for (int32_t j = 0; j < 2; j++) {
                while (only_few->allowed[cell[j]] != outcomes[i].tokens[2 + j]) {
                    cell[j]++;
                }
            }
            counts[6 * cell[0] + cell[1]]++;
        }
    }
    *stats = settled(&h);
    harness_close(&h);
}

/* Of two tables of as many draws: around 35 when they were drawn alike; over 80 once in 20,000. */
static double chi_square(const int32_t *a, const int32_t *b) {
    double sum = 0;
    for (int32_t i = 0; i < N_CELLS; i++) {
        double d = a[i] - b[i];
        sum += a[i] + b[i] > 0 ? d * d / (a[i] + b[i]) : 0;
    }
    return sum;
}

static void rejection_sampling_keeps_the_distribution(void **state) {
    (void)state;
    static int32_t plain[N_CELLS], counts[N_CELLS];
    engine_stats stats;
    second x;
    harness_options o = harness_defaults;
    count_pairs(&o, 1000, plain, &stats);
    draft_options methods[4] = {ngram, second_open(&x, "models/builtin-small.gguf", COMPUTE_F32, 512)};
    for (int i = 0; i < 2; i++) { /* and with branches */
        methods[2 + i] = methods[i];
        methods[2 + i].tree_width = 3;
        methods[2 + i].n_tokens = 8;
    }
    for (int i = 0; i < 4; i++) {
        o.draft = methods[i];
        o.draft.rule = DRAFT_RULE_STANDARD;
        o.draft.fixed_length = true;
        count_pairs(&o, 5000, counts, &stats);
        double same_law = chi_square(plain, counts);
        print_message("method %d: chi square %.1f, %d of %d drafts accepted\n", (int)o.draft.method, same_law, (int)stats.draft_accepted, (int)stats.draft_tokens);
        assert_true(same_law < 80);
        assert_true(stats.draft_accepted > 500 && stats.draft_accepted < stats.draft_tokens - 500);
    }
    second_close(&x);
}

/* Greedy requests come out the same under either rule. */
static void greedy_output_is_the_same_under_rejection_sampling(void **state) {
    (void)state;
    static workload base, with;
    harness_options o = harness_defaults;
    run(&o, &base);
    o.draft = ngram;
    o.draft.rule = DRAFT_RULE_STANDARD;
    run(&o, &with);
    assert_true(with.stats.draft_accepted > 0);
    static const int32_t same_ones[] = {0, 3, 4, 6, 9, 10}; /* the greedy ones, and mirostat's */
    for (size_t i = 0; i < sizeof same_ones / sizeof *same_ones; i++) {
        assert_memory_equal(&base.outcomes[same_ones[i]], &with.outcomes[same_ones[i]], sizeof base.outcomes[0]);
    }
    assert_memory_not_equal(base.outcomes, with.outcomes, sizeof base.outcomes); /* sampled ones do not */
}

/* ---- jump ahead ---- */

/* What is forced comes in fewer steps and rows of logits, and is the same. */
static void forced_tokens_are_computed_together(void **state) {
    (void)state;
    static const int32_t one[] = {321};
    int32_t prompt[30];
    uint64_t seed = 9;
    sampling_lists *lists = sampling_lists_new();
    assert_true(lists && sampling_lists_set_allowed(lists, one, 1) == QUIRE_OK);
    random_prompt(&seed, 2048, 30, prompt);
    for (int kind = 0; kind < 4; kind++) { /* plain; with an own stop token; sampled; with mirostat, which is chosen one by one */
        static harness_run runs[2];
        engine_stats stats[2];
        for (int jump = 0; jump < 2; jump++) {
            harness_options o = harness_defaults;
            harness h = {0};
            o.draft.no_jump_forward = !jump;
            harness_open(&o, &h);
            runs[jump] = (harness_run){.prompt = prompt, .n_prompt = 30, .sampling = greedy(100)};
            runs[jump].sampling.lists = lists;
            runs[jump].sampling.n_stop_tokens = kind == 1;
            runs[jump].sampling.stop_tokens[0] = 321;
            runs[jump].sampling.temperature = kind >= 2 ? 1.0f : 0.0f;
            runs[jump].sampling.mirostat = kind == 3 ? MIROSTAT_2 : MIROSTAT_OFF;
            runs[jump].sampling.mirostat_tau = 3.0f;
            runs[jump].sampling.mirostat_eta = 0.1f;
            harness_submit(&h, &runs[jump]);
            harness_wait(&h, 1);
            stats[jump] = settled(&h);
            harness_close(&h);
        }
        assert_int_equal(runs[0].n_tokens, kind == 1 ? 1 : 100);
        assert_int_equal(runs[1].n_tokens, runs[0].n_tokens);
        assert_int_equal(runs[1].finish, runs[0].finish);
        assert_memory_equal(runs[0].tokens, runs[1].tokens, (size_t)runs[0].n_tokens * sizeof(int32_t));
        assert_int_equal(stats[0].steps, runs[0].n_tokens);
        assert_int_equal(stats[0].forced_tokens, 0);
        if (kind == 0 || kind == 2) {
            assert_int_equal(stats[1].steps, 4); /* the prompt, and 99 tokens of which a step takes 1 + 32 */
            assert_int_equal(stats[1].forced_tokens, 96);
            assert_int_equal(stats[1].step_rows, stats[0].step_rows); /* and no row in vain */
        }
        if (kind == 3) {
            assert_int_equal(stats[1].forced_tokens, 0);
        }
    }
    sampling_lists_drop(lists);
}

/* In a step without room for drafts a forced token is computed alone; it has no logits, and those of the others stay theirs. */
static void forced_tokens_in_a_full_step_leave_the_others_alone(void **state) {
    (void)state;
    enum { N = 16 };
    static const int32_t one[] = {321};
    static int32_t prompts[N][20];
    static harness_run alone[N], together[N];
    harness_options o = harness_defaults;
    sampling_lists *lists = sampling_lists_new();
    assert_true(lists && sampling_lists_set_allowed(lists, one, 1) == QUIRE_OK);
    o.n_threads = 2;
    o.max_rows = o.max_seqs = N;
    uint64_t seed = 5;
    for (int full = 0; full < 2; full++) {
        harness h = {0};
        harness_open(&o, &h);
        for (int i = 0; i < N; i++) {
            harness_run *r = full ? &together[i] : &alone[i];
            if (!full) {
                random_prompt(&seed, h.n_vocab, 20, prompts[i]);
            }
            *r = (harness_run){.prompt = prompts[i], .n_prompt = 20, .sampling = greedy(60)};
            r->sampling.lists = i % 2 ? NULL : lists;
            harness_submit(&h, r);
            harness_wait(&h, full ? 0 : 1);
        }
        harness_wait(&h, full ? N : 0);
        harness_close(&h);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(together[i].n_tokens, 60);
        assert_memory_equal(together[i].tokens, alone[i].tokens, 60 * sizeof(int32_t));
    }
    sampling_lists_drop(lists);
}

/* The second of two requests alike is guessed from the first one's output, unless it is another tenant's. */
static void recent_outputs_are_guessed_from_within_their_space(void **state) {
    (void)state;
    harness_options o = harness_defaults;
    uint64_t seed = 12;
    int32_t prompt[20];
    o.draft = suffix;
    random_prompt(&seed, 2048, 20, prompt);
    for (int other = 0; other < 2; other++) {
        harness h = {0};
        harness_open(&o, &h);
        static harness_run runs[2];
        engine_stats after[2];
        for (int i = 0; i < 2; i++) {
            runs[i] = (harness_run){.prompt = prompt, .n_prompt = 20, .sampling = greedy(40), .space = i && other ? "other" : "test"};
            runs[i].sampling.frequency_penalty = 1.0f; /* little repeats itself */
            harness_submit(&h, &runs[i]);
            harness_wait(&h, 1);
            after[i] = settled(&h);
        }
        assert_memory_equal(runs[0].tokens, runs[1].tokens, 40 * sizeof(int32_t));
        int64_t n_first = after[0].draft_accepted, n_second = after[1].draft_accepted - after[0].draft_accepted;
        print_message("accepted: first %d, second %d\n", (int)n_first, (int)n_second);
        assert_true(other ? n_second == n_first : n_second > n_first + 20);
        harness_close(&h);
    }
}

/* draft_ngram's tree as a line of tokens; returns its length. */
static int32_t look_up(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max, int32_t wanted, draft_tree *out) {
    *out = (draft_tree){0};
    draft_ngram(tokens, n, lookup_min, lookup_max, &(draft_bounds){wanted, wanted, 1}, out);
    for (int32_t i = 0; i < out->n; i++) {
        assert_int_equal(out->parents[i], i - 1);
    }
    return out->n;
}

static void the_longest_suffix_is_looked_up_and_repetitions_are_gone_round(void **state) {
    (void)state;
    static const int32_t t[] = {1, 2, 3, 9, 2, 3, 8, 1, 2, 3}, again[] = {5, 7, 6, 7, 6}, round[] = {7, 6, 7, 6, 7};
    draft_tree out;
    assert_int_equal(look_up(t, 10, 1, 4, 3, &out), 3);
    assert_int_equal(out.tokens[0], 9); /* 1 2 3 stands at 0, the shorter 2 3 at 4 */
    assert_int_equal(out.tokens[1], 2);
    assert_int_equal(look_up(t, 10, 1, 2, 3, &out), 3);
    assert_int_equal(out.tokens[0], 8); /* no longer than 2: the latest */
    assert_int_equal(look_up(t, 10, 4, 4, 3, &out), 0);
    assert_int_equal(look_up(again, 5, 1, 4, 5, &out), 5);
    assert_memory_equal(out.tokens, round, sizeof round);
    assert_int_equal(look_up(t, 1, 1, 4, 3, &out), 0);
    assert_int_equal(look_up(t, 0, 1, 4, 3, &out), 0);
}

static void places_that_go_on_otherwise_are_branches(void **state) {
    (void)state;
    static const int32_t t[] = {1, 2, 3, 9, 2, 3, 8, 4, 2, 3, 8, 5, 3, 6, 1, 2, 3}; /* 1 2 3 is followed by 9, 2 3 by 8 twice, 3 by 6 */
    static const int32_t tokens[] = {9, 2, 8, 6}, wider[] = {9, 2, 3, 8, 5, 6, 1};
    static const int8_t parents[] = {-1, 0, -1, -1}, wider_parents[] = {-1, 0, 1, -1, 3, -1, 5};
    draft_tree out = {0};
    draft_ngram(t, 17, 1, 4, &(draft_bounds){4, 4, 3}, &out);
    assert_int_equal(out.n, 4);
    assert_memory_equal(out.tokens, tokens, sizeof tokens);
    assert_memory_equal(out.parents, parents, sizeof parents);
    out = (draft_tree){0};
    draft_ngram(t, 17, 1, 4, &(draft_bounds){7, 3, 8}, &out);
    assert_int_equal(out.n, 7);
    assert_memory_equal(out.tokens, wider, 5 * sizeof *wider);
    assert_int_equal(out.tokens[5], 6);
    assert_memory_equal(out.parents, wider_parents, sizeof wider_parents);
    out = (draft_tree){0};
    draft_ngram(t, 17, 2, 4, &(draft_bounds){6, 6, 8}, &out);
    assert_int_equal(out.n, 6); /* 3 alone does not count */
    assert_int_equal(out.tokens[0], 9);
    assert_int_equal(out.tokens[3], 8);
}

static int lists_open(void **state) {
    (void)state;
    static const int32_t few[] = {17, 300, 4, 1200, 55, 90};
    only_few = sampling_lists_new();
    return only_few == NULL || sampling_lists_set_allowed(only_few, few, 6) != QUIRE_OK;
}

static int lists_close(void **state) {
    (void)state;
    sampling_lists_drop(only_few);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_suffix_is_looked_up_and_repetitions_are_gone_round),
        cmocka_unit_test(places_that_go_on_otherwise_are_branches),
        cmocka_unit_test(ngram_drafts_change_nothing),
        cmocka_unit_test(suffix_drafts_change_nothing),
        cmocka_unit_test(trees_change_nothing),
        cmocka_unit_test(drafts_of_a_second_model_change_nothing),
        cmocka_unit_test(a_model_that_drafts_for_itself_is_always_right),
        cmocka_unit_test(rejection_sampling_keeps_the_distribution),
        cmocka_unit_test(greedy_output_is_the_same_under_rejection_sampling),
        cmocka_unit_test(forced_tokens_are_computed_together),
        cmocka_unit_test(forced_tokens_in_a_full_step_leave_the_others_alone),
        cmocka_unit_test(recent_outputs_are_guessed_from_within_their_space),
    };
    return cmocka_run_group_tests(tests, lists_open, lists_close);
}
