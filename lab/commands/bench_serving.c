/* `quire bench serving`: what a server on a described device would do with the requests
 * of a trace or of a Poisson process. A table with a row for each way to batch and to
 * allocate memory, from the simulation in lab/sim/serving.h; and the highest request rate
 * of each under a latency bound. */

#include <stdlib.h>

#include "lab/commands/lab_commands.h"
#include "lab/sim/serving.h"

typedef struct bench_serving_options {
    cli_options cli;
    const char *trace;   /* a file (lab/sim/trace_read.h); NULL: Poisson arrivals */
    const char *lengths; /* their distribution of lengths (lab/sim/trace_read.h) */
    double rate;         /* requests per second */
    int32_t n_requests;  /* most requests taken from a trace; 0: all */
    int32_t seed;
    const char *described; /* "opt-13b,a100-40gb": see lab/sim/cost.h */
    /* bounds in seconds, "first=1,gap=0.1,token=0.2": for 99% of first tokens, 99% of
     * answers' mean gaps, and mean latency divided by the answer's tokens. NULL: the
     * highest rate is not searched for */
    const char *slo;
    double cost_per_hour; /* price of the device; 0: not shown */
    double speed;         /* the trace's clock runs this many times as fast */
    int32_t shrink;       /* divisor of lengths */
    int32_t page_tokens;
    int32_t max_model_len; /* 0: the model's */
    int64_t kv_tokens;     /* 0: the device's */
    /* Features beyond paging, in rows of their own: */
    int64_t swap_bytes; /* host memory for preempted requests; 0: none */
    /* "0.8,0.6": probabilities that the first, second .. draft token of a step is right;
     * NULL: no drafts */
    const char *acceptance;
    double draft_us; /* time to make a step's drafts */
} bench_serving_options;

enum { DEFAULT_REQUESTS = 1000, MAX_DOUBLINGS = 12, HALVINGS = 6, STEP_TARGET_US = 100000 };

LAB_DEFAULTS(bench_serving, .lengths = "sharegpt", .rate = 2, .seed = 1, .speed = 1, .shrink = 1,
             .page_tokens = 16)

/* ---- the requests ---- */

static quire_err bench_serving_make_trace(const bench_serving_options *o, int32_t most, trace *t,
                                          quire_error *err) {
    int64_t longest = (int64_t)most * o->shrink;
    if (o->trace != NULL) {
        TRY(trace_read(o->trace, o->n_requests, t, err));
    } else if (longest > INT32_MAX) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "--shrink %d: as many times the longest sequence, which has %d tokens, must be at most %d",
            (int)o->shrink, (int)most, INT32_MAX);
    } else {
        arrivals_options a = {.lengths = o->lengths,
                              .rate = o->rate,
                              .n = o->n_requests > 0 ? o->n_requests : DEFAULT_REQUESTS,
                              .most = (int32_t)longest,
                              .seed = (uint64_t)o->seed};
        TRY(arrivals_make(&a, t, err));
    }
    if (o->shrink > 1) {
        trace_shrink(t, o->shrink);
    }
    return QUIRE_OK;
}

/* One way to serve. */
typedef struct way {
    const char *batching_name, *cache_name;
    batching batching;
    reservation reservation;
    serving_cache cache;
    bool swaps, guesses; /* swaps only if host memory is given, guesses only if drafts' acceptance is */
} way;

static const way ways[] = {
    {"static", "none", BATCH_STATIC, RESERVE_MAX, SERVING_CACHE_NONE, false, false},
    {"static", "none", BATCH_STATIC, RESERVE_ORACLE, SERVING_CACHE_NONE, false, false},
    {"iteration", "none", BATCH_ITERATION, RESERVE_MAX, SERVING_CACHE_NONE, false, false},
    {"iteration", "none", BATCH_ITERATION, RESERVE_POW2, SERVING_CACHE_NONE, false, false},
    {"iteration", "none", BATCH_ITERATION, RESERVE_ORACLE, SERVING_CACHE_NONE, false, false},
    {"iteration", "none", BATCH_ITERATION, RESERVE_GROWING, SERVING_CACHE_NONE, false, false},
    {"continuous", "none", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, false, false},
    {"continuous", "page", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_PAGE, false, false},
    {"continuous", "token", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_TOKEN, false, false},
    {"swapping", "none", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, true, false},
    {"guessing", "none", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, false, true},
};
enum { WAY_MAX = 2, WAY_ORACLE = 4, WAY_PAGED = 6, WAY_TOKEN = 8, WAY_SWAPPING, WAY_GUESSING };
enum { N_WAYS = (int)(sizeof ways / sizeof *ways) };

