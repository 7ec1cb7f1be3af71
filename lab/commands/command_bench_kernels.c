/* `quire bench kernels`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_kernels.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_kernels_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--types", "LIST", "of the weights", FLAG_TEXT, AT(own.types)},
    {"--rows", "LIST", "rows of a product", FLAG_TEXT, AT(own.rows)},
    {"--threads -t", "LIST", "threads (one a core)", FLAG_TEXT, AT(own.threads)},
    {"--isa", NULL, "instruction set of the kernels", FLAG_NAME, AT(own.isa), .choices = choices_isa},
    {"--weights", "MIB", "of memory that weights are read from in turn", FLAG_COUNT, AT(own.weights_mib),
     .minimum = 1, .maximum = 1 << 20},
    {"--milliseconds", "N", "least time of a figure", FLAG_COUNT, AT(own.run_ms), .minimum = 1,
     .maximum = 100000},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_kernels_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_kernels_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_kernels_run(&own, err);
}

const command command_bench_kernels = {
    .name = "bench kernels",
    .summary = "matrix products by type of weights and number of rows",
    .usage = "quire bench kernels",
    .examples = "  quire bench kernels --types int8,q4_0 --rows 1,16,512 --threads 1,2\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
