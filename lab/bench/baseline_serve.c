#include "lab/bench/baseline_serve.h"

#include "base/mem.h"
#include "lab/bench/headline_execute.h"

enum { MOST_TOKENS = 1 << 16 }; /* of a prompt */

static int32_t baseline_serve_pages_of(int64_t slots) {
    return (int32_t)kv_pages_for(slots, BASELINE_PAGE);
}

int32_t baseline_extra_pages(const baseline_options *o) {
    return o->is_static ? headline_padding_pages(o->n_pages, o->max_len) : 0;
}

/* The requests as a trace in which all come at once, each with its own text. */
static quire_err baseline_serve_make_trace(const int32_t *prompts, const int32_t *outputs, int32_t n,
                                           trace *t) {
    *t = (trace){.n_requests = n, .n_tenants = 1};
    t->requests = mem_new((size_t)n, sizeof *t->requests);
    t->runs = mem_new((size_t)n, sizeof *t->runs);
    if (t->requests == NULL || t->runs == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    for (int32_t i = 0; i < n; i++) {
        t->runs[i] = (trace_run){.first = i * MOST_TOKENS, .n = prompts[i]};
        t->requests[i] =
            (trace_request){.first_run = i, .n_runs = 1, .n_prompt = prompts[i], .n_output = outputs[i]};
        t->longest = prompts[i] + outputs[i] > t->longest ? prompts[i] + outputs[i] : t->longest;
        t->n_prompt_tokens += prompts[i];
        t->n_output_tokens += outputs[i];
    }
    return QUIRE_OK;
}

/* What was served, counted. A static batch of n members has n x (longest prompt + longest
 * answer - 1) rows and n x longest answer rows of logits, from which its padding and dead
 * rows follow. */
static void baseline_serve_fill_result(const trace *t, const serving_result *s, const model_runner *b,
                                       bool is_static, baseline_result *r) {
    double first = 0;
    for (int32_t i = 0; i < s->times.n; i++) {
        first += s->times.first[i] / s->times.n;
    }
    r->n_rows = s->n_rows;
    r->n_steps = s->n_steps;
    r->n_dropped = s->n_preemptions;
    r->copied_bytes = s->n_copied * kv_layout_token_bytes(&b->layout);
    r->most_at_once = s->most_running;
    r->used = (double)s->step_live / (double)s->step_reserved;
    r->seconds = s->span_us * 1e-6;
    r->first_ms = first * 1e-3;
    if (is_static) {
        r->n_dead = (int64_t)s->work.out - t->n_output_tokens;
        r->n_padding = s->n_rows - ((int64_t)s->work.out - t->n_requests) - t->n_prompt_tokens;
    }
}

static quire_err serve_trace(model_runner *b, const baseline_options *o, const trace *t, baseline_result *r,
                             quire_error *err) {
    static const cost_model nothing = {.n_points = 2, .rows = {0, 1}};
    serving_options so = {.cost = &nothing,
                          .batching = o->is_static ? BATCH_STATIC : BATCH_ITERATION,
                          .reservation = o->reservation,
                          .kv_tokens = (int64_t)o->n_pages * BASELINE_PAGE,
                          .pads_unread = true,
                          .piece_tokens = BASELINE_PAGE,
                          .page_tokens = BASELINE_PAGE,
                          .max_model_len = baseline_serve_pages_of(o->max_len) * BASELINE_PAGE,
                          .max_rows = b->max_rows,
                          .max_seqs = o->max_seqs,
                          .speed = 1,
                          .end_us = o->end_us};
    serving_result s = {0};
    if (o->is_static && o->n_pages < baseline_serve_pages_of(o->max_len)) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "a sequence of %d tokens does not fit into %d pages",
                       (int)o->max_len, (int)o->n_pages);
    }
    if (o->reservation == RESERVE_PAGED) {
        TRY(headline_engine_run(b, t, &so, 0, &s, &r->digest, err));
    } else {
        TRY(headline_execute_run(b, t, o->n_pages, &so, &s, &r->digest, err));
    }
    baseline_serve_fill_result(t, &s, b, o->is_static, r);
    int32_t n_refused = s.n_refused;
    serving_result_deinit(&s);
    return n_refused == 0
               ? QUIRE_OK
               : err_set(err, QUIRE_TOO_LARGE, -1, "%d requests do not fit into %d tokens or %d pages",
                         (int)n_refused, (int)o->max_len, (int)o->n_pages);
}

quire_err baseline_serve(model_runner *b, const baseline_options *o, const int32_t *prompts,
                         const int32_t *outputs, int32_t n, baseline_result *out, quire_error *err) {
    trace t;
    *out = (baseline_result){0};
    quire_err e = baseline_serve_make_trace(prompts, outputs, n, &t);
    e = e == QUIRE_OK ? serve_trace(b, o, &t, out, err)
                      : err_set(err, e, -1, "out of memory for %d requests", (int)n);
    trace_deinit(&t);
    return e;
}
