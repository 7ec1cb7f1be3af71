/* Attention to the keys that each row has selected (backend choose), copied into a
 * contiguous buffer.
 *
 * Owner: the thread that runs the step; workers read the selection. */
#ifndef CPU_ATTENTION_CHOSEN_H
#define CPU_ATTENTION_CHOSEN_H

#include "backend/cpu/attention_tile.h"

/* Whether some row of the step has selected fewer keys than it sees. If not, attention to
 * selected keys is plain attention: the same arithmetic, by the work list. */
bool attn_choice_counts(const attn_job *job);
/* Computes attention of all rows of the step to their selected keys. */
void attn_run_chosen(const attn_job *job);

#endif
