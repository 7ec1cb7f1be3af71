/* `quire sim`: replays a request trace through the page pool, the radix index and
 * eviction, by policy and capacity, and says what was found; or serves it, simulated, and
 * says how fast. */
#ifndef LAB_SIM_SIM_H
#define LAB_SIM_SIM_H

#include "lab/sim/sim_options.h"
#include "quire_err.h"

void sim_options_init(sim_options *o);

/* Replays and prints to stdout; err says why it could not. */
quire_err sim_run(const sim_options *o, quire_error *err);

#endif
