#include "cli/read_flags.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/nearest.h"
#include "json/json_out.h"

/* True when `name` is one of the flag's names. */
static bool flag_is(const flag *f, str name) {
    for (const char *p = f->names; *p;) {
        size_t n = strcspn(p, " ");
        if (str_eq((str){p, n}, name)) {
            return true;
        }
        p += n + (p[n] == ' ');
    }
    return false;
}

static const flag *find_flag(str name, const command *c) {
    for (const flag *const *group = c->flags; group && *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (flag_is(f, name)) {
                return f;
            }
        }
    }
    return NULL;
}

/* The first command of a list that has the flag, or NULL. */
static const command *find_owner(str name, const command *const *commands) {
    for (; commands && *commands; commands++) {
        if (find_flag(name, *commands)) {
            return *commands;
        }
    }
    return NULL;
}

static quire_err unknown_flag(str name, const command *c, const command *owner, quire_error *err) {
    if (owner) {
        return err_set(err, QUIRE_INVALID, -1, "%.*s: a flag of `quire %s`, not of `quire %s`; `quire %s --help` lists those", (int)name.n,
                       name.p, owner->name, c->name, c->name);
    }
    nearest near = {.wanted = name};
    for (const flag *const *group = c->flags; *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            nearest_offer_all(&near, f->type < FLAG_LATER ? f->names : "");
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "%.*s: no such flag; %s%.*s%s`quire %s --help%s` lists them", (int)name.n, name.p,
                   near.best.n ? "did you mean " : "", (int)near.best.n, near.best.p ? near.best.p : "", near.best.n ? "? " : "", c->name,
                   find_flag(str_of("--help-all"), c) ? "-all" : "");
}

static quire_err parse_number(const char *name, const char *text, double *out, quire_error *err) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(v)) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a number", name, text);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err parse_integer(const char *name, const char *text, int64_t *out, quire_error *err) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != 0 || errno == ERANGE) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a whole number", name, text);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err set_count(const flag *f, const char *name, const char *text, int32_t *out, quire_error *err) {
    int64_t v;
    TRY(parse_integer(name, text, &v, err));
    bool power = f->type == FLAG_POWER_OF_TWO;
    if ((double)v < f->minimum || (double)v > f->maximum || (power && (v & (v - 1)) != 0)) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be %s from %.0f to %.0f", name, text,
                       power ? "a power of two" : "a whole number", f->minimum, f->maximum);
    }
    *out = (int32_t)v;
    return QUIRE_OK;
}

static quire_err set_part(const flag *f, const char *name, const char *text, double *out, quire_error *err) {
    double v;
    TRY(parse_number(name, text, &v, err));
    if (v < f->minimum || v > f->maximum) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be from %g to %g", name, text, f->minimum, f->maximum);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err set_bytes(const flag *f, const char *name, const char *text, int64_t *out, quire_error *err) {
    static const char letters[] = "KMGT";
    char *end;
    double v = strtod(text, &end), unit = f->type == FLAG_GIB ? 0x1p30 : 1.0;
    const char *letter = end != text && *end != 0 ? strchr(letters, *end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end) : NULL;
    if (letter) {
        unit = ldexp(1.0, 10 * (int)(letter - letters + 1));
        end++;
    }
    if (end == text || *end != 0 || !isfinite(v) || v < 0 || v * unit > 0x1p62) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a size: %s, or a number with K, M, G or T behind it", name, text,
                       f->type == FLAG_GIB ? "GiB" : "bytes");
    }
    *out = (int64_t)(v * unit);
    return QUIRE_OK;
}

const char *flag_choice_find(const flag_choice *choices, const char *spelling) {
    for (; choices->spelling; choices++) {
        if (strcmp(choices->spelling, spelling) == 0) {
            return choices->value;
        }
    }
    return NULL;
}

static quire_err set_choice(const flag *f, const char *name, const char *text, const char **out, quire_error *err) {
    char all[128] = "";
    *out = flag_choice_find(f->choices, text);
    for (const flag_choice *c = f->choices; c->spelling && !*out; c++) {
        if (strcmp(c->spelling, c->value) == 0) {
            size_t n = strlen(all);
            snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", c->spelling);
        }
    }
    return *out ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "%s %s: must be one of %s", name, text, all);
}

