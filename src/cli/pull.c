/* `quire pull`. */
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/text_out.h"

static quire_err pull_run(const cli_options *o, quire_error *err) {
    char *path;
    if (!o->argument) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "quire pull needs a NAME: ORG/NAME, ORG/NAME:QUANT or ORG/NAME:FILE.gguf, each also with "
            "@REVISION");
    }
    TRY(hub_fetch_model(o, o->argument, QUIRE_HUB_UPDATE, &path, err));
    quire_err e = text_out_print(str_of(path), err);
    quire_free(path);
    return e;
}

static const flag *const groups[] = {flags_hub, flags_quiet, flags_help, flags_help_all, NULL};

const command command_pull = {
    .name = "pull",
    .summary = "fetch a model of the Hugging Face hub, or its newest revision, into the cache",
    .usage = "quire pull ORG/NAME[:QUANT|:FILE][@REVISION]",
    .examples = "  quire pull Qwen/Qwen3-0.6B\n"
                "  quire pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n",
    .argument = ARGUMENT_NAME,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .run = pull_run,
};
