/* tput: the same decoding steps, by how attention gets at keys and values. The model is
 * really run. */
#include "core/kv_layout.h"
#include "kv/kv_seq.h"
#include "lab/bench/baseline_kv.h"
#include "lab/bench/lab.h"
#include "lab/bench/model_runner.h"
#include "lab/demo/demo.h"

enum { MAX_ROWS = 512, SEED = 23, PAGE_TOKENS = 16 };

/* The ways of baseline_kv.h, then the engine's own: all sequences in one pass, and a pass
 * for each. */
enum { WAY_FUSED = BASELINE_PADDED + 1, WAY_ALONE, N_WAYS };

typedef struct tput {
    model_runner b;
    kv_cache kv;
    int32_t max_batch, context, n_steps, n_runs;
    int32_t *tokens;    /* [max_batch][context + n_steps] */
    int32_t *lengths;   /* [max_batch] tokens before the first step: from half the context to all of it */
    kv_seq *seqs;       /* [max_batch] */
    runner_part *parts; /* [max_batch] */
    int64_t copied;     /* bytes, of the last run's steps */
} tput;

static const int32_t *demo_tput_tokens_of(const tput *t, int32_t s) {
    return t->tokens + (size_t)s * (size_t)(t->context + t->n_steps);
}

/* One token for each sequence at its place in the step; a pass for all, or one for
 * each. */
static quire_err demo_tput_decode(tput *t, int way, int32_t n_seqs, int32_t step) {
    kv_copies none = {0};
    for (int32_t s = 0; s < n_seqs; s++) {
        if (way != (int)BASELINE_GROWING) {
            TRY(kv_seq_reserve(&t->kv, &t->seqs[s], 1, &none));
        }
        const int32_t *pages = way != (int)BASELINE_GROWING ? &t->seqs[s].tables[0].pages->v : NULL;
        t->parts[s] = (runner_part){demo_tput_tokens_of(t, s), t->lengths[s] + step, 1, pages, 1, NULL, NULL};
    }
    int32_t at_once = way == WAY_ALONE ? 1 : n_seqs;
    for (int32_t s = 0; s < n_seqs; s += at_once) {
        TRY(model_runner_forward(&t->b, t->parts + s, at_once));
    }
    return QUIRE_OK;
}

/* Prompts of the batch into pieces: a batch of prompts in passes that all sequences take
 * part in, since a piece belongs to a place in the batch. */
static quire_err prefill_pieces(tput *t, int32_t n_seqs) {
    int32_t rows = MAX_ROWS / t->max_batch;
    for (int32_t at = 0, n = 1; n > 0; at += rows) {
        n = 0;
        for (int32_t s = 0; s < n_seqs; s++) {
            int32_t left = t->lengths[s] - at;
            left = left < 0 ? 0 : left < rows ? left : rows;
            t->parts[s] = (runner_part){
                demo_tput_tokens_of(t, s), left > 0 ? at : t->lengths[s], left, NULL, 0, NULL, NULL};
            n += left;
        }
        if (n > 0) {
            TRY(model_runner_forward(&t->b, t->parts, n_seqs));
        }
    }
    return QUIRE_OK;
}

/* n_steps steps of a batch one way; tokens a second. */
static quire_err run_steps(tput *t, int way, int32_t n_seqs, double *speed) {
    baseline_kv *k = NULL;
    if (way < WAY_FUSED) {
        TRY(baseline_kv_attach(t->b.b, (baseline_kv_way)way, n_seqs, t->context + t->n_steps, &k));
    }
    quire_err e = way == (int)BASELINE_GROWING ? prefill_pieces(t, n_seqs) : QUIRE_OK;
    int64_t copied = k != NULL ? baseline_kv_copied_bytes(k) : 0, start = figures_time_us(t->b.n_threads);
    for (int32_t step = 0; e == QUIRE_OK && step < t->n_steps; step++) {
        e = demo_tput_decode(t, way, n_seqs, step);
    }
    *speed = (double)n_seqs * t->n_steps / ((double)(figures_time_us(t->b.n_threads) - start) * 1e-6);
    t->copied = k != NULL ? baseline_kv_copied_bytes(k) - copied : 0;
    e = e == QUIRE_OK && k != NULL ? baseline_kv_error(k) : e;
    baseline_kv_detach(k);
    for (int32_t s = 0; s < n_seqs; s++) {
        kv_seq_trim(&t->kv, &t->seqs[s]);
    }
    return e;
}

