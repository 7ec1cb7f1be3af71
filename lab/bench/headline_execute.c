#include "lab/bench/headline_execute.h"

#include <math.h>

#include "base/err.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/output.h"
#include "engine/state.h"
#include "lab/bench/figures.h"
#include "lab/bench/lab.h"

typedef struct headline_execution {
    model_runner *b;
    const trace *t;
    int32_t *tokens;          /* prompts and answers of all requests, with room for a dead row's token */
    int64_t *offsets;         /* [n_requests] start of each request's tokens */
    int32_t n_pages;          /* memory for keys and values; padding's pages follow it */
    int32_t max_len, per_seq; /* tokens, pages of the longest sequence */
    int32_t *tables;          /* [2 max_seqs][per_seq] block tables of pieces, and of padding */
    int32_t *zeros;           /* [max_len] tokens of padding */
    runner_part *parts;       /* [max_seqs] of the pass being gathered */
    int32_t *out_requests;    /* [max_seqs] the request that gets the token of each output row */
    int32_t *out_at;          /* [max_seqs] and its position in the request's tokens */
    int32_t n_parts, n_out, n_rows;
    int64_t start_us;
} headline_execution;

int32_t headline_padding_pages(int32_t n_pages, int32_t max_len) {
    int32_t per_seq = (int32_t)kv_pages_for(max_len, HEADLINE_PAGE);
    return n_pages / per_seq * per_seq;
}

/* ---- passes ---- */

static int32_t *headline_execute_tokens_of(const headline_execution *x, int64_t request) {
    return x->tokens + x->offsets[request];
}

static quire_err flush(headline_execution *x) {
    if (x->n_parts == 0) {
        return QUIRE_OK;
    }
    TRY(model_runner_forward(x->b, x->parts, x->n_parts));
    for (int32_t i = 0; i < x->n_out; i++) {
        headline_execute_tokens_of(x, x->out_requests[i])[x->out_at[i]] = model_runner_greedy(x->b, i);
    }
    x->n_parts = x->n_out = x->n_rows = 0;
    return QUIRE_OK;
}

enum { NOBODY = -1 };

/* Computes rows first .. first + n of tokens in as many passes as needed. The last row's
 * token goes to `request`, position `at`. */
static quire_err add_rows(headline_execution *x, const int32_t *tokens, int32_t first, int32_t n,
                          const int32_t *pages, int32_t request, int32_t at) {
    while (n > 0) {
        if (x->n_rows == x->b->max_rows || x->n_parts == x->b->max_seqs) {
            TRY(flush(x));
        }
        int32_t room = x->b->max_rows - x->n_rows, rows = room < n ? room : n;
        bool wants = request != NOBODY && rows == n;
        x->parts[x->n_parts++] = (runner_part){
            .tokens = tokens, .first = first, .n_rows = rows, .pages = pages, .n_logits = wants};
        if (wants) {
            x->out_requests[x->n_out] = request;
            x->out_at[x->n_out++] = at;
        }
        x->n_rows += rows;
        first += rows;
        n -= rows;
    }
    return QUIRE_OK;
}

/* The block table of place i: consecutive pages from `first` on. */
static const int32_t *table_of(headline_execution *x, int32_t i, int64_t first) {
    int32_t *table = x->tables + (size_t)i * (size_t)x->per_seq;
    for (int32_t k = 0; k < x->per_seq; k++) {
        table[k] = (int32_t)first + k;
    }
    return table;
}

/* ---- hooks ---- */

static void headline_execute_begin(void *context) {
    headline_execution *x = context;
    x->start_us = figures_time_us(x->b->n_threads);
}

static double took_us(const headline_execution *x) {
    return (double)(figures_time_us(x->b->n_threads) - x->start_us);
}

static quire_err move(void *context, int64_t from, int64_t to, int32_t n_tokens) {
    headline_execution *x = context;
    for (int32_t i = 0; i < kv_pages_for(n_tokens, HEADLINE_PAGE); i++) {
        kv_copy_pair pair = {(int32_t)(from / HEADLINE_PAGE) + i, (int32_t)(to / HEADLINE_PAGE) + i};
        x->b->b->ops->kv_copy(x->b->b, &pair, 1);
    }
    return QUIRE_OK;
}

static void copy_shared(headline_execution *x, const kv_copies *copies) {
    for (int32_t i = 0; i < copies->n; i++) {
        kv_copy_pair pair = {copies->pairs[i].src.v, copies->pairs[i].dst.v};
        x->b->b->ops->kv_copy(x->b->b, &pair, 1);
    }
}

