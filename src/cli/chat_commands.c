/* The commands of a chat, such as /help. */

#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "cli/chat_turn.h"
#include "cli/commands.h"
#include "cli/set_flag.h"
#include "json/json.h"

/* The request fields that /set changes: those for which `quire run` has flags
 * (command_run), by field or flag name. The API's own check checks the values. One
 * thread. */

/* The field of -n. -n itself is no field flag, since it can be -1. */
static const flag max_tokens = {"--max-tokens --predict", "N",
                                "most tokens to generate (default: until the end)", FLAG_FIELD_INTEGER,
                                .field = "max_tokens"};

typedef struct setting_search {
    str wanted;
    const flag *found;
    nearest near;
} setting_search;

static bool is_field(const flag *f) {
    return f->type >= FLAG_FIELD_INTEGER && f->type <= FLAG_FIELD_TEXTS;
}

/* Whether two names of flags or fields are equal, ignoring leading dashes of `name` and
 * treating - and _ as equal. */
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
    for (const char *names = f->names; *names && !same;) {
        same = chat_settings_is_same(flag_next_name(&names), s->wanted);
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

/* Sets the field of f to the typed value: JSON, on or off, or a text. */
static quire_err set_value(const flag *f, str value, body *fields, quire_error *err) {
    if (f->type == FLAG_FIELD_TEXT) {
        return flag_set_text(f->field, value, fields, err);
    }
    bool is_switch = f->type == FLAG_FIELD_SWITCH;
    if (is_switch && (str_is(value, "on") || str_is(value, "off"))) {
        return err_set(err, body_set(fields, f->field, str_of(str_is(value, "on") ? "true" : "false")), -1,
                       "out of memory");
    }
    json_value *json = f->type != FLAG_FIELD_TEXTS || str_begins(value, "[") || str_begins(value, "\"")
                           ? json_document(value)
                           : NULL;
    quire_err e = json ? body_set(fields, f->field, value) : body_set_text(fields, f->field, value);
    json_drop(json);
    return err_set(err, e, -1, "out of memory");
}

/* Writes a minimal request with these fields to b and text. */
static quire_err chat_settings_write(const chat_state *c, const body *fields, body *b, strbuf *text) {
    TRY(body_set_all(b, fields));
    TRY(c->completes ? body_set(b, "prompt", str_of("\"x\""))
                     : body_set(b, "messages", str_of("[{\"role\":\"user\",\"content\":\"x\"}]")));
    return body_write(b, text);
}

/* Checks the fields by building a request that is not submitted. */
static quire_err chat_settings_check(const chat_state *c, const body *fields, quire_error *err) {
    body b = {0};
    strbuf text = {0};
    quire_request *request = NULL;
    quire_endpoint endpoint = c->completes ? QUIRE_COMPLETIONS : QUIRE_CHAT;
    quire_err e = err_set(err, chat_settings_write(c, fields, &b, &text), -1, "out of memory");
    TRY_DONE(e, quire_request_parse(c->session->engine, endpoint, text.p, text.n, &request, err));
    quire_request_free(request);
done:
    strbuf_deinit(&text);
    body_deinit(&b);
    return e;
}

/* Sets a field to JSON, or to a text without quotes; "default" unsets it. QUIRE_INVALID
 * or QUIRE_BAD_REQUEST: err says why, and nothing is changed. */
static quire_err chat_settings_set(chat_state *c, str name, str value, quire_error *err) {
    const flag *f = find_setting(name, err);
    if (!f) {
        return QUIRE_INVALID;
    }
    body changed = {0};
    quire_err e = err_set(err, body_set_all(&changed, &c->fields), -1, "out of memory");
    if (str_is(value, "default")) {
        body_unset(&changed, f->field);
    } else {
        TRY_DONE(e, set_value(f, value, &changed, err));
    }
    TRY_DONE(e, chat_settings_check(c, &changed, err));
done:
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

static quire_err chat_settings_add_all(const chat_state *c, body *used, strbuf *out, quire_error *err) {
    const char *own = quire_engine_info(c->session->engine)->generation_defaults;
    TRY(body_set_all(used, &c->fields));
    TRY(request_complete(c->session, QUIRE_CHAT, used, err));
    TRY(chat_settings_add_line(&max_tokens, used, out));
    for (const flag *const *group = command_run.flags; *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (is_field(f)) {
                TRY(chat_settings_add_line(f, used, out));
            }
        }
    }
    return own[0] ? strbuf_addf(out, "  defaults of the model: %s\n", own) : QUIRE_OK;
}

/* Prints all fields with the values for the next answer and their meanings. */
static quire_err chat_settings_print(const chat_state *c, quire_error *err) {
    body used = {0};
    strbuf out = {0};
    quire_err e = err_set(err, chat_settings_add_all(c, &used, &out, err), -1, "out of memory");
    out.n -= out.n > 0; /* text_out_finish adds the last newline */
    body_deinit(&used);
    return text_out_finish(&out, e, err);
}

/* Flags of a command: it needs a conversation; it needs its argument. */
enum { TALKS = 1, NEEDS_ARGUMENT = 2 };

typedef struct chat_command {
    const char *names;    /* separated by spaces, the first is shown */
    const char *argument; /* the argument's name in /help; NULL: no argument */
    const char *meaning;
    int marks;
    quire_err (*run)(chat_state *c, str argument, quire_error *err);
} chat_command;

static quire_err clear(chat_state *c, str argument, quire_error *err) {
    (void)argument;
    (void)err;
    conversation_clear(&c->talk);
    log_line(LOG_INFO, "the conversation is empty%s", c->talk.has_system ? "; the system message stays" : "");
    return QUIRE_OK;
}

static quire_err chat_commands_end(chat_state *c, str argument, quire_error *err) {
    (void)argument;
    (void)err;
    c->is_over = true;
    return QUIRE_OK;
}

static quire_err regenerate(chat_state *c, str argument, quire_error *err) {
    (void)argument;
    if (body_has(&c->fields, "seed")) {
        log_line(
            LOG_INFO,
            "the seed is set, so the answer will be the same; /set seed default draws a new one each time");
    }
    return chat_turn_again(c, err);
}

static quire_err set(chat_state *c, str argument, quire_error *err) {
    size_t n = 0;
    while (n < argument.n && argument.p[n] != ' ' && argument.p[n] != '=') {
        n++;
    }
    str name = {argument.p, n}, value = {argument.p + n, argument.n - n};
    while (value.n > 0 && (value.p[0] == ' ' || value.p[0] == '=')) {
        value = (str){value.p + 1, value.n - 1};
    }
    if (name.n == 0) {
        return chat_settings_print(c, err);
    }
    if (value.n == 0) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "/set needs a name and a value, such as /set temperature 0.5; /set alone shows the values");
    }
    TRY(chat_settings_set(c, name, value, err));
    log_line(LOG_INFO, "%.*s: %.*s, from the next answer on", (int)name.n, name.p, (int)value.n, value.p);
    return QUIRE_OK;
}

