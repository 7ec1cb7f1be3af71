/* `quire bench quality`: what a weight type, compute mode or KV type costs in accuracy on
 * a text.
 *
 * The reference is the model's file, computed in f32 with f32 keys and values; for a
 * quantised file, its own quantised weights. Each row of the table is another way to run
 * it, or another file; at every scored position its logits are compared with the
 * reference's, which is computed along with it.
 *
 * The first tokens of the text are cut into windows of `context` tokens, each a sequence
 * of its own; the rest is not used. The tokens of a window's second half, n / 2 + 1 .. n
 * - 1 counted from 0, are predicted and scored, so that each has at least half a window
 * before it (as in llama.cpp's perplexity). If the text begins with BOS, BOS replaces
 * every later window's first token.
 *
 * Memory: the reference and n_at_once rows' models, with the logits of QUALITY_ROWS
 * positions and the pages of one window each, or of QUALITY_SEQS windows if speed is
 * measured. */
#include <unistd.h>

#include "cli/read_flags.h"
#include "lab/bench/logprob_scorer.h"
#include "lab/commands/measures.h"
#include "setup/engine_config.h"

enum { QUALITY_ROWS = 128, QUALITY_SEQS = 16, QUALITY_MAX_AT_ONCE = 16 };

typedef struct bench_quality_options {
    cli_options cli;
    /* weight types, separated by commas, to which MODEL is quantised at load; none: not
     * quantised */
    const char *types;
    const char *against;  /* other files to compare, with the same vocabulary; NULL: none */
    const char *computes; /* "auto", or several */
    const char *kv_types;
    const char *contexts; /* tokens per window */
    int32_t n_tokens;     /* most tokens of the text to use */
    /* decodes timed after a window, of 1 row and of QUALITY_SEQS; 0: speed is not
     * measured */
    int32_t n_steps;
    int32_t n_at_once; /* rows run along with one pass of the reference, at most QUALITY_MAX_AT_ONCE */
} bench_quality_options;

enum { MAX_NAMES = 16, LEAST_CONTEXT = 4, KV_NAME_BYTES = 16 };
_Static_assert((int)QUALITY_SEQS <= (int)LOGPROB_MAX_SEQS,
               "a scorer holds the sequences whose speed is measured");

LAB_DEFAULTS(bench_quality, .types = "none", .computes = "auto", .kv_types = "f32", .contexts = "512",
             .n_tokens = 16384, .n_steps = 16, .n_at_once = 1)

/* Texts separated by commas. */
typedef struct names {
    char *copy; /* owned */
    const char *of[MAX_NAMES];
    int32_t n;
} names;

/* An open model, and its results. */
typedef struct side {
    const char *name; /* name of the row */
    logprob_scorer s;
    quality_stats stats; /* statistics of a row */
    double speeds[2];    /* tokens per second with 1 row and with QUALITY_SEQS; TABLE_ABSENT: not measured */
} side;

typedef struct quality {
    const bench_quality_options *o;
    bool shows_progress;
    names types, files, computes, kv_types; /* files: other models */
    int32_t contexts[FIGURES_MAX_POINTS], n_contexts;
    token_list ids;
    bool has_bos;
    int32_t context, n_windows; /* current context */
    int32_t *window;            /* [context] tokens */
    quality_row *rows;          /* [QUALITY_ROWS] rows of a pass */
    side reference, candidates[QUALITY_MAX_AT_ONCE];
    int32_t n_candidates; /* number of open candidates */
    bench_table table;
} quality;

/* ---- options ---- */

/* Adds the names of a list to out. INVALID: a name is empty or repeated, or there are too
 * many. */
