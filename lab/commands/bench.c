/* `quire bench`: how fast the engine prefills and decodes, measured through the public
 * API as users see it, compared with what memory and arithmetic allow. */

#include "base/clock.h"
#include "engine/ablations.h"
#include "lab/bench/client.h"
#include "lab/bench/model_shape.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_options {
    cli_options cli;
    engine_ablations off;
    const char *batches;  /* concurrent requests, "1,4,16" */
    const char *contexts; /* tokens before the decoded ones, "128,1024" */
    int32_t n_decode;     /* tokens decoded per request */
    int32_t n_runs;       /* runs per figure, for mean and spread */
} bench_options;

enum { LAST_TOKENS = 256 };

LAB_DEFAULTS(bench, .batches = "1,4,16", .contexts = "128,1024", .n_decode = 257, .n_runs = 3)

/* One bench: the open engine, and the limits of its figures. */
typedef struct bench {
    const bench_options *options;
    client client;
    int32_t n_threads;
    double bandwidth; /* bytes per second */
    double peak;      /* operations per second of products */
    uint64_t draw;    /* state of the generator of prompts, which are all different */
} bench;

/* Runs `batch` requests together; their token times stay in requests. *took_us: from the
 * first submit to the last end. */
static quire_err run_batch(bench *b, sent *requests, int32_t batch, int32_t n_prompt, int32_t n_tokens,
                           int64_t *took_us, quire_error *err) {
    int64_t start = clock_us();
    for (int32_t i = 0; i < batch; i++) {
        TRY(client_send_random(&b->client, &b->draw, n_prompt, n_tokens, &requests[i], err));
    }
    TRY(client_await(&b->client, batch, err));
    *took_us = clock_us() - start;
    return QUIRE_OK;
}

/* Prints a row: one figure with its spread and limit. Mean NAN: not measured. `what` NULL:
 * the column titles. */
static void bench_report(const bench *b, const char *what, int32_t batch, int32_t context, figure f,
                         double limit) {
    char heading[256], spread[16];
    const quire_info *info = b->client.info;
    const table_column columns[] = {WORD("model", NULL, 0),
                                    WORD("compute", NULL, 0),
                                    WORD("kv_dtype", NULL, 0),
                                    WORD("backend", NULL, 0),
                                    REMARK("", "", 8),
                                    KEY("batch", "batch", 6, 0),
                                    KEY("context", "context", 8, 0),
                                    KEY("tokens", NULL, 0, 0),
                                    KEY("runs", NULL, 0, 0),
                                    FIGURE(what, "tokens/s", 12, 1, "tokens/s"),
                                    FIGURE(spread, NULL, 0, 0, "tokens/s"),
                                    FIGURE("", "+- %", 6, 1, ""),
                                    FIGURE("", "limit", 12, 1, ""),
                                    FIGURE("", "of it %", 7, 0, "")};
    const bench_table t = {"bench", TABLE_COLUMNS(columns), b->options->cli.json};
    if (what == NULL) {
        (void)snprintf(heading, sizeof heading, "%s: compute %s, KV %s, %s; tokens/s, mean of %d runs",
                       info->model_name, info->compute, info->kv_dtype, info->backend,
                       (int)b->options->n_runs);
        table_begin(&t, heading);
        return;
    }
    (void)snprintf(spread, sizeof spread, "%s_spread", what);
    TABLE_ROW(&t, TXT(info->model_name), TXT(info->compute), TXT(info->kv_dtype), TXT(info->backend),
              TXT(what), NUM(batch), NUM(context), NUM(b->options->n_decode), NUM(b->options->n_runs),
              LIMITED(f.mean, limit, f.mean / limit), NUM(f.spread),
              NUM(b->options->n_runs > 1 ? 100 * f.spread / f.mean : TABLE_ABSENT), NUM(limit),
              NUM(100 * f.mean / limit));
    if (isnan(f.mean)) {
        table_note(&t,
                   "%s, batch %d, context %d: not measured: the first answers ended before the last prompts "
                   "were computed, or the machine is busy; ask for more --decode or --step-target-ms 0",
                   what, (int)batch, (int)context);
    }
}

static llama_shape shape_of(const quire_info *i) {
    return (llama_shape){.n_layers = i->n_layers,
                         .d_model = i->d_model,
                         .n_heads = i->n_heads,
                         .n_kv_heads = i->n_kv_heads,
                         .d_head = i->d_head,
                         .d_ff = i->d_ff,
                         .n_vocab = i->n_vocab};
}

