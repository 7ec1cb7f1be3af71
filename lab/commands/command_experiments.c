/* `quire bench pages|sharing|prefix|workload|ablation|scenario`: their flags. */
#include "lab/commands/lab_commands.h"
#include <string.h>

#include "base/err.h"
#include "cli/unused_flags.h"
#include "lab/bench/experiment.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    experiment_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--runs", "N", "runs per measured figure", COUNT(own.n_runs, 1, 64)},
    {"--model -m", "MODEL", "the model that is run", TEXT(cli.engine.model)},
    {0},
};
static const flag page_flags[] = {
    {"--page-size", "N", "tokens a page holds", PAGE_SIZE(cli.engine.page_tokens)},
    {0},
};
static const flag pages_flags[] = {
    {"--pages", "LIST", "tokens a page holds (1,2,4 .. 256)", TEXT(own.pages)},
    {0},
};
static const flag sharing_flags[] = {
    {"--samples", "LIST", "answers to a prompt (2,4,6)", TEXT(own.samples)},
    {"--prompt", "N", "tokens of each prompt, and --output; without: those of two data sets",
     COUNT(own.n_prompt, 1, 8192)},
    {"--output", "N", "tokens of each answer", COUNT(own.n_output, 1, 8192)},
    {0},
};
static const flag scenario_flags[] = {
    {"--small", NULL, "sizes of some seconds, by the model's own weights", FLAG_SWITCH, AT(own.small)},
    {"--lengths", "LIST", "tokens of the prompts, in place of the scenario's; of chat, what each turn adds",
     TEXT(own.lengths)},
    {"--output", "N", "tokens of each answer, in place of the scenario's", COUNT(own.n_output, 1, 131072)},
    {0},
};
#define GROUPS(...)                                                                                          \
    __VA_ARGS__, own_flags, flags_compute, FLAGS_KV, flags_threads, flags_json, flags_help, NULL

static void command_experiments_defaults(cli_options *o) {
    options *all = (void *)o;
    experiment_options_init(&all->own);
    o->engine = all->own.engine;
}

/* Runs an experiment with what was given. */
static quire_err run_named(const cli_options *o,
                           quire_err (*run)(const experiment_options *o, quire_error *err),
                           quire_error *err) {
    experiment_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.name = o->argument;
    own.json = o->json;
    return run(&own, err);
}

/* One of which there is only one takes no name. */
static quire_err run_lone(const cli_options *o,
                          quire_err (*run)(const experiment_options *o, quire_error *err), quire_error *err) {
    if (o->argument) {
        return err_set(err, QUIRE_INVALID, -1, "%s: this experiment takes flags only", o->argument);
    }
    return run_named(o, run, err);
}

static quire_err run_ablation(const cli_options *o, quire_error *err) {
    if (o->argument != NULL && strcmp(o->argument, "batching") == 0) {
        TRY(unused_flags_refuse(o, "--page-size",
                                "in the table of batching: pages and pieces have 16 tokens there", err));
    }
    return run_named(o, experiment_ablation, err);
}

/* A command and what runs it. groups: its flags before those that all have. */
#define EXPERIMENT(own, words, does, example, runs, ...)                                                     \
    const command command_bench_##own = {.name = "bench " #own,                                              \
                                         .summary = does,                                                    \
                                         .usage = "quire bench " #own words,                                 \
                                         .examples = example,                                                \
                                         .argument = ARGUMENT_NAME,                                          \
                                         .flags = (const flag *const[]){GROUPS(__VA_ARGS__)},                \
                                         .options_size = sizeof(options),                                    \
                                         .defaults = command_experiments_defaults,                           \
                                         .run = runs}
#define RUNS(own, how)                                                                                       \
    static quire_err run_##own(const cli_options *o, quire_error *err) {                                     \
        return how(o, experiment_##own, err);                                                                \
    }

RUNS(pages, run_lone)
RUNS(sharing, run_lone)
RUNS(prefix, run_lone)
RUNS(workload, run_named)
RUNS(scenario, run_named)

EXPERIMENT(pages, "", "speed, waste and tables by page size", "  quire bench pages --pages 4,16,64\n",
           run_pages, pages_flags);

EXPERIMENT(sharing, "", "what sharing a prompt's pages among its answers saves",
           "  quire bench sharing --samples 2,4,6\n"
           "  quire bench sharing --samples 4 --prompt 64 --output 11\n",
           run_sharing, sharing_flags, page_flags);

EXPERIMENT(prefix, "", "cost of the prefix index for unrelated prompts, and what it saves",
           "  quire bench prefix --runs 15 --threads 1\n", run_prefix, page_flags);

EXPERIMENT(workload, " [NAME]", "speed and hit rate of kinds of requests, by cache and policy",
           "  quire bench workload chatbot                           also: mmlu5 gsm8k react json long chat "
           "agents unique\n",
           run_workload, page_flags);

EXPERIMENT(ablation, " [NAME]", "workloads with one mechanism switched off",
           "  quire bench ablation chat --json\n", run_ablation, page_flags);

EXPERIMENT(scenario, " [NAME]", "memory and speed of a model, alone and with others",
           "  quire bench scenario mixed-random                      also: single mixed chat long\n"
           "  quire bench scenario long --lengths 100000 --output 257\n"
           "the built-in model's shape with random weights and 131,072 positions, unless --model or --small "
           "is given\n",
           run_scenario, scenario_flags, page_flags);
