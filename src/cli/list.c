/* `quire list`. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/hub.h"
#include "json/json_out.h"

/* The lists to print: models from the hub, and packed forms of any model. */
typedef struct lists {
    quire_hub_model *models;
    quire_packed_form *forms;
    size_t n_models, n_forms;
} lists;

static void write_forms(const lists *l, json_out *o) {
    for (size_t i = 0; i < l->n_forms; i++) {
        const quire_packed_form *f = &l->forms[i];
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "name"), f->name);
        json_cstr(json_name(o, "packed_from"), f->source);
        json_cstr(json_name(o, "quantisation"), f->compute[0] ? f->compute : NULL);
        json_int(json_name(o, "bytes"), f->bytes);
        json_int(json_name(o, "used"), f->used_unix_s);
        json_bool(json_name(o, "whole"), f->is_whole);
        json_end(o, '}');
    }
}

static quire_err list_write_json(const lists *l, strbuf *out) {
    json_out writer = {.to = out}, *o = &writer;
    const quire_hub_model *models = l->models;
    json_begin(o, '[');
    for (size_t i = 0; i < l->n_models; i++) {
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "name"), models[i].name);
        json_cstr(json_name(o, "revision"), models[i].revision);
        json_cstr(json_name(o, "quantisation"), models[i].quantisation[0] ? models[i].quantisation : NULL);
        json_int(json_name(o, "bytes"), models[i].bytes);
        json_int(json_name(o, "used"), models[i].used_unix_s);
        json_bool(json_name(o, "whole"), models[i].is_whole);
        json_end(o, '}');
    }
    write_forms(l, o);
    json_end(o, ']');
    return o->err;
}

/* Appends the time since then_s: "3 days". */
static quire_err add_age(int64_t then_s, strbuf *out) {
    static const struct {
        int64_t s;
        const char *name;
    } units[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}};
    int64_t age = clock_unix_s() - then_s;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (age >= units[i].s) {
            return strbuf_addf(out, "%lld %s%s ago", (long long)(age / units[i].s), units[i].name,
                               age >= 2 * units[i].s ? "s" : "");
        }
    }
    return strbuf_add_str(out, "just now");
}

static int column_width(const char *head, const quire_hub_model *models, size_t n, size_t offset) {
    size_t most = strlen(head);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen((const char *)&models[i] + offset);
        most = length > most ? length : most;
    }
    return (int)most;
}

/* Writes the table of models. A revision that is a full commit is cut to 12 digits. */
static quire_err write_table(quire_hub_model *models, size_t n, strbuf *out) {
    for (size_t i = 0; i < n; i++) {
        models[i].revision[strlen(models[i].revision) == 40 ? 12 : strlen(models[i].revision)] = 0;
    }
    int name = column_width("NAME", models, n, offsetof(quire_hub_model, name));
    int revision = column_width("REVISION", models, n, offsetof(quire_hub_model, revision));
    int quant = column_width("TYPE", models, n, offsetof(quire_hub_model, quantisation));
    TRY(strbuf_addf(out, "%-*s  %-*s  %-*s  %9s  %s", name, "NAME", revision, "REVISION", quant, "TYPE",
                    "SIZE", "LAST USED"));
    for (size_t i = 0; i < n; i++) {
        const quire_hub_model *m = &models[i];
        TRY(strbuf_addf(out, "\n%-*s  %-*s  %-*s  %6.2f GB  ", name, m->name, revision, m->revision, quant,
                        m->quantisation[0] ? m->quantisation : "-", (double)m->bytes / 1e9));
        TRY(m->is_whole ? add_age(m->used_unix_s, out)
                        : strbuf_add_str(out, "incomplete: pull it again, or remove it with quire rm"));
    }
    return QUIRE_OK;
}

/* Writes the table of packed forms, with their names cut to 12 digits. */
static quire_err write_forms_table(const lists *l, strbuf *out) {
    enum { SHOWN = sizeof "packed:" - 1 + 12 };
    strbuf age = {0};
    quire_err e = strbuf_addf(out, "%s%-*s  %-7s  %9s  %-14s  %s", out->n > 0 ? "\n\n" : "", SHOWN,
                              "PACKED FORM", "COMPUTE", "SIZE", "LAST USED", "MADE OF");
    for (size_t i = 0; i < l->n_forms; i++) {
        const quire_packed_form *f = &l->forms[i];
        strbuf_clear(&age);
        TRY_DONE(e, add_age(f->used_unix_s, &age));
        TRY_DONE(e, strbuf_addf(out, "\n%.*s  %-7s  %6.2f GB  %-14s  %s", SHOWN, f->name,
                                f->compute[0] ? f->compute : "-", (double)f->bytes / 1e9, age.p,
                                f->is_whole ? f->source : "damaged: the next start makes it again"));
    }
done:
    strbuf_deinit(&age);
    return e;
}

