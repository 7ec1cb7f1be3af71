#include "json/json_lex.h"

#include <assert.h>

#include "base/turn.h"
#include "base/utf8.h"

/* Polls the turn once at least TURN_WORK bytes lie between *polled, the place of the last
 * poll, and `at`. */
static quire_err poll_run(size_t at, size_t *polled, const char **what) {
    if (at - *polled < TURN_WORK) {
        return QUIRE_OK;
    }
    *polled = at;
    quire_err e = turn_poll(TURN_WORK / 4);
    *what = e != QUIRE_OK ? "given up" : *what;
    return e;
}

size_t json_lex_space(str text, size_t at) {
    size_t polled = at;
    const char *what = "";
    while (at < text.n &&
           (text.p[at] == ' ' || text.p[at] == '\n' || text.p[at] == '\r' || text.p[at] == '\t')) {
        at++;
        (void)poll_run(at, &polled, &what); /* the next poll returns the error again */
    }
    return at;
}

static quire_err json_lex_fail(const char **what, const char *phrase) {
    *what = phrase;
    return QUIRE_BAD_FILE;
}

/* ---- strings ---- */

/* Value of the four hexadecimal digits at text.p[at], or -1. */
static int32_t hex4(str text, size_t at) {
    int32_t v = 0;
    if (text.n - at < 4) {
        return -1;
    }
    for (size_t i = at; i < at + 4; i++) {
        int digit = hex_digit(text.p[i]);
        if (digit < 0) {
            return -1;
        }
        v = v << 4 | digit;
    }
    return v;
}

/* Decodes \uXXXX, or a surrogate pair of them, at text.p[at]; sets *n to its length.
 * Returns the code point; -1: not four digits, -2: a lone surrogate. */
static int32_t unicode_escape(str text, size_t at, size_t *n) {
    int32_t c = hex4(text, at + 2);
    *n = 6;
    if (c < 0xD800 || c > 0xDFFF) {
        return c;
    }
    if (c > 0xDBFF || text.n - at < 12 || text.p[at + 6] != '\\' || text.p[at + 7] != 'u') {
        return -2;
    }
    int32_t low = hex4(text, at + 8);
    *n = 12;
    return low >= 0xDC00 && low <= 0xDFFF ? 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00) : -2;
}

/* Skips an escape, and adds to *n_saved the bytes by which its character is shorter. */
static quire_err pass_escape(str text, size_t *at, size_t *n_saved, const char **what) {
    if (text.n - *at < 2) {
        return json_lex_fail(what, "a string without its closing quote");
    }
    if (text.p[*at + 1] != 'u') {
        if (text.p[*at + 1] == '\0' || strchr("\"\\/bfnrt", text.p[*at + 1]) == NULL) {
            return json_lex_fail(what, "an invalid escape");
        }
        *at += 2;
        *n_saved += 1;
        return QUIRE_OK;
    }
    char bytes[4];
    size_t n;
    int32_t c = unicode_escape(text, *at, &n);
    if (c < 0) {
        return json_lex_fail(what, c == -2 ? "an unpaired surrogate" : "\\u without four hexadecimal digits");
    }
    *at += n;
    *n_saved += n - utf8_encode(c, bytes);
    return QUIRE_OK;
}

quire_err json_lex_string(str text, size_t *at, size_t max_bytes, json_letters *out, const char **what) {
    size_t first = ++*at, polled = first, n_saved = 0;
    *out = (json_letters){0};
    while (*at < text.n) {
        unsigned char c = (unsigned char)text.p[*at];
        if (*at - polled >= TURN_WORK) {
            TRY(poll_run(*at, &polled, what));
            if (*at - first - n_saved > max_bytes) {
                return QUIRE_TOO_LARGE;
            }
        }
        if (c == '"') {
            out->n_bytes = *at - first - n_saved;
            ++*at;
            return out->n_bytes <= max_bytes ? QUIRE_OK : QUIRE_TOO_LARGE;
        }
        if (c < 0x20) {
            return json_lex_fail(what, "a control character in a string");
        }
        if (c == '\\') {
            out->escaped = true;
            TRY(pass_escape(text, at, &n_saved, what));
        } else if (c < 0x80) {
            ++*at;
        } else {
            size_t n;
            if (utf8_decode(text.p + *at, text.n - *at, &n) < 0) {
                return json_lex_fail(what, "not UTF-8");
            }
            *at += n;
        }
    }
    return json_lex_fail(what, "a string without its closing quote");
}

