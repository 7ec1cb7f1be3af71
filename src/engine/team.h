/* An engine team: a thread that runs the steps of one or several engines in turn, on
 * compute threads that they share.
 *
 * A step belongs to one engine; sched/scheduler.h has the order. The team's wake is rung
 * when there is work for any of its engines.
 *
 *   engine_team_open -> engine_team_join (the engine runs) -> engine_team_leave -> ..
 *       -> engine_team_drop
 *
 * Threads: join and leave from any thread but the team's own, while others run. */
#ifndef ENGINE_TEAM_H
#define ENGINE_TEAM_H

#include "base/ring.h"
#include "engine/engine.h"

#define ENGINE_TEAM_SEATS 64 /* most engines in a team */

/* Opens a team without engines, with one reference. Its thread starts with the first
 * engine. QUIRE_NO_MEMORY. */
quire_err engine_team_open(engine_team **out);
/* Adds a reference and returns the team. */
engine_team *engine_team_hold(engine_team *t);
/* Drops a reference. The last one ends the thread; by then no engine may be a member.
 * NULL is allowed. */
void engine_team_drop(engine_team *t);
/* The wake of the team's thread; valid as long as a reference is held. */
const wake *engine_team_wake(const engine_team *t);
/* Adds e: from now on the team's thread runs its steps and owns the budget of its pages,
 * and its backend shares the other engines' compute threads (backend_ops.share_threads).
 * QUIRE_TOO_LARGE: the team is full; QUIRE_NO_MEMORY: the thread cannot start;
 * QUIRE_NO_ROOM: e's pages do not fit into the budget. */
quire_err engine_team_join(engine_team *t, engine *e);
/* Removes e, and ends its requests as cancelled. After the call the team's thread does
 * not access e. Does nothing if e has not joined or has left. */
void engine_team_leave(engine_team *t, engine *e);

#endif
