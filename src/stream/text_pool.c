#include "stream/text_pool.h"

#include <assert.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread_slice.h"
#include "kv/namespace.h"
#include "stream/text_pool_impl.h"

#define THREAD_SLICE_US 100 /* scheduling slice of these threads, for the system's scheduler */

static void *text_main(void *arg);

/* Lets a worker run for a slice: its job, or the search for one. */
static void let_run(worker *w, worker_state state) {
    text_pool *p = w->pool;
    w->state = state;
    p->n_running[w->is_slow]++;
    p->n_looking[w->is_slow] += state == WORKER_LOOKS;
    if (w->is_to_be && !p->has_large) {
        w->is_large = p->has_large = true;
    }
    w->is_to_be = false;
    pthread_cond_signal(&w->go);
}

/* Finds a worker in this state, preferably one of normal priority; NULL if none. */
static worker *find_worker(text_pool *p, worker_state state) {
    worker *found = NULL;
    for (int32_t i = 0; i < p->n_places; i++) {
        worker *w = &p->workers[i];
        if (w->state == state && (found == NULL || found->is_low)) {
            found = w;
        }
    }
    return found;
}

/* Makes a thread with the calling thread's priority. NULL: the system refused; no other
 * is tried until a job has ended. */
static worker *text_pool_make_worker(text_pool *p) {
    worker *w = find_worker(p, WORKER_NONE);
    w = w == NULL ? &p->workers[p->n_places] : w;
    if (p->n_workers >= p->max_workers || pthread_create(&w->thread, NULL, text_main, w) != 0) {
        p->max_workers = p->n_workers;
        return NULL;
    }
    p->n_places += w == &p->workers[p->n_places];
    p->n_workers++;
    w->is_low = false;
    return w;
}

/* Lets an idle worker, or a new thread, look for a job. A low-priority thread gets a
 * quick job only if there is no other. */
static bool let_look(text_pool *p, bool slow) {
    worker *idle = find_worker(p, WORKER_IDLE), *w = idle;
    if (w == NULL || (w->is_low && !slow)) {
        w = text_pool_make_worker(p);
        if (w != NULL && idle != NULL) {
            pthread_cond_signal(&idle->go); /* it ends and frees its place */
        }
        w = w == NULL ? idle : w;
    }
    if (w != NULL) {
        w->is_slow = slow;
        let_run(w, WORKER_LOOKS);
    }
    return w != NULL;
}

/* Lets the best candidates run, as many as are allowed. */
static void text_pool_dispatch(text_pool *p) {
    for (int slow = 0; slow < 2; slow++) {
        while (p->n_running[slow] < p->max_running) {
            candidate c = text_next(p, slow);
            if (text_is_nobody(&c)) {
                break;
            }
            if (c.worker != NULL) {
                let_run(c.worker, WORKER_RUNS);
            } else {
                (void)let_look(p, slow); /* without a thread for it, text_next skips the job */
            }
        }
    }
}

static void wake_all(text_pool *p) {
    for (int32_t i = 0; i < p->n_places; i++) {
        pthread_cond_signal(&p->workers[i].go);
    }
}

/* Lowers the calling thread's priority for good, since the system lets no thread raise it
 * again. Failure is ignored. */
static void text_pool_lower(worker *w) {
    if (!w->is_low) {
        (void)setpriority(PRIO_PROCESS, 0, w->pool->nice + TEXT_SLOW_NICE); /* 0: the calling thread */
        w->is_low = getpriority(PRIO_PROCESS, 0) > w->pool->nice;
    }
}

void text_begin(worker *w, const candidate *c) {
    assert(w != NULL && c != NULL);
    text_pool *p = w->pool;
    text_job *job = *c->job;
    p->last = p->last == &job->next ? c->job : p->last;
    *c->job = job->next;
    p->n_jobs[w->is_slow]--;
    w->job = job;
    w->state = WORKER_RUNS;
    w->tenant = job->tenant;
    w->tenant_used_us = job->tenant_used_us;
    w->added_us = job->added_us;
    w->expected_us = text_expected_us(job);
    w->turn.used_us = w->turn.limit_us = 0;
    w->turn.held_bytes = 0;
    w->text_bytes = text_counted_bytes(job);
    w->turn.may_hold = TEXT_SMALL_BYTES + w->text_bytes;
    p->text_bytes += w->text_bytes;
}

