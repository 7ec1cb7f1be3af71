/* Static batches: what served before iteration-level scheduling. Requests wait until the
 * batch before theirs has ended; prompts are padded on the left to the longest, answers
 * run to the longest, and are given when it is done. */
#include <math.h>

#include "lab/sim/serving_state.h"

static bool fits_at_all(const serving_options *o, const trace_request *q) {
    int64_t n = (int64_t)q->n_prompt + serving_output(q);
    return n <= o->max_model_len && n <= o->kv_tokens;
}

/* Room that the batch takes with q in it, each member padded to the longest. */
static int64_t room_with(const serving_options *o, const serving_batch *b, const trace_request *q) {
    int32_t prompt = q->n_prompt > b->prompt ? q->n_prompt : b->prompt,
            output = serving_output(q) > b->output ? serving_output(q) : b->output;
    reserved_seq longest = {.n_prompt = prompt, .n_output = output, .n_now = prompt + output};
    return (b->n_taken + 1) * reservation_slots(o->reservation, &longest, o->max_model_len, o->page_tokens);
}

/* When a batch may have request i. Rounded in one place only: the first of a batch that
 * waits for it is there by then. */
static double seen_at(const trace *t, const serving_options *o, int32_t i) {
    return serving_arrival(t, o, i) + o->cost->request_us;
}

/* The next batch: who has arrived by now, in order, while places and memory last. */
static serving_batch gather(const trace *t, const serving_options *o, int32_t first, double now,
                            serving_result *r) {
    serving_batch b = {.first = first};
    for (int32_t i = first; i < t->n_requests && b.n_taken < o->max_seqs && seen_at(t, o, i) <= now; i++) {
        const trace_request *q = &t->requests[i];
        if (!fits_at_all(o, q)) {
            r->n_refused++;
            b.n++;
            continue;
        }
        int64_t room = room_with(o, &b, q);
        if (b.n_taken > 0 && room > o->kv_tokens) {
            break;
        }
        b.prompt = q->n_prompt > b.prompt ? q->n_prompt : b.prompt;
        b.output = serving_output(q) > b.output ? serving_output(q) : b.output;
        b.reserved = room;
        b.n++;
        b.n_taken++;
    }
    return b;
}

/* Adds a step to the sums; `made` tokens of the answers are there. */
static void note_step(const trace *t, const serving_options *o, const serving_batch *b, int32_t made,
                      double us, serving_result *r) {
    int64_t live = 0;
    for (int32_t i = b->first; i < b->first + b->n; i++) {
        const trace_request *q = &t->requests[i];
        int32_t of_answer = made < serving_output(q) ? made : serving_output(q);
        live += fits_at_all(o, q) ? q->n_prompt + of_answer : 0;
    }
    r->n_steps++;
    r->step_running += b->n_taken;
    r->step_live += live;
    r->step_reserved += b->reserved;
    r->busy_us += us;
    r->running_us += us * b->n_taken;
    r->live_us += us * (double)live;
    r->reserved_us += us * (double)b->reserved;
}

/* What a batch's first step computes, padding included, or, when `made` tokens of each
 * answer are there, one of those that follow. */
static step_work work_of(const trace *t, const serving_options *o, const serving_batch *b, int32_t made) {
    double n = b->n_taken, prompt = b->prompt;
    step_work w =
        made == 0 ? (step_work){.rows = n * prompt, .out = n, .prefill_pairs = n * prompt * (prompt + 1) / 2}
                  : (step_work){.rows = n, .out = n, .decode_pairs = n * (prompt + made)};
    if (!o->pads_unread) {
        return w;
    }
    w.prefill_pairs = w.decode_pairs = 0;
    for (int32_t i = b->first; i < b->first + b->n; i++) {
        double own = t->requests[i].n_prompt, pads = prompt - own, most = o->max_model_len;
        if (fits_at_all(o, &t->requests[i])) {
            w.prefill_pairs += made == 0 ? pads * (pads + 1) / 2 + own * (own + 1) / 2 : 0;
            w.decode_pairs += made > 0 ? fmin(own + made, most) : 0;
        }
    }
    return w;
}

/* Prefills and decodes a batch; *now becomes the time it ends. */
static quire_err run_batch(const trace *t, const serving_options *o, const serving_batch *b, double *now,
                           serving_result *r) {
    const serving_execution *x = o->execution;
    for (int32_t made = 0; made < b->output; made++) {
        step_work w = work_of(t, o, b, made);
        double us = x == NULL ? cost_of(o->cost, &w) : 0;
        if (x != NULL) {
            TRY(x->batch_step(x->context, b, made, &us));
        }
        note_step(t, o, b, made, us, r);
        serving_count_work(r, &w);
        *now += us;
    }
    return QUIRE_OK;
}

quire_err serving_static_run(const trace *t, const serving_options *o, serving_result *out) {
    double now = 0;
    for (int32_t next = 0; next < t->n_requests;) {
        now = fmax(now, seen_at(t, o, next));
        serving_batch b = gather(t, o, next, now, out);
        TRY(run_batch(t, o, &b, &now, out));
        for (int32_t i = b.first; i < b.first + b.n; i++) {
            if (fits_at_all(o, &t->requests[i])) {
                serving_note(out, &t->requests[i], serving_arrival(t, o, i), now, now);
            }
        }
        out->most_running = b.n_taken > out->most_running ? b.n_taken : out->most_running;
        next += b.n;
    }
    out->span_us = now;
    return QUIRE_OK;
}
