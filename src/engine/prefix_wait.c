#include "engine/prefix_wait.h"

#include <string.h>

#include "engine/cache.h"
#include "engine/lists.h"

/* The running sequence that s is blocked on, or NULL. */
static const sequence *find_running(const engine *e, const sequence *s) {
    const sequence wanted = {.task.priority = s->task.blocked_on_priority, .task.arrival = s->task.blocked_on};
    int32_t low = 0, high = e->n_running;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (list_goes_after(&wanted, e->running[mid])) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < e->n_running && e->running[low]->task.arrival == s->task.blocked_on ? e->running[low] : NULL;
}

bool prefix_wait_blocks(const engine *e, const sequence *s) {
    if (s->task.blocked_until == 0) {
        return false;
    }
    const sequence *other = find_running(e, s);
    return other != NULL && other->task.kv.n_computed < s->task.blocked_until;
}

/* A waiting sequence, and what it finds in the cache. */
typedef struct waiter {
    const sequence *s;
    int32_t n_cached, n_wanted; /* tokens it finds in the cache, and the most it could take from there */
} waiter;

/* How many tokens a and b may share in the cache: all in one namespace, else the pages that are public for both; one's public prefix may be
 * the beginning of the other's. */
static int32_t common_ground(const engine *e, const sequence *a, const sequence *b) {
    if (!a->task.kv.has_path || !b->task.kv.has_path) {
        return 0;
    }
    if (a->task.kv.path.namespace == b->task.kv.path.namespace) {
        return a->task.n_known < b->task.n_known ? a->task.n_known : b->task.n_known;
    }
    int32_t n_public = a->task.kv.path.n_public < b->task.kv.path.n_public ? a->task.kv.path.n_public : b->task.kv.path.n_public;
    return n_public > 0 && a->task.kv.path.public_namespace == b->task.kv.path.public_namespace ? n_public * e->layout.page_tokens : 0;
}

/* The token up to which w could take pages from `other` that are not computed yet, n_computed being those that are; 0: no wait is worth
 * it. */
static int32_t worth_waiting(const engine *e, const waiter *w, const sequence *other, int32_t n_computed) {
    int32_t size = e->layout.page_tokens;
    if (n_computed - size >= w->n_cached || n_computed - n_computed % size > w->n_cached) {
        return 0; /* w would have found its pages if it could use them. The first condition implies the second, which takes longer */
    }
    int32_t n = common_ground(e, w->s, other);
    n = n < w->n_wanted ? n : w->n_wanted;
    n -= n % size;
    if (other->task.arrival > w->s->task.arrival || n - w->n_cached < size) {
        return 0;
    }
    const int32_t *own = w->s->task.tokens, *others = other->task.tokens;
    int32_t least = w->n_cached + size;
    if (memcmp(own, others, (size_t)least * sizeof *own) != 0) {
        return 0;
    }
    int32_t at = least;
    while (at < n && own[at] == others[at]) {
        at++;
    }
    at -= at % size;
    return at - w->n_cached >= size ? at : 0;
}

void prefix_wait_find(engine *e, sequence *const *candidates, int32_t i) {
    sequence *s = candidates[i];
    sched_seq *planned = e->step.waiting;
    waiter w = {.s = s, .n_cached = planned[i].n_computed, .n_wanted = task_reusable(&s->task)};
    s->task.blocked_until = 0;
    if (!s->task.kv.has_path || w.n_wanted - w.n_cached < e->layout.page_tokens) {
        return;
    }
    for (int32_t k = 0; k < e->n_running + i; k++) {
        bool runs = k < e->n_running;
        const sequence *other = runs ? e->running[k] : candidates[k - e->n_running];
        if (!runs && planned[k - e->n_running].prefix_wait) {
            continue;
        }
        int32_t until = worth_waiting(e, &w, other, runs ? other->task.kv.n_computed : planned[k - e->n_running].n_computed);
        if (until > s->task.blocked_until) {
            s->task.blocked_until = until;
            s->task.blocked_on = other->task.arrival;
            s->task.blocked_on_priority = other->task.priority;
            planned[i].prefix_wait = true;
            planned[i].blocked_on = k;
        }
    }
}
