#include "answer/marked_vocab.h"

#include <string.h>

#include "answer/grammar_constraint.h"
#include "base/mem.h"

static bool marked_vocab_is_space(str text) {
    size_t n = 0;
    while (n < text.n && text.p[n] != 0 && strchr(" \t\r\n", text.p[n]) != NULL) {
        n++;
    }
    return n == text.n;
}

bool marked_vocab_is_mark(const tokenizer *t, int32_t id) {
    return tokenizer_is_special(t, id) ||
           (tokenizer_is_added(t, id) && !marked_vocab_is_space(tokenizer_piece(t, id)));
}

static void list_marks(const tokenizer *t, int32_t n, marked_vocab *v) {
    for (int32_t id = 0; id < n; id++) {
        if (marked_vocab_is_mark(t, id)) {
            str text = tokenizer_piece(t, id);
            text = tokenizer_find(t, text) == id ? text : (str){0};
            v->list[v->marks.n++] = (grammar_mark){text, id, tokenizer_is_special(t, id)};
        }
    }
}

quire_err marked_vocab_open(const tokenizer *t, int32_t n_vocab, marked_vocab **out) {
    int32_t n = tokenizer_n_tokens(t) < n_vocab ? tokenizer_n_tokens(t) : n_vocab;
    n = n < GRAMMAR_MARK_IDS ? n : GRAMMAR_MARK_IDS;
    size_t n_marks = 0;
    for (int32_t id = 0; id < n; id++) {
        n_marks += marked_vocab_is_mark(t, id);
    }
    marked_vocab *v = mem_new(1, sizeof *v);
    TRY(mem_check(v));
    v->list = mem_new(n_marks + 1, sizeof *v->list);
    v->marks.list = v->list;
    quire_err e = mem_check(v->list);
    if (e == QUIRE_OK) {
        list_marks(t, n, v);
        e = grammar_constraint_vocab(t, n_vocab, &v->marks, &v->vocab);
    }
    if (e != QUIRE_OK) {
        marked_vocab_close(v);
        return e;
    }
    *out = v;
    return QUIRE_OK;
}

void marked_vocab_close(marked_vocab *v) {
    if (v != NULL) {
        grammar_vocab_drop(v->vocab);
        mem_free(v->list);
        mem_free(v);
    }
}
