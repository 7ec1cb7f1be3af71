/* A vocabulary of ASCII characters; some, from \1 on, stand for special tokens. */
#ifndef TESTS_ANSWER_MARKED_LETTERS_H
#define TESTS_ANSWER_MARKED_LETTERS_H

#include "grammar/grammar_parts.h"
#include "test.h"

enum { N_TOKENS = 128 };
static grammar_vocab *vocab;

/* Opens `vocab`. Returns 0, or -1 on failure, as cmocka expects. */
static inline int open_marked_letters(const grammar_marks *marks) {
    static char spelt[N_TOKENS][GRAMMAR_MARK_BYTES];
    str texts[N_TOKENS] = {{0}};
    for (int32_t i = 1; i < N_TOKENS; i++) {
        spelt[i][0] = (char)i;
        texts[i] = (str){spelt[i], 1};
    }
    for (size_t i = 0; i < (size_t)marks->n; i++) {
        int32_t id = marks->list[i].id;
        grammar_mark_spell(id, spelt[id]);
        texts[id].n = GRAMMAR_MARK_BYTES;
    }
    return grammar_vocab_open(texts, N_TOKENS, NULL, 0, &vocab) == QUIRE_OK ? 0 : -1;
}

static inline int close_vocab(void **state) {
    (void)state;
    grammar_vocab_drop(vocab);
    return 0;
}

/* Whether the grammar accepts the whole text, one token per character. */
static inline bool takes(grammar *g, const char *text) {
    grammar_run *r;
    assert_int_equal(grammar_run_open(g, vocab, 0, &r), QUIRE_OK);
    grammar_state s = grammar_start(r);
    quire_err e = QUIRE_OK;
    for (size_t i = 0; text[i] != 0 && e == QUIRE_OK; i++) {
        e = grammar_accept(r, &s, text[i]);
    }
    bool whole = e == QUIRE_OK && grammar_is_final(r, s);
    grammar_run_close(r);
    return whole;
}

#endif
