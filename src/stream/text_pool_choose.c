/* Chooses which job of the text pool runs next. */
#include <assert.h>
#include <string.h>

#include "kv/namespace.h"
#include "stream/text_pool_impl.h"

static const candidate nobody;

uint64_t text_tenant(const char *name) {
    return kv_hash_root(0, name, strlen(name));
}

int64_t text_expected_us(const text_job *job) {
    return (int64_t)(job->n_bytes / TEXT_BYTES_A_US);
}

bool text_is_slow(const text_job *job) {
    return text_expected_us(job) > TEXT_QUICK_US;
}

/* What is left of a job. One that takes longer than expected is expected to take as long
 * again. */
candidate text_of_worker(worker *w) {
    assert(w != NULL);
    int64_t left = w->expected_us - w->turn.used_us;
    return (candidate){.worker = w,
                       .tenant_used_us = w->tenant_used_us,
                       .turn_us = w->added_us + (left > 0 ? left : w->turn.used_us)};
}

static candidate of_job(text_job **at) {
    return (candidate){.job = at,
                       .tenant_used_us = (*at)->tenant_used_us,
                       .turn_us = (*at)->added_us + text_expected_us(*at)};
}

/* The bytes of a job that are counted. */
size_t text_counted_bytes(const text_job *job) {
    assert(job != NULL);
    size_t n =
        job->n_bytes > TEXT_LONG_BYTES / TEXT_HELD_A_BYTE ? TEXT_LONG_BYTES : job->n_bytes * TEXT_HELD_A_BYTE;
    return n > TEXT_SMALL_BYTES ? n : 0;
}

bool text_is_off(const text_job *job) {
    return job->is_off != NULL && atomic_load(job->is_off);
}

bool text_is_nobody(const candidate *c) {
    return c->job == NULL && c->worker == NULL;
}

bool text_is_before(const candidate *a, const candidate *b) {
    return a->tenant_used_us != b->tenant_used_us ? a->tenant_used_us < b->tenant_used_us
                                                  : a->turn_us < b->turn_us;
}

static void text_pool_choose_keep_best(candidate *best, candidate c) {
    if (text_is_nobody(best) || text_is_before(&c, best)) {
        *best = c;
    }
}

/* Whether there is a worker for a job that has not begun, besides those that look for
 * one. */
static bool has_thread(const text_pool *p) {
    for (int32_t i = 0; i < p->n_places; i++) {
        if (p->workers[i].state == WORKER_IDLE) {
            return true;
        }
    }
    return p->n_workers < p->max_workers;
}

/* Whether the tenant has fewer jobs in the middle than it may; slow ones count, as quick
 * ones become slow. A pool that lets none wait in the middle has no need to ask. */
static bool has_share(const text_pool *p, uint64_t tenant) {
    int32_t n = 0, most = p->max_workers / TEXT_TENANT_PART;
    for (int32_t i = 0; i < p->n_places; i++) {
        n += p->workers[i].job != NULL && p->workers[i].tenant == tenant;
    }
    return n < (most > p->max_running ? most : p->max_running);
}

/* Where the first with a long text has no room, no other with one goes before it. */
candidate text_first_job(text_pool *p, bool slow) {
    candidate best = nobody, first_long = nobody;
    for (text_job **at = &p->first; *at != NULL; at = &(*at)->next) {
        candidate c = of_job(at), *first = text_counted_bytes(*at) > 0 ? &first_long : &best;
        bool is_first = text_is_slow(*at) == slow && (text_is_nobody(first) || text_is_before(&c, first));
        if (is_first && has_share(p, (*at)->tenant)) {
            *first = c;
        }
    }
    if (!text_is_nobody(&first_long) &&
        (p->text_bytes == 0 || p->text_bytes + text_counted_bytes(*first_long.job) <= TEXT_LONG_BYTES)) {
        text_pool_choose_keep_best(&best, first_long);
    }
    return best;
}

/* Whether a paused worker may resume. One waiting for a large allocation resumes only
 * if no other holds one, or if its job was cancelled. */
static bool may_go_on(const text_pool *p, const worker *w) {
    return w->state == WORKER_WAITS && (!w->is_to_be || !p->has_large || text_is_off(w->job));
}

candidate text_first_waiting(text_pool *p, bool slow) {
    assert(p != NULL);
    candidate best = nobody;
    for (int32_t i = 0; i < p->n_places; i++) {
        if (p->workers[i].is_slow == slow && may_go_on(p, &p->workers[i])) {
            text_pool_choose_keep_best(&best, text_of_worker(&p->workers[i]));
        }
    }
    return best;
}

candidate text_next(text_pool *p, bool slow) {
    assert(p != NULL);
    candidate best = text_first_waiting(p, slow);
    if (p->n_jobs[slow] > p->n_looking[slow] && has_thread(p)) {
        candidate job = text_first_job(p, slow);
        if (!text_is_nobody(&job)) {
            text_pool_choose_keep_best(&best, job);
        }
    }
    return best;
}
