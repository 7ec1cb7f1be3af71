/* `quire rm`. */
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/hub.h"

/* Whether the form is one of a model of the hub that has gone with this name: ORG/NAME,
 * and what follows it. */
static bool has_gone(const quire_packed_form *f, const char *cache, const char *name) {
    strbuf below = {0};
    size_t n = strcspn(name, ":@");
    quire_err e = strbuf_addf(&below, "%s/models--", cache);
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        e = name[i] == '/' ? strbuf_add_str(&below, "--") : strbuf_add_char(&below, name[i]);
    }
    e = e == QUIRE_OK ? strbuf_add_char(&below, '/') : e;
    bool gone = e == QUIRE_OK && strncmp(f->source, below.p, below.n) == 0 && access(f->source, F_OK) != 0;
    strbuf_deinit(&below);
    return gone;
}

/* Removes the packed forms of what was removed. */
static quire_err remove_forms(const cli_options *o, const char *cache, int64_t *bytes, quire_error *err) {
    quire_packed_form *forms;
    size_t n;
    int64_t more;
    TRY(quire_packed_list(o->engine.pack_cache, &forms, &n, err));
    for (size_t i = 0; i < n; i++) {
        if (has_gone(&forms[i], cache, o->argument) &&
            quire_packed_remove(o->engine.pack_cache, forms[i].name, &more, NULL) == QUIRE_OK) {
            *bytes += more;
        }
    }
    quire_free(forms);
    return QUIRE_OK;
}

static bool names_forms(const char *name) {
    return strcmp(name, "packed") == 0 || strncmp(name, "packed:", strlen("packed:")) == 0;
}

static quire_err rm_run(const cli_options *o, quire_error *err) {
    hub_setup s = {0};
    int64_t bytes = 0;
    quire_err e;
    if (!o->argument) {
        return err_set(err, QUIRE_INVALID, -1, "quire rm needs a NAME, as `quire list` shows it");
    }
    if (names_forms(o->argument)) {
        e = quire_packed_remove(o->engine.pack_cache, o->argument, &bytes, err);
    } else {
        e = hub_open(o, &s, err);
        e = e == QUIRE_OK ? quire_hub_remove(&s.options, o->argument, &bytes, err) : e;
        e = e == QUIRE_OK ? remove_forms(o, s.options.cache, &bytes, err) : e;
        hub_close(&s);
    }
    if (e == QUIRE_OK && !o->quiet) {
        log_line(LOG_INFO, "%s: removed, %.2f GB", o->argument, (double)bytes / 1e9);
    }
    return e;
}

static void rm_defaults(cli_options *o) {
    o->engine.pack_cache = "auto";
}

static const flag *const groups[] = {flags_hub,  flags_pack_cache, flags_quiet,
                                     flags_help, flags_help_all,   NULL};

const command command_rm = {
    .name = "rm",
    .summary =
        "remove a model from the cache: all of ORG/NAME, one :QUANT or :FILE, one @REVISION; packed forms",
    .usage = "quire rm ORG/NAME[:QUANT|:FILE][@REVISION] | packed:DIGITS | packed",
    .examples = "  quire rm ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n",
    .argument = ARGUMENT_NAME,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .defaults = rm_defaults,
    .run = rm_run,
};
