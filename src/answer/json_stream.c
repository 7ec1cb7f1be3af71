#include "answer/json_stream.h"

#include <assert.h>
#include <ctype.h>

enum {
    VALUE,
    FIRST_ITEM,
    ITEM,
    FIRST_NAME,
    NAME,
    COLON,
    MEMBER,
    AFTER,
    STRING,
    WORD,
    MINUS,
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    E,
    E_SIGN,
    E_DIGITS,
    DONE
};

static bool json_stream_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool in_object(const json_stream *s) {
    return s->depth > 0 && (s->is_object[(s->depth - 1) / 8] >> (s->depth - 1) % 8 & 1) != 0;
}

bool json_stream_is_in_string(const json_stream *s) {
    assert(s != NULL);
    return s->state == STRING;
}

bool json_stream_wants_name(const json_stream *s) {
    assert(s != NULL);
    return s->state == FIRST_NAME || s->state == NAME;
}

bool json_stream_wants_value(const json_stream *s) {
    assert(s != NULL);
    return s->state == VALUE || s->state == FIRST_ITEM || s->state == ITEM || s->state == MEMBER;
}

/* Sets the state after a complete value. */
static json_stream_result after(json_stream *s) {
    s->state = s->depth == 0 ? DONE : AFTER;
    return s->depth == 0 ? JSON_STREAM_DONE : JSON_STREAM_MORE;
}

/* Writes the pending comma, with the white space after it. */
static quire_err write_comma(json_stream *s, strbuf *out) {
    if (s->has_comma) {
        TRY(strbuf_add_char(out, ','));
    }
    s->has_comma = false;
    size_t n = s->n_space;
    s->n_space = 0;
    return strbuf_add(out, s->space, n);
}

static quire_err open_bracket(json_stream *s, char c, strbuf *out, json_stream_result *result) {
    if (s->depth == JSON_STREAM_DEPTH) {
        *result = JSON_STREAM_BROKEN;
        return QUIRE_OK;
    }
    TRY(write_comma(s, out));
    uint8_t bit = (uint8_t)(1u << s->depth % 8);
    s->is_object[s->depth / 8] = (uint8_t)((s->is_object[s->depth / 8] & ~bit) | (c == '{' ? bit : 0));
    s->depth++;
    s->state = c == '{' ? FIRST_NAME : FIRST_ITEM;
    return strbuf_add_char(out, c);
}

static quire_err close_bracket(json_stream *s, char c, strbuf *out, json_stream_result *result) {
    s->has_comma = false;
    s->n_space = 0;
    s->depth--;
    *result = after(s);
    return strbuf_add_char(out, c);
}

static quire_err begin_string(json_stream *s, bool is_name, strbuf *out) {
    TRY(write_comma(s, out));
    s->state = STRING;
    s->in_name = is_name;
    return strbuf_add_char(out, '"');
}

static quire_err json_stream_end_string(json_stream *s, strbuf *out, json_stream_result *result) {
    char text[UNESCAPE_BYTES];
    TRY(escape_add(out, text, unescape_end(&s->escape, text)));
    TRY(strbuf_add_char(out, '"'));
    if (s->in_name) {
        s->state = COLON;
        return QUIRE_OK;
    }
    *result = after(s);
    return QUIRE_OK;
}

static quire_err json_stream_in_string(json_stream *s, char c, strbuf *out, json_stream_result *result) {
    if (c == '"' && !unescape_is_open(&s->escape)) {
        return json_stream_end_string(s, out, result);
    }
    char text[UNESCAPE_BYTES];
    return escape_add(out, text, unescape_push(&s->escape, ESCAPE_JSON, c, text));
}

static quire_err json_stream_begin_value(json_stream *s, char c, strbuf *out, json_stream_result *result) {
    if (c == '{' || c == '[') {
        return open_bracket(s, c, out, result);
    }
    if (c == ']' && (s->state == FIRST_ITEM || s->state == ITEM)) {
        return close_bracket(s, c, out, result);
    }
    if (c == '"') {
        return begin_string(s, false, out);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        TRY(write_comma(s, out));
        s->state = c == '-' ? MINUS : c == '0' ? ZERO : DIGITS;
        return strbuf_add_char(out, c);
    }
    if (isalpha((unsigned char)c)) {
        s->state = WORD;
        s->word[0] = c;
        s->n_word = 1;
        return QUIRE_OK;
    }
    *result = JSON_STREAM_BROKEN;
    return QUIRE_OK;
}

typedef struct word {
    const char *read, *write;
} word;

/* The word that these letters begin or, if `whole`, equal; NULL: none. */
static const word *find_word(const char *p, size_t n, bool whole) {
    static const word words[] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                 {"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(words[i].read, p, n) == 0 && (!whole || words[i].read[n] == 0)) {
            return &words[i];
        }
    }
    return NULL;
}

static quire_err write_word(json_stream *s, const word *w, strbuf *out) {
    TRY(write_comma(s, out));
    return strbuf_add_str(out, w->write);
}

