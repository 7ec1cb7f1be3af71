/* `quire bench speed`: its flags. */
#include <stddef.h>

#include "base/err.h"
#include "cli/unused_flags.h"
#include "lab/bench/bench_speed.h"
#include "lab/bench/model_shape.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_speed_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--types", "LIST", "of weights (q4_0,q8_0,q4_k,int8,bf16; with --shape q4_0)", FLAG_TEXT, AT(own.types)},
    {"--shape", "LIST", "all or some of the models below, beside Llama", FLAG_TEXT, AT(own.shapes)},
    {"--batch", "LIST", "sequences that decode together", FLAG_TEXT, AT(own.batches)},
    {"--context", "N", "longest of attention by itself", FLAG_COUNT, AT(own.context), .minimum = 1,
     .maximum = 1 << 20},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {"--small", NULL, "models of a few hundred thousand weights: to see that all works", FLAG_SWITCH,
     AT(own.small)},
    {"--threads -t", "N", "compute threads; 0: one a core", FLAG_COUNT, AT(own.n_threads), .minimum = 0,
     .maximum = 1024},
    {"--isa", NULL, "instruction set of the kernels", FLAG_NAME, AT(own.isa), .choices = choices_isa},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_speed_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_speed_options own = ((const options *)(const void *)o)->own;
    if (own.shapes != NULL) {
        TRY(unused_flags_refuse(o, "--context", "with --shape, whose attention is not measured by itself",
                                err));
    }
    own.json = o->json;
    return bench_speed_run(&own, err);
}

const command command_bench_speed = {
    .name = "bench speed",
    .summary = "a 1.1B model by type of weights, attention, memory: beside limits and goals",
    .usage = "quire bench speed",
    .examples =
        "  quire bench speed\n"
        "  quire bench speed --types q4_0,int8 --batch 1,32 --json\n"
        "  quire bench speed --shape gemma-3-1b,mixtral --types q8_0\n"
        "--shape: " MODEL_SHAPES "\n"
        "\"of Llama\": a pass without attention, over what Llama takes for its products. For one of B bytes "
        "and O\n"
        "operations that is B g(O / B): g(i) is its time for a byte where i operations fall on one.\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
