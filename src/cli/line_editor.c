#include "cli/line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/tty.h"

enum { HISTORY_ENTRIES = 1000, NO_CHARACTER = 0xFFFD };

struct line_editor {
    EditLine *el;
    HistoryW *past;
    wchar_t prompt[16];
    char bytes[4]; /* of a character that is not complete */
    size_t n_bytes;
    line_end end;   /* of the line being read */
    int n_back;     /* entries that the arrow keys have gone back; 0: the line is the person's own */
    wchar_t *draft; /* mem_new'd: the person's own line while n_back > 0 */
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

/* Shows the line anew: another program, or the terminal's new size, has moved what was
 * there. */
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

/* Takes a character of the bytes read so far. False: more are needed. */
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

/* libedit's source of characters: 1, 0 at the end, or -1. A signal that ends the line
 * looks to libedit like Enter, so that it moves below the line and ends it; once is not
 * enough within a key's sequence or a search. */
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

/* Adds a character. What is between the marks has been through the terminal's input
 * modes: a line's end is \n or \r, and both where the text had \r\n. */
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

/* Reads to the mark of the paste's end, which stays in the text. False: a signal or the
 * input's end came before, or memory is out. */
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

/* The key that the terminal sends before pasted text. */
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

/* The text of the entry that is n entries back, borrowed; NULL: there are not so many. */
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

/* Replaces the line by an entry, or by the draft. libedit's own keys for this lose a
 * draft's characters past the 1,024th. */
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
    (void)el_cursor(e->el, length); /* to the end */
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

quire_err line_editor_open(FILE *out, line_editor **out_editor, quire_error *err) {
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

void line_editor_close(line_editor *e) {
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

/* Appends n characters but NULs, and without the line's end. */
static quire_err line_editor_add_line(strbuf *line, const wchar_t *text, int n) {
    n -= n > 0 && text[n - 1] == L'\n';
    for (int i = 0; i < n; i++) {
        TRY(text[i] ? utf8_add(line, (int32_t)text[i]) : QUIRE_OK);
    }
    return QUIRE_OK;
}

quire_err line_editor_read(line_editor *e, const char *prompt, strbuf *line, line_end *end) {
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

quire_err line_editor_remember(line_editor *e, str entry) {
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
