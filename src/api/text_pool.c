#include "api/text_pool.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/turn.h"
#include "kv/hash.h"

/* LOOKS: it may run, and takes a job as soon as it does: whichever thread the system lets run first has the first job. WAITS: in the middle
 * of one. */
typedef enum worker_state { WORKER_IDLE, WORKER_LOOKS, WORKER_RUNS, WORKER_WAITS } worker_state;

/* A thread, and what it needs of its job; the job itself may be gone when run returns. */
typedef struct worker {
    turn turn; /* first member: a turn* is a worker* */
    text_pool *pool;
    pthread_t thread;
    pthread_cond_t go; /* its state or its job has changed */
    worker_state state;
    text_job *job; /* NULL: none */
    uint64_t tenant;
    int64_t tenant_used_us, expected_us;
    size_t text_bytes;       /* that its job holds, of those that are counted */
    bool is_large, is_to_be; /* its job holds more than TEXT_SMALL_BYTES; waits until it may */
    int64_t slice_began_us;  /* on clock_thread_us */
} worker;

struct text_pool {
    pthread_mutex_t lock;
    text_job *first, **last; /* jobs that have not begun */
    int32_t n_jobs;          /* of them */
    bool closing;
    int32_t n_workers, max_workers; /* threads that there are, and that there may be */
    int32_t n_running, max_running; /* those that look count */
    int32_t n_looking;
    size_t text_bytes; /* that jobs with long texts hold */
    bool has_large;    /* a job holds more than TEXT_SMALL_BYTES beside its text */
    worker workers[TEXT_POOL_THREADS];
};

/* What the pool chooses among: a job that has not begun, or a worker in the middle of one. */
typedef struct candidate {
    text_job **job; /* where the list has it, or NULL */
    worker *worker; /* or NULL */
    int64_t tenant_used_us, left_us;
} candidate;

static const candidate nobody;

uint64_t text_tenant(const char *name) {
    return kv_hash_root(0, name, strlen(name));
}

static int64_t expected_us(const text_job *job) {
    return (int64_t)(job->n_bytes / TEXT_BYTES_A_US);
}

/* What is left of a job. One that takes longer than expected is expected to take as long again. */
static candidate of_worker(worker *w) {
    int64_t left = w->expected_us - w->turn.used_us;
    return (candidate){.worker = w, .tenant_used_us = w->tenant_used_us, .left_us = left > 0 ? left : w->turn.used_us};
}

static candidate of_job(text_job **at) {
    return (candidate){.job = at, .tenant_used_us = (*at)->tenant_used_us, .left_us = expected_us(*at)};
}

/* The bytes of a job that are counted. */
static size_t text_bytes(const text_job *job) {
    size_t n = job->n_bytes > TEXT_LONG_BYTES / TEXT_HELD_A_BYTE ? TEXT_LONG_BYTES : job->n_bytes * TEXT_HELD_A_BYTE;
    return n > TEXT_SMALL_BYTES ? n : 0;
}

static bool is_off(const text_job *job) {
    return job->is_off != NULL && atomic_load(job->is_off);
}

static bool is_nobody(const candidate *c) {
    return c->job == NULL && c->worker == NULL;
}

static bool is_before(const candidate *a, const candidate *b) {
    return a->tenant_used_us != b->tenant_used_us ? a->tenant_used_us < b->tenant_used_us : a->left_us < b->left_us;
}

static void keep_best(candidate *best, candidate c) {
    if (is_nobody(best) || is_before(&c, best)) {
        *best = c;
    }
}

/* Whether there is a worker for a job that has not begun, besides those that look for one. */
static bool has_thread(const text_pool *p) {
    for (int32_t i = 0; i < p->n_workers; i++) {
        if (p->workers[i].state == WORKER_IDLE) {
            return true;
        }
    }
    return p->n_workers < p->max_workers;
}

/* Whether the tenant has fewer jobs in the middle than it may. A pool that lets none wait in the middle has no need to ask. */
static bool has_share(const text_pool *p, uint64_t tenant) {
    int32_t n = 0, most = p->max_workers / TEXT_TENANT_PART;
    for (int32_t i = 0; i < p->n_workers; i++) {
        n += p->workers[i].job != NULL && p->workers[i].tenant == tenant;
    }
    return n < (most > p->max_running ? most : p->max_running);
}

/* The first of the jobs that may begin. Where the first with a long text has no room, no other with one goes before it. */
static candidate first_job(text_pool *p) {
    candidate best = nobody, first_long = nobody;
    for (text_job **at = &p->first; *at != NULL; at = &(*at)->next) {
        candidate c = of_job(at), *first = text_bytes(*at) > 0 ? &first_long : &best;
        if ((is_nobody(first) || is_before(&c, first)) && has_share(p, (*at)->tenant)) {
            *first = c;
        }
    }
    if (!is_nobody(&first_long) && (p->text_bytes == 0 || p->text_bytes + text_bytes(*first_long.job) <= TEXT_LONG_BYTES)) {
        keep_best(&best, first_long);
    }
    return best;
}

