#include "lab/sim/compare.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/show.h"
#include "lab/bench/figures.h"
#include "options/engine_flags.h"

/* of vLLM then; of this engine */
enum { DESCRIBED_SEQS = 256, DESCRIBED_ROWS = 2048, MEASURED_SEQS = 64, MEASURED_ROWS = 512 };
enum { MAX_DOUBLINGS = 12, HALVINGS = 6 };

void compare_options_init(compare_options *o) {
    *o = (compare_options){.prefix_cache = QUIRE_PREFIX_CACHE_TOKEN,
                           .speed = 1,
                           .shrink = 1,
                           .page_tokens = 16,
                           .step_target_us = 100000,
                           .preemption_mode = QUIRE_PREEMPTION_AUTO};
}

/* One way to serve. */
typedef struct way {
    const char *batching_name, *cache_name;
    batching batching;
    reservation reservation;
    serving_cache cache;
    bool swaps, guesses; /* where the options have host memory, and chances of guesses */
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

double compare_seconds(double *values, int32_t n, double part) {
    return n > 0 ? figures_percentile(values, n, part) * 1e-6 : 0;
}

double compare_mean_seconds(const double *values, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return n > 0 ? sum / n * 1e-6 : 0;
}

static bool is_within(const bounds *b, serving_result *r) {
    serving_times *t = &r->times;
    return compare_seconds(t->first, t->n, 0.99) <= b->first &&
           compare_seconds(t->gap, t->n, 0.99) <= b->gap &&
           compare_mean_seconds(t->per_token, t->n) <= b->token;
}

/* ---- the server ---- */

static quire_err read_cost(const compare_options *o, cost_model *cost, quire_error *err) {
    if (o->cost != NULL) {
        return cost_read(o->cost, cost, err);
    }
    char model[COST_NAME_BYTES];
    size_t n = strcspn(o->described, ",");
    if (o->described[n] != ',') {
        return err_set(err, QUIRE_INVALID, -1,
                       "--described %s: must be MODEL,DEVICE, as in opt-13b,a100-40gb", o->described);
    }
    snprintf(model, sizeof model, "%.*s", (int)(n < sizeof model ? n : sizeof model - 1), o->described);
    return cost_describe(model, o->described + n + 1, cost, err);
}

/* "0.8,0.6": each from 0 to 1. */
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

quire_err compare_server_of(const compare_options *o, const cost_model *cost, serving_options *out,
                            quire_error *err) {
    bool measured = o->described == NULL;
    *out = (serving_options){.cost = cost,
                             .batching = BATCH_ITERATION,
                             .reservation = RESERVE_PAGED,
                             .kv_tokens = o->kv_tokens > 0 ? o->kv_tokens : cost->kv_tokens,
                             .page_tokens = o->page_tokens,
                             .max_model_len = o->max_model_len > 0 ? o->max_model_len : cost->max_model_len,
                             .max_seqs = o->max_seqs > 0 ? o->max_seqs
                                         : measured      ? MEASURED_SEQS
                                                         : DESCRIBED_SEQS,
                             .max_rows = o->max_rows > 0 ? o->max_rows
                                         : measured      ? MEASURED_ROWS
                                                         : DESCRIBED_ROWS,
                             .max_chunk = o->max_chunk,
                             .step_target_us = o->step_target_us,
                             .speed = o->speed};
    out->max_rows = out->max_rows > out->max_seqs ? out->max_rows : out->max_seqs;
    out->swap_tokens = o->swap_bytes / (cost->token_bytes > 0 ? cost->token_bytes : 1);
    out->draft_us = o->draft_us;
    if (o->draft_us > 0 && o->acceptance == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--draft-us is the time of guesses: it needs --acceptance");
    }
    if (o->swap_bytes == 0 && o->preemption_mode != QUIRE_PREEMPTION_AUTO) {
        return err_set(err, QUIRE_INVALID, -1, "--preemption-mode %s: needs --swap-space",
                       flag_choice_name(choices_preemption, (int)o->preemption_mode));
    }
    out->preempt = (preempt_mode)o->preemption_mode;
    out->cache = (serving_cache)o->prefix_cache;
    return parse_acceptance(o->acceptance, out, err);
}

quire_err compare_server(const compare_options *o, cost_model *cost, serving_options *out, quire_error *err) {
    if ((o->cost == NULL) == (o->described == NULL)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "a device is needed: --cost FILE (of `quire bench calibrate`) or --described "
                       "MODEL,DEVICE, and only one of them");
    }
    TRY(read_cost(o, cost, err));
    return compare_server_of(o, cost, out, err);
}

