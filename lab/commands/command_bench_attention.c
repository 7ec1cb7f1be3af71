/* `quire bench attention`: its flags. */
#include <stddef.h>

#include "base/err.h"
#include "cli/unused_flags.h"
#include "lab/bench/bench_attention.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_attention_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--context", "LIST", "tokens that a decoded one sees", FLAG_TEXT, AT(own.contexts)},
    {"--pages", "LIST", "decodes alone, by tokens a page, in no order and in a row", FLAG_TEXT,
     AT(own.pages)},
    {"--prompt", "N", "tokens of the prompt that is prefilled", FLAG_COUNT, AT(own.n_prompt), .minimum = 1,
     .maximum = 1 << 20},
    {"--kv-dtype", "LIST", "types of keys and values", FLAG_TEXT, AT(own.types)},
    {"--isa", NULL, "instruction set", FLAG_NAME, AT(own.isa), .choices = choices_isa},
    {"--threads -t", "N", "threads; 0: one a core", FLAG_COUNT, AT(own.n_threads), .minimum = 0,
     .maximum = 1024},
    {"--runs", "N", "runs per figure; the fastest counts", FLAG_COUNT, AT(own.n_runs), .minimum = 1,
     .maximum = 64},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_attention_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_attention_options own = ((const options *)(const void *)o)->own;
    if (own.pages != NULL) {
        TRY(unused_flags_refuse(o, "--prompt", "with --pages, where decodes alone are measured", err));
    }
    own.json = o->json;
    return bench_attention_run(&own, err);
}

const command command_bench_attention = {
    .name = "bench attention",
    .summary = "how fast attention is by itself, and what pages cost it",
    .usage = "quire bench attention",
    .examples = "  quire bench attention --context 1024,32768 --threads 1 --json\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