static quire_err headline_execute_step(void *context, const scheduler *s, const int64_t *pieces, double *us) {
    headline_execution *x = context;
    copy_shared(x, &s->copies);
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        const sched_task *t = s->tasks[i];
        int32_t n_rows = s->plan.items[i].n_rows, request = (int32_t)t->arrival;
        bool wants = t->kv.n_computed + n_rows == t->n_known;
        const int32_t *pages =
            pieces != NULL ? table_of(x, i, pieces[i] / HEADLINE_PAGE) : &t->kv.tables[0].pages->v;
        TRY(add_rows(x, headline_execute_tokens_of(x, request), t->kv.n_computed, n_rows, pages,
                     wants ? request : NOBODY, t->n_known));
    }
    TRY(flush(x));
    *us = took_us(x);
    return QUIRE_OK;
}

/* Computes the prompts of a batch, each padded on the left to the longest. */
static quire_err add_prompts(headline_execution *x, const serving_batch *b) {
    for (int32_t i = 0; i < b->n; i++) {
        int32_t request = b->first + i, n_prompt = x->t->requests[request].n_prompt;
        const int32_t *pads = table_of(x, x->b->max_seqs + i, x->n_pages + (int64_t)i * x->per_seq);
        TRY(add_rows(x, x->zeros, 0, b->prompt - n_prompt, pads, NOBODY, 0));
        TRY(add_rows(x, headline_execute_tokens_of(x, request), 0, n_prompt,
                     table_of(x, i, (int64_t)i * x->per_seq), request, n_prompt));
    }
    return QUIRE_OK;
}

/* Computes a token of each member. A dead row that would exceed its room stays put. */
static quire_err batch_step(void *context, const serving_batch *b, int32_t made, double *us) {
    headline_execution *x = context;
    if (b->n != b->n_taken) {
        return QUIRE_UNSUPPORTED;
    }
    headline_execute_begin(x);
    if (made == 0) {
        TRY(add_prompts(x, b));
    }
    for (int32_t i = 0; made > 0 && i < b->n; i++) {
        int32_t request = b->first + i, at = x->t->requests[request].n_prompt + made - 1;
        at = at < x->max_len - 1 ? at : x->max_len - 1;
        TRY(add_rows(x, headline_execute_tokens_of(x, request), at, 1,
                     table_of(x, i, (int64_t)i * x->per_seq), request, at + 1));
    }
    TRY(flush(x));
    *us = took_us(x);
    return QUIRE_OK;
}

/* ---- open and close ---- */

static quire_err open_tokens(headline_execution *x) {
    const trace *t = x->t;
    int64_t n = 0;
    x->offsets = mem_new((size_t)t->n_requests, sizeof *x->offsets);
    TRY(mem_check(x->offsets));
    for (int32_t i = 0; i < t->n_requests; i++) {
        x->offsets[i] = n;
        n += (t->requests[i].n_prompt + t->requests[i].n_output > x->max_len ? t->longest : x->max_len) + 1;
    }
    x->tokens = mem_new((size_t)n, sizeof *x->tokens);
    TRY(mem_check(x->tokens));
    for (int32_t i = 0; i < t->n_requests; i++) {
        int32_t *tokens = headline_execute_tokens_of(x, i);
        trace_tokens(t, &t->requests[i], tokens);
        for (int32_t k = 0; k < t->requests[i].n_prompt; k++) {
            tokens[k] = trace_token_of(tokens[k], x->b->desc->n_vocab);
        }
    }
    return QUIRE_OK;
}

static quire_err headline_execute_open_all(headline_execution *x) {
    size_t seqs = (size_t)x->b->max_seqs;
    TRY(open_tokens(x));
    x->tables = mem_new(2 * seqs * (size_t)x->per_seq, sizeof *x->tables);
    x->zeros = mem_new((size_t)x->max_len, sizeof *x->zeros);
    x->parts = mem_new(seqs, sizeof *x->parts);
    x->out_requests = mem_new(seqs, sizeof *x->out_requests);
    x->out_at = mem_new(seqs, sizeof *x->out_at);
    return x->tables && x->zeros && x->parts && x->out_requests && x->out_at ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static void headline_execution_close(headline_execution *x) {
    mem_free(x->tokens);
    mem_free(x->offsets);
    mem_free(x->tables);
    mem_free(x->zeros);
    mem_free(x->parts);
    mem_free(x->out_requests);
    mem_free(x->out_at);
}

static quire_err headline_execute_run(model_runner *b, const trace *t, const serving_options *o,
                                      serving_result *out, uint64_t *digest, quire_error *err) {
    headline_execution x = {.b = b,
                            .t = t,
                            .n_pages = (int32_t)(o->kv_tokens / HEADLINE_PAGE),
                            .max_len = o->max_model_len,
                            .per_seq = (int32_t)kv_pages_for(o->max_model_len, HEADLINE_PAGE)};
    const serving_execution hooks = {.context = &x,
                                     .begin = headline_execute_begin,
                                     .move = move,
                                     .step = headline_execute_step,
                                     .batch_step = batch_step};
    serving_options so = *o;
    so.execution = &hooks;
    quire_err e =
        err_set(err, headline_execute_open_all(&x), -1, "out of memory for %d requests", (int)t->n_requests);
    TRY_DONE(e, serving_run(t, &so, out, err));
    *digest = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        const trace_request *q = &t->requests[i];
        *digest += lab_digest(headline_execute_tokens_of(&x, i) + q->n_prompt, serving_output(q));
    }
done:
    headline_execution_close(&x);
    return e;
}

