/* For tests of grammars: compiles them, feeds texts, and compares masks with the tokens
 * that are accepted one by one. */
#ifndef TESTS_GRAMMAR_CASE_H
#define TESTS_GRAMMAR_CASE_H

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "grammar/grammar.h"
#include "test.h"

typedef struct grammar_case {
    grammar *g;
    grammar_vocab *v;
    grammar_run *r;
} grammar_case;

/* Tokens of every kind that masks treat specially: plain, quoted, escaped, parts of
 * characters, white space, equal texts, control tokens. */
static const char *const case_tokens[] = {
    "",
    "a",
    "b",
    "c",
    "ab",
    "abc",
    "x",
    "0",
    "1",
    "12",
    "-",
    ".",
    "e",
    "\"",
    "\"a",
    "a\"",
    "\":",
    "\": ",
    "\",\"",
    "\"}",
    "\"]",
    "{",
    "{\"",
    "}",
    "}}",
    "[",
    "]",
    "[[",
    "]}",
    ":",
    ",",
    ", ",
    " ",
    "  ",
    "\n",
    "\n  ",
    " \"",
    "true",
    "false",
    "null",
    "tr",
    "ue",
    "\\",
    "\\n",
    "\\u",
    "00",
    "\\u00",
    "d83d",
    "\\\"",
    "\xC3",
    "\xA9",
    "\xE6\x97",
    "\xA5",
    "\xF0\x9F\x98\x80",
    "\xC3\xA9\"",
    "name",
    "\"name",
    "\"name\":",
    "ame\"",
    "a",
    "+",
    "(",
    ")",
    "()",
    "hello",
    "hel",
    "lo",
    "abcabcabcabcabcabcabc",
    "\xED",
    "                                                                  ",
    "\t",
    "/",
    "\"a\":1",
    "a\",\"b",
    "\xE6\x97\xA5",
    "1.5",
    "2",
    "5",
    "b\xC3\xA9",
    "b\xC3\xA9x",
    "b\n",
    "</s>"};
#define CASE_TOKENS ((int32_t)(sizeof case_tokens / sizeof *case_tokens))
#define CASE_END    (CASE_TOKENS - 1)

/* Opens the vocabulary. n_ends: 1, or 0 for one without end tokens, as the engine's. */
static inline grammar_vocab *case_vocab(int32_t n_ends) {
    str texts[CASE_TOKENS];
    int32_t end = CASE_END;
    grammar_vocab *v = NULL;
    for (int32_t i = 0; i < CASE_TOKENS; i++) {
        texts[i] = str_of(case_tokens[i]);
    }
    assert_int_equal(grammar_vocab_open(texts, CASE_TOKENS, &end, n_ends, &v), QUIRE_OK);
    return v;
}

static inline grammar_case case_open_over(grammar_vocab *v, grammar_kind kind, const char *text,
                                          const grammar_options *o) {
    grammar_case c = {.v = v};
    quire_error err = {0};
    if (grammar_compile(kind, str_of(text), o, &c.g, &err) != QUIRE_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    assert_int_equal(grammar_run_open(c.g, c.v, 0, &c.r), QUIRE_OK);
    return c;
}

static inline grammar_case case_open(grammar_kind kind, const char *text, const grammar_options *o) {
    return case_open_over(case_vocab(1), kind, text, o);
}

static inline void case_close(grammar_case *c) {
    grammar_run_close(c->r);
    grammar_drop(c->g);
    grammar_vocab_drop(c->v);
}

/* Returns how many bytes of a text are accepted. *final: it is a complete answer. */
static inline size_t case_take(grammar_case *c, const char *text, bool *final) {
    grammar_state s = grammar_start(c->r);
    size_t n = 0;
    quire_err e = grammar_accept_bytes(c->r, &s, str_of(text), &n);
    *final = e == QUIRE_OK && grammar_is_final(c->r, s);
    return n;
}

static inline void case_accepts(grammar_case *c, const char *text) {
    bool final;
    size_t n = case_take(c, text, &final);
    if (!final) {
        fail_msg("'%s' must be accepted; stops behind byte %zu", text, n);
    }
}

/* Checks that a text is rejected. dead_at: index of the first byte that cannot follow;
 * -1: the text is only incomplete. */
static inline void case_rejects(grammar_case *c, const char *text, int dead_at) {
    bool final;
    size_t n = case_take(c, text, &final);
    if (final || n != (dead_at < 0 ? strlen(text) : (size_t)dead_at)) {
        fail_msg("'%s' must end at %d; it is taken up to %zu, %s", text, dead_at, n,
                 final ? "complete" : "not complete");
    }
}

/* Checks every bit of the mask in state s against grammar_allows. */
static inline void case_mask(grammar_case *c, grammar_state s) {
    uint64_t bits[(CASE_TOKENS + 63) / 64];
    for (int round = 0; round < 2; round++) { /* the mask is computed first, then cached */
        assert_int_equal(grammar_mask(c->r, s, bits), QUIRE_OK);
        for (int32_t t = 0; t < CASE_TOKENS; t++) {
            bool bit = (bits[t / 64] >> (t % 64) & 1) != 0;
            if (bit != grammar_allows(c->r, s, t)) {
                fail_msg("token %d '%s' is %s", t, case_tokens[t],
                         bit ? "in the mask and not taken" : "taken and not in the mask");
            }
        }
    }
}

static inline void case_refused(grammar_kind kind, const char *text, quire_err e, const char *part) {
    grammar *g = NULL;
    quire_error err = {0};
    quire_err got = grammar_compile(kind, str_of(text), NULL, &g, &err);
    if (got != e || strstr(err.message, part) == NULL) {
        fail_msg("%.200s: %s \"%s\", expected %s with \"%s\"", text, quire_err_name(got), err.message,
                 quire_err_name(e), part);
    }
    assert_null(g);
}

#endif
