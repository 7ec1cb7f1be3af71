/* Drafts of a second model change nothing (draft_case.h); the rejection rule keeps the
 * distribution. */
#include "draft_case.h"

TEST(drafts_of_a_second_model_change_nothing) {
    second x;
    draft_options o = second_open(&x, SIBLING, COMPUTE_F32, 512);
    matrix(COMPUTE_F32, DTYPE_F32, &o, (engine_ablations){0}, "sibling", true);
    o.tree_width = 3;
    o.n_tokens = 6;
    matrix(COMPUTE_F32, DTYPE_F32, &o, (engine_ablations){0}, "sibling, trees", false);
    second_close(&x);
    o = second_open(&x, SIBLING, COMPUTE_INT8, 30); /* not enough pages for all: some are not drafted for */
    matrix(COMPUTE_INT8, DTYPE_BF16, &o, (engine_ablations){0}, "sibling, few pages", false);
    second_close(&x);
}

/* The draft model drafts as the base does; what it drafts is verified under the
 * adapter. */
TEST(drafts_change_nothing_under_adapters) {
    second x;
    draft_options o = second_open(&x, SIBLING, COMPUTE_F32, 512);
    have_adapters = true;
    matrix(COMPUTE_F32, DTYPE_F32, &o, (engine_ablations){0}, "sibling, adapters",
           getenv("QUIRE_TEST_LONG") != NULL);
    o.tree_width = 3;
    o.n_tokens = 6;
    matrix(COMPUTE_INT8, DTYPE_BF16, &o, (engine_ablations){0}, "sibling, trees, adapters", false);
    second_close(&x);
    o = ngram;
    o.tree_width = 3;
    matrix(COMPUTE_F32, DTYPE_F32, &o, (engine_ablations){0}, "ngram, trees, adapters", false);
    matrix(COMPUTE_F32, DTYPE_F32, &suffix, (engine_ablations){0}, "suffix, adapters", false);
    have_adapters = false;
}

/* The model drafting for itself is always right, sampled text included: drafts share the
 * noise, and what was computed of drafts stays in step. */
