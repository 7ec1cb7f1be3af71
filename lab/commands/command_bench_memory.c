/* `quire bench memory`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_memory.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_memory_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--shape", "L,H,D", "layers, KV heads and head width of the model", FLAG_TEXT, AT(own.shape)},
    {"--weights", "BYTES", "of the model", FLAG_PART, AT(own.weight_bytes), .minimum = 0, .maximum = 1e15},
    {"--pages", "LIST", "tokens a page holds", FLAG_TEXT, AT(own.pages)},
    {"--kv-dtype", NULL, "type of keys and values", FLAG_CHOICE, AT(own.kv_dtype),
     .choices = choices_kv_dtype},
    {"--max-model-len", "N", "room for each sequence where nobody knows better", FLAG_COUNT,
     AT(own.max_model_len), .minimum = 1, .maximum = 1 << 24},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_memory_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_memory_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_memory_run(&own, err);
}

const command command_bench_memory = {
    .name = "bench memory",
    .summary = "memory that pages take over the least that would do",
    .usage = "quire bench memory",
    .examples = "  quire bench memory\n"
                "  quire bench memory --shape 32,8,128 --weights 16060522496 --pages 16,64 --json\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