/* A request in progress: `user` of the engine's request. */
typedef struct client_request {
    const trace_request *q;
    int32_t *answer; /* [n_output] */
    int32_t n;
    double arrival, first;
} client_request;

typedef struct engine_run {
    model_runner *b;
    const trace *t;
    const serving_options *o;
    int64_t swap_bytes;
    lab_engine x;
    client_request *requests; /* [n_requests] */
    int32_t *answers;         /* [tokens] of all requests */
    int32_t *text;            /* [longest] */
    int32_t next, n_open;
    double now;
    serving_result *r;
    uint64_t digest;
} engine_run;

/* ---- opening ---- */

static quire_err open_requests(engine_run *c) {
    size_t n = (size_t)c->t->n_requests, at = 0;
    c->requests = mem_new(n, sizeof *c->requests);
    /* an answer has at least one token */
    c->answers = mem_new((size_t)c->t->n_output_tokens + n, sizeof *c->answers);
    c->text = mem_new((size_t)c->t->longest + 1, sizeof *c->text);
    TRY(serving_result_init(c->r, c->t->n_requests));
    if (!c->requests || !c->answers || !c->text) {
        TRY(QUIRE_NO_MEMORY);
    }
    for (size_t i = 0; i < n; i++) {
        const trace_request *q = &c->t->requests[i];
        c->requests[i] = (client_request){
            .q = q, .answer = c->answers + at, .arrival = serving_arrival(c->t, c->o, (int32_t)i)};
        at += (size_t)serving_output(q);
    }
    return QUIRE_OK;
}

static quire_err headline_engine_open_engine(engine_run *c, quire_error *err) {
    const serving_options *o = c->o;
    engine_options k = {.prefix_cache = o->cache == SERVING_CACHE_NONE   ? PREFIX_CACHE_NONE
                                        : o->cache == SERVING_CACHE_PAGE ? PREFIX_CACHE_PAGE
                                                                         : PREFIX_CACHE_TOKEN,
                        .eviction = o->eviction,
                        .page_tokens = o->page_tokens,
                        .n_pages = (int32_t)(o->kv_tokens / o->page_tokens),
                        .max_model_len = o->max_model_len,
                        .max_batched_tokens = o->max_rows,
                        .max_seqs = o->max_seqs,
                        .prefill_chunk = o->max_chunk,
                        .max_requests = c->t->n_requests,
                        .swap_bytes = c->swap_bytes,
                        .preempt = c->swap_bytes > 0 ? PREEMPT_SWAP : PREEMPT_RECOMPUTE,
                        .no_thread = true};
    return lab_engine_open(c->b->m, c->b->b, &c->b->layout, &k, &c->x, err);
}

/* ---- requests in, tokens out: off the clock, as other threads of a server do it ---- */

static quire_err headline_engine_submit(engine_run *c, client_request *a, quire_error *err) {
    const trace_request *q = a->q;
    if (q->n_prompt + serving_output(q) > c->o->max_model_len) {
        c->r->n_refused++;
        return QUIRE_OK;
    }
    int32_t *tokens = mem_new((size_t)q->n_prompt, sizeof *tokens);
    TRY(mem_check_for(tokens, "a prompt", err));
    trace_tokens(c->t, q, c->text);
    for (int32_t i = 0; i < q->n_prompt; i++) {
        tokens[i] = trace_token_of(c->text[i], c->b->desc->n_vocab);
    }
    engine_request r = {.tokens = tokens,
                        .n_tokens = q->n_prompt,
                        .namespace = &q->tenant,
                        .n_namespace = sizeof q->tenant,
                        .user = a};
    TRY(lab_engine_send(&c->x, &r, serving_output(q), err));
    c->n_open++;
    return QUIRE_OK;
}

static quire_err take_events(engine_run *c, quire_error *err) {
    engine_event ev;
    while (engine_out_pop(c->x.out, &ev)) {
        client_request *a = ev.user;
        if (ev.finish == FINISH_NONE) {
            a->first = a->n == 0 ? c->now : a->first;
            a->answer[a->n++] = ev.token;
            continue;
        }
        c->n_open--;
        if (ev.finish != FINISH_LENGTH || a->n != serving_output(a->q)) {
            return err_set(err, ev.error != QUIRE_OK ? ev.error : QUIRE_INTERNAL, -1,
                           "a request ended early: %s", quire_err_text(ev.error));
        }
        serving_note(c->r, a->q, a->arrival, a->first, c->now);
        c->digest += lab_digest(a->answer, a->n);
    }
    return QUIRE_OK;
}

