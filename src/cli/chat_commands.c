#include "cli/chat_commands.h"

#include <stdio.h>

#include "base/log.h"
#include "base/nearest.h"
#include "cli/chat_settings.h"
#include "cli/chat_turn.h"

/* Marks: a command that needs a conversation, and one that needs its argument. */
enum { TALKS = 1, NEEDS_ARGUMENT = 2 };

typedef struct chat_command {
    const char *names;    /* separated by spaces, the first is shown */
    const char *argument; /* its name in /help; NULL: none */
    const char *meaning;
    int marks;
    quire_err (*run)(chat_state *c, str argument, quire_error *err);
} chat_command;

static quire_err chat_commands_say(const char *text, quire_error *err) {
    return text_out_print(str_of(text), err);
}

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
        log_line(LOG_INFO,
                 "the seed is set, so the answer is the same again; /set seed default has others drawn");
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
            "/set needs a name and a value, as in /set temperature 0.5; /set alone shows the values");
    }
    TRY(chat_settings_set(c, name, value, err));
    log_line(LOG_INFO, "%.*s: %.*s, from the next answer on", (int)name.n, name.p, (int)value.n, value.p);
    return QUIRE_OK;
}

static quire_err set_system(chat_state *c, str argument, quire_error *err) {
    if (argument.n == 0) {
        return c->talk.has_system
                   ? text_out_print((str){c->talk.system.p, c->talk.system.n}, err)
                   : chat_commands_say("There is no system message; /system TEXT sets one.", err);
    }
    str text = str_is(argument, "\"\"") ? (str){"", 0} : argument;
    quire_err e = conversation_set_system(&c->talk, text);
    if (e == QUIRE_OK) {
        log_line(LOG_INFO, "the system message is %s, from the next message on", text.n ? "set" : "removed");
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
}

/* Runs a command on a file: its path with a 0 after it. */
static quire_err with_path(chat_state *c, str argument,
                           quire_err (*run)(chat_state *c, const char *path, quire_error *err),
                           quire_error *err) {
    strbuf path = {0};
    quire_err e = strbuf_add(&path, argument.p, argument.n);
    e = e == QUIRE_OK ? run(c, path.p, err) : err_set(err, e, -1, "out of memory");
    strbuf_deinit(&path);
    return e;
}

static quire_err save_to(chat_state *c, const char *path, bool replace, quire_error *err) {
    TRY(conversation_save(&c->talk, path, replace, err));
    log_line(LOG_INFO, "%zu messages saved to %s", c->talk.n + c->talk.has_system, path);
    return QUIRE_OK;
}

static quire_err save_new(chat_state *c, const char *path, quire_error *err) {
    return save_to(c, path, false, err);
}

static quire_err save_over(chat_state *c, const char *path, quire_error *err) {
    return save_to(c, path, true, err);
}

static quire_err load_from(chat_state *c, const char *path, quire_error *err) {
    TRY(conversation_load(&c->talk, path, err));
    log_line(LOG_INFO, "%zu messages loaded from %s", c->talk.n + c->talk.has_system, path);
    return QUIRE_OK;
}

static quire_err save(chat_state *c, str argument, quire_error *err) {
    return with_path(c, argument, save_new, err);
}

static quire_err chat_commands_replace(chat_state *c, str argument, quire_error *err) {
    return with_path(c, argument, save_over, err);
}

static quire_err chat_commands_load(chat_state *c, str argument, quire_error *err) {
    return with_path(c, argument, load_from, err);
}

static quire_err help(chat_state *c, str argument, quire_error *err);

static const chat_command commands[] = {
    {"/help /?", NULL, "this page", 0, help},
    {"/clear", NULL, "forget the conversation", TALKS, clear},
    {"/regen", NULL, "drop the last answer and make another", TALKS, regenerate},
    {"/set", "[NAME VALUE]", "how answers are sampled; alone: show the values", 0, set},
    {"/system", "[TEXT]", "replace the system message; alone: show it; \"\": remove it", TALKS, set_system},
    {"/save", "FILE", "write the conversation to a new file, as JSON", TALKS | NEEDS_ARGUMENT, save},
    {"/save!", "FILE", "the same, replacing a file", TALKS | NEEDS_ARGUMENT, chat_commands_replace},
    {"/load", "FILE", "continue a conversation that was saved", TALKS | NEEDS_ARGUMENT, chat_commands_load},
    {"/exit /quit /bye", NULL, "end; so does Ctrl-D", 0, chat_commands_end},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static quire_err help(chat_state *c, str argument, quire_error *err) {
    (void)argument;
    strbuf out = {0};
    quire_err e = QUIRE_OK;
    for (int i = 0; i < N_COMMANDS && e == QUIRE_OK; i++) {
        const chat_command *k = &commands[i];
        char usage[48];
        snprintf(usage, sizeof usage, "%.*s %s", (int)strcspn(k->names, " "), k->names,
                 k->argument ? k->argument : "");
        if (!c->completes || !(k->marks & TALKS)) {
            e = strbuf_addf(&out, "  %-20s %s\n", usage, k->meaning);
        }
    }
    e = e == QUIRE_OK
            ? strbuf_add_str(&out, "  \"\"\"                  begins a text of several lines, which ends "
                                   "with \"\"\"; pasted lines stay together\n"
                                   "  Ctrl-C               stops an answer, or clears the line; twice ends")
            : e;
    e = e == QUIRE_OK ? text_out_print((str){out.p, out.n}, err) : err_set(err, e, -1, "out of memory");
    strbuf_deinit(&out);
    return e;
}

static const chat_command *chat_commands_find_command(str name) {
    for (int i = 0; i < N_COMMANDS; i++) {
        for (const char *p = commands[i].names; *p;) {
            size_t n = strcspn(p, " ");
            if (str_eq((str){p, n}, name)) {
                return &commands[i];
            }
            p += n + (p[n] == ' ');
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
                       "%.*s: there is no conversation here: each text is completed by itself", (int)name.n,
                       name.p);
    }
    if (!k->argument && argument.n > 0) {
        return err_set(err, QUIRE_INVALID, -1, "%.*s takes nothing after it", (int)name.n, name.p);
    }
    if ((k->marks & NEEDS_ARGUMENT) && argument.n == 0) {
        return err_set(err, QUIRE_INVALID, -1, "%.*s needs a %s", (int)name.n, name.p, k->argument);
    }
    return k->run(c, argument, err);
}
