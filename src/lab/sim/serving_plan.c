/* How a simulated server plans a step: what src/engine/step.c, ready.c, hold.c and cache.c do around sched_make_plan, on counted tokens. */
#include <string.h>

#include "lab/sim/serving_state.h"

enum { MAX_LOOKED_AT = 64 }; /* as in src/engine/admission_candidates.c */

/* ---- lists ---- */

void serving_list_insert(int32_t *list, int32_t *n, int32_t number) {
    int32_t at = (*n)++;
    for (; at > 0 && list[at - 1] > number; at--) {
        list[at] = list[at - 1];
    }
    list[at] = number;
}

void serving_list_remove(int32_t *list, int32_t *n, int32_t number) {
    int32_t at = 0;
    while (list[at] != number) {
        at++;
    }
    memmove(list + at, list + at + 1, (size_t)(*n - at - 1) * sizeof *list);
    *n -= 1;
}

/* ---- holds, as src/engine/prefix_wait.c has them: who waits for pages that another computes ---- */

static bool prefix_wait_blocks(const serving *s, const served *a) {
    bool runs = false;
    for (int32_t i = 0; i < s->n_running && a->blocked_until > 0; i++) {
        runs |= s->running[i] == a->blocked_on;
    }
    return runs && s->seqs[a->blocked_on].kv.n_computed < a->blocked_until;
}

/* Up to which token a, which finds n_cached now, could take pages from other; 0: nothing worth a wait. */
static int32_t worth_waiting(const serving *s, const served *a, int32_t n_cached, const served *other, int32_t n_computed) {
    int32_t size = s->limits.page_tokens, n = other->n_known < a->n_known - 1 ? other->n_known : a->n_known - 1;
    n -= n % size;
    if (other->kv.path.namespace != a->kv.path.namespace || other->number > a->number || n - n_cached < size ||
        n_computed - n_computed % size > n_cached || memcmp(a->tokens, other->tokens, (size_t)(n_cached + size) * sizeof *a->tokens) != 0) {
        return 0;
    }
    int32_t at = n_cached + size;
    while (at < n && a->tokens[at] == other->tokens[at]) {
        at++;
    }
    return at - at % size;
}

static void find_prefix_wait(serving *s, int32_t i) {
    served *a = &s->seqs[s->candidates[i]];
    sched_seq *view = &s->waiting_view[i];
    a->blocked_until = 0;
    for (int32_t k = 0; s->kv.index != NULL && k < s->n_running + i; k++) {
        bool runs = k < s->n_running;
        const sched_seq *other = runs ? &s->running_view[k] : &s->waiting_view[k - s->n_running];
        int32_t number = runs ? s->running[k] : s->candidates[k - s->n_running];
        int32_t until = other->prefix_wait ? 0 : worth_waiting(s, a, view->n_computed, &s->seqs[number], other->n_computed);
        if (until > a->blocked_until) {
            a->blocked_until = until;
            a->blocked_on = number;
            view->prefix_wait = true;
            view->blocked_on = k;
        }
    }
}

/* ---- planning ---- */

static sched_seq describe(const serving *s, const served *a) {
    return (sched_seq){.n_known = a->n_known,
                       .n_computed = a->kv.n_computed,
                       .n_pages = s->pieces ? INT32_MAX / 2 : kv_seq_pages(&a->kv), /* of its piece nothing can lack */
                       .n_groups = 1,
                       .n_most = a->n_most,
                       .n_preempted = a->n_preempted};
}

/* Room in one piece for a, if it has none yet. */
static bool take_piece(serving *s, served *a) {
    reserved_seq q = {.n_prompt = a->n_prompt, .n_output = a->n_most - a->n_prompt, .n_now = a->n_most};
    int64_t n = reservation_slots(s->o->reservation, &q, s->o->max_model_len, s->limits.page_tokens);
    n = n < s->room.size ? n : s->room.size;
    a->reserved = first_fit_take(&s->room, a->number, n) ? n : 0;
    return a->reserved > 0;
}

/* The oldest waiting that a plan may admit, into s->ready. With pieces: those that got one, until one gets none. */
static int32_t find_candidates(serving *s) {
    int32_t n = 0, places = s->limits.max_seqs - s->n_running, most = places < SERVING_MAX_ADMIT ? places : SERVING_MAX_ADMIT;
    for (int32_t i = 0, looked_at = 0; i < s->n_waiting && n < most && looked_at < MAX_LOOKED_AT; i++) {
        served *a = &s->seqs[s->waiting[i]];
        if (prefix_wait_blocks(s, a)) {
            continue;
        }
        looked_at++;
        if (s->pieces && !take_piece(s, a)) {
            break;
        }
        s->candidates[n++] = s->waiting[i];
    }
    return n;
}

