/* The text around an answer that a rule binds: the model's reasoning, and the marks of
 * its format. */
#ifndef ANSWER_REASONING_FRAME_H
#define ANSWER_REASONING_FRAME_H

#include "answer/answer_format.h"
#include "answer/part_arena.h"

typedef struct reasoning_frame {
    const answer_format *format; /* format of the reasoning; NULL: only an answer, without a frame */
    /* format of calls whose opening marks end the reasoning; NULL: none */
    const answer_format *calls;
    output_start start;
} reasoning_frame;

/* Whether the output begins inside the reasoning. */
bool reasoning_begins(const reasoning_frame *f);
/* Whether nothing may surround the answer: it is the whole output. */
bool reasoning_frame_is_empty(const reasoning_frame *f);
/* Returns the part of a whole output in a's memory: the reasoning up to its closing mark,
 * begun by an opening mark unless the output begins inside it, the answer, and the marks
 * around it that the format drops. answer is borrowed. */
grammar_part reasoning_frame_around(part_arena *a, const reasoning_frame *f, const grammar_marks *marks,
                                    const grammar_part *answer);

#endif
