#include "lab/sim/serving.h"

#include <math.h>

#include "base/rng.h"
#include "core/kv_layout.h"
#include "lab/sim/reservation.h"
#include "sched/scheduler.h"

/* ---- the state of a simulated server ---- */

/* A request from its arrival to its end. task.arrival is its number in the trace;
 * task.tokens is NULL without a cache, and task.kv has no tables with pieces. */
typedef struct served {
    sched_task task;
    /* number of requests that had ended when it was preempted because its piece could not
     * grow */
    int32_t n_ended;
    int64_t piece, reserved; /* first token of its piece, and the piece's size in tokens; 0 with pages */
    double arrival, first;
} served;

typedef struct serving {
    const trace *t;
    const serving_options *o;
    serving_result *r;
    scheduler sched;
    int32_t page_tokens;
    bool pieces;          /* contiguous keys and values */
    bool is_full;         /* a request found no piece in this step */
    kv_cache kv;          /* unused with pieces */
    first_fit room;       /* allocator of pieces */
    served *seqs;         /* [n_requests] */
    int64_t *item_pieces; /* [max_seqs] with pieces and an execution: first token of each item's piece */
    int32_t next;         /* number of the next request to arrive */
    double now;
    int64_t moved;   /* tokens copied in this step because pieces grew */
    int64_t swapped; /* tokens moved to or from host memory in this step */
} serving;

static inline served *served_of(const sched_task *t) {
    return (served *)(uintptr_t)t; /* a sched_task is a served's first member */
}

/* Features beyond pages and rows: host memory for preempted requests, as with
 * `--swap-space`, and drafts, as with `--speculative-config`, whose acceptance is
 * given. */

/* ---- swap space: kv counts its frames; there is no data to move ---- */

static kv_fence read_nothing(void *context, page_id page, void *host) {
    (void)context;
    (void)page;
    (void)host;
    return 0;
}

static kv_fence write_nothing(void *context, page_id page, const void *host) {
    (void)context;
    (void)page;
    (void)host;
    return 0;
}

static bool is_done(void *context, kv_fence fence) {
    (void)context;
    (void)fence;
    return true;
}

static const kv_mover moves_nothing = {
    .page_bytes = 1, .read = read_nothing, .write = write_nothing, .done = is_done};

/* Gives s->kv swap space of o->swap_tokens, but no more than all requests can use.
 * QUIRE_NO_MEMORY. */
static quire_err serving_open_swap(serving *s) {
    int64_t n = s->o->swap_tokens / s->page_tokens;
    int64_t most =
        (s->t->n_prompt_tokens + s->t->n_output_tokens) / s->page_tokens + 2 * (int64_t)s->t->n_requests;
    return n > 0 ? kv_cache_add_swap(&s->kv, n < most ? n : most) : QUIRE_OK;
}

/* Whether swapping out n_pages, which hold t's tokens from `from` on, costs less than
 * recomputing them. */
static bool swap_pays(const serving *s, const sched_task *t, int32_t from, int32_t n_pages) {
    const sched_limits *l = &s->sched.limits;
    sched_cost cost = step_cost_fit(&s->sched.step_cost);
    copy_cost copy = {.us = s->o->cost->swap_us * s->page_tokens, .pages = 1};
    preempt_case c = {.n_pages = n_pages,
                      .from = from,
                      .to = t->kv.n_computed,
                      .max_rows = l->max_rows < l->max_chunk ? l->max_rows : l->max_chunk};
    return n_pages > 0 && preempt_swaps(s->o->preempt, &c, &copy, &copy, &cost);
}

/* Called before t releases its pages. */
static bool serving_swap_out(void *context, sched_task *t) {
    serving *s = context;
    int32_t from;
    if (s->kv.swap.n_frames == 0) {
        return false;
    }
    kv_seq_swap_drop(&s->kv, &t->kv);
    int32_t n_pages = kv_seq_swap_pages(&s->kv, &t->kv, &from);
    if (swap_pays(s, t, from, n_pages)) {
        s->swapped += (int64_t)kv_seq_swap_out(&s->kv, &t->kv, from).n_pages * s->page_tokens;
    }
    return false;
}