static void admit(serving *s, served *a) {
    a->n_admitted++;
    a->n_reused = 0;
    if (s->kv.index != NULL) {
        (void)kv_seq_admit(&s->kv, &a->kv, a->tokens, a->n_known - 1);
        a->n_reused = a->kv.n_computed;
        s->r->hit_tokens += a->n_admitted == 1 ? a->n_reused : 0;
    }
    serving_list_remove(s->waiting, &s->n_waiting, a->number);
    serving_list_insert(s->running, &s->n_running, a->number);
}

void serving_release(serving *s, served *a) {
    if (s->pieces) {
        first_fit_give(&s->room, a->number);
    }
    kv_seq_release(&s->kv, &a->kv, a->tokens, KV_KEEP);
}

static void preempt(serving *s, int32_t number) {
    served *a = &s->seqs[number];
    serving_release(s, a);
    a->n_preempted++;
    s->r->n_preemptions++;
    serving_list_insert(s->waiting, &s->n_waiting, number);
}

/* Items name requests from now on; who is admitted or preempted changes lists. */
static void apply_plan(serving *s, int32_t n_candidates) {
    int32_t n_before = s->n_running, kept = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        int32_t *k = &s->plan.items[i].seq;
        *k = *k < n_before ? s->running[*k] : s->candidates[*k - n_before];
    }
    for (int32_t i = 0; i < n_before; i++) {
        if (s->plan.decisions[i] == SCHED_PREEMPTED) {
            preempt(s, s->running[i]);
        } else {
            s->running[kept++] = s->running[i];
        }
    }
    s->n_running = kept;
    for (int32_t i = s->plan.n_items - s->plan.n_admitted; i < s->plan.n_items; i++) {
        admit(s, &s->seqs[s->plan.items[i].seq]);
        s->seqs[s->plan.items[i].seq].blocked_until = 0;
    }
    for (int32_t i = 0; s->pieces && i < n_candidates; i++) { /* who got a piece and was not admitted */
        if (s->seqs[s->candidates[i]].n_admitted == 0) {
            first_fit_give(&s->room, s->candidates[i]);
        }
    }
}

void serving_plan(serving *s) {
    int32_t n_free = INT32_MAX / 2, n_candidates = find_candidates(s);
    for (int32_t i = 0; i < s->n_running; i++) {
        s->running_view[i] = describe(s, &s->seqs[s->running[i]]);
    }
    for (int32_t i = 0; i < n_candidates; i++) {
        served *a = &s->seqs[s->candidates[i]];
        sched_seq *view = &s->waiting_view[i];
        *view = describe(s, a);
        if (s->kv.index != NULL) {
            view->n_computed = kv_seq_peek(&s->kv, &a->kv, a->tokens, a->n_known - 1, &view->n_pages);
        }
        find_prefix_wait(s, i);
    }
    if (!s->pieces) {
        n_free = kv_cache_available(&s->kv);
    }
    s->limits.cost = step_cost_fit(&s->step_cost);
    sched_make_plan(&s->limits, s->running_view, s->n_running, s->waiting_view, n_candidates, n_free, &s->plan);
    apply_plan(s, n_candidates);
}

/* ---- pages ---- */

static int32_t pages_needed(const serving *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        n += (int32_t)kv_seq_needs(&s->kv, &s->seqs[s->plan.items[i].seq].kv, s->plan.items[i].n_rows);
    }
    return n;
}

static void make_free(serving *s) {
    kv_cache_make_free(&s->kv, pages_needed(s));
}

/* a gives back the shared page inside which it was to go on. */
static bool drop_tail(serving *s, served *a) {
    int32_t keep = a->kv.n_computed - a->kv.n_computed % s->limits.page_tokens;
    if (s->kv.index == NULL || keep == a->kv.n_computed || a->kv.n_computed != a->n_reused) {
        return false;
    }
    s->r->hit_tokens -= a->n_admitted == 1 ? a->kv.n_computed - keep : 0;
    kv_seq_truncate(&s->kv, &a->kv, keep);
    a->n_reused = keep;
    return true;
}

quire_err serving_reserve(serving *s) {
    int32_t kept = 0;
    if (s->pieces) {
        return QUIRE_OK;
    }
    make_free(s);
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        sched_item item = s->plan.items[i];
        served *a = &s->seqs[item.seq];
        s->copies.n = 0;
        quire_err e = kv_seq_reserve(&s->kv, &a->kv, item.n_rows, &s->copies);
        if (e == QUIRE_NO_ROOM && drop_tail(s, a)) {
            make_free(s);
            e = kv_seq_reserve(&s->kv, &a->kv, item.n_rows, &s->copies);
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