static quire_err set_system(chat_state *c, str argument, quire_error *err) {
    if (argument.n == 0) {
        return c->talk.has_system
                   ? text_out_print((str){c->talk.system.p, c->talk.system.n}, err)
                   : text_out_print(str_of("There is no system message; /system TEXT sets one."), err);
    }
    str text = str_is(argument, "\"\"") ? (str){"", 0} : argument;
    quire_err e = conversation_set_system(&c->talk, text);
    if (e == QUIRE_OK) {
        log_line(LOG_INFO, "the system message is %s, from the next message on", text.n ? "set" : "removed");
    }
    return err_set(err, e, -1, "out of memory");
}

static quire_err save_to(chat_state *c, str argument, bool replace, quire_error *err) {
    strbuf path = {0};
    quire_err e = err_set(err, strbuf_add(&path, argument.p, argument.n), -1, "out of memory");
    TRY_DONE(e, conversation_save(&c->talk, path.p, replace, err));
    log_line(LOG_INFO, "%zu messages saved to %s", c->talk.n + c->talk.has_system, path.p);
done:
    strbuf_deinit(&path);
    return e;
}

static quire_err save(chat_state *c, str argument, quire_error *err) {
    return save_to(c, argument, false, err);
}

static quire_err chat_commands_replace(chat_state *c, str argument, quire_error *err) {
    return save_to(c, argument, true, err);
}

static quire_err chat_commands_load(chat_state *c, str argument, quire_error *err) {
    strbuf path = {0};
    quire_err e = err_set(err, strbuf_add(&path, argument.p, argument.n), -1, "out of memory");
    TRY_DONE(e, conversation_load(&c->talk, path.p, err));
    log_line(LOG_INFO, "%zu messages loaded from %s", c->talk.n + c->talk.has_system, path.p);
done:
    strbuf_deinit(&path);
    return e;
}

