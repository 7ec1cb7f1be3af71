/* `quire bench experts`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_experts.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_experts_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--types", "LIST", "types of the weights; f16 and q4_k too", FLAG_TEXT, AT(own.types)},
    {"--rows", "LIST", "rows of a step", FLAG_TEXT, AT(own.rows)},
    {"--threads -t", "LIST", "threads (one a core)", FLAG_TEXT, AT(own.threads)},
    {"--isa", NULL, "instruction set of the kernels", FLAG_NAME, AT(own.isa), .choices = choices_isa},
    {"--experts", "N", "experts", FLAG_COUNT, AT(own.n_experts), .minimum = 1, .maximum = 1024},
    {"--used", "N", "experts a row", FLAG_COUNT, AT(own.n_used), .minimum = 1, .maximum = 64},
    {"--width", "N", "elements of a row", FLAG_COUNT, AT(own.d_model), .minimum = 256, .maximum = 1 << 16},
    {"--hidden", "N", "hidden elements of an expert", FLAG_COUNT, AT(own.d_hidden), .minimum = 256,
     .maximum = 1 << 16},
    {"--milliseconds", "N", "least time of a figure", FLAG_COUNT, AT(own.run_ms), .minimum = 1,
     .maximum = 100000},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_experts_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_experts_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_experts_run(&own, err);
}

const command command_bench_experts = {
    .name = "bench experts",
    .summary = "a mixture of experts beside dense products of the same bytes",
    .usage = "quire bench experts",
    .examples = "  quire bench experts --types q4_0 --rows 1,8,32 --threads 2\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