/* The highest rate, in requests a second, at which the server stays within the bounds:
 * the trace's clock is sped up and slowed down. Infinite where no speed breaks them, 0
 * where every speed does. */
static quire_err highest_rate(const trace *t, const serving_options *server, const bounds *b, double *out,
                              quire_error *err) {
    serving_options o = *server;
    double trace_s = (double)(t->requests[t->n_requests - 1].arrival_us - t->requests[0].arrival_us) * 1e-6;
    double good = 0, bad = INFINITY;
    o.speed = server->speed;
    for (int32_t i = 0; i < 2 * MAX_DOUBLINGS + HALVINGS; i++) {
        serving_result r;
        TRY(serving_run(t, &o, &r, err));
        bool within = is_within(b, &r);
        serving_result_deinit(&r);
        *(within ? &good : &bad) = o.speed;
        if (bad / good < 1 + 1.0 / (1 << HALVINGS) || o.speed > server->speed * (1 << MAX_DOUBLINGS) ||
            o.speed * (1 << MAX_DOUBLINGS) < server->speed) {
            break;
        }
        o.speed = good == 0 ? bad / 2 : isinf(bad) ? good * 2 : sqrt(good * bad);
    }
    *out = isinf(bad) ? INFINITY : trace_s > 0 ? t->n_requests / trace_s * good : 0;
    return QUIRE_OK;
}

/* ---- the table ---- */

static const table_column columns[] = TABLE_OF(
    WORD("batching", "batching", 10), WORD("reservation", "memory", 8), WORD("prefix_cache", "cache", 6),
    FIGURE("served", "req/s", 8, 3, "requests/s"), FIGURE("output", "tokens/s", 9, 1, "tokens/s"),
    FIGURE("first_token_p50", "first 50%", 10, 4, "s"), FIGURE("first_token_p99", "99%, s", 10, 4, "s"),
    FIGURE("gap_p99", "gap 99%, s", 10, 5, "s"), FIGURE("token_mean", "s/token", 9, 5, "s"),
    FIGURE("running", "at once", 8, 2, "sequences"), FIGURE("live", "KV live%", 8, 1, "%"),
    FIGURE("hit", "hit %", 6, 1, "%"), FIGURE("preemptions", "preempted", 9, 0, "times"),
    FIGURE("refused", "refused", 7, 0, "requests"), FIGURE("highest_rate", "slo req/s", 9, 3, "requests/s"),
    FIGURE("cost", "$/M tokens", 10, 3, "$/M tokens"));

/* Dollars for a million tokens of answers at a rate of requests a second. */
static double cost_per_million(const compare_options *o, const serving_result *r, double rate) {
    double tokens_per_s = rate * (double)r->output_tokens / r->times.n;
    return o->cost_per_hour > 0 && rate > 0 && isfinite(rate) ? o->cost_per_hour / 3600 / tokens_per_s * 1e6
                                                              : TABLE_ABSENT;
}

static void compare_print_row(const bench_table *s, const compare_options *o, const way *w, serving_result *r,
                              double rate) {
    serving_times *t = &r->times;
    double span_s = r->span_us * 1e-6, served = t->n / span_s;
    TABLE_ROW(s, TXT(w->batching_name), TXT(reservation_name(w->reservation)), TXT(w->cache_name),
              NUM(served), NUM((double)r->output_tokens / span_s), NUM(compare_seconds(t->first, t->n, 0.5)),
              NUM(compare_seconds(t->first, t->n, 0.99)), NUM(compare_seconds(t->gap, t->n, 0.99)),
              NUM(compare_mean_seconds(t->per_token, t->n)), NUM(r->running_us / r->busy_us),
              NUM(100 * r->live_us / r->reserved_us),
              NUM(100.0 * (double)r->hit_tokens / (double)r->prompt_tokens), NUM(r->n_preemptions),
              NUM(r->n_refused), NUM(rate), NUM(cost_per_million(o, r, o->slo != NULL ? rate : served)));
}