/* ---- bounds on latency ---- */

typedef struct bounds {
    double first, gap, token; /* seconds; infinite: none */
} bounds;

static quire_err parse_slo(const char *text, bounds *out, quire_error *err) {
    *out = (bounds){INFINITY, INFINITY, INFINITY};
    for (const char *p = text; p != NULL && *p;) {
        size_t n = strcspn(p, "=");
        str name = {p, n};
        double *to = str_is(name, "first")   ? &out->first
                     : str_is(name, "gap")   ? &out->gap
                     : str_is(name, "token") ? &out->token
                                             : NULL;
        char *end = NULL;
        double v = p[n] == '=' ? strtod(p + n + 1, &end) : 0;
        if (to == NULL || end == NULL || end == p + n + 1 || !(v > 0) || (*end != ',' && *end != 0)) {
            return err_set(err, QUIRE_INVALID, p - text,
                           "--slo %s: must be bounds in seconds, some of first=1,gap=0.1,token=0.2", text);
        }
        *to = v;
        p = end + (*end == ',');
    }
    return QUIRE_OK;
}

/* A percentile of values[0..n), which it sorts: the value that the part `part` of them
 * does not exceed, converted from microseconds to seconds. */
static double seconds_at(double *values, int32_t n, double part) {
    return n > 0 ? figures_percentile(values, n, part) * 1e-6 : 0;
}

static double mean_seconds(const double *values, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return n > 0 ? sum / n * 1e-6 : 0;
}

static bool is_within(const bounds *b, serving_result *r) {
    serving_times *t = &r->times;
    return seconds_at(t->first, t->n, 0.99) <= b->first && seconds_at(t->gap, t->n, 0.99) <= b->gap &&
           mean_seconds(t->per_token, t->n) <= b->token;
}

/* ---- the server ---- */

static quire_err read_cost(const bench_serving_options *o, cost_model *cost, quire_error *err) {
    char model[COST_NAME_BYTES];
    size_t n = o->described != NULL ? strcspn(o->described, ",") : 0;
    if (o->described == NULL || o->described[n] != ',') {
        return err_set(err, QUIRE_INVALID, -1,
                       "--described %s: must be MODEL,DEVICE, as in opt-13b,a100-40gb",
                       o->described != NULL ? o->described : "is needed");
    }
    snprintf(model, sizeof model, "%.*s", (int)(n < sizeof model ? n : sizeof model - 1), o->described);
    return cost_describe(model, o->described + n + 1, cost, err);
}

/* Parses "0.8,0.6": each from 0 to 1. */
static quire_err parse_acceptance(const char *text, serving_options *out, quire_error *err) {
    out->n_drafts = 0;
    for (const char *p = text; p != NULL && *p != 0;) {
        char *end;
        double v = strtod(p, &end);
        if (end == p || !(v >= 0 && v <= 1) || (*end != ',' && *end != 0) || (*end == ',' && end[1] == 0) ||
            out->n_drafts == SERVING_MAX_DRAFTS) {
            return err_set(err, QUIRE_INVALID, p - text,
                           "--acceptance %s: must be 1 to %d numbers from 0 to 1 with commas between them",
                           text, SERVING_MAX_DRAFTS);
        }
        out->acceptance[out->n_drafts++] = v;
        p = end + (*end == ',');
    }
    return text == NULL || out->n_drafts > 0 ? QUIRE_OK
                                             : err_set(err, QUIRE_INVALID, -1, "--acceptance is empty");
}

