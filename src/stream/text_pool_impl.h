/* The inside of the text pool: its threads, and what it chooses among. Shared by
 * text_pool*.c. */
#ifndef STREAM_TEXT_POOL_IMPL_H
#define STREAM_TEXT_POOL_IMPL_H

#include <pthread.h>

#include "base/turn.h"
#include "stream/text_pool.h"

/* NONE: no thread is here. LOOKS: it may run, and takes a job as soon as it does:
 * whichever thread the system lets run first has the first job. WAITS: in the middle of
 * one. */
typedef enum worker_state { WORKER_NONE, WORKER_IDLE, WORKER_LOOKS, WORKER_RUNS, WORKER_WAITS } worker_state;

/* A thread, and what it needs of its job; the job itself may be gone when run returns. */
typedef struct worker {
    turn turn; /* first member: a turn* is a worker* */
    text_pool *pool;
    pthread_t thread;
    pthread_cond_t go; /* its state or its job has changed */
    worker_state state;
    bool is_slow;  /* its job is slow, or it looks for a slow one */
    bool is_low;   /* its thread has the low priority, for good */
    text_job *job; /* NULL: none */
    uint64_t tenant;
    int64_t tenant_used_us, added_us, expected_us;
    size_t text_bytes;       /* counted memory that its job holds */
    bool is_large, is_to_be; /* its job holds more than TEXT_SMALL_BYTES; waits until it may */
    int64_t slice_began_us;  /* on clock_thread_us */
} worker;

/* Arrays of two are for quick and for slow jobs. */
struct text_pool {
    pthread_mutex_t lock;
    text_job *first, **last; /* jobs that have not begun */
    int32_t n_jobs[2];       /* of them */
    bool closing;
    int32_t nice; /* nice value of the thread that opened it */
    /* workers used so far, present threads, and most threads */
    int32_t n_places, n_workers, max_workers;
    int32_t most_workers;              /* max_workers where the system refuses no thread */
    int32_t n_running[2], max_running; /* running threads, those looking for work included */
    int32_t n_looking[2];
    /* processor time of all jobs; the same divided by the tenants there were at each
     * moment */
    int64_t worked_us, virtual_us;
    int64_t rest_us;   /* remainder of the division: under a microsecond for each tenant */
    int32_t n_tenants; /* tenants that have jobs */
    size_t text_bytes; /* memory that jobs with long texts hold */
    bool has_large;    /* a job holds more than TEXT_SMALL_BYTES beside its text */
    bool has_ended;    /* the thread that ended last is not joined yet */
    pthread_t ended;
    pthread_cond_t all_ended;
    worker workers[TEXT_POOL_THREADS];
};

/* What the pool chooses among: a job that has not begun, or a worker in the middle of
 * one. */
typedef struct candidate {
    text_job **job; /* where the list has it, or NULL */
    worker *worker; /* or NULL */
    int64_t tenant_used_us;
    int64_t turn_us; /* the work that the pool had done when it was added, and what is left of it */
} candidate;

/* All with the pool's lock held. */
/* The job enters the pool: says what its tenant has used. Its tenant may be a new one. */
void text_enter(text_pool *p, text_job *job);
/* w has the job of c from here on, which has not begun. */
void text_begin(worker *w, const candidate *c);
/* Adds us of processor time to w's job, and to what its tenant's other jobs know that the
 * tenant has used. */
void text_charge(worker *w, int64_t us);
/* The job that w has is over. */
void text_leave(worker *w);
int64_t text_expected_us(const text_job *job);
bool text_is_slow(const text_job *job);
size_t text_counted_bytes(const text_job *job);
bool text_is_off(const text_job *job);
candidate text_of_worker(worker *w);
bool text_is_nobody(const candidate *c);
bool text_is_before(const candidate *a, const candidate *b);
/* The first job that may begin; the first worker that may resume; the first of both,
 * if there is a thread and none is looking for work. */
candidate text_first_job(text_pool *p, bool slow);
candidate text_first_waiting(text_pool *p, bool slow);
candidate text_next(text_pool *p, bool slow);

#endif