/* Gives w the first job of the kind that it looks for, unless a paused job goes before
 * it. */
static bool take_job(worker *w) {
    text_pool *p = w->pool;
    candidate c = text_first_job(p, w->is_slow), waiting = text_first_waiting(p, w->is_slow);
    if (c.job == NULL || (waiting.worker != NULL && text_is_before(&waiting, &c))) {
        return false;
    }
    text_begin(w, &c);
    if (p->closing && p->first == NULL) {
        wake_all(p); /* so that idle threads end */
    }
    return true;
}

void text_charge(worker *w, int64_t us) {
    assert(w != NULL);
    text_pool *p = w->pool;
    w->turn.used_us += us;
    p->worked_us += us;
    p->rest_us += us;
    p->virtual_us += p->rest_us / p->n_tenants;
    p->rest_us %= p->n_tenants;
    for (int32_t i = 0; i < p->n_places; i++) {
        worker *other = &p->workers[i];
        other->tenant_used_us += other->job != NULL && other->tenant == w->tenant ? us : 0;
    }
    for (text_job *job = p->first; job != NULL; job = job->next) {
        job->tenant_used_us += job->tenant == w->tenant ? us : 0;
    }
}

/* Charges w's job for the time since its slice began. */
static void charge(worker *w) {
    int64_t now = clock_thread_us(), us = now - w->slice_began_us;
    w->slice_began_us = now;
    text_charge(w, us);
}

/* Pauses w in the middle of its job until it may continue. */
static void wait_for_turn(worker *w) {
    text_pool *p = w->pool;
    w->state = WORKER_WAITS;
    p->n_running[w->is_slow]--;
    text_pool_dispatch(p);
    while (w->state == WORKER_WAITS) {
        pthread_cond_wait(&w->go, &p->lock);
    }
}

/* Turns a long-running job into a slow one. First gives threads to waiting quick jobs:
 * new threads inherit this one's priority, which is lowered next. */
static void slow_down(worker *w) {
    text_pool *p = w->pool;
    p->n_running[0]--;
    w->is_slow = true;
    p->n_running[1]++;
    text_pool_dispatch(p);
    text_pool_lower(w);
}

/* turn.over: lets another worker continue if it goes before w. */
static quire_err give_way(turn *t) {
    worker *w = (worker *)t;
    text_pool *p = w->pool;
    bool off = text_is_off(w->job);
    pthread_mutex_lock(&p->lock);
    charge(w);
    if (!w->is_slow && t->used_us > TEXT_QUICK_US) {
        slow_down(w);
    }
    candidate next = text_next(p, w->is_slow), self = text_of_worker(w);
    bool is_next = text_is_nobody(&next) || text_is_before(&self, &next);
    if (!off && (!is_next || p->n_running[w->is_slow] > p->max_running)) {
        wait_for_turn(w);
    }
    t->slice_ends_us = clock_us() + TEXT_SLICE_US;
    pthread_mutex_unlock(&p->lock);
    return off ? QUIRE_CANCELLED : QUIRE_OK;
}

/* Whether a job holds much memory or waits to. */
static bool is_large_taken(const text_pool *p) {
    bool taken = p->has_large;
    for (int32_t i = 0; i < p->n_places; i++) {
        taken = taken || (p->workers[i].state == WORKER_WAITS && p->workers[i].is_to_be);
    }
    return taken;
}

/* turn.more: w's job needs much memory, and waits until no other job holds much. Fails if
 * the job is cancelled. */
