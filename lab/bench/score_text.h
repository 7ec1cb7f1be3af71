/* The tokens of a text that a model is scored on: those of its own vocabulary, or ids as
 * given. */
#ifndef LAB_BENCH_SCORE_TEXT_H
#define LAB_BENCH_SCORE_TEXT_H

#include "base/str.h"
#include "core/model_desc.h"
#include "file/model_file.h"
#include "text/tokenizer.h"

typedef struct score_text {
    const char *name; /* for messages */
    str text;
    const int32_t *ids; /* in place of the text, n_ids of them; NULL: the text counts */
    size_t n_ids;
} score_text;

/* Describes the model and appends the text's tokens to ids, with what the tokenizer puts
 * before a text (BOS). QUIRE_UNSUPPORTED for a model that gives no tokens, QUIRE_INVALID
 * for an id that it lacks; err also says when it has no vocabulary. */
quire_err score_text_read(const score_text *t, const model_file *f, model_desc *d, token_list *ids,
                          quire_error *err);

#endif
