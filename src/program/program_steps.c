/* A program as data: steps, with their texts and lists. program_json.h and the calls of
 * quire_program.h make it, the interpreter runs it. It has no tokens but those given in
 * steps.
 *
 * Owner: a program, or the state to which a call has appended the step. A step in a list
 * does not change, and its address stays the same. */
#include "program/program_state.h"

#include <assert.h>

#include "base/mem.h"

/* ---- lists ---- */

static void step_text_deinit(step_text *t) {
    assert(t != NULL);
    for (size_t i = 0; i < t->n; i++) {
        mem_free(t->pieces[i].text);
    }
    mem_free(t->pieces);
    *t = (step_text){0};
}

static void step_free(step *s) {
    step_text_deinit(&s->text);
    for (size_t i = 0; i < s->n_choices; i++) {
        step_text_deinit(&s->choices[i]);
    }
    for (size_t i = 0; i < s->n_lists; i++) {
        step_list_deinit(&s->lists[i]);
    }
    step_text_deinit(&s->test.value);
    for (size_t i = 0; i < s->test.n; i++) {
        step_text_deinit(&s->test.texts[i]);
    }
    void *const blocks[] = {s->ids, s->fields, s->choices, s->lists, s->test.texts, s->split, s};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        mem_free(blocks[i]);
    }
}

step *step_list_add(step_list *l, step_kind kind) {
    assert(l != NULL);
    step *s =
        mem_grow(&l->items, &l->cap, l->n + 1, sizeof(step *)) == QUIRE_OK ? mem_new(1, sizeof *s) : NULL;
    if (s != NULL) {
        s->kind = kind;
        l->items[l->n++] = s;
    }
    return s;
}

void step_list_drop_last(step_list *l) {
    step_free(l->items[--l->n]);
}

void step_list_deinit(step_list *l) {
    assert(l != NULL);
    for (size_t i = 0; i < l->n; i++) {
        step_free(l->items[i]);
    }
    mem_free(l->items);
    *l = (step_list){0};
}

quire_err step_list_move(step_list *from, step_list *to) {
    assert(from != NULL && to != NULL);
    TRY(mem_grow(&to->items, &to->cap, to->n + from->n, sizeof(step *)));
    mem_copy(to->items + to->n, from->items, from->n * sizeof(step *));
    to->n += from->n;
    from->n = 0;
    step_list_deinit(from);
    return QUIRE_OK;
}

void program_steps_deinit(program_steps *p) {
    step_list_deinit(&p->steps);
    step_list_deinit(&p->inputs);
    mem_free(p->fields);
    mem_free(p->common);
    mem_free(p->chat);
    mem_free(p->model);
    *p = (program_steps){0};
}

/* ---- names ---- */

static bool step_is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool step_is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Whether a text is a valid name of a variable: letters, digits and _, no digit first. */
static bool step_name_is_valid(str name) {
    bool is = name.n > 0 && name.n < PROGRAM_NAME_BYTES && step_is_letter(name.p[0]);
    for (size_t i = 1; is && i < name.n; i++) {
        is = step_is_letter(name.p[i]) || step_is_digit(name.p[i]);
    }
    return is;
}

quire_err step_name_set(char to[PROGRAM_NAME_BYTES], str name, quire_error *err) {
    if (!step_name_is_valid(name)) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "the name of a variable is %s; it must be a letter or _, then letters, digits or _, "
                       "%d in all at most",
                       name.n == 0 ? "empty" : "not valid", PROGRAM_NAME_BYTES - 1);
    }
    memcpy(to, name.p, name.n);
    to[name.n] = 0;
    return QUIRE_OK;
}

/* ---- texts with variables ---- */

/* A text being parsed. */
typedef struct step_text_writer {
    step_text *to;
    size_t cap;
    strbuf constant; /* text of the current constant piece */
} step_text_writer;

