/* Sequences that enter the engine thread and leave it: submitted ones from the in-ring, cancelled and ended ones. The engine thread. */
#ifndef ENGINE_INTAKE_H
#define ENGINE_INTAKE_H

#include "engine/state.h"

/* Takes in submitted sequences; true when some of them are cancelled already. */
bool intake_new(engine *e);
/* Ends cancelled sequences. There are none unless engine_cancel was called since the last time, or a sequence was cancelled before it was
 * taken in (some_came_so). */
void intake_drop_cancelled(engine *e, bool some_came_so);
/* Removes every sequence in state TASK_DONE from a queue, and drops it. */
void intake_drop_done(sched_task **queue, int32_t *n);

#endif
