/* The options of a command, set by flags and environment variables.
 *
 * Flags that are request fields are stored as JSON under their API names, so that the
 * API's field table checks their values. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/str.h"
#include "cli/body.h"
#include "cli/environment.h"
#include "cli/files.h"
#include "quire.h"
#include "server/server.h"

#define CLI_MAX_API_KEYS 64
#define CLI_MAX_PREFIXES 16
#define CLI_MAX_NAMES    16
#define CLI_MAX_SECRETS  8
#define CLI_MAX_MODELS   63 /* models besides the main one */

struct flag; /* defined in flags.h */

typedef struct cli_options {
    quire_options engine;
    server_options server;
    const char *api_keys[CLI_MAX_API_KEYS];
    const char *served_names[CLI_MAX_NAMES];
    strbuf override_kv;         /* owned: text of engine.override_kv */
    strbuf lora_modules, loras; /* owned: texts of engine.lora_modules and engine.loras */
    /* owned: accepted flags without effect, "--metrics, -ngl 99" */
    strbuf without_effect;
    /* owned: names of variables that were read, "QUIRE_PORT, QUIRE_API_KEY" */
    strbuf from_environment;
    /* owned: [n_secrets] values that were erased from the environment */
    char *secrets[CLI_MAX_SECRETS];
    int n_secrets;
    /* the command's argument that is not a model; NULL: none */
    const char *argument;
    const char *prompt, *prompt_file, *system; /* NULL: not given */
    const char *prompts, *out, *program;
    const char *api; /* address of the API that runs --program; NULL: the local engine does */
    int32_t api_speculation;
    const char *ids, *ids_file, *batch_with;
    const char *types, *pooling, *text_pair; /* values of flags of --embed; NULL: not given */
    int32_t dimensions;                      /* elements of a row with --embed; 0: all */
    const char *chat_template;               /* --chat-template: a file or the text */
    /* owned: text of engine.chat_template if that was given as a file */
    strbuf template_text;
    const char *prefix_files[CLI_MAX_PREFIXES];
    /* owned: texts of engine.public_prefixes, or their ids for a file of ids */
    strbuf prefix_texts[CLI_MAX_PREFIXES];
    id_list prefix_ids[CLI_MAX_PREFIXES];
    quire_prefix prefixes[CLI_MAX_PREFIXES];
    body fields; /* owned: request fields that flags set */
    /* most tokens to generate; -1: until the model stops or the sequence is full */
    int32_t n_predict;
    const char *hf_repo, *hf_file, *revision; /* parts of a hub name */
    const char *hf_token, *download_dir;
    bool offline;
    char *model_path; /* owned: text of engine.model if that was given by name */
    /* for a server: models after the first, and a directory of models; NULL: none */
    const char *more_models[CLI_MAX_MODELS];
    int32_t n_more_models;
    const char *model_dir;
    const char *pinned[CLI_MAX_MODELS]; /* for a server: names of models that stay loaded */
    int32_t n_pinned;
    struct {
        int32_t n;
        model_spec specs[CLI_MAX_MODELS];
        /* owned; their member `model` is an entry of paths */
        quire_options *options[CLI_MAX_MODELS];
        char *names[CLI_MAX_MODELS], *paths[CLI_MAX_MODELS]; /* owned */
        /* owned: the main model's path if it is from model_dir, else NULL */
        char *main_path;
    } others; /* the further models, from more_models and model_dir (other_models.h) */
    /* owned: text of engine.speculative_config if the draft model's name was replaced by
     * its path */
    strbuf draft_config;
    bool embed, normalize, no_normalize;
    bool echo, complete, no_history, json, show_ids, quiet, resume, help, help_all;
    cli_environment environment;
    /* owned: the server that answers requests while the model is fetched and loaded */
    server *front;
    const char *log_level, *log_format; /* for a server */
    int n_arguments;                    /* arguments after the command's name, borrowed */
    char **arguments;
    /* owned: the flags among the arguments, in order, repeated ones too; ends with NULL.
     * NULL: not read yet */
    const struct flag **given;
} cli_options;

/* Sets defaults. cli_options_deinit frees what parsing adds; argv is borrowed until
 * then. */
void cli_options_init(cli_options *o);
void cli_options_deinit(cli_options *o);

/* Sets the log's level and format if the command has these flags; lines then begin with
 * time and level. --quiet takes precedence. */
void cli_options_set_log(const cli_options *o);

#endif
