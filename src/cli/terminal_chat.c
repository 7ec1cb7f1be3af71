/* `quire run` on a terminal: a chat with line editing, or with --complete completion. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/chat_commands.h"
#include "cli/chat_turn.h"
#include "cli/commands.h"
#include "cli/input_history.h"
#include "cli/line_editor.h"
#include "cli/tty.h"

#define QUOTES "\"\"\""

typedef struct terminal_chat {
    chat_state state;
    line_editor *editor;
    const char *history; /* NULL: what is typed is not kept */
    bool may_end;        /* the last key was Ctrl-C at an empty line */
    strbuf typed, line;  /* what is sent, as it was typed; one line of it */
} terminal_chat;

/* ---- reading ---- */

static str terminal_chat_text_of(const strbuf *b) {
    return (str){b->n > 0 ? b->p : "", b->n};
}

static str trim_end(str s) {
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t' || s.p[s.n - 1] == '\n')) {
        s.n--;
    }
    return s;
}

/* Where the quotes lie that begin a text of several lines: at the beginning, or after a
 * command and a space. s.n: nowhere. */
static size_t find_quotes(str s) {
    if (str_begins(s, QUOTES)) {
        return 0;
    }
    if (!str_begins(s, "/")) {
        return s.n;
    }
    const char *space = memchr(s.p, ' ', s.n);
    size_t at = space ? (size_t)(space + 1 - s.p) : s.n;
    return str_begins((str){s.p + at, s.n - at}, QUOTES) ? at : s.n;
}

/* Whether the text, whose quotes begin at `at`, has those that end it. */
static bool is_closed(str s, size_t at) {
    s = trim_end(s);
    return s.n >= at + 2 * strlen(QUOTES) && str_ends(s, QUOTES);
}

/* Reads what the user sends into t->typed: a line, or several between quotes. */
static quire_err read_typed(terminal_chat *t, line_end *end) {
    TRY(line_editor_read(t->editor, "> ", &t->typed, end));
    size_t at = find_quotes(terminal_chat_text_of(&t->typed));
    bool has_quotes = at < t->typed.n;
    while (*end == LINE_READ && has_quotes && !is_closed(terminal_chat_text_of(&t->typed), at)) {
        TRY(line_editor_read(t->editor, "... ", &t->line, end));
        TRY(strbuf_add_char(&t->typed, '\n'));
        TRY(strbuf_add(&t->typed, t->line.n ? t->line.p : "", t->line.n));
        if (*end == LINE_CLOSED) {
            log_line(LOG_WARN, "the text was not ended with " QUOTES ": it is dropped");
            *end = LINE_INTERRUPTED;
        }
    }
    return QUIRE_OK;
}

/* Adds what was typed to the history. A file that fails is named once. */
static quire_err terminal_chat_remember(terminal_chat *t) {
    quire_error err;
    str entry = trim_end(terminal_chat_text_of(&t->typed));
    TRY(line_editor_remember(t->editor, entry));
    if (t->history && input_history_add(t->history, entry, &err) != QUIRE_OK) {
        log_line(LOG_WARN, "the history of lines is not kept: %s", err.message);
        t->history = NULL;
    }
    return QUIRE_OK;
}

static quire_err terminal_chat_take_entry(void *user, str entry) {
    return line_editor_remember(user, entry);
}

static void load_history(terminal_chat *t) {
    quire_error err;
    if (t->history && input_history_read(t->history, terminal_chat_take_entry, t->editor, &err) != QUIRE_OK) {
        log_line(LOG_WARN, "the history of lines is not kept: %s", err.message);
        t->history = NULL;
    }
}

/* ---- the loop ---- */

/* Removes the quotes; the text without them is in t->line. */
static quire_err unquote(terminal_chat *t, size_t at) {
    str s = trim_end(terminal_chat_text_of(&t->typed));
    size_t begin = at + strlen(QUOTES), n = s.n - begin - strlen(QUOTES);
    strbuf_clear(&t->line);
    TRY(strbuf_add(&t->line, s.p, at));
    return strbuf_add(&t->line, s.p + begin, n);
}

