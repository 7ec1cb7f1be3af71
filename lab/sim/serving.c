#include "lab/sim/serving.h"

#include <math.h>

#include "core/kv_layout.h"
#include "lab/sim/serving_beyond.h"

enum { MAX_IDLE_STEPS = 1000 }; /* in a row without an item: the planner stands still */

int32_t serving_output(const trace_request *r) {
    return r->n_output > 0 ? r->n_output : 1;
}

double serving_arrival(const trace *t, const serving_options *o, int32_t i) {
    return (double)(t->requests[i].arrival_us - t->requests[0].arrival_us) / o->speed;
}

void serving_note(serving_result *r, const trace_request *q, double arrival, double first, double end) {
    int32_t n = serving_output(q), i = r->times.n++;
    r->times.first[i] = first - arrival;
    r->times.gap[i] = n > 1 ? (end - first) / (n - 1) : 0;
    r->times.per_token[i] = (end - arrival) / n;
    r->prompt_tokens += q->n_prompt;
    r->output_tokens += n;
}

void serving_count_work(serving_result *r, const step_work *w) {
    double part;
    int32_t k = cost_knot_before(w->rows, &part);
    r->steps_at[k] += 1 - part;
    r->steps_at[k + 1] += part;
    r->n_rows += (int64_t)w->rows;
    r->n_copied += (int64_t)w->copied;
    r->n_swapped += (int64_t)w->swapped;
    r->work.rows += w->rows;
    r->work.out += w->out;
    r->work.decode_pairs += w->decode_pairs;
    r->work.prefill_pairs += w->prefill_pairs;
    r->work.copied += w->copied;
    r->work.swapped += w->swapped;
}

void serving_result_deinit(serving_result *r) {
    mem_free(r->times.first);
    mem_free(r->times.gap);
    mem_free(r->times.per_token);
    *r = (serving_result){0};
}

/* ---- arrival ---- */

static bool fits_at_all(const serving *s, int64_t n_tokens) {
    int64_t pages = kv_pages_for(n_tokens, s->page_tokens);
    return n_tokens <= s->o->max_model_len &&
           (s->pieces ? n_tokens <= s->room.size : pages <= kv_pool_counts(s->kv.pool).n_pages);
}

