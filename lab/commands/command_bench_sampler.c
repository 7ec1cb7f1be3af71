/* `quire bench sampler`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_sampler.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_sampler_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--vocabulary", "LIST", "sizes of the vocabulary", FLAG_TEXT, AT(own.vocabularies)},
    {"--rows", "N", "rows of a step", FLAG_COUNT, AT(own.n_rows), .minimum = 1, .maximum = 65536},
    {"--threads -t", "N", "threads; 0: one a core", FLAG_COUNT, AT(own.n_threads), .minimum = 0,
     .maximum = 1024},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_sampler_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_sampler_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_sampler_run(&own, err);
}

const command command_bench_sampler = {
    .name = "bench sampler",
    .summary = "what choosing a token costs",
    .usage = "quire bench sampler",
    .examples = "  quire bench sampler --vocabulary 32000 --rows 256\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
