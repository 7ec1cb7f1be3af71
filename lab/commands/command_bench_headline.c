/* `quire bench headline`: its flags. */
#include <stddef.h>

#include "base/err.h"
#include "cli/files.h"
#include "cli/unused_flags.h"
#include "lab/bench/headline.h"
#include "lab/bench/headline_case.h"
#include "lab/bench/model_shape.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    headline_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag load_flags[] = {
    {"--lengths", "LIST", "of prompts and answers: like sharegpt's, alpaca's ; without: both", FLAG_TEXT,
     AT(own.lengths)},
    {"--trace", "FILE", "a file's requests in their place (see quire sim --help)", FLAG_TEXT, AT(own.trace)},
    {"--shares", "LIST", "memory, percent of what all take fully reserved (5,10,20)", FLAG_TEXT,
     AT(own.shares)},
    {"--rates", "LIST", "arrivals, percent of what all at once give; without: 70,100,130 and more", FLAG_TEXT,
     AT(own.rates)},
    {"--requests", "N", "how many; without: 40, with --shape 30, of a trace all", FLAG_COUNT,
     AT(own.n_requests), .minimum = 1, .maximum = 4096},
    {"--shrink", "N", "lengths, and the longest sequence, become an Nth", FLAG_COUNT, AT(own.shrink),
     .minimum = 1, .maximum = 1024},
    {"--times-idle", "N", "latency bound, as a multiple of an idle server's", FLAG_PART, AT(own.times_idle),
     .minimum = 1, .maximum = 1e6},
    {"--seed", "N", "of arrivals and lengths", FLAG_COUNT, AT(own.seed), .minimum = 0, .maximum = INT32_MAX},
    {"--draws", "N", "of arrivals at each rate: latency is their mean", FLAG_COUNT, AT(own.n_draws),
     .minimum = 1, .maximum = 64},
    {"--runs", "N", "of all at once: the one of the median counts", FLAG_COUNT, AT(own.n_runs), .minimum = 1,
     .maximum = HEADLINE_MAX_RUNS},
    {"--quick", NULL, "about a minute: sharegpt, 10%, two rates", FLAG_SWITCH, AT(own.quick)},
    {"--svg", "FILE", "draw latency by rate", FLAG_TEXT, AT(own.svg)},
    {0},
};
static const flag model_flags[] = {
    {"--shape", "NAME", "random weights of a published shape, below: sharegpt, 10%, two rates", FLAG_TEXT,
     AT(own.shape)},
    {"--type", "NAME", "of its weights: q4_0, q8_0, q4_k, int8, bf16, f32", FLAG_TEXT, AT(own.type)},
    {"--threads -t", "N", "compute threads; 1: time is the processor's; 0: one per core", FLAG_COUNT,
     AT(cli.engine.n_threads), .minimum = 0, .maximum = 1024},
    {"--max-model-len", "N", "the longest sequence; without: 2048", FLAG_COUNT, AT(cli.engine.max_model_len),
     .minimum = 16, .maximum = 1 << 20},
    {"--max-num-seqs", "N", "sequences running at once", FLAG_COUNT, AT(cli.engine.max_seqs), .minimum = 1,
     .maximum = 1024},
    {"--max-num-batched-tokens", "N", "rows a step", FLAG_COUNT, AT(cli.engine.max_batched_tokens),
     .minimum = 1, .maximum = 1 << 16},
    {0},
};
static const flag *const groups[] = {load_flags, model_flags, flags_compute, FLAGS_KV,
                                     flags_isa,  flags_json,  flags_help,    NULL};

static void defaults(cli_options *o) {
    options *all = (void *)o;
    headline_options_init(&all->own);
    o->engine = all->own.engine;
    o->engine.model = NULL; /* of the command line */
}

/* A flag that would do nothing is refused. */
static quire_err check_flags(const options *o, quire_error *err) {
    const cli_options *c = &o->cli;
    if (o->own.trace != NULL) {
        TRY(unused_flags_refuse(c, "--lengths", "with --trace, whose requests have their own", err));
    }
    return o->own.shape != NULL
               ? unused_flags_refuse(c, "--compute --quantization",
                                     "with --shape, whose --type says how products are computed", err)
               : unused_flags_refuse(c, "--type", "without --shape: a model has weights of its own", err);
}

static quire_err run(const cli_options *o, quire_error *err) {
    TRY(check_flags((const void *)o, err));
    headline_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    TRY(files_check_named("--svg", own.svg, err));
    own.json = o->json;
    return headline_run(&own, err);
}

const command command_bench_headline = {
    .name = "bench headline",
    .summary = "what paging and continuous batching are worth, really run at rising rates",
    .usage = "quire bench headline [MODEL]",
    .examples = "  quire bench headline --quick\n"
                "  quire bench headline --svg curves.svg\n"
                "  quire bench headline --shape 1.1b\n"
                "--shape: " MODEL_SHAPES "\n",
    .argument = ARGUMENT_MODEL_OR_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
