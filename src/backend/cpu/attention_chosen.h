/* Attention to the keys that each row has chosen, which are copied into a contiguous
 * buffer.
 *
 * Owner: the thread that runs the step; the choice is read by workers. */
#ifndef CPU_ATTENTION_CHOSEN_H
#define CPU_ATTENTION_CHOSEN_H

#include "backend/cpu/attention_tile.h"

/* Whether some row of the step has chosen fewer keys than it sees. If not, attention to
 * chosen keys is attention to all: the same arithmetic, by the work list. */
bool attn_choice_counts(const attn_job *job);
/* Attention of all rows of the step to the keys that they have chosen. */
void attn_run_chosen(const attn_job *job);

#endif
