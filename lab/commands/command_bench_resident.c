/* `quire bench resident`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_resident.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_resident_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--lengths", "LIST", "tokens of each sequence", FLAG_TEXT, AT(own.lengths)},
    {"--batch", "LIST", "sequences", FLAG_TEXT, AT(own.batches)},
    {"--max-len", "N", "room for each where all is reserved; without: the longest", FLAG_COUNT,
     AT(own.max_len), .minimum = 1, .maximum = 131072},
    {"--model -m", "MODEL", "the model; builtin: its shape with 131,072 positions", FLAG_TEXT,
     AT(cli.engine.model)},
    {0},
};
static const flag *const groups[] = {own_flags,  flags_compute, flags_kv_dtype, flags_threads, flags_json,
                                     flags_help, NULL};

static void defaults(cli_options *o) {
    options *all = (void *)o;
    bench_resident_options_init(&all->own);
    o->engine = all->own.engine;
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_resident_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.json = o->json;
    return bench_resident_run(&own, err);
}

const command command_bench_resident = {
    .name = "bench resident",
    .summary = "memory as measured and as allocated: paged, growing, all reserved",
    .usage = "quire bench resident",
    .examples = "  quire bench resident --lengths 128,2048 --batch 1,8\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