static quire_err demo_tput_measure(tput *t, const bench_table *s, int32_t n_seqs) {
    double speeds[N_WAYS][FIGURES_MAX_RUNS], best[N_WAYS], copied[N_WAYS];
    for (int32_t run = 0; run < t->n_runs; run++) {
        for (int way = 0; way < N_WAYS; way++) {
            TRY(run_steps(t, way, n_seqs, &speeds[way][run]));
            copied[way] = (double)t->copied / 1e6 / t->n_steps;
        }
    }
    for (int way = 0; way < N_WAYS; way++) {
        best[way] = figures_percentile(speeds[way], t->n_runs, 1.0);
    }
    TABLE_ROW(s, NUM(n_seqs), NUM(best[WAY_ALONE]), NUM(best[BASELINE_GROWING]), NUM(best[BASELINE_GATHERED]),
              NUM(best[BASELINE_PADDED]), NUM(best[WAY_FUSED]), NUM(best[WAY_FUSED] / best[BASELINE_GROWING]),
              NUM(best[WAY_FUSED] / best[BASELINE_GATHERED]), NUM(copied[BASELINE_GROWING]),
              NUM(copied[BASELINE_GATHERED]));
    return QUIRE_OK;
}

static quire_err open_tput(tput *t) {
    size_t n = (size_t)t->max_batch;
    t->tokens = mem_new(n * (size_t)(t->context + t->n_steps), sizeof *t->tokens);
    t->lengths = mem_new(n, sizeof *t->lengths);
    t->seqs = mem_new(n, sizeof *t->seqs);
    t->parts = mem_new(n, sizeof *t->parts);
    if (!t->tokens || !t->lengths || !t->seqs || !t->parts) {
        TRY(QUIRE_NO_MEMORY);
    }
    int32_t n_pages = (int32_t)kv_pages_for(t->context + t->n_steps, PAGE_TOKENS);
    kv_cache_options k = {
        .n_pages = t->max_batch * n_pages, .page_tokens = PAGE_TOKENS, .n_groups = 1, .no_index = true};
    TRY(kv_cache_open(&k, &t->kv));
    kv_copies none = {0};
    for (int32_t s = 0; s < t->max_batch; s++) {
        t->lengths[s] = t->context - (s * 7 % 8) * t->context / 16;
        model_runner_prompt(&t->b, SEED + (uint64_t)s, t->context + t->n_steps,
                            t->tokens + (size_t)s * (size_t)(t->context + t->n_steps));
        TRY(kv_seq_init(&t->seqs[s], 1, n_pages));
        TRY(kv_seq_reserve(&t->kv, &t->seqs[s], t->lengths[s], &none));
        kv_seq_advance(&t->seqs[s], t->lengths[s]);
        TRY(model_runner_prefill(&t->b, demo_tput_tokens_of(t, s), t->lengths[s],
                                 &t->seqs[s].tables[0].pages->v));
    }
    return QUIRE_OK;
}

static void close_tput(tput *t) {
    for (int32_t s = 0; t->seqs != NULL && s < t->max_batch; s++) {
        kv_seq_release(&t->kv, &t->seqs[s], demo_tput_tokens_of(t, s), KV_DROP);
        kv_seq_deinit(&t->seqs[s]);
    }
    kv_cache_close(&t->kv);
    mem_free(t->tokens);
    mem_free(t->lengths);
    mem_free(t->seqs);
    mem_free(t->parts);
    model_runner_close(&t->b);
}

quire_err demo_tput(const demo_options *o, quire_error *err) {
    demo_numbers batches, contexts;
    TRY(demo_read_numbers("--batch", o->batches, "1,2,4,8,16,32", &batches, err));
    TRY(demo_read_one("--context", o->contexts, "256", &contexts, err));
    tput t = {.context = contexts.v[0], .n_steps = demo_or(o->n_tokens, 16), .n_runs = demo_or(o->n_runs, 3)};
    t.max_batch = figures_largest(batches.v, batches.n);
    if (t.max_batch > MAX_ROWS || t.n_runs > FIGURES_MAX_RUNS || t.context < 2) {
        return err_set(err, QUIRE_INVALID, -1,
                       "at most %d sequences and %d runs, contexts of 2 tokens at least", MAX_ROWS,
                       FIGURES_MAX_RUNS);
    }
    model_runner_options bo = {.engine = &o->cli.engine,
                               .page_tokens = PAGE_TOKENS,
                               .max_rows = MAX_ROWS,
                               .max_seqs = t.max_batch,
                               .max_len = t.context + t.n_steps};
    bo.n_pages = t.max_batch * (int32_t)kv_pages_for(t.context + t.n_steps, PAGE_TOKENS);
    TRY(model_runner_open(&bo, &t.b, err));
    TABLE(s, "demo tput", o->cli.json, KEY("batch", "batch", 5, 0), KEY("alone", "pass a seq", 10, 0),
          KEY("growing", "growing", 9, 0), KEY("gathered", "gathered", 9, 0), KEY("padded", "padded", 9, 0),
          KEY("fused", "fused", 9, 0), KEY("over_growing", "/growing", 8, 2),
          KEY("over_gathered", "/gathered", 9, 2), KEY("growing_mb", "MB copied", 9, 2),
          KEY("gathered_mb", "MB gathered", 11, 2));
    quire_err e = open_tput(&t);
    if (e == QUIRE_OK) {
        table_begin(&s, "Decoding, tokens/s; a pass for each sequence, one growing piece each, pages "
                        "gathered for each, gathered and padded in one pass, fused");
    }
    for (int32_t i = 0; e == QUIRE_OK && i < batches.n; i++) {
        e = demo_tput_measure(&t, &s, batches.v[i]);
    }
    if (e == QUIRE_OK) {
        table_note(&s,
                   "%s, compute %s, KV %s, %s; sequences of %d to %d tokens, %d steps, %s, fastest of %d "
                   "runs in turn (measured; MB a step counted)",
                   t.b.desc->name, compute_name(t.b.b->compute), t.b.layout.type_name,
                   t.b.b->ops->describe(t.b.b), (int)(t.context - 7 * t.context / 16), (int)t.context,
                   (int)t.n_steps, figures_time_name(t.b.n_threads), (int)t.n_runs);
    } else {
        err_set(err, e, -1, "%s", quire_err_text(e));
    }
    close_tput(&t);
    return e;
}

