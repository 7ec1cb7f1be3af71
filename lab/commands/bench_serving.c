/* `quire bench serving [MODEL]`: requests of a trace, or of a Poisson process, answered.
 * Without a model by the simulation, every way to batch and to give memory beside the
 * others; with one really, and beside it what the simulation predicts from what steps
 * cost, which knows nothing of the run: a cost file, or the mean of calibrations before
 * the run and after it, since the
 * speed of a machine that is shared changes from one minute to the next. The same
 * averaged over several runs in turn with calibrations tells the model's error from the
 * machine's. */

#include "base/clock.h"
#include "lab/bench/client.h"
#include "lab/commands/measures.h"
#include "lab/sim/trace_read.h"

typedef struct bench_serving_options {
    cli_options cli;
    compare_options server;
    const char *trace;   /* a file (lab/sim/trace_read.h), or NULL: Poisson arrivals */
    const char *lengths; /* of these: lab/sim/trace_read.h */
    double rate;         /* requests a second */
    int32_t n_requests;  /* of a trace the first; 0: all */
    int32_t seed;
    bool calibrate; /* before and after each real run; server.cost is NULL then */
    int32_t n_runs; /* really, each by an engine of its own */
} bench_serving_options;

enum { DEFAULT_REQUESTS = 1000 };

static void bench_serving_defaults(cli_options *cli) {
    bench_serving_options *o = (void *)cli;
    *o = (bench_serving_options){.cli = o->cli, .lengths = "sharegpt", .rate = 2, .seed = 1, .n_runs = 1};
    o->cli.engine.model = NULL;
    compare_options_init(&o->server);
}

/* ---- the requests ---- */

static quire_err bench_serving_make_trace(const bench_serving_options *o, int32_t most, trace *t,
                                          quire_error *err) {
    int64_t longest = (int64_t)most * o->server.shrink;
    if (o->trace != NULL) {
        TRY(trace_read(o->trace, o->n_requests, t, err));
    } else if (longest > INT32_MAX) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "--shrink %d: as many times the longest sequence, which has %d tokens, must be at most %d",
            (int)o->server.shrink, (int)most, INT32_MAX);
    } else {
        arrivals_options a = {.lengths = o->lengths,
                              .rate = o->rate,
                              .n = o->n_requests > 0 ? o->n_requests : DEFAULT_REQUESTS,
                              .most = (int32_t)longest,
                              .seed = (uint64_t)o->seed};
        TRY(arrivals_make(&a, t, err));
    }
    if (o->server.shrink > 1) {
        trace_shrink(t, o->server.shrink);
    }
    return QUIRE_OK;
}

static void name_trace(const bench_serving_options *o, char *out, size_t n) {
    if (o->trace != NULL) {
        snprintf(out, n, "%s", o->trace);
    } else {
        snprintf(out, n, "Poisson arrivals, %g a second, lengths like %s's, seed %lld", o->rate, o->lengths,
                 (long long)o->seed);
    }
}

/* ---- a real run ---- */

typedef struct real_run {
    const bench_serving_options *o;
    const trace *t;
    client c;
    sent *sent;          /* [n_requests] */
    int32_t *ids, *text; /* [longest] of one request: the trace's, and those as the model's tokens */
    int64_t start_us;
    int32_t n_sent, n_left; /* sent; of those not done */
    serving_result r;
} real_run;

static bool is_taken(const real_run *run, const trace_request *q) {
    return q->n_prompt + serving_output(q) <= run->c.info->max_model_len;
}

static quire_err send_next(real_run *run, quire_error *err) {
    int32_t i = run->n_sent++;
    const trace_request *q = &run->t->requests[i];
    if (!is_taken(run, q)) {
        run->r.n_refused++;
        return QUIRE_OK;
    }
    trace_tokens(run->t, q, run->text);
    for (int32_t k = 0; k < q->n_prompt; k++) {
        run->ids[k] = trace_token_of(run->text[k], run->c.info->n_vocab);
    }
    TRY(client_send(&run->c, run->ids, q->n_prompt, serving_output(q), &run->sent[i], err));
    run->n_left++;
    return QUIRE_OK;
}

/* Sends each request when it is due, and notes what comes back. */
static quire_err serve_all(real_run *run, const serving_options *o, quire_error *err) {
    int32_t n = run->t->n_requests;
    run->start_us = clock_us();
    while (run->n_sent < n || run->n_left > 0) {
        int64_t now_us = clock_us() - run->start_us, wait_us = -1;
        if (run->n_sent < n) {
            double due = serving_arrival(run->t, o, run->n_sent);
            if (due <= (double)now_us) {
                TRY(send_next(run, err));
                continue;
            }
            wait_us = (int64_t)ceil(due - (double)now_us);
        }
        run->n_left -= client_receive(&run->c, wait_us);
    }
    return QUIRE_OK;
}

