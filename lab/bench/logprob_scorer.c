#include "lab/bench/logprob_scorer.h"

#include <assert.h>
#include <math.h>

#include "base/err.h"
#include "base/mem.h"
#include "kv/most_pages.h"
#include "lab/bench/baseline_kv.h"
#include "lab/bench/figures.h"
#include "sample/logprobs.h"

const char *const kv_way_names[N_KV_WAYS] = {"paged", "contiguous", "none"};

static quire_err open_seqs(logprob_scorer *s, int32_t n_groups) {
    s->seqs = mem_new((size_t)s->n_seqs, sizeof *s->seqs);
    if (s->seqs == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    for (int32_t i = 0; i < s->n_seqs; i++) {
        TRY(kv_seq_init(&s->seqs[i], n_groups,
                        (int32_t)kv_pages_for(s->max_tokens, s->b.layout.page_tokens)));
    }
    return QUIRE_OK;
}

/* Opens a cache with pages for all sequences at full length. */
static quire_err open_cache(logprob_scorer *s, quire_error *err) {
    kv_most most = kv_most_of_layout(&s->b.layout, s->step);
    int64_t n_pages = kv_most_pages(&most, s->max_tokens) * s->n_seqs;
    if (n_pages > INT32_MAX) {
        return err_set(err, QUIRE_TOO_LARGE, -1,
                       "%d sequences of %d tokens take %lld pages; at most %d are possible", (int)s->n_seqs,
                       (int)s->max_tokens, (long long)n_pages, INT32_MAX);
    }
    kv_cache_options o = kv_cache_options_of(&s->b.layout, (int32_t)n_pages);
    o.no_index = true;
    quire_err e = kv_cache_open(&o, &s->cache);
    if (e != QUIRE_OK || (e = open_seqs(s, o.n_groups)) != QUIRE_OK) {
        return err_set(err, e, -1, "no cache of %d pages: %s", (int)n_pages, quire_err_text(e));
    }
    return s->b.b->ops->kv_open(s->b.b, (int32_t)n_pages, err);
}

quire_err logprob_scorer_open(const logprob_scorer_options *o, logprob_scorer *out, quire_error *err) {
    int32_t step = o->step < o->max_tokens ? o->step : o->max_tokens, n_seqs = o->n_seqs > 1 ? o->n_seqs : 1;
    int32_t max_out = step > n_seqs ? step : n_seqs;
    *out = (logprob_scorer){.step = step, .max_tokens = o->max_tokens, .n_seqs = n_seqs};
    TRY(MODEL_RUNNER_OPEN(&out->b, err, .engine = o->engine, .page_tokens = o->engine->page_tokens,
                          .max_rows = o->recomputes && o->max_tokens > max_out ? o->max_tokens : max_out,
                          .max_seqs = n_seqs, .max_len = o->max_len, .max_out = max_out, .has_groups = true));
    quire_err e = open_cache(out, err);
    if (e != QUIRE_OK) {
        logprob_scorer_close(out);
    }
    return e;
}

void logprob_scorer_close(logprob_scorer *s) {
    for (int32_t i = 0; s->seqs != NULL && i < s->n_seqs; i++) {
        kv_seq_deinit(&s->seqs[i]);
    }
    mem_free(s->seqs);
    kv_cache_close(&s->cache);
    model_runner_close(&s->b);
    *s = (logprob_scorer){0};
}

/* ---- reading logits ---- */

/* The rows of a pass; task i reads row i. */
typedef struct readout {
    const logprob_scorer *s;
    const int32_t *targets;
    double *out;
} readout;

static void logprob_scorer_read_row(void *context, int32_t task, int32_t worker) {
    const readout *r = context;
    const float *logits = model_runner_logits(&r->s->b, task);
    (void)worker;
    r->out[task] = (double)logits[r->targets[task]] - logprobs_normalizer(logits, r->s->b.desc->n_vocab);
}

void logprob_scorer_run_tasks(const logprob_scorer *s, thread_pool_fn fn, void *context, int32_t n) {
    const backend_ops *ops = s->b.b->ops;
    if (ops->run_tasks != NULL) {
        ops->enter(s->b.b);
        ops->run_tasks(s->b.b, fn, context, n);
        ops->leave(s->b.b);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        fn(context, i, 0);
    }
}

/* ---- ways ---- */

quire_err logprob_scorer_pass(logprob_scorer *s, const int32_t *tokens, int32_t n, int32_t n_logits) {
    kv_seq *q = s->seqs;
    kv_copies none = {0};
    TRY(kv_seq_reserve(&s->cache, q, n, &none));
    runner_part p = {.tokens = tokens, .first = q->n_computed, .n_rows = n, .n_logits = n_logits, .seq = q};
    TRY(model_runner_forward(&s->b, &p, 1));
    kv_seq_advance(q, n);
    kv_seq_forget(&s->cache, q);
    return QUIRE_OK;
}

/* Runs the pass of tokens at .. at + n. */
static quire_err forward(logprob_scorer *s, kv_way way, baseline_kv *pieces, const int32_t *tokens,
                         int32_t at, int32_t n) {
    if (way == KV_WAY_PAGED) {
        return logprob_scorer_pass(s, tokens, n, n);
    }
    runner_part p = {.tokens = tokens, .first = at, .n_rows = n, .n_logits = n};
    if (way == KV_WAY_NONE) {
        baseline_kv_clear(pieces);
        p.first = 0;
        p.n_rows = at + n;
    }
    TRY(model_runner_forward(&s->b, &p, 1));
    return baseline_kv_error(pieces);
}

static quire_err run_passes(logprob_scorer *s, kv_way way, baseline_kv *pieces, const int32_t *tokens,
                            int32_t n, double *out, quire_error *err) {
    for (int32_t at = 0; at < n - 1; at += s->step) { /* the last token needs no pass */
        int32_t rows = n - 1 - at < s->step ? n - 1 - at : s->step;
        int64_t start = figures_time_us(s->b.n_threads);
        quire_err e = forward(s, way, pieces, tokens, at, rows);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "%s: %s", kv_way_names[way], quire_err_text(e));
        }
        readout r = {s, tokens + at + 1, out + at};
        logprob_scorer_run_tasks(s, logprob_scorer_read_row, &r, rows);
        s->us[way] += figures_time_us(s->b.n_threads) - start;
        for (int32_t i = at; i < at + rows; i++) {
            if (!isfinite(out[i])) {
                return err_set(err, QUIRE_BAD_FILE, i,
                               "the logits after token %d of a chunk are not finite: are the weights whole?",
                               (int)i);
            }
        }
    }
    return QUIRE_OK;
}

