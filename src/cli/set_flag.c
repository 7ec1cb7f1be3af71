#include "cli/set_flag.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "json/json_out.h"

/* Accepts a flag without effect, and notes it in o. text: its value, or NULL. */
static quire_err take_without_effect(cli_options *o, const flag *f, const char *name, const char *text,
                                     quire_error *err) {
    if (text && f->choices && !flag_choice_find(f->choices, text)) {
        char all[128] = "";
        flag_list_choices(f, false, all, sizeof all);
        return err_set(err, QUIRE_INVALID, -1, "%s %s: only %s is supported: %s", name, text, all,
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

/* Sets the request fields in a JSON object; accepts max_new_tokens, the name of
 * max_tokens in generation_config.json. */
static quire_err set_flag_set_fields(const char *name, const char *text, body *fields, quire_error *err) {
    json_value *all = json_document(str_of(text));
    quire_err e = QUIRE_OK;
    if (!json_is(all, JSON_KIND_OBJECT)) {
        json_drop(all);
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a JSON object such as {\"temperature\":0.7}",
                       name, text);
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
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be token ids, such as 1,2,3", name, text);
    }
    json_ints(&o, ids.ids, ids.n);
    quire_err e = set_written(fields, field, &o);
    strbuf_deinit(&json);
    id_list_deinit(&ids);
    return e;
}

/* Adds a logit bias, "15043+1.5" or "15043-1.5", to a field. */
static quire_err add_bias(const char *field, const char *name, const char *text, body *fields,
                          quire_error *err) {
    char id[16], *end;
    size_t n = strspn(text, "0123456789");
    double v = strtod(text + n, &end);
    bool good = n > 0 && n < sizeof id && (text[n] == '+' || text[n] == '-') && end != text + n &&
                *end == 0 && isfinite(v);
    if (!good) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "%s %s: must be a token id and the number to add to its logit, such as 15043+1 or 15043-0.5",
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

/* Stores a request field as JSON; the API checks its range when the request is made. */
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

/* Whether a value of --lora-scaled is the scale of the preceding file. */
static bool is_scale(const flag *f, const char *text) {
    char *end;
    (void)strtod(text, &end);
    return f->type == FLAG_SCALED && end != text && *end == '\0';
}

/* Appends text to the flag's earlier values in *all; *out: the whole list. */
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
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d keys; put more into --api-key-file", name,
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
        return err_set(err, QUIRE_INVALID, -1, "%s: not supported yet: %s", name, f->meaning);
    case FLAG_REFUSED:
        return err_set(err, QUIRE_INVALID, -1, "%s: not supported: %s", name, f->meaning);
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

#define PREFIX   "QUIRE_"
#define N_PREFIX (sizeof PREFIX - 1)

bool env_flags_name(str spelling, strbuf *to, quire_err *e) {
    if (!str_begins(spelling, "--")) {
        return false;
    }
    if (*e == QUIRE_OK) {
        *e = strbuf_add(to, PREFIX, N_PREFIX);
    }
    for (size_t i = 2; i < spelling.n && *e == QUIRE_OK; i++) {
        char c = spelling.p[i] == '-' ? '_' : (char)toupper((unsigned char)spelling.p[i]);
        *e = strbuf_add(to, &c, 1);
    }
    return true;
}

/* Whether variable, "QUIRE_X" of n bytes, belongs to the spelling. */
static bool is_variable_of(const char *variable, size_t n, str spelling) {
    bool same = str_begins(spelling, "--") && n == N_PREFIX + spelling.n - 2;
    for (size_t i = 2; same && i < spelling.n; i++) {
        char c = variable[N_PREFIX + i - 2];
        same = c == (spelling.p[i] == '-' ? '_' : (char)toupper((unsigned char)spelling.p[i]));
    }
    return same;
}

/* Whether f has a variable: flags for help, and flags of other servers, have none. */
static bool has_variable(const flag *f) {
    return f->type < FLAG_TAKEN && f != flags_help && f != flags_help_all;
}

/* The first entry of environment that is a non-empty variable of f, or NULL. */
static char *find_variable(const flag *f, char **environment) {
    for (const char *names = f->names; *names;) {
        str spelling = flag_next_name(&names);
        for (char **v = environment; *v; v++) {
            size_t n = strcspn(*v, "=");
            if (strncmp(*v, PREFIX, N_PREFIX) == 0 && (*v)[n] == '=' && (*v)[n + 1] != 0 &&
                is_variable_of(*v, n, spelling)) {
                return *v;
            }
        }
    }
    return NULL;
}

/* Whether Kubernetes set the variable, for a service called quire:
 * QUIRE_PORT=tcp://10.0.0.1:80 and others. */
static bool is_service_link(const char *variable, const char *value) {
    static const char port[] = PREFIX "PORT", service[] = PREFIX "SERVICE_";
    return strncmp(variable, service, sizeof service - 1) == 0 ||
           (strncmp(variable, port, sizeof port - 1) == 0 &&
            (variable[sizeof port - 1] == '_' || strncmp(value, "tcp://", 6) == 0 ||
             strncmp(value, "udp://", 6) == 0));
}

/* Whether flags of this type store their value at f->offset. */
static bool has_offset(const flag *f) {
    return f->type <= FLAG_PREFIX || f->type == FLAG_NAMES || f->type == FLAG_PINNED;
}

static bool set_the_same(const flag *a, const flag *b) {
    if (a == b) {
        return true;
    }
    return a->field && b->field ? strcmp(a->field, b->field) == 0
                                : has_offset(a) && has_offset(b) && a->offset == b->offset && a->of == b->of;
}

static bool env_flags_is_given(const flag *f, const flag *const *given) {
    bool found = false;
    for (; *given; given++) {
        found = found || set_the_same(f, *given);
    }
    return found;
}

/* Copies a secret to o, erases the original, and points *value to the copy. */
static quire_err take_secret(cli_options *o, const char *name, char **value, quire_error *err) {
    size_t n = strlen(*value);
    char *copy = mem_dup(*value, n);
    if (!copy || o->n_secrets == CLI_MAX_SECRETS) {
        mem_free(copy);
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", name);
    }
    memset(*value, 0, n);
    o->secrets[o->n_secrets++] = copy;
    *value = copy;
    return QUIRE_OK;
}

/* Erases the values of all variables of a flag. */
static void erase(const flag *f, char **environment) {
    for (char *v = find_variable(f, environment); v; v = find_variable(f, environment)) {
        char *value = v + strcspn(v, "=") + 1;
        memset(value, 0, strlen(value));
    }
}

static quire_err read_variable(cli_options *o, const flag *f, const char *name, char *value,
                               quire_error *err) {
    if (flag_is_switch(f)) {
        bool on = false;
        TRY(flag_parse_switch(name, value, &on, err));
        return on ? set_flag(o, f, name, NULL, err) : QUIRE_OK;
    }
    if (f->secret) {
        TRY(take_secret(o, name, &value, err));
    }
    return set_flag(o, f, name, value, err);
}

static quire_err env_flags_read_flag(cli_options *o, const flag *f, char **environment, quire_error *err) {
    char *variable = find_variable(f, environment), name[64];
    size_t n = variable ? strcspn(variable, "=") : 0;
    if (!variable || n >= sizeof name || is_service_link(variable, variable + n + 1)) {
        return QUIRE_OK;
    }
    memcpy(name, variable, n);
    name[n] = 0;
    TRY(read_variable(o, f, name, variable + n + 1, err));
    return err_set(err, strbuf_addf(&o->from_environment, "%s%s", o->from_environment.n ? ", " : "", name),
                   -1, "%s: out of memory", name);
}

quire_err env_flags_read(cli_options *o, const command *c, const flag *const *given, char **environment,
                         quire_error *err) {
    assert(c != NULL);
    for (const flag *const *group = c->flags; environment && *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            bool is_read = has_variable(f) && !env_flags_is_given(f, given);
            if (is_read) {
                TRY(env_flags_read_flag(o, f, environment, err));
            }
            if (f->secret) {
                erase(f, environment); /* secrets are erased even if the command line gives the flag */
            }
        }
    }
    return QUIRE_OK;
}

/* ---- variables of no flag ---- */

/* Compares all flags of some commands with the spelling in `near`, which keeps the
 * nearest. True: a flag has it. */
static bool look_for(const command *const *commands, nearest *near) {
    bool found = false;
    for (; commands && *commands; commands++) {
        for (const flag *const *group = (*commands)->flags; group && *group; group++) {
            for (const flag *f = *group; f->names; f++) {
                if (has_variable(f)) {
                    nearest_offer_all(near, f->names);
                }
            }
        }
        found = found || (near->best.n > 0 && near->distance == 0);
    }
    return found;
}

/* Whether the variable belongs to this repository's tests and tools. */
static bool is_of_tests(const char *variable, size_t n) {
    static const char *const names[] = {"SHARED", "BIN", "FUZZ"};
    str rest = {variable + N_PREFIX, n - N_PREFIX};
    bool is = str_begins(rest, "TEST_");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        is = is || str_is(rest, names[i]);
    }
    return is;
}

static void warn(const command *const *commands, const command *const *others, const char *variable,
                 size_t n) {
    char spelling[EDIT_MAX + 1] = "--";
    size_t length = n - N_PREFIX + 2;
    nearest near = {.wanted = {spelling, length}};
    for (size_t i = 2; i < length && length <= EDIT_MAX; i++) {
        char c = variable[N_PREFIX + i - 2];
        spelling[i] = c == '_' ? '-' : (char)tolower((unsigned char)c);
    }
    if (length <= EDIT_MAX && (look_for(commands, &near) || look_for(others, &near))) {
        return;
    }
    strbuf best = {0};
    quire_err e = QUIRE_OK;
    bool is_near =
        length <= EDIT_MAX && near.best.n > 0 && env_flags_name(near.best, &best, &e) && e == QUIRE_OK;
    log_line(LOG_WARN, "%.*s: this variable matches no flag and has no effect%s%s%s", (int)n, variable,
             is_near ? "; did you mean " : "", is_near ? best.p : "", is_near ? "?" : "");
    strbuf_deinit(&best);
}

void env_flags_warn(const command *const *commands, const command *const *others, char **environment) {
    for (char **v = environment; v && *v; v++) {
        size_t n = strcspn(*v, "=");
        if (strncmp(*v, PREFIX, N_PREFIX) == 0 && (*v)[n] == '=' && !is_of_tests(*v, n) &&
            !is_service_link(*v, *v + n + 1)) {
            warn(commands, others, *v, n);
        }
    }
}
