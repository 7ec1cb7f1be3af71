/* snapshot, cache: what a cache of keys and values changes (time), and what it does not
 * (a single bit). The model is really run. */

#include "kv/table.h"
#include "lab/bench/baseline_kv.h"
#include "lab/bench/model_runner.h"
#include "lab/demo/demo.h"

enum { MAX_ROWS = 512, SEED = 11 };

/* ---- snapshot ---- */

/* Two runs over the same tokens: in one piece, and in pages that lie anywhere. */
typedef struct snapshot {
    model_runner b;
    int32_t n_prompt, n_decode;
    int32_t *tokens;           /* [n_prompt + n_decode] */
    float *contiguous, *paged; /* [n_decode][n_vocab] */
} snapshot;

typedef struct snapshot_counts {
    int64_t n_tokens, n_pages, n_logits, n_different; /* of all prompts */
} snapshot_counts;

/* Teacher-forced: the tokens are given, every row of logits after the prompt is kept. */
static quire_err collect_logits(snapshot *s, const int32_t *pages, float *out) {
    size_t width = (size_t)s->b.desc->n_vocab;
    TRY(model_runner_prefill(&s->b, s->tokens, s->n_prompt, pages));
    for (int32_t i = 0; i < s->n_decode; i++) {
        memcpy(out + (size_t)i * width, model_runner_logits(&s->b, 0), width * sizeof *out);
        runner_part p = {s->tokens, s->n_prompt + i, 1, pages, 1, NULL, NULL};
        TRY(model_runner_forward(&s->b, &p, 1));
    }
    return QUIRE_OK;
}

static quire_err run_contiguous(snapshot *s) {
    baseline_kv *k;
    TRY(baseline_kv_attach(s->b.b, BASELINE_GROWING, 1, s->n_prompt + s->n_decode, &k));
    quire_err e = collect_logits(s, NULL, s->contiguous);
    e = e == QUIRE_OK ? baseline_kv_error(k) : e;
    baseline_kv_detach(k);
    return e;
}

static quire_err run_paged(snapshot *s, int32_t n_pages) {
    int32_t *pages = mem_new((size_t)n_pages, sizeof *pages);
    if (pages == NULL) {
        return QUIRE_NO_MEMORY;
    }
    model_runner_scatter(SEED, n_pages, pages);
    quire_err e = collect_logits(s, pages, s->paged);
    mem_free(pages);
    return e;
}

/* How the logits of one prompt compare; the counts add up. */
static quire_err compare_prompt(snapshot *s, int32_t page_tokens, snapshot_counts *c) {
    int32_t n_pages = (int32_t)kv_pages_for(s->n_prompt + s->n_decode, page_tokens);
    size_t n = (size_t)s->n_decode * (size_t)s->b.desc->n_vocab;
    model_runner_prompt(&s->b, SEED + (uint64_t)s->n_prompt, s->n_prompt + s->n_decode, s->tokens);
    TRY(run_contiguous(s));
    TRY(run_paged(s, n_pages));
    for (size_t i = 0; i < n; i++) {
        c->n_different += memcmp(&s->contiguous[i], &s->paged[i], sizeof(float)) != 0;
    }
    c->n_tokens += s->n_prompt + s->n_decode;
    c->n_pages += n_pages;
    c->n_logits += (int64_t)n;
    return QUIRE_OK;
}

static quire_err compare_prompts(snapshot *s, const demo_numbers *prompts, int32_t longest,
                                 int32_t page_tokens, snapshot_counts *c) {
    size_t n = (size_t)s->n_decode * (size_t)s->b.desc->n_vocab;
    s->tokens = mem_new((size_t)(longest + s->n_decode), sizeof *s->tokens);
    s->contiguous = mem_new(n, sizeof *s->contiguous);
    s->paged = mem_new(n, sizeof *s->paged);
    quire_err e = s->tokens && s->contiguous && s->paged ? QUIRE_OK : QUIRE_NO_MEMORY;
    for (int32_t i = 0; e == QUIRE_OK && i < prompts->n; i++) {
        s->n_prompt = prompts->v[i];
        e = compare_prompt(s, page_tokens, c);
    }
    mem_free(s->tokens);
    mem_free(s->contiguous);
    mem_free(s->paged);
    return e;
}

/* A row: all prompts with pages of one size. */
static quire_err snapshot_row(const demo_options *o, const bench_table *sh, const demo_numbers *prompts,
                              int32_t page_tokens, bool is_last, quire_error *err) {
    snapshot s = {.n_decode = demo_or(o->n_tokens, 32)};
    snapshot_counts c = {0};
    int32_t longest = figures_largest(prompts->v, prompts->n);
    TRY(MODEL_RUNNER_OPEN(&s.b, err, .engine = &o->cli.engine, .page_tokens = page_tokens,
                          .n_pages = (int32_t)kv_pages_for(longest + s.n_decode, page_tokens),
                          .max_rows = MAX_ROWS, .max_seqs = 1, .max_len = longest + s.n_decode));
    quire_err e = compare_prompts(&s, prompts, longest, page_tokens, &c);
    if (e != QUIRE_OK) {
        err_set(err, e, -1, "%s", quire_err_text(e));
    } else {
        TABLE_ROW(sh, NUM(page_tokens), NUM(c.n_tokens), NUM(c.n_pages), NUM(c.n_logits), NUM(c.n_different),
                  TXT(c.n_different == 0 ? "yes" : "no"));
        if (c.n_different > 0) {
            e = err_set(err, QUIRE_INTERNAL, -1, "pages of %d tokens change %lld logits", (int)page_tokens,
                        (long long)c.n_different);
        } else if (is_last) {
            table_note(sh,
                       "%s, compute %s, KV %s: %d prompts of up to %d tokens, then %d tokens one by one; "
                       "both ways really computed, compared byte for byte (exact)",
                       s.b.desc->name, compute_name(s.b.b->compute), s.b.layout.type_name, (int)prompts->n,
                       (int)longest, (int)s.n_decode);
        }
    }
    model_runner_close(&s.b);
    return e;
}

