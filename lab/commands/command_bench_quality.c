/* `quire bench quality`: its flags, and the text that it reads. */
#include <stddef.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/read_flags.h"
#include "lab/bench/bench_quality.h"
#include "lab/commands/scored_text.h"

typedef struct options {
    cli_options cli;
    bench_quality_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--types", "LIST", "what weights are quantised to, a row each, as in none,q8_0", FLAG_TEXT,
     AT(own.types)},
    {"--against", "FILES", "other files of the model, a row each, with commas (repeatable)", FLAG_LIST,
     AT(own.against)},
    {"--compute --dtype", "LIST", "of products, a row each; with --kv-types alone f32", FLAG_TEXT,
     AT(own.computes)},
    {"--kv-types", "LIST", "types of keys and values, a row each, as in int8,int8/int4", FLAG_TEXT,
     AT(own.kv_types)},
    {"--context", "LIST", "tokens of a window, whose second half is scored", FLAG_TEXT, AT(own.contexts)},
    {"--tokens", "N", "of the text, from its start, at most", FLAG_COUNT, AT(own.n_tokens), .minimum = 1,
     .maximum = 1 << 30},
    {"--steps", "N", "timed decodes of 1 row and of 16, after a window; 0: no speed", FLAG_COUNT,
     AT(own.n_steps), .minimum = 0, .maximum = 64},
    {"--at-once", "N", "rows whose models are in memory at once", FLAG_COUNT, AT(own.n_at_once), .minimum = 1,
     .maximum = QUALITY_MAX_AT_ONCE},
    {"--ids-file", "FILE", "token ids as JSON in place of the text: [1,2,3]", FLAG_TEXT, AT(cli.ids_file)},
    {0},
};
static const flag *const groups[] = {
    FLAGS_MODEL,     own_flags,       flags_json, flags_quiet,    flags_isa, flags_threads,
    flags_page_size, flags_model_len, flags_help, flags_help_all, NULL};

static void defaults(cli_options *o) {
    bench_quality_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_quality_options own = ((const options *)(const void *)o)->own;
    bool others =
        read_flags_gave(o, "--types") || read_flags_gave(o, "--against") || read_flags_gave(o, "--compute");
    if (read_flags_gave(o, "--kv-types") && !others) {
        own.computes = "f32";
    }
    own.engine = o->engine;
    own.json = o->json;
    own.shows_progress = !o->quiet && isatty(STDERR_FILENO);
    scored_text text;
    quire_err e = scored_text_read(o, "bench quality", &text, &own.text, err);
    e = e == QUIRE_OK ? bench_quality_run(&own, err) : e;
    scored_text_deinit(&text);
    return e;
}

const command command_bench_quality = {
    .name = "bench quality",
    .summary = "what types of weights, keys and values cost in truth, on a text",
    .usage =
        "quire bench quality MODEL TEXT [--types LIST] [--against FILES] [--compute LIST] [--kv-types LIST]",
    .examples =
        "  quire bench quality model-bf16.gguf wiki.test.raw --types q8_0,q6_k,q4_k --at-once 3\n"
        "  quire bench quality model-bf16.gguf wiki.test.raw --against model-q4_k_m.gguf,model-q8_0.gguf\n"
        "  quire bench quality model.gguf wiki.test.raw --compute bf16,int8\n"
        "  quire bench quality model.gguf wiki.test.raw --kv-types f16,bf16,int8 --context 2048,16384\n"
        "Rows are compared with the reference: MODEL as it is, computed in f32 with KV f32 (of a file that "
        "was quantised\n"
        "before, its quantised weights). Memory: the reference in f32 and --at-once rows' models; of each "
        "the logits of\n"
        "128 positions and the pages of a window, of 16 windows where speed is measured.\n",
    .argument = ARGUMENT_MODEL_FILE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