/* Makes the cost model and server for the options; out->cost points to *cost. */
static quire_err make_server(const bench_serving_options *o, cost_model *cost, serving_options *out,
                             quire_error *err) {
    TRY(read_cost(o, cost, err));
    *out = (serving_options){.cost = cost,
                             .kv_tokens = o->kv_tokens > 0 ? o->kv_tokens : cost->kv_tokens,
                             .page_tokens = o->page_tokens,
                             .max_model_len = o->max_model_len > 0 ? o->max_model_len : cost->max_model_len,
                             .max_seqs = 256, /* vLLM's defaults of that time */
                             .max_rows = 2048,
                             .step_target_us = STEP_TARGET_US,
                             .speed = o->speed,
                             .swap_tokens = o->swap_bytes / (cost->token_bytes > 0 ? cost->token_bytes : 1),
                             .preempt = PREEMPT_AUTO,
                             .draft_us = o->draft_us};
    if (o->draft_us > 0 && o->acceptance == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--draft-us is the time of guesses: it needs --acceptance");
    }
    return parse_acceptance(o->acceptance, out, err);
}

/* The highest rate, in requests per second, at which the server stays within the bounds,
 * found by speeding up and slowing down the trace's clock. Infinite if no speed exceeds
 * them, 0 if every speed does. */
static quire_err highest_rate(const trace *t, const serving_options *so, const bounds *b, double *out,
                              quire_error *err) {
    serving_options o = *so;
    double trace_s = (double)(t->requests[t->n_requests - 1].arrival_us - t->requests[0].arrival_us) * 1e-6;
    double good = 0, bad = INFINITY;
    for (int32_t i = 0; i < 2 * MAX_DOUBLINGS + HALVINGS; i++) {
        serving_result r;
        TRY(serving_run(t, &o, &r, err));
        bool within = is_within(b, &r);
        serving_result_deinit(&r);
        *(within ? &good : &bad) = o.speed;
        if (bad / good < 1 + 1.0 / (1 << HALVINGS) || o.speed > so->speed * (1 << MAX_DOUBLINGS) ||
            o.speed * (1 << MAX_DOUBLINGS) < so->speed) {
            break;
        }
        o.speed = good == 0 ? bad / 2 : isinf(bad) ? good * 2 : sqrt(good * bad);
    }
    *out = isinf(bad) ? INFINITY : trace_s > 0 ? t->n_requests / trace_s * good : 0;
    return QUIRE_OK;
}

/* ---- the table ---- */

static const table_column serving_columns[] = TABLE_OF(
    WORD("batching", "batching", 10), WORD("reservation", "memory", 8), WORD("prefix_cache", "cache", 6),
    FIGURE("served", "req/s", 8, 3, "requests/s"), FIGURE("output", "tokens/s", 9, 1, "tokens/s"),
    FIGURE("first_token_p50", "first 50%", 10, 4, "s"), FIGURE("first_token_p99", "99%, s", 10, 4, "s"),
    FIGURE("gap_p99", "gap 99%, s", 10, 5, "s"), FIGURE("token_mean", "s/token", 9, 5, "s"),
    FIGURE("running", "at once", 8, 2, "sequences"), FIGURE("live", "KV live%", 8, 1, "%"),
    FIGURE("hit", "hit %", 6, 1, "%"), FIGURE("preemptions", "preempted", 9, 0, "times"),
    FIGURE("refused", "refused", 7, 0, "requests"), FIGURE("highest_rate", "slo req/s", 9, 3, "requests/s"),
    FIGURE("cost", "$/M tokens", 10, 3, "$/M tokens"));

/* Dollars per million answer tokens at a rate of requests per second. */
static double cost_per_million(const bench_serving_options *o, const serving_result *r, double rate) {
    double tokens_per_s = rate * (double)r->output_tokens / r->times.n;
    return o->cost_per_hour > 0 && rate > 0 && isfinite(rate) ? o->cost_per_hour / 3600 / tokens_per_s * 1e6
                                                              : TABLE_ABSENT;
}

static void serving_print_row(const bench_table *s, const bench_serving_options *o, const way *w,
                              serving_result *r, double rate) {
    serving_times *t = &r->times;
    double span_s = r->span_us * 1e-6, served = t->n / span_s;
    TABLE_ROW(s, TXT(w->batching_name), TXT(reservation_name(w->reservation)), TXT(w->cache_name),
              NUM(served), NUM((double)r->output_tokens / span_s), NUM(seconds_at(t->first, t->n, 0.5)),
              NUM(seconds_at(t->first, t->n, 0.99)), NUM(seconds_at(t->gap, t->n, 0.99)),
              NUM(mean_seconds(t->per_token, t->n)), NUM(r->running_us / r->busy_us),
              NUM(100 * r->live_us / r->reserved_us),
              NUM(100.0 * (double)r->hit_tokens / (double)r->prompt_tokens), NUM(r->n_preemptions),
              NUM(r->n_refused), NUM(rate), NUM(cost_per_million(o, r, o->slo != NULL ? rate : served)));
}

