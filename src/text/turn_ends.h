/* Tokens that end an answer, by the texts of a vocabulary. A model's files name end
 * tokens by id, often not all: a converted chat model has the end of a text there and
 * means the end of a turn too. */
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
    int32_t goes_on[2]; /* tokens that end no answer of this vocabulary, whatever the files say; -1: none */
} turn_ends;

/* Finds the end tokens of v. t: its tokenizer, or NULL, so that only texts in v itself
 * are searched. O(tokens). */
turn_ends turn_ends_find(const vocab *v, const tokenizer *t);

/* The tokens that end a model's answers: those that its files name by id, and those that
 * its vocabulary suggests (text/turn_ends.h). */

typedef struct answer_end {
    int32_t id;
    const char *reason; /* a phrase, static: "by its text" */
    char text[48];      /* safe to show, perhaps cut; empty: not in the vocabulary */
} answer_end;

typedef struct answer_ends {
    answer_end list[DESC_MAX_EOS];
    int32_t n;
} answer_ends;

/* The end tokens of a model whose files give the description d, with the vocabulary v and
 * its tokenizer t (NULL: there is none). */
answer_ends answer_ends_find(const vocab *v, const tokenizer *t, const model_desc *d);
/* Sets a description's end tokens to these. */
void answer_ends_apply(const answer_ends *ends, model_desc *d);
/* Appends them in one line, `<|im_end|> (338, by its text), ..`; "none" for none.
 * QUIRE_NO_MEMORY. */
quire_err answer_ends_print(const answer_ends *ends, strbuf *out);
/* Writes them as an array of {"id", "text", "from"}. */
void answer_ends_json(const answer_ends *ends, json_out *o);

#endif