typedef struct decoding {
    bench *b;
    sent *requests; /* [batch] */
    int32_t batch, context;
} decoding;

static quire_err decode_once(void *context, double *speed, quire_error *err) {
    const decoding *d = context;
    int32_t n = d->b->options->n_decode;
    int64_t steps_before = client_steps(&d->b->client);
    int64_t took;
    TRY(run_batch(d->b, d->requests, d->batch, d->context, n, &took, err));
    *speed = client_decode_speed(d->requests, d->batch, n > LAST_TOKENS ? n - 1 - LAST_TOKENS : 0,
                                 client_steps(&d->b->client) - steps_before);
    return QUIRE_OK;
}

/* Measures prefill, then decode, at one batch size and context. */
static quire_err bench_measure(bench *b, sent *requests, int32_t batch, int32_t context, quire_error *err) {
    double prefill[FIGURES_MAX_RUNS];
    int32_t n = b->options->n_decode;
    for (int32_t run = 0; run < b->options->n_runs; run++) {
        int64_t took;
        TRY(run_batch(b, requests, batch, context, 1, &took, err));
        prefill[run] = (double)batch * context / ((double)took * 1e-6);
    }
    llama_shape shape = shape_of(b->client.info);
    bench_report(b, "prefill", batch, context, figure_of(prefill, b->options->n_runs),
                 context * b->peak / shape_prompt_operations(&shape, context));
    figure found;
    TRY(client_measure(decode_once, &(decoding){b, requests, batch, context}, b->options->n_runs, &found,
                       err));
    double mean_context = context + n / 2.0;
    double step_bytes =
        (double)b->client.info->weight_bytes + batch * mean_context * (double)b->client.info->token_bytes;
    bench_report(b, "decode", batch, context, found,
                 fmin(batch * b->bandwidth / step_bytes, b->peak / shape_token_operations(&shape)));
    return QUIRE_OK;
}

/* Operations per second that products of the model's weights can reach. The bits of the
 * weights tell which type most of them have. */
static double peak_of_products(const bench *b, const roofline *r) {
    const quire_info *info = b->client.info;
    bool is_small = info->n_params > 0 && (double)info->weight_bytes * 8 / (double)info->n_params < 6;
    compute_mode compute = strcmp(info->compute, "int8") == 0   ? COMPUTE_INT8
                           : strcmp(info->compute, "bf16") == 0 ? COMPUTE_BF16
                                                                : COMPUTE_F32;
    const char *by;
    return products_peak(r, compute, is_small ? DTYPE_Q4_0 : DTYPE_Q8_0, &by);
}

/* Measures the machine's limits for a model of this size, by number of threads; the best
 * one counts. */
static quire_err measure_limits(bench *b, quire_error *err) {
    TABLE(t, "bench", b->options->cli.json, WORD("model", NULL, 0), WORD("compute", NULL, 0),
          WORD("kv_dtype", NULL, 0), WORD("backend", NULL, 0), KEY("threads", "threads", 7, 0),
          FIGURE("read", NULL, 0, 0, "bytes/s"), FIGURE("", "read GB/s", 9, 1, ""),
          FIGURE("", "products GOP/s", 14, 1, ""));
    const quire_info *info = b->client.info;
    int64_t n_bytes = b->client.info->weight_bytes, megabytes = n_bytes / (1 << 20) + 1;
    roofline_effort effort = roofline_usual;
    effort.megabytes = megabytes < effort.megabytes ? (int32_t)megabytes : effort.megabytes;
    table_begin(&t, NULL);
    for (int32_t threads = 1;; threads = threads * 2 < b->n_threads ? threads * 2 : b->n_threads) {
        roofline r;
        TRY(roofline_measure(b->options->cli.engine.isa, threads, b->options->cli.engine.cpu_bind, &effort,
                             &r, err));
        b->bandwidth = fmax(b->bandwidth, r.read.best);
        b->peak = fmax(b->peak, peak_of_products(b, &r));
        TABLE_ROW(&t, TXT(info->model_name), TXT(info->compute), TXT(info->kv_dtype), TXT(info->backend),
                  NUM(threads), NUM(r.read.best), NUM(r.read.best / 1e9), NUM(peak_of_products(b, &r) / 1e9));
        if (threads == b->n_threads) {
            return QUIRE_OK;
        }
    }
}

