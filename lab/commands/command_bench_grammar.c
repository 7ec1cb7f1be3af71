/* `quire bench grammar`: its flags. */
#include <stddef.h>

#include "lab/bench/bench_grammar.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_grammar_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--tokenizer", "FILE", "the vocabulary: a model or tokenizer (a made-up one)", FLAG_TEXT,
     AT(own.tokenizer)},
    {"--schemas", "FILES",
     "lines of {\"schema\":..,\"tests\":[{\"valid\":true,\"data\":..}]} (three of its own)", FLAG_TEXT,
     AT(own.schemas)},
    {"--vocabulary", "N", "tokens of the made-up vocabulary", FLAG_COUNT, AT(own.n_tokens), .minimum = 300,
     .maximum = 1000000},
    {"--every", "N", "each Nth schema only", FLAG_COUNT, AT(own.every), .minimum = 1, .maximum = 1000000},
    {"--keep", "N", "also keep N schemas compiled at a time; prints their memory", FLAG_COUNT, AT(own.n_keep),
     .minimum = 0, .maximum = 1000000},
    {0},
};
static const flag *const groups[] = {own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_grammar_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_grammar_options own = ((const options *)(const void *)o)->own;
    own.json = o->json;
    return bench_grammar_run(&own, err);
}

const command command_bench_grammar = {
    .name = "bench grammar",
    .summary = "what compiling a JSON Schema and its token masks cost",
    .usage = "quire bench grammar",
    .examples = "  quire bench grammar --tokenizer tokenizer.json --schemas schemas.jsonl\n",
    .argument = ARGUMENT_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
