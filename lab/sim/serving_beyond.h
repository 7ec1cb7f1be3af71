/* What a simulated server has beyond pages and rows: host memory for preempted requests,
 * as `--swap-space`, and guesses, as `--speculative-config`, whose chance to be right is
 * given. */
#ifndef LAB_SIM_SERVING_BEYOND_H
#define LAB_SIM_SERVING_BEYOND_H

#include "lab/sim/serving_state.h"

/* What a server's own memory has to lend to swap space, which moves no bytes here. */
const kv_mover *serving_mover(void);
/* Gives s->kv swap space of o->swap_tokens. QUIRE_NO_MEMORY. */
quire_err serving_open_swap(serving *s);

/* Hooks (sched/scheduler.h) of a server with pages; the context is the serving. */
extern const sched_hooks SERVING_PAGES;

/* How many of n guesses behind n_known tokens of a request are right; depends on these,
 * the acceptance and nothing else. */
int32_t serving_accepted(const serving_options *o, uint64_t request, int32_t n_known, int32_t n);

#endif
