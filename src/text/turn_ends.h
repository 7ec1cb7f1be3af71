/* Tokens that end an answer, found by the texts of a vocabulary. A model's files name end
 * tokens by id, but often not all: converted chat models may name only the end of a text,
 * and use the end of a turn too. */
#ifndef TEXT_TURN_ENDS_H
#define TEXT_TURN_ENDS_H

#include "core/model_desc.h"
#include "text/tokenizer.h"
#include "json/json_out.h"

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
    /* tokens that do not end answers of this vocabulary, even if the files say so; -1:
     * none */
    int32_t goes_on[2];
} turn_ends;

/* Finds the end tokens of v. t: its tokenizer; NULL: only v's own texts are searched.
 * O(tokens). */
turn_ends turn_ends_find(const vocab *v, const tokenizer *t);

/* The tokens that end a model's answers: those that its files name by id, and those that
 * its vocabulary suggests. */

typedef struct answer_end {
    int32_t id;
    const char *reason; /* a static phrase such as "by its text" */
    char text[48];      /* printable, perhaps truncated; empty: not in the vocabulary */
} answer_end;

typedef struct answer_ends {
    answer_end list[DESC_MAX_EOS];
    int32_t n;
} answer_ends;

/* The end tokens of a model with description d, vocabulary v and tokenizer t (NULL:
 * none). */
answer_ends answer_ends_find(const vocab *v, const tokenizer *t, const model_desc *d);
/* Sets the description's end tokens. */
void answer_ends_apply(const answer_ends *ends, model_desc *d);
/* Appends them as one line, `<|im_end|> (338, by its text), ..`, or "none".
 * QUIRE_NO_MEMORY. */
quire_err answer_ends_print(const answer_ends *ends, strbuf *out);
/* Writes them as an array of {"id", "text", "from"}. */
void answer_ends_json(const answer_ends *ends, json_out *o);

#endif
