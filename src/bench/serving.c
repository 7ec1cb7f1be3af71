#include "bench/serving.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "bench/client.h"
#include "bench/sheet.h"
#include "sim/arrivals.h"
#include "sim/compare.h"

enum { DEFAULT_REQUESTS = 1000 };

void bench_serving_options_init(bench_serving_options *o) {
    *o = (bench_serving_options){.lengths = "sharegpt", .rate = 2, .seed = 1};
    quire_options_init(&o->engine);
    compare_options_init(&o->server);
}

/* ---- the requests ---- */

static quire_err make_trace(const bench_serving_options *o, int32_t most, trace *t, quire_error *err) {
    if (o->trace != NULL) {
        TRY(trace_read(o->trace, o->n_requests, t, err));
    } else {
        arrivals_options a = {.lengths = o->lengths,
                              .rate = o->rate,
                              .n = o->n_requests > 0 ? o->n_requests : DEFAULT_REQUESTS,
                              .most = most * o->server.shrink,
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
        snprintf(out, n, "Poisson arrivals, %g a second, lengths like %s's, seed %lld", o->rate, o->lengths, (long long)o->seed);
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
    serving_result *r;
} real_run;

/* A token of the trace as one of the model's: the same for the same. */
static int32_t token_of(int32_t id, int32_t n_vocab) {
    uint64_t z = (uint64_t)(uint32_t)id * 0x9e3779b97f4a7c15u;
    z ^= z >> 32;
    return (int32_t)(z * 0xd6e8feb86659fd93u >> 33) % n_vocab;
}

static bool is_taken(const real_run *run, const trace_request *q) {
    return q->n_prompt + serving_output(q) <= run->c.info->max_model_len;
}

static quire_err send_next(real_run *run, quire_error *err) {
    int32_t i = run->n_sent++;
    const trace_request *q = &run->t->requests[i];
    if (!is_taken(run, q)) {
        run->r->n_refused++;
        return QUIRE_OK;
    }
    trace_tokens(run->t, q, run->text);
    for (int32_t k = 0; k < q->n_prompt; k++) {
        run->ids[k] = token_of(run->text[k], run->c.info->n_vocab);
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

static void collect(real_run *run, const serving_options *o) {
    serving_result *r = run->r;
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
    serving_result *r = run->r;
    run->sent = mem_new(n, sizeof *run->sent);
    run->ids = mem_new(longest, sizeof *run->ids);
    run->text = mem_new(longest, sizeof *run->text);
    r->n_requests = run->t->n_requests;
    r->times = (serving_times){mem_new(n, sizeof(double)), mem_new(n, sizeof(double)), mem_new(n, sizeof(double)), 0};
    if (!run->sent || !run->ids || !run->text || !r->times.first || !r->times.gap || !r->times.per_token) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %d requests", (int)n);
    }
    TRY(serve_all(run, o, err));
    collect(run, o);
    quire_stats stats;
    quire_engine_stats(run->c.engine, &stats);
    r->n_steps = stats.steps;
    r->n_rows = stats.step_rows;
    r->busy_us = (double)stats.step_us;
    r->n_preemptions = stats.preemptions;
    return QUIRE_OK;
}

/* ---- measured beside predicted ---- */

static const sheet_column columns[] = {
    {"what", "", 34, SHEET_TEXT},
    {"measured", "measured", 12, 4},
    {"predicted", "predicted", 12, 4},
    {"off_percent", "off %", 8, 1},
};

static void print_figure(const sheet *s, const char *what, double measured, double predicted) {
    bool both = isfinite(predicted) && measured > 0;
    sheet_row(s, (sheet_cell[]){{.text = what}, {.number = measured}, {.number = predicted}, {.number = both ? 100 * (predicted / measured - 1) : SHEET_ABSENT}});
}

/* p NULL: nothing was predicted. */
static void print_figures(const bench_serving_options *o, const char *heading, serving_result *m, serving_result *p) {
    static const struct {
        const char *name;
        double part;
    } parts[] = {{"time to first token 50%, s", 0.5}, {"time to first token 90%, s", 0.9}, {"time to first token 95%, s", 0.95}, {"time to first token 99%, s", 0.99}};
    sheet s = {.what = "serving run", .columns = columns, .n_columns = (int32_t)(sizeof columns / sizeof *columns), .json = o->json};
    sheet_begin(&s, heading);
#define PREDICTED(expression) (p != NULL ? (expression) : SHEET_ABSENT)
    print_figure(&s, "requests/s", m->times.n / m->span_us * 1e6, PREDICTED(p->times.n / p->span_us * 1e6));
    print_figure(&s, "answer tokens/s", (double)m->output_tokens / m->span_us * 1e6, PREDICTED((double)p->output_tokens / p->span_us * 1e6));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        print_figure(&s, parts[i].name, compare_seconds(m->times.first, m->times.n, parts[i].part), PREDICTED(compare_seconds(p->times.first, p->times.n, parts[i].part)));
    }
    print_figure(&s, "mean time to first token, s", compare_mean_seconds(m->times.first, m->times.n), PREDICTED(compare_mean_seconds(p->times.first, p->times.n)));
    print_figure(&s, "mean gap between tokens, s", compare_mean_seconds(m->times.gap, m->times.n), PREDICTED(compare_mean_seconds(p->times.gap, p->times.n)));
    print_figure(&s, "gap 99%, s", compare_seconds(m->times.gap, m->times.n, 0.99), PREDICTED(compare_seconds(p->times.gap, p->times.n, 0.99)));
    print_figure(&s, "latency a token, mean, s", compare_mean_seconds(m->times.per_token, m->times.n), PREDICTED(compare_mean_seconds(p->times.per_token, p->times.n)));
    print_figure(&s, "busy part of the time", m->busy_us / m->span_us, PREDICTED(p->busy_us / p->span_us));
    print_figure(&s, "steps", (double)m->n_steps, PREDICTED((double)p->n_steps));
    print_figure(&s, "rows computed", (double)m->n_rows, PREDICTED((double)p->n_rows));
    print_figure(&s, "prompt tokens found in the cache", (double)m->hit_tokens, PREDICTED((double)p->hit_tokens));
    print_figure(&s, "preemptions", (double)m->n_preemptions, PREDICTED((double)p->n_preemptions));
    print_figure(&s, "requests answered", m->times.n, PREDICTED(p->times.n));
#undef PREDICTED
}

/* What the simulation says of the same requests, on the engine's memory and limits. */
static quire_err predict(const bench_serving_options *o, const quire_info *info, const trace *t, serving_result *out, quire_error *err) {
    cost_model cost;
    serving_options server;
    compare_options c = o->server;
    c.prefix_cache = o->engine.prefix_cache;
    c.page_tokens = info->page_tokens;
    c.kv_tokens = (int64_t)info->n_pages * info->page_tokens;
    c.max_seqs = info->max_seqs;
    c.max_rows = info->max_batched_tokens;
    c.max_chunk = o->engine.prefill_chunk;
    c.max_model_len = info->max_model_len;
    c.step_target_us = o->engine.step_target_us;
    TRY(compare_server(&c, &cost, &server, err));
    return serving_run(t, &server, out, err);
}

static quire_err run_engine(const bench_serving_options *o, real_run *run, quire_error *err) {
    serving_result measured = {0}, predicted = {0};
    serving_options clock = {.speed = o->server.speed};
    char name[256], heading[640];
    run->r = &measured;
    quire_err e = run_open(run, &clock, err);
    if (e == QUIRE_OK && o->server.cost != NULL) {
        e = predict(o, run->c.info, run->t, &predicted, err);
    }
    if (e == QUIRE_OK) {
        name_trace(o, name, sizeof name);
        snprintf(heading, sizeof heading, "%s: %d requests, mean prompt %.1f, answer %.1f tokens, clock x %g\n%s, compute %s, KV %s, %s", name, (int)run->t->n_requests,
                 (double)run->t->n_prompt_tokens / run->t->n_requests, (double)run->t->n_output_tokens / run->t->n_requests, o->server.speed, run->c.info->model_name,
                 run->c.info->compute, run->c.info->kv_dtype, run->c.info->backend);
        print_figures(o, heading, &measured, o->server.cost != NULL ? &predicted : NULL);
        if (run->c.n_failed > 0) {
            e = err_set(err, run->c.failure.code != QUIRE_OK ? run->c.failure.code : QUIRE_INTERNAL, -1, "%d requests failed, the first: %s", (int)run->c.n_failed,
                        run->c.failure.message);
        }
    }
    serving_result_deinit(&measured);
    serving_result_deinit(&predicted);
    mem_free(run->sent);
    mem_free(run->ids);
    mem_free(run->text);
    return e;
}

static quire_err serve_really(const bench_serving_options *o, quire_error *err) {
    real_run run = {.o = o};
    trace t = {0};
    TRY(client_open(&o->engine, &run.c, err));
    quire_err e = make_trace(o, run.c.info->max_model_len, &t, err);
    run.t = &t;
    e = e == QUIRE_OK ? run_engine(o, &run, err) : e;
    client_close(&run.c);
    trace_deinit(&t);
    return e;
}

static quire_err simulate(const bench_serving_options *o, quire_error *err) {
    char name[256];
    trace t = {0};
    cost_model cost;
    serving_options server;
    compare_options c = o->server;
    c.all = true;
    c.json = o->json;
    TRY(compare_server(&c, &cost, &server, err));
    TRY(make_trace(o, server.max_model_len, &t, err));
    name_trace(o, name, sizeof name);
    quire_err e = compare_run(&c, &t, name, err);
    trace_deinit(&t);
    return e;
}

quire_err bench_serving_run(const bench_serving_options *o, quire_error *err) {
    return o->engine.model != NULL ? serve_really(o, err) : simulate(o, err);
}
