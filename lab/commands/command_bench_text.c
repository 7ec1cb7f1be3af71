/* `quire bench text`: its flags. */
#include <stddef.h>

#include "cli/files.h"
#include "lab/bench/bench_text.h"
#include "lab/bench/figures.h"
#include "lab/commands/lab_commands.h"

typedef struct options {
    cli_options cli;
    bench_text_options own;
    const char *file;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag own_flags[] = {
    {"--file -f", "PATH", "a text of your own, beside the made ones", FLAG_TEXT, AT(file)},
    {"--size", "KIB", "size of each made text", FLAG_COUNT, AT(own.n_kib), .minimum = 1, .maximum = 65536},
    {"--runs", "N", "runs per figure", FLAG_COUNT, AT(own.n_runs), .minimum = 1, .maximum = FIGURES_MAX_RUNS},
    {0},
};
static const flag *const groups[] = {FLAGS_MODEL, own_flags, flags_json, flags_help, NULL};

static void defaults(cli_options *o) {
    bench_text_options_init(&((options *)(void *)o)->own);
}

static quire_err run(const cli_options *o, quire_error *err) {
    bench_text_options own = ((const options *)(const void *)o)->own;
    const char *file = ((const options *)(const void *)o)->file;
    strbuf text = {0};
    own.path = o->engine.model;
    own.json = o->json;
    quire_err e = file != NULL ? files_read(file, &text, err) : QUIRE_OK;
    if (e == QUIRE_OK && file != NULL && text.n == 0) {
        e = err_set(err, QUIRE_INVALID, -1, "--file %s: the file is empty; give one with text", file);
    }
    own.text = (str){text.p, text.n};
    e = e == QUIRE_OK ? bench_text_run(&own, err) : e;
    strbuf_deinit(&text);
    return e;
}

const command command_bench_text = {
    .name = "bench text",
    .summary = "how fast texts are tokenised, tokens decoded and chats rendered",
    .usage = "quire bench text [MODEL|TOKENIZER]",
    .examples = "  quire bench text\n"
                "  quire bench text tokenizer.json --file book.txt --json\n",
    .argument = ARGUMENT_MODEL_OR_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};
