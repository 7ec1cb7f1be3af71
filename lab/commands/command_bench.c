/* `quire bench`: its flags. */
#include <stddef.h>

#include "lab/bench/bench.h"
#include "lab/commands/ablation_flags.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    ablated_options ablated;
    bench_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--batch", "LIST", "requests at once", FLAG_TEXT, AT(own.batches)},
    {"--context", "LIST", "tokens before the decoded ones", FLAG_TEXT, AT(own.contexts)},
    {"--decode -n --n", "N", "tokens decoded for each request", FLAG_COUNT, AT(own.n_decode), .minimum = 2,
     .maximum = 1000000},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 1000},
    {0},
};
static const flag *const groups[] = {
    FLAGS_MODEL, own_flags,      flags_ablations,   flags_json,    FLAGS_NUMERIC, flags_eviction,
    flags_audit, flags_schedule, flags_step_target, FLAGS_MACHINE, FLAGS_BATCH,   FLAGS_MEMORY,
    NULL};

static void defaults(cli_options *o) {
    bench_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.off = ((const options *)(const void *)o)->ablated.off;
    own.json = o->json;
    return bench_run(&own, err);
}

const command command_bench = {
    .name = "bench",
    .summary = "prefill and decode speed against what memory and arithmetic allow",
    .usage = "quire bench MODEL",
    .examples = "  quire bench model.gguf --batch 1,16 --context 128,1024\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