/* A flag that is taken without effect. text: its value, or NULL. */
static quire_err take_without_effect(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err) {
    if (text && f->choices && !flag_choice_find(f->choices, text)) {
        char all[128] = "";
        for (const flag_choice *c = f->choices; c->spelling; c++) {
            size_t n = strlen(all);
            snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", c->spelling);
        }
        return err_set(err, QUIRE_INVALID, -1, "%s %s: only %s is possible here: %s", name, text, all, f->meaning);
    }
    quire_err e = strbuf_addf(&o->without_effect, "%s%s%s%s", o->without_effect.n ? ", " : "", name, text ? " " : "", text ? text : "");
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: out of memory", name);
}

/* Request fields as a JSON object, with vLLM's name of max_tokens in generation_config.json too. */
static quire_err set_fields(const char *name, const char *text, body *fields, quire_error *err) {
    json_value *all = json_document(str_of(text));
    quire_err e = QUIRE_OK;
    if (!json_is(all, JSON_KIND_OBJECT)) {
        json_drop(all);
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a JSON object, as {\"temperature\":0.7}", name, text);
    }
    for (json_member m = {0}; e == QUIRE_OK && json_next(all, &m);) {
        strbuf json = {0};
        json_out o = {.to = &json};
        json_add(&o, m.value);
        const char *field = strcmp(m.name, "max_new_tokens") == 0 ? "max_tokens" : m.name;
        e = o.err == QUIRE_OK ? body_set(fields, field, (str){json.p, json.n}) : o.err;
        strbuf_deinit(&json);
    }
    json_drop(all);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: out of memory", name);
}

/* Request fields keep their JSON form; the API checks the range when the request is made. */
static quire_err set_field(const flag *f, const char *name, const char *text, body *fields, quire_error *err) {
    quire_err e;
    if (f->type == FLAG_FIELD_INTEGER) {
        int64_t v;
        TRY(parse_integer(name, text, &v, err));
        e = body_set_int(fields, f->field, v);
    } else if (f->type == FLAG_FIELD_NUMBER) {
        double v;
        strbuf json = {0};
        json_out o = {.to = &json};
        TRY(parse_number(name, text, &v, err));
        json_exact(&o, v);
        e = o.err == QUIRE_OK ? body_set(fields, f->field, (str){json.p, json.n}) : o.err;
        strbuf_deinit(&json);
    } else if (f->type == FLAG_FIELD_SWITCH) {
        e = body_set(fields, f->field, str_of("true"));
    } else {
        e = body_add_text(fields, f->field, text);
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: out of memory", name);
}

static quire_err set_flag(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err) {
    void *at = (char *)o + f->offset;
    switch (f->type) {
    case FLAG_SWITCH:
        *(bool *)at = true;
        return QUIRE_OK;
    case FLAG_TEXT:
        *(const char **)at = text;
        return QUIRE_OK;
    case FLAG_COUNT:
    case FLAG_POWER_OF_TWO:
        return set_count(f, name, text, at, err);
    case FLAG_PART:
        return set_part(f, name, text, at, err);
    case FLAG_SECONDS:
    case FLAG_MILLISECONDS: {
        double number;
        TRY(set_part(f, name, text, &number, err));
        *(int64_t *)at = (int64_t)(number * (f->type == FLAG_SECONDS ? 1e6 : 1e3));
        return QUIRE_OK;
    }
    case FLAG_BYTES:
    case FLAG_GIB:
        return set_bytes(f, name, text, at, err);
    case FLAG_CHOICE:
        return set_choice(f, name, text, at, err);
    case FLAG_KEY:
        if (o->server.n_api_keys == CLI_MAX_API_KEYS) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d; put more into --api-key-file", name, CLI_MAX_API_KEYS);
        }
        o->api_keys[o->server.n_api_keys++] = text;
        return QUIRE_OK;
    case FLAG_NAMES:
        if (o->server.n_served_model_names == CLI_MAX_NAMES) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d names", name, CLI_MAX_NAMES);
        }
        o->served_names[o->server.n_served_model_names++] = text;
        return QUIRE_OK;
    case FLAG_FIELDS:
        return set_fields(name, text, &o->fields, err);
    case FLAG_TAKEN:
    case FLAG_TAKEN_VALUE:
    case FLAG_TAKEN_CHOICE:
        return take_without_effect(o, f, name, text, err);
    case FLAG_LATER:
        return err_set(err, QUIRE_INVALID, -1, "%s: not here yet: %s", name, f->meaning);
    case FLAG_REFUSED:
        return err_set(err, QUIRE_INVALID, -1, "%s: not taken: %s", name, f->meaning);
    case FLAG_PRESET:
        *(const char **)at = f->choices[0].value;
        return QUIRE_OK;
    case FLAG_PREFIX:
        if (o->engine.n_public_prefixes == CLI_MAX_PREFIXES) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d", name, CLI_MAX_PREFIXES);
        }
        o->prefix_files[o->engine.n_public_prefixes++] = text;
        return QUIRE_OK;
    default:
        return set_field(f, name, text, &o->fields, err);
    }
}

