/* `quire perplexity`: how well a model predicts a text, with keys and values in pages,
 * contiguous, or recomputed for every pass. The ways' log-probabilities are compared and
 * must have the same bits.
 *
 * The text's tokens are cut into consecutive chunks, each a sequence of its own. If the
 * text begins with BOS, it is prepended to each later chunk. Every token but a chunk's
 * first is scored; perplexity is exp(mean of -log p). */
#include <errno.h>
#include <unistd.h>

#include "lab/bench/logprob_scorer.h"
#include "lab/commands/measures.h"
#include "setup/engine_config.h"

typedef struct perplexity_options {
    cli_options cli;
    const char *kv;  /* "paged,contiguous,none", or some of them */
    int32_t step;    /* tokens per pass */
    int32_t context; /* tokens of the text per chunk; 0: 1024, or the model's limit */
} perplexity_options;

enum { USUAL_CONTEXT = 1024, USUAL_STEP = 128 };

/* A text being scored. */
typedef struct scoring {
    const perplexity_options *o;
    bool shows_progress;
    int32_t ways[N_KV_WAYS], n_ways; /* of kv_way */
    token_list ids;
    int32_t context, max_len;
    bool has_bos;   /* later chunks begin with ids[0] */
    int32_t *chunk; /* [context + 1] */
    int64_t n_scored, n_chunks;
    double *logprobs[N_KV_WAYS]; /* [n_scored] for each of the ways, in their order */
    logprob_scorer s;
} scoring;

LAB_DEFAULTS(perplexity, .kv = "paged", .step = USUAL_STEP)

/* ---- chunks ---- */

/* Chooses the length of chunks; refuses one that the model does not support. */
static quire_err plan_chunks(scoring *g, const model_desc *d, quire_error *err) {
    int64_t n = (int64_t)g->ids.n;
    if (n < 2) {
        return err_set(err, QUIRE_INVALID, -1, "%s: %s; the first of a text is not scored, so it takes two",
                       scored_name(&g->o->cli), n == 0 ? "it has no tokens" : "it is one token");
    }
    if (n > INT32_MAX) {
        TRY(err_set(err, QUIRE_TOO_LARGE, -1, "%s: over 2^31 tokens", scored_name(&g->o->cli)));
    }
    TRY(options_max_model_len(&g->o->cli.engine, d, &g->max_len, err));
    g->has_bos = d->bos >= 0 && g->ids.ids[0] == d->bos;
    int32_t most = g->max_len - (int32_t)g->has_bos;
    g->context = g->o->context > 0 ? g->o->context : most < USUAL_CONTEXT ? most : USUAL_CONTEXT;
    if (g->context >= n) {
        g->context = (int32_t)n;
        most = g->max_len;
    }
    if (g->context > most) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--context %d: chunks%s take %d positions, and the model has %d; give at most %d",
                       (int)g->context, g->has_bos && most < g->max_len ? " after their BOS" : "",
                       (int)g->context + (int)(g->has_bos && most < g->max_len), (int)g->max_len, (int)most);
    }
    g->n_chunks = (n + g->context - 1) / g->context;
    g->n_scored = n - (g->has_bos ? 1 : g->n_chunks);
    return QUIRE_OK;
}

/* Copies the chunk's tokens with its BOS; returns their number. */
static int32_t take_chunk(const scoring *g, int64_t chunk) {
    int64_t first = chunk * g->context, left = (int64_t)g->ids.n - first;
    int32_t n = left < g->context ? (int32_t)left : g->context, before = chunk > 0 && g->has_bos;
    g->chunk[0] = g->ids.ids[0];
    memcpy(g->chunk + before, g->ids.ids + first, (size_t)n * sizeof *g->chunk);
    return n + before;
}

static quire_err perplexity_open_arrays(scoring *g, quire_error *err) {
    bool has = (g->chunk = mem_new((size_t)g->context + 1, sizeof *g->chunk)) != NULL;
    for (int32_t i = 0; i < g->n_ways; i++) {
        g->logprobs[i] = mem_new((size_t)g->n_scored + 1, sizeof *g->logprobs[i]);
        has = has && g->logprobs[i] != NULL;
    }
    return has ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1, "%s: no memory for %zu tokens", scored_name(&g->o->cli),
                         g->ids.n);
}