/* Called after t was admitted. */
static void serving_swap_in(void *context, sched_task *t) {
    serving *s = context;
    if (t->kv.swap_frames != 0) {
        kv_swapped did = kv_seq_swap_in(&s->kv, &t->kv);
        scheduler_count_reuse(&s->sched, t, did.n_found);
        s->swapped += (int64_t)did.n_pages * s->page_tokens;
    }
}

/* ---- drafts ---- */

/* Drafts as many tokens as configured, up to those left after the one that the step gives
 * anyway. */
static void serving_describe(void *context, const sched_task *t, sched_seq *d) {
    const serving *s = context;
    int32_t n_left = t->n_max - t->n_known - 1, n = s->o->n_drafts;
    d->n_drafts = t->state != TASK_DECODE ? 0 : n < n_left ? n : n_left;
}

/* How many of n draft tokens after n_known tokens of a request are right; a deterministic
 * function of these and the acceptance. */
static int32_t serving_accepted(const serving_options *o, uint64_t request, int32_t n_known, int32_t n) {
    const uint32_t key[2] = {(uint32_t)request, (uint32_t)(request >> 32)};
    int32_t accepted = 0;
    for (; accepted < n; accepted++) {
        uint32_t words[4];
        const uint32_t counter[4] = {(uint32_t)n_known, (uint32_t)accepted, 0, 0};
        rng_philox(counter, key, words);
        if (!((double)rng_uniform(words[0]) < o->acceptance[accepted])) {
            break;
        }
    }
    return accepted;
}

static const sched_hooks SERVING_PAGES = {
    .describe = serving_describe, .preempt = serving_swap_out, .admitted = serving_swap_in};

/* Static batches, which preceded iteration-level scheduling. Requests wait until the
 * previous batch has ended; prompts are padded on the left to the longest, answers run to
 * the longest, and all are delivered when it is done. */

static bool batch_fits_at_all(const serving_options *o, const trace_request *q) {
    int64_t n = (int64_t)q->n_prompt + serving_output(q);
    return n <= o->max_model_len && n <= o->kv_tokens;
}

/* Room that the batch takes with q added, each member padded to the longest. */
static int64_t batch_room_with(const serving_options *o, const serving_batch *b, const trace_request *q) {
    int32_t prompt = q->n_prompt > b->prompt ? q->n_prompt : b->prompt,
            output = serving_output(q) > b->output ? serving_output(q) : b->output;
    reserved_seq longest = {.n_prompt = prompt, .n_output = output, .n_now = prompt + output};
    return (b->n_taken + 1) * reservation_slots(o->reservation, &longest, o->max_model_len, o->page_tokens);
}

