/* Marks of a prompt: after how many of its tokens others that begin like it may go on
 * differently. A model with recurrent states keeps these there (engine_request.marks).
 *
 * Control tokens stand where a template ends a message and begins the next one, also the
 * one that is to be generated. There a conversation's next turn leaves this one, if it
 * edits a message, drops the reasoning of one or renders it otherwise. Pure. */
#ifndef STREAM_PROMPT_MARKS_H
#define STREAM_PROMPT_MARKS_H

#include "text/tokenizer.h"

/* Fills marks[0..most) with the places, the last first, where the last control tokens of
 * ids[0..n) begin; those close together are one place. Returns how many there are. t may
 * be NULL: none. O(n). */
int32_t prompt_marks(const tokenizer *t, const int32_t *ids, int32_t n, int32_t most, int32_t *marks);

#endif