quire_err json_lex_unescape(str s, strbuf *out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    for (size_t i = 0; i < s.n;) {
        const char *backslash = memchr(s.p + i, '\\', s.n - i);
        size_t run = backslash == NULL ? s.n - i : (size_t)(backslash - (s.p + i));
        TRY(strbuf_add(out, s.p + i, run));
        i += run;
        if (i == s.n) {
            break;
        }
        if (s.p[i + 1] == 'u') {
            size_t n;
            TRY(utf8_add(out, unicode_escape(s, i, &n)));
            i += n;
        } else {
            TRY(strbuf_add_char(out, values[strchr(names, s.p[i + 1]) - names]));
            i += 2;
        }
    }
    return QUIRE_OK;
}

/* ---- numbers and words ---- */

static bool json_lex_is_digit(str text, size_t at) {
    return at < text.n && text.p[at] >= '0' && text.p[at] <= '9';
}

/* Skips one or more digits. */
static quire_err pass_digits(str text, size_t *at, const char **what) {
    if (!json_lex_is_digit(text, *at)) {
        return json_lex_fail(what, "a number that lacks a digit");
    }
    size_t polled = *at;
    while (json_lex_is_digit(text, *at)) {
        ++*at;
        TRY(poll_run(*at, &polled, what));
    }
    return QUIRE_OK;
}

/* Computes the value of digits p[0..n). False: it does not fit int64. */
static bool integer_value(const char *p, size_t n, bool negative, int64_t *out) {
    uint64_t v = 0, top = (uint64_t)INT64_MAX + negative;
    for (size_t i = 0; i < n; i++) {
        uint64_t digit = (uint64_t)(p[i] - '0');
        if (v > (top - digit) / 10) {
            return false;
        }
        v = v * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

#define SHORT_NUMBER 16 /* bytes without the sign: 15 digits and a point */

quire_err json_lex_number(str text, size_t *at, json_number *out, const char **what) {
    assert(at != NULL);
    bool negative = text.p[*at] == '-';
    *at += negative;
    size_t first = *at;
    TRY(pass_digits(text, at, what));
    if (text.p[first] == '0' && *at > first + 1) {
        *at = first + 1;
        return json_lex_fail(what, "a number that begins with 0");
    }
    *out = (json_number){.is_integer = true};
    size_t n_digits = *at - first;
    if (*at < text.n && text.p[*at] == '.') {
        out->is_integer = false;
        ++*at;
        TRY(pass_digits(text, at, what));
    }
    if (*at < text.n && (text.p[*at] | 32) == 'e') {
        out->is_integer = false;
        ++*at;
        *at += *at < text.n && (text.p[*at] == '+' || text.p[*at] == '-');
        TRY(pass_digits(text, at, what));
        out->is_long = true;
    }
    out->is_long = out->is_long || *at - first > SHORT_NUMBER;
    out->fits = out->is_integer && integer_value(text.p + first, n_digits, negative, &out->value);
    return QUIRE_OK;
}

size_t json_lex_nonfinite(str text, size_t at) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i]);
        if (text.n - at >= n && memcmp(text.p + at, words[i], n) == 0) {
            return n;
        }
    }
    return 0;
}

quire_err json_lex_word(str text, size_t *at, const char **what) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i]);
        if (text.n - *at >= n && memcmp(text.p + *at, words[i], n) == 0) {
            *at += n;
            return QUIRE_OK;
        }
    }
    char c = text.p[*at];
    return json_lex_fail(what, c == '\0'              ? "a NUL byte"
                               : c == 'N' || c == 'I' ? "NaN and Infinity are not JSON"
                                                      : "unexpected character");
}

quire_err json_lex_text(str text, size_t *at, strbuf *scratch, str *out) {
    assert(at != NULL);
    const char *what;
    json_letters letters;
    size_t start = *at + 1;
    TRY(json_lex_string(text, at, SIZE_MAX, &letters, &what));
    *out = (str){text.p + start, *at - 1 - start};
    if (letters.escaped) {
        strbuf_clear(scratch);
        TRY(json_lex_unescape(*out, scratch));
        *out = (str){scratch->p, scratch->n};
    }
    return QUIRE_OK;
}
