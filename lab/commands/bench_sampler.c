/* `quire bench sampler`: the cost of choosing a token from a row of logits. */

#include "base/clock.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "lab/commands/lab_commands.h"
#include "sample/sampler.h"

typedef struct bench_sampler_options {
    cli_options cli;
    const char *vocabularies; /* sizes, "32000,151936" */
    int32_t n_rows;           /* rows per step */
    int32_t n_threads;        /* 0: one per core */
    int32_t n_runs;
} bench_sampler_options;

#define SPREAD   3.0f /* standard deviation of normal logits: thousands of tokens are likely */
#define EXPONENT 1.5f /* Zipf exponent: some dozens of tokens are likely, as in text */

LAB_DEFAULTS(bench_sampler, .vocabularies = "32000,151936", .n_rows = 256, .n_runs = 5)

typedef struct sampling_run {
    int32_t n_vocab, n_rows;
    float *logits;      /* [n_rows, n_vocab]: greedy sampling and cuts do not change them */
    sampler **samplers; /* one per worker */
    thread_pool *threads;
    sampling_params params;
    const constraint *constraint; /* NULL: none */
    quire_err *errors;            /* [n_rows] */
} sampling_run;

/* A constraint that costs almost nothing: one stored mask for all states, which are
 * empty. The rest is the engine's overhead. */
typedef struct stored_mask {
    constraint head;
    uint64_t *bits;
} stored_mask;

static void mask_init(const constraint *c, void *state) {
    (void)c, (void)state;
}

static quire_err mask_copy(const constraint *c, const void *state, uint64_t *bits) {
    (void)state;
    memcpy(bits, ((const stored_mask *)c)->bits, (size_t)constraint_words(c->n_vocab) * sizeof *bits);
    return QUIRE_OK;
}

static quire_err mask_accept(const constraint *c, void *state, int32_t token) {
    (void)state;
    return ((const stored_mask *)c)->bits[token / 64] >> (token % 64) & 1 ? QUIRE_OK : QUIRE_INVALID;
}

static bool mask_is_final(const constraint *c, const void *state) {
    (void)c, (void)state;
    return false;
}

static const constraint_ops mask_ops = {
    .init = mask_init, .mask = mask_copy, .accept = mask_accept, .is_final = mask_is_final};

/* Makes a mask in which one in `sparseness` tokens, at random, is allowed. */
static quire_err mask_open(stored_mask *m, int32_t n_vocab, uint64_t sparseness) {
    uint64_t seed = 7;
    m->bits = mem_new((size_t)constraint_words(n_vocab), sizeof *m->bits);
    TRY(mem_check(m->bits));
    constraint_init(&m->head, &mask_ops, n_vocab, 0);
    for (int32_t i = 0; i < n_vocab; i++) {
        /* allow at least one */
        m->bits[i / 64] |= (uint64_t)(i == 0 || rng_next(&seed) % sparseness == 0) << (i % 64);
    }
    return QUIRE_OK;
}

static void bench_sampler_row(void *context, int32_t row, int32_t worker) {
    sampling_run *r = context;
    int32_t token;
    sample_context c = {.params = &r->params,
                        .noise = sample_noise_of((sample_key){1, 0, (uint32_t)row}),
                        .constraint = r->constraint};
    r->errors[row] =
        sampler_sample(r->samplers[worker], r->logits + (size_t)row * (size_t)r->n_vocab, &c, &token);
}

static quire_err bench_sampler_measure(sampling_run *r, int32_t n_runs, figure *ns) {
    double values[FIGURES_MAX_RUNS];
    for (int32_t run = -1; run < n_runs; run++) { /* run -1 warms up */
        int64_t start = clock_us();
        thread_pool_run(r->threads, bench_sampler_row, r, r->n_rows);
        double us = (double)(clock_us() - start);
        for (int32_t i = 0; i < r->n_rows; i++) {
            TRY(r->errors[i]);
        }
        if (run >= 0) {
            values[run] = us * 1e3 / ((double)r->n_rows * r->n_vocab);
        }
    }
    *ns = figure_of(values, n_runs);
    return QUIRE_OK;
}

typedef enum shape { SHAPE_NORMAL, SHAPE_ZIPF, N_SHAPES } shape;

static const char *const SHAPE_NAMES[N_SHAPES] = {"normal", "zipf"};

/* Fills with normal numbers by Box and Muller's method, or with the logarithm of a power
 * of a random rank. */
static void bench_sampler_fill(shape kind, float *logits, size_t n, int32_t n_vocab) {
    uint64_t seed = 1;
    for (size_t i = 0; i < n; i++) {
        double u = ((double)(rng_next(&seed) >> 11) + 1.0) * 0x1p-53,
               v = (double)(rng_next(&seed) >> 11) * 0x1p-53;
        double normal = sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
        logits[i] = kind == SHAPE_NORMAL ? SPREAD * (float)normal : -EXPONENT * (float)log(ceil(u * n_vocab));
    }
}

