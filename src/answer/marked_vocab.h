/* The vocabulary of grammars that tell special tokens from text
 * (grammar/grammar_parts.h), and the list of these tokens. Immutable.
 *
 * Special are a tokenizer's control tokens, and those that a user added, unless they are
 * white space alone: these are text. */
#ifndef ANSWER_MARKED_VOCAB_H
#define ANSWER_MARKED_VOCAB_H

#include "grammar/grammar_parts.h"
#include "text/tokenizer.h"

typedef struct marked_vocab {
    grammar_vocab *vocab;
    grammar_marks marks; /* texts are the tokenizer's */
    grammar_mark *list;  /* of marks */
} marked_vocab;

/* Whether a token is special in that sense. */
bool marked_vocab_is_mark(const tokenizer *t, int32_t id);
/* As grammar_constraint_vocab. t outlives *out, which belongs to the caller. */
quire_err marked_vocab_open(const tokenizer *t, int32_t n_vocab, marked_vocab **out);
void marked_vocab_close(marked_vocab *v);

#endif
