/* `quire bench preempt`: what it costs to bring a preempted sequence back by swapping and
 * by computing it again, by page size and length, on a model that is really run. After
 * each copy out and in, the next token's logits must be the same to the bit. */

#include "base/clock.h"
#include "base/rng.h"
#include "lab/bench/model_runner.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_preempt_options {
    cli_options cli;
    const char *pages;   /* tokens a page, "1,16,256" */
    const char *lengths; /* tokens of the sequence, "128,1024" */
    int32_t n_runs;      /* each figure is the mean and spread of this many */
} bench_preempt_options;

enum { SEED = 29 };

LAB_DEFAULTS(bench_preempt, .pages = "1,2,4,8,16,32,64,128,256", .lengths = "128,512,1024", .n_runs = 3)

/* One page size: the model, a pool, and swap space for the longest sequence. */
typedef struct preempt_bench {
    model_runner b;
    int32_t max_len, n_pages;
    int32_t *tokens; /* [max_len] */
    /* [n_pages] the pool's pages in no order, as a pool that has been in use gives them
     * out */
    int32_t *pages;
    int32_t *frames;       /* [n_pages] the swap space's, likewise */
    unsigned char *memory; /* [n_pages, page_bytes] */
    unsigned char *zeros;  /* [page_bytes] */
    float *logits;         /* [n_vocab] of the last token before the sequence was preempted */
} preempt_bench;

/* Microseconds of one run. */
typedef struct preempt_times {
    double compute, out, in;
} preempt_times;

static void close_bench(preempt_bench *p) {
    mem_free(p->tokens);
    mem_free(p->pages);
    mem_free(p->frames);
    mem_free(p->memory);
    mem_free(p->zeros);
    mem_free(p->logits);
    model_runner_close(&p->b);
}

static quire_err open_bench(const bench_preempt_options *o, int32_t page_tokens, int32_t max_len,
                            preempt_bench *p, quire_error *err) {
    *p = (preempt_bench){.max_len = max_len, .n_pages = (int32_t)kv_pages_for(max_len, page_tokens)};
    TRY(MODEL_RUNNER_OPEN(&p->b, err, .engine = &o->cli.engine, .page_tokens = page_tokens,
                          .n_pages = p->n_pages, .max_rows = o->cli.engine.max_batched_tokens, .max_seqs = 1,
                          .max_len = max_len));
    p->tokens = mem_new((size_t)max_len, sizeof *p->tokens);
    p->pages = mem_new((size_t)p->n_pages, sizeof *p->pages);
    p->frames = mem_new((size_t)p->n_pages, sizeof *p->frames);
    p->memory = mem_new_huge((size_t)p->n_pages, (size_t)p->b.layout.page_bytes);
    p->zeros = mem_new(1, (size_t)p->b.layout.page_bytes);
    p->logits = mem_new((size_t)p->b.desc->n_vocab, sizeof *p->logits);
    if (!p->tokens || !p->pages || !p->frames || !p->memory || !p->zeros || !p->logits) {
        close_bench(p);
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory to swap a sequence of %d tokens", (int)max_len);
    }
    model_runner_prompt(&p->b, SEED, max_len, p->tokens);
    model_runner_scatter(SEED, p->n_pages, p->pages);
    model_runner_scatter(SEED + 1, p->n_pages, p->frames);
    return QUIRE_OK;
}

static unsigned char *frame_of(const preempt_bench *p, int32_t i) {
    return p->memory + (int64_t)p->frames[i] * p->b.layout.page_bytes;
}

/* Copies the first n pages out, or back in; microseconds. */
static double copy_out(preempt_bench *p, int32_t n) {
    int64_t start = clock_us();
    for (int32_t i = 0; i < n; i++) {
        p->b.b->ops->kv_read_page(p->b.b, p->pages[i], frame_of(p, i));
    }
    return (double)(clock_us() - start);
}

static double copy_in(preempt_bench *p, int32_t n) {
    int64_t start = clock_us();
    for (int32_t i = 0; i < n; i++) {
        p->b.b->ops->kv_write_page(p->b.b, p->pages[i], frame_of(p, i));
    }
    return (double)(clock_us() - start);
}

/* Others use the pages meanwhile: nothing of the sequence is left in them. */
static void lose_pages(preempt_bench *p, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        p->b.b->ops->kv_write_page(p->b.b, p->pages[i], p->zeros);
    }
}

/* Whether the last of n tokens, computed again over the pages, has the logits it had. */
static quire_err bench_preempt_check(preempt_bench *p, int32_t n, quire_error *err) {
    runner_part last = {p->tokens, n - 1, 1, p->pages, 1, NULL, NULL};
    TRY(model_runner_forward(&p->b, &last, 1));
    bool same =
        memcmp(model_runner_logits(&p->b, 0), p->logits, (size_t)p->b.desc->n_vocab * sizeof *p->logits) == 0;
    return same ? QUIRE_OK
                : err_set(err, QUIRE_INTERNAL, -1,
                          "a sequence of %d tokens is not what it was after it was swapped out and in",
                          (int)n);
}