static quire_err hold_more(turn *t) {
    worker *w = (worker *)t;
    text_pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    charge(w);
    if (is_large_taken(p)) {
        w->is_to_be = true;
        wait_for_turn(w);
    } else {
        w->is_large = p->has_large = true;
    }
    bool granted = w->is_large;
    t->may_hold = granted ? SIZE_MAX : t->may_hold;
    t->slice_ends_us = clock_us() + TEXT_SLICE_US;
    pthread_mutex_unlock(&p->lock);
    return granted ? QUIRE_OK : QUIRE_CANCELLED;
}

/* Releases w's job's claim to memory. */
static void end_holding(worker *w) {
    w->pool->text_bytes -= w->text_bytes;
    w->pool->has_large = w->pool->has_large && !w->is_large;
    w->text_bytes = 0;
    w->is_large = false;
}

/* Runs w's job. Called, and returns, with the lock held. */
static void text_pool_run_job(worker *w) {
    if (w->is_slow) {
        text_pool_lower(w);
    }
    pthread_mutex_unlock(&w->pool->lock);
    w->slice_began_us = clock_thread_us();
    w->turn.slice_ends_us = clock_us() + TEXT_SLICE_US;
    turn_begin(&w->turn);
    w->job->run(w->job);
    turn_begin(NULL);
    pthread_mutex_lock(&w->pool->lock);
    charge(w);
    end_holding(w);
    text_leave(w);
    text_pool_dispatch(w->pool); /* others may have waited for its memory */
}

/* Runs jobs until another worker goes first. */
static void text_pool_work(worker *w) {
    text_pool *p = w->pool;
    p->n_looking[w->is_slow]--;
    while (take_job(w)) {
        text_pool_run_job(w);
    }
    w->state = WORKER_IDLE;
    p->n_running[w->is_slow]--;
    p->max_workers = p->most_workers;
    text_pool_dispatch(p);
}

/* Whether a worker has nothing left to do. A low-priority thread ends with its jobs,
 * unless it is the last one. */
static bool is_over(const worker *w) {
    const text_pool *p = w->pool;
    return w->state == WORKER_IDLE && ((p->closing && p->first == NULL) || (w->is_low && p->n_workers > 1));
}

/* Ends the calling thread, after joining the one that ended before it, so that all are
 * joined once the last one is. Called with the lock held. */
static void end_thread(worker *w) {
    text_pool *p = w->pool;
    bool joins = p->has_ended;
    pthread_t before = p->ended;
    p->ended = w->thread;
    p->has_ended = true;
    w->state = WORKER_NONE;
    p->n_workers--;
    pthread_cond_signal(&p->all_ended);
    pthread_mutex_unlock(&p->lock);
    if (joins) {
        pthread_join(before, NULL);
    }
}

static void *text_main(void *arg) {
    worker *w = arg;
    thread_set_slice(THREAD_SLICE_US);
    pthread_mutex_lock(&w->pool->lock);
    w->is_low = getpriority(PRIO_PROCESS, 0) > w->pool->nice;
    while (!is_over(w)) {
        if (w->state == WORKER_LOOKS) {
            text_pool_work(w);
        } else {
            pthread_cond_wait(&w->go, &w->pool->lock);
        }
    }
    end_thread(w);
    return NULL;
}

/* ---- the pool ---- */

quire_err text_pool_open(int32_t n_running, int32_t n_threads, text_pool **out) {
    assert(n_running >= 1 && n_running <= TEXT_POOL_THREADS && n_threads >= n_running);
    *out = NULL;
    text_pool *p = mem_new(1, sizeof *p);
    TRY(mem_check(p));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->all_ended, NULL);
    for (int32_t i = 0; i < TEXT_POOL_THREADS; i++) {
        p->workers[i].pool = p;
        p->workers[i].turn.over = give_way;
        p->workers[i].turn.more = hold_more;
        pthread_cond_init(&p->workers[i].go, NULL);
    }
    p->last = &p->first;
    p->nice = getpriority(PRIO_PROCESS, 0);
    p->most_workers = p->max_workers = n_threads < 1                   ? 1
                                       : n_threads > TEXT_POOL_THREADS ? TEXT_POOL_THREADS
                                                                       : n_threads;
    p->max_running = n_running < 1 ? 1 : n_running > TEXT_POOL_THREADS ? TEXT_POOL_THREADS : n_running;
    pthread_mutex_lock(&p->lock);
    bool starts = let_look(p, false); /* more threads are made when needed */
    pthread_mutex_unlock(&p->lock);
    if (!starts) {
        text_pool_close(p);
        return QUIRE_NO_MEMORY;
    }
    *out = p;
    return QUIRE_OK;
}

