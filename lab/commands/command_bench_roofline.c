/* `quire bench roofline`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_roofline.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_roofline_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--threads -t", "LIST", "threads at work at once (1,2,4 .. one a core)", FLAG_TEXT, AT(own.threads)},
    {"--cpu-bind", "WHERE", "keep threads on processors: auto, none or 0-3,8 (none)", FLAG_TEXT,
     AT(own.cpu_bind)},
    {"--isa", NULL, "instruction set of the loops", FLAG_NAME, AT(own.isa), .choices = choices_isa},
    {"--megabytes", "N", "memory that is read; less than the caches measures those", FLAG_COUNT,
     AT(own.effort.megabytes), .minimum = 1, .maximum = 1 << 20},
    {"--milliseconds", "N", "least time of a measurement", FLAG_COUNT, AT(own.effort.milliseconds),
     .minimum = 1, .maximum = 100000},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_roofline_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_roofline_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_roofline_run(&own, err);
}

const command command_bench_roofline = {
    .name = "bench roofline",
    .summary = "what this machine can read and compute at best",
    .usage = "quire bench roofline",
    .examples = "  quire bench roofline\n"
                "  quire bench roofline --threads 1,2 --isa avx2 --json\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
