/* `quire bench profile`: its flags. */
#include <stddef.h>

#include "base/err.h"
#include "cli/unused_flags.h"
#include "lab/bench/bench_profile.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_profile_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--batch", "N", "sequences that decode together", FLAG_COUNT, AT(own.batch), .minimum = 1,
     .maximum = 1024},
    {"--prompt", "N", "tokens of each prompt", FLAG_COUNT, AT(own.n_prompt), .minimum = 1,
     .maximum = 1 << 16},
    {"--shared", "N", "of them the first, which are the same in all prompts", FLAG_COUNT, AT(own.n_shared),
     .minimum = 0, .maximum = 1 << 16},
    {"--steps", "N", "decoding steps that are looked at", FLAG_COUNT, AT(own.n_steps), .minimum = 1,
     .maximum = 4096},
    {"--type", "TYPE", "weights of the random model that is run without MODEL", FLAG_TEXT, AT(own.type)},
    {"--shape", "NAME", "its shape, as of bench speed --shape", FLAG_TEXT, AT(own.shape)},
    {"--per-layer", NULL, "every layer of a decode too", FLAG_SWITCH, AT(own.per_layer)},
    {0},
};
static const flag *const groups[] = {own_flags,  flags_compute, FLAGS_KV, FLAGS_MACHINE,
                                     flags_json, flags_help,    NULL};

static void defaults(cli_options *o) {
    bench_profile_options_init(&((options *)(void *)o)->own);
}

/* A flag that would do nothing is refused. */
static quire_err check_flags(const options *o, quire_error *err) {
    return o->cli.engine.model != NULL
               ? unused_flags_refuse(&o->cli, "--type --shape",
                                     "with a MODEL, which has weights and a shape of its own", err)
               : unused_flags_refuse(
                     &o->cli, "--compute --quantization",
                     "without a MODEL: --type says how products of random weights are computed", err);
}

static quire_err run(const cli_options *o, quire_error *err) {
    TRY(check_flags((const void *)o, err));
    bench_profile_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.json = o->json;
    return bench_profile_run(&own, err);
}

const command command_bench_profile = {
    .name = "bench profile",
    .summary = "where the time of a step goes, stage by stage",
    .usage = "quire bench profile [MODEL]",
    .examples = "  quire bench profile\n"
                "  quire bench profile builtin --batch 4 --prompt 64 --per-layer\n",
    .argument = ARGUMENT_MODEL_OR_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