/* The state of a number after c; unchanged if c does not continue it. */
static uint8_t number_state(uint8_t state, char c) {
    bool digit = c >= '0' && c <= '9';
    switch (state) {
    case MINUS:
        return digit ? (c == '0' ? ZERO : DIGITS) : DONE;
    case ZERO:
    case DIGITS:
        return digit && state == DIGITS ? DIGITS : c == '.' ? POINT : c == 'e' || c == 'E' ? E : DONE;
    case POINT:
        return digit ? FRACTION : DONE;
    case FRACTION:
        return digit ? FRACTION : c == 'e' || c == 'E' ? E : DONE;
    case E:
        return digit ? E_DIGITS : c == '+' || c == '-' ? E_SIGN : DONE;
    default:
        return digit ? E_DIGITS : DONE;
    }
}

static bool number_is_whole(uint8_t state) {
    return state == ZERO || state == DIGITS || state == FRACTION || state == E_DIGITS;
}

/* Handles a byte after a number or word. *again: the byte must be read again. */
static void end_scalar(json_stream *s, json_stream_result *result, bool *again) {
    *again = s->depth > 0;
    *result = after(s) == JSON_STREAM_DONE ? JSON_STREAM_BEFORE : JSON_STREAM_MORE;
}

static quire_err in_number(json_stream *s, char c, strbuf *out, json_stream_result *result, bool *again) {
    uint8_t next = number_state(s->state, c);
    if (next != DONE) {
        s->state = next;
        return strbuf_add_char(out, c);
    }
    if (!number_is_whole(s->state) || isalnum((unsigned char)c)) {
        *result = JSON_STREAM_BROKEN;
        return QUIRE_OK;
    }
    end_scalar(s, result, again);
    return QUIRE_OK;
}

static quire_err in_word(json_stream *s, char c, strbuf *out, json_stream_result *result, bool *again) {
    if (isalnum((unsigned char)c)) {
        char longer[sizeof s->word];
        memcpy(longer, s->word, s->n_word);
        longer[s->n_word] = c;
        if (find_word(longer, s->n_word + 1u, false) == NULL) {
            *result = JSON_STREAM_BROKEN;
            return QUIRE_OK;
        }
        s->word[s->n_word++] = c; /* a word has at most five letters */
        return QUIRE_OK;
    }
    const word *w = find_word(s->word, s->n_word, true);
    if (w == NULL) {
        *result = JSON_STREAM_BROKEN;
        return QUIRE_OK;
    }
    TRY(write_word(s, w, out));
    end_scalar(s, result, again);
    return QUIRE_OK;
}

static quire_err json_stream_between(json_stream *s, char c, strbuf *out, json_stream_result *result) {
    bool object = in_object(s);
    if (s->state == COLON && c == ':') {
        s->state = MEMBER;
        return strbuf_add_char(out, c);
    }
    if (s->state == AFTER && c == ',') {
        s->has_comma = true;
        s->state = object ? NAME : ITEM;
        return QUIRE_OK;
    }
    if (s->state != COLON && c == (object ? '}' : ']')) {
        return close_bracket(s, c, out, result);
    }
    if ((s->state == FIRST_NAME || s->state == NAME) && c == '"') {
        return begin_string(s, true, out);
    }
    *result = JSON_STREAM_BROKEN;
    return QUIRE_OK;
}

static quire_err white_space(json_stream *s, char c, strbuf *out) {
    if (!s->has_comma) {
        return strbuf_add_char(out, c);
    }
    if (s->n_space < JSON_STREAM_SPACE) {
        s->space[s->n_space++] = c;
    }
    return QUIRE_OK;
}

static quire_err json_stream_step(json_stream *s, char c, strbuf *out, json_stream_result *result,
                                  bool *again) {
    if (s->state == STRING) {
        return json_stream_in_string(s, c, out, result);
    }
    if (s->state == WORD) {
        return in_word(s, c, out, result, again);
    }
    if (s->state >= MINUS && s->state <= E_DIGITS) {
        return in_number(s, c, out, result, again);
    }
    if (s->state == DONE) {
        *result = JSON_STREAM_BEFORE;
        return QUIRE_OK;
    }
    if (json_stream_is_space(c)) {
        return white_space(s, c, out);
    }
    return json_stream_wants_value(s) ? json_stream_begin_value(s, c, out, result)
                                      : json_stream_between(s, c, out, result);
}

quire_err json_stream_push(json_stream *s, char c, strbuf *out, json_stream_result *result) {
    bool again = true;
    *result = JSON_STREAM_MORE;
    while (again) {
        again = false;
        TRY(json_stream_step(s, c, out, result, &again));
    }
    return QUIRE_OK;
}

quire_err json_stream_add(json_stream *s, str text, strbuf *out, json_stream_result *result, size_t *n_read) {
    *result = JSON_STREAM_MORE;
    for (*n_read = 0; *n_read < text.n && *result == JSON_STREAM_MORE;) {
        TRY(json_stream_push(s, text.p[*n_read], out, result));
        *n_read += *result == JSON_STREAM_MORE || *result == JSON_STREAM_DONE;
    }
    return QUIRE_OK;
}

