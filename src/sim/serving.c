#include "sim/serving.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "core/kv_layout.h"
#include "engine/pace.h"
#include "kv/check.h"
#include "sim/first_fit.h"

/* As the engine has them: src/engine/ready.c, src/engine/engine.c. */
enum { MAX_ADMIT = 16, MAX_LOOKED_AT = 64, MAX_PREEMPTIONS = 8 };
enum { MAX_IDLE_STEPS = 1000 }; /* in a row without an item: the planner stands still */

/* A request from its arrival to its end. */
typedef struct seq {
    int32_t number;  /* in the trace; the order of arrival */
    int32_t *tokens; /* [n_most], where there is a cache */
    kv_table table;
    kv_path path;
    int32_t n_prompt, n_most, n_known, n_computed, n_preempted, n_admitted, n_reused;
    int64_t reserved;   /* tokens that its piece holds; 0 with pages */
    int32_t held_for;   /* request that computes its tokens up to held_until, 0: nobody */
    int32_t held_until;
    double arrival, first;
} seq;

typedef struct serving {
    const trace *t;
    const serving_options *o;
    serving_result *r;
    sched_limits limits;
    pace pace;
    bool pieces;     /* keys and values in one piece each */
    kv_pool *pool;   /* NULL with pieces */
    kv_index *ix;    /* NULL without a cache */
    first_fit room;  /* of pieces */
    kv_copies copies;
    seq *seqs;       /* [n_requests] */
    int32_t *running, *waiting, n_running, n_waiting, next; /* numbers, oldest first; the next to arrive */
    int32_t ready[MAX_ADMIT];
    sched_seq *running_view, waiting_view[MAX_ADMIT];
    sched_plan plan;
    double now;
} serving;

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

void serving_result_deinit(serving_result *r) {
    mem_free(r->times.first);
    mem_free(r->times.gap);
    mem_free(r->times.per_token);
    *r = (serving_result){0};
}

/* ---- lists ---- */

static void insert(int32_t *list, int32_t *n, int32_t value) {
    int32_t at = (*n)++;
    for (; at > 0 && list[at - 1] > value; at--) {
        list[at] = list[at - 1];
    }
    list[at] = value;
}

static void take_out(int32_t *list, int32_t *n, int32_t value) {
    int32_t at = 0;
    while (list[at] != value) {
        at++;
    }
    memmove(list + at, list + at + 1, (size_t)(*n - at - 1) * sizeof *list);
    *n -= 1;
}

/* ---- arrival ---- */

static bool fits_at_all(const serving *s, int64_t n_tokens) {
    int64_t pages = kv_pages_for(n_tokens, s->limits.page_tokens);
    return n_tokens <= s->o->max_model_len && (s->pieces ? n_tokens <= s->room.size : pages <= kv_pool_counts(s->pool).n_pages);
}