static quire_err parse_names(const char *flag_name, const char *text, names *out, quire_error *err) {
    size_t n = strlen(text) + 1;
    out->copy = mem_new(n, 1);
    if (out->copy == NULL) {
        TRY(err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", flag_name));
    }
    memcpy(out->copy, text, n);
    for (char *at = out->copy, *next; at != NULL; at = next) {
        next = strchr(at, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        bool is_bad = *at == '\0' || out->n == MAX_NAMES;
        for (int32_t i = 0; i < out->n; i++) {
            is_bad = is_bad || strcmp(out->of[i], at) == 0;
        }
        if (is_bad) {
            return err_set(err, QUIRE_INVALID, -1,
                           "%s %s: must be different names with commas between them, fewer than %d",
                           flag_name, text, MAX_NAMES);
        }
        out->of[out->n++] = at;
    }
    return QUIRE_OK;
}

/* The engine's option for a type to quantise to; NULL: none. */
static const char *quantization_of(const char *type) {
    return strcmp(type, "none") == 0 ? NULL : type;
}

static quire_err bench_quality_check_type(quire_options *e, const char *type, quire_error *err) {
    model_file *f;
    model_desc d;
    e->quantization = quantization_of(type);
    TRY(options_open_file(e, &f, err));
    quire_err described = model_describe(f, &d, err);
    model_file_close(f);
    return described;
}

/* Sets the KV types to `name`: "int8" or "int8/int4". */
static quire_err set_kv_types(quire_options *e, const char *name, quire_error *err) {
    char keys[KV_NAME_BYTES];
    const char *values = strchr(name, '/');
    (void)snprintf(keys, sizeof keys, "%.*s", (int)strcspn(name, "/"), name);
    TRY(quire_options_set(e, "--kv-dtype", keys, err));
    return quire_options_set(e, "--cache-type-v", values != NULL ? values + 1 : "auto", err);
}

/* Refuses a compute mode or KV type that this model does not support, before anything is
 * measured. */
static quire_err check_names(const quality *g, const model_desc *d, quire_error *err) {
    quire_options e = g->o->cli.engine;
    compute_mode compute;
    for (int32_t i = 0; i < g->computes.n; i++) {
        TRY(quire_options_set(&e, "--compute", g->computes.of[i], err));
        TRY(options_compute(&e, d, &compute, err));
    }
    for (int32_t i = 0; i < g->kv_types.n; i++) {
        TRY(set_kv_types(&e, g->kv_types.of[i], err));
    }
    for (int32_t i = 0; i < g->types.n; i++) {
        TRY(bench_quality_check_type(&e, g->types.of[i], err));
    }
    return QUIRE_OK;
}

static quire_err check_context(const quality *g, int32_t context, int32_t max_len, quire_error *err) {
    if (context < LEAST_CONTEXT) {
        return err_set(err, QUIRE_INVALID, -1, "--context %d: a window takes at least %d tokens",
                       (int)context, LEAST_CONTEXT);
    }
    if (context > max_len) {
        return err_set(err, QUIRE_INVALID, -1, "--context %d: the model takes %d positions; give at most %d",
                       (int)context, (int)max_len, (int)max_len);
    }
    if (context > g->o->n_tokens) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--context %d: --tokens %d is less than one window; give at least --tokens %d",
                       (int)context, (int)g->o->n_tokens, (int)context);
    }
    return (size_t)context <= g->ids.n
               ? QUIRE_OK
               : err_set(
                     err, QUIRE_INVALID, -1,
                     "--context %d: %s has %zu tokens; give a text of at least %d, or a smaller --context",
                     (int)context, scored_name(&g->o->cli), g->ids.n, (int)context);
}

static quire_err bench_quality_read_text(quality *g, quire_error *err) {
    model_file *f;
    model_desc d;
    int32_t max_len;
    TRY(options_open_file(&g->o->cli.engine, &f, err));
    quire_err e = scored_tokens(&g->o->cli, "bench quality", f, &d, &g->ids, err);
    model_file_close(f);
    TRY(e);
    TRY(check_names(g, &d, err));
    TRY(options_max_model_len(&g->o->cli.engine, &d, &max_len, err));
    g->has_bos = g->ids.n > 0 && d.bos >= 0 && g->ids.ids[0] == d.bos;
    for (int32_t i = 0; i < g->n_contexts; i++) {
        TRY(check_context(g, g->contexts[i], max_len, err));
    }
    return QUIRE_OK;
}

