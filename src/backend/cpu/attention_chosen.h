/* Attention to chosen keys: each row's own, which are copied side by side.
 *
 * Owner: the thread that runs the step; the choice is read by workers. */
#ifndef CPU_ATTENTION_CHOSEN_H
#define CPU_ATTENTION_CHOSEN_H

#include "backend/cpu/attention_tile.h"

/* Whether some row of the step has not chosen all that it sees. Else attention to chosen
 * keys is attention to all: the same arithmetic, by the work list. */
bool attn_choice_counts(const attn_job *job);
/* Attention of all rows of the step to the keys that they have chosen. */
void attn_run_chosen(const attn_job *job);

#endif
