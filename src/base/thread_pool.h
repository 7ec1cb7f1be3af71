/* The compute pool: a thread pool of threads that run one function together, task by task.
 *
 * The caller is worker 0. Idle workers spin for a moment and then sleep on a futex-like condition: 0% CPU when nothing runs.
 * Owner: the engine thread; thread_pool_run is called by one thread at a time. Every worker sets the floating-point control word (round to
 * nearest, denormals kept), so results do not depend on who computes a task. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct thread_pool thread_pool;

/* Does task `task` of n_tasks. worker (0..n_workers) indexes per-thread scratch. */
typedef void (*thread_pool_fn)(void *context, int32_t task, int32_t worker);

/* n_threads >= 1, caller included; 0: thread_pool_cpus(). */
quire_err thread_pool_open(int32_t n_threads, thread_pool **out);
void thread_pool_close(thread_pool *t);
int32_t thread_pool_size(const thread_pool *t);
/* Runs fn for every task in 0..n_tasks (at most 16,000,000), in any order, on all workers; returns when all are done. Allocates nothing. */
void thread_pool_run(thread_pool *t, thread_pool_fn fn, void *context, int32_t n_tasks);
/* How many cores this process may use, by affinity and cgroup quota; at least 1. Hyperthreads of a core count once: one thread fills the
 * units that kernels use. */
int32_t thread_pool_cpus(void);

/* Binds worker i to processor cpus[i] of cpus[0..thread_pool_size); once, before thread_pool_enter. false: the system would not have it. */
bool thread_pool_bind(thread_pool *t, const int32_t *cpus);
/* In a bound thread pool the thread that calls thread_pool_run is bound as worker 0 from enter to leave, both of which it calls itself.
 * Runs outside of them are right too, but the scheduler places the caller. In a thread pool that is not bound: nothing. false: the system
 * would not have it. */
bool thread_pool_enter(thread_pool *t);
void thread_pool_leave(thread_pool *t);

#endif
