/* The compute pool: a team of threads that run one function together, part by part.
 *
 * The caller is member 0. Idle members spin for a moment and then sleep on a futex-like condition: 0% CPU when nothing runs.
 * Owner: the engine thread; team_run is called by one thread at a time. Every member sets the floating-point control word (round to
 * nearest, denormals kept), so results do not depend on who computes a part. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct team team;

/* Does part `part` of n_parts. member (0..n_members) indexes per-thread scratch. */
typedef void (*team_fn)(void *context, int32_t part, int32_t member);

/* n_threads >= 1, caller included; 0: team_cpus(). */
quire_err team_open(int32_t n_threads, team **out);
void team_close(team *t);
int32_t team_size(const team *t);
/* Runs fn for every part in 0..n_parts (at most 16,000,000), in any order, on all members; returns when all are done. Allocates nothing. */
void team_run(team *t, team_fn fn, void *context, int32_t n_parts);
/* How many cores this process may use, by affinity and cgroup quota; at least 1. Hyperthreads of a core count once: one thread fills the
 * units that kernels use. */
int32_t team_cpus(void);

/* Binds member i to processor cpus[i] of cpus[0..team_size); once, before team_enter. false: the system would not have it. */
bool team_bind(team *t, const int32_t *cpus);
/* In a bound team the thread that calls team_run is bound as member 0 from enter to leave, both of which it calls itself. Runs outside of them are
 * right too, but the scheduler places the caller. In a team that is not bound: nothing. false: the system would not have it. */
bool team_enter(team *t);
void team_leave(team *t);

#endif
