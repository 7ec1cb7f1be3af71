/* The commands. Each gets its parsed options and returns what went wrong, with err filled; main prints it and picks the exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/session.h"

/* run.c: one prompt, streamed to stdout; hands over to the batch or the chat where the options ask for them. */
quire_err command_run(const cli_options *o, quire_error *err);
quire_err command_serve(const cli_options *o, quire_error *err);
quire_err command_tokenize(const cli_options *o, quire_error *err);
quire_err command_logits(const cli_options *o, quire_error *err);
/* pack.c: o->out is where the packed model goes. */
quire_err command_pack(const cli_options *o, quire_error *err);
quire_err command_inspect(const cli_options *o, quire_error *err);
/* demo_radix.c: a demonstration that needs the terminal; the others are of src/bench. */
quire_err demo_radix_run(const demo_options *o, quire_error *err);

/* chat.c: a conversation on the terminal, or completions line by line where the model has no chat template. */
quire_err chat_loop(const cli_options *o, session *s, quire_error *err);

/* batch_file.c: every line of o->prompts at once; the answers go to o->out in the same order. A line that fails has its error as answer. */
quire_err batch_file_run(const cli_options *o, session *s, quire_error *err);
/* One answer as a line of that file. */
quire_err batch_file_write_one(const char *path, const answer *a, quire_error *err);

/* run.c: a request body with the flags' fields and -n; NULL when out of memory. */
json_object *request_body(const cli_options *o);
/* Sets max_tokens to what is left after a prompt, when -n asks for no limit. */
quire_err request_fill_length(const cli_options *o, session *s, json_object *body, const char *prompt, quire_error *err);

#endif