static void bench_serving_collect(real_run *run, const serving_options *o) {
    serving_result *r = &run->r;
    for (int32_t i = 0; i < run->t->n_requests; i++) {
        const sent *s = &run->sent[i];
        const trace_request *q = &run->t->requests[i];
        if (s->done && s->n_seen == s->n_output) {
            double first = (double)(s->first_us - run->start_us), last = (double)(s->last_us - run->start_us);
            serving_note(r, q, serving_arrival(run->t, o, i), first, last);
            r->hit_tokens += s->n_cached;
            r->span_us = fmax(r->span_us, last);
        }
    }
}

static quire_err run_open(real_run *run, const serving_options *o, quire_error *err) {
    size_t n = (size_t)run->t->n_requests, longest = (size_t)run->t->longest + 1;
    serving_result *r = &run->r;
    run->sent = mem_new(n, sizeof *run->sent);
    run->ids = mem_new(longest, sizeof *run->ids);
    run->text = mem_new(longest, sizeof *run->text);
    quire_err e = serving_result_init(r, run->t->n_requests);
    TRY(mem_check_for(e == QUIRE_OK && run->sent && run->ids && run->text ? run->sent : NULL, "the requests",
                      err));
    quire_stats before, after;
    quire_engine_stats(run->c.engine, &before);
    TRY(serve_all(run, o, err));
    bench_serving_collect(run, o);
    quire_engine_stats(run->c.engine, &after);
    r->n_steps = after.steps - before.steps;
    r->n_rows = after.step_rows - before.step_rows;
    r->busy_us = (double)(after.step_us - before.step_us);
    r->n_preemptions = after.preemptions - before.preemptions;
    return QUIRE_OK;
}

/* ---- measured beside predicted ---- */

static const table_column columns[] = TABLE_OF(
    WORD("what", "", 34), FIGURE("measured", "measured", 12, 4, ""), KEY("spread_percent", "+- %", 8, 1),
    KEY("predicted", "predicted", 12, 4), KEY("off_percent", "off %", 8, 1));

enum { N_FIGURES = 16 };
static const struct {
    const char *title, *name, *unit;
} figures[N_FIGURES] = {
    {"requests/s", "served", "requests/s"},
    {"answer tokens/s", "output", "tokens/s"},
    {"time to first token 50%, s", "first_token_p50", "s"},
    {"time to first token 90%, s", "first_token_p90", "s"},
    {"time to first token 95%, s", "first_token_p95", "s"},
    {"time to first token 99%, s", "first_token_p99", "s"},
    {"mean time to first token, s", "first_token_mean", "s"},
    {"mean gap between tokens, s", "gap_mean", "s"},
    {"gap 99%, s", "gap_p99", "s"},
    {"latency a token, mean, s", "token_mean", "s"},
    {"busy part of the time", "busy", "x"},
    {"steps", "steps", "steps"},
    {"rows computed", "rows", "rows"},
    {"prompt tokens found in the cache", "hit", "tokens"},
    {"preemptions", "preemptions", "times"},
    {"requests answered", "answered", "requests"},
};

/* In the order of the names. */
static void list_figures(serving_result *r, double *out) {
    static const double parts[] = {0.5, 0.9, 0.95, 0.99};
    serving_times *t = &r->times;
    *out++ = t->n / r->span_us * 1e6;
    *out++ = (double)r->output_tokens / r->span_us * 1e6;
    for (int i = 0; i < 4; i++) {
        *out++ = compare_seconds(t->first, t->n, parts[i]);
    }
    *out++ = compare_mean_seconds(t->first, t->n);
    *out++ = compare_mean_seconds(t->gap, t->n);
    *out++ = compare_seconds(t->gap, t->n, 0.99);
    *out++ = compare_mean_seconds(t->per_token, t->n);
    *out++ = r->busy_us / r->span_us;
    *out++ = (double)r->n_steps;
    *out++ = (double)r->n_rows;
    *out++ = (double)r->hit_tokens;
    *out++ = (double)r->n_preemptions;
    *out = t->n;
}

static double off_percent(double measured, double predicted) {
    return measured > 0 ? 100 * (predicted / measured - 1) : TABLE_ABSENT;
}