static quire_err read_options(quality *g, quire_error *err) {
    const bench_quality_options *o = g->o;
    TRY(parse_names("--types", o->types, &g->types, err));
    if (o->against != NULL) {
        TRY(parse_names("--against", o->against, &g->files, err));
    }
    TRY(parse_names("--compute", o->computes, &g->computes, err));
    TRY(parse_names("--kv-types", o->kv_types, &g->kv_types, err));
    TRY(figures_parse_list("--context", o->contexts, g->contexts, &g->n_contexts, err));
    return bench_quality_read_text(g, err);
}

/* ---- models ---- */

static quire_err open_side(const quality *g, const quire_options *o, side *out, quire_error *err) {
    out->speeds[0] = out->speeds[1] = TABLE_ABSENT;
    logprob_scorer_options so = {.engine = o,
                                 .step = QUALITY_ROWS,
                                 .max_tokens = g->context,
                                 .max_len = g->context,
                                 .n_seqs = g->o->n_steps > 0 ? QUALITY_SEQS : 1};
    return logprob_scorer_open(&so, &out->s, err);
}

static void close_side(side *m) {
    logprob_scorer_close(&m->s);
    quality_stats_deinit(&m->stats);
}

/* Opens row i for the current context. */
static quire_err open_row(const quality *g, int32_t i, side *out, quire_error *err) {
    int32_t n_weights = g->types.n + g->files.n, weights = i % n_weights,
            compute = i / n_weights % g->computes.n;
    const char *type = weights < g->types.n ? quantization_of(g->types.of[weights]) : NULL;
    quire_options o = g->o->cli.engine;
    o.model = weights < g->types.n ? o.model : g->files.of[weights - g->types.n];
    o.quantization = type;
    TRY(quire_options_set(&o, "--compute", g->computes.of[compute], err));
    TRY(set_kv_types(&o, g->kv_types.of[i / n_weights / g->computes.n], err));
    out->name = weights >= g->types.n ? o.model : type != NULL ? type : "as it is";
    TRY(err_set(err,
                quality_stats_init(&out->stats, (int64_t)g->n_windows * (g->context - 1 - g->context / 2)),
                -1, "no room for %d windows of %d tokens", (int)g->n_windows, (int)g->context));
    TRY(open_side(g, &o, out, err));
    int32_t own = out->s.b.desc->n_vocab, of_reference = g->reference.s.b.desc->n_vocab;
    return own == of_reference ? QUIRE_OK
                               : err_set(err, QUIRE_INVALID, -1,
                                         "--against %s: has a vocabulary of %d tokens, the reference of %d; "
                                         "give a file of the same model",
                                         out->name, (int)own, (int)of_reference);
}

/* ---- windows ---- */

static void take_window(quality *g, int32_t at) {
    memcpy(g->window, g->ids.ids + (size_t)at * (size_t)g->context, (size_t)g->context * sizeof *g->window);
    if (g->has_bos) {
        g->window[0] = g->ids.ids[0];
    }
}

/* The logits of a pass; row i predicts target i. */
typedef struct comparison {
    const quality *g;
    const side *candidate;
    const int32_t *targets;
} comparison;

static void compare_row(void *context, int32_t task, int32_t worker) {
    const comparison *c = context;
    const model_runner *reference = &c->g->reference.s.b;
    (void)worker;
    c->g->rows[task] =
        quality_compare(model_runner_logits(reference, task), model_runner_logits(&c->candidate->s.b, task),
                        reference->desc->n_vocab, c->targets[task]);
}

/* Compares n rows of both models, the first of them after token `at` of the window. */
static quire_err compare_rows(quality *g, side *m, int32_t at, int32_t n, quire_error *err) {
    comparison c = {g, m, g->window + at + 1};
    logprob_scorer_run_tasks(&m->s, compare_row, &c, n);
    for (int32_t i = 0; i < n; i++) {
        const quality_row *r = &g->rows[i];
        if (!isfinite(r->kl) || !isfinite(r->loss[0]) || !isfinite(r->loss[1])) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s: the logits after token %d of a window are not finite: are the weights whole?",
                           m->name, (int)(at + i));
        }
        quality_stats_add(&m->stats, r);
    }
    return QUIRE_OK;
}

