/* `quire inspect`. */
#include "cli/commands.h"
#include "cli/text_out.h"

static quire_err inspect_run(const cli_options *o, quire_error *err) {
    char *text;
    TRY(quire_inspect(&o->engine, o->json, &text, err));
    size_t n = strlen(text);
    quire_err e = text_out_print((str){text, n > 0 && text[n - 1] == '\n' ? n - 1 : n}, err);
    quire_free(text);
    return e;
}

static const flag *const groups[] = {FLAGS_MODEL,     flags_json,      flags_quantization, FLAGS_KV,
                                     flags_model_len, flags_step_rows, flags_chunk,        flags_page_size,
                                     flags_pool,      flags_help,      flags_help_all,     NULL};

const command command_inspect = {
    .name = "inspect",
    .summary = "what a model file holds and the memory it needs",
    .usage = "quire inspect MODEL",
    .examples = "  quire inspect model.gguf --json\n",
    .argument = ARGUMENT_MODEL,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .run = inspect_run,
};