static quire_err help(chat_state *c, str argument, quire_error *err);

static const chat_command commands[] = {
    {"/help /?", NULL, "this page", 0, help},
    {"/clear", NULL, "forget the conversation", TALKS, clear},
    {"/regen", NULL, "drop the last answer and generate another", TALKS, regenerate},
    {"/set", "[NAME VALUE]", "set how answers are sampled; alone: show the values", 0, set},
    {"/system", "[TEXT]", "replace the system message; alone: show it; \"\": remove it", TALKS, set_system},
    {"/save", "FILE", "write the conversation to a new file, as JSON", TALKS | NEEDS_ARGUMENT, save},
    {"/save!", "FILE", "save the conversation, replacing an existing file", TALKS | NEEDS_ARGUMENT,
     chat_commands_replace},
    {"/load", "FILE", "continue a conversation that was saved", TALKS | NEEDS_ARGUMENT, chat_commands_load},
    {"/exit /quit /bye", NULL, "end the chat, as Ctrl-D does", 0, chat_commands_end},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static quire_err help_write(const chat_state *c, strbuf *out) {
    for (int i = 0; i < N_COMMANDS; i++) {
        const chat_command *k = &commands[i];
        char usage[48];
        snprintf(usage, sizeof usage, "%.*s %s", (int)strcspn(k->names, " "), k->names,
                 k->argument ? k->argument : "");
        if (!c->completes || !(k->marks & TALKS)) {
            TRY(strbuf_addf(out, "  %-20s %s\n", usage, k->meaning));
        }
    }
    return strbuf_add_str(
        out, "  \"\"\"                  begins a text of several lines that ends with \"\"\"; pasted lines "
             "stay together\n  Ctrl-C               stops an answer, or clears the line; twice ends");
}

static quire_err help(chat_state *c, str argument, quire_error *err) {
    (void)argument;
    strbuf out = {0};
    return text_out_finish(&out, err_set(err, help_write(c, &out), -1, "out of memory"), err);
}

static const chat_command *chat_commands_find_command(str name) {
    for (int i = 0; i < N_COMMANDS; i++) {
        for (const char *names = commands[i].names; *names;) {
            if (str_eq(flag_next_name(&names), name)) {
                return &commands[i];
            }
        }
    }
    return NULL;
}

static quire_err unknown(str name, quire_error *err) {
    nearest near = {.wanted = name};
    for (int i = 0; i < N_COMMANDS; i++) {
        nearest_offer_all(&near, commands[i].names);
    }
    return err_set(
        err, QUIRE_INVALID, -1,
        "%.*s: no such command; %s%.*s%s/help lists them; a text that begins with / goes between \"\"\"",
        (int)(name.n < 64 ? name.n : 64), name.p, near.best.n ? "did you mean " : "", (int)near.best.n,
        near.best.n ? near.best.p : "", near.best.n ? "? " : "");
}

static bool chat_commands_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n';
}

quire_err chat_commands_run(chat_state *c, str line, quire_error *err) {
    size_t n = 0;
    while (n < line.n && !chat_commands_is_blank(line.p[n])) {
        n++;
    }
    str name = {line.p, n}, argument = {line.p + n, line.n - n};
    while (argument.n > 0 && chat_commands_is_blank(argument.p[0])) {
        argument = (str){argument.p + 1, argument.n - 1};
    }
    while (argument.n > 0 && chat_commands_is_blank(argument.p[argument.n - 1])) {
        argument.n--;
    }
    const chat_command *k = chat_commands_find_command(name);
    if (!k) {
        return unknown(name, err);
    }
    if (c->completes && (k->marks & TALKS)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%.*s: there is no conversation: each text is completed on its own", (int)name.n,
                       name.p);
    }
    if (!k->argument && argument.n > 0) {
        return err_set(err, QUIRE_INVALID, -1, "%.*s takes no argument", (int)name.n, name.p);
    }
    if ((k->marks & NEEDS_ARGUMENT) && argument.n == 0) {
        return err_set(err, QUIRE_INVALID, -1, "%.*s needs a %s", (int)name.n, name.p, k->argument);
    }
    return k->run(c, argument, err);
}
