/* The text pool: threads that parse, render templates and tokenise, so that server loops
 * and the engine thread never do.
 *
 * Jobs take turns (base/turn.h): a slice of a job is a millisecond, then the pool decides
 * again who runs. Tenants have equal shares of processor time. Within a tenant the
 * shortest job goes first, estimated from text length, and jobs age: what counts is the
 * work that the pool had done when the job was added, plus what is left of the job. So a
 * long prompt delays nobody else's short one, and a job that the pool adds after it has
 * done as much work as a waiting one has left does not go before it. A tenant that comes
 * has had as much, for the pool, as one that was there all the time (its virtual time:
 * work done, divided by the tenants that there are); so tenants that come and go don't
 * keep out one that stays.
 *
 * A job that takes longer than TEXT_QUICK_US, or is expected to, is a slow one. Slow jobs
 * run on as many threads again, of lower priority: they take what processors have left,
 * and hold up neither quick jobs nor engine and server. All text threads have a short
 * slice of
 * the system's (base/thread_slice.h): a thread of the engine that wakes up takes the
 * place of one that had it, and else waits for a tick.
 *
 * A job that waits in the middle keeps its thread and its memory. So there are more
 * threads than may run at once, of which a tenant has a part at most; and memory has
 * bounds. Long texts begin only where their bytes fit into what all may hold together,
 * and one job at a time, such as a template that makes a quarter of a gigabyte, may take
 * more than TEXT_SMALL_BYTES beside its text (turn_hold). Others that want more wait;
 * short texts and small templates never do.
 *
 * Threads: each call from any thread. The pool's lock is held for a few instructions for
 * each job that is there. */
#ifndef STREAM_TEXT_POOL_H
#define STREAM_TEXT_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TEXT_SLICE_US   1000 /* of a job before others continue */
#define TEXT_BYTES_A_US 10   /* bytes of text per microsecond, to estimate a job */
#define TEXT_QUICK_US   5000 /* processor time beyond which a job is slow */
/* added to the nice value of its thread: a tenth of the weight */
#define TEXT_SLOW_NICE    10
#define TEXT_POOL_THREADS 64 /* most threads, those of paused jobs included */
/* a tenant's jobs in the middle are at most this part of the threads */
#define TEXT_TENANT_PART 4
#define TEXT_HELD_A_BYTE 32                /* bytes that a job is expected to hold for each of its text */
#define TEXT_SMALL_BYTES ((size_t)8 << 20) /* memory that a job may hold uncounted */
/* memory of all jobs with long texts together; a job that exceeds it alone runs alone */
#define TEXT_LONG_BYTES ((size_t)256 << 20)

typedef struct text_pool text_pool;

struct quire_event;

/* A job; the pool owns nothing in it. The pool uses next while the job waits, and a queue
 * while it waits there (stream_deliver). */
typedef struct text_job {
    void (*run)(struct text_job *job); /* on a text thread; the pool does not touch the job afterwards */
    /* Takes over the finished job, on the thread of the queue to which it was
     * delivered. True: *out is an event. */
    bool (*take)(struct text_job *job, struct quire_event *out);
    uint64_t tenant; /* tenant on whose turn it runs: text_tenant() */
    size_t n_bytes;  /* approximate size of its text */
    /* true once the result is not needed, so that turn_poll gives QUIRE_CANCELLED;
     * NULL: never */
    const atomic_bool *is_off;
    /* the pool's: what its tenant has used; the pool's work when it was added */
    int64_t tenant_used_us, added_us;
    struct text_job *next;
} text_job;

/* The name of a tenant, as a number. */
uint64_t text_tenant(const char *name);

/* n_running: threads that run quick jobs at once, and slow ones, from 1 to
 * TEXT_POOL_THREADS. n_threads: threads that there may be, n_running at least; the others
 * hold jobs that wait in the middle. Without others a job runs to its end. */
quire_err text_pool_open(int32_t n_running, int32_t n_threads, text_pool **out);
/* Runs the jobs that wait, then ends the threads. */
void text_pool_close(text_pool *p);
/* Allocates nothing. */
void text_pool_add(text_pool *p, text_job *job);

#endif
