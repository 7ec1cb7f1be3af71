/* `quire rm`. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/hub.h"

static quire_err run(const cli_options *o, quire_error *err) {
    hub_setup s;
    int64_t bytes = 0;
    if (!o->argument) {
        return err_set(err, QUIRE_INVALID, -1, "quire rm needs a NAME, as `quire list` shows it");
    }
    quire_err e = hub_open(o, &s, err);
    e = e == QUIRE_OK ? quire_hub_remove(&s.options, o->argument, &bytes, err) : e;
    hub_close(&s);
    if (e == QUIRE_OK && !o->quiet) {
        log_line(LOG_INFO, "%s: removed, %.2f GB", o->argument, (double)bytes / 1e9);
    }
    return e;
}

static const flag *const groups[] = {flags_hub, flags_quiet, flags_help, flags_help_all, NULL};

const command command_rm = {
    .name = "rm",
    .summary = "remove a model from the cache: all of ORG/NAME, one :QUANT or :FILE, one @REVISION",
    .usage = "quire rm ORG/NAME[:QUANT|:FILE][@REVISION]",
    .examples = "  quire rm ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n",
    .argument = ARGUMENT_NAME,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .run = run,
};
