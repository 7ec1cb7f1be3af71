/* `quire bench calibrate`: measures what a step of a model costs on this machine
 * (lab/sim/cost.h), through the public API as its users see it.
 *
 * Steps of known content are run: so many sequences decoding at so long a context, and
 * prompts that are one step or several. The cost model's factors are those, none
 * negative, whose relative errors over all of them are least in squares. No trace is
 * looked at. */

#include "base/clock.h"
#include "cli/files.h"
#include "engine/ablations.h"
#include "lab/bench/client.h"
#include "lab/commands/measures.h"
#include "lab/sim/cost.h"

typedef struct bench_calibrate_options {
    cli_options cli;
    engine_ablations off;
    int32_t n_runs; /* of every measurement, in turns */
} bench_calibrate_options;

/* Of an answer DECODE_TOKENS are timed, except for SKIPPED_TOKENS at its start. */
enum {
    DECODE_TOKENS = 48,
    SKIPPED_TOKENS = 4,
    MAX_MEASURES = 96,
    MAX_RUNS = 512,
    MAX_PROMPT_TOKENS = 8192,
    MAX_REPEATS = 8,
    RUN_US = 60000,
    FREAK = 3
};

LAB_DEFAULTS(bench_calibrate, .n_runs = 5)

/* Something that is run and timed: n_seqs prompts of n_prompt tokens, and how many steps
 * of what content the time is of. */
typedef struct measure {
    /* the time of a step in which all n_seqs decode; else from sending one prompt to its
     * first token */
    bool decodes;
    int32_t n_seqs, n_prompt;
    double us[MAX_RUNS];
    int32_t n_us;
    double mean_us;
} measure;

typedef struct calibration {
    const bench_calibrate_options *o;
    client c;
    int32_t knots[COST_MAX_POINTS], n_knots; /* of rows */
    measure measures[MAX_MEASURES];
    int32_t n;
    sent *seqs;     /* [max_seqs] */
    int64_t *times; /* [max_seqs * DECODE_TOKENS] */
    uint64_t draw;
} calibration;

/* ---- what is measured ---- */

static void bench_calibrate_add_measure(calibration *k, bool decodes, int32_t n_seqs, int32_t n_prompt) {
    const quire_info *info = k->c.info;
    int32_t answer = decodes ? DECODE_TOKENS : 1;
    if ((int64_t)n_prompt * n_seqs > MAX_PROMPT_TOKENS) {
        return;
    }
    int64_t pages = pool_size_sequence(&k->o->cli.engine, k->c.engine, (int64_t)n_prompt + answer);
    if (n_prompt >= 1 && n_prompt + answer <= info->max_model_len && pages * n_seqs <= info->n_pages &&
        k->n < MAX_MEASURES) {
        k->measures[k->n++] = (measure){.decodes = decodes, .n_seqs = n_seqs, .n_prompt = n_prompt};
    }
}

/* The knots up to both limits; long contexts after powers of two. */
static void bench_calibrate_choose(calibration *k) {
    const quire_info *info = k->c.info;
    int32_t longest = info->max_model_len - DECODE_TOKENS, seqs[COST_MAX_POINTS],
            n_seqs = cost_knots_until(info->max_seqs, seqs);
    k->n_knots = cost_knots_until(info->max_batched_tokens, k->knots);
    for (int32_t i = 0; i < k->n_knots; i++) {
        bench_calibrate_add_measure(k, false, 1, k->knots[i]);
    }
    for (int32_t rows = 2 * info->max_batched_tokens; rows <= longest; rows *= 2) {
        bench_calibrate_add_measure(k, false, 1, rows);
    }
    bench_calibrate_add_measure(k, false, 1, longest);
    const int32_t prompts[] = {8, longest / 4, longest};
    for (int32_t i = 0; i < n_seqs; i++) {
        for (int p = 0; p < ((seqs[i] & (seqs[i] - 1)) == 0 ? 3 : 1); p++) {
            bench_calibrate_add_measure(k, true, seqs[i], prompts[p]);
        }
    }
}