static quire_err arrive(serving *s, int32_t number) {
    const trace_request *q = &s->t->requests[number];
    served *a = &s->seqs[number];
    int64_t n = (int64_t)q->n_prompt + serving_output(q);
    if (!fits_at_all(s, n)) {
        s->r->n_refused++;
        return QUIRE_OK;
    }
    *a = (served){.task = {.n_prompt = q->n_prompt,
                           .n_known = q->n_prompt,
                           .n_max = (int32_t)n,
                           .arrival = (uint64_t)number},
                  .arrival = serving_arrival(s->t, s->o, number)};
    sched_task *t = &a->task;
    if (!s->pieces) {
        TRY(kv_seq_init(&t->kv, 1, 0));
    }
    if (s->kv.index != NULL) {
        t->tokens = mem_new((size_t)n + 1, sizeof *t->tokens);
        TRY(t->tokens != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
        trace_tokens(s->t, q, t->tokens); /* an answer of none has a token of 0 */
        TRY(kv_seq_open(&s->kv, &t->kv, NULL, 0, &q->tenant, sizeof q->tenant, t->tokens, t->n_prompt));
    }
    scheduler_wait(&s->sched, t);
    return QUIRE_OK;
}

/* ---- what a step does ---- */

/* Rows that verify guesses share what the row before them reads of keys and values, as
 * those of a prompt do. */
static step_work work_of(const serving *s) {
    step_work w = {0};
    for (int32_t i = 0; i < s->sched.plan.n_items; i++) {
        const sched_task *t = s->sched.tasks[i];
        int32_t n_rows = s->sched.plan.items[i].n_rows, n_drafts = s->sched.plan.items[i].n_drafts;
        double n = n_rows, pairs = n * (t->kv.n_computed + (n + 1) / 2);
        bool decodes = t->n_known - t->kv.n_computed == 1;
        double alone = decodes ? t->kv.n_computed + 1 : 0;
        w.rows += n;
        w.out += t->kv.n_computed + n_rows - n_drafts == t->n_known ? 1 + n_drafts : 0;
        w.decode_pairs += alone;
        w.prefill_pairs += pairs - alone;
        w.copied += s->o->reservation == RESERVE_GROWING && !s->pieces ? t->kv.n_computed : 0;
    }
    w.copied += (double)s->moved;
    w.swapped = (double)s->swapped;
    return w;
}

static void note_step(serving *s, const step_work *w, double us) {
    serving_result *r = s->r;
    int64_t live = 0, reserved = 0;
    int32_t n_running = s->sched.n_running;
    for (int32_t i = 0; i < n_running; i++) {
        const sched_task *t = s->sched.running[i];
        live += s->pieces ? t->kv.n_computed : t->kv.tables[0].n_tokens;
        reserved += s->pieces ? served_of(t)->reserved : (int64_t)kv_seq_pages(&t->kv) * s->page_tokens;
    }
    r->n_steps++;
    r->step_running += n_running;
    r->step_live += live;
    r->step_reserved += reserved;
    serving_count_work(r, w);
    r->busy_us += us;
    r->running_us += us * n_running;
    r->live_us += us * (double)live;
    r->reserved_us += us * (double)reserved;
    r->most_running = n_running > r->most_running ? n_running : r->most_running;
}

/* Gives back what a request has. */
static void drop(serving *s, sched_task *t) {
    kv_seq_close(&s->kv, &t->kv);
    kv_seq_deinit(&t->kv);
    mem_free(t->tokens);
    t->tokens = NULL;
}

static void finish(serving *s, sched_task *t) {
    const served *a = served_of(t);
    serving_note(s->r, &s->t->requests[t->arrival], a->arrival, a->first, s->now);
    if (s->pieces) {
        first_fit_give(&s->room, (int32_t)t->arrival);
    }
    kv_seq_release(&s->kv, &t->kv, t->tokens, KV_KEEP);
    drop(s, t);
    scheduler_stop(&s->sched, t);
}

/* Commits an item's rows; the last known token gives the next, and each right guess one
 * more. */
static void collect(serving *s, int32_t item) {
    sched_task *t = s->sched.tasks[item];
    int32_t n_rows = s->sched.plan.items[item].n_rows, n_drafts = s->sched.plan.items[item].n_drafts;
    int32_t n_right = serving_accepted(s->o, t->arrival, t->n_known, n_drafts);
    kv_seq_advance(&t->kv, n_rows - n_drafts + n_right);
    if (n_drafts > n_right) {
        kv_seq_trim(&s->kv, &t->kv);
    }
    t->n_known += n_right;
    s->r->n_drafted += n_drafts;
    s->r->n_accepted += n_right;
    kv_seq_publish(&s->kv, &t->kv, t->tokens);
    if (t->kv.n_computed == t->n_known) {
        served_of(t)->first = t->n_known == t->n_prompt ? s->now : served_of(t)->first;
        t->n_known++;
        t->state = TASK_DECODE;
        if (t->n_known == t->n_max) {
            finish(s, t);
        }
    }
}

static quire_err check(const serving *s, quire_error *err) {
    if (s->pieces) {
        return QUIRE_OK;
    }
    const kv_table **tables = mem_new((size_t)s->sched.n_running + 1, sizeof *tables);
    if (tables == NULL) {
        return QUIRE_NO_MEMORY;
    }
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < s->sched.n_running; i++) {
        const sched_task *t = s->sched.running[i];
        tables[i] = t->kv.tables;
        if (tables[i]->n_tokens != t->kv.n_computed) {
            e = err_set(err, QUIRE_INTERNAL, -1, "request %d has computed %d tokens, its table holds %d",
                        (int)t->arrival, t->kv.n_computed, tables[i]->n_tokens);
        }
    }
    e = e == QUIRE_OK ? kv_cache_check(&s->kv, tables, s->sched.n_running, err) : e;
    mem_free(tables);
    return e;
}