/* What the simulation says about the same requests, on the engine's memory and limits. */
static quire_err predict(const real_run *run, const cost_model *cost, serving_result *out, quire_error *err) {
    const quire_options *e = &run->o->cli.engine;
    const quire_info *info = run->c.info;
    serving_options simulated;
    compare_options c = run->o->server;
    c.prefix_cache = e->prefix_cache;
    c.page_tokens = info->page_tokens;
    c.kv_tokens = pool_size_tokens(info);
    c.max_seqs = info->max_seqs;
    c.max_rows = info->max_batched_tokens;
    c.max_chunk = e->prefill_chunk;
    c.max_model_len = info->max_model_len;
    c.step_target_us = e->step_target_us;
    TRY(compare_server_of(&c, cost, &simulated, err));
    return serving_run(run->t, &simulated, out, err);
}

/* What the rounds of a run gave: each figure of each, and what steps cost, as told or as
 * measured around them. */
typedef struct rounds {
    double figures[N_FIGURES][FIGURES_MAX_RUNS];
    double longest_us[FIGURES_MAX_RUNS + 1]; /* of the calibrations: a step with the most rows */
    cost_model cost;
    int32_t n, n_costs;
} rounds;

/* A figure as JSON lines: measured, its spread over the rounds, and predicted. */
static void bench_serving_print_lines(const real_run *run, int i, figure measured, double predicted) {
    const struct {
        const char *suffix, *source;
        double value;
    } found[] = {{"", "measured", measured.mean},
                 {"_spread", "measured", measured.spread},
                 {"", "predicted", predicted}};
    for (size_t k = 0; k < sizeof found / sizeof *found; k++) {
        FIGURE_LINE("serving", figures[i].name, found[k].suffix, found[k].value, figures[i].unit,
                    {"model", run->c.info->model_name, 0}, {"requests", NULL, run->t->n_requests},
                    {"source", found[k].source, 0});
    }
}

static quire_err bench_serving_print_figures(const real_run *run, const rounds *f, const bench_table *s,
                                             quire_error *err) {
    double predicted[N_FIGURES];
    if (f->n_costs > 0) {
        serving_result p;
        TRY(predict(run, &f->cost, &p, err));
        list_figures(&p, predicted);
        serving_result_deinit(&p);
    }
    for (int i = 0; i < N_FIGURES; i++) {
        figure m = figure_of(f->figures[i], f->n);
        double p = f->n_costs > 0 ? predicted[i] : TABLE_ABSENT;
        double spread = f->n > 1 && m.mean > 0 ? 100 * m.spread / m.mean : TABLE_ABSENT;
        if (s->json) {
            bench_serving_print_lines(run, i, m, p);
            continue;
        }
        TABLE_ROW(s, TXT(figures[i].title), NUM(m.mean), NUM(spread), NUM(p), NUM(off_percent(m.mean, p)));
    }
    if (run->o->calibrate) {
        figure cost = figure_of(f->longest_us, f->n_costs);
        table_note(s,
                   "steps cost what they did on average of %d calibrations, before and after each run: with "
                   "%.0f rows %.0f us, at most %.0f away",
                   (int)f->n_costs, f->cost.rows[f->cost.n_points - 1], cost.mean, cost.spread);
    }
    return QUIRE_OK;
}

static void bench_serving_print_head(const real_run *run, const bench_table *s) {
    const bench_serving_options *o = run->o;
    const trace *t = run->t;
    const quire_info *info = run->c.info;
    char name[256], heading[640];
    name_trace(o, name, sizeof name);
    snprintf(heading, sizeof heading,
             "%s: %d requests, mean prompt %.1f, answer %.1f tokens, clock x %g\n%s, compute %s, KV %s, %s",
             name, (int)t->n_requests, (double)t->n_prompt_tokens / t->n_requests,
             (double)t->n_output_tokens / t->n_requests, o->server.speed, info->model_name, info->compute,
             info->kv_dtype, info->backend);
    table_begin(s, heading);
}

/* What steps cost, as told or as measured now. */
static quire_err add_cost(const bench_serving_options *o, rounds *f, quire_error *err) {
    cost_model cost;
    if (o->server.cost != NULL) {
        TRY(cost_read(o->server.cost, &cost, err));
    } else {
        TRY(calibrate_cost(&o->cli.engine, &cost, err));
    }
    cost_mean(&f->cost, f->n_costs, &cost);
    f->longest_us[f->n_costs++] = cost.us[cost.n_points - 1];
    return QUIRE_OK;
}

