/* The input of a call of a custom tool: what its arguments, {"input": "text"}, hold as a
 * string, read while they stream.
 *
 * Arguments of another form are the input as they stand. Owner: the choice. */
#ifndef ANSWER_CUSTOM_INPUT_H
#define ANSWER_CUSTOM_INPUT_H

#include <stdint.h>

#include "answer/unescape.h"

typedef struct custom_input {
    uint8_t stage, n_seen;
    char seen[16]; /* bytes before the string, while they may still be those */
    unescape text; /* inside the string */
} custom_input;

/* Reads the next piece of the arguments of a call; a zeroed struct is one that has read
 * nothing. Appends what it adds to the input. QUIRE_NO_MEMORY. */
quire_err custom_input_feed(custom_input *c, str piece, strbuf *out);

#endif