/* --chat-template: reads a file, or takes the text itself when it looks like a template. */
static quire_err resolve_template(cli_options *o, quire_error *err) {
    if (!o->chat_template) {
        return QUIRE_OK;
    }
    if (strchr(o->chat_template, '{')) {
        o->engine.chat_template = o->chat_template;
        return QUIRE_OK;
    }
    quire_err e = files_read_text(o->chat_template, &o->template_text, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--chat-template (a file, or a template's text)");
    }
    o->engine.chat_template = o->template_text.n ? o->template_text.p : "";
    return QUIRE_OK;
}

/* --public-prefix: reads the text of a file, or the ids of a .json. */
static quire_err resolve_prefixes(cli_options *o, quire_error *err) {
    for (int32_t i = 0; i < o->engine.n_public_prefixes; i++) {
        const char *path = o->prefix_files[i];
        size_t n = strlen(path);
        bool is_json = n > 5 && strcmp(path + n - 5, ".json") == 0;
        quire_err e = is_json ? id_list_read(path, &o->prefix_ids[i], err) : files_read_text(path, &o->prefix_texts[i], err);
        if (e != QUIRE_OK) {
            return err_prefix(err, e, "--public-prefix");
        }
        const strbuf *text = &o->prefix_texts[i];
        o->prefixes[i] = (quire_prefix){text->n ? text->p : "", text->n, o->prefix_ids[i].ids, o->prefix_ids[i].n};
    }
    o->engine.public_prefixes = o->prefixes;
    return QUIRE_OK;
}

/* The part of an argument that is a flag's name: up to the '=' of a long one. */
static str flag_name(const char *arg) {
    const char *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    return (str){arg, equals ? (size_t)(equals - arg) : strlen(arg)};
}

/* One argument that is flag f, `name` being its first part; *i moves past its value. */
static quire_err parse_flag(cli_options *o, const flag *f, str name, int argc, char **argv, int *i, quire_error *err) {
    const char *equals = name.p[name.n] == '=' ? name.p + name.n : NULL;
    char label[64];
    snprintf(label, sizeof label, "%.*s", (int)name.n, name.p);
    bool is_switch = f->type == FLAG_SWITCH || f->type == FLAG_FIELD_SWITCH || f->type == FLAG_PRESET || f->type == FLAG_TAKEN;
    if (f->type == FLAG_LATER || f->type == FLAG_REFUSED) {
        return set_flag(o, f, label, NULL, err);
    }
    if (is_switch && equals) {
        return err_set(err, QUIRE_INVALID, -1, "%s: takes no value", label);
    }
    const char *value = equals ? equals + 1 : NULL;
    bool may_lack = f->type == FLAG_TAKEN_CHOICE && (*i + 1 >= argc || !flag_choice_find(f->choices, argv[*i + 1]));
    if (!is_switch && !value && !may_lack) {
        if (*i + 1 >= argc) {
            return err_set(err, QUIRE_INVALID, -1, "%s: needs a value: %s", label, f->value ? f->value : f->meaning);
        }
        value = argv[++*i];
    }
    TRY(set_flag(o, f, label, value, err));
    while (f->type == FLAG_NAMES && *i + 1 < argc && argv[*i + 1][0] != '-') {
        TRY(set_flag(o, f, label, argv[++*i], err));
    }
    return QUIRE_OK;
}

/* What follows the flags: `positional` is the one argument that is none, or NULL. */
static quire_err resolve_model(cli_options *o, const command *c, const char *positional, quire_error *err) {
    if (!positional && !o->engine.model && o->server.n_served_model_names > 1) { /* --served-model-name NAME MODEL */
        positional = o->served_names[--o->server.n_served_model_names];
    }
    if (o->cache_type_v && strcmp(o->cache_type_v, o->engine.kv_dtype) != 0) {
        return err_set(err, QUIRE_INVALID, -1, "-ctv %s: keys and values have one type here; give -ctk %s too", o->cache_type_v,
                       o->cache_type_v);
    }
    if (positional && o->engine.model) {
        return err_set(err, QUIRE_INVALID, -1, "%s: the model is given twice (also --model %s)", positional, o->engine.model);
    }
    if (positional) {
        o->engine.model = positional;
    }
    if (c->argument == ARGUMENT_MODEL_OR_NONE) {
        return QUIRE_OK;
    }
    if (!o->engine.model && c->argument == ARGUMENT_MODEL) {
        return err_set(err, QUIRE_INVALID, -1, "quire %s needs a MODEL: a .gguf file, a Hugging Face directory, a packed model, or builtin",
                       c->name);
    }
    if (!o->engine.model) {
        o->engine.model = "builtin";
    }
    o->server.api_keys = o->api_keys;
    o->server.served_model_names = o->served_names;
    TRY(resolve_template(o, err));
    return resolve_prefixes(o, err);
}

static quire_err second_argument(const command *c, const char *arg, const char *first, quire_error *err) {
    const char *what = c->argument == ARGUMENT_TRACE ? "TRACE" : c->argument == ARGUMENT_NAME ? "NAME" : "MODEL";
    return err_set(err, QUIRE_INVALID, -1, "%s: one %s is enough (it is %s)%s", arg, what, first,
                   c->argument == ARGUMENT_MODEL_OR_BUILTIN ? "; a prompt goes after -p" : "");
}

quire_err read_flags(cli_options *o, const command *c, const command *const *commands, const command *const *others, int argc, char **argv,
                     quire_error *err) {
    const char *positional = NULL;
    o->n_arguments = argc;
    o->arguments = argv;
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != 0) {
            str name = flag_name(argv[i]);
            const flag *f = find_flag(name, c);
            if (!f) {
                const command *owner = find_owner(name, others);
                return unknown_flag(name, c, owner ? owner : find_owner(name, commands), err);
            }
            TRY(parse_flag(o, f, name, argc, argv, &i, err));
        } else if (c->argument == ARGUMENT_NONE) {
            return err_set(err, QUIRE_INVALID, -1, "%s: `quire %s` takes flags only", argv[i], c->name);
        } else if (positional) {
            return second_argument(c, argv[i], positional, err);
        } else {
            positional = argv[i];
        }
    }
    if (o->help || o->help_all || c->argument == ARGUMENT_NONE) {
        return QUIRE_OK;
    }
    if (c->argument == ARGUMENT_NAME || c->argument == ARGUMENT_TRACE) {
        o->argument = positional;
        return QUIRE_OK;
    }
    return resolve_model(o, c, positional, err);
}

