/* Which formats a chat template has, and how the answer to a prompt begins. Any
 * thread. */
#ifndef ANSWER_OUTPUT_DETECT_H
#define ANSWER_OUTPUT_DETECT_H

#include "answer/output_options.h"

/* How an answer begins behind a prompt that ends in `tail`, what it has behind its last
 * message: inside the reasoning, behind a closed block, or `otherwise` where the tail has
 * no mark. For a format that the template chose, that is OUTPUT_START_MARKED: such a
 * template opens the reasoning itself, or leaves the mark to the model. For a format that
 * a person named it is OUTPUT_START_UNKNOWN. */
output_start output_start_behind(const char *reasoning_format, str tail, output_start otherwise);

/* The formats whose marks a chat template has; NULL: none of them. Borrowed, static. */
typedef struct output_formats {
    const char *tools, *reasoning;
} output_formats;
output_formats output_formats_of_template(str chat_template);

#endif
