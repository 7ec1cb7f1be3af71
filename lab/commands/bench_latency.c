/* `quire bench latency`: time per token by the number of tokens before it, for a whole
 * model: with keys and values in pages, contiguous, and not kept, so that everything
 * before is recomputed. The ways alternate and choose the same tokens. */

#include "lab/bench/baseline_kv.h"
#include "lab/bench/model_runner.h"
#include "lab/bench/model_shape.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_latency_options {
    cli_options cli;
    const char *contexts; /* tokens before the measured ones: "128,256,512,1024,2048" */
    int32_t n_steps;      /* tokens measured, one by one */
    int32_t n_runs;
} bench_latency_options;

enum { MAX_ROWS = 512, PAGE_TOKENS = 16, SEED = 37 };

static void bench_latency_defaults(cli_options *cli) {
    bench_latency_options *o = (void *)cli;
    *o = (bench_latency_options){
        .cli = o->cli, .contexts = "128,256,512,1024,2048", .n_steps = 256, .n_runs = 3};
    o->cli.engine.model = "builtin";
}

enum { PAGED, CONTIGUOUS, N_KEPT };

typedef struct latency {
    model_runner b;
    int32_t n_steps, n_runs;
    int32_t *tokens, *pages; /* [longest + n_steps]; pages are scattered, as in a pool after long use */
    uint64_t digest[N_KEPT]; /* digest of the tokens chosen from the last run's logits */
} latency;

/* Times for one length: milliseconds of each run. */
typedef struct length_times {
    double first[FIGURES_MAX_RUNS], token[N_KEPT][FIGURES_MAX_RUNS], recomputed[FIGURES_MAX_RUNS];
} length_times;

static double ms_since(const latency *l, int64_t start) {
    return (double)(figures_time_us(l->b.n_threads) - start) / 1000;
}

/* Computes a prompt of n tokens and n_steps after it; given tokens are fed, whatever the
 * logits choose. */
static quire_err bench_latency_decode(latency *l, int way, int32_t n, double *first_ms, double *token_ms) {
    const int32_t *pages = way == PAGED ? l->pages : NULL;
    int64_t start = figures_time_us(l->b.n_threads);
    TRY(model_runner_prefill(&l->b, l->tokens, n, pages));
    *first_ms = ms_since(l, start);
    l->digest[way] = 0;
    start = figures_time_us(l->b.n_threads);
    for (int32_t i = 0; i < l->n_steps; i++) {
        runner_part p = {l->tokens, n + i, 1, pages, 1, NULL, NULL};
        TRY(model_runner_forward(&l->b, &p, 1));
        l->digest[way] = l->digest[way] * 31 + (uint64_t)model_runner_greedy(&l->b, 0);
    }
    *token_ms = ms_since(l, start) / l->n_steps;
    return QUIRE_OK;
}

static quire_err decode_contiguous(latency *l, int32_t n, double *token_ms) {
    baseline_kv *k;
    double first_ms;
    TRY(baseline_kv_attach(l->b.b, 1, n + l->n_steps, &k));
    quire_err e = bench_latency_decode(l, CONTIGUOUS, n, &first_ms, token_ms);
    TRY_DONE(e, baseline_kv_error(k));
done:
    baseline_kv_detach(k);
    return e;
}

static quire_err bench_latency_measure(latency *l, int32_t n, length_times *t) {
    for (int32_t run = 0; run < l->n_runs; run++) {
        TRY(bench_latency_decode(l, PAGED, n, &t->first[run], &t->token[PAGED][run]));
        TRY(decode_contiguous(l, n, &t->token[CONTIGUOUS][run]));
        int64_t start = figures_time_us(l->b.n_threads);
        TRY(model_runner_prefill(&l->b, l->tokens, n + 1, l->pages)); /* the token after n, all again */
        t->recomputed[run] = ms_since(l, start);
        if (l->digest[PAGED] != l->digest[CONTIGUOUS]) {
            TRY(QUIRE_INTERNAL);
        }
    }
    return QUIRE_OK;
}

static void bench_latency_report(const bench_table *s, const latency *l, int32_t n, const length_times *t) {
    figure paged = figure_of(t->token[PAGED], l->n_runs),
           contiguous = figure_of(t->token[CONTIGUOUS], l->n_runs), first = figure_of(t->first, l->n_runs),
           again = figure_of(t->recomputed, l->n_runs);
    TABLE_ROW(s, NUM(n), NUM(first.mean), NUM(first.spread), NUM(paged.mean), NUM(paged.spread),
              NUM(contiguous.mean), NUM(contiguous.spread), NUM(paged.mean / contiguous.mean),
              NUM(again.mean), NUM(again.spread), NUM(again.mean / paged.mean));
}