/* Runs what was typed: a command, or a message. */
static quire_err run_typed(terminal_chat *t, quire_error *err) {
    str s = trim_end(terminal_chat_text_of(&t->typed));
    size_t at = find_quotes(s);
    bool quoted = at < s.n;
    if (quoted) {
        quire_err e = unquote(t, at);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "out of memory");
        }
        s = terminal_chat_text_of(&t->line);
    }
    if (str_begins(s, "/") && (!quoted || at > 0)) {
        return chat_commands_run(&t->state, s, err);
    }
    if (trim_end(s).n == 0) {
        return QUIRE_OK;
    }
    return t->state.completes ? chat_turn_complete(&t->state, s, err) : chat_turn_take(&t->state, s, err);
}

/* Ctrl-C: clears the line; the second one at an empty line ends. */
static void interrupt(terminal_chat *t) {
    bool is_empty = t->typed.n == 0;
    t->state.is_over = is_empty && t->may_end;
    t->may_end = true;
    if (!t->state.is_over) {
        log_line(LOG_INFO, "Ctrl-C again ends, as Ctrl-D does");
    }
}

static quire_err terminal_chat_read_and_run(terminal_chat *t, quire_error *err) {
    line_end end;
    quire_err e = read_typed(t, &end);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "out of memory");
    }
    if (end == LINE_INTERRUPTED) {
        interrupt(t);
        return QUIRE_OK;
    }
    t->state.is_over = end != LINE_READ;
    t->may_end = false;
    if (end != LINE_READ || trim_end(terminal_chat_text_of(&t->typed)).n == 0) {
        return QUIRE_OK;
    }
    quire_error wrong = {.code = QUIRE_OK, .position = -1};
    e = terminal_chat_remember(t);
    if (e == QUIRE_OK && run_typed(t, &wrong) != QUIRE_OK) {
        log_line(LOG_ERROR, "%s", wrong.message);
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
}

static quire_err chat_on(terminal_chat *t, const cli_options *o, FILE *out, quire_error *err) {
    quire_err e = request_begin(o, &t->state.fields, err);
    if (e == QUIRE_OK && o->system &&
        conversation_set_system(&t->state.talk, str_of(o->system)) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    e = e == QUIRE_OK ? line_editor_open(out, &t->editor, err) : e;
    if (e == QUIRE_OK) {
        load_history(t);
    }
    while (e == QUIRE_OK && !t->state.is_over) {
        e = terminal_chat_read_and_run(t, err);
    }
    line_editor_close(t->editor);
    conversation_deinit(&t->state.talk);
    body_deinit(&t->state.fields);
    strbuf_deinit(&t->typed);
    strbuf_deinit(&t->line);
    return e;
}

quire_err chat_loop(const cli_options *o, session *s, quire_error *err) {
    const quire_info *info = quire_engine_info(s->engine);
    terminal_chat t = {.state = {.session = s, .completes = !info->has_chat_template || o->complete},
                       .history = o->no_history ? NULL : o->environment.history_file};
    FILE *out = isatty(STDOUT_FILENO) ? stdout : stderr; /* answers may go to a file */
    if (!info->has_vocabulary) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s has no vocabulary, so it can't read text; `quire run --prompts FILE` takes token ids",
            info->model_path);
    }
    if (!t.state.completes && strcmp(info->chat_form, "plain") == 0) {
        log_line(LOG_INFO, "the model has no chat template: turns are written \"user:\" and \"assistant:\"; "
                           "--chat-template gives one, and with --complete it continues each text");
    }
    fprintf(out, "%s\n",
            t.state.completes ? "Each line is completed on its own: the model continues what you type. "
                                "/help lists commands, Ctrl-D ends."
                              : "Chat: /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.");
    TRY(tty_open(out, o->environment.plain_terminal, err));
    quire_err e = chat_on(&t, o, out, err);
    if (fputc('\n', out) == EOF || fflush(out) != 0) {
        e = e == QUIRE_OK ? err_set(err, QUIRE_IO, -1, "the terminal could not be written") : e;
    }
    tty_close();
    return e;
}
