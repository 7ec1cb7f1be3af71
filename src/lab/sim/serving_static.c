/* Static batches: what served before iteration-level scheduling. Requests wait until the batch before theirs has ended; prompts are padded
 * on the left to the longest, answers run to the longest, and are given when it is done. */
#include <math.h>

#include "lab/sim/serving.h"

typedef struct static_batch {
    int32_t first, n;       /* requests first .. first + n of the trace, but for the refused among them */
    int32_t n_taken;
    int32_t prompt, output; /* the longest */
    int64_t reserved;       /* tokens */
} static_batch;

static bool fits_at_all(const serving_options *o, const trace_request *q) {
    int64_t n = (int64_t)q->n_prompt + serving_output(q);
    return n <= o->max_model_len && n <= o->kv_tokens;
}

/* Room that the batch takes with q in it, each member padded to the longest. */
static int64_t room_with(const serving_options *o, const static_batch *b, const trace_request *q) {
    int32_t prompt = q->n_prompt > b->prompt ? q->n_prompt : b->prompt,
            output = serving_output(q) > b->output ? serving_output(q) : b->output;
    reserved_seq longest = {.n_prompt = prompt, .n_output = output, .n_now = prompt + output};
    return (b->n_taken + 1) * reservation_slots(o->reservation, &longest, o->max_model_len, o->page_tokens);
}

/* The next batch: who has arrived by now, in order, while places and memory last. */
static static_batch gather(const trace *t, const serving_options *o, int32_t first, double now, serving_result *r) {
    static_batch b = {.first = first};
    for (int32_t i = first; i < t->n_requests && b.n_taken < o->max_seqs && serving_arrival(t, o, i) <= now; i++) {
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
static void note_step(const trace *t, const serving_options *o, const static_batch *b, int32_t made, double us, serving_result *r) {
    double live = 0;
    for (int32_t i = b->first; i < b->first + b->n; i++) {
        const trace_request *q = &t->requests[i];
        live += fits_at_all(o, q) ? q->n_prompt + fmin(made, serving_output(q)) : 0;
    }
    r->n_steps++;
    r->busy_us += us;
    r->running_us += us * b->n_taken;
    r->live_us += us * live;
    r->reserved_us += us * (double)b->reserved;
}

/* Prefills and decodes a batch; the time it ends. */
static double run_batch(const trace *t, const serving_options *o, const static_batch *b, double now, serving_result *r) {
    double n = b->n_taken, prompt = b->prompt;
    for (int32_t made = 0; made < b->output; made++) {
        step_work w = {.rows = n, .out = n, .decode_pairs = n * (prompt + made)};
        if (made == 0) {
            w = (step_work){.rows = n * prompt, .out = n, .prefill_pairs = n * prompt * (prompt + 1) / 2};
        }
        double us = cost_of(o->cost, &w);
        note_step(t, o, b, made, us, r);
        r->n_rows += (int64_t)w.rows;
        now += us;
    }
    return now;
}

quire_err serving_static_run(const trace *t, const serving_options *o, serving_result *out) {
    double now = 0;
    for (int32_t next = 0; next < t->n_requests;) {
        now = fmax(now, serving_arrival(t, o, next) + o->cost->request_us);
        static_batch b = gather(t, o, next, now - o->cost->request_us, out);
        now = run_batch(t, o, &b, now, out);
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
