/* A command as one row: its name, its help text, the flags that it takes and the function
 * that runs it.
 *
 * The row is the last thing in the command's own file. A program is a list of rows
 * (dispatch.h). */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "cli/flags.h"

/* What may follow the name beside flags. */
typedef enum command_argument {
    ARGUMENT_NONE,  /* nothing */
    ARGUMENT_NAME,  /* a name, to cli_options.argument */
    ARGUMENT_TRACE, /* a file of requests, likewise */
    ARGUMENT_MODEL, /* a model, to cli_options.engine.model; it is an error without one */
    /* as ARGUMENT_MODEL, then an optional file, stored in cli_options.argument */
    ARGUMENT_MODEL_FILE,
    ARGUMENT_MODEL_OR_BUILTIN, /* as ARGUMENT_MODEL, but the built-in model is the default */
    ARGUMENT_MODELS,           /* as ARGUMENT_MODEL; more may follow, or --model-dir has them */
    ARGUMENT_MODEL_OR_NONE     /* an optional model; without one NULL, which has a meaning for the command */
} command_argument;

typedef struct command {
    const char *name; /* one word or two: "run", "bench kv" */
    const char *summary, *usage, *examples;
    command_argument argument;
    const flag *const *flags; /* groups, in the order of --help; ends with NULL */
    size_t options_size;      /* size of the options: a cli_options, or a struct that begins with one */
    /* sets what cli_options_init does not know or sets otherwise; may be NULL */
    void (*defaults)(cli_options *o);
    /* runs before a model by name is fetched; may be NULL */
    quire_err (*begin)(cli_options *o, quire_error *err);
    /* INVALID: the exit status of a command that was not understood */
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
/* Writes the flag's meaning, with its default; defaults may be NULL: without. */
void command_meaning(cli_options *defaults, const flag *f, char *out, size_t n);

#endif
