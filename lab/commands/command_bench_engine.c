/* `quire bench engine`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_engine.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_engine_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--running", "LIST", "sequences that run at once", FLAG_TEXT, AT(own.running)},
    {"--prompt", "N", "tokens of each prompt", FLAG_COUNT, AT(own.n_prompt), .minimum = 1, .maximum = 65536},
    {"--page-size", "N", "tokens a page holds", FLAG_POWER_OF_TWO, AT(own.page_tokens), .minimum = 1,
     .maximum = 256},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_engine_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_engine_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_engine_run(&own, err);
}

const command command_bench_engine = {
    .name = "bench engine",
    .summary = "the engine's own work in a step, without a model",
    .usage = "quire bench engine",
    .examples = "  quire bench engine\n"
                "  quire bench engine --running 256 --prompt 4096 --json\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