TEST(a_model_that_drafts_for_itself_is_always_right) {
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

#if defined(__SANITIZE_THREAD__) /* many times as slow */
enum { N_DRAWS = 2000 };
#else
enum { N_DRAWS = 4000 };
#endif
enum { N_GROUP = 100, N_CELLS = 36 };

/* How often the third and the fourth token of a response were which two of the allowed
 * six, in N_DRAWS samples. */
static void count_pairs(const harness_options *o, uint64_t seed, int32_t *counts, quire_stats *stats) {
    static const int32_t prompt[] = {17,   300, 4, 1200, 55, 90, 300,  17, 55,  4, 90,
                                     1200, 17,  4, 300,  90, 55, 1200, 17, 300, 4};
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
        engine_request r = {.tokens = tokens,
                            .n_tokens = 21,
                            .sampling = greedy(4),
                            .namespace = "test",
                            .n_namespace = 4,
                            .out = h.out};
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

/* Of two tables of as many draws: around 35 when they were drawn alike; over 80 once in
 * 20,000. */
static double chi_square(const int32_t *a, const int32_t *b) {
    double sum = 0;
    for (int32_t i = 0; i < N_CELLS; i++) {
        double d = a[i] - b[i];
        sum += a[i] + b[i] > 0 ? d * d / (a[i] + b[i]) : 0;
    }
    return sum;
}

TEST(rejection_sampling_keeps_the_distribution) {
    static int32_t plain[N_CELLS], counts[N_CELLS];
    quire_stats stats;
    second x;
    harness_options o = harness_defaults;
    count_pairs(&o, 1000, plain, &stats);
    draft_options methods[4] = {ngram, second_open(&x, SIBLING, COMPUTE_F32, 512)};
    for (int i = 0; i < 2; i++) { /* and with branches */
        methods[2 + i] = methods[i];
        methods[2 + i].tree_width = 3;
        methods[2 + i].n_tokens = 8;
    }
    for (int i = 0; i < 4; i++) {
        o.draft = methods[i];
        o.draft.rule = DRAFT_RULE_STANDARD;
        o.ablations.fixed_draft_length = true;
        count_pairs(&o, 5000, counts, &stats);
        double same_law = chi_square(plain, counts);
        print_message("method %d: chi square %.1f, %d of %d drafts accepted\n", (int)o.draft.method, same_law,
                      (int)stats.draft_accepted, (int)stats.draft_tokens);
        assert_true(same_law < 80);
        assert_true(stats.draft_accepted > 500 && stats.draft_accepted < stats.draft_tokens - 500);
    }
    second_close(&x);
}

/* Greedy requests come out the same under either rule. */
TEST(greedy_output_is_the_same_under_rejection_sampling) {
    static workload base, with;
    harness_options o = harness_defaults;
    run(&o, &base);
    o.draft = ngram;
    o.draft.rule = DRAFT_RULE_STANDARD;
    run(&o, &with);
    assert_true(with.stats.draft_accepted > 0);
    static const int32_t same_ones[] = {0, 3, 4, 6, 9, 10}; /* the greedy ones, and mirostat's */
    for (size_t i = 0; i < sizeof same_ones / sizeof *same_ones; i++) {
        assert_memory_equal(&base.outcomes[same_ones[i]], &with.outcomes[same_ones[i]],
                            sizeof base.outcomes[0]);
    }
    assert_memory_not_equal(base.outcomes, with.outcomes, sizeof base.outcomes); /* sampled ones do not */
}

/* ---- what the engine says to a drafter ---- */

/* The tokens of each sequence that a watched drafter has seen, its own drafts included.
 * By the engine thread. */
typedef struct seen {
    const int32_t *of; /* the sequence's tokens; NULL: free */
    int32_t tokens[512], n;
} seen;

static struct {
    const draft_ops *ops;
    seen seqs[16];
    int32_t n_proposed, n_wrong, n_preempted;
} watch;

static seen *seen_of(const draft_seq *s) {
    seen *free_one = NULL;
    for (int i = 0; i < 16; i++) {
        if (watch.seqs[i].of == s->tokens) {
            return &watch.seqs[i];
        }
        free_one = watch.seqs[i].of == NULL ? &watch.seqs[i] : free_one;
    }
    return free_one;
}

static void watch_propose(drafter *d, draft_seq *const *seqs, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const seen *x = seen_of(seqs[i]);
        bool is_known = x->of != NULL;
        watch.n_wrong += is_known && (seqs[i]->n_agreed > x->n ||
                                      memcmp(x->tokens, seqs[i]->tokens,
                                             (size_t)seqs[i]->n_agreed * sizeof *x->tokens) != 0);
    }
    watch.ops->propose(d, seqs, n);
    watch.n_proposed += n;
    for (int32_t i = 0; i < n; i++) {
        seen *x = seen_of(seqs[i]);
        x->of = seqs[i]->tokens;
        x->n = seqs[i]->n_known + seqs[i]->tree.n;
        memcpy(x->tokens, x->of, (size_t)x->n * sizeof *x->tokens);
    }
}

static void watch_forget(drafter *d, draft_seq *s, bool over) {
    seen_of(s)->of = NULL;
    watch.n_preempted += !over;
    watch.ops->forget(d, s, over);
}

static void watch_close(drafter *d) {
    watch.ops->close(d);
}

static const draft_ops watching = {.propose = watch_propose, .forget = watch_forget, .close = watch_close};

/* Before the first request. */
static void watch_drafter(harness *h) {
    memset(&watch, 0, sizeof watch);
    watch.ops = h->e->drafter->ops;
    h->e->drafter->ops = &watching;
}

/* A constraint that allows everything, and now and then guesses the next tokens of a
 * known answer. */
typedef struct oracle {
    constraint head;
    const int32_t *answer;
    int32_t n, n_guessed;
} oracle;

static void oracle_init(const constraint *c, void *state) {
    memset(state, 0, c->state_bytes);
}

static quire_err oracle_mask(const constraint *c, const void *state, uint64_t *bits) {
    (void)state;
    memset(bits, 0xFF, (size_t)constraint_words(c->n_vocab) * sizeof *bits);
    return QUIRE_OK;
}

static quire_err oracle_accept(const constraint *c, void *state, int32_t token) {
    (void)c, (void)token;
    ++*(int32_t *)state;
    return QUIRE_OK;
}

static int32_t oracle_guess(const constraint *c, const void *state, const guess_bounds *bounds, int32_t *ids,
                            int32_t *parents) {
    oracle *o = (oracle *)(uintptr_t)c;
    int32_t at = *(const int32_t *)state, n = 0;
    for (; at % 7 == 2 && n < 3 && n < bounds->nodes && at + n < o->n; n++) {
        ids[n] = o->answer[at + n];
        parents[n] = n - 1;
    }
    o->n_guessed += n;
    return n;
}

static bool oracle_is_final(const constraint *c, const void *state) {
    (void)c, (void)state;
    return true;
}

static void oracle_close(constraint *c) {
    (void)c;
}

/* A guess of the constraint is computed by the target alone: the draft model must compute
 * those tokens itself. */
TEST(a_drafter_has_seen_what_it_is_said_to_have_seen) {
    static const constraint_ops ops = {oracle_init,  oracle_mask,     oracle_accept, NULL,
                                       oracle_guess, oracle_is_final, oracle_close,  NULL};
    static harness_run runs[2];
    static oracle known;
    int32_t prompt[30];
    uint64_t seed = 4;
    second x;
    draft_options draft = second_open(&x, SIBLING, COMPUTE_F32, 512);
    for (int drafts = 0; drafts < 2; drafts++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.draft = drafts ? draft : o.draft;
        harness_open(&o, &h);
        random_prompt(&seed, h.n_vocab, drafts ? 0 : 30, prompt);
        known = (oracle){.answer = runs[0].tokens, .n = drafts ? runs[0].n_tokens : 0};
        constraint_init(&known.head, &ops, h.n_vocab, sizeof(int32_t));
        runs[drafts] = (harness_run){
            .prompt = prompt, .n_prompt = 30, .sampling = greedy(200), .constraint = &known.head};
        if (drafts) {
            watch_drafter(&h);
        }
        harness_submit(&h, &runs[drafts]);
        harness_wait(&h, 1);
        (void)settled(&h);
        harness_close(&h);
    }
    assert_memory_equal(runs[0].tokens, runs[1].tokens, 200 * sizeof(int32_t));
    if (known.n_guessed <= 10 || watch.n_proposed <= 10) {
        fail_msg("%d tokens guessed by the constraint, %d drafts of the model", (int)known.n_guessed,
                 (int)watch.n_proposed);
    }
    assert_int_equal(watch.n_wrong, 0);
    second_close(&x);
}

TEST(a_drafter_forgets_what_is_preempted) {
    enum { N = 8 };
    static harness_run runs[N];
    int32_t prompt[40];
    uint64_t seed = 6;
    second x;
    harness h = {0};
    harness_options o = harness_defaults;
    o.page_tokens = 4;
    o.n_pages = 80;
    o.max_rows = 64;
    o.draft = second_open(&x, SIBLING, COMPUTE_F32, 512);
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, 40, prompt);
    watch_drafter(&h);
    harness_hold(&h); /* all at once */
    for (int i = 0; i < N; i++) {
        runs[i] = (harness_run){.prompt = prompt + i, .n_prompt = 40 - i, .sampling = greedy(60)};
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N);
    quire_stats stats = settled(&h);
    assert_true(stats.preemptions > 0);
    assert_int_equal(watch.n_preempted, stats.preemptions);
    assert_int_equal(watch.n_wrong, 0);
    harness_close(&h);
    second_close(&x);
}

static int model_open_both(void **state) {
    return lists_open(state) || adapters_write(state);
}

static int model_close_both(void **state) {
    return lists_close(state) || adapters_remove(state);
}

TEST_MAIN(model_open_both, model_close_both)
