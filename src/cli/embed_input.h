/* The inputs of `quire run --embed`: one from the command line or standard input, or a
 * file's, one a line. One thread. */
#ifndef CLI_EMBED_INPUT_H
#define CLI_EMBED_INPUT_H

#include "cli/options.h"

/* Zero-initialised is empty. */
typedef struct embed_inputs {
    quire_input *list; /* [n] mem_new'd; what they point to belongs to it */
    strbuf *pairs;     /* [n] the second text of each; p NULL: it has none */
    size_t n, cap, cap_pairs;
} embed_inputs;

void embed_inputs_deinit(embed_inputs *in);
/* Reads what o names: -p, -f, --text-pair, --ids with --types, the lines of --prompts, or
 * standard input. A line is a text, an array of ids, or an object with either as "input"
 * or "prompt", with "text_pair" beside a text and "token_type_ids" of ids. INVALID or
 * BAD_FILE: err names flag or line. */
quire_err embed_inputs_read(const cli_options *o, embed_inputs *in, quire_error *err);
/* Makes ids with token types of the inputs that are two texts. */
quire_err embed_inputs_join(embed_inputs *in, const quire_engine *e, quire_error *err);

#endif