/* Notes what was swapped and drafted. */
static void note_beyond(const bench_table *s, const serving_options *o, const serving_result *r) {
    if (o->swap_tokens > 0) {
        table_note(s, "host memory for %lld tokens; keys and values of %lld went there or came back",
                   (long long)o->swap_tokens, (long long)r->n_swapped);
    }
    if (o->n_drafts > 0) {
        table_note(s, "up to %d guesses a step and sequence, %lld in all, %.1f%% of them right",
                   (int)o->n_drafts, (long long)r->n_drafted,
                   r->n_drafted > 0 ? 100.0 * (double)r->n_accepted / (double)r->n_drafted : 0.0);
    }
}

static quire_err serving_run_way(const bench_table *s, const bench_serving_options *o, const trace *t,
                                 const serving_options *so, const bounds *b, const way *w, double *rate,
                                 quire_error *err) {
    serving_options run = *so;
    serving_result r;
    run.batching = w->batching;
    run.reservation = w->reservation;
    run.cache = w->cache;
    run.swap_tokens = w->swaps ? run.swap_tokens : 0;
    run.n_drafts = w->guesses ? run.n_drafts : 0;
    *rate = TABLE_ABSENT;
    if (o->slo != NULL) {
        TRY(highest_rate(t, &run, b, rate, err));
    }
    TRY(serving_run(t, &run, &r, err));
    serving_print_row(s, o, w, &r, *rate);
    note_beyond(s, &run, &r);
    serving_result_deinit(&r);
    return QUIRE_OK;
}

static void serving_print_gains(const bench_table *s, const double *rates) {
    double paged = rates[WAY_PAGED], most = rates[WAY_MAX], oracle = rates[WAY_ORACLE];
    if (isfinite(paged) && most > 0 && oracle > 0 && isfinite(most) && isfinite(oracle)) {
        table_note(s,
                   "pages stand %.2f times the requests of the same planner with max reserved, %.2f times of "
                   "one that knew the answers' lengths",
                   paged / most, paged / oracle);
    }
    const struct {
        const char *line;
        double rate;
    } others[] = {{"the prefix cache stands %.2f times the requests of pages without it", rates[WAY_TOKEN]},
                  {"swapping stands %.2f times the requests of pages without it", rates[WAY_SWAPPING]},
                  {"guesses stand %.2f times the requests of pages without them", rates[WAY_GUESSING]}};
    for (int i = 0; i < 3; i++) {
        if (isfinite(paged) && paged > 0 && isfinite(others[i].rate)) {
            table_note(s, others[i].line, others[i].rate / paged);
        }
    }
}

static void serving_print_head(const bench_table *s, const bench_serving_options *o, const trace *t,
                               const serving_options *so) {
    char heading[512], name[256];
    snprintf(name, sizeof name, "Poisson arrivals, %g a second, lengths like %s's, seed %lld", o->rate,
             o->lengths, (long long)o->seed);
    double trace_s =
        (double)(t->requests[t->n_requests - 1].arrival_us - t->requests[0].arrival_us) * 1e-6 / o->speed;
    snprintf(heading, sizeof heading,
             "%.100s: %d requests in %.1f s, mean prompt %.1f, answer %.1f tokens\n%s on %s: %lld tokens of "
             "memory for keys and values, %d sequences and %d rows a step, pages of %d; simulated with the "
             "engine's planner",
             o->trace != NULL ? o->trace : name, (int)t->n_requests, trace_s,
             (double)t->n_prompt_tokens / t->n_requests, (double)t->n_output_tokens / t->n_requests,
             so->cost->model, so->cost->device, (long long)so->kv_tokens, (int)so->max_seqs,
             (int)so->max_rows, (int)so->page_tokens);
    table_begin(s, heading);
}

