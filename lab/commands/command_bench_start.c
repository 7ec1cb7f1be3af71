/* `quire bench start`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_start.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_start_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--runs", "N", "starts per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = START_MAX_RUNS},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL, own_flags,     flags_json, flags_compute, FLAGS_KV,
                                     flags_isa,   flags_threads, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_start_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_start_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.json = o->json;
    return bench_start_run(&own, err);
}

const command command_bench_start = {
    .name = "bench start",
    .summary = "from exec to a model's first token, the first time and later ones",
    .usage = "quire bench start MODEL",
    .examples = "  quire bench start model.quire\n"
                "  quire bench start model.gguf --compute int8 --runs 20 --json\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