static void run_free(real_run *run) {
    serving_result_deinit(&run->r);
    mem_free(run->sent);
    mem_free(run->ids);
    mem_free(run->text);
    run->sent = NULL;
    run->ids = run->text = NULL;
    run->r = (serving_result){0};
    run->n_sent = 0;
}

/* One round, whose figures join the others. */
static quire_err run_round(real_run *run, rounds *f, quire_error *err) {
    serving_options clock = {.speed = run->o->server.speed};
    double found[N_FIGURES];
    TRY(run_open(run, &clock, err));
    if (run->c.n_failed > 0) {
        return err_set(err, run->c.failure.code != QUIRE_OK ? run->c.failure.code : QUIRE_INTERNAL, -1,
                       "%d requests failed, the first: %s", (int)run->c.n_failed, run->c.failure.message);
    }
    if (run->r.times.n == 0) {
        return err_set(err, QUIRE_INVALID, -1, "not one request of %d fits into %d tokens; shrink the trace",
                       (int)run->t->n_requests, (int)run->c.info->max_model_len);
    }
    list_figures(&run->r, found);
    for (int i = 0; i < N_FIGURES; i++) {
        f->figures[i][f->n] = found[i];
    }
    f->n++;
    return QUIRE_OK;
}

/* The first round's engine is open: the trace was made for it. The others get their own,
 * with nothing in its cache. */
static quire_err bench_serving_run_rounds(real_run *run, rounds *f, quire_error *err) {
    const bench_serving_options *o = run->o;
    if (o->server.cost != NULL || o->calibrate) {
        TRY(add_cost(o, f, err));
    }
    for (int32_t i = 0; i < o->n_runs; i++) {
        if (i > 0) {
            run_free(run);
            client_close(&run->c);
            run->c = (client){0};
            TRY(client_open(&o->cli.engine, (engine_ablations){0}, &run->c, err));
        }
        TRY(run_round(run, f, err));
        if (o->calibrate) {
            TRY(add_cost(o, f, err));
        }
    }
    return QUIRE_OK;
}

static quire_err run_engine(real_run *run, quire_error *err) {
    bench_table s = {"serving", TABLE_COLUMNS(columns), run->o->cli.json};
    rounds *f = mem_new(1, sizeof *f);
    TRY(mem_check_for(f, "the measurement", err));
    quire_err e = bench_serving_run_rounds(run, f, err);
    if (e == QUIRE_OK) {
        bench_serving_print_head(run, &s);
        e = bench_serving_print_figures(run, f, &s, err);
    }
    mem_free(f);
    return e;
}

static quire_err serve_really(const bench_serving_options *o, quire_error *err) {
    bench_serving_options own = *o;
    real_run run = {.o = &own};
    trace t = {0};
    if (o->server.described != NULL || (o->calibrate && o->server.cost != NULL)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "with a MODEL the prediction is made from --cost FILE or --calibrate, one of them%s",
                       o->server.described != NULL ? "; --described is for a device that is not here" : "");
    }
    if (o->server.kv_tokens > 0) {
        TRY(pool_size_groups(&o->cli.engine, "--kv-tokens", o->server.kv_tokens / o->server.page_tokens,
                             &own.cli.engine.n_pages, err));
    }
    TRY(client_open(&own.cli.engine, (engine_ablations){0}, &run.c, err));
    quire_err e = bench_serving_make_trace(o, run.c.info->max_model_len, &t, err);
    run.t = &t;
    e = e == QUIRE_OK ? run_engine(&run, err) : e;
    run_free(&run);
    client_close(&run.c);
    trace_deinit(&t);
    return e;
}

static quire_err simulate(const bench_serving_options *o, quire_error *err) {
    char name[256];
    trace t = {0};
    cost_model cost;
    serving_options simulated;
    compare_options c = o->server;
    c.all = true;
    c.json = o->cli.json;
    TRY(compare_server(&c, &cost, &simulated, err));
    TRY(bench_serving_make_trace(o, simulated.max_model_len, &t, err));
    name_trace(o, name, sizeof name);
    quire_err e = compare_run(&c, &t, name, err);
    trace_deinit(&t);
    return e;
}

static quire_err bench_serving_measure(const bench_serving_options *o, quire_error *err) {
    if (o->cli.engine.model == NULL && o->calibrate) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--calibrate needs a MODEL: it measures what steps of one cost here");
    }
    return o->cli.engine.model != NULL ? serve_really(o, err) : simulate(o, err);
}

