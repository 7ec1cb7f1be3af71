/* `quire bench pages|sharing|prefix|workload|ablation|scenario`: what the engine's
 * mechanisms are worth, with the model really run. Counts of tokens and pages are exact;
 * times are those of this machine, in turns, the fastest of some runs, so that ratios
 * within one table hold. */
#ifndef LAB_COMMANDS_EXPERIMENT_H
#define LAB_COMMANDS_EXPERIMENT_H

#include "core/kv_layout.h"
#include "lab/bench/lab.h"
#include "lab/commands/lab_commands.h"

/* The options of all of them. What is NULL or 0 is as the experiment chooses; the command
 * line's argument says which workload or scenario, NULL: all. */
typedef struct experiment_options {
    cli_options cli;
    const char *pages;   /* tokens a page holds, "1,16,256" */
    const char *as;      /* workload: ways to run programs, "program,requests"; NULL: requests by cache */
    const char *data;    /* workload --as: a directory of texts; NULL: tokens are drawn */
    /* workload --as: random weights of a published shape in place of the model, and their
     * type; NULL: none */
    const char *shape, *type;
    const char *samples; /* answers to a prompt, "2,4,6" */
    const char *lengths; /* scenario: tokens of the prompts; of a chat, what each turn adds */
    int32_t n_prompt;    /* sharing: tokens of each prompt */
    int32_t n_output;    /* sharing, scenario: tokens of each answer */
    int32_t n_runs;
    bool small; /* scenario: sizes of some seconds */
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

#endif