/* Whether a worker in the middle may go on: what waits to hold much, when nobody else does or its job is to end. */
static bool may_go_on(const text_pool *p, const worker *w) {
    return w->state == WORKER_WAITS && (!w->is_to_be || !p->has_large || is_off(w->job));
}

static candidate first_waiting(text_pool *p) {
    candidate best = nobody;
    for (int32_t i = 0; i < p->n_workers; i++) {
        if (may_go_on(p, &p->workers[i])) {
            keep_best(&best, of_worker(&p->workers[i]));
        }
    }
    return best;
}

/* Who should run next: somebody for whom a thread is, and none is looking. */
static candidate next_candidate(text_pool *p) {
    candidate best = first_waiting(p);
    if (p->n_jobs > p->n_looking && has_thread(p)) {
        candidate job = first_job(p);
        if (!is_nobody(&job)) {
            keep_best(&best, job);
        }
    }
    return best;
}

/* ---- workers ---- */

static void *text_main(void *arg);

/* Lets a worker run what it has, for a slice, or look for a job. */
static void let_run(worker *w, worker_state state) {
    text_pool *p = w->pool;
    w->state = state;
    p->n_running++;
    p->n_looking += state == WORKER_LOOKS;
    if (w->is_to_be && !p->has_large) {
        w->is_large = p->has_large = true;
    }
    w->is_to_be = false;
    pthread_cond_signal(&w->go);
}

/* Lets an idle worker, or a new thread, look for a job. Where no thread can be made, no more are tried. */
static void let_look(text_pool *p) {
    for (int32_t i = 0; i < p->n_workers; i++) {
        if (p->workers[i].state == WORKER_IDLE) {
            let_run(&p->workers[i], WORKER_LOOKS);
            return;
        }
    }
    worker *w = &p->workers[p->n_workers];
    if (p->n_workers == p->max_workers || pthread_create(&w->thread, NULL, text_main, w) != 0) {
        p->max_workers = p->n_workers;
        return;
    }
    p->n_workers++;
    let_run(w, WORKER_LOOKS);
}

/* Lets the best candidates run, as many as may. */
static void dispatch(text_pool *p) {
    while (p->n_running < p->max_running) {
        candidate c = next_candidate(p);
        if (is_nobody(&c)) {
            return;
        }
        if (c.worker != NULL) {
            let_run(c.worker, WORKER_RUNS);
        } else {
            let_look(p);
        }
    }
}

static void wake_all(text_pool *p) {
    for (int32_t i = 0; i < p->n_workers; i++) {
        pthread_cond_signal(&p->workers[i].go);
    }
}

/* Gives w the first job, if there is one and nobody who waits in the middle of one is before it. */
static bool take_job(worker *w) {
    text_pool *p = w->pool;
    candidate c = first_job(p), waiting = first_waiting(p);
    if (c.job == NULL || (waiting.worker != NULL && is_before(&waiting, &c))) {
        return false;
    }
    text_job *job = *c.job;
    p->last = p->last == &job->next ? c.job : p->last;
    *c.job = job->next;
    p->n_jobs--;
    w->job = job;
    w->state = WORKER_RUNS;
    w->tenant = job->tenant;
    w->tenant_used_us = job->tenant_used_us;
    w->expected_us = expected_us(job);
    w->turn.used_us = w->turn.limit_us = 0;
    w->turn.held_bytes = 0;
    w->text_bytes = text_bytes(job);
    w->turn.may_hold = TEXT_SMALL_BYTES + w->text_bytes;
    p->text_bytes += w->text_bytes;
    if (p->closing && p->first == NULL) {
        wake_all(p); /* those that have nothing to do end */
    }
    return true;
}

/* Adds the time since its slice began to w, and to its tenant's other jobs. */
static void charge(worker *w) {
    text_pool *p = w->pool;
    int64_t now = clock_thread_us(), us = now - w->slice_began_us;
    w->slice_began_us = now;
    w->turn.used_us += us;
    for (int32_t i = 0; i < p->n_workers; i++) {
        worker *other = &p->workers[i];
        other->tenant_used_us += other->job != NULL && other->tenant == w->tenant ? us : 0;
    }
    for (text_job *job = p->first; job != NULL; job = job->next) {
        job->tenant_used_us += job->tenant == w->tenant ? us : 0;
    }
}

/* Waits in the middle until w may go on. */
static void wait_for_turn(worker *w) {
    text_pool *p = w->pool;
    w->state = WORKER_WAITS;
    p->n_running--;
    dispatch(p);
    while (w->state == WORKER_WAITS) {
        pthread_cond_wait(&w->go, &p->lock);
    }
}

