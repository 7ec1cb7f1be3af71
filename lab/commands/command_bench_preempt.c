/* `quire bench preempt`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_preempt.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_preempt_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--pages", "LIST", "tokens a page holds", FLAG_TEXT, AT(own.pages)},
    {"--lengths", "LIST", "tokens of the preempted sequence", FLAG_TEXT, AT(own.lengths)},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL, own_flags,     flags_json,      flags_compute, FLAGS_KV,
                                     flags_isa,   flags_threads, flags_step_rows, flags_help,    NULL};

static void defaults(cli_options *o) {
    bench_preempt_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_preempt_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.json = o->json;
    return bench_preempt_run(&own, err);
}

const command command_bench_preempt = {
    .name = "bench preempt",
    .summary = "swapping a sequence out and in against computing it again",
    .usage = "quire bench preempt MODEL",
    .examples = "  quire bench preempt builtin\n"
                "  quire bench preempt model.gguf --pages 1,16,256 --lengths 512,4096 --json\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
