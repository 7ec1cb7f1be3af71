/* Drafts of a second model change nothing (draft_case.h); the rejection rule keeps the distribution. */
#include "draft_case.h"

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

/* The model drafting for itself is always right, sampled text included: drafts share the noise, and what was computed of drafts stays in
 * step. */
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

#if defined(__SANITIZE_THREAD__) /* many times as slow */
enum { N_DRAWS = 2000 };
#else
enum { N_DRAWS = 4000 };
#endif
enum { N_GROUP = 100, N_CELLS = 36 };

/* How often the third and the fourth token of a response were which two of the allowed six, in N_DRAWS samples. */
static void count_pairs(const harness_options *o, uint64_t seed, int32_t *counts, quire_stats *stats) {
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
        engine_request r = {.tokens = tokens, .n_tokens = 21, .sampling = greedy(4), .namespace = "test", .n_namespace = 4, .out = h.out};
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
        print_message("method %d: chi square %.1f, %d of %d drafts accepted\n", (int)o.draft.method, same_law, (int)stats.draft_accepted,
                      (int)stats.draft_tokens);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_of_a_second_model_change_nothing),
        cmocka_unit_test(a_model_that_drafts_for_itself_is_always_right),
        cmocka_unit_test(rejection_sampling_keeps_the_distribution),
        cmocka_unit_test(greedy_output_is_the_same_under_rejection_sampling),
    };
    return cmocka_run_group_tests(tests, lists_open, lists_close);
}
