/* The options that a command line fills.
 *
 * Flags that are request fields are kept as JSON under their OpenAI names, so that the
 * API's own table checks their values. */
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

struct flag; /* of flags.h */

typedef struct cli_options {
    quire_options engine;
    server_options server;
    const char *api_keys[CLI_MAX_API_KEYS];
    const char *served_names[CLI_MAX_NAMES];
    strbuf override_kv;         /* owned: the text of engine.override_kv */
    strbuf lora_modules, loras; /* owned: texts of engine.lora_modules and engine.loras */
    /* owned: flags that were taken without effect, "--metrics, -ngl 99" */
    strbuf without_effect;
    /* owned: variables that were read, "QUIRE_PORT, QUIRE_API_KEY" */
    strbuf from_environment;
    /* owned: values that were erased from the environment; n_secrets of them */
    char *secrets[CLI_MAX_SECRETS];
    int n_secrets;
    /* argument after the command's name that is not a model; NULL: none */
    const char *argument;
    const char *prompt, *prompt_file, *system; /* NULL: not given */
    const char *prompts, *out, *program;
    const char *api; /* with --program: an API's address; NULL: none */
    int32_t api_speculation;
    const char *ids, *ids_file, *batch_with;
    const char *types, *pooling, *text_pair; /* of --embed */
    int32_t dimensions;                      /* 0: all */
    const char *chat_template;               /* as given: a file or the text */
    /* owned: the text of engine.chat_template when it was a file */
    strbuf template_text;
    const char *prefix_files[CLI_MAX_PREFIXES];
    /* owned: the texts of engine.public_prefixes, or ids where the file has those */
    strbuf prefix_texts[CLI_MAX_PREFIXES];
    id_list prefix_ids[CLI_MAX_PREFIXES];
    quire_prefix prefixes[CLI_MAX_PREFIXES];
    body fields;                              /* owned: request fields that flags set */
    int32_t n_predict;                        /* -1: until the model stops or the sequence is full */
    const char *hf_repo, *hf_file, *revision; /* parts of a model's name */
    const char *hf_token, *download_dir;
    bool offline;
    char *model_path; /* owned: the text of engine.model if it was found by name */
    /* of a server: models after the first, and a directory of models; NULL: none */
    const char *more_models[CLI_MAX_MODELS];
    int32_t n_more_models;
    const char *model_dir;
    const char *pinned[CLI_MAX_MODELS]; /* names of models that stay loaded */
    int32_t n_pinned;
    struct {
        int32_t n;
        model_spec specs[CLI_MAX_MODELS];
        quire_options *options[CLI_MAX_MODELS];              /* owned; the options' models are the paths */
        char *names[CLI_MAX_MODELS], *paths[CLI_MAX_MODELS]; /* owned */
        char *main_path;                                     /* owned: of model_dir; NULL: not from there */
    } others;                                                /* made from these (other_models.h) */
    /* owned: text of engine.speculative_config, with the path of a draft model given
     * by name */
    strbuf draft_config;
    bool embed, normalize, no_normalize;
    bool echo, complete, no_history, json, show_ids, quiet, resume, help, help_all;
    cli_environment environment;
    /* of a server, owned: answers requests while the model is fetched and loaded */
    server *front;
    const char *log_level, *log_format; /* of a server */
    int n_arguments;                    /* the arguments after the command's name, borrowed */
    char **arguments;
    /* owned: the flags that they give, each as often as given; ends with NULL. NULL: not
     * read yet */
    const struct flag **given;
} cli_options;

/* Sets defaults. cli_options_deinit frees what parsing added. argv is borrowed until
 * then. */
void cli_options_init(cli_options *o);
void cli_options_deinit(cli_options *o);

/* Sets the log's level and format if the command has these flags; lines then have a time
 * and a level. --quiet takes precedence. */
void cli_options_set_log(const cli_options *o);

#endif
