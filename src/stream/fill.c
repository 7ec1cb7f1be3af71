/* Prompts of fill-in-the-middle: token ids of the texts before and after a gap. */
#include "stream/prompt_ids.h"

#include <string.h>

/* llama.cpp's names for the repository and the file with the gap, and the text it puts
 * before each file if the model has no mark for files. */
#define REPOSITORY   "myproject\n"
#define THIS_FILE    "filename\n"
#define UNNAMED_FILE "tmp"
#define SNIPPET      "\n\n--- snippet ---\n\n"

typedef struct fill_writer {
    const stream_engine *e;
    const generation *g;
    const fim_marks *marks;
    token_list *out;
    quire_error *err;
} fill_writer;

static quire_err fill_add(const fill_writer *w, int32_t id) {
    return err_set(w->err, id >= 0 ? token_list_add_all(w->out, &id, 1) : QUIRE_OK, -1,
                   "out of memory for a prompt");
}

/* Encodes a client's text; control tokens in it are plain text. */
static quire_err fill_encode(const fill_writer *w, str text) {
    size_t limit = (size_t)w->e->context.max_model_len;
    mark_run all = {0, text.n};
    const text_marks client = {.runs = &all, .n = 1, .cap = 1};
    const encode_options options = {.special = ENCODE_PARSE, .marks = &client, .max_tokens = limit};
    quire_err e = tokenizer_encode(w->e->tokenizer, text, options, w->out, w->err);
    return e == QUIRE_NO_ROOM ? generation_too_long(w->g, (int32_t)limit, limit + 1, true, w->err) : e;
}

/* Where to split the text: one byte into its first mark; its length if it has no mark. */
static size_t fill_find_mark(const fill_writer *w, str text) {
    const int32_t ids[] = {w->marks->pre, w->marks->suf, w->marks->mid, w->marks->repo, w->marks->file};
    for (size_t at = 0; at < text.n; at++) {
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
            str piece = tokenizer_piece(w->e->tokenizer, ids[i]);
            if (piece.n > 1 && piece.n <= text.n - at && memcmp(text.p + at, piece.p, piece.n) == 0) {
                return at + 1;
            }
        }
    }
    return text.n;
}

/* Like fill_encode, but also keeps the text from becoming a mark that the vocabulary has
 * as an ordinary token: splits the text inside the mark. */
static quire_err fill_add_text(const fill_writer *w, str text) {
    size_t before = w->out->n, limit = (size_t)w->e->context.max_model_len,
           least = tokenizer_least_tokens(w->e->tokenizer, text.n);
    bool has_mark = false;
    if (text.n == 0) {
        return QUIRE_OK;
    }
    if (least > limit) {
        return generation_too_long(w->g, (int32_t)limit, least, true, w->err);
    }
    TRY(fill_encode(w, text));
    for (size_t i = before; i < w->out->n && !has_mark; i++) {
        has_mark = fim_is_mark(w->marks, w->out->ids[i]);
    }
    if (!has_mark) {
        return QUIRE_OK;
    }
    w->out->n = before;
    for (size_t n; text.n > 0; text = (str){text.p + n, text.n - n}) {
        n = fill_find_mark(w, text);
        TRY(fill_encode(w, (str){text.p, n}));
    }
    return QUIRE_OK;
}

static quire_err fill_add_file(const fill_writer *w, const request_file *file) {
    if (w->marks->file >= 0) {
        TRY(fill_add(w, w->marks->file));
        TRY(fill_add_text(w, file->name.p != NULL ? file->name : str_of(UNNAMED_FILE)));
        TRY(fill_add_text(w, str_of("\n")));
    } else {
        TRY(fill_add_text(w, str_of(SNIPPET)));
    }
    return fill_add_text(w, file->text);
}

/* Adds the other files of the repository, and the heading of the file with the gap. */
static quire_err fill_add_files(const fill_writer *w, const request_fill *fill) {
    if (w->marks->repo >= 0) {
        TRY(fill_add(w, w->marks->repo));
        TRY(fill_add_text(w, str_of(REPOSITORY)));
    }
    for (size_t i = 0; i < fill->n_files; i++) {
        TRY(fill_add_file(w, &fill->files[i]));
    }
    if (w->marks->file < 0) {
        return QUIRE_OK;
    }
    TRY(fill_add(w, w->marks->file));
    return fill_add_text(w, str_of(THIS_FILE));
}

static quire_err fill_add_before(const fill_writer *w, const quire_request *r, const request_prompt *p) {
    TRY(fill_add(w, w->marks->pre));
    TRY(fill_add_text(w, r->fill.before));
    if (p->ids == NULL) {
        return fill_add_text(w, p->text);
    }
    return err_set(w->err, token_list_add_all(w->out, p->ids, (size_t)p->n_ids), -1,
                   "out of memory for a prompt");
}

static quire_err fill_add_after(const fill_writer *w, const quire_request *r) {
    TRY(fill_add(w, w->marks->suf));
    return fill_add_text(w, r->fill.after);
}

quire_err fill_prompt(const stream_engine *e, const quire_request *r, const request_prompt *p,
                      token_list *out, quire_error *err) {
    const fill_writer w = {e, &r->g, e->tokenizer != NULL ? tokenizer_fim(e->tokenizer) : NULL, out, err};
    const char *field = r->fill.field;
    if (w.marks == NULL || w.marks->pre < 0) {
        return err_set_param(err, QUIRE_UNSUPPORTED, field,
                             "this model has no fill-in-the-middle tokens; leave %s out", field);
    }
    TRY(fill_add(&w, r->g.add_special ? tokenizer_start(e->tokenizer) : -1));
    if (r->fill.is_in_repository) {
        TRY(fill_add_files(&w, &r->fill));
    }
    if (w.marks->suffix_first) {
        TRY(fill_add_after(&w, r));
        return fill_add_before(&w, r, p);
    }
    TRY(fill_add_before(&w, r, p));
    TRY(fill_add_after(&w, r));
    return fill_add(&w, w.marks->mid);
}