static quire_err arrive(serving *s, int32_t number) {
    const trace_request *q = &s->t->requests[number];
    seq *a = &s->seqs[number];
    int64_t n = (int64_t)q->n_prompt + serving_output(q);
    if (!fits_at_all(s, n)) {
        s->r->n_refused++;
        return QUIRE_OK;
    }
    *a = (seq){.number = number, .n_prompt = q->n_prompt, .n_known = q->n_prompt, .n_most = (int32_t)n, .arrival = serving_arrival(s->t, s->o, number)};
    if (s->ix != NULL) {
        a->tokens = mem_new((size_t)n + 1, sizeof *a->tokens);
        TRY(a->tokens != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
        trace_tokens(s->t, q, a->tokens); /* an answer of none has a token of 0 */
        TRY(kv_index_enter(s->ix, &q->tenant, sizeof q->tenant, &a->path));
    }
    insert(s->waiting, &s->n_waiting, number);
    return QUIRE_OK;
}

/* ---- holds, as src/engine/hold.c has them: who waits for pages that another computes ---- */

static bool hold_stands(const serving *s, const seq *a) {
    bool runs = false;
    for (int32_t i = 0; i < s->n_running && a->held_until > 0; i++) {
        runs |= s->running[i] == a->held_for;
    }
    return runs && s->seqs[a->held_for].n_computed < a->held_until;
}

/* Up to which token a, which finds n_cached now, could take pages from other; 0: nothing worth a wait. */
static int32_t worth_waiting(const serving *s, const seq *a, int32_t n_cached, const seq *other, int32_t n_computed) {
    int32_t size = s->limits.page_tokens, n = other->n_known < a->n_known - 1 ? other->n_known : a->n_known - 1;
    n -= n % size;
    if (other->path.space != a->path.space || other->number > a->number || n - n_cached < size || n_computed - n_computed % size > n_cached ||
        memcmp(a->tokens, other->tokens, (size_t)(n_cached + size) * sizeof *a->tokens) != 0) {
        return 0;
    }
    int32_t at = n_cached + size;
    while (at < n && a->tokens[at] == other->tokens[at]) {
        at++;
    }
    return at - at % size;
}

static void find_hold(serving *s, int32_t i) {
    seq *a = &s->seqs[s->ready[i]];
    sched_seq *view = &s->waiting_view[i];
    a->held_until = 0;
    for (int32_t k = 0; s->ix != NULL && k < s->n_running + i; k++) {
        bool runs = k < s->n_running;
        const sched_seq *other = runs ? &s->running_view[k] : &s->waiting_view[k - s->n_running];
        int32_t number = runs ? s->running[k] : s->ready[k - s->n_running];
        int32_t until = other->held ? 0 : worth_waiting(s, a, view->n_computed, &s->seqs[number], other->n_computed);
        if (until > a->held_until) {
            a->held_until = until;
            a->held_for = number;
            view->held = true;
            view->waits_for = k;
        }
    }
}

/* ---- planning ---- */

static sched_seq describe(const serving *s, const seq *a) {
    return (sched_seq){.n_known = a->n_known,
                       .n_computed = a->n_computed,
                       .n_pages = s->pieces ? INT32_MAX / 2 : a->table.n_pages, /* of its piece nothing can lack */
                       .n_groups = 1,
                       .n_most = a->n_most,
                       .n_preempted = a->n_preempted};
}

/* Room in one piece for a, if it has none yet. */
static bool take_piece(serving *s, seq *a) {
    reserved_seq q = {.n_prompt = a->n_prompt, .n_output = a->n_most - a->n_prompt, .n_now = a->n_most};
    int64_t n = reservation_slots(s->o->reservation, &q, s->o->max_model_len, s->limits.page_tokens);
    n = n < s->room.size ? n : s->room.size;
    a->reserved = first_fit_take(&s->room, a->number, n) ? n : 0;
    return a->reserved > 0;
}

/* The oldest waiting that a plan may admit, into s->ready. With pieces: those that got one, until one gets none. */
static int32_t find_ready(serving *s) {
    int32_t n = 0, places = s->limits.max_seqs - s->n_running, most = places < MAX_ADMIT ? places : MAX_ADMIT;
    for (int32_t i = 0, looked_at = 0; i < s->n_waiting && n < most && looked_at < MAX_LOOKED_AT; i++) {
        seq *a = &s->seqs[s->waiting[i]];
        if (hold_stands(s, a)) {
            continue;
        }
        looked_at++;
        if (s->pieces && !take_piece(s, a)) {
            break;
        }
        s->ready[n++] = s->waiting[i];
    }
    return n;
}

static void admit(serving *s, seq *a) {
    a->n_admitted++;
    a->n_reused = 0;
    if (s->ix != NULL) {
        int32_t n;
        if (kv_index_match(s->ix, &a->path, a->tokens, a->n_known - 1, &a->table, &n) == QUIRE_OK) {
            a->n_computed = a->n_reused = n;
        }
        s->r->hit_tokens += a->n_admitted == 1 ? n : 0;
    }
    take_out(s->waiting, &s->n_waiting, a->number);
    insert(s->running, &s->n_running, a->number);
}

static void release(serving *s, seq *a) {
    if (s->ix != NULL) {
        (void)kv_index_publish(s->ix, &a->path, a->tokens, a->n_computed, &a->table, KV_PUBLISH_TAIL);
    }
    if (s->pieces) {
        first_fit_give(&s->room, a->number);
    } else {
        kv_table_clear(s->pool, &a->table);
    }
    if (s->ix != NULL) {
        kv_index_truncate(s->ix, &a->path, 0);
    }
    a->n_computed = 0;
}

static void preempt(serving *s, int32_t number) {
    seq *a = &s->seqs[number];
    release(s, a);
    a->n_preempted++;
    s->r->n_preemptions++;
    insert(s->waiting, &s->n_waiting, number);
}

/* Items name requests from now on; who is admitted or preempted changes lists. */
static void apply_plan(serving *s, int32_t n_ready) {
    int32_t n_before = s->n_running, kept = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        int32_t *k = &s->plan.items[i].seq;
        *k = *k < n_before ? s->running[*k] : s->ready[*k - n_before];
    }
    for (int32_t i = 0; i < n_before; i++) {
        if (s->plan.fates[i] == SCHED_PREEMPTED) {
            preempt(s, s->running[i]);
        } else {
            s->running[kept++] = s->running[i];
        }
    }
    s->n_running = kept;
    for (int32_t i = s->plan.n_items - s->plan.n_admitted; i < s->plan.n_items; i++) {
        admit(s, &s->seqs[s->plan.items[i].seq]);
        s->seqs[s->plan.items[i].seq].held_until = 0;
    }
    for (int32_t i = 0; s->pieces && i < n_ready; i++) { /* who got a piece and was not admitted */
        if (s->seqs[s->ready[i]].n_admitted == 0) {
            first_fit_give(&s->room, s->ready[i]);
        }
    }
}

