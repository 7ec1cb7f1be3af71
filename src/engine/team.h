/* An engine team: the thread that runs the steps of one or several engines in turn, on
 * compute threads that they share.
 *
 * A step is of one engine; sched/model_turn.h chooses which. All engines of a team share
 * its wake: whoever has news for one of them rings it.
 *
 *   engine_team_open -> engine_team_join (an engine runs) -> engine_team_leave -> ..
 *   -> engine_team_drop
 *
 * Threads: join and leave from any thread but the team's own, while others run. */
#ifndef ENGINE_TEAM_H
#define ENGINE_TEAM_H

#include "base/ring.h"
#include "engine/engine.h"

#define ENGINE_TEAM_SEATS 64 /* most engines of a team */

/* Opens a team without engines, with one reference. Its thread starts with the first
 * engine. QUIRE_NO_MEMORY. */
quire_err engine_team_open(engine_team **out);
/* Adds a reference and gives the team back. */
engine_team *engine_team_hold(engine_team *t);
/* Drops a reference. With the last one, which no engine may have joined under, the thread
 * ends. NULL is allowed. */
void engine_team_drop(engine_team *t);
/* Rings for the team's thread; valid as long as a reference is held. */
const wake *engine_team_wake(const engine_team *t);
/* From now on the thread, which owns the budget of e's pages, runs e's steps; the compute
 * threads of e's backend are those of the others' (backend_ops.share_threads).
 * QUIRE_TOO_LARGE: the team is full; QUIRE_NO_MEMORY: the thread cannot start;
 * QUIRE_NO_ROOM: e's pages do not fit into the budget. */
quire_err engine_team_join(engine_team *t, engine *e);
/* Ends e's requests as cancelled. After the call the thread uses nothing of e. An engine
 * that has not joined, or has left: nothing. */
void engine_team_leave(engine_team *t, engine *e);

#endif