/* turn.over: somebody else goes on, if his turn is before w's. */
static quire_err give_way(turn *t) {
    worker *w = (worker *)t;
    text_pool *p = w->pool;
    bool off = is_off(w->job);
    pthread_mutex_lock(&p->lock);
    charge(w);
    candidate next = next_candidate(p), self = of_worker(w);
    if (!off && !is_nobody(&next) && is_before(&next, &self)) {
        wait_for_turn(w);
    }
    t->slice_ends_us = clock_us() + TEXT_SLICE_US;
    pthread_mutex_unlock(&p->lock);
    return off ? QUIRE_CANCELLED : QUIRE_OK;
}

/* Whether a job holds much, or waits until it may. */
static bool is_large_taken(const text_pool *p) {
    bool taken = p->has_large;
    for (int32_t i = 0; i < p->n_workers; i++) {
        taken = taken || (p->workers[i].state == WORKER_WAITS && p->workers[i].is_to_be);
    }
    return taken;
}

/* turn.more: w's job is to hold much. It waits until no other does; who is to end gets nothing. */
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

/* Gives back what w's job held. */
static void end_holding(worker *w) {
    w->pool->text_bytes -= w->text_bytes;
    w->pool->has_large = w->pool->has_large && !w->is_large;
    w->text_bytes = 0;
    w->is_large = false;
}

/* Runs the job that w has. Called and left with the lock held. */
static void run_job(worker *w) {
    pthread_mutex_unlock(&w->pool->lock);
    w->slice_began_us = clock_thread_us();
    w->turn.slice_ends_us = clock_us() + TEXT_SLICE_US;
    turn_begin(&w->turn);
    w->job->run(w->job);
    turn_begin(NULL);
    if (w->is_large || w->text_bytes > 0) {
        mem_trim(); /* the allocator would keep it for this thread, beside what the next one to hold much takes */
    }
    pthread_mutex_lock(&w->pool->lock);
    charge(w);
    end_holding(w);
    w->job = NULL;
    dispatch(w->pool); /* others may have waited for what it held */
}

/* Runs jobs, until somebody else's turn is before them. */
static void work(worker *w) {
    text_pool *p = w->pool;
    p->n_looking--;
    while (take_job(w)) {
        run_job(w);
    }
    w->state = WORKER_IDLE;
    p->n_running--;
    dispatch(p);
}

static void *text_main(void *arg) {
    worker *w = arg;
    text_pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    while (w->state == WORKER_LOOKS || !p->closing || p->first != NULL) {
        if (w->state == WORKER_LOOKS) {
            work(w);
        } else {
            pthread_cond_wait(&w->go, &p->lock);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the pool ---- */

quire_err text_pool_open(int32_t n_running, int32_t n_threads, text_pool **out) {
    *out = NULL;
    text_pool *p = mem_new(1, sizeof *p);
    TRY(mem_check(p));
    if (pthread_mutex_init(&p->lock, NULL) != 0) {
        mem_free(p);
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < TEXT_POOL_THREADS; i++) {
        p->workers[i].pool = p;
        p->workers[i].turn.over = give_way;
        p->workers[i].turn.more = hold_more;
        pthread_cond_init(&p->workers[i].go, NULL);
    }
    p->last = &p->first;
    p->max_workers = n_threads < 1 ? 1 : n_threads > TEXT_POOL_THREADS ? TEXT_POOL_THREADS : n_threads;
    p->max_running = n_running < 1 ? 1 : n_running > TEXT_POOL_THREADS ? TEXT_POOL_THREADS : n_running;
    pthread_mutex_lock(&p->lock);
    let_look(p); /* the other threads are made when they are needed */
    bool starts = p->n_workers == 1;
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
    p->max_workers = p->n_workers;
    wake_all(p);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < p->n_workers; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    for (int32_t i = 0; i < TEXT_POOL_THREADS; i++) {
        pthread_cond_destroy(&p->workers[i].go);
    }
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* What a new job's tenant has used: as the tenant's other jobs say, else the least of all, so that who comes back has no credit. */
static int64_t tenant_used(const text_pool *p, uint64_t tenant) {
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < p->n_workers; i++) {
        const worker *w = &p->workers[i];
        if (w->job != NULL && w->tenant == tenant) {
            return w->tenant_used_us;
        }
        least = w->job != NULL && w->tenant_used_us < least ? w->tenant_used_us : least;
    }
    for (const text_job *job = p->first; job != NULL; job = job->next) {
        if (job->tenant == tenant) {
            return job->tenant_used_us;
        }
        least = job->tenant_used_us < least ? job->tenant_used_us : least;
    }
    return least == INT64_MAX ? 0 : least;
}

void text_pool_add(text_pool *p, text_job *job) {
    job->next = NULL;
    pthread_mutex_lock(&p->lock);
    job->tenant_used_us = tenant_used(p, job->tenant);
    *p->last = job;
    p->last = &job->next;
    p->n_jobs++;
    dispatch(p);
    pthread_mutex_unlock(&p->lock);
}