/* Without one decode the fit says anything of them. */
static quire_err check_choice(const calibration *k, quire_error *err) {
    const quire_info *info = k->c.info;
    for (int32_t i = 0; i < k->n; i++) {
        if (k->measures[i].decodes) {
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_INVALID, -1,
                   "decodes are timed over sequences of at least %d tokens, but --max-model-len is %d and "
                   "memory has %d pages of %d",
                   DECODE_TOKENS + 1, (int)info->max_model_len, (int)info->n_pages, (int)info->page_tokens);
}

/* ---- measuring ---- */

/* The time of a step while all decode: from when the last has its first tokens until the
 * first has all. */
static double step_time(const calibration *k, const measure *m) {
    int64_t from = 0, to = INT64_MAX, n_steps = 0;
    for (int32_t i = 0; i < m->n_seqs; i++) {
        const sent *s = &k->seqs[i];
        from = s->times_us[SKIPPED_TOKENS] > from ? s->times_us[SKIPPED_TOKENS] : from;
        to = s->last_us < to ? s->last_us : to;
    }
    for (int32_t i = 0; i < DECODE_TOKENS; i++) {
        n_steps += k->seqs[0].times_us[i] > from && k->seqs[0].times_us[i] <= to;
    }
    return n_steps > 0 ? (double)(to - from) / (double)n_steps : 0;
}

static quire_err bench_calibrate_run_one(calibration *k, measure *m, quire_error *err) {
    int32_t n_sent = 0;
    quire_err e = QUIRE_OK;
    int64_t start = clock_us();
    for (; n_sent < m->n_seqs && e == QUIRE_OK; n_sent += e == QUIRE_OK) {
        k->seqs[n_sent] = (sent){.times_us = k->times + (size_t)n_sent * DECODE_TOKENS};
        start = clock_us();
        e = client_send_random(&k->c, &k->draw, m->n_prompt, m->decodes ? DECODE_TOKENS : 1, &k->seqs[n_sent],
                               err);
    }
    quire_err waited = client_await(&k->c, n_sent, e == QUIRE_OK ? err : &(quire_error){.message = ""});
    TRY(e);
    TRY(waited);
    double us = m->decodes ? step_time(k, m) : (double)(k->seqs[0].first_us - start);
    if (m->n_us < MAX_RUNS && us > 0) {
        m->us[m->n_us++] = us;
    }
    return QUIRE_OK;
}

/* A run of a measurement: again and again for a while, since what is short is disturbed
 * easily. */
static quire_err bench_calibrate_run_some(calibration *k, measure *m, quire_error *err) {
    int64_t start = clock_us();
    for (int32_t i = 0; i < MAX_REPEATS && (i == 0 || clock_us() - start < RUN_US); i++) {
        TRY(bench_calibrate_run_one(k, m, err));
    }
    return QUIRE_OK;
}

/* What a run takes includes the steps that something held up, so the mean counts; but no
 * single one for more than FREAK times the usual. */
static double usual_us(measure *m) {
    double sum = 0, most = FREAK * figures_percentile(m->us, m->n_us, 0.5);
    for (int32_t i = 0; i < m->n_us; i++) {
        sum += fmin(m->us[i], most);
    }
    return sum / m->n_us;
}

/* All in turns, so that a slow spell hits them alike. */
static quire_err bench_calibrate_measure_all(calibration *k, quire_error *err) {
    for (int32_t run = -1; run < k->o->n_runs; run++) { /* the first warms up */
        for (int32_t i = 0; i < k->n; i++) {
            measure *m = &k->measures[i];
            m->n_us = run == 0 ? 0 : m->n_us;
            TRY(run < 0 ? bench_calibrate_run_one(k, m, err) : bench_calibrate_run_some(k, m, err));
        }
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < k->n; i++) {
        measure m = k->measures[i];
        if (m.n_us > 0) {
            m.mean_us = usual_us(&m);
            k->measures[kept++] = m;
        }
    }
    k->n = kept;
    return QUIRE_OK;
}

/* ---- fitting ---- */

/* What a measurement consisted of. */
static void terms_of(const calibration *k, const measure *m, double *terms) {
    memset(terms, 0, FIT_MAX_TERMS * sizeof *terms);
    if (m->decodes) {
        double context = m->n_prompt + (SKIPPED_TOKENS + DECODE_TOKENS) / 2.0;
        const step_work work = {.rows = m->n_seqs, .out = m->n_seqs, .decode_pairs = m->n_seqs * context};
        cost_fit_add_step(k->knots, k->n_knots, &work, terms);
        return;
    }
    terms[k->n_knots + COST_FIT_OTHER] = 1;
    for (double at = 0, chunk; at < m->n_prompt; at += chunk) {
        chunk = fmin(k->c.info->max_batched_tokens, m->n_prompt - at);
        step_work w = {.rows = chunk, .out = at + chunk == m->n_prompt};
        *(m->n_prompt == 1 ? &w.decode_pairs : &w.prefill_pairs) =
            chunk * (at + (chunk + 1) / 2); /* as the simulation counts them */
        cost_fit_add_step(k->knots, k->n_knots, &w, terms);
    }
}

static void fit_model(const calibration *k, cost_model *c) {
    double terms[FIT_MAX_TERMS], factors[FIT_MAX_TERMS];
    fit *f = &(fit){.n_terms = k->n_knots + COST_FIT_N_OTHERS};
    for (int32_t i = 0; i < k->n; i++) {
        terms_of(k, &k->measures[i], terms);
        fit_add(f, terms, k->measures[i].mean_us);
    }
    fit_solve(f, factors);
    const quire_info *info = k->c.info;
    *c = (cost_model){.request_us = factors[k->n_knots + COST_FIT_OTHER],
                      .kv_tokens = pool_size_tokens(info),
                      .token_bytes = info->token_bytes,
                      .max_model_len = info->max_model_len};
    snprintf(c->model, sizeof c->model, "%s, compute %s, KV %s", info->model_name, info->compute,
             info->kv_dtype);
    snprintf(c->device, sizeof c->device, "%s", info->backend);
    cost_fit_fill(k->knots, k->n_knots, factors, c);
}

/* Microseconds that the model gives a measurement. */
static double predicted_us(const calibration *k, const cost_model *c, const measure *m) {
    double terms[FIT_MAX_TERMS], us, before = 0;
    terms_of(k, m, terms);
    us = terms[k->n_knots + COST_FIT_OUT] * c->out_us +
         terms[k->n_knots + COST_FIT_DECODE] * c->decode_pair_us +
         terms[k->n_knots + COST_FIT_PREFILL] * c->prefill_pair_us +
         terms[k->n_knots + COST_FIT_OTHER] * c->request_us;
    for (int32_t i = 0; i < k->n_knots; i++) {
        us += terms[i] * (c->us[i] - before);
        before = c->us[i];
    }
    return us;
}

/* ---- reporting ---- */

static const table_column columns[] =
    TABLE_OF(WORD("what", "what", 8), KEY("sequences", "sequences", 9, 0), KEY("prompt", "prompt", 7, 0),
             FIGURE("measured", "measured us", 12, 1, "us"), FIGURE("model", "model us", 12, 1, "us"),
             FIGURE("off", "off %", 7, 1, "%"));

static void bench_calibrate_report(const calibration *k, const cost_model *c) {
    bench_table s = {"calibrate", TABLE_COLUMNS(columns), k->o->cli.json};
    char heading[320];
    double squares = 0;
    snprintf(
        heading, sizeof heading,
        "%s on %s: time of a step in which all decode, or from a prompt to its first token; means of %d runs",
        c->model, c->device, (int)k->o->n_runs);
    table_begin(&s, heading);
    for (int32_t i = 0; i < k->n; i++) {
        const measure *m = &k->measures[i];
        double us = predicted_us(k, c, m), off = us / m->mean_us - 1;
        squares += off * off;
        TABLE_ROW(&s, TXT(m->decodes ? "decode" : "prompt"), NUM(m->n_seqs), NUM(m->n_prompt),
                  NUM(m->mean_us), NUM(us), NUM(100 * off));
    }
    table_note(&s,
               "a step: %.1f us with 1 row, %.1f with %d; %.3f us a row of logits, %.5f a pair of a decode, "
               "%.5f of a prefill; a request's way %.1f us; off by %.1f%% in the mean square",
               c->us[0], c->us[c->n_points - 1], (int)c->rows[c->n_points - 1], c->out_us, c->decode_pair_us,
               c->prefill_pair_us, c->request_us, 100 * sqrt(squares / k->n));
}

/* Moving a token's keys and values in memory, for the baseline that grows by copying. */
static double measure_copy_us(const quire_info *info) {
    size_t n = (size_t)1 << 25;
    unsigned char *from = mem_new(n, 1), *to = mem_new(n, 1);
    double best = INFINITY;
    for (int32_t i = 0; from && to && i < 5; i++) {
        memset(from, i + 1, n);
        int64_t start = clock_us();
        memcpy(to, from, n);
        best = to[n - 1] == from[0] ? fmin(best, (double)(clock_us() - start)) : best;
    }
    mem_free(from);
    mem_free(to);
    return isfinite(best) ? best / (double)n * (double)info->token_bytes : 0;
}

/* Measures through an engine that is open. */
static quire_err calibrate(calibration *k, cost_model *out, quire_error *err) {
    const quire_info *info = k->c.info;
    k->seqs = mem_new((size_t)info->max_seqs, sizeof *k->seqs);
    k->times = mem_new((size_t)info->max_seqs * DECODE_TOKENS, sizeof *k->times);
    TRY(mem_check_for(k->seqs && k->times ? k->seqs : NULL, "the sequences", err));
    bench_calibrate_choose(k);
    TRY(check_choice(k, err));
    TRY(bench_calibrate_measure_all(k, err));
    fit_model(k, out);
    out->swap_us = out->copy_us = measure_copy_us(info);
    return QUIRE_OK;
}

/* Fills *k, which is the caller's, except for what is freed here. */
static quire_err run_calibration(calibration *k, const bench_calibrate_options *o, bool print,
                                 cost_model *out, quire_error *err) {
    *k = (calibration){.o = o, .draw = 1};
    TRY(client_open(&o->cli.engine, o->off, &k->c, err));
    quire_err e = calibrate(k, out, err);
    if (e == QUIRE_OK && print) {
        bench_calibrate_report(k, out);
    }
    client_close(&k->c);
    mem_free(k->seqs);
    mem_free(k->times);
    return e;
}

static quire_err calibrate_run(const bench_calibrate_options *o, bool print, cost_model *out,
                               quire_error *err) {
    calibration *k = mem_new(1, sizeof *k);
    TRY(mem_check_for(k, "the measurement", err));
    quire_err e = run_calibration(k, o, print, out, err);
    mem_free(k);
    return e;
}

quire_err calibrate_cost(const quire_options *given, cost_model *out, quire_error *err) {
    bench_calibrate_options o = {.cli = {.engine = *given}};
    bench_calibrate_defaults(&o.cli);
    return calibrate_run(&o, false, out, err);
}

#define AT(member) .offset = offsetof(bench_calibrate_options, member)

static const flag bench_calibrate_flags[] = {
    {"--out -o", "FILE", "write the costs as JSON, for --cost", TEXT(cli.out)},
    {"--runs", "N", "runs per measurement", COUNT(n_runs, 1, 64)},
    {0},
};

static quire_err bench_calibrate_run(const cli_options *o, quire_error *err) {
    cost_model c;
    TRY(files_check_named("--out", o->out, err));
    TRY(calibrate_run((const void *)o, true, &c, err));
    return o->out != NULL ? cost_write(o->out, &c, err) : QUIRE_OK;
}

LAB_COMMAND(bench_calibrate, "bench calibrate", " MODEL [--out FILE]", ARGUMENT_MODEL,
            "what a step of a model costs on this machine",
            "  quire bench calibrate builtin --out cost.json\n"
            "  quire sim requests.jsonl --cost cost.json --speed 10\n",
            FLAGS_MODEL, bench_calibrate_flags, flags_ablations, flags_json, FLAGS_NUMERIC, flags_audit,
            FLAGS_MACHINE, FLAGS_BATCH, FLAGS_MEMORY);
