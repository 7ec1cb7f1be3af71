/* A vocabulary for random walks through grammars of tool calls: bytes, words, and a
 * format's marks as special tokens. Feeds the text of a walk to a parser. */
#ifndef TESTS_ANSWER_CALL_VOCAB_H
#define TESTS_ANSWER_CALL_VOCAB_H

#include <assert.h>

#include "answer/answer_format.h"
#include "answer/output_parser.h"
#include "base/utf8.h"
#include "grammar/grammar_parts.h"

enum { CALL_TOKENS = 400, CALL_MARKS = 64 };

typedef struct call_vocab {
    str texts[CALL_TOKENS];
    char spelt[CALL_TOKENS][GRAMMAR_MARK_BYTES], bytes[256];
    int32_t n_tokens;
    grammar_mark marks[CALL_MARKS];
    grammar_marks list; /* lists `marks` */
    grammar_vocab *vocab;
} call_vocab;

static inline void call_vocab_add(call_vocab *v, str text) {
    assert(v->n_tokens < CALL_TOKENS);
    v->texts[v->n_tokens++] = text;
}

static inline void call_vocab_add_byte(call_vocab *v, int byte) {
    v->bytes[byte] = (char)byte;
    call_vocab_add(v, (str){&v->bytes[byte], 1});
}

/* Fills a vocabulary with printable ASCII, the newline, and words that occur in calls and
 * their values, some of them parts of characters. */
static inline void call_vocab_init(call_vocab *v) {
    static const char *const words[] = {"{\"name\": \"",
                                        "get_weather\"",
                                        "{\"",
                                        "\"name\"",
                                        "</parameter",
                                        "</arg_value",
                                        "\": ",
                                        "\":",
                                        ", ",
                                        "\",\"",
                                        "true",
                                        "null",
                                        "None",
                                        "get",
                                        "city",
                                        "<",
                                        "</",
                                        "parameter",
                                        "parameters",
                                        "tool_call",
                                        "<tool_call",
                                        "\n",
                                        "all\n",
                                        ">>>",
                                        "\"}",
                                        "ab",
                                        "14",
                                        "f",
                                        "input",
                                        "\"arguments",
                                        "\xC3\xA9",
                                        "\xE6\x97\xA5",
                                        "\xE6\x97",
                                        "\xA5",
                                        "\\\"",
                                        "celsius",
                                        "NULL",
                                        "1e5",
                                        "\xEF",
                                        "\xBD",
                                        "\x9C",
                                        "\xE2",
                                        "\x96",
                                        "\x81"};
    *v = (call_vocab){0};
    v->list.list = v->marks;
    for (int c = 0; c < 128; c++) {
        if (c == '\n' || (c >= ' ' && c < 127)) {
            call_vocab_add_byte(v, c);
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        call_vocab_add(v, str_of(words[i]));
    }
}

static inline bool call_vocab_is_special(const void *vocab, str text) {
    const call_vocab *v = vocab;
    for (size_t i = 0; i < v->list.n; i++) {
        if (str_eq(v->marks[i].text, text)) {
            return true;
        }
    }
    return false;
}

static inline void call_vocab_add_mark(call_vocab *v, str text) {
    int32_t id = v->n_tokens;
    if (!call_vocab_is_special(v, text)) {
        assert(v->list.n < CALL_MARKS && id < CALL_TOKENS);
        grammar_mark_spell(id, v->spelt[id]);
        call_vocab_add(v, (str){v->spelt[id], GRAMMAR_MARK_BYTES});
        v->marks[v->list.n++] = (grammar_mark){text, id, true};
    }
}

/* Adds the parts of a format's marks that look like special tokens. */
static inline void call_vocab_add_marks(call_vocab *v, const answer_format *f) {
    static const char *const begins[] = {"<|", "<\xEF\xBD\x9C", "[", "<"};
    format_shape shape;
    answer_format_shape(f, &shape);
    for (int i = 0; i < shape.n; i++) {
        for (str text = shape.marks[i].text; text.n > 0; text = (str){text.p + 1, text.n - 1}) {
            size_t kind = 0;
            while (kind < 4 && !str_begins(text, begins[kind])) {
                kind++;
            }
            const char *end = kind < 4 ? memchr(text.p, kind == 2 ? ']' : '>', text.n) : NULL;
            size_t n = end != NULL ? (size_t)(end - text.p) + 1 : 0;
            if (n > 3 && memchr(text.p, ' ', n) == NULL && memchr(text.p, '=', n) == NULL) {
                call_vocab_add_mark(v, (str){text.p, n});
                text = (str){end, text.n - n + 1};
            }
        }
    }
}

/* Gets writing i, counted over all formats that have a grammar. *is_first: it is the
 * first of its format. False: i is past the last. */
static inline bool call_vocab_written(size_t i, call_writing *w, bool *is_first) {
    const answer_format *f;
    for (size_t k = 0; (f = call_format_at(k)) != NULL; k++) {
        for (size_t n = 0; call_written_at(f, n, w); n++) {
            *is_first = n == 0;
            if (i-- == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Opens v->vocab with the tokens that were added. */
static inline quire_err call_vocab_open(call_vocab *v) {
    return grammar_vocab_open(v->texts, v->n_tokens, NULL, 0, &v->vocab);
}

/* Returns the text of a token, and whether it is special. */
static inline str call_vocab_letters(const call_vocab *v, int32_t token, bool *special) {
    for (size_t i = 0; i < v->list.n; i++) {
        if (v->marks[i].id == token) {
            *special = true;
            return v->marks[i].text;
        }
    }
    *special = false;
    return v->texts[token];
}

/* Feeds tokens to a parser, joining ordinary ones up to the next special one, and
 * finishes it. If the answer is incomplete, a partial character at its end is dropped. */
static inline quire_err call_vocab_feed(const call_vocab *v, const int32_t *tokens, int32_t n,
                                        bool is_complete, output_parser *p, output_events *out) {
    strbuf piece = {0};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i <= n && e == QUIRE_OK; i++) {
        bool special = false;
        str letters = i < n ? call_vocab_letters(v, tokens[i], &special) : (str){"", 0};
        if (special || i == n) {
            size_t whole = is_complete || i < n ? piece.n : utf8_valid_run((str){piece.p, piece.n});
            e = output_parser_feed(p, (str){piece.p != NULL ? piece.p : "", whole}, false, out);
            strbuf_clear(&piece);
        }
        if (e == QUIRE_OK) {
            e = special ? output_parser_feed(p, letters, true, out)
                        : strbuf_add(&piece, letters.p, letters.n);
        }
    }
    strbuf_deinit(&piece);
    return e == QUIRE_OK ? output_parser_finish(p, !is_complete, out) : e;
}

#endif
