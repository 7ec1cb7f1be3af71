/* Tokens that end an answer, by the texts of a vocabulary. A model's files name end
 * tokens by id, often not all: a converted chat model has the end of a text there and
 * means the end of a turn too. */
#ifndef TEXT_TURN_ENDS_H
#define TEXT_TURN_ENDS_H

#include "text/tokenizer.h"

#define TURN_ENDS_MAX 32

typedef enum turn_end_reason {
    TURN_END_BY_TEXT, /* GGUF: a control or user-defined token with one of the published texts */
    TURN_END_BY_NAME  /* the tokenizer's eos_token */
} turn_end_reason;

typedef struct turn_ends {
    struct {
        int32_t id;
        turn_end_reason reason;
    } tokens[TURN_ENDS_MAX];
    int32_t n;
    int32_t goes_on[2]; /* tokens that end no answer of this vocabulary, whatever the files say; -1: none */
} turn_ends;

/* Finds the end tokens of v. t: its tokenizer, or NULL, so that only texts in v itself
 * are searched. O(tokens). */
turn_ends turn_ends_find(const vocab *v, const tokenizer *t);

#endif
