/* A command as one row: its name, its help text, the flags that it takes and the function
 * that runs it.
 *
 * The row is the last thing in the command's own file. A program is a list of rows
 * (dispatch.h). */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "cli/options.h"
#include "options/engine_flags.h"

/* ---- groups of flags ---- */

/* Flags of the command line that are not options of the engine, and the groups of flags
 * that several commands take. */

/* Flags of vLLM and llama-server that scripts carry over: taken without effect, or
 * refused with the reason (docs/flags.md). A command's own flags go before. */
extern const flag flags_carried[];

/* Each group ends with a flag without names. */
/* every command takes the first, last; the second where one of its flags is rare */
extern const flag flags_help[], flags_help_all[];
extern const flag flags_json[], flags_quiet[], flags_hub[], flags_hub_model[], flags_prompt[], flags_out[],
    flags_chat_template[];

/* The struct that a row's offset is into. */
static inline void *cli_options_of(cli_options *o, const flag *f) {
    return f->of == FLAG_OF_SERVER ? (void *)&o->server : o;
}

/* Where the model comes from. */
#define FLAGS_MODEL flags_model, flags_hub_model, flags_hub, flags_overrides

/* Groups that every command with an engine takes; others may lie between them. */
#define FLAGS_KV      flags_kv_dtype, flags_kv_values
#define FLAGS_NUMERIC flags_compute, FLAGS_KV, flags_state_dtype, flags_prefix_cache
#define FLAGS_MACHINE flags_isa, flags_threads, flags_cpu_bind
#define FLAGS_BATCH   flags_model_len, flags_step_rows, flags_seqs, flags_chunk, flags_page_size, flags_pool
#define FLAGS_MEMORY                                                                                         \
    flags_memory, flags_tier_file, flags_tier_file_bytes, flags_tier_redis, flags_tier_limits, flags_quiet,  \
        flags_help, flags_help_all

/* ---- commands ---- */

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