/* ---- sequences ---- */

quire_err logprob_scorer_end(logprob_scorer *s, const int32_t *tokens, quire_error *err) {
    const kv_table *tables[KV_MAX_GROUPS * LOGPROB_MAX_SEQS];
    int32_t n_tables = 0;
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < s->n_seqs; i++) {
        TRY_DONE(e, kv_seq_check(&s->cache, &s->seqs[i], err));
        n_tables += kv_seq_list_tables(&s->seqs[i], tables + n_tables);
    }
    TRY_DONE(e, kv_cache_check(&s->cache, tables, n_tables, err));
done:
    for (int32_t i = 0; i < s->n_seqs; i++) {
        kv_seq_release(&s->cache, &s->seqs[i], tokens, KV_DROP);
    }
    return e;
}

/* Gives a sequence that shares all its pages copies of its own. */
static quire_err unshare(logprob_scorer *s, kv_seq *q) {
    for (int32_t g = 0; g < q->n_tables; g++) {
        for (int32_t i = 0; i < q->tables[g].n_pages; i++) {
            page_id own;
            if (q->tables[g].pages[i].v == PAGE_NONE.v) {
                continue;
            }
            TRY(kv_pool_reserve(s->cache.pool, 1, &own));
            page_id shared = kv_table_replace(s->cache.pool, &q->tables[g], i, own);
            s->b.b->ops->kv_copy(s->b.b, &(kv_copy_pair){.src = shared.v, .dst = own.v}, 1);
        }
    }
    return QUIRE_OK;
}

quire_err logprob_scorer_copy(logprob_scorer *s) {
    for (int32_t i = 1; i < s->n_seqs; i++) {
        kv_seq_fork(&s->cache, s->seqs, s->seqs->n_computed, &s->seqs[i]);
        TRY(unshare(s, &s->seqs[i]));
    }
    return QUIRE_OK;
}

