/* `quire bench tiers`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_tiers.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_tiers_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--lengths", "LIST", "tokens of the prompt", FLAG_TEXT, AT(own.lengths)},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {0},
};
static const flag *const groups[] = {
    FLAGS_MODEL,     own_flags,       flags_json,      flags_compute,    FLAGS_KV,   flags_isa, flags_threads,
    flags_step_rows, flags_page_size, flags_tier_file, flags_tier_redis, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_tiers_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_tiers_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.json = o->json;
    return bench_tiers_run(&own, err);
}

const command command_bench_tiers = {
    .name = "bench tiers",
    .summary = "first tokens of prompts that come back from host memory, file, Redis",
    .usage = "quire bench tiers MODEL",
    .examples = "  quire bench tiers builtin\n"
                "  quire bench tiers model.gguf --kv-tier-file /nvme/tier --kv-tier-redis redis://127.0.0.1 "
                "--lengths 1000,8000\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
