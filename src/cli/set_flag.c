#include "cli/set_flag.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "json/json_out.h"

/* A flag that is accepted without effect. text: its value, or NULL. */
static quire_err take_without_effect(cli_options *o, const flag *f, const char *name, const char *text,
                                     quire_error *err) {
    if (text && f->choices && !flag_choice_find(f->choices, text)) {
        char all[128] = "";
        flag_list_choices(f, false, all, sizeof all);
        return err_set(err, QUIRE_INVALID, -1, "%s %s: only %s is possible here: %s", name, text, all,
                       f->meaning);
    }
    quire_err e = strbuf_addf(&o->without_effect, "%s%s%s%s", o->without_effect.n ? ", " : "", name,
                              text ? " " : "", text ? text : "");
    return err_set(err, e, -1, "%s: out of memory", name);
}

static quire_err set_written(body *fields, const char *field, const json_out *o) {
    TRY(o->err);
    return body_set(fields, field, (str){o->to->p, o->to->n});
}

/* Request fields as a JSON object, with vLLM's name of max_tokens in
 * generation_config.json too. */
static quire_err set_flag_set_fields(const char *name, const char *text, body *fields, quire_error *err) {
    json_value *all = json_document(str_of(text));
    quire_err e = QUIRE_OK;
    if (!json_is(all, JSON_KIND_OBJECT)) {
        json_drop(all);
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a JSON object, as {\"temperature\":0.7}", name,
                       text);
    }
    for (json_member m = {0}; e == QUIRE_OK && json_next(all, &m);) {
        strbuf json = {0};
        json_out o = {.to = &json};
        json_add(&o, m.value);
        const char *field = strcmp(m.name, "max_new_tokens") == 0 ? "max_tokens" : m.name;
        e = set_written(fields, field, &o);
        strbuf_deinit(&json);
    }
    json_drop(all);
    return err_set(err, e, -1, "%s: out of memory", name);
}

static quire_err set_ids(const char *field, const char *name, const char *text, body *fields,
                         quire_error *err) {
    id_list ids = {0};
    strbuf json = {0};
    json_out o = {.to = &json};
    quire_error why = {.message = ""};
    if (id_list_parse(text, &ids, &why) != QUIRE_OK) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be token ids, as in 1,2,3", name, text);
    }
    json_ints(&o, ids.ids, ids.n);
    quire_err e = set_written(fields, field, &o);
    strbuf_deinit(&json);
    id_list_deinit(&ids);
    return e;
}

/* "15043+1.5" or "15043-1.5" */
static quire_err add_bias(const char *field, const char *name, const char *text, body *fields,
                          quire_error *err) {
    char id[16], *end;
    size_t n = strspn(text, "0123456789");
    double v = strtod(text + n, &end);
    bool good = n > 0 && n < sizeof id && (text[n] == '+' || text[n] == '-') && end != text + n &&
                *end == 0 && isfinite(v);
    if (!good) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s %s: must be a token id and what is added to its logit, as in 15043+1 or 15043-0.5",
                       name, text);
    }
    (void)snprintf(id, sizeof id, "%.*s", (int)n, text);
    return body_add_number(fields, field, id, v);
}

