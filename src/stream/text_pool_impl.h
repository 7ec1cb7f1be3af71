/* The internals of the text pool: its threads, and the candidates that it chooses
 * among. */
#ifndef STREAM_TEXT_POOL_IMPL_H
#define STREAM_TEXT_POOL_IMPL_H

#include <pthread.h>

#include "base/turn.h"
#include "stream/text_pool.h"

/* NONE: no thread. LOOKS: may run, and takes a job when it does, so the thread that the
 * system runs first has the first job. WAITS: paused in the middle of a job. */
typedef enum worker_state { WORKER_NONE, WORKER_IDLE, WORKER_LOOKS, WORKER_RUNS, WORKER_WAITS } worker_state;

/* A thread, and copies of what it needs of its job, which may be freed when run
 * returns. */
typedef struct worker {
    turn turn; /* first member: a turn* is a worker* */
    text_pool *pool;
    pthread_t thread;
    pthread_cond_t go; /* signalled when its state or its job has changed */
    worker_state state;
    bool is_slow;  /* its job is slow, or it looks for a slow one */
    bool is_low;   /* its thread has low priority, permanently */
    text_job *job; /* NULL: none */
    uint64_t tenant;
    int64_t tenant_used_us, added_us, expected_us;
    size_t text_bytes;       /* counted memory of its job */
    bool is_large, is_to_be; /* its job holds more than TEXT_SMALL_BYTES; or waits until it may */
    int64_t slice_began_us;  /* on clock_thread_us */
} worker;

/* Arrays of two hold quick and slow jobs. */
struct text_pool {
    pthread_mutex_t lock;
    text_job *first, **last; /* jobs that have not begun */
    int32_t n_jobs[2];       /* number of those jobs */
    bool closing;
    int32_t nice; /* nice value of the thread that opened the pool */
    /* workers used so far, existing threads, and most threads */
    int32_t n_places, n_workers, max_workers;
    int32_t most_workers;              /* value of max_workers while the system refuses no thread */
    int32_t n_running[2], max_running; /* running threads, including those that look for work */
    int32_t n_looking[2];
    /* processor time of all jobs; and the same, divided at each moment by the tenants
     * present */
    int64_t worked_us, virtual_us;
    int64_t rest_us;   /* remainder of that division: under a microsecond for each tenant */
    int32_t n_tenants; /* tenants that have jobs */
    size_t text_bytes; /* memory held by jobs with long texts */
    bool has_large;    /* a job holds more than TEXT_SMALL_BYTES beside its text */
    bool has_ended;    /* the thread that ended last has not been joined */
    pthread_t ended;
    pthread_cond_t all_ended;
    worker workers[TEXT_POOL_THREADS];
};

/* What the pool chooses among: a job that has not begun, or a worker in the middle of
 * one. */
typedef struct candidate {
    text_job **job; /* where the job stands in the list, or NULL */
    worker *worker; /* or NULL */
    int64_t tenant_used_us;
    int64_t turn_us; /* its key: the pool's work when the job was added, plus the work left in it */
} candidate;

/* Called with the pool's lock held. */
/* Adds the job to the accounts: sets what its tenant has used. Its tenant may be new. */
void text_enter(text_pool *p, text_job *job);
/* Gives w the job of c, which has not begun. */
void text_begin(worker *w, const candidate *c);
/* Charges `us` of processor time to w's job, and to its tenant in the tenant's other
 * jobs. */
void text_charge(worker *w, int64_t us);
/* Ends the job of w. */
void text_leave(worker *w);
int64_t text_expected_us(const text_job *job);
bool text_is_slow(const text_job *job);
size_t text_counted_bytes(const text_job *job);
bool text_is_off(const text_job *job);
candidate text_of_worker(worker *w);
bool text_is_nobody(const candidate *c);
bool text_is_before(const candidate *a, const candidate *b);
/* The first job that may begin; the first worker that may resume; the first of both, if a
 * thread is available and none is looking for work. */
candidate text_first_job(text_pool *p, bool slow);
candidate text_first_waiting(text_pool *p, bool slow);
candidate text_next(text_pool *p, bool slow);

#endif
