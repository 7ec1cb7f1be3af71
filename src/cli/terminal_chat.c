/* `quire run` on a terminal: a chat with line editing or, with --complete, completion of
 * texts. */
#include <assert.h>
#include <errno.h>
#include <histedit.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#include <wchar.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "cli/chat_turn.h"
#include "cli/commands.h"
#include "cli/tty.h"

/* Reads lines that the user edits on the terminal, with a history; wraps libedit. Needs
 * tty_open. One instance, one thread.
 *
 * Text that is pasted between the terminal's marks is inserted unchanged, newlines
 * included. */

/* most characters of pasted text; a longer one is dropped with a beep */
#define LINE_EDITOR_MAX_PASTE ((size_t)4 << 20)

typedef enum line_end {
    LINE_READ,
    LINE_INTERRUPTED, /* Ctrl-C; the line has what was typed before */
    LINE_CLOSED,      /* Ctrl-D at an empty line, or the end of input */
    LINE_SIGNAL       /* SIGTERM or SIGHUP: end the program */
} line_end;

typedef struct line_editor line_editor;

enum { HISTORY_ENTRIES = 1000, NO_CHARACTER = 0xFFFD };

struct line_editor {
    EditLine *el;
    HistoryW *past;
    wchar_t prompt[16];
    char bytes[4]; /* input bytes of an incomplete character */
    size_t n_bytes;
    line_end end;   /* how the line being read has ended; LINE_READ: not yet */
    int n_back;     /* history entries that the arrow keys have gone back; 0: at the user's own line */
    wchar_t *draft; /* mem_new'd: the user's own line while n_back > 0 */
};

static line_editor *editor_of(EditLine *el) {
    void *e = NULL;
    (void)el_wget(el, EL_CLIENTDATA, &e);
    return e;
}

static wchar_t *prompt_text(EditLine *el) {
    return editor_of(el)->prompt;
}

/* ---- input ---- */

/* Redraws the line after other output or a new terminal size has displaced it. */
static void redraw(line_editor *e) {
    tty_clear_line();
    (void)el_wset(e->el, EL_REFRESH);
}

static void suspend(line_editor *e) {
    (void)el_wset(e->el, EL_PREP_TERM, 0);
    tty_suspend();
    (void)el_wset(e->el, EL_PREP_TERM, 1);
    redraw(e);
}

/* Waits for input. False: a signal ended the line. */
static bool wait_for_input(line_editor *e) {
    while (e->end == LINE_READ) {
        switch (tty_wait()) {
        case TTY_INPUT:
            return true;
        case TTY_INTERRUPT:
            e->end = LINE_INTERRUPTED;
            break;
        case TTY_END:
            e->end = LINE_SIGNAL;
            break;
        case TTY_RESIZED:
            el_resize(e->el);
            redraw(e);
            break;
        case TTY_SUSPEND:
            suspend(e);
            break;
        }
    }
    return false;
}

/* Takes a character from the bytes read so far. False if more are needed. */
static bool take_character(line_editor *e, wchar_t *out) {
    size_t length;
    int32_t c = e->n_bytes > 0 ? utf8_decode(e->bytes, e->n_bytes, &length) : -1;
    if (e->n_bytes == 0 || (c < 0 && length == e->n_bytes && utf8_is_unfinished(e->bytes, length))) {
        return false;
    }
    *out = c < 0 ? (wchar_t)NO_CHARACTER : (wchar_t)c;
    e->n_bytes -= length;
    memmove(e->bytes, e->bytes + length, e->n_bytes);
    return true;
}

/* libedit's input function: 1, 0 at the end, or -1 on failure. A signal that ends the
 * line is passed to libedit as Enter, so that it ends the line; within a key sequence or
 * a search several are needed. */
