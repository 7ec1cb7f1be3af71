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
    {"--lengths", "LIST", "tokens of each sequence (128,500,1000,2049,4096,8192)", FLAG_TEXT, AT(own.lengths)},
    {"--batch", "LIST", "sequences (1,4)", FLAG_TEXT, AT(own.batches)},
    {"--max-len", "N", "room for each where all is reserved (the longest)", FLAG_COUNT, AT(own.max_len), .minimum = 1, .maximum = 131072},
    {"--model -m", "MODEL", "the model that is run (the built-in one's shape, random weights, 131,072 positions)", FLAG_TEXT,
     AT(own.engine.model)},
    {"--compute --dtype", NULL, "how matrix products are computed", FLAG_CHOICE, AT(own.engine.compute), .choices = choices_compute},
    FLAG_QUANTIZATION(AT(own.engine.quantization)),
    {"--kv-dtype", NULL, "type of stored keys and values", FLAG_CHOICE, AT(own.engine.kv_dtype), .choices = choices_kv_dtype},
    {"--threads -t", "N", "compute threads (0: one a core)", FLAG_COUNT, AT(own.engine.n_threads), .minimum = 0, .maximum = 1024},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_resident_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_resident_options own = ((const options *)(const void *)o)->own;
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