static quire_err write_tables(const hub_setup *s, lists *l, strbuf *out) {
    if (l->n_models + l->n_forms == 0) {
        return strbuf_addf(out, "no models in %s; `quire pull ORG/NAME` fetches one", s->options.cache);
    }
    if (l->n_models > 0) {
        TRY(write_table(l->models, l->n_models, out));
    }
    return l->n_forms > 0 ? write_forms_table(l, out) : QUIRE_OK;
}

static quire_err list_print(const cli_options *o, const hub_setup *s, lists *l, quire_error *err) {
    strbuf out = {0};
    quire_err e = err_set(err, o->json ? list_write_json(l, &out) : write_tables(s, l, &out), -1,
                          "out of memory for the list");
    return text_out_finish(&out, e, err);
}

static quire_err list_run(const cli_options *o, quire_error *err) {
    hub_setup s;
    lists l = {0};
    quire_err e = hub_open(o, &s, err);
    TRY_DONE(e, quire_hub_list(&s.options, &l.models, &l.n_models, err));
    TRY_DONE(e, quire_packed_list(o->engine.pack_cache, &l.forms, &l.n_forms, err));
    TRY_DONE(e, list_print(o, &s, &l, err));
done:
    quire_free(l.models);
    quire_free(l.forms);
    hub_close(&s);
    return e;
}

/* Of `quire list` and `quire rm`. */
static void list_defaults(cli_options *o) {
    o->engine.pack_cache = "auto";
}

static const flag *const list_groups[] = {flags_hub,  flags_pack_cache, flags_json,
                                          flags_help, flags_help_all,   NULL};

const command command_list = {
    .name = "list",
    .summary = "list the hub models in the cache and packed forms of models, with size and last use",
    .usage = "quire list",
    .examples = "  quire list --json\n",
    .argument = ARGUMENT_NONE,
    .flags = list_groups,
    .options_size = sizeof(cli_options),
    .defaults = list_defaults,
    .run = list_run,
};

/* `quire rm`. */

/* Whether the form belongs to the removed hub model `name`: ORG/NAME, perhaps with a
 * suffix. */
static bool has_gone(const quire_packed_form *f, const char *cache, const char *name) {
    strbuf below = {0};
    size_t n = strcspn(name, ":@");
    quire_err e = strbuf_addf(&below, "%s/models--", cache);
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        e = name[i] == '/' ? strbuf_add_str(&below, "--") : strbuf_add_char(&below, name[i]);
    }
    bool gone = e == QUIRE_OK && strbuf_add_char(&below, '/') == QUIRE_OK &&
                strncmp(f->source, below.p, below.n) == 0 && access(f->source, F_OK) != 0;
    strbuf_deinit(&below);
    return gone;
}

/* Removes the packed forms of the removed models. */
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
    quire_err e = QUIRE_OK;
    if (!o->argument) {
        return err_set(err, QUIRE_INVALID, -1, "quire rm needs a NAME, as `quire list` shows it");
    }
    if (names_forms(o->argument)) {
        TRY_DONE(e, quire_packed_remove(o->engine.pack_cache, o->argument, &bytes, err));
    } else {
        TRY_DONE(e, hub_open(o, &s, err));
        TRY_DONE(e, quire_hub_remove(&s.options, o->argument, &bytes, err));
        TRY_DONE(e, remove_forms(o, s.options.cache, &bytes, err));
    }
    if (!o->quiet) {
        log_line(LOG_INFO, "%s: removed, %.2f GB", o->argument, (double)bytes / 1e9);
    }
done:
    hub_close(&s);
    return e;
}

static const flag *const rm_groups[] = {flags_hub,  flags_pack_cache, flags_quiet,
                                        flags_help, flags_help_all,   NULL};

const command command_rm = {
    .name = "rm",
    .summary =
        "remove a model from the cache: all of ORG/NAME, one :QUANT or :FILE, one @REVISION; packed forms",
    .usage = "quire rm ORG/NAME[:QUANT|:FILE][@REVISION] | packed:DIGITS | packed",
    .examples = "  quire rm ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n",
    .argument = ARGUMENT_NAME,
    .flags = rm_groups,
    .options_size = sizeof(cli_options),
    .defaults = list_defaults,
    .run = rm_run,
};

/* `quire pull`. */

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

static const flag *const pull_groups[] = {flags_hub, flags_quiet, flags_help, flags_help_all, NULL};

const command command_pull = {
    .name = "pull",
    .summary = "fetch a model from the Hugging Face hub, or its newest revision, into the cache",
    .usage = "quire pull ORG/NAME[:QUANT|:FILE][@REVISION]",
    .examples = "  quire pull Qwen/Qwen3-0.6B\n"
                "  quire pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n",
    .argument = ARGUMENT_NAME,
    .flags = pull_groups,
    .options_size = sizeof(cli_options),
    .run = pull_run,
};