static bool has_drafts(const serving *s) {
    bool any = false;
    for (int32_t i = 0; i < s->sched.plan.n_items; i++) {
        any = any || s->sched.plan.items[i].n_drafts > 0;
    }
    return any;
}

static quire_err execute(serving *s, const serving_execution *x, double *us) {
    for (int32_t i = 0; s->pieces && i < s->sched.plan.n_items; i++) {
        s->item_pieces[i] = served_of(s->sched.tasks[i])->piece;
    }
    return x->step(x->context, &s->sched, s->pieces ? s->item_pieces : NULL, us);
}

/* Plans a step and does it, at s->now, which moves on. false in *did: nothing could be
 * planned. */
static quire_err step(serving *s, bool *did, quire_error *err) {
    const serving_execution *x = s->o->execution;
    kv_cache_set_time(&s->kv, (int64_t)s->now);
    if (x != NULL) {
        x->begin(x->context);
    }
    TRY(serving_plan(s, did));
    if (!*did) {
        return QUIRE_OK;
    }
    if (s->o->on_plan != NULL) {
        s->o->on_plan(s->o->context, &s->sched);
    }
    const sched_plan *plan = &s->sched.plan;
    step_work w = work_of(s);
    double us = x == NULL ? cost_of(s->o->cost, &w) : 0,
           swap_us = x == NULL ? w.swapped * s->o->cost->swap_us : 0;
    if (x == NULL && has_drafts(s)) {
        us += s->o->draft_us;
    }
    if (x != NULL) {
        TRY(execute(s, x, &us));
    }
    note_step(s, &w, us);
    s->now += us;
    for (int32_t i = 0; i < plan->n_items; i++) {
        collect(s, i);
    }
    if ((int32_t)w.rows == plan->n_rows) { /* the step computed all that was planned */
        scheduler_note_us(&s->sched, us - swap_us);
    }
    return s->o->checks ? check(s, err) : QUIRE_OK;
}

static quire_err run(serving *s, quire_error *err) {
    int32_t n = s->t->n_requests, n_idle = 0;
    double delay = s->o->cost->request_us;
    const scheduler *q = &s->sched;
    while (s->next < n || q->n_running + q->n_waiting > 0) {
        if (q->n_running + q->n_waiting == 0) {
            s->now = fmax(s->now, serving_arrival(s->t, s->o, s->next) + delay);
        }
        while (s->next < n && serving_arrival(s->t, s->o, s->next) + delay <= s->now) {
            quire_err e = arrive(s, s->next++); /* counted first: close_all frees what it holds */
            TRY(e);
        }
        bool did = true;
        if (q->n_running + q->n_waiting > 0) {
            TRY(step(s, &did, err));
        }
        n_idle = did ? 0 : n_idle + 1;
        if (n_idle > MAX_IDLE_STEPS) {
            return err_set(err, QUIRE_INTERNAL, -1, "the planner stands still with %d running and %d waiting",
                           q->n_running, q->n_waiting);
        }
    }
    s->r->span_us = s->now;
    s->r->hit_tokens = q->counts.prompt_tokens_reused;
    s->r->n_preemptions = q->counts.preemptions;
    return QUIRE_OK;
}

/* ---- opening ---- */

static quire_err open_memory(serving *s) {
    const serving_options *o = s->o;
    s->pieces = o->reservation != RESERVE_PAGED && (o->reservation != RESERVE_GROWING || o->piece_tokens > 0);
    s->page_tokens = o->reservation == RESERVE_GROWING ? 1 : o->page_tokens;
    if (s->pieces) {
        return first_fit_open(o->kv_tokens, o->max_seqs + 1, &s->room);
    }
    int64_t n_pages = o->kv_tokens / s->page_tokens;
    kv_cache_options k = {.n_pages = n_pages < 1 << 30 ? (int32_t)n_pages : 1 << 30,
                          .page_tokens = s->page_tokens,
                          .n_groups = 1,
                          .no_index = o->cache == SERVING_CACHE_NONE || o->reservation != RESERVE_PAGED,
                          .max_namespaces = s->t->n_tenants,
                          .policy = o->eviction,
                          .seed = 1,
                          .granularity =
                              o->cache == SERVING_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN,
                          .mover = serving_mover()};
    TRY(kv_cache_open(&k, &s->kv));
    return serving_open_swap(s);
}