static quire_err bench_quality_pass(const quality *g, side *m, int32_t n, int32_t n_scored,
                                    quire_error *err) {
    quire_err e = logprob_scorer_pass(&m->s, g->window, n, n_scored);
    return err_set(err, e, -1, "%s, windows of %d tokens: %s", m->name, (int)g->context, quire_err_text(e));
}

/* Computes tokens at .. at + n of the window with all models; those from `first` on are
 * scored. */
static quire_err compare_pass(quality *g, int32_t at, int32_t n, int32_t first, quire_error *err) {
    int32_t n_scored = at + n <= first ? 0 : at < first ? at + n - first : n;
    TRY(bench_quality_pass(g, &g->reference, n, n_scored, err));
    for (int32_t i = 0; i < g->n_candidates; i++) {
        TRY(bench_quality_pass(g, &g->candidates[i], n, n_scored, err));
        TRY(compare_rows(g, &g->candidates[i], at + n - n_scored, n_scored, err));
    }
    return QUIRE_OK;
}

/* ---- speed ---- */

/* Takes the fastest of n_steps, which other work on the machine affects least. */
static quire_err time_decodes(const quality *g, logprob_scorer *s, int32_t n_rows, double *speed,
                              quire_error *err) {
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < g->o->n_steps; i++) {
        int64_t start = figures_time_us(s->b.n_threads);
        quire_err e = logprob_scorer_decode(s, g->window, n_rows);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "%d rows after %d tokens: %s", (int)n_rows, (int)g->context,
                           quire_err_text(e));
        }
        int64_t us = figures_time_us(s->b.n_threads) - start;
        least = us < least ? us : least;
    }
    *speed = n_rows * 1e6 / fmax((double)least, 1);
    return QUIRE_OK;
}

/* Measures after a window, whose last token has not been computed. */
static quire_err measure_speed(const quality *g, side *m, quire_error *err) {
    if (g->o->n_steps == 0 || !isnan(m->speeds[0])) {
        return QUIRE_OK;
    }
    quire_err e = logprob_scorer_copy(&m->s);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%d sequences of %d tokens: %s", QUALITY_SEQS, (int)g->context,
                       quire_err_text(e));
    }
    TRY(time_decodes(g, &m->s, 1, &m->speeds[0], err));
    return time_decodes(g, &m->s, QUALITY_SEQS, &m->speeds[1], err);
}

static quire_err compare_window(quality *g, bool is_last, quire_error *err) {
    int32_t n = g->context - 1; /* the last token needs no pass */
    for (int32_t at = 0; at < n; at += QUALITY_ROWS) {
        TRY(compare_pass(g, at, n - at < QUALITY_ROWS ? n - at : QUALITY_ROWS, g->context / 2, err));
    }
    if (is_last) {
        TRY(measure_speed(g, &g->reference, err));
    }
    for (int32_t i = 0; is_last && i < g->n_candidates; i++) {
        TRY(measure_speed(g, &g->candidates[i], err));
    }
    return QUIRE_OK;
}

/* Ends a window of all models, even after a failure e; the first error counts. */
static quire_err end_window(quality *g, quire_err e, quire_error *err) {
    for (int32_t i = -1; i < g->n_candidates; i++) {
        quire_error own;
        logprob_scorer *s = i < 0 ? &g->reference.s : &g->candidates[i].s;
        quire_err end = logprob_scorer_end(s, g->window, &own);
        if (e == QUIRE_OK && end != QUIRE_OK) {
            *err = own;
            e = end;
        }
    }
    return e;
}

static int32_t n_rows(const quality *g) {
    return (g->types.n + g->files.n) * g->computes.n * g->kv_types.n;
}

