/* `quire demo`: its flags. */
#include <stddef.h>
#include <stdio.h>

#include "lab/commands/lab_commands.h"
#include "lab/demo/demo.h"

typedef struct options {
    cli_options cli;
    demo_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--lengths", "LIST", "tokens of the answers (alloc: of whole sequences)", FLAG_TEXT, AT(own.lengths)},
    {"--prompt-lengths", "LIST", "tokens of the prompts", FLAG_TEXT, AT(own.prompt_lengths)},
    {"--prompts", "FILE", "prompts, one a line that the model answers (waste, latency, wall, alloc, table)",
     FLAG_TEXT, AT(own.prompts)},
    {"--batch", "LIST", "sequences at once", FLAG_TEXT, AT(own.batches)},
    {"--context", "LIST", "tokens of a sequence, before those that are measured", FLAG_TEXT,
     AT(own.contexts)},
    {"--shape", "L,H,D", "wall: layers, KV heads and head width in 16 bits (32,32,128)", FLAG_TEXT,
     AT(own.shape)},
    {"--runs", "N", "runs per measured figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = 64},
    {"--model -m", "MODEL", "the model that is run", FLAG_TEXT, AT(cli.engine.model)},
    {"--max-tokens -n", "N", "most tokens of an answer; of table: tokens behind the prompt", FLAG_COUNT,
     AT(own.n_tokens), .minimum = 1, .maximum = 1 << 20},
    {"--max-len", "N", "room for the longest sequence; without: 2048", FLAG_COUNT, AT(own.max_len),
     .minimum = 1, .maximum = 1 << 24},
    {"--max-num-seqs", "N", "sequences that run at once; without: 4", FLAG_COUNT, AT(own.slots), .minimum = 1,
     .maximum = 1 << 16},
    {"--max-num-batched-tokens", "N", "rows a step; without: schedule: 8", FLAG_COUNT, AT(own.n_rows),
     .minimum = 1, .maximum = 1 << 20},
    {"--kv-pages", "N", "pages of the pool", FLAG_COUNT, AT(own.n_pages), .minimum = 1, .maximum = 1 << 20},
    {"--page-size", "N", "tokens a page holds; without: 16, schedule 4, radix 1", FLAG_POWER_OF_TWO,
     AT(own.page_tokens), .minimum = 1, .maximum = 256},
    {0},
};
static const flag *const groups[] = {own_flags,  flags_compute, FLAGS_KV, flags_threads,
                                     flags_json, flags_help,    NULL};

static void command_demo_defaults(cli_options *o) {
    options *all = (void *)o;
    demo_options_init(&all->own);
    o->engine = all->own.engine;
}

static quire_err command_demo_run(const cli_options *o, quire_error *err) {
    demo_options own = ((const options *)(const void *)o)->own;
    own.engine = o->engine;
    own.name = o->argument;
    own.json = o->json;
    if (!own.name) {
        printf("quire demo NAME [flags]\n\n");
        demo_list();
        return QUIRE_OK;
    }
    return demo_run(&own, err);
}

const command command_demo = {
    .name = "demo",
    .summary = "demonstrations of paging and continuous batching",
    .usage = "quire demo [NAME]",
    .examples = "  quire demo                                             lists the demonstrations\n"
                "  quire demo radix --page-size 4\n"
                "  quire demo waste --lengths 10,199,25,199 --max-tokens 200 --json\n",
    .argument = ARGUMENT_NAME,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = command_demo_defaults,
    .run = command_demo_run,
};
