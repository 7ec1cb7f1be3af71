/* `quire run` on a terminal: a chat with line editing, or completion where the model has no template. */
#include <histedit.h>
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "cli/commands.h"
#include "json/json_out.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static char *prompt_text(EditLine *el) {
    (void)el;
    static char text[] = "> ";
    return text;
}

/* Adds a message to the conversation: JSON objects with commas between them, not yet in brackets. */
static quire_err add_message(strbuf *messages, const char *role, str content) {
    json_out o = {.to = messages};
    size_t before = messages->n;
    if (before > 0) {
        json_raw(&o, ",");
    }
    json_begin(&o, '{');
    json_cstr(json_name(&o, "role"), role);
    json_name(&o, "content");
    json_text(&o, content.p, content.n);
    json_end(&o, '}');
    messages->n = o.err == QUIRE_OK ? messages->n : before;
    return o.err;
}

/* Starts a new conversation, with the system message. */
static quire_err begin_conversation(const cli_options *o, strbuf *messages) {
    strbuf_clear(messages);
    return o->system ? add_message(messages, "system", str_of(o->system)) : QUIRE_OK;
}

/* Builds the body of a turn: the conversation. */
static quire_err turn_body(const cli_options *o, session *s, const strbuf *messages, body *out, quire_error *err) {
    TRY(request_begin(o, out, err));
    strbuf list = {0};
    quire_err e = strbuf_addf(&list, "[%s]", messages->p);
    e = e == QUIRE_OK ? body_set(out, "messages", (str){list.p, list.n}) : e;
    strbuf_deinit(&list);
    return e != QUIRE_OK ? err_set(err, e, -1, "out of memory") : request_complete(s, QUIRE_CHAT, out, err);
}

/* Runs one line of the user: a turn of the chat (messages not NULL), or a text to complete. A failed turn is removed from the
 * conversation. */
static quire_err take_turn(const cli_options *o, session *s, strbuf *messages, str line, quire_error *err) {
    size_t before = messages != NULL ? messages->n : 0;
    body b = {0};
    response a = {0};
    quire_err e =
        messages != NULL && add_message(messages, "user", line) != QUIRE_OK ? err_set(err, QUIRE_NO_MEMORY, -1, "out of memory") : QUIRE_OK;
    if (e == QUIRE_OK) {
        e = messages != NULL ? turn_body(o, s, messages, &b, err) : request_of_prompt(o, s, line, &b, err);
    }
    e = e == QUIRE_OK ? response_run(&a, s, messages ? QUIRE_CHAT : QUIRE_COMPLETIONS, &b, (str){"", 0}, &interrupted, err) : e;
    if (messages != NULL && e == QUIRE_OK) {
        const strbuf *said = &a.choices[0].text;
        e = add_message(messages, "assistant", (str){said->n ? said->p : "", said->n});
        e = e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
    }
    if (messages != NULL && e != QUIRE_OK) {
        messages->n = before;
    }
    body_deinit(&b);
    response_deinit(&a);
    return e;
}

static quire_err read_lines(const cli_options *o, session *s, EditLine *el, History *past, bool chats, quire_error *err) {
    strbuf messages = {0};
    HistEvent event;
    const char *typed;
    int n;
    quire_err e = begin_conversation(o, &messages);
    while (e == QUIRE_OK && (typed = el_gets(el, &n)) != NULL && n > 0) {
        str line = {typed, strcspn(typed, "\n")};
        if (line.n == 0) {
            continue;
        }
        history(past, &event, H_ENTER, typed);
        if (str_is(line, "/exit")) {
            break;
        }
        if (str_is(line, "/clear") && chats) {
            e = begin_conversation(o, &messages);
            continue;
        }
        interrupted = 0;
        if (take_turn(o, s, chats ? &messages : NULL, line, err) != QUIRE_OK) {
            log_line(LOG_ERROR, "%s", err->message);
        }
    }
    strbuf_deinit(&messages);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
}

quire_err chat_loop(const cli_options *o, session *s, quire_error *err) {
    const quire_info *info = quire_engine_info(s->engine);
    bool chats = info->has_chat_template && !o->complete;
    if (!info->has_vocabulary) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s has no vocabulary, so it can't read text; `quire run --prompts FILE` takes token ids", info->model_path);
    }
    printf("%s\n", chats ? "Chat: /clear forgets, /exit or Ctrl-D ends, Ctrl-C stops an answer."
                         : "Each line is completed by itself: the model goes on from what you type. /exit or Ctrl-D ends, Ctrl-C stops.");
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    sigaction(SIGINT, &action, &before);
    EditLine *el = el_init("quire", stdin, stdout, stderr);
    History *past = history_init();
    quire_err e = QUIRE_OK;
    if (!el || !past) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "the line editor could not start");
    } else {
        HistEvent event;
        history(past, &event, H_SETSIZE, 1000);
        el_set(el, EL_PROMPT, prompt_text);
        el_set(el, EL_EDITOR, "emacs");
        el_set(el, EL_HIST, history, past);
        e = read_lines(o, s, el, past, chats, err);
        putchar('\n');
    }
    if (past) {
        history_end(past);
    }
    if (el) {
        el_end(el);
    }
    sigaction(SIGINT, &before, NULL);
    return e;
}
