/* What a request says to the parser of its answer. */
#ifndef ANSWER_OUTPUT_OPTIONS_H
#define ANSWER_OUTPUT_OPTIONS_H

#include "answer/answer_format.h"

#define OUTPUT_MAX_HELD ((size_t)1 << 20)

/* Tools and texts are borrowed until the parser closes. */
typedef struct output_options {
    const char *tools_format, *reasoning_format; /* names of answer_format.h; NULL: none */
    const output_tool *tools;
    size_t n_tools; /* 0: nothing is a call */
    output_choice choice;
    str named;
    output_start start;
    /* Whether a text is a token that the vocabulary adds to its ordinary ones (control or
     * user-defined): such a mark counts only where it is fed as a special token. NULL:
     * none is. */
    bool (*is_special)(const void *context, str text);
    const void *special_context;
    bool drops_specials; /* special tokens that are no marks are left out of content and reasoning */
    size_t max_held;     /* bytes; 0: OUTPUT_MAX_HELD. At least two marks fit in any case */
} output_options;

#endif