static void plan(serving *s) {
    int32_t n_free = INT32_MAX / 2, n_ready = find_ready(s);
    for (int32_t i = 0; i < s->n_running; i++) {
        s->running_view[i] = describe(s, &s->seqs[s->running[i]]);
    }
    for (int32_t i = 0; i < n_ready; i++) {
        seq *a = &s->seqs[s->ready[i]];
        sched_seq *view = &s->waiting_view[i];
        *view = describe(s, a);
        if (s->ix != NULL) {
            view->n_computed = kv_index_peek_held(s->ix, &a->path, a->tokens, a->n_known - 1, &view->n_pages);
        }
        find_hold(s, i);
    }
    if (!s->pieces) {
        kv_counts c = kv_pool_counts(s->pool);
        n_free = c.n_free + c.n_cached;
    }
    s->limits.cost = pace_cost(&s->pace);
    sched_make_plan(&s->limits, s->running_view, s->n_running, s->waiting_view, n_ready, n_free, &s->plan);
    apply_plan(s, n_ready);
}

/* ---- pages ---- */

static int32_t pages_needed(const serving *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        n += kv_table_needs(s->pool, &s->seqs[s->plan.items[i].seq].table, s->plan.items[i].n_rows, s->limits.page_tokens);
    }
    return n;
}

static void make_free(serving *s) {
    int32_t n = pages_needed(s);
    if (s->ix != NULL && kv_pool_counts(s->pool).n_free < n) {
        (void)kv_index_evict(s->ix, n);
    }
}

/* a gives back the shared page inside which it was to go on. */
static bool drop_tail(serving *s, seq *a) {
    int32_t keep = a->n_computed - a->n_computed % s->limits.page_tokens;
    if (s->ix == NULL || keep == a->n_computed || a->n_computed != a->n_reused) {
        return false;
    }
    kv_table_truncate(s->pool, &a->table, keep, s->limits.page_tokens);
    kv_index_truncate(s->ix, &a->path, keep);
    s->r->hit_tokens -= a->n_admitted == 1 ? a->n_computed - keep : 0;
    a->n_computed = a->n_reused = keep;
    return true;
}

