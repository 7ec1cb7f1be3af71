/* The commands of quire, and what their files share. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/flags.h"
#include "cli/session.h"

/* A command as one row: its name, its help text, the flags that it takes and the function
 * that runs it.
 *
 * The row is the last thing in the command's own file. A program is a list of rows
 * (dispatch.h). */

/* What may follow the name besides flags. */
typedef enum command_argument {
    ARGUMENT_NONE,  /* nothing */
    ARGUMENT_NAME,  /* a name, to cli_options.argument */
    ARGUMENT_TRACE, /* a file of requests, likewise */
    ARGUMENT_MODEL, /* a model, to cli_options.engine.model; it is an error without one */
    /* as ARGUMENT_MODEL, then an optional file, stored in cli_options.argument */
    ARGUMENT_MODEL_FILE,
    ARGUMENT_MODEL_OR_BUILTIN, /* as ARGUMENT_MODEL, but the built-in model is the default */
    ARGUMENT_MODELS,           /* as ARGUMENT_MODEL; more may follow, or --model-dir has them */
    ARGUMENT_MODEL_OR_NONE     /* an optional model; NULL without one, which the command handles */
} command_argument;

typedef struct command {
    const char *name; /* one word or two: "run", "bench kv" */
    const char *summary, *usage, *examples;
    command_argument argument;
    const flag *const *flags; /* groups, in the order of --help; ends with NULL */
    size_t options_size;      /* size of the options: a cli_options, or a struct that begins with one */
    /* overrides defaults of cli_options_init, and sets the command's own; may be NULL */
    void (*defaults)(cli_options *o);
    /* runs before a model by name is fetched; may be NULL */
    quire_err (*begin)(cli_options *o, quire_error *err);
    /* INVALID gives the exit status of a command that was not understood */
    quire_err (*run)(const cli_options *o, quire_error *err);
} command;

enum { COMMAND_MEANING_BYTES = 320 };

/* A command's options with its defaults; freed by command_options_free. NULL when out of
 * memory. */
cli_options *command_options_new(const command *c);
void command_options_free(cli_options *o);

/* Writes the flag's default, taken from a command's initial options, as on a command
 * line. False: there is no default to show. */
bool command_default(cli_options *defaults, const flag *f, char *out, size_t n);
/* Writes the flag's meaning, with its default unless `defaults` is NULL. */
void command_meaning(cli_options *defaults, const flag *f, char *out, size_t n);

extern const command command_run, command_serve, command_tokenize, command_logits, command_inspect,
    command_pack, command_pull, command_list, command_rm;
/* All of them, in the order of --help; ends with NULL. */
extern const command *const quire_commands[];

/* prompt.c: flags that are fields of a request; seldom needed ones are in the
 * second. */
extern const flag flags_sampling[], flags_more_sampling[], flags_rules[], flags_ending[];

/* terminal_chat.c: a conversation on the terminal, or with --complete completions line by
 * line. */
quire_err chat_loop(const cli_options *o, session *s, quire_error *err);

/* batch_file.c: checks --prompts, --out and --resume before a model is loaded:
 * INVALID. */
quire_err batch_file_check(const cli_options *o, quire_error *err);
/* Runs every line of o->prompts at once. When all responses are there, they go to o->out
 * in the same order (batch_part.h). A line that fails gets its error as response. On
 * SIGINT or SIGTERM it finishes the responses that have begun and ends: CANCELLED, and
 * err has the command to resume. */
quire_err batch_file_run(const cli_options *o, session *s, quire_error *err);
/* One response as a line of that file. */
quire_err batch_file_write_one(const char *path, const response *a, quire_error *err);

/* run_embed.c: `quire run --embed` and its flags. The check is made with and without
 * --embed: INVALID. */
extern const flag flags_embed[];
quire_err embed_check(const cli_options *o, quire_error *err);
quire_err embed_run(const cli_options *o, quire_error *err);

/* program_run.c: reads the file of --program into *text and checks it, before a model is
 * loaded: BAD_REQUEST names the step that is wrong. */
quire_err program_run_check(const char *path, strbuf *text, quire_error *err);
/* Runs it to its end and prints its report. */
quire_err program_run_file(session *s, const strbuf *text, quire_error *err);
/* The same on the API of --api, without a local model. */
quire_err program_run_api(const cli_options *o, const strbuf *text, quire_error *err);

/* prompt.c: INVALID if more than one of -p, -f and other sources of text is given, or if
 * -p is not UTF-8. */
quire_err prompt_check(const cli_options *o, quire_error *err);
/* Appends the prompt from -p, -f, or standard input. BAD_FILE if it is not UTF-8. */
quire_err prompt_read(const cli_options *o, strbuf *out, quire_error *err);

/* request_begin starts a request's body with the flags' fields and -n.
 * request_complete adds defaults once everything else is set: without -n, all tokens that
 * fit; and where neither the body nor the model sets how tokens are sampled, the defaults
 * of terminal programs. */
quire_err request_begin(const cli_options *o, body *out, quire_error *err);
quire_err request_complete(const session *s, quire_endpoint endpoint, body *b, quire_error *err);
/* Both, with a text prompt set in between. */
quire_err request_of_prompt(const cli_options *o, const session *s, str prompt, body *out, quire_error *err);
/* Logs once which of these defaults are used because no sampling was chosen. */
void request_announce_defaults(const cli_options *o, const session *s);

#endif