/* Opens text, chunks and model. */
static quire_err open_scoring(scoring *g, quire_error *err) {
    const perplexity_options *o = g->o;
    model_file *f;
    model_desc d;
    TRY(FIGURES_PARSE_NAMES("--kv", o->kv, kv_way_names, g->ways, &g->n_ways, err));
    TRY(options_open_file(&o->cli.engine, &f, err));
    quire_err e = scored_tokens(&o->cli, "perplexity", f, &d, &g->ids, err);
    model_file_close(f);
    TRY(e);
    TRY(plan_chunks(g, &d, err));
    TRY(perplexity_open_arrays(g, err));
    bool recomputes = false;
    for (int32_t i = 0; i < g->n_ways; i++) {
        recomputes = recomputes || g->ways[i] == (int32_t)KV_WAY_NONE;
    }
    int32_t longest = g->context + (int32_t)(g->has_bos && g->n_chunks > 1);
    logprob_scorer_options so = {.engine = &o->cli.engine,
                                 .step = o->step,
                                 .max_tokens = longest,
                                 .max_len = g->max_len,
                                 .recomputes = recomputes};
    return logprob_scorer_open(&so, &g->s, err);
}

static void close_scoring(scoring *g) {
    logprob_scorer_close(&g->s);
    for (int32_t i = 0; i < g->n_ways; i++) {
        mem_free(g->logprobs[i]);
    }
    mem_free(g->chunk);
    token_list_deinit(&g->ids);
}

/* ---- scores ---- */

static quire_err compare_ways(const scoring *g, int64_t from, int64_t n, quire_error *err) {
    for (int32_t i = 1; i < g->n_ways; i++) {
        for (int64_t k = from; k < from + n; k++) {
            if (memcmp(&g->logprobs[0][k], &g->logprobs[i][k], sizeof(double)) != 0) {
                return err_set(err, QUIRE_INTERNAL, k,
                               "scored token %lld: %s gives %.17g, %s %.17g; they must be the same bits",
                               (long long)k, kv_way_names[g->ways[0]], g->logprobs[0][k],
                               kv_way_names[g->ways[i]], g->logprobs[i][k]);
            }
        }
    }
    return QUIRE_OK;
}

/* Scores each chunk in all ways alternately, so that other work on the machine slows them
 * alike. */
static quire_err score_all(scoring *g, quire_error *err) {
    int64_t at = 0;
    for (int64_t chunk = 0; chunk < g->n_chunks; chunk++) {
        int32_t n = take_chunk(g, chunk);
        for (int32_t i = 0; n > 1 && i < g->n_ways; i++) {
            if (g->shows_progress) {
                fprintf(stderr, "\r\033[K%s: %lld of %lld tokens", kv_way_names[g->ways[i]], (long long)at,
                        (long long)g->n_scored);
            }
            TRY(logprob_scorer_chunk(&g->s, (kv_way)g->ways[i], g->chunk, n, g->logprobs[i] + at, err));
        }
        TRY(compare_ways(g, at, n - 1, err));
        at += n - 1;
    }
    return QUIRE_OK;
}

/* Writes a line per scored token: its id and its log-probability, with enough digits for
 * every bit. */
static quire_err write_logprobs(const scoring *g, quire_error *err) {
    FILE *f = fopen(g->o->cli.out, "wb");
    if (f == NULL) {
        return err_set(err, QUIRE_IO, -1, "--out %s: %s", g->o->cli.out, strerror(errno));
    }
    bool good = true;
    int64_t at = 0;
    for (int64_t chunk = 0; chunk < g->n_chunks; chunk++) {
        int32_t n = take_chunk(g, chunk);
        for (int32_t i = 1; i < n; i++) {
            good = good && fprintf(f, "%d %.17g\n", (int)g->chunk[i], g->logprobs[0][at++]) > 0;
        }
    }
    good = fclose(f) == 0 && good;
    return good ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "--out %s: could not be written", g->o->cli.out);
}

