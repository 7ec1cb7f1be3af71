/* Internals of the text pool: its threads, and the candidates among which it chooses. */
#ifndef STREAM_TEXT_POOL_IMPL_H
#define STREAM_TEXT_POOL_IMPL_H

#include <pthread.h>

#include "base/turn.h"
#include "stream/text_pool.h"

/* NONE: no thread. LOOKS: may run, and chooses its job when the system runs it, so that
 * the first job goes to the first thread. WAITS: paused in the middle of a job. */
typedef enum worker_state { WORKER_NONE, WORKER_IDLE, WORKER_LOOKS, WORKER_RUNS, WORKER_WAITS } worker_state;

/* A thread, with copies of what it needs from its job, which may be freed once run
 * returns. */
typedef struct worker {
    turn turn; /* first member, so that a turn* is a worker* */
    text_pool *pool;
    pthread_t thread;
    pthread_cond_t go; /* signalled when its state or job changes */
    worker_state state;
    bool is_slow;  /* its job is slow, or it looks for a slow one */
    bool is_low;   /* its thread has low priority for good */
    text_job *job; /* NULL: none */
    uint64_t tenant;
    int64_t tenant_used_us, added_us, expected_us;
    size_t text_bytes;       /* bytes of its job that count towards TEXT_LONG_BYTES */
    bool is_large, is_to_be; /* its job holds more than TEXT_SMALL_BYTES; its job waits to */
    int64_t slice_began_us;  /* by clock_thread_us */
} worker;

/* In arrays of two, index 0 is for quick jobs, 1 for slow ones. */
struct text_pool {
    pthread_mutex_t lock;
    text_job *first, **last; /* jobs that have not started */
    int32_t n_jobs[2];       /* number of jobs that have not started */
    bool closing;
    int32_t nice; /* nice value of the thread that opened the pool */
    /* workers used so far; existing threads; most threads */
    int32_t n_places, n_workers, max_workers;
    int32_t most_workers;              /* max_workers before the system refused a thread */
    int32_t n_running[2], max_running; /* running threads, including those that look for a job */
    int32_t n_looking[2];
    /* processor time of all jobs; the same, each part divided by the tenants present at
     * the time */
    int64_t worked_us, virtual_us;
    int64_t rest_us;   /* remainder of that division, less than a microsecond per tenant */
    int32_t n_tenants; /* tenants with jobs */
    size_t text_bytes; /* memory held by jobs with long texts */
    bool has_large;    /* some job holds more than TEXT_SMALL_BYTES besides its text */
    bool has_ended;    /* the last thread that ended has not been joined */
    pthread_t ended;
    pthread_cond_t all_ended;
    worker workers[TEXT_POOL_THREADS];
};

/* A candidate: a job that has not started, or a paused worker. */
typedef struct candidate {
    text_job **job; /* link to the job in the list; NULL: a worker */
    worker *worker; /* NULL: a job */
    int64_t tenant_used_us;
    /* its key: the pool's work when the job was added plus the work left in it; lowest
     * first */
    int64_t turn_us;
} candidate;

/* Call these with the pool's lock held. */
/* Adds a job to the accounts: sets its tenant's usage. The tenant may be new. */
void text_enter(text_pool *p, text_job *job);
/* Gives w the job of c, which has not started. */
void text_begin(worker *w, const candidate *c);
/* Charges `us` of processor time to w's job, and to its tenant in the tenant's other
 * jobs. */
void text_charge(worker *w, int64_t us);
/* Removes w's finished job from the accounts. */
void text_leave(worker *w);
int64_t text_expected_us(const text_job *job);
bool text_is_slow(const text_job *job);
size_t text_counted_bytes(const text_job *job);
bool text_is_off(const text_job *job);
candidate text_of_worker(worker *w);
bool text_is_nobody(const candidate *c);
bool text_is_before(const candidate *a, const candidate *b);
/* Three choices: the first job that may start; the first worker that may resume; the
 * first of both, if a thread is free and none is looking for a job. */
candidate text_first_job(text_pool *p, bool slow);
candidate text_first_waiting(text_pool *p, bool slow);
candidate text_next(text_pool *p, bool slow);

#endif