/* Pages for every item; one that finds none is left out, and planned again next step. */
static quire_err reserve(serving *s) {
    int32_t kept = 0;
    if (s->pieces) {
        return QUIRE_OK;
    }
    make_free(s);
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        sched_item item = s->plan.items[i];
        seq *a = &s->seqs[item.seq];
        s->copies.n = 0;
        quire_err e = kv_table_append(s->pool, &a->table, item.n_rows, s->limits.page_tokens, &s->copies);
        if (e == QUIRE_NO_ROOM && drop_tail(s, a)) {
            make_free(s);
            e = kv_table_append(s->pool, &a->table, item.n_rows, s->limits.page_tokens, &s->copies);
        }
        if (e == QUIRE_OK) {
            s->plan.items[kept++] = item;
        } else if (e != QUIRE_NO_ROOM) {
            return e;
        }
    }
    s->plan.n_items = kept;
    return QUIRE_OK;
}

/* ---- what a step does ---- */

static step_work work_of(const serving *s) {
    step_work w = {0};
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        const seq *a = &s->seqs[s->plan.items[i].seq];
        double n = s->plan.items[i].n_rows, pairs = n * (a->n_computed + (n + 1) / 2);
        bool decodes = a->n_known - a->n_computed == 1;
        w.rows += n;
        w.out += a->n_computed + s->plan.items[i].n_rows == a->n_known;
        *(decodes ? &w.decode_pairs : &w.prefill_pairs) += pairs;
        w.copied += s->o->reservation == RESERVE_GROWING ? a->n_computed : 0;
    }
    return w;
}

static void note_step(serving *s, const step_work *w, double us) {
    serving_result *r = s->r;
    double live = 0, reserved = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        const seq *a = &s->seqs[s->running[i]];
        live += s->pieces ? a->n_computed : a->table.n_tokens;
        reserved += s->pieces ? (double)a->reserved : (double)a->table.n_pages * s->limits.page_tokens;
    }
    r->n_steps++;
    r->n_rows += (int64_t)w->rows;
    r->busy_us += us;
    r->running_us += us * s->n_running;
    r->live_us += us * live;
    r->reserved_us += us * reserved;
    r->most_running = s->n_running > r->most_running ? s->n_running : r->most_running;
}

static void finish(serving *s, seq *a) {
    serving_note(s->r, &s->t->requests[a->number], a->arrival, a->first, s->now);
    release(s, a);
    if (s->ix != NULL) {
        kv_index_leave(s->ix, &a->path);
    }
    kv_table_deinit(s->pool, &a->table);
    mem_free(a->tokens);
    a->tokens = NULL;
    take_out(s->running, &s->n_running, a->number);
}

/* Commits an item's rows; the last known token gives the next. */
static void collect(serving *s, const sched_item *item) {
    seq *a = &s->seqs[item->seq];
    a->n_computed += item->n_rows;
    if (s->ix != NULL) {
        (void)kv_index_publish(s->ix, &a->path, a->tokens, a->n_computed, &a->table, KV_PUBLISH_PAGES);
    }
    if (a->n_computed == a->n_known) {
        a->first = a->n_known == a->n_prompt ? s->now : a->first;
        a->n_known++;
        if (a->n_known == a->n_most) {
            finish(s, a);
        }
    }
}