/* What was swapped and guessed. */
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

static quire_err compare_run_way(const bench_table *s, const compare_options *o, const trace *t,
                                 const serving_options *server, const way *w, double *rate,
                                 quire_error *err) {
    serving_options so = *server;
    bounds b;
    serving_result r;
    so.batching = w->batching;
    so.reservation = w->reservation;
    so.cache = w->cache;
    so.swap_tokens = w->swaps ? so.swap_tokens : 0;
    so.n_drafts = w->guesses ? so.n_drafts : 0;
    *rate = TABLE_ABSENT;
    TRY(parse_slo(o->slo, &b, err));
    if (o->slo != NULL) {
        TRY(highest_rate(t, &so, &b, rate, err));
    }
    TRY(serving_run(t, &so, &r, err));
    compare_print_row(s, o, w, &r, *rate);
    note_beyond(s, &so, &r);
    serving_result_deinit(&r);
    return QUIRE_OK;
}

static void compare_print_gains(const bench_table *s, const double *rates) {
    double paged = rates[WAY_PAGED], token = rates[WAY_TOKEN], most = rates[WAY_MAX],
           oracle = rates[WAY_ORACLE];
    if (isfinite(paged) && most > 0 && oracle > 0 && isfinite(most) && isfinite(oracle)) {
        table_note(s,
                   "pages stand %.2f times the requests of the same planner with max reserved, %.2f times of "
                   "one that knew the answers' lengths",
                   paged / most, paged / oracle);
    }
    if (isfinite(paged) && isfinite(token) && paged > 0) {
        table_note(s, "the prefix cache stands %.2f times the requests of pages without it", token / paged);
    }
    if (isfinite(paged) && paged > 0 && isfinite(rates[WAY_SWAPPING])) {
        table_note(s, "swapping stands %.2f times the requests of pages without it",
                   rates[WAY_SWAPPING] / paged);
    }
    if (isfinite(paged) && paged > 0 && isfinite(rates[WAY_GUESSING])) {
        table_note(s, "guesses stand %.2f times the requests of pages without them",
                   rates[WAY_GUESSING] / paged);
    }
}

static void compare_print_head(const bench_table *s, const compare_options *o, const trace *t,
                               const serving_options *server, const char *name) {
    char heading[512];
    double trace_s =
        (double)(t->requests[t->n_requests - 1].arrival_us - t->requests[0].arrival_us) * 1e-6 / o->speed;
    snprintf(heading, sizeof heading,
             "%.100s: %d requests in %.1f s, mean prompt %.1f, answer %.1f tokens\n%s on %s: %lld tokens of "
             "memory for keys and values, %d sequences and %d rows a step, pages of %d; simulated with the "
             "engine's planner",
             name, (int)t->n_requests, trace_s, (double)t->n_prompt_tokens / t->n_requests,
             (double)t->n_output_tokens / t->n_requests, server->cost->model, server->cost->device,
             (long long)server->kv_tokens, (int)server->max_seqs, (int)server->max_rows,
             (int)server->page_tokens);
    table_begin(s, heading);
}

quire_err compare_run(const compare_options *o, const trace *t, const char *name, quire_error *err) {
    cost_model cost;
    serving_options server;
    bounds b;
    double rates[N_WAYS];
    bench_table s = {"serving", TABLE_COLUMNS(columns), o->json};
    TRY(parse_slo(o->slo, &b, err));
    TRY(compare_server(o, &cost, &server, err));
    compare_print_head(&s, o, t, &server, name);
    if (!o->all) {
        way one = ways[WAY_PAGED + server.cache];
        one.swaps = one.guesses = true;
        return compare_run_way(&s, o, t, &server, &one, rates, err);
    }
    for (int32_t i = 0; i < N_WAYS; i++) {
        bool wanted = (!ways[i].swaps || server.swap_tokens > 0) && (!ways[i].guesses || server.n_drafts > 0);
        rates[i] = NAN;
        if (wanted) {
            TRY(compare_run_way(&s, o, t, &server, &ways[i], &rates[i], err));
        }
    }
    if (o->slo != NULL) {
        compare_print_gains(&s, rates);
    }
    return QUIRE_OK;
}
