/* Deadlines for first tokens: which waiting requests cannot make theirs, and how long until one like them could. These are refused at once,
 * while their clients can still go elsewhere. The engine thread. */
#ifndef ENGINE_DEADLINE_H
#define ENGINE_DEADLINE_H

#include "engine/state.h"

/* The work before a first token: rows of prompts to compute, the request's own included, and their attention pairs; and the sequences that
 * decode meanwhile. */
typedef struct deadline_load {
    double rows, pairs;
    int32_t n_decodes;
    double decode_pairs;
} deadline_load;

/* Predicts the microseconds until all of it is computed, by the costs and the step target of l. Pure. */
double deadline_foretell_us(const sched_limits *l, const deadline_load *load);

/* Ends every waiting sequence that cannot make its deadline, with QUIRE_BUSY and its retry_after_s. Sequences that the policy admits
 * earlier count as work before it: the first CANDIDATES_EXAMINED of them, beyond that those which arrived earlier. Refuses nothing before
 * steps were measured. O(running + CANDIDATES_EXAMINED waiting) where a waiting one has a deadline. */
void deadline_check(engine *e, int64_t now_us);

#endif
