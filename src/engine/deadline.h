/* Requests that must have their first token by a time: which of those that wait cannot make it, and how long until one like them could.
 * They are refused at once, while their clients can still go elsewhere. The engine thread. */
#ifndef ENGINE_DEADLINE_H
#define ENGINE_DEADLINE_H

#include "engine/state.h"

/* What stands before a first token: rows of prompts to compute, its own among them, and the pairs of these; beside them what decodes
 * meanwhile. */
typedef struct deadline_load {
    double rows, pairs;
    int32_t n_decodes;
    double decode_pairs;
} deadline_load;

/* Microseconds until all of it is computed, by the costs and the step target of l. Pure. */
double deadline_foretell_us(const sched_limits *l, const deadline_load *load);

/* Ends every waiting sequence that cannot make its deadline with QUIRE_BUSY and its retry_after_s. Those that the policy
 * admits before it count as before it; behind the first CANDIDATES_EXAMINED of these, who came before it. Says nothing before steps were
 * measured. O(running + CANDIDATES_EXAMINED waiting) where one waits that has a deadline. */
void deadline_check(engine *e, int64_t now_us);

#endif
