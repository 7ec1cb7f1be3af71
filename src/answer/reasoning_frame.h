/* The text around an answer that a rule binds: the model's reasoning, and the marks of
 * its format. */
#ifndef ANSWER_REASONING_FRAME_H
#define ANSWER_REASONING_FRAME_H

#include "answer/answer_format.h"
#include "answer/part_arena.h"

typedef struct reasoning_frame {
    const answer_format *format; /* NULL: there is only the answer */
    /* formats whose opening marks end the reasoning; NULL: none */
    const answer_format *calls;
    output_start start;
} reasoning_frame;

/* Whether an answer begins inside the reasoning. */
bool reasoning_begins(const reasoning_frame *f);
/* Whether anything may surround the answer. */
bool reasoning_frame_is_empty(const reasoning_frame *f);
/* The answer with the text around it: the reasoning up to its closing mark, begun by an
 * opening mark unless the answer begins inside it; and marks that the format drops. */
grammar_part reasoning_frame_around(part_arena *a, const reasoning_frame *f, const grammar_marks *marks,
                                    const grammar_part *answer);

#endif
