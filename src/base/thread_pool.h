/* The thread pool runs one function over numbered tasks on several threads.
 *
 * Its threads are workers; the caller is worker 0. Idle workers spin briefly and then
 * sleep: 0% CPU when nothing runs. Owner: the engine thread; one thread at a time calls
 * thread_pool_run. Every worker sets the floating-point control word (round to nearest,
 * denormals kept), so results do not depend on which worker runs a task. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct thread_pool thread_pool;

/* Runs task `task` of n_tasks. worker (0..n_workers) indexes per-thread scratch. */
typedef void (*thread_pool_fn)(void *context, int32_t task, int32_t worker);

/* Opens a pool of n_threads, caller included; 0: thread_pool_cpus(). QUIRE_INVALID: not
 * in 0..4096. QUIRE_NO_MEMORY: no memory, or no thread could be started. */
quire_err thread_pool_open(int32_t n_threads, thread_pool **out);
/* Adds a reference, which thread_pool_close drops, and returns the pool. Any thread. */
thread_pool *thread_pool_hold(thread_pool *t);
/* Drops a reference; dropping the last one ends the threads. NULL is allowed. */
void thread_pool_close(thread_pool *t);
int32_t thread_pool_size(const thread_pool *t);
/* Runs fn for every task in 0..n_tasks (at most 16,000,000), in any order, on all
 * workers; returns when all are done. Worker w takes the tasks w, w + n_workers, w + 2
 * n_workers .., and then any that other workers have not started. Allocates nothing. */
void thread_pool_run(thread_pool *t, thread_pool_fn fn, void *context, int32_t n_tasks);
/* Call in each iteration of a loop that waits for another worker: pauses or, after many
 * iterations, yields the processor to it. turn: number of iterations so far. */
void thread_pool_pause(int32_t turn);
/* Returns the number of cores that affinity and cgroup quota allow, at least 1. A core's
 * hyperthreads count once: one thread saturates the units that kernels use. */
int32_t thread_pool_cpus(void);

/* Binds each worker i to processor cpus[i], i < thread_pool_size(t). Call it once, before
 * thread_pool_enter. False: the system refused. */
bool thread_pool_bind(thread_pool *t, const int32_t *cpus);
/* In a bound thread pool, binds the calling thread as worker 0 until thread_pool_leave.
 * The thread that calls thread_pool_run also calls these two. A run outside of them is
 * correct, but the system chooses the caller's processor. Does nothing in a pool that is
 * not bound. False: the system refused. */
bool thread_pool_enter(thread_pool *t);
void thread_pool_leave(thread_pool *t);

/* Runs fn on a new thread of low priority, and returns when fn has. That thread, and
 * threads that fn starts, get about a tenth of the time of a normal thread on the same
 * processor. False: no thread could be started; fn was not called. */
bool thread_run_low(void (*fn)(void *context), void *context);

#endif
