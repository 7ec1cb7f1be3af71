#include "lab/bench/score.h"

#include <math.h>

#include "base/err.h"
#include "lab/bench/baseline_kv.h"
#include "lab/bench/figures.h"
#include "sample/logprobs.h"

const char *score_way_name(score_way way) {
    static const char *const names[N_SCORE_WAYS] = {"paged", "contiguous", "none"};
    return names[way];
}

/* n_pages: of a group. */
static quire_err open_cache(scorer *s, int32_t n_pages, quire_error *err) {
    kv_cache_options o = kv_cache_options_of(&s->b.layout, n_pages * s->b.layout.n_groups);
    o.no_index = true;
    quire_err e = kv_cache_open(&o, &s->cache);
    e = e == QUIRE_OK ? kv_seq_init(&s->seq, o.n_groups, n_pages) : e;
    return e == QUIRE_OK ? e : err_set(err, e, -1, "no cache of %d pages: %s", (int)n_pages, quire_err_text(e));
}

quire_err score_open(const score_options *o, scorer *out, quire_error *err) {
    int32_t step = o->step < o->max_tokens ? o->step : o->max_tokens, page_tokens = o->engine->page_tokens;
    int32_t n_pages = (int32_t)kv_pages_for(o->max_tokens, page_tokens);
    *out = (scorer){.step = step, .max_tokens = o->max_tokens};
    bare_options bo = {.engine = o->engine,
                       .page_tokens = page_tokens,
                       .n_pages = n_pages,
                       .max_rows = o->recomputes ? o->max_tokens : step,
                       .max_seqs = 1,
                       .max_len = o->max_len,
                       .max_out = step,
                       .has_groups = true};
    TRY(bare_open(&bo, &out->b, err));
    quire_err e = open_cache(out, n_pages, err);
    if (e != QUIRE_OK) {
        score_close(out);
    }
    return e;
}

void score_close(scorer *s) {
    kv_seq_deinit(&s->seq);
    kv_cache_close(&s->cache);
    bare_close(&s->b);
    *s = (scorer){0};
}

/* ---- reading logits ---- */

/* The rows of a pass: task i reads row i. */
typedef struct readout {
    const scorer *s;
    const int32_t *targets;
    double *out;
} readout;

static void read_row(void *context, int32_t task, int32_t worker) {
    const readout *r = context;
    const float *logits = bare_logits(&r->s->b, task);
    (void)worker;
    r->out[task] = (double)logits[r->targets[task]] - logprobs_normalizer(logits, r->s->b.desc->n_vocab);
}

static void read_rows(const scorer *s, const int32_t *targets, int32_t n, double *out) {
    readout r = {s, targets, out};
    const backend_ops *ops = s->b.b->ops;
    if (ops->run_tasks != NULL) {
        ops->enter(s->b.b);
        ops->run_tasks(s->b.b, read_row, &r, n);
        ops->leave(s->b.b);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        read_row(&r, i, 0);
    }
}

/* ---- ways ---- */

/* The pass of tokens at .. at + n. */
static quire_err forward(scorer *s, score_way way, baseline_kv *pieces, const int32_t *tokens, int32_t at, int32_t n) {
    bare_part p = {.tokens = tokens, .first = at, .n_rows = n, .n_logits = n};
    kv_copies none = {0};
    if (way == SCORE_PAGED) {
        TRY(kv_seq_reserve(&s->cache, &s->seq, n, &none));
        p.seq = &s->seq;
    } else if (way == SCORE_NONE) {
        baseline_kv_clear(pieces);
        p.first = 0;
        p.n_rows = at + n;
    }
    TRY(bare_forward(&s->b, &p, 1));
    if (way == SCORE_PAGED) {
        kv_seq_advance(&s->seq, n);
        kv_seq_forget(&s->cache, &s->seq);
    }
    return pieces != NULL ? baseline_kv_error(pieces) : QUIRE_OK;
}

static quire_err run_passes(scorer *s, score_way way, baseline_kv *pieces, const int32_t *tokens, int32_t n, double *out,
                            quire_error *err) {
    for (int32_t at = 0; at < n - 1; at += s->step) { /* behind the last token nothing is scored */
        int32_t rows = n - 1 - at < s->step ? n - 1 - at : s->step;
        int64_t start = figures_time_us(s->b.n_threads);
        quire_err e = forward(s, way, pieces, tokens, at, rows);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "%s: %s", score_way_name(way), quire_err_text(e));
        }
        read_rows(s, tokens + at + 1, rows, out + at);
        s->us[way] += figures_time_us(s->b.n_threads) - start;
        for (int32_t i = at; i < at + rows; i++) {
            if (!isfinite(out[i])) {
                return err_set(err, QUIRE_BAD_FILE, i, "the logits behind token %d of a chunk are not finite: are the weights whole?",
                               (int)i);
            }
        }
    }
    return QUIRE_OK;
}

/* Pool and tables must agree; then the chunk's pages are given back. */
static quire_err end_paged(scorer *s, const int32_t *tokens, quire_error *err) {
    const kv_table *tables[KV_MAX_GROUPS];
    quire_err e = kv_seq_check(&s->cache, &s->seq, err);
    e = e == QUIRE_OK ? kv_cache_check(&s->cache, tables, kv_seq_list_tables(&s->seq, tables), err) : e;
    kv_seq_release(&s->cache, &s->seq, tokens, KV_DROP);
    return e;
}

quire_err score_chunk(scorer *s, score_way way, const int32_t *tokens, int32_t n, double *out, quire_error *err) {
    baseline_kv *pieces = NULL;
    quire_err e = way == SCORE_PAGED ? QUIRE_OK : baseline_kv_attach(s->b.b, BASELINE_RESERVED, 1, s->max_tokens, &pieces);
    if (e == QUIRE_UNSUPPORTED) {
        return err_set(err, e, -1, "--kv %s: keeps keys and values as f32, f16 or bf16, not as %s; give another --kv-dtype",
                       score_way_name(way), dtype_flag_name(s->b.layout.type));
    }
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "--kv %s: no memory for %d tokens", score_way_name(way), (int)s->max_tokens);
    }
    e = run_passes(s, way, pieces, tokens, n, out, err);
    baseline_kv_detach(pieces);
    if (way == SCORE_PAGED) {
        quire_error audit;
        quire_err end = end_paged(s, tokens, &audit);
        if (e == QUIRE_OK && end != QUIRE_OK) {
            *err = audit;
        }
        e = e == QUIRE_OK ? end : e;
    }
    return e;
}
