#include "sched/prefix_wait.h"

#include <assert.h>
#include <string.h>

/* The running task that t is blocked on, or NULL. */
static const sched_task *find_running(const scheduler *s, const sched_task *t) {
    const sched_task wanted = {.priority = t->blocked_on_priority, .arrival = t->blocked_on};
    int32_t low = 0, high = s->n_running;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (queue_goes_after(&wanted, s->running[mid])) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < s->n_running && s->running[low]->arrival == t->blocked_on ? s->running[low] : NULL;
}

bool prefix_wait_blocks(const scheduler *s, const sched_task *t) {
    if (t->blocked_until == 0) {
        return false;
    }
    const sched_task *other = find_running(s, t);
    return other != NULL && other->kv.n_computed < t->blocked_until;
}

/* A waiting task, with the length of the prefix that it finds in the cache. */
typedef struct waiter {
    const sched_task *t;
    int32_t n_cached, n_wanted; /* tokens that it finds in the cache; most tokens that it may reuse */
} waiter;

/* How many tokens a and b may share in the cache: all known ones within a namespace, else
 * those in pages that are public for both. One's public prefix may be a prefix of the
 * other's. */
static int32_t common_ground(const scheduler *s, const sched_task *a, const sched_task *b) {
    if (!a->kv.has_path || !b->kv.has_path) {
        return 0;
    }
    if (a->kv.path.namespace == b->kv.path.namespace) {
        return a->n_known < b->n_known ? a->n_known : b->n_known;
    }
    int32_t n_public = a->kv.path.n_public < b->kv.path.n_public ? a->kv.path.n_public : b->kv.path.n_public;
    return n_public > 0 && a->kv.path.public_namespace == b->kv.path.public_namespace
               ? n_public * s->limits.page_tokens
               : 0;
}

/* The position up to which w could reuse pages that `other`, at n_computed, has yet to
 * compute; 0 if waiting is not worth it. With recurrent states any later position will
 * do, since `other` can be told to take a snapshot there. */
static int32_t worth_waiting(const scheduler *s, const waiter *w, const sched_task *other,
                             int32_t n_computed) {
    int32_t size = s->limits.page_tokens, unit = s->kv->n_state_pages > 0 ? 1 : size;
    if (unit == size && (n_computed - size >= w->n_cached || n_computed - n_computed % size > w->n_cached)) {
        /* w would have found these pages if it could use them. The first condition
         * implies the second; it is cheaper */
        return 0;
    }
    int32_t n = common_ground(s, w->t, other);
    n = kv_seq_shareable(&other->kv, n < w->n_wanted ? n : w->n_wanted);
    n -= n % unit;
    if (other->arrival > w->t->arrival || n - w->n_cached < size || n <= n_computed) {
        return 0;
    }
    const int32_t *own = w->t->tokens, *others = other->tokens;
    int32_t least = w->n_cached + size;
    if (memcmp(own, others, (size_t)least * sizeof *own) != 0) {
        return 0;
    }
    int32_t at = least;
    while (at < n && own[at] == others[at]) {
        at++;
    }
    at -= at % unit;
    return at - w->n_cached >= size && at > n_computed ? at : 0;
}

void prefix_wait_find(scheduler *s, int32_t i) {
    assert(i >= 0);
    sched_task *t = s->candidates[i];
    sched_seq *planned = s->waiting_seqs;
    waiter w = {.t = t, .n_cached = planned[i].n_computed, .n_wanted = task_reusable(t)};
    t->blocked_until = 0;
    if (!t->kv.has_path || w.n_wanted - w.n_cached < s->limits.page_tokens) {
        return;
    }
    sched_task *best = NULL;
    for (int32_t k = 0; k < s->n_running + i; k++) {
        bool runs = k < s->n_running;
        sched_task *other = runs ? s->running[k] : s->candidates[k - s->n_running];
        if (!runs && planned[k - s->n_running].prefix_wait) {
            continue;
        }
        int32_t until =
            worth_waiting(s, &w, other, runs ? other->kv.n_computed : planned[k - s->n_running].n_computed);
        if (until > t->blocked_until) {
            t->blocked_until = until;
            t->blocked_on = other->arrival;
            t->blocked_on_priority = other->priority;
            planned[i].prefix_wait = true;
            planned[i].blocked_on = k;
            best = other;
        }
    }
    if (best != NULL && s->kv->n_state_pages > 0 &&
        !kv_snapshot_mark(&best->kv.snapshots, t->blocked_until)) {
        t->blocked_until = 0; /* too many tasks wait for it, at different positions */
        planned[i].prefix_wait = false;
    }
}
