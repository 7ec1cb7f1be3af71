/* `quire bench json`: its flags. */
#include <stddef.h>

#include "base/err.h"
#include "cli/unused_flags.h"
#include "lab/bench/bench_json.h"
#include "lab/commands/ablation_flags.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    ablated_options ablated;
    bench_json_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--each", "N", "answers to each schema; 0: none", FLAG_COUNT, AT(own.n_each), .minimum = 0,
     .maximum = 1 << 16},
    {"--rows", "LIST", "sequences that decode together under schemas; empty: none", FLAG_TEXT, AT(own.rows)},
    {"--steps", "N", "decode steps of them", FLAG_COUNT, AT(own.n_steps), .minimum = 1, .maximum = 4096},
    {"--shape", "NAME", "a model of random weights instead, as in bench speed; needs --tokenizer", FLAG_TEXT,
     AT(own.shape)},
    {"--type", "TYPE", "its weights", FLAG_TEXT, AT(own.type)},
    {0},
};
static const flag *const groups[] = {
    FLAGS_MODEL, flags_tokenizer, flags_ablations, own_flags,    flags_json, flags_compute,
    FLAGS_KV,    FLAGS_MACHINE,   FLAGS_BATCH,     FLAGS_MEMORY, NULL};

static void defaults(cli_options *o) {
    bench_json_options_init(&((options *)(void *)o)->own);
}

/* A flag that would do nothing is refused. */
static quire_err check_flags(const options *o, quire_error *err) {
    const cli_options *c = &o->ablated.cli;
    if (o->own.shape == NULL) {
        return unused_flags_refuse(c, "--type", "without --shape: a model has weights of its own", err);
    }
    TRY(unused_flags_refuse(c, "--model --hf-repo", "with --shape, whose model is run", err));
    return unused_flags_refuse(c, "--compute --quantization",
                               "with --shape, whose --type says how products are computed", err);
}

static quire_err run(const cli_options *o, quire_error *err) {
    TRY(check_flags((const void *)o, err));
    bench_json_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.off = ((const options *)(const void *)o)->ablated.off;
    own.json = o->json;
    return bench_json_run(&own, err);
}

const command command_bench_json = {
    .name = "bench json",
    .summary = "answers under JSON Schemas: their speed, and what they add to a step",
    .usage = "quire bench json [MODEL]",
    .examples = "  quire bench json\n"
                "  quire bench json --shape 1.1b --tokenizer tokenizer.json --rows 8,256\n",
    .argument = ARGUMENT_MODEL_OR_BUILTIN,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
