/* The inputs of `quire run --embed`: one from the command line or standard input, or a file's, one a line. One thread. */
#ifndef CLI_EMBED_INPUT_H
#define CLI_EMBED_INPUT_H

#include "cli/options.h"

/* Zero-initialised is empty. */
typedef struct embed_inputs {
    quire_input *list; /* [n] mem_new'd; what they point to belongs to it */
    size_t n, cap;
} embed_inputs;

void embed_inputs_deinit(embed_inputs *in);
/* Reads what o names: -p, -f, --ids with --types, the lines of --prompts, or standard input. A line is a text, an array of ids, or an
 * object with either as "input" or "prompt", and with "token_type_ids" of ids. INVALID or BAD_FILE: err names flag or line. */
quire_err embed_inputs_read(const cli_options *o, embed_inputs *in, quire_error *err);

#endif
