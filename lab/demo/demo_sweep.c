/* sweep: speed, latency and memory by batch and length. The model is really run, by the
 * engine. */

#include "core/kv_layout.h"
#include "lab/bench/lab.h"
#include "lab/demo/demo.h"

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