static void bench_quality_show_progress(const quality *g, int32_t first_row, int32_t window) {
    char rows[48] = "row";
    if (g->n_candidates > 1) {
        snprintf(rows, sizeof rows, "rows %d to", (int)first_row + 1);
    }
    if (g->shows_progress) {
        fprintf(stderr, "\r\033[Kcontext %d: %s %d of %d, window %d of %d", (int)g->context, rows,
                (int)(first_row + g->n_candidates), (int)n_rows(g), (int)window + 1, (int)g->n_windows);
        fflush(stderr);
    }
}

static quire_err compare_windows(quality *g, int32_t first_row, quire_error *err) {
    for (int32_t i = 0; i < g->n_windows; i++) {
        bench_quality_show_progress(g, first_row, i);
        take_window(g, i);
        quire_err e = compare_window(g, i + 1 == g->n_windows, err);
        TRY(end_window(g, e, err));
    }
    if (g->shows_progress) {
        fprintf(stderr, "\r\033[K");
    }
    return QUIRE_OK;
}

/* ---- the table ---- */

static const table_column columns[] = TABLE_OF(
    WORD("weights", "weights", 10), WORD("compute", "compute", 7), WORD("kv_dtype", "KV", 9),
    KEY("context", "context", 7, 0), FIGURE("bits", "bits", 6, 2, "bits"), FIGURE("memory", "MB", 7, 0, "MB"),
    FIGURE("kv_token", "KV B/token", 10, 0, "bytes"), FIGURE("perplexity", "perplexity", 11, 4, "perplexity"),
    FIGURE("kl", "mean KL", 10, 6, "nats"), FIGURE("kl_p99", "99% KL", 9, 5, "nats"),
    FIGURE("same", "same %", 7, 3, "%"), FIGURE("tokens_per_s_1", "1 row t/s", 9, 1, "tokens/s"),
    FIGURE("tokens_per_s_16", "16 rows t/s", 11, 1, "tokens/s"), REMARK("types", "weights by type", 0));

/* Percentage of weights with type t. */
static double share_of(const model_desc *d, int32_t t) {
    double all = 0;
    for (int32_t i = 0; i < N_DTYPES; i++) {
        all += (double)d->weight_bytes_of[i] / dtype_block_bytes((dtype)i) * dtype_block_elements((dtype)i);
    }
    return all > 0 ? 100 * (double)d->weight_bytes_of[t] / dtype_block_bytes((dtype)t) *
                         dtype_block_elements((dtype)t) / all
                   : 0;
}

static void print_shares(const quality *g, const side *m) {
    TABLE(t, "quality", true, WORD("weights", NULL, 0), WORD("compute", NULL, 0), WORD("kv_dtype", NULL, 0),
          KEY("context", NULL, 0, 0), WORD("type", NULL, 0), FIGURE("share", NULL, 0, 1, "%"));
    const model_desc *d = m->s.b.desc;
    for (int32_t i = 0; g->o->cli.json && i < N_DTYPES; i++) {
        if (d->weight_bytes_of[i] > 0) {
            TABLE_ROW(&t, TXT(m->name), TXT(compute_name(m->s.b.b->compute)), TXT(m->s.b.layout.type_name),
                      NUM(g->context), TXT(dtype_flag_name((dtype)i)), NUM(share_of(d, i)));
        }
    }
}

/* Writes "q4_k 61.2%, q6_k 38.7%, f32 0.1%", largest first. */
static void describe_shares(const model_desc *d, char *out, size_t n) {
    bool is_said[N_DTYPES] = {false};
    out[0] = '\0';
    for (size_t at = 0; at < n;) {
        int32_t best = -1;
        for (int32_t t = 0; t < N_DTYPES; t++) {
            bool is_next = d->weight_bytes_of[t] > 0 && !is_said[t];
            best = is_next && (best < 0 || share_of(d, t) > share_of(d, best)) ? t : best;
        }
        if (best < 0) {
            return;
        }
        is_said[best] = true;
        at += (size_t)snprintf(out + at, n - at, "%s%s %.1f%%", at > 0 ? ", " : "",
                               dtype_flag_name((dtype)best), share_of(d, best));
    }
}