static int read_character(EditLine *el, wchar_t *out) {
    line_editor *e = editor_of(el);
    while (!take_character(e, out)) {
        if (!wait_for_input(e)) {
            *out = L'\n';
            return 1;
        }
        ssize_t n = read(STDIN_FILENO, e->bytes + e->n_bytes, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (n <= 0) {
            *out = 0;
            return n < 0 ? -1 : 0;
        }
        e->n_bytes++;
    }
    return 1;
}

/* ---- pasted text ---- */

typedef struct pasted {
    wchar_t *text; /* mem_new'd */
    size_t n, cap;
    bool too_long;
} pasted;

/* Adds a character. Pasted text has passed the terminal's input modes: a line ends with
 * LF or CR, or with both if the text had CR LF. */
static bool add_pasted(pasted *p, wchar_t c, wchar_t before) {
    if (c == 0 || (c == L'\r' && before == L'\n')) {
        return true;
    }
    if (p->n == LINE_EDITOR_MAX_PASTE) {
        p->too_long = true;
        return true;
    }
    if (mem_grow(&p->text, &p->cap, p->n + 2, sizeof *p->text) != QUIRE_OK) {
        return false;
    }
    p->text[p->n++] = c == L'\r' ? L'\n' : c;
    p->text[p->n] = 0;
    return true;
}

/* Reads pasted text up to the mark that ends it, and keeps the mark in the text. False: a
 * signal or the end of input came first, or out of memory. */
static bool read_pasted(line_editor *e, pasted *p) {
    static const wchar_t mark[] = TTY_PASTE_ENDS;
    wchar_t c, before = 0, last[sizeof mark / sizeof *mark - 1] = {0};
    enum { N = sizeof last / sizeof *last };
    while (wmemcmp(last, mark, N) != 0) {
        if (el_wgetc(e->el, &c) != 1 || e->end != LINE_READ || !add_pasted(p, c, before)) {
            return false;
        }
        wmemmove(last, last + 1, N - 1);
        last[N - 1] = before = c;
    }
    return true;
}

/* The editor function of the mark before pasted text: inserts the text. */
static unsigned char insert_pasted(EditLine *el, wint_t key) {
    (void)key;
    line_editor *e = editor_of(el);
    pasted p = {0};
    size_t n_mark = wcslen(TTY_PASTE_ENDS);
    bool whole = read_pasted(e, &p);
    if (whole && !p.too_long) {
        p.n -= n_mark;
        p.text[p.n] = 0;
    }
    bool good = whole && !p.too_long && (p.n == 0 || el_winsertstr(el, p.text) == 0);
    mem_free(p.text);
    return good ? CC_REFRESH : CC_REFRESH_BEEP;
}

/* ---- history ---- */

/* The n-th newest history entry, borrowed; NULL: there are fewer. */
static const wchar_t *entry_back(line_editor *e, int n) {
    HistEventW event;
    int result = history_w(e->past, &event, H_FIRST);
    for (int i = 1; i < n && result >= 0; i++) {
        result = history_w(e->past, &event, H_NEXT);
    }
    return result >= 0 ? event.str : NULL;
}

static bool keep_draft(line_editor *e) {
    const LineInfoW *now = el_wline(e->el);
    size_t n = (size_t)(now->lastchar - now->buffer);
    mem_free(e->draft);
    e->draft = mem_new(n + 1, sizeof *e->draft);
    if (e->draft) {
        wmemcpy(e->draft, now->buffer, n);
    }
    return e->draft != NULL;
}

/* Replaces the line by the n_back-th newest entry; 0: by the draft. libedit's own
 * commands would cut the draft to 1,024 characters. */
static unsigned char line_editor_show_entry(line_editor *e, int n_back) {
    const LineInfoW *now = el_wline(e->el);
    int length = (int)(now->lastchar - now->buffer);
    if (n_back < 0 || (e->n_back == 0 && !keep_draft(e))) {
        return CC_ERROR;
    }
    const wchar_t *text = n_back > 0 ? entry_back(e, n_back) : e->draft;
    if (!text) {
        return CC_ERROR;
    }
    (void)el_cursor(e->el, length); /* moves to the end of the line */
    el_deletestr(e->el, length);
    e->n_back = n_back;
    return text[0] == 0 || el_winsertstr(e->el, text) == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
}

static unsigned char show_older(EditLine *el, wint_t key) {
    (void)key;
    return line_editor_show_entry(editor_of(el), editor_of(el)->n_back + 1);
}

static unsigned char show_newer(EditLine *el, wint_t key) {
    (void)key;
    return line_editor_show_entry(editor_of(el), editor_of(el)->n_back - 1);
}

/* ---- the editor ---- */

static bool bind_keys(EditLine *el) {
    static const char *const keys[][2] = {{TTY_PASTE_BEGINS, "quire-paste"},
                                          {"\033[A", "quire-older"},
                                          {"\033OA", "quire-older"},
                                          {"^P", "quire-older"},
                                          {"\033[B", "quire-newer"},
                                          {"\033OB", "quire-newer"},
                                          {"^N", "quire-newer"}};
    bool good = el_wset(el, EL_ADDFN, L"quire-paste", L"insert pasted text", insert_pasted) == 0 &&
                el_wset(el, EL_ADDFN, L"quire-older", L"go back in the history", show_older) == 0 &&
                el_wset(el, EL_ADDFN, L"quire-newer", L"go forward in the history", show_newer) == 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && good; i++) {
        good = el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL) == 0;
    }
    return good;
}