#define AT(member) .offset = offsetof(bench_serving_options, member)

static const flag load_flags[] = {
    {"--model -m", "MODEL", "serve with this model; without: simulate", TEXT(cli.engine.model)},
    {"--trace", "FILE", "its requests (see quire sim --help) instead of Poisson arrivals", TEXT(trace)},
    {"--lengths", "NAME", "of prompts and answers: like sharegpt's or alpaca's", TEXT(lengths)},
    {"--rate", "N", "arrivals a second", FLAG_PART, AT(rate), .minimum = 1e-6, .maximum = 1e6},
    {"--requests", "N", "how many; without: 1000, of a trace all", COUNT(n_requests, 1, INT32_MAX)},
    {"--seed", "N", "of arrivals and lengths", COUNT(seed, 0, INT32_MAX)},
    {0},
};
static const flag prediction_flags[] = {
    {"--calibrate", NULL, "predict from what steps cost before and after each run", FLAG_SWITCH,
     AT(calibrate)},
    {"--runs", "N", "really served so many times, figures being means", COUNT(n_runs, 1, 64)},
    {0},
};
static const flag page_flags[] = {
    {"--page-size --block-size", "N", "tokens a page holds", PAGE_SIZE(server.page_tokens)},
    {0},
};

/* The same limits for the engine that runs and the server that is simulated; what was not
 * given is as each has it. */
static quire_err limit_engine(const compare_options *s, quire_options *e, quire_error *err) {
    e->max_seqs = s->max_seqs > 0 ? s->max_seqs : e->max_seqs;
    e->max_batched_tokens = s->max_rows > 0 ? s->max_rows : e->max_batched_tokens;
    e->prefill_chunk = s->max_chunk;
    e->max_model_len = s->max_model_len;
    e->page_tokens = s->page_tokens;
    e->step_target_us = s->step_target_us;
    e->swap_bytes = s->swap_bytes;
    e->preemption_mode = s->preemption_mode;
    if ((s->acceptance != NULL || s->draft_us > 0) && e->model != NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--acceptance and --draft-us are of a server that is simulated, and a MODEL is given");
    }
    if (s->kv_tokens > 0) {
        int64_t n_pages = s->kv_tokens / s->page_tokens;
        if (n_pages < 1 || n_pages > INT32_MAX) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--kv-tokens %lld: must be from %d, the tokens of a page, to %d pages of as many",
                           (long long)s->kv_tokens, (int)s->page_tokens, INT32_MAX);
        }
    }
    return QUIRE_OK;
}

/* A flag that would do nothing is refused. */
static quire_err serving_check_flags(const bench_serving_options *o, quire_error *err) {
    const cli_options *c = &o->cli;
    if (o->trace != NULL) {
        TRY(unused_flags_refuse(c, "--rate --lengths --seed",
                                "with --trace, whose requests have their own times and lengths (see --speed)",
                                err));
    }
    if (c->engine.model != NULL) {
        return unused_flags_refuse(
            c, "--slo --cost-per-hour",
            "with a MODEL, which really serves, at one rate: it is of simulated servers", err);
    }
    return o->calibrate
               ? QUIRE_OK
               : unused_flags_refuse(c, "--compute --quantization --kv-dtype --prefix-cache --threads --runs",
                                     "where a server is simulated: give a MODEL that really serves", err);
}

static quire_err bench_serving_run(const cli_options *o, quire_error *err) {
    bench_serving_options own = *(const bench_serving_options *)(const void *)o;
    TRY(serving_check_flags(&own, err));
    TRY(limit_engine(&own.server, &own.cli.engine, err));
    return bench_serving_measure(&own, err);
}

LAB_COMMAND(
    bench_serving, "bench serving", " [MODEL]", ARGUMENT_MODEL_OR_NONE,
    "requests a second under a bound on latency, simulated or really served",
    "  quire bench serving --described opt-13b,a100-40gb --lengths sharegpt --rate 2 --slo token=0.2\n"
    "  quire bench serving builtin --lengths alpaca --rate 30 --requests 500 --cost cost.json\n"
    "  quire bench serving builtin --trace requests.jsonl --shrink 64 --speed 10 --calibrate\n"
    "without a MODEL nothing is run: the engine's planner is, on a described device or one that was "
    "calibrated\n",
    load_flags, flags_served_by, prediction_flags, flags_served, page_flags, FLAGS_NUMERIC, flags_threads,
    flags_json, flags_help, flags_help_all);