static void print_side(const quality *g, const side *m, double perplexity, const quality_figures *f) {
    char types[160];
    const model_runner *b = &m->s.b;
    describe_shares(b->desc, types, sizeof types);
    TABLE_ROW(&g->table, TXT(m->name), TXT(compute_name(b->b->compute)), TXT(b->layout.type_name),
              NUM(g->context), NUM(8.0 * (double)b->desc->weight_bytes / (double)b->desc->n_params),
              NUM((double)b->b->ops->weight_bytes(b->b) / 1e6),
              NUM((double)kv_layout_token_bytes(&b->layout)), NUM(perplexity),
              NUM(f != NULL ? f->mean_kl : TABLE_ABSENT), NUM(f != NULL ? f->p99_kl : TABLE_ABSENT),
              NUM(f != NULL ? f->same_percent : TABLE_ABSENT), NUM(m->speeds[0]), NUM(m->speeds[1]),
              TXT(types));
    print_shares(g, m);
}

/* ---- a run ---- */

static quire_err compare_opened(quality *g, int32_t first_row, int32_t n, quire_error *err) {
    for (int32_t i = 0; i < n; i++) {
        g->n_candidates++;
        TRY(open_row(g, first_row + i, &g->candidates[i], err));
    }
    TRY(compare_windows(g, first_row, err));
    for (int32_t i = 0; i < n; i++) {
        quality_figures f = quality_stats_figures(&g->candidates[i].stats);
        if (first_row + i == 0) {
            print_side(g, &g->reference, f.perplexity[0], NULL);
        }
        print_side(g, &g->candidates[i], f.perplexity[1], &f);
    }
    return QUIRE_OK;
}

/* Measures rows first_row .. first_row + n together; the reference's line is printed
 * before the first row. */
static quire_err measure_rows(quality *g, int32_t first_row, int32_t n, quire_error *err) {
    quire_err e = compare_opened(g, first_row, n, err);
    while (g->n_candidates > 0) {
        side *m = &g->candidates[--g->n_candidates];
        close_side(m);
        *m = (side){0};
    }
    return e;
}

static void print_note(const quality *g) {
    const model_runner *b = &g->reference.s.b;
    char speed[96] = "";
    if (g->o->n_steps > 0) {
        snprintf(speed, sizeof speed, "; t/s of the fastest of %d decodes after a window, %s",
                 (int)g->o->n_steps, figures_time_name(b->n_threads));
    }
    table_note(
        &g->table,
        "%s: %d window%s of %d tokens of %s%s, the second half of each scored (%lld tokens); reference: the "
        "file as it is, computed in f32 with KV f32; bits by their types, MB in memory%s; %s",
        g->o->cli.engine.model, (int)g->n_windows, g->n_windows == 1 ? "" : "s", (int)g->context,
        scored_name(&g->o->cli), g->has_bos ? ", each begins with BOS" : "",
        (long long)g->n_windows * (g->context - 1 - g->context / 2), speed, b->b->ops->describe(b->b));
}

static quire_err bench_quality_measure_all(quality *g, quire_error *err) {
    int32_t n = n_rows(g), at_once = g->o->n_at_once;
    for (int32_t i = 0; i < n; i += at_once) {
        TRY(measure_rows(g, i, n - i < at_once ? n - i : at_once, err));
    }
    print_note(g);
    return QUIRE_OK;
}

static quire_err measure_context(quality *g, int32_t context, quire_error *err) {
    int32_t n_tokens = g->ids.n < (size_t)g->o->n_tokens ? (int32_t)g->ids.n : g->o->n_tokens;
    g->context = context;
    g->n_windows = n_tokens / context;
    g->window = mem_new((size_t)context, sizeof *g->window);
    TRY(mem_check_for(g->window, "the windows", err));
    g->reference = (side){.name = "reference"};
    quire_options exact = g->o->cli.engine;
    exact.compute = QUIRE_COMPUTE_F32;
    exact.kv_dtype = QUIRE_KV_F32;
    quire_err e = open_side(g, &exact, &g->reference, err);
    TRY_DONE(e, bench_quality_measure_all(g, err));
done:
    close_side(&g->reference);
    mem_free(g->window);
    g->window = NULL;
    return e;
}

