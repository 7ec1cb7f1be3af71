/* The tokens that end a model's answers: those that its files name by id, and those that
 * its vocabulary suggests (text/turn_ends.h). */
#ifndef SETUP_ANSWER_ENDS_H
#define SETUP_ANSWER_ENDS_H

#include "core/model_desc.h"
#include "text/turn_ends.h"
#include "json/json_out.h"

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