quire_err logprob_scorer_decode(logprob_scorer *s, const int32_t *tokens, int32_t n) {
    runner_part parts[LOGPROB_MAX_SEQS] = {0};
    kv_copies none = {0};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < n; i++) {
        kv_seq *q = &s->seqs[i];
        TRY_DONE(e, kv_seq_reserve(&s->cache, q, 1, &none));
        parts[i] =
            (runner_part){.tokens = tokens, .first = q->n_computed, .n_rows = 1, .n_logits = 1, .seq = q};
    }
    e = model_runner_forward(&s->b, parts, n);
done:
    for (int32_t i = 0; i < n; i++) {
        kv_seq_trim(&s->cache, &s->seqs[i]);
    }
    return e;
}

/* ---- chunks ---- */

quire_err logprob_scorer_chunk(logprob_scorer *s, kv_way way, const int32_t *tokens, int32_t n, double *out,
                               quire_error *err) {
    baseline_kv *pieces = NULL;
    quire_err e = way == KV_WAY_PAGED ? QUIRE_OK : baseline_kv_attach(s->b.b, 1, s->max_tokens, &pieces);
    if (e == QUIRE_UNSUPPORTED) {
        return err_set(
            err, e, -1,
            "--kv %s: for layers that all keep keys and values, of one width and type, f32, f16 or "
            "bf16 (here %s); give --kv paged or another --kv-dtype",
            kv_way_names[way], s->b.layout.type_name);
    }
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "--kv %s: no memory for %d tokens", kv_way_names[way], (int)s->max_tokens);
    }
    e = run_passes(s, way, pieces, tokens, n, out, err);
    baseline_kv_detach(pieces);
    if (way == KV_WAY_PAGED) {
        quire_error audit;
        quire_err end = logprob_scorer_end(s, tokens, &audit);
        if (e == QUIRE_OK && end != QUIRE_OK) {
            *err = audit;
            e = end;
        }
    }
    return e;
}

/* ---- comparison of two models ---- */

static int32_t quality_stats_largest(const float *row, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

quality_row quality_compare(const float *reference, const float *candidate, int32_t n_vocab, int32_t target) {
    int32_t best_p = quality_stats_largest(reference, n_vocab),
            best_q = quality_stats_largest(candidate, n_vocab);
    double max_p = (double)reference[best_p], max_q = (double)candidate[best_q], sum_p = 0, sum_q = 0,
           apart = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double p = (double)reference[i] - max_p, q = (double)candidate[i] - max_q, part = exp(p);
        sum_p += part;
        sum_q += exp(q);
        /* a token of probability 0 adds nothing, even if the other model has it likely */
        apart += part > 0 ? part * (p - q) : 0;
    }
    double log_p = log(sum_p), log_q = log(sum_q), kl = apart / sum_p - (log_p - log_q);
    return (quality_row){
        .kl = kl < 0 ? 0 : kl, /* negative only by rounding */
        .loss = {log_p + max_p - (double)reference[target], log_q + max_q - (double)candidate[target]},
        .is_same = best_p == best_q};
}

quire_err quality_stats_init(quality_stats *s, int64_t cap) {
    *s = (quality_stats){0};
    if (cap < 1 || cap > INT32_MAX) {
        TRY(QUIRE_TOO_LARGE);
    }
    s->kls = mem_new((size_t)cap, sizeof *s->kls);
    if (s->kls == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    s->cap = cap;
    return QUIRE_OK;
}

void quality_stats_deinit(quality_stats *s) {
    mem_free(s->kls);
    *s = (quality_stats){0};
}

void quality_stats_add(quality_stats *s, const quality_row *r) {
    assert(s->n < s->cap);
    s->kls[s->n++] = r->kl;
    s->n_same += r->is_same;
    s->loss[0] += r->loss[0];
    s->loss[1] += r->loss[1];
}

quality_figures quality_stats_figures(quality_stats *s) {
    assert(s->n > 0);
    double n = (double)s->n, sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        sum += s->kls[i];
    }
    return (quality_figures){.mean_kl = sum / n,
                             .p99_kl = figures_percentile(s->kls, (int32_t)s->n, 0.99),
                             .perplexity = {exp(s->loss[0] / n), exp(s->loss[1] / n)},
                             .same_percent = 100.0 * (double)s->n_same / n};
}