static quire_err open_latency(const bench_latency_options *o, int32_t longest, latency *l, quire_error *err) {
    int32_t most = longest + o->n_steps, n_pages = (int32_t)kv_pages_for(most, PAGE_TOKENS);
    *l = (latency){.n_steps = o->n_steps, .n_runs = o->n_runs};
    TRY(MODEL_RUNNER_OPEN(&l->b, err, .engine = &o->cli.engine, .page_tokens = PAGE_TOKENS,
                          .n_pages = n_pages, .max_rows = MAX_ROWS, .max_seqs = 1, .max_len = most));
    l->tokens = mem_new((size_t)most, sizeof *l->tokens);
    l->pages = mem_new((size_t)n_pages, sizeof *l->pages);
    TRY(mem_check_for(l->tokens && l->pages ? l->tokens : NULL, "the tokens", err));
    model_runner_scatter(SEED, n_pages, l->pages);
    model_runner_prompt(&l->b, SEED, most, l->tokens);
    return QUIRE_OK;
}

static void close_latency(latency *l) {
    mem_free(l->tokens);
    mem_free(l->pages);
    model_runner_close(&l->b);
}

static quire_err run_lengths(const bench_latency_options *o, const int32_t *contexts, int32_t n, latency *l,
                             quire_error *err) {
    TABLE(s, "latency", o->cli.json, KEY("context", "tokens before", 13, 0),
          FIGURE("first", "first ms", 9, 2, "ms"), FIGURE("first_spread", "+-", 6, 2, "ms"),
          FIGURE("paged", "paged ms/token", 14, 4, "ms"), FIGURE("paged_spread", "+-", 7, 4, "ms"),
          FIGURE("contiguous", "contiguous", 10, 4, "ms"), FIGURE("contiguous_spread", "+-", 7, 4, "ms"),
          FIGURE("ratio", "ratio", 6, 3, "x"), FIGURE("recomputed", "all again ms", 12, 2, "ms"),
          FIGURE("recomputed_spread", "+-", 6, 2, "ms"), FIGURE("recomputed_ratio", "to paged", 8, 1, "x"));
    table_begin(&s, "Decoding after a context of each length: keys and values in pages in random order, "
                    "in one contiguous buffer, and with the whole context computed again");
    for (int32_t i = 0; i < n; i++) {
        length_times t;
        quire_err e = bench_latency_measure(l, contexts[i], &t);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "%d tokens: %s", (int)contexts[i],
                           e == QUIRE_INTERNAL ? "pages and one piece choose different tokens"
                                               : quire_err_text(e));
        }
        bench_latency_report(&s, l, contexts[i], &t);
    }
    table_note(&s,
               "%s, compute %s, KV %s, page %d, %s, %s; mean and spread of %d runs in turns, each of %d "
               "tokens (measured); all choose the same tokens",
               l->b.desc->name, compute_name(l->b.b->compute), l->b.layout.type_name, PAGE_TOKENS,
               l->b.b->ops->describe(l->b.b), figures_time_name(l->b.n_threads), (int)o->n_runs,
               (int)o->n_steps);
    return QUIRE_OK;
}

static quire_err bench_latency_run(const cli_options *cli, quire_error *err) {
    bench_latency_options own = *(const bench_latency_options *)(const void *)cli;
    int32_t contexts[FIGURES_MAX_POINTS], n;
    synthetic made;
    latency l;
    TRY(figures_parse_list("--context", own.contexts, contexts, &n, err));
    TRY(synthetic_open_builtin(&own.cli.engine, &made, err));
    quire_err e = open_latency(&own, figures_largest(contexts, n), &l, err);
    TRY_DONE(e, run_lengths(&own, contexts, n, &l, err));
done:
    close_latency(&l);
    synthetic_close(&made);
    return e;
}

#define AT(member) .offset = offsetof(bench_latency_options, member)

static const flag bench_latency_flags[] = {
    {"--context", "LIST", "tokens before the measured ones", TEXT(contexts)},
    {"--decode -n", "N", "tokens that are measured, one by one", COUNT(n_steps, 1, 1 << 16)},
    {"--runs", "N", "runs per figure", COUNT(n_runs, 1, 64)},
    {"--model -m", "MODEL", "the model; builtin: its shape with 131,072 positions", TEXT(cli.engine.model)},
    {0},
};

LAB_COMMAND(bench_latency, "bench latency", "", ARGUMENT_NONE,
            "time of a token by context: paged, contiguous, no cache",
            "  quire bench latency --context 128,1024,8192 -t 1\n", bench_latency_flags, flags_compute,
            flags_kv_dtype, flags_threads, flags_json, flags_help);