static quire_err open_all(serving *s) {
    s->seqs = mem_new((size_t)s->t->n_requests, sizeof *s->seqs);
    s->item_pieces = mem_new((size_t)s->o->max_seqs, sizeof *s->item_pieces);
    TRY(s->seqs != NULL && s->item_pieces != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
    TRY(open_memory(s));
    return serving_open_scheduler(s);
}

static void close_all(serving *s) {
    for (int32_t i = 0; s->seqs != NULL && i < s->next; i++) {
        sched_task *t = &s->seqs[i].task;
        kv_seq_release(&s->kv, &t->kv, t->tokens, KV_DROP);
        drop(s, t);
    }
    scheduler_close(&s->sched);
    kv_cache_close(&s->kv);
    first_fit_close(&s->room);
    mem_free(s->seqs);
    mem_free(s->item_pieces);
}

static quire_err check_options(const serving_options *o, quire_error *err) {
    if (o->page_tokens >= 1 && o->kv_tokens < o->page_tokens) {
        return err_set(err, QUIRE_INVALID, -1, "--kv-tokens %lld: must be at least %d, the tokens of a page",
                       (long long)o->kv_tokens, (int)o->page_tokens);
    }
    bool good = o->page_tokens >= 1 && o->max_model_len >= 1 && o->max_rows >= o->max_seqs &&
                o->max_seqs >= 1 && o->speed > 0 && isfinite(o->speed) && o->n_drafts >= 0 &&
                o->n_drafts <= SERVING_MAX_DRAFTS;
    good = good && (o->reservation == RESERVE_PAGED || (o->swap_tokens == 0 && o->n_drafts == 0));
    return good ? QUIRE_OK
                : err_set(err, QUIRE_INVALID, -1,
                          "a server with %lld tokens of memory, %d sequences and %d rows a step",
                          (long long)o->kv_tokens, (int)o->max_seqs, (int)o->max_rows);
}

quire_err serving_run(const trace *t, const serving_options *o, serving_result *out, quire_error *err) {
    serving_result r = {.n_requests = t->n_requests};
    serving s = {.t = t, .o = o, .r = &r};
    quire_error inner = {.message = ""};
    size_t n = (size_t)t->n_requests;
    TRY(check_options(o, err));
    r.times = (serving_times){mem_new(n, sizeof(double)), mem_new(n, sizeof(double)),
                              mem_new(n, sizeof(double)), 0};
    quire_err e = r.times.first && r.times.gap && r.times.per_token ? QUIRE_OK : QUIRE_NO_MEMORY;
    if (e == QUIRE_OK && o->batching == BATCH_STATIC) {
        e = serving_static_run(t, o, &r);
    } else if (e == QUIRE_OK) {
        e = open_all(&s);
        e = e == QUIRE_OK ? run(&s, &inner) : e;
        close_all(&s);
    }
    if (e == QUIRE_OK && r.times.n == 0) {
        e = err_set(&inner, QUIRE_INVALID, -1,
                    "not one request fits into %d tokens of length and %lld of memory; shrink the trace",
                    (int)o->max_model_len, (long long)o->kv_tokens);
    }
    if (e != QUIRE_OK) {
        serving_result_deinit(&r);
        return err_set(err, e, -1, "the simulation of %d requests failed: %s", (int)t->n_requests,
                       inner.message[0] ? inner.message : quire_err_text(e));
    }
    *out = r;
    return QUIRE_OK;
}