static bool set_up(line_editor *e) {
    HistEventW event;
    return history_w(e->past, &event, H_SETSIZE, HISTORY_ENTRIES) == 0 &&
           history_w(e->past, &event, H_SETUNIQUE, 1) == 0 && el_wset(e->el, EL_CLIENTDATA, e) == 0 &&
           el_wset(e->el, EL_PROMPT, prompt_text) == 0 && el_wset(e->el, EL_EDITOR, L"emacs") == 0 &&
           el_wset(e->el, EL_HIST, history_w, e->past) == 0 &&
           el_wset(e->el, EL_GETCFN, read_character) == 0 && bind_keys(e->el);
}

static void line_editor_close(line_editor *e) {
    if (!e) {
        return;
    }
    if (e->past) {
        history_wend(e->past);
    }
    if (e->el) {
        el_end(e->el);
    }
    mem_free(e->draft);
    mem_free(e);
}

/* Opens the editor. out: where the line is shown; borrowed. */
static quire_err line_editor_open(FILE *out, line_editor **out_editor, quire_error *err) {
    line_editor *e = mem_new(1, sizeof *e);
    if (e) {
        e->el = el_init("quire", stdin, out, stderr);
        e->past = history_winit();
    }
    if (!e || !e->el || !e->past || !set_up(e)) {
        line_editor_close(e);
        return err_set(err, QUIRE_NO_MEMORY, -1, "the line editor could not start");
    }
    *out_editor = e;
    return QUIRE_OK;
}

/* Appends n characters, except NULs and the end of the line. */
static quire_err line_editor_add_line(strbuf *line, const wchar_t *text, int n) {
    n -= n > 0 && text[n - 1] == L'\n';
    for (int i = 0; i < n; i++) {
        if (text[i]) {
            TRY(utf8_add(line, (int32_t)text[i]));
        }
    }
    return QUIRE_OK;
}

/* Reads a line into *line, which is cleared before: UTF-8 without the newline.
 * QUIRE_NO_MEMORY: the line is incomplete. */
static quire_err line_editor_read(line_editor *e, const char *prompt, strbuf *line, line_end *end) {
    int n = 0;
    strbuf_clear(line);
    swprintf(e->prompt, sizeof e->prompt / sizeof *e->prompt, L"%s", prompt);
    e->end = LINE_READ;
    e->n_back = 0;
    tty_forget_interrupt();
    tty_edit();
    const wchar_t *typed = el_wgets(e->el, &n);
    tty_rest();
    *end = e->end != LINE_READ ? e->end : typed && n > 0 ? LINE_READ : LINE_CLOSED;
    return typed && n > 0 ? line_editor_add_line(line, typed, n) : QUIRE_OK;
}

/* Adds an entry to the history for the arrow keys, unless it equals the newest one. */
static quire_err line_editor_remember(line_editor *e, str entry) {
    HistEventW event;
    wchar_t *text = mem_new(entry.n + 1, sizeof *text);
    size_t n = 0, length;
    if (!text) {
        return QUIRE_NO_MEMORY;
    }
    for (size_t at = 0; at < entry.n; at += length) {
        int32_t c = utf8_decode(entry.p + at, entry.n - at, &length);
        text[n++] = c > 0 ? (wchar_t)c : (wchar_t)NO_CHARACTER;
    }
    int result = history_w(e->past, &event, H_ENTER, text);
    mem_free(text);
    return result >= 0 ? QUIRE_OK : QUIRE_NO_MEMORY;
}

#define QUOTES "\"\"\""