/* The next batch: requests that have arrived, in order, while places and memory last. */
static serving_batch batch_gather(const trace *t, const serving_options *o, int32_t first, double now,
                                  serving_result *r) {
    serving_batch b = {.first = first};
    for (int32_t i = first; i < t->n_requests && b.n_taken < o->max_seqs && serving_arrival(t, o, i) <= now;
         i++) {
        const trace_request *q = &t->requests[i];
        if (!batch_fits_at_all(o, q)) {
            r->n_refused++;
            b.n++;
            continue;
        }
        int64_t room = batch_room_with(o, &b, q);
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

/* Adds a step to the sums, with `made` tokens of each answer present. */
static void batch_note_step(const trace *t, const serving_options *o, const serving_batch *b, int32_t made,
                            double us, serving_result *r) {
    int64_t live = 0;
    for (int32_t i = b->first; i < b->first + b->n; i++) {
        const trace_request *q = &t->requests[i];
        int32_t of_answer = made < serving_output(q) ? made : serving_output(q);
        live += batch_fits_at_all(o, q) ? q->n_prompt + of_answer : 0;
    }
    serving_count_step(r, b->n_taken, live, b->reserved, us);
}

/* Work of a batch's first step, including padding, or of a later step, with `made` tokens
 * of each answer present. */
static step_work batch_work_of(const trace *t, const serving_options *o, const serving_batch *b,
                               int32_t made) {
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
        if (batch_fits_at_all(o, &t->requests[i])) {
            w.prefill_pairs += made == 0 ? pads * (pads + 1) / 2 + own * (own + 1) / 2 : 0;
            w.decode_pairs += made > 0 ? fmin(own + made, most) : 0;
        }
    }
    return w;
}

/* Runs a batch, prefill and decodes; *now becomes the time at which it ends. */
static quire_err serving_run_batch(const trace *t, const serving_options *o, const serving_batch *b,
                                   double *now, serving_result *r) {
    const serving_execution *x = o->execution;
    for (int32_t made = 0; made < b->output; made++) {
        step_work w = batch_work_of(t, o, b, made);
        double us = x == NULL ? cost_of(o->cost, &w) : 0;
        if (x != NULL) {
            TRY(x->batch_step(x->context, b, made, &us));
        }
        batch_note_step(t, o, b, made, us, r);
        serving_count_work(r, &w);
        *now += us;
    }
    return QUIRE_OK;
}

static quire_err serving_static_run(const trace *t, const serving_options *o, serving_result *out) {
    double now = 0;
    for (int32_t next = 0; next < t->n_requests;) {
        now = fmax(now, serving_arrival(t, o, next));
        serving_batch b = batch_gather(t, o, next, now, out);
        TRY(serving_run_batch(t, o, &b, &now, out));
        for (int32_t i = b.first; i < b.first + b.n; i++) {
            if (batch_fits_at_all(o, &t->requests[i])) {
                serving_note(out, &t->requests[i], serving_arrival(t, o, i), now, now);
            }
        }
        next += b.n;
    }
    out->span_us = now;
    return QUIRE_OK;
}

/* A simulated server's side of the scheduler. Requests with pages go through step_plan as
 * in the engine; for those with pieces, the hooks decide what fits. */

enum { MOVING = -1 }; /* owner of a piece into which another one is being moved */

static int64_t rounded(const serving *s, int64_t n_tokens) {
    int64_t by = s->o->piece_tokens > 0 ? s->o->piece_tokens : 1;
    return (n_tokens + by - 1) / by * by;
}

/* Takes a piece for a request that has none. The first request that finds no room ends
 * the search, so nobody overtakes it. */
static bool take_piece(void *context, sched_task *t) {
    serving *s = context;
    served *a = served_of(t);
    /* it would find the others grown, and be preempted again */
    bool gave_way = s->o->reservation == RESERVE_GROWING && t->n_preempted > 0;
    if (gave_way && s->sched.n_running > 0 && s->r->times.n == a->n_ended) {
        s->is_full = true;
        return false;
    }
    reserved_seq q = {.n_prompt = t->n_prompt, .n_output = t->n_max - t->n_prompt, .n_now = t->n_known};
    int64_t n = rounded(s, reservation_slots(s->o->reservation, &q, s->o->max_model_len, s->page_tokens));
    n = n < s->room.size ? n : s->room.size;
    s->is_full = s->is_full || !first_fit_take(&s->room, (int32_t)t->arrival, n, &a->piece);
    a->reserved = s->is_full ? 0 : n;
    return !s->is_full;
}

static void describe_piece(void *context, const sched_task *t, sched_seq *d) {
    (void)context;
    (void)t;
    d->n_pages = INT32_MAX / 2; /* pieces take no pages */
}

static bool give_piece(void *context, sched_task *t) {
    serving *s = context;
    first_fit_give(&s->room, (int32_t)t->arrival);
    return false;
}

/* Moves t, whose piece is full, to a larger one for all its known tokens. If t runs alone
 * and there is no gap, it slides to the memory's start. *did false: no gap is large
 * enough. */
static quire_err grow_piece(serving *s, sched_task *t, bool *did) {
    served *a = served_of(t);
    int64_t first, n = rounded(s, t->n_known);
    *did = first_fit_take(&s->room, MOVING, n, &first);
    if (!*did && s->sched.n_running == 1) {
        first_fit_give(&s->room, (int32_t)t->arrival);
        *did = first_fit_take(&s->room, MOVING, n, &first);
    }
    if (!*did) {
        return QUIRE_OK;
    }
    if (first == a->piece) {
        first_fit_rename(&s->room, MOVING, (int32_t)t->arrival);
        a->reserved = n;
        return QUIRE_OK;
    }
    if (s->o->execution != NULL) {
        TRY(s->o->execution->move(s->o->execution->context, a->piece, first, t->kv.n_computed));
    }
    s->moved += t->kv.n_computed;
    first_fit_give(&s->room, (int32_t)t->arrival);
    first_fit_rename(&s->room, MOVING, (int32_t)t->arrival);
    a->piece = first;
    a->reserved = n;
    return QUIRE_OK;
}

/* Grows pieces for what each running request computes in the step, preempting the newest
 * if necessary. QUIRE_TOO_LARGE: the memory cannot hold a request alone. */
static quire_err grow_pieces(serving *s) {
    for (int32_t i = 0; i < s->sched.n_running;) {
        sched_task *t = s->sched.running[i];
        bool did = true;
        if (served_of(t)->reserved < t->n_known) {
            TRY(grow_piece(s, t, &did));
        }
        i += did;
        if (!did && s->sched.n_running == 1) {
            return QUIRE_TOO_LARGE;
        }
        if (!did) {
            sched_task *victim = s->sched.running[s->sched.n_running - 1];
            scheduler_preempt_group(&s->sched, victim, NULL);
            victim->kv.n_computed = 0;
            served_of(victim)->n_ended = s->r->times.n;
        }
    }
    return QUIRE_OK;
}

static const sched_hooks PIECES = {.is_ready = take_piece, .describe = describe_piece, .preempt = give_piece};

static quire_err serving_open_scheduler(serving *s) {
    const serving_options *o = s->o;
    scheduler_options k = {.limits = {.max_rows = o->max_rows,
                                      .max_out = o->max_seqs * (1 + o->n_drafts),
                                      .max_seqs = o->max_seqs,
                                      .max_chunk = o->max_chunk > 0 ? o->max_chunk : o->max_rows,
                                      .page_tokens = s->page_tokens,
                                      .max_preemptions = SCHED_MAX_PREEMPTIONS,
                                      .target_us = (double)o->step_target_us},
                           .policy = ADMISSION_FCFS,
                           .n_groups = 1,
                           .max_tasks = s->t->n_requests,
                           .max_tenants = 1,
                           .kv = s->pieces ? NULL : &s->kv,
                           .hooks = s->pieces ? &PIECES : &SERVING_PAGES,
                           .context = s};
    return scheduler_open(&k, &s->sched);
}

static quire_err serving_plan(serving *s, bool *did) {
    s->is_full = false;
    s->moved = s->swapped = 0;
    if (s->pieces && s->o->reservation == RESERVE_GROWING) {
        TRY(grow_pieces(s));
    }
    *did = step_plan(&s->sched, (int64_t)s->now);
    /* those that got a piece but were not admitted */
    for (int32_t i = 0; s->pieces && i < s->sched.n_candidates; i++) {
        if (s->sched.candidates[i]->state == TASK_WAITING) {
            (void)give_piece(s, s->sched.candidates[i]);
        }
    }
    return QUIRE_OK;
}

enum { MAX_IDLE_STEPS = 1000 }; /* planned in a row without items: the planner makes no progress */

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

void serving_count_step(serving_result *r, int32_t n_running, int64_t live, int64_t reserved, double us) {
    r->n_steps++;
    r->step_running += n_running;
    r->step_live += live;
    r->step_reserved += reserved;
    r->busy_us += us;
    r->running_us += us * n_running;
    r->live_us += us * (double)live;
    r->reserved_us += us * (double)reserved;
    r->most_running = n_running > r->most_running ? n_running : r->most_running;
}

quire_err serving_result_init(serving_result *r, int32_t n_requests) {
    size_t n = (size_t)n_requests, size = sizeof(double);
    *r = (serving_result){.n_requests = n_requests,
                          .times = {mem_new(n, size), mem_new(n, size), mem_new(n, size), 0}};
    return r->times.first && r->times.gap && r->times.per_token ? QUIRE_OK : QUIRE_NO_MEMORY;
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
        if (t->tokens == NULL) {
            TRY(QUIRE_NO_MEMORY);
        }
        trace_tokens(s->t, q, t->tokens); /* an empty answer gets one token, 0 */
        TRY(kv_seq_open(&s->kv, &t->kv, NULL, 0, &q->tenant, sizeof q->tenant, t->tokens, t->n_prompt));
    }
    scheduler_wait(&s->sched, t);
    return QUIRE_OK;
}