/* Completes the scalar or member in which the text ended. */
static quire_err close_scalar(json_stream *s, strbuf *out) {
    json_stream_result ignored;
    switch (s->state) {
    case STRING: {
        bool is_name = s->in_name;
        unescape_cut(&s->escape);
        TRY(json_stream_end_string(s, out, &ignored));
        return strbuf_add_str(out, is_name ? ":null" : "");
    }
    case COLON:
        return strbuf_add_str(out, ":null");
    case VALUE:
    case MEMBER:
        return strbuf_add_str(out, "null");
    case WORD: {
        const word *w = find_word(s->word, s->n_word, false);
        return w != NULL ? write_word(s, w, out) : write_word(s, &(word){"null", "null"}, out);
    }
    case MINUS:
    case POINT:
    case E:
    case E_SIGN:
        return strbuf_add_char(out, '0');
    default:
        return QUIRE_OK;
    }
}

quire_err json_stream_close(json_stream *s, strbuf *out) {
    TRY(close_scalar(s, out));
    while (s->depth > 0) {
        char closing = in_object(s) ? '}' : ']';
        s->depth--;
        TRY(strbuf_add_char(out, closing));
    }
    s->state = DONE;
    return QUIRE_OK;
}

/* ---- Python literals ---- */

enum { PYTHON_VALUE, PYTHON_QUOTES, PYTHON_STRING };

/* Passes decoded text to the JSON stream, escaped, a few bytes at a time. */
static quire_err put_decoded(python_literal *p, const char *text, size_t n, strbuf *out) {
    char bytes[8 * UNESCAPE_BYTES];
    size_t n_read, n_bytes = 0;
    json_stream_result result;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            bytes[n_bytes++] = '\\';
        } /* json_stream escapes control characters */
        bytes[n_bytes++] = text[i];
    }
    return json_stream_add(&p->json, (str){bytes, n_bytes}, out, &result, &n_read);
}

static quire_err python_literal_end_string(python_literal *p, strbuf *out, json_stream_result *result) {
    char text[UNESCAPE_BYTES];
    TRY(put_decoded(p, text, unescape_end(&p->escape, text), out));
    p->state = PYTHON_VALUE;
    return json_stream_push(&p->json, '"', out, result);
}

static quire_err string_byte(python_literal *p, char c, strbuf *out) {
    char text[UNESCAPE_BYTES];
    return put_decoded(p, text, unescape_push(&p->escape, ESCAPE_PYTHON, c, text), out);
}

static quire_err python_literal_in_string(python_literal *p, char c, strbuf *out,
                                          json_stream_result *result) {
    if (c == p->quote && !unescape_is_open(&p->escape)) {
        p->n_quotes++;
        return p->n_quotes == (p->is_triple ? 3 : 1) ? python_literal_end_string(p, out, result) : QUIRE_OK;
    }
    for (; p->n_quotes > 0; p->n_quotes--) { /* quotes too few to end the string */
        TRY(string_byte(p, p->quote, out));
    }
    return string_byte(p, c, out);
}

/* Reads the byte after an opening quote: a second quote makes an empty string, a third
 * one a string of several lines. */
static quire_err in_quotes(python_literal *p, char c, strbuf *out, json_stream_result *result) {
    if (c == p->quote) {
        p->n_quotes++;
        p->is_triple = p->n_quotes == 3;
        p->state = p->is_triple ? PYTHON_STRING : PYTHON_QUOTES;
        p->n_quotes = p->is_triple ? 0 : p->n_quotes;
        return QUIRE_OK;
    }
    bool is_empty = p->n_quotes == 2;
    p->state = PYTHON_STRING;
    p->n_quotes = 0;
    if (!is_empty) {
        return python_literal_in_string(p, c, out, result);
    }
    TRY(python_literal_end_string(p, out, result));
    if (*result == JSON_STREAM_DONE) {
        *result = JSON_STREAM_BEFORE;
        return QUIRE_OK;
    }
    return python_literal_push(p, c, out, result);
}

static quire_err python_literal_in_value(python_literal *p, char c, strbuf *out, json_stream_result *result) {
    bool is_quote = c == '"' || c == '\'';
    char json = is_quote ? '"' : c == '(' ? '[' : c == ')' && p->json.depth > 0 ? ']' : c;
    TRY(json_stream_push(&p->json, json, out, result));
    if (is_quote && *result == JSON_STREAM_MORE) {
        p->state = PYTHON_QUOTES;
        p->quote = c;
        p->n_quotes = 1;
        p->is_triple = false;
        p->escape = (unescape){0};
    }
    return QUIRE_OK;
}

quire_err python_literal_push(python_literal *p, char c, strbuf *out, json_stream_result *result) {
    assert(p != NULL);
    *result = JSON_STREAM_MORE;
    switch (p->state) {
    case PYTHON_STRING:
        return python_literal_in_string(p, c, out, result);
    case PYTHON_QUOTES:
        return in_quotes(p, c, out, result);
    default:
        return python_literal_in_value(p, c, out, result);
    }
}

quire_err python_literal_close(python_literal *p, strbuf *out) {
    assert(p != NULL);
    p->state = PYTHON_VALUE;
    return json_stream_close(&p->json, out);
}