typedef struct terminal_chat {
    chat_state state;
    line_editor *editor;
    const char *history; /* path of the history file; NULL: none is written */
    bool may_end;        /* Ctrl-C was typed at an empty line: another one ends the chat */
    strbuf typed, line;  /* the input as typed; one line of it, or the input without quotes */
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

/* Position of the quotes that open a text of several lines: at the beginning, or after a
 * command and a space. s.n: there are none. */
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

/* Whether the text ends with closing quotes for those at `at`. */
static bool is_closed(str s, size_t at) {
    s = trim_end(s);
    return s.n >= at + 2 * strlen(QUOTES) && str_ends(s, QUOTES);
}

/* Reads the user's input into t->typed: one line, or several lines between quotes. */
static quire_err read_typed(terminal_chat *t, line_end *end) {
    TRY(line_editor_read(t->editor, "> ", &t->typed, end));
    size_t at = find_quotes(terminal_chat_text_of(&t->typed));
    bool has_quotes = at < t->typed.n;
    while (*end == LINE_READ && has_quotes && !is_closed(terminal_chat_text_of(&t->typed), at)) {
        TRY(line_editor_read(t->editor, "... ", &t->line, end));
        TRY(strbuf_add_char(&t->typed, '\n'));
        TRY(strbuf_add(&t->typed, t->line.n ? t->line.p : "", t->line.n));
        if (*end == LINE_CLOSED) {
            log_line(LOG_WARN, "the text did not end with " QUOTES ": it is dropped");
            *end = LINE_INTERRUPTED;
        }
    }
    return QUIRE_OK;
}

/* Adds the input to the history. An error of the file is reported once. */
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

/* Copies the typed text without its quotes to t->line. */
static quire_err unquote(terminal_chat *t, size_t at) {
    str s = trim_end(terminal_chat_text_of(&t->typed));
    size_t begin = at + strlen(QUOTES), n = s.n - begin - strlen(QUOTES);
    strbuf_clear(&t->line);
    TRY(strbuf_add(&t->line, s.p, at));
    return strbuf_add(&t->line, s.p + begin, n);
}

/* Runs the typed command, or sends the typed message. */
static quire_err run_typed(terminal_chat *t, quire_error *err) {
    str s = trim_end(terminal_chat_text_of(&t->typed));
    size_t at = find_quotes(s);
    bool quoted = at < s.n;
    if (quoted) {
        TRY(err_set(err, unquote(t, at), -1, "out of memory"));
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

/* Handles Ctrl-C: clears the line; the second one at an empty line ends the chat. */
static void interrupt(terminal_chat *t) {
    bool is_empty = t->typed.n == 0;
    t->state.is_over = is_empty && t->may_end;
    t->may_end = true;
    if (!t->state.is_over) {
        log_line(LOG_INFO, "press Ctrl-C again to end, or Ctrl-D");
    }
}

static quire_err terminal_chat_read_and_run(terminal_chat *t, quire_error *err) {
    line_end end;
    TRY(err_set(err, read_typed(t, &end), -1, "out of memory"));
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
    quire_err e = terminal_chat_remember(t);
    if (e == QUIRE_OK && run_typed(t, &wrong) != QUIRE_OK) {
        log_line(LOG_ERROR, "%s", wrong.message);
    }
    return err_set(err, e, -1, "out of memory");
}

static quire_err chat_on(terminal_chat *t, const cli_options *o, FILE *out, quire_error *err) {
    quire_err e = request_begin(o, &t->state.fields, err);
    if (e == QUIRE_OK && o->system &&
        conversation_set_system(&t->state.talk, str_of(o->system)) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    TRY_DONE(e, line_editor_open(out, &t->editor, err));
    load_history(t);
    while (e == QUIRE_OK && !t->state.is_over) {
        e = terminal_chat_read_and_run(t, err);
    }
done:
    line_editor_close(t->editor);
    conversation_deinit(&t->state.talk);
    body_deinit(&t->state.fields);
    strbuf_deinit(&t->typed);
    strbuf_deinit(&t->line);
    return e;
}

quire_err chat_loop(const cli_options *o, session *s, quire_error *err) {
    assert(s != NULL);
    const quire_info *info = quire_engine_info(s->engine);
    terminal_chat t = {.state = {.session = s, .completes = !info->has_chat_template || o->complete},
                       .history = o->no_history ? NULL : o->environment.history_file};
    FILE *out = isatty(STDOUT_FILENO) ? stdout : stderr; /* answers may be redirected to a file */
    if (!info->has_vocabulary) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s has no vocabulary, so it can't read text; `quire run --prompts FILE` takes token ids",
            info->model_path);
    }
    if (!t.state.completes && strcmp(info->chat_form, "plain") == 0) {
        log_line(LOG_INFO, "the model has no chat template: turns are written \"user:\" and \"assistant:\"; "
                           "--chat-template sets one; with --complete the model continues each text");
    }
    fprintf(out, "%s\n",
            t.state.completes ? "Each line is completed on its own: the model continues what you type. "
                                "/help lists commands, Ctrl-D ends."
                              : "Chat: /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.");
    TRY(tty_open(out, o->environment.plain_terminal, err));
    quire_err e = chat_on(&t, o, out, err);
    if ((fputc('\n', out) == EOF || fflush(out) != 0) && e == QUIRE_OK) {
        e = err_set(err, QUIRE_IO, -1, "the terminal could not be written");
    }
    tty_close();
    return e;
}