/* ---- sweep ---- */

/* sweep: speed, latency and memory by batch and length. The model is really run, by the
 * engine. */

enum { MAX_BATCH = 64, MIB = 1 << 20 };

static quire_err sweep_row(const demo_options *o, const bench_table *s, int32_t n, int32_t length,
                           int32_t n_output, quire_error *err) {
    int32_t lengths[MAX_BATCH];
    lab_request requests[MAX_BATCH];
    for (int32_t i = 0; i < n; i++) {
        lengths[i] = length;
    }
    int32_t *tokens = variant_prompts(lengths, n, n_output, requests);
    TRY(mem_check_for(tokens, "the measurement", err));
    variant t = {
        .options = o->cli.engine, .requests = requests, .n = n, .at_once = n, .max_len = length + n_output};
    t.options.max_seqs = n;
    t.options.step_target_us = 0;
    t.options.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    t.options.n_pages = n * (int32_t)kv_pages_for(t.max_len, t.options.page_tokens);
    quire_err e = variants_run(&t, 1, demo_or(o->n_runs, 1), false, err);
    mem_free(tokens);
    TRY(e);
    const lab_result *r = &t.best;
    double at_once = r->decode_speed * r->token_ms / 1000;
    TABLE_ROW(s, NUM(n), NUM(length), NUM(n_output), NUM(n_output > 1 ? r->decode_speed : TABLE_ABSENT),
              NUM(n_output > 1 ? r->token_ms : TABLE_ABSENT), NUM(n_output > 1 ? at_once : TABLE_ABSENT),
              NUM(r->first_ms), NUM(r->n_pages_most), NUM((double)t.peak_bytes / MIB));
    bool fits = at_once <= 1.001 * n && (at_once > 0 || n_output == 1);
    return fits ? QUIRE_OK
                : err_set(err, QUIRE_INTERNAL, -1,
                          "%d answers at once, but tokens/s x ms/token / 1000 is %.2f: the times are not of "
                          "one clock",
                          (int)n, at_once);
}

quire_err demo_sweep(const demo_options *o, quire_error *err) {
    demo_numbers batches, lengths, answers;
    char machine[160];
    TRY(demo_read_numbers("--lengths", o->lengths, "16", &answers, err));
    TRY(demo_read_numbers("--batch", o->batches, "1,2,4,8,16", &batches, err));
    TRY(demo_read_numbers("--context", o->contexts, "32,128,512,1024", &lengths, err));
    for (int32_t i = 0; i < batches.n; i++) {
        if (batches.v[i] > MAX_BATCH) {
            return err_set(err, QUIRE_INVALID, -1, "--batch %d: at most %d here", (int)batches.v[i],
                           MAX_BATCH);
        }
    }
    int64_t longest = 0;
    for (int32_t i = 0; i < lengths.n * answers.n; i++) {
        int64_t n = (int64_t)lengths.v[i % lengths.n] + answers.v[i / lengths.n];
        longest = n > longest ? n : longest;
    }
    TRY(lab_check_length(&o->cli.engine, longest, err));
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    TABLE(s, "demo sweep", o->cli.json, KEY("batch", "batch", 5, 0), KEY("length", "length", 6, 0),
          KEY("answer", "answer", 6, 0), KEY("tokens_per_s", "tokens/s", 9, 1),
          KEY("token_ms", "ms/token", 8, 3), KEY("at_once", "at once", 7, 2),
          KEY("first_token_ms", "first ms", 9, 1), KEY("pages_most", "pages", 6, 0),
          KEY("peak_mib", "peak MiB", 8, 2));
    table_begin(&s, "Requests of so many tokens, so many at once; tokens/s: after each answer's first token");
    for (int32_t i = 0; i < lengths.n; i++) {
        for (int32_t j = 0; j < answers.n * batches.n; j++) {
            TRY(sweep_row(o, &s, batches.v[j % batches.n], lengths.v[i], answers.v[j / batches.n], err));
        }
    }
    table_note(&s,
               "%s; times measured (fastest of %d runs), pages counted; by the engine's clock, when it "
               "commits a token; at once: tokens/s x ms/token / 1000, less than the batch where prompts take "
               "several steps; peak: weights, buffers and the pages held at most",
               machine, (int)demo_or(o->n_runs, 1));
    return QUIRE_OK;
}
