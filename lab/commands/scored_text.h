/* The text of a command that scores one: a file's, or the ids of --ids-file. */
#ifndef LAB_COMMANDS_SCORED_TEXT_H
#define LAB_COMMANDS_SCORED_TEXT_H

#include "base/err.h"
#include "cli/files.h"
#include "lab/bench/score_text.h"
#include "lab/commands/lab_commands.h"

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

#endif
