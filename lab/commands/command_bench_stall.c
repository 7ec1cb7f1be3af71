/* `quire bench stall`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_stall.h"
#include "lab/commands/ablation_flags.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    ablated_options ablated;
    bench_stall_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--streams", "N", "streams that decode all the while", FLAG_COUNT, AT(own.n_streams), .minimum = 1,
     .maximum = 256},
    {"--prompt", "N", "tokens of the prompt that comes in between", FLAG_COUNT, AT(own.n_prompt),
     .minimum = 1, .maximum = 1 << 20},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL,   flags_ablations, own_flags,    flags_json,
                                     flags_compute, FLAGS_KV,        flags_audit,  flags_step_target,
                                     FLAGS_MACHINE, FLAGS_BATCH,     FLAGS_MEMORY, NULL};

static void defaults(cli_options *o) {
    bench_stall_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_stall_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.off = ((const options *)(const void *)o)->ablated.off;
    own.json = o->json;
    return bench_stall_run(&own, err);
}

const command command_bench_stall = {
    .name = "bench stall",
    .summary = "how much a long prompt slows the streams beside it",
    .usage = "quire bench stall MODEL",
    .examples = "  quire bench stall model.gguf --step-target-ms 50 --prompt 8192\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