static void print_scores(const scoring *g) {
    static const table_column columns[] =
        TABLE_OF(WORD("kv", "keys, values", 12), KEY("perplexity", "perplexity", 12, 4),
                 KEY("mean_loss", "mean loss", 10, 6), KEY("scored", "scored", 8, 0),
                 KEY("chunks", "chunks", 7, 0), KEY("step", "step", 6, 0), KEY("seconds", "seconds", 9, 3),
                 KEY("tokens_per_s", "tokens/s", 9, 1), WORD("bits", "bits", 0));
    const bench_table sh = {"perplexity", columns,
                            (int32_t)(sizeof columns / sizeof *columns) - (g->n_ways == 1), g->o->cli.json};
    double sum = 0.0;
    for (int64_t k = 0; k < g->n_scored; k++) {
        sum -= g->logprobs[0][k];
    }
    double mean = sum / (double)g->n_scored;
    table_begin(&sh, NULL);
    for (int32_t i = 0; i < g->n_ways; i++) {
        double seconds = (double)g->s.us[g->ways[i]] / 1e6;
        TABLE_ROW(&sh, TXT(kv_way_names[g->ways[i]]), NUM(exp(mean)), NUM(mean), NUM(g->n_scored),
                  NUM(g->n_chunks), NUM(g->s.step), NUM(seconds), NUM((double)g->n_scored / seconds),
                  TXT("equal"));
    }
    const model_runner *b = &g->s.b;
    table_note(&sh, "%s, %zu tokens in chunks of %d%s; %s, compute %s, KV %s; %s, %s%s",
               scored_name(&g->o->cli), g->ids.n, (int)g->context,
               g->has_bos && g->n_chunks > 1 ? ", later ones after a BOS" : "", b->desc->name,
               compute_name(b->b->compute), b->layout.type_name, b->b->ops->describe(b->b),
               figures_time_name(b->n_threads),
               g->n_ways > 1 ? ", chunk by chunk in turn; every log-probability compared with memcmp" : "");
}

#define AT(member) .offset = offsetof(perplexity_options, member)

static const flag perplexity_flags[] = {
    {"--kv", "LIST", "keys and values: paged, contiguous or none, or several", TEXT(kv)},
    {"--step", "N", "tokens a forward pass", COUNT(step, 1, 1 << 20)},
    {"--context", "N", "tokens of a chunk; later chunks begin with BOS too; without: 1024",
     COUNT(context, 2, 1 << 30)},
    {"--ids-file", "FILE", "token ids as JSON in place of the text: [1,2,3]", TEXT(cli.ids_file)},
    {"--out", "FILE", "a line for each scored token: id and log-probability, to the last bit", TEXT(cli.out)},
    {0},
};

static quire_err perplexity_run(const cli_options *cli, quire_error *err) {
    scoring g = {.o = (const void *)cli, .shows_progress = !cli->quiet && isatty(STDERR_FILENO)};
    TRY(files_check_named("--out", cli->out, err));
    quire_err e = QUIRE_OK;
    TRY_DONE(e, open_scoring(&g, err));
    e = score_all(&g, err);
    if (g.shows_progress) {
        fprintf(stderr, "\r\033[K");
    }
    if (e == QUIRE_OK && cli->out != NULL) {
        e = write_logprobs(&g, err);
    }
    if (e == QUIRE_OK) {
        print_scores(&g);
    }
done:
    close_scoring(&g);
    return e;
}

LAB_COMMAND(
    perplexity, "perplexity", " MODEL FILE [--kv paged,contiguous,none] [--step N]", ARGUMENT_MODEL_FILE,
    "how well a model predicts a text, paged and contiguous with the same bits",
    "  quire perplexity model.gguf wiki.test.raw --context 512\n"
    "  quire perplexity builtin README.md --kv paged,contiguous,none --step 37\n"
    "  quire perplexity builtin README.md --step 1 --out 1.txt     the same bytes as with any other step\n",
    FLAGS_MODEL, perplexity_flags, flags_json, flags_quiet, flags_compute, FLAGS_KV, flags_state_dtype,
    FLAGS_MACHINE, flags_page_size, flags_model_len, flags_help, flags_help_all);
