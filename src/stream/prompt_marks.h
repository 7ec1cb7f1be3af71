/* Marks of a prompt: positions at which later prompts with the same beginning may part
 * from it. A model with recurrent states takes snapshots there (engine_request.marks).
 *
 * They are where control tokens of the template end a message and begin the next one,
 * the answer included: there a conversation's next turn departs if it edits a message,
 * drops the reasoning of one, or renders it differently. Pure. */
#ifndef STREAM_PROMPT_MARKS_H
#define STREAM_PROMPT_MARKS_H

#include "text/tokenizer.h"

/* Fills marks[0..most) with the places, the last first, where the last control tokens of
 * ids[0..n) begin; those close together are one place. Returns how many there are. t may
 * be NULL: none. O(n). */
int32_t prompt_marks(const tokenizer *t, const int32_t *ids, int32_t n, int32_t most, int32_t *marks);

#endif
