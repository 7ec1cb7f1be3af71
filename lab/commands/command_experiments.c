/* `quire bench pages|sharing|prefix|workload|ablation|scenario`: their flags. */
#include <stddef.h>
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
    {"--runs", "N", "runs per measured figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {"--model -m", "MODEL", "the model that is run", FLAG_TEXT, AT(cli.engine.model)},
    {0},
};
static const flag page_flags[] = {
    {"--page-size", "N", "tokens a page holds", FLAG_POWER_OF_TWO, AT(cli.engine.page_tokens), .minimum = 1,
     .maximum = 256},
    {0},
};
static const flag pages_flags[] = {
    {"--pages", "LIST", "tokens a page holds (1,2,4 .. 256)", FLAG_TEXT, AT(own.pages)},
    {0},
};
static const flag sharing_flags[] = {
    {"--samples", "LIST", "answers to a prompt (2,4,6)", FLAG_TEXT, AT(own.samples)},
    {"--prompt", "N", "tokens of each prompt, and --output; without: those of two data sets", FLAG_COUNT,
     AT(own.n_prompt), .minimum = 1, .maximum = 8192},
    {"--output", "N", "tokens of each answer", FLAG_COUNT, AT(own.n_output), .minimum = 1, .maximum = 8192},
    {0},
};
static const flag scenario_flags[] = {
    {"--small", NULL, "sizes of some seconds, by the model's own weights", FLAG_SWITCH, AT(own.small)},
    {"--lengths", "LIST", "tokens of the prompts, in place of the scenario's; of chat, what each turn adds",
     FLAG_TEXT, AT(own.lengths)},
    {"--output", "N", "tokens of each answer, in place of the scenario's", FLAG_COUNT, AT(own.n_output),
     .minimum = 1, .maximum = 131072},
    {0},
};
#define GROUPS(own)                                                                                          \
    { own, page_flags, own_flags, flags_compute, FLAGS_KV, flags_threads, flags_json, flags_help, NULL }
static const flag *const groups[] = {page_flags,    own_flags,  flags_compute, FLAGS_KV,
                                     flags_threads, flags_json, flags_help,    NULL};
static const flag *const groups_pages[] = {pages_flags,   own_flags,  flags_compute, FLAGS_KV,
                                           flags_threads, flags_json, flags_help,    NULL};
static const flag *const groups_sharing[] = GROUPS(sharing_flags);
static const flag *const groups_scenario[] = GROUPS(scenario_flags);

static void command_experiments_defaults(cli_options *o) {
    options *all = (void *)o;
    experiment_options_init(&all->own);
    o->engine = all->own.engine;
}

/* Runs an experiment with what was given; one of which there is only one takes no
 * name. */
static quire_err run_named(const cli_options *o,
                           quire_err (*run)(const experiment_options *o, quire_error *err),
                           quire_error *err) {
    experiment_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.name = o->argument;
    own.json = o->json;
    return run(&own, err);
}

static quire_err run_lone(const cli_options *o,
                          quire_err (*run)(const experiment_options *o, quire_error *err), quire_error *err) {
    if (o->argument) {
        return err_set(err, QUIRE_INVALID, -1, "%s: this experiment takes flags only", o->argument);
    }
    return run_named(o, run, err);
}

static quire_err command_experiments_run_pages(const cli_options *o, quire_error *err) {
    return run_lone(o, experiment_pages, err);
}

static quire_err run_sharing(const cli_options *o, quire_error *err) {
    return run_lone(o, experiment_sharing, err);
}

static quire_err run_prefix(const cli_options *o, quire_error *err) {
    return run_lone(o, experiment_prefix, err);
}

static quire_err command_experiments_run_workload(const cli_options *o, quire_error *err) {
    return run_named(o, experiment_workload, err);
}

static quire_err run_ablation(const cli_options *o, quire_error *err) {
    if (o->argument != NULL && strcmp(o->argument, "batching") == 0) {
        TRY(unused_flags_refuse(o, "--page-size",
                                "in the table of batching: pages and pieces have 16 tokens there", err));
    }
    return run_named(o, experiment_ablation, err);
}

static quire_err command_experiments_run_scenario(const cli_options *o, quire_error *err) {
    return run_named(o, experiment_scenario, err);
}

const command command_bench_pages = {
    .name = "bench pages",
    .summary = "speed, waste and tables by page size",
    .usage = "quire bench pages",
    .examples = "  quire bench pages --pages 4,16,64\n",
    .argument = ARGUMENT_NAME,
    .flags = groups_pages,
    .options_size = sizeof(options),
    .defaults = command_experiments_defaults,
    .run = command_experiments_run_pages,
};

const command command_bench_sharing = {
    .name = "bench sharing",
    .summary = "what sharing a prompt's pages among its answers saves",
    .usage = "quire bench sharing",
    .examples = "  quire bench sharing --samples 2,4,6\n"
                "  quire bench sharing --samples 4 --prompt 64 --output 11\n",
    .argument = ARGUMENT_NAME,
    .flags = groups_sharing,
    .options_size = sizeof(options),
    .defaults = command_experiments_defaults,
    .run = run_sharing,
};

const command command_bench_prefix = {
    .name = "bench prefix",
    .summary = "cost of the prefix index for unrelated prompts, and what it saves",
    .usage = "quire bench prefix",
    .examples = "  quire bench prefix --runs 15 --threads 1\n",
    .argument = ARGUMENT_NAME,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = command_experiments_defaults,
    .run = run_prefix,
};

const command command_bench_workload = {
    .name = "bench workload",
    .summary = "speed and hit rate of kinds of requests, by cache and policy",
    .usage = "quire bench workload [NAME]",
    .examples = "  quire bench workload chatbot                           also: mmlu5 gsm8k react json long "
                "chat agents unique\n",
    .argument = ARGUMENT_NAME,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = command_experiments_defaults,
    .run = command_experiments_run_workload,
};

const command command_bench_ablation = {
    .name = "bench ablation",
    .summary = "workloads with one mechanism switched off",
    .usage = "quire bench ablation [NAME]",
    .examples = "  quire bench ablation chat --json\n",
    .argument = ARGUMENT_NAME,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = command_experiments_defaults,
    .run = run_ablation,
};

const command command_bench_scenario = {
    .name = "bench scenario",
    .summary = "memory and speed of a model, alone and with others",
    .usage = "quire bench scenario [NAME]",
    .examples = "  quire bench scenario mixed-random                      also: single mixed chat long\n"
                "  quire bench scenario long --lengths 100000 --output 257\n"
                "the built-in model's shape with random weights and 131,072 positions, unless --model or "
                "--small is given\n",
    .argument = ARGUMENT_NAME,
    .flags = groups_scenario,
    .options_size = sizeof(options),
    .defaults = command_experiments_defaults,
    .run = command_experiments_run_scenario,
};
