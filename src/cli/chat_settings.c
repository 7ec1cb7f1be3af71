#include "cli/chat_settings.h"

#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/set_flag.h"
#include "json/json.h"

/* The field of -n, which is no field among the flags: there it can be -1. */
static const flag max_tokens = {"--max-tokens --predict", "N",
                                "most tokens to produce (default: until the end)", FLAG_FIELD_INTEGER,
                                .field = "max_tokens"};

typedef struct setting_search {
    str wanted;
    const flag *found;
    nearest near;
} setting_search;

static bool is_field(const flag *f) {
    return f->type >= FLAG_FIELD_INTEGER && f->type <= FLAG_FIELD_TEXTS;
}

/* Whether a name of a flag or field is the wanted one: without leading dashes, - and _
 * being equal. */
static bool chat_settings_is_same(str name, str wanted) {
    while (name.n > 0 && name.p[0] == '-') {
        name = (str){name.p + 1, name.n - 1};
    }
    bool same = name.n == wanted.n;
    for (size_t i = 0; same && i < name.n; i++) {
        char a = name.p[i] == '-' ? '_' : name.p[i], b = wanted.p[i] == '-' ? '_' : wanted.p[i];
        same = a == b;
    }
    return same;
}

static void chat_settings_look_at(setting_search *s, const flag *f) {
    nearest_offer(&s->near, str_of(f->field));
    bool same = chat_settings_is_same(str_of(f->field), s->wanted);
    for (const char *p = f->names; *p && !same;) {
        size_t n = strcspn(p, " ");
        same = chat_settings_is_same((str){p, n}, s->wanted);
        p += n + (p[n] == ' ');
    }
    s->found = same ? f : s->found;
}

static const flag *find_setting(str name, quire_error *err) {
    setting_search s = {.wanted = name, .near = {.wanted = name}};
    chat_settings_look_at(&s, &max_tokens);
    for (const flag *const *group = command_run.flags; *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (is_field(f)) {
                chat_settings_look_at(&s, f);
            }
        }
    }
    if (!s.found) {
        err_set(err, QUIRE_INVALID, -1, "%.*s: no such setting; %s%.*s%s/set lists them",
                (int)(name.n < 64 ? name.n : 64), name.p, s.near.best.n ? "did you mean " : "",
                (int)s.near.best.n, s.near.best.n ? s.near.best.p : "", s.near.best.n ? "? " : "");
    }
    return s.found;
}

/* Sets the member to what was typed: JSON, on or off, or a text. */
static quire_err set_value(const flag *f, str value, body *fields, quire_error *err) {
    if (f->type == FLAG_FIELD_TEXT) {
        return flag_set_text(f->field, value, fields, err);
    }
    bool is_switch = f->type == FLAG_FIELD_SWITCH;
    if (is_switch && (str_is(value, "on") || str_is(value, "off"))) {
        quire_err set = body_set(fields, f->field, str_of(str_is(value, "on") ? "true" : "false"));
        return set == QUIRE_OK ? set : err_set(err, set, -1, "out of memory");
    }
    json_value *json = f->type != FLAG_FIELD_TEXTS || str_begins(value, "[") || str_begins(value, "\"")
                           ? json_document(value)
                           : NULL;
    quire_err e = json ? body_set(fields, f->field, value) : body_set_text(fields, f->field, value);
    json_drop(json);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
}

/* Checks the fields as the API does, in a request that is not made. */
static quire_err chat_settings_check(const chat_state *c, const body *fields, quire_error *err) {
    body b = {0};
    strbuf text = {0};
    quire_request *request = NULL;
    quire_endpoint endpoint = c->completes ? QUIRE_COMPLETIONS : QUIRE_CHAT;
    quire_err e = body_set_all(&b, fields);
    e = e == QUIRE_OK ? body_set(&b, "messages", str_of("[{\"role\":\"user\",\"content\":\"x\"}]")) : e;
    if (c->completes && e == QUIRE_OK) {
        body_unset(&b, "messages");
        e = body_set(&b, "prompt", str_of("\"x\""));
    }
    e = e == QUIRE_OK ? body_write(&b, &text) : e;
    e = e == QUIRE_OK ? quire_request_parse(c->session->engine, endpoint, text.p, text.n, &request, err)
                      : err_set(err, e, -1, "out of memory");
    if (e == QUIRE_OK) {
        quire_request_free(request);
    }
    strbuf_deinit(&text);
    body_deinit(&b);
    return e;
}

quire_err chat_settings_set(chat_state *c, str name, str value, quire_error *err) {
    const flag *f = find_setting(name, err);
    if (!f) {
        return QUIRE_INVALID;
    }
    body changed = {0};
    quire_err e = body_set_all(&changed, &c->fields);
    if (str_is(value, "default")) {
        body_unset(&changed, f->field);
    } else {
        e = e == QUIRE_OK ? set_value(f, value, &changed, err) : err_set(err, e, -1, "out of memory");
    }
    e = e == QUIRE_OK ? chat_settings_check(c, &changed, err) : e;
    if (e != QUIRE_OK) {
        body_deinit(&changed);
        return e;
    }
    body_deinit(&c->fields);
    c->fields = changed;
    return QUIRE_OK;
}

static quire_err chat_settings_add_line(const flag *f, const body *used, strbuf *out) {
    str value = body_get(used, f->field);
    return strbuf_addf(out, "  %-22s %-12.*s %s\n", f->field, (int)(value.n ? value.n : 7),
                       value.n ? value.p : "default", f->meaning);
}

quire_err chat_settings_print(const chat_state *c, quire_error *err) {
    body used = {0};
    strbuf out = {0};
    const char *own = quire_engine_info(c->session->engine)->generation_defaults;
    quire_err e = body_set_all(&used, &c->fields);
    e = e == QUIRE_OK ? request_complete(c->session, QUIRE_CHAT, &used, err) : e;
    e = e == QUIRE_OK ? chat_settings_add_line(&max_tokens, &used, &out) : e;
    for (const flag *const *group = command_run.flags; *group; group++) {
        for (const flag *f = *group; f->names && e == QUIRE_OK; f++) {
            e = is_field(f) ? chat_settings_add_line(f, &used, &out) : e;
        }
    }
    if (e == QUIRE_OK && own[0]) {
        e = strbuf_addf(&out, "  defaults of the model: %s\n", own);
    }
    out.n -= out.n > 0; /* the last line is ended by the printing */
    e = e == QUIRE_OK ? text_out_print((str){out.p, out.n}, err) : err_set(err, e, -1, "out of memory");
    strbuf_deinit(&out);
    body_deinit(&used);
    return e;
}