static quire_err check(const serving *s, quire_error *err) {
    if (s->pieces) {
        return QUIRE_OK;
    }
    const kv_table **tables = mem_new((size_t)s->n_running + 1, sizeof *tables);
    if (tables == NULL) {
        return QUIRE_NO_MEMORY;
    }
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < s->n_running; i++) {
        const seq *a = &s->seqs[s->running[i]];
        tables[i] = &a->table;
        if (a->table.n_tokens != a->n_computed) {
            e = err_set(err, QUIRE_INTERNAL, -1, "request %d has computed %d tokens, its table holds %d", a->number, a->n_computed, a->table.n_tokens);
        }
    }
    e = e == QUIRE_OK ? kv_check(s->pool, tables, s->n_running, NULL, 0, err) : e;
    mem_free(tables);
    return e == QUIRE_OK && s->ix != NULL ? kv_index_check(s->ix, err) : e;
}

/* Plans a step and does it, at s->now, which moves on. false in *did: nothing could be planned. */
static quire_err step(serving *s, bool *did, quire_error *err) {
    if (s->ix != NULL) {
        kv_index_set_time(s->ix, (int64_t)s->now);
    }
    plan(s);
    int32_t n_planned = s->plan.n_items;
    TRY(reserve(s));
    *did = s->plan.n_items > 0;
    if (!*did) {
        return QUIRE_OK;
    }
    step_work w = work_of(s);
    double us = cost_of(s->o->cost, &w);
    note_step(s, &w, us);
    s->now += us;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        collect(s, &s->plan.items[i]);
    }
    if (s->plan.n_items == n_planned) {
        pace_note(&s->pace, s->plan.n_rows, s->plan.n_pairs, us);
    }
    return s->o->checks ? check(s, err) : QUIRE_OK;
}

static quire_err run(serving *s, quire_error *err) {
    int32_t n = s->t->n_requests, n_idle = 0;
    double delay = s->o->cost->request_us;
    while (s->next < n || s->n_running + s->n_waiting > 0) {
        if (s->n_running + s->n_waiting == 0) {
            s->now = fmax(s->now, serving_arrival(s->t, s->o, s->next) + delay);
        }
        while (s->next < n && serving_arrival(s->t, s->o, s->next) + delay <= s->now) {
            TRY(arrive(s, s->next));
            s->next++;
        }
        bool did = true;
        if (s->n_running + s->n_waiting > 0) {
            TRY(step(s, &did, err));
        }
        n_idle = did ? 0 : n_idle + 1;
        if (n_idle > MAX_IDLE_STEPS) {
            return err_set(err, QUIRE_INTERNAL, -1, "the planner stands still with %d running and %d waiting", s->n_running, s->n_waiting);
        }
    }
    s->r->span_us = s->now;
    return QUIRE_OK;
}

/* ---- opening ---- */

static quire_err open_memory(serving *s) {
    const serving_options *o = s->o;
    s->pieces = o->reservation != RESERVE_PAGED && o->reservation != RESERVE_GROWING;
    s->limits.page_tokens = o->reservation == RESERVE_GROWING ? 1 : o->page_tokens;
    if (s->pieces) {
        return first_fit_open(o->kv_tokens, o->max_seqs, &s->room);
    }
    int64_t n_pages = o->kv_tokens / s->limits.page_tokens;
    TRY(kv_pool_open(n_pages < 1 << 30 ? (int32_t)n_pages : 1 << 30, &s->pool));
    if (o->cache == SERVING_CACHE_NONE || o->reservation != RESERVE_PAGED) {
        return QUIRE_OK;
    }
    kv_index_options io = {.page_tokens = o->page_tokens,
                           .n_groups = 1,
                           .max_spaces = s->t->n_tenants,
                           .policy = o->eviction,
                           .seed = 1,
                           .granularity = o->cache == SERVING_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN};
    return kv_index_open(s->pool, &io, &s->ix);
}

