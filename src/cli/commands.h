/* The commands of quire, and what their files do for each other. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/command.h"
#include "cli/session.h"

extern const command command_run, command_serve, command_tokenize, command_logits, command_inspect, command_pack;
/* All of them, in the order of --help; ends with NULL. */
extern const command *const quire_commands[];

/* terminal_chat.c: a conversation on the terminal, or completions line by line where the model has no chat template. */
quire_err chat_loop(const cli_options *o, session *s, quire_error *err);

/* batch_file.c: what is wrong with --prompts, --out and --resume before a model is loaded: INVALID. */
quire_err batch_file_check(const cli_options *o, quire_error *err);
/* Every line of o->prompts at once; the responses go to o->out in the same order, when all are there (batch_part.h). A line that fails has
 * its error as response. SIGINT or SIGTERM ends it when the responses that have begun are finished: CANCELLED, and err says how to go on.
 */
quire_err batch_file_run(const cli_options *o, session *s, quire_error *err);
/* One response as a line of that file. */
quire_err batch_file_write_one(const char *path, const response *a, quire_error *err);

/* prompt.c: INVALID where more than one of -p, -f and what else gives a text is there, or where -p is not UTF-8. */
quire_err prompt_check(const cli_options *o, quire_error *err);
/* Appends the prompt: -p, -f, or standard input. BAD_FILE where it is not UTF-8. */
quire_err prompt_read(const cli_options *o, strbuf *out, quire_error *err);

/* run.c: a request's body begins with the flags' fields and -n; once it has what else it says, it is completed: -n of none is all that
 * fits, and where neither it nor the model says how tokens are chosen, as terminal programs do. */
quire_err request_begin(const cli_options *o, body *out, quire_error *err);
quire_err request_complete(const session *s, quire_endpoint endpoint, body *b, quire_error *err);

#endif
