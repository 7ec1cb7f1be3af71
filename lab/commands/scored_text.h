/* The text of a command that scores one: a file's, or the ids of --ids-file. */
#ifndef LAB_COMMANDS_SCORED_TEXT_H
#define LAB_COMMANDS_SCORED_TEXT_H

#include "base/err.h"
#include "base/str.h"
#include "cli/files.h"
#include "core/model_desc.h"
#include "file/model_file.h"
#include "lab/commands/lab_commands.h"
#include "text/tokenizer.h"

/* The tokens of a text that a model is scored on: those of its own vocabulary, or ids as
 * given. */
typedef struct score_text {
    const char *name; /* for messages */
    str text;
    const int32_t *ids; /* in place of the text, n_ids of them; NULL: the text counts */
    size_t n_ids;
} score_text;

typedef struct scored_text {
    strbuf text;
    id_list ids;
} scored_text;

/* Reads what the command of that name scores into *memory, which *out borrows. INVALID
 * unless o names a file or --ids-file, one of them; else the errors of reading it. The
 * caller calls scored_text_deinit in either case. */
quire_err scored_text_read(const cli_options *o, const char *name, scored_text *memory, score_text *out,
                           quire_error *err);
void scored_text_deinit(scored_text *memory);

/* Describes the model and appends the text's tokens to ids, with what the tokenizer puts
 * before a text (BOS). QUIRE_UNSUPPORTED for a model that gives no tokens, QUIRE_INVALID
 * for an id that it lacks; err also says when it has no vocabulary. */
quire_err score_text_read(const score_text *t, const model_file *f, model_desc *d, token_list *ids,
                          quire_error *err);

#endif
