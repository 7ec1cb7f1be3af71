/* The text pool: threads that parse, render templates and tokenise, so that server loops
 * and the engine thread never do.
 *
 * Jobs take turns (base/turn.h): after each slice of a millisecond the pool decides again
 * which job runs. Tenants have equal shares of processor time. Within a tenant the
 * shortest job goes first, estimated from text length, and jobs age: a job's key is the
 * work that the pool had done when the job was added, plus the work left in the job. So a
 * long prompt does not delay another client's short one, and a waiting job is not
 * overtaken forever. A tenant that arrives is treated as if it had used as much as one
 * that was always present (the pool's virtual time: work done, divided by the tenants
 * present), so tenants that come and go can't starve one that stays.
 *
 * A job that takes longer than TEXT_QUICK_US, or is expected to, is a slow one. Slow jobs
 * run on the same number of additional threads with lower priority: they use idle
 * processor time and delay neither quick jobs nor engine and server. All text threads
 * have a short scheduling slice (base/thread_slice.h), so that an engine thread that
 * wakes up preempts one of them soon and not at the next tick.
 *
 * A paused job keeps its thread and its memory. So there are more threads than may run at
 * once, of which a tenant gets only a part, and memory is limited. A job with a long text
 * begins only if its bytes fit into the limit for all of them, and only one job at a
 * time, such as a template that makes a quarter of a gigabyte, may take more than
 * TEXT_SMALL_BYTES beside its text (turn_hold). Other jobs that want more wait; short
 * texts and small templates never wait.
 *
 * Threads: each call from any thread. The pool's lock is held for a few instructions per
 * job. */
#ifndef STREAM_TEXT_POOL_H
#define STREAM_TEXT_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TEXT_SLICE_US   1000 /* how long a job runs before others continue */
#define TEXT_BYTES_A_US 10   /* bytes of text per microsecond, to estimate a job */
#define TEXT_QUICK_US   5000 /* processor time beyond which a job is slow */
/* added to the nice value of its thread: a tenth of the weight */
#define TEXT_SLOW_NICE    10
#define TEXT_POOL_THREADS 64 /* most threads, including those of paused jobs */
/* a tenant's running and paused jobs take at most this part of the threads */
#define TEXT_TENANT_PART 4
/* bytes that a job is expected to hold for each byte of its text */
#define TEXT_HELD_A_BYTE 32
#define TEXT_SMALL_BYTES ((size_t)8 << 20) /* memory that a job may hold without being counted */
/* memory of all jobs with long texts together; a job that exceeds it alone runs alone */
#define TEXT_LONG_BYTES ((size_t)256 << 20)

typedef struct text_pool text_pool;

struct quire_event;

/* A job; the pool owns nothing in it. The pool uses `next` while the job waits, and a
 * queue uses it while the finished job waits there (stream_deliver). */
typedef struct text_job {
    void (*run)(struct text_job *job); /* on a text thread; the pool does not touch the job afterwards */
    /* Takes over the finished job, on the thread of the queue to which it was
     * delivered. True: *out is an event. */
    bool (*take)(struct text_job *job, struct quire_event *out);
    uint64_t tenant; /* text_tenant() of the tenant on whose turn it runs */
    size_t n_bytes;  /* approximate size of its text */
    /* set once the result is no longer needed: turn_poll then gives QUIRE_CANCELLED;
     * NULL: never */
    const atomic_bool *is_off;
    /* the pool's: how much its tenant has used; the pool's work when the job was added */
    int64_t tenant_used_us, added_us;
    struct text_job *next;
} text_job;

/* The name of a tenant, as a number. */
uint64_t text_tenant(const char *name);

/* n_running: most threads that run quick jobs at once, and as many for slow ones, from 1
 * to TEXT_POOL_THREADS. n_threads: most threads, at least n_running; the additional ones
 * hold paused jobs. If there are none, each job runs to its end. */
quire_err text_pool_open(int32_t n_running, int32_t n_threads, text_pool **out);
/* Runs the waiting jobs, then ends the threads. */
void text_pool_close(text_pool *p);
/* Allocates nothing. */
void text_pool_add(text_pool *p, text_job *job);

#endif
