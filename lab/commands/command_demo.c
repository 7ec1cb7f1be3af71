/* `quire demo`: its flags. */
#include "lab/commands/lab_commands.h"
#include <stdio.h>

#include "lab/commands/lab_commands.h"
#include "lab/demo/demo.h"

typedef struct options {
    cli_options cli;
    demo_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--lengths", "LIST", "tokens of the answers (alloc: of whole sequences)", TEXT(own.lengths)},
    {"--prompt-lengths", "LIST", "tokens of the prompts", TEXT(own.prompt_lengths)},
    {"--prompts", "FILE", "prompts, one a line that the model answers (waste, latency, wall, alloc, table)",
     TEXT(own.prompts)},
    {"--batch", "LIST", "sequences at once", TEXT(own.batches)},
    {"--context", "LIST", "tokens of a sequence, before those that are measured", TEXT(own.contexts)},
    {"--shape", "L,H,D", "wall: layers, KV heads and head width in 16 bits (32,32,128)", TEXT(own.shape)},
    {"--runs", "N", "runs per measured figure", COUNT(own.n_runs, 1, 64)},
    {"--model -m", "MODEL", "the model that is run", TEXT(cli.engine.model)},
    {"--max-tokens -n", "N", "most tokens of an answer; of table: tokens behind the prompt",
     COUNT(own.n_tokens, 1, 1 << 20)},
    {"--max-len", "N", "room for the longest sequence; without: 2048", COUNT(own.max_len, 1, 1 << 24)},
    {"--max-num-seqs", "N", "sequences that run at once; without: 4", COUNT(own.slots, 1, 1 << 16)},
    {"--max-num-batched-tokens", "N", "rows a step; without: schedule: 8", COUNT(own.n_rows, 1, 1 << 20)},
    {"--kv-pages", "N", "pages of the pool", COUNT(own.n_pages, 1, 1 << 20)},
    {"--page-size", "N", "tokens a page holds; without: 16, schedule 4, radix 1", PAGE_SIZE(own.page_tokens)},
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
