/* `quire bench calibrate`: its flags. */
#include <stddef.h>

#include "base/err.h"
#include "cli/files.h"
#include "lab/bench/bench_calibrate.h"
#include "lab/commands/ablation_flags.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    ablated_options ablated;
    calibrate_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--out -o", "FILE", "write the costs as JSON, for --cost", FLAG_TEXT, AT(ablated.cli.out)},
    {"--runs", "N", "runs per measurement", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL, own_flags,     flags_ablations, flags_json,   FLAGS_NUMERIC,
                                     flags_audit, FLAGS_MACHINE, FLAGS_BATCH,     FLAGS_MEMORY, NULL};

static void defaults(cli_options *o) {
    calibrate_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    TRY(files_check_named("--out", o->out, err));
    calibrate_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.off = ((const options *)(const void *)o)->ablated.off;
    own.out = o->out;
    own.json = o->json;
    return calibrate_run(&own, err);
}

const command command_bench_calibrate = {
    .name = "bench calibrate",
    .summary = "what a step of a model costs on this machine",
    .usage = "quire bench calibrate MODEL [--out FILE]",
    .examples = "  quire bench calibrate builtin --out cost.json\n"
                "  quire sim requests.jsonl --cost cost.json --speed 10\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