/* ---- what a step does ---- */

/* Rows that verify drafts share what the row before them reads of keys and values, like
 * rows of a prompt. */
static step_work serving_work_of(const serving *s) {
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
    serving_count_step(r, n_running, live, reserved, us);
    serving_count_work(r, w);
}

/* Releases everything that a request has. */
static void serving_drop(serving *s, sched_task *t) {
    kv_seq_close(&s->kv, &t->kv);
    kv_seq_deinit(&t->kv);
    mem_free(t->tokens);
    t->tokens = NULL;
}

static void serving_finish(serving *s, sched_task *t) {
    const served *a = served_of(t);
    serving_note(s->r, &s->t->requests[t->arrival], a->arrival, a->first, s->now);
    if (s->pieces) {
        first_fit_give(&s->room, (int32_t)t->arrival);
    }
    kv_seq_release(&s->kv, &t->kv, t->tokens, KV_KEEP);
    serving_drop(s, t);
    scheduler_stop(&s->sched, t);
}

/* Commits an item's rows; the last known token gives the next, and each accepted draft
 * one more. */
static void serving_collect(serving *s, int32_t item) {
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
            serving_finish(s, t);
        }
    }
}

static quire_err serving_check(const serving *s, quire_error *err) {
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
    TRY_DONE(e, kv_cache_check(&s->kv, tables, s->sched.n_running, err));
done:
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

/* Plans a step, runs it at s->now and advances s->now. *did false: nothing could be
 * planned. */
static quire_err serving_step(serving *s, bool *did, quire_error *err) {
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
    step_work w = serving_work_of(s);
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
        serving_collect(s, i);
    }
    if ((int32_t)w.rows == plan->n_rows) { /* the step computed everything that was planned */
        scheduler_note_us(&s->sched, us - swap_us);
    }
    return s->o->checks ? serving_check(s, err) : QUIRE_OK;
}