typedef struct points {
    int32_t batches[FIGURES_MAX_POINTS], contexts[FIGURES_MAX_POINTS], n_batches, n_contexts;
} points;

/* Checks that everything requested fits before anything runs. */
static quire_err check_fit(const bench *b, const points *p, quire_error *err) {
    int32_t tokens = figures_largest(p->contexts, p->n_contexts) + b->options->n_decode,
            batch = figures_largest(p->batches, p->n_batches);
    int64_t pages = pool_size_sequence(&b->options->cli.engine, b->client.engine, tokens);
    if (tokens > b->client.info->max_model_len) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--context and --decode need %d tokens a sequence, the model takes %d; ask for less",
                       (int)tokens, (int)b->client.info->max_model_len);
    }
    if (pages * batch > b->client.info->n_pages) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%d sequences of %d tokens need %lld pages, there are %d; ask for less", (int)batch,
                       (int)tokens, (long long)(pages * batch), (int)b->client.info->n_pages);
    }
    return QUIRE_OK;
}

static quire_err bench_measure_all(bench *b, const points *p, quire_error *err) {
    TRY(check_fit(b, p, err));
    int32_t batch = figures_largest(p->batches, p->n_batches), n = b->options->n_decode;
    sent *requests = mem_new((size_t)batch, sizeof *requests);
    int64_t *times = mem_new((size_t)batch * (size_t)n, sizeof *times);
    int32_t *looks = mem_new((size_t)batch * (size_t)n, sizeof *looks);
    quire_err e = mem_check_for(requests && times && looks ? requests : NULL, "the requests", err);
    if (e == QUIRE_OK) {
        for (int32_t i = 0; i < batch; i++) {
            requests[i] =
                (sent){.times_us = times + (size_t)i * (size_t)n, .looks = looks + (size_t)i * (size_t)n};
        }
        e = measure_limits(b, err);
    }
    if (e == QUIRE_OK) {
        bench_report(b, NULL, 0, 0, (figure){0, 0}, 0);
    }
    for (int32_t i = 0; e == QUIRE_OK && i < p->n_contexts; i++) {
        for (int32_t j = 0; e == QUIRE_OK && j < p->n_batches; j++) {
            e = bench_measure(b, requests, p->batches[j], p->contexts[i], err);
        }
    }
    mem_free(times);
    mem_free(looks);
    mem_free(requests);
    return e;
}

static quire_err bench_run(const cli_options *cli, quire_error *err) {
    const bench_options *o = (const void *)cli;
    points p;
    TRY(figures_parse_list("--batch", o->batches, p.batches, &p.n_batches, err));
    TRY(figures_parse_list("--context", o->contexts, p.contexts, &p.n_contexts, err));
    quire_options engine = o->cli.engine;
    int32_t batch = figures_largest(p.batches, p.n_batches);
    engine.max_seqs = engine.max_seqs > batch ? engine.max_seqs : batch;
    bench b = {.options = o};
    TRY(client_open(&engine, o->off, NULL, &b.client, err));
    b.n_threads = b.client.info->n_threads;
    quire_err e = bench_measure_all(&b, &p, err);
    client_close(&b.client);
    return e;
}

#define AT(member) .offset = offsetof(bench_options, member)

static const flag bench_flags[] = {
    {"--batch", "LIST", "requests at once", TEXT(batches)},
    {"--context", "LIST", "tokens before the decoded ones", TEXT(contexts)},
    {"--decode -n --n", "N", "tokens decoded for each request", COUNT(n_decode, 2, 1000000)},
    {"--runs", "N", "runs per figure", COUNT(n_runs, 1, FIGURES_MAX_RUNS)},
    {0},
};

LAB_COMMAND(bench, "bench", " MODEL", ARGUMENT_MODEL,
            "measure prefill and decode speed against the limits of memory and arithmetic",
            "  quire bench model.gguf --batch 1,16 --context 128,1024\n", FLAGS_MODEL, bench_flags,
            flags_ablations, flags_json, FLAGS_NUMERIC, flags_eviction, flags_audit, flags_schedule,
            flags_step_target, FLAGS_MACHINE, FLAGS_BATCH, FLAGS_MEMORY);