static quire_err commands_bench_quality_run(quality *g, quire_error *err) {
    TRY(read_options(g, err));
    g->rows = mem_new(QUALITY_ROWS, sizeof *g->rows);
    TRY(mem_check_for(g->rows, "the rows", err));
    g->table = (bench_table){"quality", TABLE_COLUMNS(columns), g->o->cli.json};
    table_begin(&g->table, NULL);
    for (int32_t i = 0; i < g->n_contexts; i++) {
        TRY(measure_context(g, g->contexts[i], err));
    }
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_quality_options, member)

static const flag bench_quality_flags[] = {
    {"--types", "LIST", "what weights are quantised to, a row each, as in none,q8_0", TEXT(types)},
    {"--against", "FILES", "other files of the model, a row each, with commas (repeatable)", FLAG_LIST,
     AT(against)},
    {"--compute --dtype", "LIST", "of products, a row each; with --kv-types alone f32", TEXT(computes)},
    {"--kv-types", "LIST", "types of keys and values, a row each, as in int8,int8/int4", TEXT(kv_types)},
    {"--context", "LIST", "tokens of a window, whose second half is scored", TEXT(contexts)},
    {"--tokens", "N", "of the text, from its start, at most", COUNT(n_tokens, 1, 1 << 30)},
    {"--steps", "N", "timed decodes of 1 row and of 16, after a window; 0: no speed", COUNT(n_steps, 0, 64)},
    {"--at-once", "N", "rows whose models are in memory at once", COUNT(n_at_once, 1, QUALITY_MAX_AT_ONCE)},
    {"--ids-file", "FILE", "token ids as JSON in place of the text: [1,2,3]", TEXT(cli.ids_file)},
    {0},
};

static quire_err bench_quality_run(const cli_options *cli, quire_error *err) {
    bench_quality_options own = *(const bench_quality_options *)(const void *)cli;
    bool others = read_flags_gave(cli, "--types") || read_flags_gave(cli, "--against") ||
                  read_flags_gave(cli, "--compute");
    if (read_flags_gave(cli, "--kv-types") && !others) {
        own.computes = "f32";
    }
    quality g = {.o = &own, .shows_progress = !cli->quiet && isatty(STDERR_FILENO)};
    quire_err e = commands_bench_quality_run(&g, err);
    if (e != QUIRE_OK && g.shows_progress) {
        fprintf(stderr, "\r\033[K");
    }
    mem_free(g.types.copy);
    mem_free(g.files.copy);
    mem_free(g.computes.copy);
    mem_free(g.kv_types.copy);
    mem_free(g.rows);
    token_list_deinit(&g.ids);
    return e;
}

LAB_COMMAND(
    bench_quality, "bench quality",
    " MODEL TEXT [--types LIST] [--against FILES] [--compute LIST] [--kv-types LIST]", ARGUMENT_MODEL_FILE,
    "accuracy, memory and speed of types of weights, keys and values, on a text",
    "  quire bench quality model-bf16.gguf wiki.test.raw --types q8_0,q6_k,q4_k --at-once 3\n"
    "  quire bench quality model-bf16.gguf wiki.test.raw --against model-q4_k_m.gguf,model-q8_0.gguf\n"
    "  quire bench quality model.gguf wiki.test.raw --compute bf16,int8\n"
    "  quire bench quality model.gguf wiki.test.raw --kv-types f16,bf16,int8 --context 2048,16384\n"
    "Rows are compared with the reference: MODEL as it is, computed in f32 with KV f32 (of a file that was "
    "quantised\n"
    "before, its quantised weights). Memory: the reference in f32 and --at-once rows' models; of each the "
    "logits of\n"
    "128 positions and the pages of a window, of 16 windows where speed is measured.\n",
    FLAGS_MODEL, bench_quality_flags, flags_json, flags_quiet, flags_isa, flags_threads, flags_page_size,
    flags_model_len, flags_help, flags_help_all);
