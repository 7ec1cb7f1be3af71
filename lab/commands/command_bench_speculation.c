/* `quire bench speculation`: its flags, and the file that it reads. */
#include <stddef.h>

#include "base/err.h"
#include "cli/unused_flags.h"
#include "lab/bench/bench_speculation.h"
#include "lab/commands/ablation_flags.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    ablated_options ablated;
    bench_speculation_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--prompts", "FILE",
     "a prompt a line: text, or JSON with \"prompt\" or \"turns\", and perhaps \"category\"", FLAG_TEXT,
     AT(own.name)},
    {"--methods", "LIST", "methods of speculation, each with its defaults", FLAG_TEXT, AT(own.methods)},
    {"--max-tokens -n", "N", "tokens of each answer", FLAG_COUNT, AT(own.n_decode), .minimum = 2,
     .maximum = 1 << 20},
    {"--each", "N", "prompts of a category, the first of them; 0: all", FLAG_COUNT, AT(own.n_each),
     .minimum = 0, .maximum = 1 << 16},
    {"--temperature --temp", "T", "0: the likeliest token", FLAG_PART, AT(own.temperature), .minimum = 0,
     .maximum = 2},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL, flags_ablations, own_flags,   flags_json,   flags_compute,
                                     FLAGS_KV,    FLAGS_MACHINE,   FLAGS_BATCH, FLAGS_MEMORY, NULL};

static void defaults(cli_options *o) {
    bench_speculation_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    if (o->engine.speculative_config != NULL) {
        TRY(unused_flags_refuse(o, "--methods", "with --speculative-config, which is measured alone", err));
    }
    bench_speculation_options own = ((const options *)(const void *)o)->own;
    strbuf text = {0};
    own.engine = o->engine;
    own.off = ((const options *)(const void *)o)->ablated.off;
    own.json = o->json;
    quire_err e = own.name != NULL ? files_read_text(own.name, &text, err) : QUIRE_OK;
    if (e == QUIRE_OK) {
        own.prompts = (str){text.n > 0 ? text.p : "", text.n};
        e = bench_speculation_run(&own, err);
    }
    strbuf_deinit(&text);
    return e;
}

const command command_bench_speculation = {
    .name = "bench speculation",
    .summary = "what guessing tokens saves on a file of prompts, with the same output",
    .usage = "quire bench speculation [MODEL]",
    .examples = "  quire bench speculation model.gguf --prompts spec_bench.jsonl --each 4\n"
                "  quire bench speculation --speculative-config "
                "'{\"method\":\"suffix\",\"num_speculative_tokens\":8}' --json\n",
    .argument = ARGUMENT_MODEL_OR_BUILTIN,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
