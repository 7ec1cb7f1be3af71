/* The text pool: threads that parse, render templates and tokenise, so that server loops
 * and the engine thread never do.
 *
 * Jobs take turns (base/turn.h): after each slice of a millisecond, the pool decides
 * again which job runs. Tenants have equal shares of processor time. Within a tenant, the
 * shortest job goes first, estimated from text length, and jobs age: a job's key is the
 * work that the pool had done when the job was added, plus the work left in the job. So a
 * long prompt does not delay another client's short one, and no job waits forever. A new
 * tenant starts with the usage of one that was always present (virtual time: work done
 * divided by the number of tenants present), so tenants that come and go cannot starve
 * one that stays.
 *
 * A job that takes longer than TEXT_QUICK_US, or is expected to, is slow. Slow jobs run
 * on as many additional threads with lower priority: they use idle processor time, and
 * delay neither quick jobs nor engine and server. All text threads have a short
 * scheduling slice (base/thread_slice.h), so that an engine thread that wakes up preempts
 * one of them soon and not at the next tick.
 *
 * A paused job keeps its thread and memory. So there are more threads than may run at
 * once, of which a tenant gets only a part, and memory is limited. A job with a long text
 * starts only if its bytes fit into the limit for all such jobs. Only one job at a time
 * may hold more than TEXT_SMALL_BYTES besides its text (turn_hold), such as a template
 * that produces a quarter of a gigabyte; others that want to, wait. Short texts and small
 * templates never do.
 *
 * Any thread. The pool's lock is held for a few instructions per job. */
#ifndef STREAM_TEXT_POOL_H
#define STREAM_TEXT_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TEXT_SLICE_US   1000 /* time a job runs before others get a turn */
#define TEXT_BYTES_A_US 10   /* bytes of text processed per microsecond, to estimate a job's time */
#define TEXT_QUICK_US   5000 /* a job with more processor time than this is slow */
/* added to the nice value of a slow job's thread: a tenth of the weight */
#define TEXT_SLOW_NICE    10
#define TEXT_POOL_THREADS 64 /* most threads, with those of paused jobs */
/* a tenant's running and paused jobs take at most 1/TEXT_TENANT_PART of the threads */
#define TEXT_TENANT_PART 4
/* memory that a job is expected to hold per byte of its text */
#define TEXT_HELD_A_BYTE 32
#define TEXT_SMALL_BYTES ((size_t)8 << 20) /* memory that a job may hold uncounted */
/* memory of all jobs with long texts; a job that exceeds it alone runs alone */
#define TEXT_LONG_BYTES ((size_t)256 << 20)

typedef struct text_pool text_pool;

struct quire_event;

/* A job, owned by the caller. The pool links waiting jobs by `next`, a queue the finished
 * jobs delivered to it (stream_deliver). */
typedef struct text_job {
    /* runs on a text thread; the pool does not touch the job afterwards */
    void (*run)(struct text_job *job);
    /* Takes over the finished job, on the thread of the queue that it was delivered to.
     * True if *out is an event. */
    bool (*take)(struct text_job *job, struct quire_event *out);
    uint64_t tenant; /* text_tenant() of the tenant that is charged for it */
    size_t n_bytes;  /* approximate size of its text */
    /* true once the result is not needed any more: turn_poll then gives QUIRE_CANCELLED;
     * NULL: never */
    const atomic_bool *is_off;
    /* set by the pool: usage of its tenant, and the pool's work, when the job was
     * added */
    int64_t tenant_used_us, added_us;
    struct text_job *next;
} text_job;

/* The number of a tenant: a hash of its name. */
uint64_t text_tenant(const char *name);

/* Opens a pool. n_running: most threads that run quick jobs at once, and as many for slow
 * ones; 1 to TEXT_POOL_THREADS. n_threads: most threads, at least n_running; the others
 * hold paused jobs. If there are no others, each job runs to its end. QUIRE_NO_MEMORY. */
quire_err text_pool_open(int32_t n_running, int32_t n_threads, text_pool **out);
/* Runs the waiting jobs, then ends the threads. */
void text_pool_close(text_pool *p);
/* Adds a job, which will run on a text thread. Allocates nothing. */
void text_pool_add(text_pool *p, text_job *job);

#endif