/* ---- steps ---- */

/* Counts the sequences of the planned step, and their memory. */
static void count_step(const engine_run *c) {
    const scheduler *s = &c->x.e->sched;
    step_work w = {0};
    int64_t live = 0, reserved = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        const sched_task *t = s->tasks[i];
        double n = s->plan.items[i].n_rows;
        bool decodes = t->n_known - t->kv.n_computed == 1;
        *(decodes ? &w.decode_pairs : &w.prefill_pairs) += n * (t->kv.n_computed + (n + 1) / 2);
        w.rows += n;
        w.out += t->kv.n_computed + s->plan.items[i].n_rows == t->n_known;
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        live += s->running[i]->kv.tables[0].n_tokens;
        reserved += (int64_t)kv_seq_pages(&s->running[i]->kv) * c->o->page_tokens;
    }
    serving_count_step(c->r, s->n_running, live, reserved, 0);
    serving_count_work(c->r, &w);
}

/* Runs one round of the engine's thread (engine/team.c). */
static quire_err headline_engine_run_step(engine_run *c, quire_error *err) {
    const backend_ops *ops = c->b->b->ops;
    int32_t n_threads = c->b->n_threads;
    int64_t start = figures_time_us(n_threads);
    ops->enter(c->b->b);
    bool started = step_submit(c->x.e);
    int64_t us = figures_time_us(n_threads) - start;
    if (started) {
        count_step(c);
    }
    start = figures_time_us(n_threads);
    if (started) {
        step_collect(c->x.e);
    }
    stats_publish(c->x.e);
    out_wake_readers(c->x.e);
    ops->leave(c->b->b);
    us += figures_time_us(n_threads) - start;
    c->now += (double)us;
    c->r->busy_us += (double)us;
    return take_events(c, err);
}

static quire_err headline_engine_serve(engine_run *c, quire_error *err) {
    int32_t n = c->t->n_requests;
    while (c->next < n || c->n_open > 0) {
        if (c->n_open == 0) {
            c->now = fmax(c->now, c->requests[c->next].arrival);
        }
        while (c->next < n && c->requests[c->next].arrival <= c->now) {
            TRY(headline_engine_submit(c, &c->requests[c->next++], err));
        }
        if (c->n_open > 0) {
            TRY(headline_engine_run_step(c, err));
        }
    }
    c->r->span_us = c->now;
    c->r->hit_tokens = c->x.e->sched.counts.prompt_tokens_reused;
    c->r->n_preemptions = c->x.e->sched.counts.preemptions;
    return QUIRE_OK;
}

/* After a failure: computes open requests to their end, since events refer to them. */
static void drain(engine_run *c) {
    quire_error ignored;
    while (c->n_open > 0) {
        (void)headline_engine_run_step(c, &ignored);
    }
}

static void headline_engine_close_all(engine_run *c) {
    drain(c);
    lab_engine_close(&c->x);
    mem_free(c->requests);
    mem_free(c->answers);
    mem_free(c->text);
}

static quire_err headline_engine_run(model_runner *b, const trace *t, const serving_options *o,
                                     int64_t swap_bytes, serving_result *out, uint64_t *digest,
                                     quire_error *err) {
    serving_result r = {.n_requests = 0};
    engine_run c = {.b = b, .t = t, .o = o, .swap_bytes = swap_bytes, .r = &r};
    quire_err e = err_set(err, open_requests(&c), -1, "out of memory for %d requests", (int)t->n_requests);
    TRY_DONE(e, headline_engine_open_engine(&c, err));
    TRY_DONE(e, headline_engine_serve(&c, err));
done:
    headline_engine_close_all(&c);
    if (e != QUIRE_OK) {
        serving_result_deinit(&r);
        return e;
    }
    *digest = c.digest;
    *out = r;
    return QUIRE_OK;
}

quire_err headline_serve(model_runner *b, const trace *t, headline_server by, const serving_options *o,
                         serving_result *out, uint64_t *digest, quire_error *err) {
    return by.is_engine ? headline_engine_run(b, t, o, by.swap_bytes, out, digest, err)
                        : headline_execute_run(b, t, o, out, digest, err);
}

/* A static batch of n members has n x (longest prompt + longest answer - 1) rows, and n x
 * longest answer rows of logits. */
int64_t headline_padding_rows(const trace *t, const serving_result *r) {
    return r->n_rows - ((int64_t)r->work.out - t->n_requests) - t->n_prompt_tokens;
}

int64_t headline_dead_rows(const trace *t, const serving_result *r) {
    return (int64_t)r->work.out - t->n_output_tokens;
}
