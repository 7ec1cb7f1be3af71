/* `quire pack`. */
#include <stddef.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/files.h"

static quire_err pack_run(const cli_options *o, quire_error *err) {
    int64_t start = clock_us(), n_bytes;
    if (!o->out) {
        return err_set(err, QUIRE_INVALID, -1, "quire pack needs -o FILE, the packed model to write");
    }
    TRY(files_check_named("--out", o->out, err));
    if (o->quiet) {
        log_set_level(LOG_WARN);
    }
    TRY(quire_pack(&o->engine, o->out, &n_bytes, err));
    log_line(LOG_INFO, "%s: %.1f MB in %.1f s", o->out, (double)n_bytes / 1e6,
             (double)(clock_us() - start) / 1e6);
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(cli_options, member)

static const flag own_flags[] = {
    {"--out -o", "FILE", "the packed model", FLAG_TEXT, AT(out)},
    {0},
};

static const flag *const pack_groups[] = {FLAGS_MODEL, own_flags,  flags_compute,  flags_threads,
                                          flags_quiet, flags_help, flags_help_all, NULL};

const command command_pack = {
    .name = "pack",
    .summary = "write a model as one file that loads in milliseconds and is shared between processes",
    .usage = "quire pack MODEL -o FILE [--compute MODE] [--quantization TYPE]",
    .examples = "  quire pack model.gguf -o model.quire\n"
                "  quire serve model.quire\n",
    .argument = ARGUMENT_MODEL,
    .flags = pack_groups,
    .options_size = sizeof(cli_options),
    .run = pack_run,
};

/* `quire inspect`. */

static quire_err inspect_run(const cli_options *o, quire_error *err) {
    char *text;
    TRY(quire_inspect(&o->engine, o->json, &text, err));
    size_t n = strlen(text);
    quire_err e = text_out_print((str){text, n > 0 && text[n - 1] == '\n' ? n - 1 : n}, err);
    quire_free(text);
    return e;
}

static const flag *const inspect_groups[] = {
    FLAGS_MODEL,     flags_json,  flags_quantization, FLAGS_KV,   flags_state_dtype, flags_model_len,
    flags_step_rows, flags_chunk, flags_page_size,    flags_pool, flags_memory,      flags_snapshots,
    flags_lora,      flags_help,  flags_help_all,     NULL};

const command command_inspect = {
    .name = "inspect",
    .summary = "show what a model file holds and the memory it needs",
    .usage = "quire inspect MODEL",
    .examples = "  quire inspect model.gguf --json\n",
    .argument = ARGUMENT_MODEL,
    .flags = inspect_groups,
    .options_size = sizeof(cli_options),
    .run = inspect_run,
};