static quire_err bench_preempt_run_once(preempt_bench *p, int32_t n, preempt_times *out, quire_error *err) {
    int32_t n_pages = (int32_t)kv_pages_for(n, p->b.layout.page_tokens);
    int64_t start = clock_us();
    TRY(model_runner_prefill(&p->b, p->tokens, n, p->pages));
    out->compute = (double)(clock_us() - start);
    memcpy(p->logits, model_runner_logits(&p->b, 0), (size_t)p->b.desc->n_vocab * sizeof *p->logits);
    out->out = copy_out(p, n_pages);
    lose_pages(p, n_pages);
    out->in = copy_in(p, n_pages);
    return bench_preempt_check(p, n, err);
}

static quire_err bench_preempt_measure(const bench_preempt_options *o, preempt_bench *p, int32_t n,
                                       const bench_table *s, quire_error *err) {
    double compute[FIGURES_MAX_RUNS], out[FIGURES_MAX_RUNS], in[FIGURES_MAX_RUNS], swap[FIGURES_MAX_RUNS];
    preempt_times t;
    TRY(bench_preempt_run_once(p, n, &t, err)); /* touches the memory for the first time */
    for (int32_t run = 0; run < o->n_runs; run++) {
        TRY(bench_preempt_run_once(p, n, &t, err));
        compute[run] = t.compute * 1e-3;
        out[run] = t.out * 1e-3;
        in[run] = t.in * 1e-3;
        swap[run] = out[run] + in[run];
    }
    figure fc = figure_of(compute, o->n_runs), fo = figure_of(out, o->n_runs), fi = figure_of(in, o->n_runs),
           fs = figure_of(swap, o->n_runs);
    int64_t n_pages = kv_pages_for(n, p->b.layout.page_tokens), bytes = n_pages * p->b.layout.page_bytes;
    TABLE_ROW(s, NUM(p->b.layout.page_tokens), NUM(n), NUM(n_pages), NUM((double)bytes / 1e6), NUM(fc.mean),
              NUM(fc.spread), NUM(fs.mean), NUM(fs.spread), NUM(fo.mean), NUM(fi.mean),
              NUM(fs.mean * 1e3 / (double)n_pages), NUM(fc.mean / fs.mean),
              TXT(fs.mean <= fc.mean ? "swap" : "recompute"));
    return QUIRE_OK;
}

static quire_err bench_preempt_run(const cli_options *cli, quire_error *err) {
    const bench_preempt_options *o = (const void *)cli;
    int32_t pages[FIGURES_MAX_POINTS], lengths[FIGURES_MAX_POINTS], n_pages, n_lengths, longest = 0;
    TRY(figures_parse_pages("--pages", o->pages, pages, &n_pages, err));
    TRY(figures_parse_list("--lengths", o->lengths, lengths, &n_lengths, err));
    longest = figures_largest(lengths, n_lengths);
    TABLE(s, "preempt", o->cli.json, KEY("page_tokens", "page", 5, 0), KEY("tokens", "tokens", 7, 0),
          KEY("pages", "pages", 7, 0), FIGURE("size", "MB", 8, 2, "MB"),
          FIGURE("recompute", "recompute ms", 13, 3, "ms"), FIGURE("recompute_spread", "+-", 8, 3, "ms"),
          FIGURE("swap", "swap ms", 9, 3, "ms"), FIGURE("swap_spread", "+-", 8, 3, "ms"),
          FIGURE("out", "out", 8, 3, "ms"), FIGURE("in", "in", 8, 3, "ms"),
          FIGURE("swap_page", "us a page", 10, 2, "us"), FIGURE("recompute_over_swap", "ratio", 8, 2, "x"),
          REMARK("cheaper", "cheaper", 10));
    for (int32_t i = 0; i < n_pages; i++) {
        preempt_bench p;
        TRY(open_bench(o, pages[i], longest, &p, err));
        if (i == 0) {
            table_begin(&s, "A preempted sequence brought back: computed again, or copied out to host memory "
                            "and back in");
        }
        quire_err e = QUIRE_OK;
        for (int32_t k = 0; k < n_lengths && e == QUIRE_OK; k++) {
            e = bench_preempt_measure(o, &p, lengths[k], &s, err);
        }
        if (e == QUIRE_OK && i == n_pages - 1) {
            table_note(
                &s,
                "%s, compute %s, KV %s, %s; prefill of %d rows a step, pages in no order; mean and spread of "
                "%d runs (measured); after each, the last token's logits are the same to the bit",
                p.b.desc->name, compute_name(p.b.b->compute), p.b.layout.type_name,
                p.b.b->ops->describe(p.b.b), (int)o->cli.engine.max_batched_tokens, (int)o->n_runs);
        }
        close_bench(&p);
        TRY(e);
    }
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_preempt_options, member)

static const flag bench_preempt_flags[] = {
    {"--pages", "LIST", "tokens a page holds", TEXT(pages)},
    {"--lengths", "LIST", "tokens of the preempted sequence", TEXT(lengths)},
    {"--runs", "N", "runs per figure", COUNT(n_runs, 1, 64)},
    {0},
};

LAB_COMMAND(bench_preempt, "bench preempt", " MODEL", ARGUMENT_MODEL,
            "swapping a sequence out and in against computing it again",
            "  quire bench preempt builtin\n"
            "  quire bench preempt model.gguf --pages 1,16,256 --lengths 512,4096 --json\n",
            FLAGS_MODEL, bench_preempt_flags, flags_json, flags_compute, FLAGS_KV, flags_isa, flags_threads,
            flags_step_rows, flags_help, flags_help_all);
