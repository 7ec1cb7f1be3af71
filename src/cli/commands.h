/* The commands of quire, and what the commands' files share. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/flags.h"
#include "cli/session.h"

/* A command is one row: its name, help text, flags, and the function that runs it.
 *
 * The row is at the end of the command's own file. A program is a list of rows
 * (dispatch.h). */

/* The arguments that may follow a command's name besides flags. */
typedef enum command_argument {
    ARGUMENT_NONE,  /* nothing */
    ARGUMENT_NAME,  /* a name, stored in cli_options.argument */
    ARGUMENT_TRACE, /* a file of requests, stored in cli_options.argument */
    ARGUMENT_MODEL, /* a required model, stored in cli_options.engine.model */
    /* as ARGUMENT_MODEL, then an optional file, stored in cli_options.argument */
    ARGUMENT_MODEL_FILE,
    ARGUMENT_MODEL_OR_BUILTIN, /* as ARGUMENT_MODEL, with the built-in model as default */
    /* models, stored in engine.model and more_models; none is needed with --model-dir */
    ARGUMENT_MODELS,
    ARGUMENT_MODEL_OR_NONE /* an optional model; without one, engine.model is NULL */
} command_argument;

typedef struct command {
    const char *name; /* one word or two: "run", "bench kv" */
    const char *summary, *usage, *examples;
    command_argument argument;
    const flag *const *flags; /* groups, in the order of --help; ends with NULL */
    size_t options_size;      /* size of its options: a cli_options, or a struct that begins with one */
    /* changes the defaults that cli_options_init has set; may be NULL */
    void (*defaults)(cli_options *o);
    /* runs before a model that was given by name is fetched; may be NULL */
    quire_err (*begin)(cli_options *o, quire_error *err);
    /* runs the command. QUIRE_INVALID: not understood; the exit status is 2 */
    quire_err (*run)(const cli_options *o, quire_error *err);
} command;

enum { COMMAND_MEANING_BYTES = 320 };

/* Makes a command's options with its defaults; freed by command_options_free. NULL: out
 * of memory. */
cli_options *command_options_new(const command *c);
void command_options_free(cli_options *o);

/* Writes the flag's default, as on a command line, from the command's initial options
 * `defaults`. out: [n]. False: there is no default to show. */
bool command_default(cli_options *defaults, const flag *f, char *out, size_t n);
/* Writes the flag's meaning, with its default unless `defaults` is NULL. out: [n]. */
void command_meaning(cli_options *defaults, const flag *f, char *out, size_t n);

extern const command command_run, command_serve, command_tokenize, command_logits, command_inspect,
    command_pack, command_pull, command_list, command_rm;
/* All commands of quire, in the order of --help; ends with NULL. */
extern const command *const quire_commands[];

/* prompt.c: flags that are fields of a request; flags_more_sampling: rarely needed
 * ones. */
extern const flag flags_sampling[], flags_more_sampling[], flags_rules[], flags_ending[];

/* terminal_chat.c: runs a conversation on the terminal or, with --complete, completes
 * each line. */
quire_err chat_loop(const cli_options *o, session *s, quire_error *err);

/* batch_file.c: checks --prompts, --out and --resume before a model is loaded:
 * INVALID. */
quire_err batch_file_check(const cli_options *o, quire_error *err);
/* Runs all lines of o->prompts, many at once. The responses go to o->out in the same
 * order, when all are there (batch_part.h). A line that fails gets its error as response.
 * On SIGINT or SIGTERM, responses that have begun are finished; then QUIRE_CANCELLED, and
 * err has the command that resumes. */
quire_err batch_file_run(const cli_options *o, session *s, quire_error *err);
/* Writes one response as a line of the file at path. */
quire_err batch_file_write_one(const char *path, const response *a, quire_error *err);

/* run_embed.c: `quire run --embed` and its flags. embed_check is called with and without
 * --embed. QUIRE_INVALID. */
extern const flag flags_embed[];
quire_err embed_check(const cli_options *o, quire_error *err);
quire_err embed_run(const cli_options *o, quire_error *err);

/* program_run.c: reads the file at path (--program) into *text and checks it, before a
 * model is loaded. QUIRE_BAD_REQUEST: err names the wrong step. */
quire_err program_run_check(const char *path, strbuf *text, quire_error *err);
/* Runs the program `text` to its end and prints its report. */
quire_err program_run_file(session *s, const strbuf *text, quire_error *err);
/* As program_run_file, on the API of --api, without a local model. */
quire_err program_run_api(const cli_options *o, const strbuf *text, quire_error *err);

/* prompt.c: QUIRE_INVALID: more than one source of text (-p, -f ..) is given, or -p is
 * not UTF-8. */
quire_err prompt_check(const cli_options *o, quire_error *err);
/* Appends the prompt from -p, -f, or standard input. QUIRE_BAD_FILE: it is not UTF-8. */
quire_err prompt_read(const cli_options *o, strbuf *out, quire_error *err);

/* request_begin starts a request's body with the flags' fields and -n. request_complete,
 * called last, adds defaults: without -n, as many tokens as fit; if neither the body nor
 * the model chooses a sampling method, the sampling defaults of terminal programs. */
quire_err request_begin(const cli_options *o, body *out, quire_error *err);
quire_err request_complete(const session *s, quire_endpoint endpoint, body *b, quire_error *err);
/* Makes the whole body for a text prompt: request_begin, the prompt, request_complete. */
quire_err request_of_prompt(const cli_options *o, const session *s, str prompt, body *out, quire_error *err);
/* Logs request_complete's sampling defaults if they apply and stderr is a terminal. */
void request_announce_defaults(const cli_options *o, const session *s);

#endif
