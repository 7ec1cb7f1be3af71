/* Grammars of every kind: refused with a message, or one whose masks are what taking the
 * tokens says. The first byte chooses kind and options, the second how the grammar is
 * walked. */
#include "base/str.h"
#include "fuzz.h"
#include "grammar/grammar.h"

#define N_TOKENS 22
#define N_STEPS  12

static grammar_vocab *open_vocab(void) {
    static const char *const texts[N_TOKENS] = {"a",  "b",    "0",    "1",   "\"", "{",   "}",   "[",
                                                "]",  ":",    ",",    " ",   "(",  "\\u", "\"a", "ab",
                                                "-1", "\xC3", "\xA9", "\":", "\n", "</s>"};
    str tokens[N_TOKENS];
    int32_t end = N_TOKENS - 1;
    grammar_vocab *v = NULL;
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = str_of(texts[i]);
    }
    fuzz_check(grammar_vocab_open(tokens, N_TOKENS, &end, 1, &v) == QUIRE_OK);
    return v;
}

static void walk(grammar *g, grammar_vocab *v, uint32_t choice) {
    grammar_run *r = NULL;
    uint64_t bits;
    quire_err e = grammar_run_open(g, v, (size_t)4 << 20, &r);
    if (e != QUIRE_OK) {
        fuzz_check(e == QUIRE_TOO_LARGE);
        return;
    }
    grammar_state s = grammar_start(r);
    for (int i = 0; i < N_STEPS && grammar_mask(r, s, &bits) == QUIRE_OK; i++) {
        uint32_t allowed[N_TOKENS], n = 0;
        for (int32_t t = 0; t < N_TOKENS; t++) {
            grammar_state to = s;
            quire_err took = grammar_accept(r, &to, t);
            fuzz_check(took == QUIRE_TOO_LARGE || (took == QUIRE_OK) == ((bits >> t & 1) != 0));
            if (took == QUIRE_OK && t < N_TOKENS - 1) {
                allowed[n++] = (uint32_t)t;
            }
        }
        if (n == 0) {
            break;
        }
        choice = choice * 1664525u + 1013904223u;
        (void)grammar_accept(r, &s, (int32_t)allowed[(choice >> 16) % n]);
    }
    grammar_run_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const grammar_kind kinds[] = {GRAMMAR_SCHEMA, GRAMMAR_REGEX, GRAMMAR_EBNF, GRAMMAR_CHOICE,
                                         GRAMMAR_SCHEMA, GRAMMAR_LARK,  GRAMMAR_W3C,  GRAMMAR_EBNF};
    static grammar_vocab *v;
    quire_error err = {0};
    grammar *g = NULL;
    if (size < 2) {
        return 0;
    }
    if (v == NULL) {
        v = open_vocab(); /* kept for all inputs */
    }
    grammar_options o = {.space = (data[0] & 4) != 0 ? GRAMMAR_SPACE_ANY : GRAMMAR_SPACE_COMPACT,
                         .order = (data[0] & 8) != 0 ? GRAMMAR_ORDER_ANY : GRAMMAR_ORDER_SCHEMA,
                         .survey = (data[0] & 16) != 0,
                         .max_steps = 200000,
                         .max_us = 2000000};
    quire_err e = grammar_compile(kinds[(data[0] & 3) | (data[0] >> 3 & 4)],
                                  (str){(const char *)data + 2, size - 2}, &o, &g, &err);
    fuzz_check(e == QUIRE_OK || (err.message[0] != 0 && g == NULL));
    if (e == QUIRE_OK) {
        walk(g, v, data[1]);
    }
    grammar_drop(g);
    return 0;
}
