/* `quire perplexity`: its flags, and the file that it reads. */
#include <stddef.h>
#include <unistd.h>

#include "base/err.h"
#include "lab/bench/perplexity.h"
#include "lab/commands/scored_text.h"

typedef struct options {
    cli_options cli;
    perplexity_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--kv", "LIST", "keys and values: paged, contiguous or none, or several", FLAG_TEXT, AT(own.kv)},
    {"--step", "N", "tokens a forward pass", FLAG_COUNT, AT(own.step), .minimum = 1, .maximum = 1 << 20},
    {"--context", "N", "tokens of a chunk; later chunks begin with BOS too; without: 1024", FLAG_COUNT,
     AT(own.context), .minimum = 2, .maximum = 1 << 30},
    {"--ids-file", "FILE", "token ids as JSON in place of the text: [1,2,3]", FLAG_TEXT, AT(cli.ids_file)},
    {"--out", "FILE", "a line for each scored token: id and log-probability, to the last bit", FLAG_TEXT,
     AT(cli.out)},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL,     own_flags,  flags_json,     flags_quiet,
                                     flags_compute,   FLAGS_KV,   FLAGS_MACHINE,  flags_page_size,
                                     flags_model_len, flags_help, flags_help_all, NULL};

static void defaults(cli_options *o) {
    perplexity_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    perplexity_options own = ((const options *)(const void *)o)->own;
    TRY(files_check_named("--out", o->out, err));
    own.engine = o->engine;
    own.out = o->out;
    own.json = o->json;
    own.shows_progress = !o->quiet && isatty(STDERR_FILENO);
    scored_text text;
    quire_err e = scored_text_read(o, "perplexity", &text, &own.text, err);
    e = e == QUIRE_OK ? perplexity_run(&own, err) : e;
    scored_text_deinit(&text);
    return e;
}

const command command_perplexity = {
    .name = "perplexity",
    .summary = "how well a model predicts a text, paged and not, to the same bits",
    .usage = "quire perplexity MODEL FILE [--kv paged,contiguous,none] [--step N]",
    .examples = "  quire perplexity model.gguf wiki.test.raw --context 512\n"
                "  quire perplexity builtin README.md --kv paged,contiguous,none --step 37\n"
                "  quire perplexity builtin README.md --step 1 --out 1.txt     the same bytes as with any "
                "other step\n",
    .argument = ARGUMENT_MODEL_FILE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