static quire_err step_text_add(step_text_writer *w, step_piece piece) {
    TRY(mem_grow(&w->to->pieces, &w->cap, w->to->n + 1, sizeof *w->to->pieces));
    w->to->pieces[w->to->n++] = piece;
    return QUIRE_OK;
}

/* Appends the current constant piece, if it is not empty. */
static quire_err step_text_flush(step_text_writer *w) {
    if (w->constant.n == 0) {
        return QUIRE_OK;
    }
    char *text = mem_dup(w->constant.p, w->constant.n);
    quire_err e = mem_check(text);
    TRY_DONE(e, step_text_add(w, (step_piece){.text = text, .n = w->constant.n, .item = -1}));
done:
    if (e != QUIRE_OK) {
        mem_free(text);
    }
    strbuf_clear(&w->constant);
    return e;
}

/* Parses the text between {{ and }}: a name, perhaps with an index. False: it is none. */
static bool step_reference_read(str inside, step_piece *out) {
    size_t n = 0;
    int64_t item = -1;
    while (n < inside.n && inside.p[n] != '[') {
        n++;
    }
    str name = {inside.p, n};
    if (n < inside.n) {
        size_t at = n + 1;
        item = 0;
        while (at < inside.n && step_is_digit(inside.p[at]) && item < INT32_MAX / 16) {
            item = item * 10 + (inside.p[at++] - '0');
        }
        if (at == n + 1 || at + 1 != inside.n || inside.p[at] != ']') {
            return false;
        }
    }
    *out = (step_piece){.item = (int32_t)item};
    return step_name_set(out->name, name, NULL) == QUIRE_OK;
}

/* Parses the reference, or the escaped braces, at text[*at], and moves *at past it. */
static quire_err step_braces_read(step_text_writer *w, str text, size_t *at, quire_error *err) {
    if (text.n - *at >= 4 && memcmp(text.p + *at, "{{{{", 4) == 0) {
        *at += 4;
        return strbuf_add_str(&w->constant, "{{");
    }
    size_t begin = *at + 2, end = begin;
    step_piece piece;
    while (end + 1 < text.n && (text.p[end] != '}' || text.p[end + 1] != '}')) {
        end++;
    }
    if (end + 1 >= text.n || !step_reference_read((str){text.p + begin, end - begin}, &piece)) {
        return err_set(err, QUIRE_BAD_REQUEST, (int64_t)*at,
                       "a text has {{ at byte %zu that is not followed by a variable's name and }}; write "
                       "{{{{ for two braces",
                       *at);
    }
    TRY(step_text_flush(w));
    *at = end + 2;
    return step_text_add(w, piece);
}

quire_err step_text_read(str text, step_text *out, quire_error *err) {
    step_text_writer w = {.to = out};
    quire_err e = QUIRE_OK;
    if (err != NULL) {
        err->code = QUIRE_OK;
    }
    for (size_t at = 0; at < text.n;) {
        size_t end = at;
        while (end < text.n && (text.p[end] != '{' || end + 1 == text.n || text.p[end + 1] != '{')) {
            end++;
        }
        TRY_DONE(e, strbuf_add(&w.constant, text.p + at, end - at));
        at = end;
        if (at < text.n) {
            TRY_DONE(e, step_braces_read(&w, text, &at, err));
        }
    }
    TRY_DONE(e, step_text_flush(&w));
done:
    strbuf_deinit(&w.constant);
    if (e != QUIRE_OK) {
        step_text_deinit(out);
        return e == QUIRE_BAD_REQUEST ? e : err_set(err, e, -1, "out of memory for a program");
    }
    return QUIRE_OK;
}

quire_err step_text_plain(str text, step_text *out) {
    step_text_writer w = {.to = out};
    quire_err e = strbuf_add(&w.constant, text.p, text.n);
    TRY_DONE(e, step_text_flush(&w));
done:
    strbuf_deinit(&w.constant);
    if (e != QUIRE_OK) {
        step_text_deinit(out);
    }
    return e;
}