void text_pool_close(text_pool *p) {
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    wake_all(p);
    while (p->n_workers > 0) {
        pthread_cond_wait(&p->all_ended, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    if (p->has_ended) {
        pthread_join(p->ended, NULL);
    }
    for (int32_t i = 0; i < TEXT_POOL_THREADS; i++) {
        pthread_cond_destroy(&p->workers[i].go);
    }
    pthread_cond_destroy(&p->all_ended);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* Whether a tenant has jobs. *used: the tenant's usage by their account; without jobs,
 * the least usage of all tenants present. */
static bool has_jobs(const text_pool *p, uint64_t tenant, int64_t *used) {
    *used = INT64_MAX;
    for (int32_t i = 0; i < p->n_places; i++) {
        const worker *w = &p->workers[i];
        if (w->job != NULL && w->tenant == tenant) {
            *used = w->tenant_used_us;
            return true;
        }
        *used = w->job != NULL && w->tenant_used_us < *used ? w->tenant_used_us : *used;
    }
    for (const text_job *job = p->first; job != NULL; job = job->next) {
        if (job->tenant == tenant) {
            *used = job->tenant_used_us;
            return true;
        }
        *used = job->tenant_used_us < *used ? job->tenant_used_us : *used;
    }
    return false;
}

void text_enter(text_pool *p, text_job *job) {
    assert(job != NULL);
    int64_t used;
    /* a tenant gets no credit for time without jobs */
    if (!has_jobs(p, job->tenant, &used)) {
        used = used == INT64_MAX || used < p->virtual_us ? p->virtual_us : used;
        p->n_tenants++;
    }
    job->tenant_used_us = used;
    job->added_us = p->worked_us;
    job->next = NULL;
    *p->last = job;
    p->last = &job->next;
    p->n_jobs[text_is_slow(job)]++;
}

void text_leave(worker *w) {
    assert(w != NULL);
    int64_t used;
    w->job = NULL;
    w->pool->n_tenants -= !has_jobs(w->pool, w->tenant, &used);
}

void text_pool_add(text_pool *p, text_job *job) {
    pthread_mutex_lock(&p->lock);
    text_enter(p, job);
    text_pool_dispatch(p);
    pthread_mutex_unlock(&p->lock);
}

/* Chooses the text pool's next job. */

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

/* A paused worker as a candidate. A job that exceeds its estimate is expected to take as
 * long again. */
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

/* Bytes of a job that count towards TEXT_LONG_BYTES. */
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

/* Whether a worker is free for a job that has not started, besides those that already
 * look for one. */
static bool has_thread(const text_pool *p) {
    for (int32_t i = 0; i < p->n_places; i++) {
        if (p->workers[i].state == WORKER_IDLE) {
            return true;
        }
    }
    return p->n_workers < p->max_workers;
}

/* Whether the tenant has fewer running and paused jobs than its share. Slow ones count,
 * since quick jobs become slow. */
static bool has_share(const text_pool *p, uint64_t tenant) {
    int32_t n = 0, most = p->max_workers / TEXT_TENANT_PART;
    for (int32_t i = 0; i < p->n_places; i++) {
        n += p->workers[i].job != NULL && p->workers[i].tenant == tenant;
    }
    return n < (most > p->max_running ? most : p->max_running);
}

/* If the first job with a long text does not fit, no other one with a long text overtakes
 * it. */
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