/* Four short prompts and four long ones, as published. */
quire_err demo_snapshot(const demo_options *o, quire_error *err) {
    static const int32_t sizes[] = {1, 4, 16, 64, 256};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    demo_numbers prompts;
    TRY(demo_read_numbers("--prompt-lengths", o->prompt_lengths, "7,16,21,33,257,300,400,530", &prompts,
                          err));
    TABLE(sh, "demo snapshot", o->cli.json, KEY("page_tokens", "page", 5, 0), KEY("tokens", "tokens", 7, 0),
          KEY("pages", "pages", 6, 0), KEY("logits", "logits compared", 15, 0),
          KEY("different", "different", 9, 0), WORD("equal", "equal bits", 10));
    table_begin(
        &sh, "Logits after prompts, keys and values in one growing piece against pages strewn over the pool");
    for (int32_t i = 0; i < N_SIZES; i++) {
        TRY(snapshot_row(o, &sh, &prompts, sizes[i], i + 1 == N_SIZES, err));
    }
    return QUIRE_OK;
}

/* ---- cache ---- */

typedef struct cache_demo {
    model_runner b;
    int32_t *tokens, *pages; /* [longest + 1]; the identity */
    int32_t n_runs;
} cache_demo;

/* One token at position n after n cached ones, and the same by computing all n + 1;
 * milliseconds, the fastest of n_runs. The chosen token must agree. */
static quire_err time_token(cache_demo *d, int32_t n, double *with, double *without) {
    double cached[FIGURES_MAX_RUNS], whole[FIGURES_MAX_RUNS];
    for (int32_t run = 0; run < d->n_runs; run++) {
        TRY(model_runner_prefill(&d->b, d->tokens, n, d->pages));
        int64_t start = figures_time_us(d->b.n_threads);
        runner_part p = {d->tokens, n, 1, d->pages, 1, NULL, NULL};
        TRY(model_runner_forward(&d->b, &p, 1));
        int32_t token = model_runner_greedy(&d->b, 0);
        cached[run] = (double)(figures_time_us(d->b.n_threads) - start) / 1000;
        start = figures_time_us(d->b.n_threads);
        TRY(model_runner_prefill(&d->b, d->tokens, n + 1, d->pages));
        int32_t again = model_runner_greedy(&d->b, 0);
        whole[run] = (double)(figures_time_us(d->b.n_threads) - start) / 1000;
        if (token != again) {
            TRY(QUIRE_INTERNAL);
        }
    }
    *with = figures_percentile(cached, d->n_runs, 0.0);
    *without = figures_percentile(whole, d->n_runs, 0.0);
    return QUIRE_OK;
}

static quire_err cache_rows(const bench_table *s, cache_demo *d, const demo_numbers *contexts) {
    for (int32_t i = 0; i < contexts->n; i++) {
        double with, without;
        TRY(time_token(d, contexts->v[i], &with, &without));
        TABLE_ROW(s, NUM(contexts->v[i]), NUM(with), NUM(without), NUM(without / with));
    }
    return QUIRE_OK;
}

quire_err demo_cache(const demo_options *o, quire_error *err) {
    demo_numbers contexts;
    TRY(demo_read_numbers("--context", o->contexts, "32,64,128,256,512,1024", &contexts, err));
    int32_t longest = figures_largest(contexts.v, contexts.n);
    cache_demo d = {.n_runs = demo_or(o->n_runs, 5)};
    int32_t n_pages = (int32_t)kv_pages_for(longest + 1, 16);
    TRY(MODEL_RUNNER_OPEN(&d.b, err, .engine = &o->cli.engine, .page_tokens = 16, .n_pages = n_pages,
                          .max_rows = longest + 1, .max_seqs = 1, .max_len = longest + 1));
    d.tokens = mem_new((size_t)longest + 1, sizeof *d.tokens);
    d.pages = mem_new((size_t)n_pages, sizeof *d.pages);
    quire_err e = d.tokens && d.pages ? QUIRE_OK : QUIRE_NO_MEMORY;
    TABLE(s, "demo cache", o->cli.json, KEY("tokens", "tokens before", 13, 0),
          KEY("cached_ms", "with cache ms", 13, 3), KEY("uncached_ms", "without ms", 10, 3),
          KEY("ratio", "ratio", 8, 1));
    if (e == QUIRE_OK) {
        for (int32_t i = 0; i < n_pages; i++) {
            d.pages[i] = i;
        }
        model_runner_prompt(&d.b, SEED, longest + 1, d.tokens);
        table_begin(
            &s, "The time of one more token: keys and values of those before it kept, or all computed again");
        e = cache_rows(&s, &d, &contexts);
    }
    if (e == QUIRE_OK) {
        table_note(
            &s,
            "%s, compute %s, %s; %s, fastest of %d runs in turn (measured); both ways choose the same token",
            d.b.desc->name, compute_name(d.b.b->compute), d.b.b->ops->describe(d.b.b),
            figures_time_name(d.b.n_threads), (int)d.n_runs);
    } else {
        err_set(err, e, -1, "%s",
                e == QUIRE_INTERNAL ? "the two ways choose different tokens" : quire_err_text(e));
    }
    mem_free(d.tokens);
    mem_free(d.pages);
    model_runner_close(&d.b);
    return e;
}
