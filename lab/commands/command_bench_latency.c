/* `quire bench latency`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_latency.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_latency_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--context", "LIST", "tokens before the measured ones", FLAG_TEXT, AT(own.contexts)},
    {"--decode -n", "N", "tokens that are measured, one by one", FLAG_COUNT, AT(own.n_steps), .minimum = 1,
     .maximum = 1 << 16},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {"--model -m", "MODEL", "the model; builtin: its shape with 131,072 positions", FLAG_TEXT,
     AT(cli.engine.model)},
    {0},
};
static const flag *const groups[] = {own_flags,  flags_compute, flags_kv_dtype, flags_threads, flags_json,
                                     flags_help, NULL};

static void defaults(cli_options *o) {
    options *all = (void *)o;
    bench_latency_options_init(&all->own);
    o->engine = all->own.engine;
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_latency_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.json = o->json;
    return bench_latency_run(&own, err);
}

const command command_bench_latency = {
    .name = "bench latency",
    .summary = "what a token takes by those before it: paged, contiguous, no cache",
    .usage = "quire bench latency",
    .examples = "  quire bench latency --context 128,1024,8192 -t 1\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
