/* `quire bench kv`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_kv.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_kv_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--threads -t", "LIST", "threads in the pool at once", FLAG_TEXT, AT(own.threads)},
    {"--pages", "LIST", "pages a pool has", FLAG_TEXT, AT(own.pages)},
    {"--page-size", "N", "tokens a page of the index holds", FLAG_POWER_OF_TWO, AT(own.page_tokens),
     .minimum = 1, .maximum = 256},
    {"--prompt-tokens", "N", "tokens of a prompt in the index", FLAG_POWER_OF_TWO, AT(own.prompt_tokens),
     .minimum = 16, .maximum = 1 << 16},
    {"--milliseconds", "N", "least time of a run", FLAG_COUNT, AT(own.run_ms), .minimum = 1,
     .maximum = 100000},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_kv_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_kv_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_kv_run(&own, err);
}

const command command_bench_kv = {
    .name = "bench kv",
    .summary = "time of the page pool's and the index's operations",
    .usage = "quire bench kv",
    .examples = "  quire bench kv\n"
                "  quire bench kv --threads 1,8 --pages 1000000 --json\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