/* Prints "-n, --max-tokens N": the short form, quire's name, the value; and the meaning. */
static void print_flag(const flag *f) {
    char out[128];
    size_t n = sizeof out, own = strcspn(f->names, " "), used = 0;
    const char *brief = strstr(f->names, " -");
    while (brief && brief[2] == '-') {
        brief = strstr(brief + 1, " -");
    }
    if (brief) {
        used = (size_t)snprintf(out, n, "%.*s, ", (int)strcspn(brief + 1, " "), brief + 1);
    }
    used += (size_t)snprintf(out + used, n - used, "%.*s ", (int)own, f->names);
    for (const flag_choice *c = f->type == FLAG_CHOICE ? f->choices : NULL; c && c->spelling && used < n; c++) {
        if (strcmp(c->spelling, c->value) == 0) {
            used += (size_t)snprintf(out + used, n - used, "%s%s", c == f->choices ? "" : "|", c->spelling);
        }
    }
    if (f->value && used < n) {
        snprintf(out + used, n - used, "%s", f->value);
    }
    printf("  %-36s %s\n", out, f->meaning);
}

void read_flags_help(const command *c, bool all) {
    int n_left_out = 0;
    for (const flag *const *group = c->flags; *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (f->type == FLAG_PRESET || f->type >= FLAG_TAKEN) {
                continue;
            }
            if (f->rare && !all) {
                n_left_out++;
                continue;
            }
            print_flag(f);
        }
    }
    if (n_left_out > 1) { /* more than --help-all itself */
        printf("  %-36s these and %d more\n", "--help-all", n_left_out - 1);
    }
}