quire_err flag_set_text(const char *field, str text, body *fields, quire_error *err) {
    strbuf path = {0}, content = {0};
    struct stat about;
    quire_err e = strbuf_add(&path, text.p, text.n);
    bool is_file = e == QUIRE_OK && text.n > 0 && memchr(text.p, 0, text.n) == NULL &&
                   stat(path.p, &about) == 0 && !S_ISDIR(about.st_mode);
    if (e == QUIRE_OK && is_file) {
        e = files_read_text(path.p, &content, err);
        text = (str){content.n > 0 ? content.p : "", content.n};
        text.n -= text.n > 0 && text.p[text.n - 1] == '\n';
        text.n -= text.n > 0 && text.p[text.n - 1] == '\r';
    } else if (e != QUIRE_OK) {
        (void)err_set(err, e, -1, "out of memory");
    }
    if (e == QUIRE_OK && body_set_text(fields, field, text) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    strbuf_deinit(&path);
    strbuf_deinit(&content);
    return e;
}

static quire_err set_flag_refuse_choice(const flag *f, const char *name, const char *text, quire_error *err) {
    char all[128];
    flag_list_choices(f, true, all, sizeof all);
    return err_set(err, QUIRE_INVALID, -1, "%s %s: must be one of %s", name, text, all);
}

/* Request fields keep their JSON form; the API checks the range when the request is
 * made. */
static quire_err set_field(const flag *f, const char *name, const char *text, body *fields,
                           quire_error *err) {
    quire_err e;
    if (f->type == FLAG_FIELD_TEXT) {
        return flag_set_text(f->field, str_of(text), fields, err);
    }
    if (f->type == FLAG_FIELD_INTEGER) {
        int64_t v;
        TRY(flag_parse_integer(name, text, &v, err));
        e = body_set_int(fields, f->field, v);
    } else if (f->type == FLAG_FIELD_NUMBER) {
        double v;
        strbuf json = {0};
        json_out o = {.to = &json};
        TRY(flag_parse_number(name, text, &v, err));
        json_exact(&o, v);
        e = set_written(fields, f->field, &o);
        strbuf_deinit(&json);
    } else if (f->type == FLAG_FIELD_SWITCH) {
        e = body_set(fields, f->field, str_of("true"));
    } else if (f->type == FLAG_FIELD_PRESET) {
        e = body_set(fields, f->field, str_of(f->choices[0].text));
    } else if (f->type == FLAG_FIELD_CHOICE) {
        const flag_choice *choice = flag_choice_find(f->choices, text);
        e = choice != NULL ? body_set(fields, f->field, str_of(choice->text))
                           : set_flag_refuse_choice(f, name, text, err);
    } else if (f->type == FLAG_FIELD_IDS) {
        e = set_ids(f->field, name, text, fields, err);
    } else if (f->type == FLAG_FIELD_BIAS) {
        e = add_bias(f->field, name, text, fields, err);
    } else {
        e = body_add_text(fields, f->field, text);
    }
    return e == QUIRE_OK || e == QUIRE_INVALID ? e : err_set(err, e, -1, "%s: out of memory", name);
}

/* Whether a word of --lora-scaled is the scale of the preceding file. */
static bool is_scale(const flag *f, const char *text) {
    char *end;
    (void)strtod(text, &end);
    return f->type == FLAG_SCALED && end != text && *end == '\0';
}

/* Appends text to earlier values of the flag. */
static quire_err add_to_list(const flag *f, const char *name, const char *text, strbuf *all, const char **out,
                             quire_error *err) {
    const char *between = f->type == FLAG_LIST ? "," : is_scale(f, text) ? ":" : "\n";
    quire_err e = strbuf_addf(all, "%s%s", all->n > 0 ? between : "", text);
    *out = all->p;
    return err_set(err, e, -1, "%s: out of memory", name);
}

bool set_flag_takes(const flag *f, const char *word) {
    assert(f != NULL);
    switch (f->type) {
    case FLAG_NAMES:
        return word[0] != '-';
    case FLAG_LINES:
        return word[0] != '-' && (word[0] == '{' || strchr(word, '=') != NULL);
    case FLAG_SCALED:
        return is_scale(f, word);
    default:
        return false;
    }
}

quire_err set_flag(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err) {
    assert(f != NULL);
    switch (f->type) {
    case FLAG_LIST:
        return add_to_list(f, name, text, &o->override_kv, (const char **)((char *)o + f->offset), err);
    case FLAG_LINES:
        return add_to_list(f, name, text, &o->lora_modules, (const char **)((char *)o + f->offset), err);
    case FLAG_SCALED:
        return add_to_list(f, name, text, &o->loras, (const char **)((char *)o + f->offset), err);
    case FLAG_KEY:
        if (o->server.n_api_keys == CLI_MAX_API_KEYS) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d; put more into --api-key-file", name,
                           CLI_MAX_API_KEYS);
        }
        o->api_keys[o->server.n_api_keys++] = text;
        return QUIRE_OK;
    case FLAG_NAMES:
        if (o->server.n_served_model_names == CLI_MAX_NAMES) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d names", name, CLI_MAX_NAMES);
        }
        o->served_names[o->server.n_served_model_names++] = text;
        return QUIRE_OK;
    case FLAG_PINNED:
        if (o->n_pinned == CLI_MAX_MODELS) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d names", name, CLI_MAX_MODELS);
        }
        o->pinned[o->n_pinned++] = text;
        return QUIRE_OK;
    case FLAG_FIELDS:
        return set_flag_set_fields(name, text, &o->fields, err);
    case FLAG_TAKEN:
    case FLAG_TAKEN_VALUE:
    case FLAG_TAKEN_CHOICE:
        return take_without_effect(o, f, name, text, err);
    case FLAG_LATER:
        return err_set(err, QUIRE_INVALID, -1, "%s: not here yet: %s", name, f->meaning);
    case FLAG_REFUSED:
        return err_set(err, QUIRE_INVALID, -1, "%s: not taken: %s", name, f->meaning);
    case FLAG_PREFIX:
        if (o->engine.n_public_prefixes == CLI_MAX_PREFIXES) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d", name, CLI_MAX_PREFIXES);
        }
        o->prefix_files[o->engine.n_public_prefixes++] = text;
        return QUIRE_OK;
    default:
        return f->type <= FLAG_SCALED ? flag_set_option(f, name, text, cli_options_of(o, f), err)
                                      : set_field(f, name, text, &o->fields, err);
    }
}