static quire_err report_kinds(const bench_sampler_options *o, sampling_run *r, shape logits,
                              const bench_table *t) {
    static const struct {
        const char *name;
        float temperature, top_p;
        int32_t top_k;
        uint64_t sparseness; /* of a constraint's mask; 0: none */
    } kinds[] = {{"greedy", 0, 1, 0, 0},
                 {"temperature", 1, 1, 0, 0},
                 {"top-p 0.9", 1, 0.9f, 0, 0},
                 {"top-k 50", 1, 1, 50, 0},
                 {"top-k, top-p", 1, 0.9f, 50, 0},
                 {"half, greedy", 0, 1, 0, 2},
                 {"half", 1, 1, 0, 2},
                 {"few", 1, 1, 0, 1000}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        stored_mask m = {.bits = NULL};
        figure ns;
        sampling_params_init(&r->params);
        r->params.temperature = kinds[k].temperature;
        r->params.top_p = kinds[k].top_p;
        r->params.top_k = kinds[k].top_k;
        if (kinds[k].sparseness > 0) { /* which changes the logits, so each gets new ones */
            TRY(mask_open(&m, r->n_vocab, kinds[k].sparseness));
            bench_sampler_fill(logits, r->logits, (size_t)r->n_vocab * (size_t)r->n_rows, r->n_vocab);
            r->constraint = &m.head;
        }
        quire_err e = bench_sampler_measure(r, o->n_runs, &ns);
        r->constraint = NULL;
        mem_free(m.bits);
        TRY(e);
        TABLE_ROW(t, TXT(kinds[k].name), TXT(SHAPE_NAMES[logits]), NUM(r->n_vocab), NUM(ns.mean),
                  NUM(ns.spread), NUM(ns.mean * r->n_vocab * r->n_rows * 1e-6));
    }
    return QUIRE_OK;
}

static quire_err run_vocabulary(const bench_sampler_options *o, int32_t n_vocab, thread_pool *threads,
                                const bench_table *t) {
    size_t n = (size_t)n_vocab * (size_t)o->n_rows, n_workers = (size_t)thread_pool_size(threads);
    sampling_run r = {.n_vocab = n_vocab, .n_rows = o->n_rows, .threads = threads};
    r.logits = mem_new_huge(n, sizeof *r.logits); /* huge pages, as in the engine */
    r.samplers = mem_new(n_workers, sizeof *r.samplers);
    r.errors = mem_new((size_t)o->n_rows, sizeof *r.errors);
    quire_err e = r.logits && r.samplers && r.errors ? QUIRE_OK : QUIRE_NO_MEMORY;
    for (size_t i = 0; e == QUIRE_OK && i < n_workers; i++) {
        e = sampler_open(n_vocab, 1, &r.samplers[i]);
    }
    for (shape kind = 0; e == QUIRE_OK && kind < N_SHAPES; kind++) {
        bench_sampler_fill(kind, r.logits, n, n_vocab);
        e = report_kinds(o, &r, kind, t);
    }
    for (size_t i = 0; r.samplers && i < n_workers; i++) {
        sampler_close(r.samplers[i]);
    }
    mem_free(r.samplers);
    mem_free(r.logits);
    mem_free(r.errors);
    return e;
}

static quire_err bench_sampler_run(const cli_options *cli, quire_error *err) {
    const bench_sampler_options *o = (const void *)cli;
    TABLE(t, "sampler", o->cli.json, WORD("kind", "", -14), WORD("logits", "logits", -6),
          KEY("vocabulary", "vocabulary", 10, 0), FIGURE("time", "ns a logit", 10, 3, "ns/logit"),
          FIGURE("time_spread", "+-", 7, 3, "ns/logit"), FIGURE("step", "ms a step", 10, 2, "ms"));
    int32_t sizes[FIGURES_MAX_POINTS], n;
    thread_pool *threads;
    TRY(figures_parse_list("--vocabulary", o->vocabularies, sizes, &n, err));
    quire_err e = thread_pool_open(o->n_threads, &threads);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%d threads: %s", (int)o->n_threads, quire_err_text(e));
    }
    table_begin(&t, NULL);
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        e = run_vocabulary(o, sizes[i], threads, &t);
    }
    if (e == QUIRE_OK) {
        table_note(&t,
                   "%d rows of normal logits with standard deviation %.0f, and of Zipf's law with exponent "
                   "%.1f; %d threads, mean of %d runs. half, few: under a constraint whose mask leaves one "
                   "token in 2, in 1,000.",
                   (int)o->n_rows, (double)SPREAD, (double)EXPONENT, (int)thread_pool_size(threads),
                   (int)o->n_runs);
    } else {
        err_set(err, e, -1, "%d rows: %s", (int)o->n_rows, quire_err_text(e));
    }
    thread_pool_close(threads);
    return e;
}

#define AT(member) .offset = offsetof(bench_sampler_options, member)

static const flag bench_sampler_flags[] = {
    {"--vocabulary", "LIST", "sizes of the vocabulary", TEXT(vocabularies)},
    {"--rows", "N", "rows of a step", COUNT(n_rows, 1, 65536)},
    {"--threads -t", "N", "threads; 0: one a core", COUNT(n_threads, 0, 1024)},
    {"--runs", "N", "runs per figure", COUNT(n_runs, 1, 64)},
    {0},
};

LAB_COMMAND(bench_sampler, "bench sampler", "", ARGUMENT_NONE, "time of sampling a token",
            "  quire bench sampler --vocabulary 32000 --rows 256\n", bench_sampler_flags, flags_json,
            flags_help);