static quire_err open_planner(serving *s) {
    const serving_options *o = s->o;
    size_t n = (size_t)s->t->n_requests, seats = (size_t)o->max_seqs;
    s->limits = (sched_limits){.max_rows = o->max_rows,
                               .max_out = o->max_seqs,
                               .max_seqs = o->max_seqs,
                               .max_chunk = o->max_chunk > 0 ? o->max_chunk : o->max_rows,
                               .max_preemptions = MAX_PREEMPTIONS,
                               .target_us = (double)o->step_target_us};
    s->seqs = mem_new(n, sizeof *s->seqs);
    s->running = mem_new(seats + MAX_ADMIT, sizeof *s->running);
    s->waiting = mem_new(n, sizeof *s->waiting);
    s->running_view = mem_new(seats, sizeof *s->running_view);
    s->plan.items = mem_new(seats, sizeof *s->plan.items);
    s->plan.fates = mem_new(seats, sizeof *s->plan.fates);
    s->copies.cap = 1;
    s->copies.pairs = mem_new(1, sizeof *s->copies.pairs);
    bool good = s->seqs && s->running && s->waiting && s->running_view && s->plan.items && s->plan.fates && s->copies.pairs;
    return good ? open_memory(s) : QUIRE_NO_MEMORY;
}

static void close_all(serving *s) {
    for (int32_t i = 0; s->seqs != NULL && s->pool != NULL && i < s->next; i++) {
        kv_table_deinit(s->pool, &s->seqs[i].table);
        mem_free(s->seqs[i].tokens);
    }
    for (int32_t i = 0; s->ix != NULL && i < s->n_running + s->n_waiting; i++) {
        kv_index_leave(s->ix, &s->seqs[i < s->n_running ? s->running[i] : s->waiting[i - s->n_running]].path);
    }
    kv_index_close(s->ix);
    kv_pool_close(s->pool);
    first_fit_close(&s->room);
    mem_free(s->seqs);
    mem_free(s->running);
    mem_free(s->waiting);
    mem_free(s->running_view);
    mem_free(s->plan.items);
    mem_free(s->plan.fates);
    mem_free(s->copies.pairs);
}

static quire_err check_options(const serving_options *o, quire_error *err) {
    bool good = o->kv_tokens >= o->page_tokens && o->page_tokens >= 1 && o->max_model_len >= 1 && o->max_rows >= o->max_seqs && o->max_seqs >= 1 &&
                o->speed > 0 && isfinite(o->speed);
    return good ? QUIRE_OK
                : err_set(err, QUIRE_INVALID, -1, "a server with %lld tokens of memory, %d sequences and %d rows a step", (long long)o->kv_tokens,
                          (int)o->max_seqs, (int)o->max_rows);
}

quire_err serving_run(const trace *t, const serving_options *o, serving_result *out, quire_error *err) {
    serving_result r = {.n_requests = t->n_requests};
    serving s = {.t = t, .o = o, .r = &r};
    quire_error inner = {.message = ""};
    size_t n = (size_t)t->n_requests;
    TRY(check_options(o, err));
    r.times = (serving_times){mem_new(n, sizeof(double)), mem_new(n, sizeof(double)), mem_new(n, sizeof(double)), 0};
    quire_err e = r.times.first && r.times.gap && r.times.per_token ? QUIRE_OK : QUIRE_NO_MEMORY;
    if (e == QUIRE_OK && o->batching == BATCH_STATIC) {
        e = serving_static_run(t, o, &r);
    } else if (e == QUIRE_OK) {
        e = open_planner(&s);
        e = e == QUIRE_OK ? run(&s, &inner) : e;
        close_all(&s);
    }
    if (e == QUIRE_OK && r.times.n == 0) {
        e = err_set(&inner, QUIRE_INVALID, -1, "not one request fits into %d tokens of length and %lld of memory; shrink the trace", (int)o->max_model_len,
                    (long long)o->kv_tokens);
    }
    if (e != QUIRE_OK) {
        serving_result_deinit(&r);
        return err_set(err, e, -1, "the simulation of %d requests failed: %s", (int)t->n_requests, inner.message[0] ? inner.message : quire_err_text(e));
    }
    *out = r;
    return QUIRE_OK;
}
