/* What some commands share beside their frame: measurements that one takes for another
 * (each in the file of its own command), the options and flags of the experiments, and
 * the text of those that score one. */
#ifndef LAB_COMMANDS_MEASURES_H
#define LAB_COMMANDS_MEASURES_H

#include "base/err.h"
#include "base/str.h"
#include "cli/files.h"
#include "core/kv_layout.h"
#include "core/model_desc.h"
#include "file/model_file.h"
#include "lab/bench/lab.h"
#include "lab/bench/op_profile.h"
#include "lab/commands/lab_commands.h"
#include "text/tokenizer.h"

/* bench profile: the costs of n_steps decodes of batch sequences of a model of random
 * weights; out->layers is NULL. Of o threads and instruction set count. */
quire_err profile_decode(const quire_options *o, int32_t batch, int32_t n_steps, step_costs *out,
                         quire_error *err);

/* Milliseconds from before the program is started to the first bytes that it writes of a
 * prompt of one token's logits. */
typedef struct start_figure {
    double least_ms, median_ms;
} start_figure;

/* All with the files in the page cache: one start before them does not count. */
typedef struct start_times {
    start_figure first;  /* with an empty pack cache; of a packed model without one */
    start_figure second; /* with the entry that a start has left there */
    bool has_second;     /* false for packed models and the built-in one, which no cache keeps */
    double token_ms;     /* the same request in an engine that is open, at least */
} start_times;

/* bench start: starts quire, which lies beside quire-lab or in PATH, again and again. Of
 * o model, compute mode, KV type, threads and instruction set count. */
quire_err start_measure(const quire_options *o, int32_t n_runs, start_times *out, quire_error *err);

/* bench speed */
typedef struct bench_speed_options {
    cli_options cli;
    const char *types;   /* of weights: "q4_0,q8_0,q4_k,int8,bf16"; NULL: these, or with shapes q4_0 */
    const char *batches; /* sequences that decode together: "1,4,16,32" */
    /* NULL: the 1.1B model beside limits; else these models beside it:
     * "qwen3-0.6b,mixtral", "all" */
    const char *shapes;
    const char *isa;
    int32_t n_threads; /* 0: one a core */
    int32_t n_runs;    /* each figure is the mean and spread of this many */
    int32_t context;   /* longest of attention alone */
    bool small;        /* a model of a few million weights: to see that all works */
} bench_speed_options;

/* bench speed --shape: models of published shapes beside Llama's. Measures and prints to
 * stdout. INVALID names a shape that is not there. What memory does not hold is left out,
 * saying so. */
quire_err bench_shapes_run(const bench_speed_options *o, quire_error *err);

/* `quire bench pages|sharing|prefix|workload|ablation`: what the engine's
 * mechanisms are worth, with the model really run. Counts of tokens and pages are exact;
 * times are those of this machine, in turns, the fastest of some runs, so that ratios
 * within one table hold. */

/* The options of all of them. What is NULL or 0 is as the experiment chooses; the command
 * line's argument says which workload, NULL: all. */
typedef struct experiment_options {
    cli_options cli;
    const char *pages; /* tokens a page holds, "1,16,256" */
    const char *as;    /* workload: ways to run programs, "program,requests"; NULL: requests by cache */
    const char *data;  /* workload --as: a directory of texts; NULL: tokens are drawn */
    /* workload --as: random weights of a published shape in place of the model, and their
     * type; NULL: none */
    const char *shape, *type;
    const char *samples; /* answers to a prompt, "2,4,6" */
    int32_t n_prompt;    /* sharing: tokens of each prompt */
    int32_t n_output;    /* sharing: tokens of each answer */
    int32_t n_runs;
} experiment_options;

void experiment_defaults(cli_options *o);
extern const flag flags_experiment[], flags_experiment_page[];

/* The row of an experiment, whose run is experiment_NAME; its own flags come last. */
#define EXPERIMENT(own, follows, parsed, does, how, ...)                                                     \
    const command command_bench_##own = {                                                                    \
        .name = "bench " #own,                                                                               \
        .summary = does,                                                                                     \
        .usage = "quire bench " #own follows,                                                                \
        .examples = how,                                                                                     \
        .argument = parsed,                                                                                  \
        .flags = (const flag *const[]){__VA_ARGS__, flags_experiment, flags_compute, FLAGS_KV,               \
                                       flags_threads, flags_json, flags_help, NULL},                         \
        .options_size = sizeof(experiment_options),                                                          \
        .defaults = experiment_defaults,                                                                     \
        .run = experiment_##own}

/* bench_programs.c: bench workload --as. */
quire_err experiment_programs(const experiment_options *o, quire_error *err);

/* bench_workload.c: the last table of bench ablation. machine: what lab_describe says. */
quire_err experiment_batching(const experiment_options *o, const char *machine, quire_error *err);

/* The text of a command that scores one: a file's, or the ids of --ids-file. */

/* The tokens of a text that a model is scored on: those of its own vocabulary, or ids as
 * given. */
typedef struct score_text {
    const char *name; /* for messages */
    str text;
    const int32_t *ids; /* in place of the text, n_ids of them; NULL: the text counts */
    size_t n_ids;
} score_text;

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

/* Describes the model and appends the text's tokens to ids, with what the tokenizer puts
 * before a text (BOS). QUIRE_UNSUPPORTED for a model that gives no tokens, QUIRE_INVALID
 * for an id that it lacks; err also says when it has no vocabulary. */
quire_err score_text_read(const score_text *t, const model_file *f, model_desc *d, token_list *ids,
                          quire_error *err);

#endif