static quire_err sim_serving_run(serving *s, quire_error *err) {
    int32_t n = s->t->n_requests, n_idle = 0;
    const scheduler *q = &s->sched;
    while (s->next < n || q->n_running + q->n_waiting > 0) {
        if (q->n_running + q->n_waiting == 0) {
            s->now = fmax(s->now, serving_arrival(s->t, s->o, s->next));
        }
        while (s->next < n && serving_arrival(s->t, s->o, s->next) <= s->now) {
            /* incremented first, since serving_close_all frees what the request holds */
            quire_err e = arrive(s, s->next++);
            TRY(e);
        }
        bool did = true;
        if (q->n_running + q->n_waiting > 0) {
            TRY(serving_step(s, &did, err));
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
                          .mover = &moves_nothing};
    TRY(kv_cache_open(&k, &s->kv));
    return serving_open_swap(s);
}

static quire_err serving_open_all(serving *s) {
    s->seqs = mem_new((size_t)s->t->n_requests, sizeof *s->seqs);
    s->item_pieces = mem_new((size_t)s->o->max_seqs, sizeof *s->item_pieces);
    if (s->seqs == NULL || s->item_pieces == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    TRY(open_memory(s));
    return serving_open_scheduler(s);
}

static void serving_close_all(serving *s) {
    for (int32_t i = 0; s->seqs != NULL && i < s->next; i++) {
        sched_task *t = &s->seqs[i].task;
        kv_seq_release(&s->kv, &t->kv, t->tokens, KV_DROP);
        serving_drop(s, t);
    }
    scheduler_close(&s->sched);
    kv_cache_close(&s->kv);
    first_fit_close(&s->room);
    mem_free(s->seqs);
    mem_free(s->item_pieces);
}

static quire_err serving_check_options(const serving_options *o, quire_error *err) {
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
    serving_result r;
    serving s = {.t = t, .o = o, .r = &r};
    quire_error inner = {.message = ""};
    TRY(serving_check_options(o, err));
    quire_err e = serving_result_init(&r, t->n_requests);
    if (e == QUIRE_OK && o->batching == BATCH_STATIC) {
        e = serving_static_run(t, o, &r);
    } else if (e == QUIRE_OK) {
        e = serving_open_all(&s);
        if (e == QUIRE_OK) {
            e = sim_serving_run(&s, &inner);
        }
        serving_close_all(&s);
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
