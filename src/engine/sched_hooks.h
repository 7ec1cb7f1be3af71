/* What the engine adds to the scheduler's decisions (sched/scheduler.h): pages that lie outside the pool, drafts, beams, deadlines, and the
 * events of features.h. The context of every hook is the engine. */
#ifndef ENGINE_SCHED_HOOKS_H
#define ENGINE_SCHED_HOOKS_H

#include "engine/state.h"

/* The hooks of an engine; with `audits` every reservation is recorded in its audit file. */
const sched_hooks *sched_hooks_of(bool audits);

#endif
