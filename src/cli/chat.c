/* `quire run` on a terminal: a chat with line editing, or completion where the model has no template. */
#include <histedit.h>
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"

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

static json_object *message(const char *role, const char *content) {
    json_object *m = json_object_new_object();
    json_object_object_add(m, "role", json_object_new_string(role));
    json_object_object_add(m, "content", json_object_new_string(content));
    return m;
}

/* Forgets the conversation, keeping the system message. */
static json_object *fresh_messages(const cli_options *o) {
    json_object *messages = json_object_new_array();
    if (messages && o->system) {
        json_object_array_add(messages, message("system", o->system));
    }
    return messages;
}

/* One line of the user: a turn of the chat, or a text to complete. A failed turn is taken out of the conversation again. */
static quire_err take_turn(const cli_options *o, session *s, json_object *messages, const char *line, quire_error *err) {
    json_object *body = request_body(o);
    if (!body) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err e = QUIRE_OK;
    if (messages) {
        json_object_array_add(messages, message("user", line));
        json_object_object_add(body, "messages", json_object_get(messages));
    } else {
        json_object_object_add(body, "prompt", json_object_new_string(line));
        e = request_fill_length(o, s, body, line, err);
    }
    answer a = {0};
    if (e == QUIRE_OK) {
        e = answer_run(&a, s, messages ? QUIRE_CHAT : QUIRE_COMPLETIONS, body, answer_print, NULL, &interrupted);
        if (e != QUIRE_OK) {
            *err = a.error;
        }
        putchar('\n');
    }
    json_object_put(body);
    if (messages && e == QUIRE_OK) {
        json_object_array_add(messages, message("assistant", a.choices[0].text.n ? a.choices[0].text.p : ""));
    } else if (messages) {
        json_object_array_del_idx(messages, json_object_array_length(messages) - 1, 1);
    }
    answer_deinit(&a);
    return e;
}

static quire_err read_lines(const cli_options *o, session *s, EditLine *el, History *past, bool chats, quire_error *err) {
    json_object *messages = chats ? fresh_messages(o) : NULL;
    HistEvent event;
    const char *typed;
    int n;
    while ((typed = el_gets(el, &n)) != NULL && n > 0) {
        size_t length = strcspn(typed, "\n");
        if (length == 0) {
            continue;
        }
        history(past, &event, H_ENTER, typed);
        char *line = mem_dup(typed, length);
        if (!line || strcmp(line, "/exit") == 0) {
            mem_free(line);
            break;
        }
        if (strcmp(line, "/clear") == 0 && chats) {
            json_object_put(messages);
            messages = fresh_messages(o);
        } else {
            interrupted = 0;
            if (take_turn(o, s, messages, line, err) != QUIRE_OK) {
                log_line(LOG_ERROR, "%s", err->message);
            }
        }
        mem_free(line);
    }
    json_object_put(messages);
    return QUIRE_OK;
}

quire_err chat_loop(const cli_options *o, session *s, quire_error *err) {
    const quire_info *info = quire_engine_info(s->engine);
    bool chats = info->has_chat_template && !o->complete;
    if (!info->has_vocabulary) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s has no vocabulary, so it can't read text; `quire run --prompts FILE` takes token ids", info->model_path);
    }
    printf("%s\n", chats ? "Chat: /clear forgets, /exit or Ctrl-D ends, Ctrl-C stops an answer."
                         : "This model has no chat template: it goes on from what you type. /exit or Ctrl-D ends, Ctrl-C stops.");
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