static quire_err serving_run_ways(const bench_serving_options *o, const trace *t, const serving_options *so,
                                  const bounds *b, quire_error *err) {
    double rates[N_WAYS];
    bench_table s = {"serving", TABLE_COLUMNS(serving_columns), o->cli.json};
    serving_print_head(&s, o, t, so);
    for (int32_t i = 0; i < N_WAYS; i++) {
        rates[i] = NAN;
        if ((!ways[i].swaps || so->swap_tokens > 0) && (!ways[i].guesses || so->n_drafts > 0)) {
            TRY(serving_run_way(&s, o, t, so, b, &ways[i], &rates[i], err));
        }
    }
    if (o->slo != NULL) {
        serving_print_gains(&s, rates);
    }
    return QUIRE_OK;
}

static quire_err bench_serving_run(const cli_options *cli, quire_error *err) {
    const bench_serving_options *o = (const bench_serving_options *)(const void *)cli;
    trace t = {0};
    cost_model cost;
    serving_options so;
    bounds b;
    if (o->trace != NULL) {
        TRY(unused_flags_refuse(cli, "--rate --lengths --seed",
                                "with --trace, whose requests have their own times and lengths (see --speed)",
                                err));
    }
    TRY(parse_slo(o->slo, &b, err));
    TRY(make_server(o, &cost, &so, err));
    TRY(bench_serving_make_trace(o, so.max_model_len, &t, err));
    quire_err e = serving_run_ways(o, &t, &so, &b, err);
    trace_deinit(&t);
    return e;
}

#define AT(member) .offset = offsetof(bench_serving_options, member)

static const flag bench_serving_flags[] = {
    {"--described", "MODEL,DEVICE", "what serves, by data sheet, as in opt-13b,a100-40gb", TEXT(described)},
    {"--trace", "FILE", "its requests (see quire sim --help) instead of Poisson arrivals", TEXT(trace)},
    {"--lengths", "NAME", "of prompts and answers: like sharegpt's or alpaca's", TEXT(lengths)},
    {"--rate", "N", "arrivals a second", FLAG_PART, AT(rate), .minimum = 1e-6, .maximum = 1e6},
    {"--requests", "N", "how many; without: 1000, of a trace all", COUNT(n_requests, 1, INT32_MAX)},
    {"--seed", "N", "of arrivals and lengths", COUNT(seed, 0, INT32_MAX)},
    {"--slo", "BOUNDS", "find the highest rate within first=S,gap=S,token=S seconds", TEXT(slo)},
    {"--cost-per-hour", "DOLLARS", "of the device: what a million tokens cost", FLAG_PART, AT(cost_per_hour),
     .minimum = 0, .maximum = 1e9},
    {"--speed", "N", "the trace's clock runs that many times as fast", FLAG_PART, AT(speed), .minimum = 1e-6,
     .maximum = 1e9},
    {"--shrink", "N", "prompts and answers become an Nth as long", COUNT(shrink, 1, 1 << 20)},
    {"--kv-tokens", "N", "tokens that the memory holds; 0: what the device has room for", FLAG_BYTES,
     AT(kv_tokens)},
    {"--swap-space", "GIB", "host memory for preempted requests", FLAG_GIB, AT(swap_bytes)},
    {"--acceptance", "LIST", "guesses are verified: chances that the first, second .. of a step is right",
     TEXT(acceptance)},
    {"--draft-us", "N", "with --acceptance: microseconds that making a step's guesses takes", FLAG_PART,
     AT(draft_us), .minimum = 0, .maximum = 1e9, .rare = true},
    {"--max-model-len", "N", "tokens a sequence may have; without: the model's",
     COUNT(max_model_len, 1, 1 << 24), .rare = true},
    {"--page-size --block-size", "N", "tokens a page holds", PAGE_SIZE(page_tokens)},
    {0},
};

LAB_COMMAND(
    bench_serving, "bench serving", "", ARGUMENT_NONE,
    "requests a second under a bound on latency, simulated on a described device",
    "  quire bench serving --described opt-13b,a100-40gb --lengths sharegpt --rate 2 --slo token=0.2\n"
    "  quire bench serving --described llama-3-8b,a100-80gb --trace requests.jsonl --slo first=5,gap=0.1\n"
    "nothing is run but the engine's planner\n",
    bench_serving_flags, flags_json, flags_help, flags_help_all);
