/* The tokens of an expression: numbers, names and operators, as in C. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/str.h"
#include "expr/expr_tree.h"

#define MAX_FLOAT_LENGTH 63

int32_t expr_column(const expr_lexer *l, const char *p) {
    assert(p >= l->text.p && p <= l->text.p + l->text.n);
    return (int32_t)(p - l->text.p) + 1;
}

quire_err expr_error(quire_error *err, int32_t column, const char *format, ...) {
    char message[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return err_set(err, QUIRE_INVALID, column, "column %d: %s", (int)column, message);
}

static bool expr_lex_is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool expr_lex_is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* The character n after the current one; 0 at the end. */
static char expr_lex_peek(const expr_lexer *l, size_t n) {
    return l->at + n < l->text.n ? l->text.p[l->at + n] : '\0';
}

static void skip_digits(expr_lexer *l) {
    while (expr_lex_is_digit(expr_lex_peek(l, 0))) {
        l->at++;
    }
}

static quire_err read_integer(const expr_lexer *l, expr_word *out) {
    uint64_t v = 0;
    if (out->text.n > 1 && out->text.p[0] == '0') {
        return expr_error(l->err, expr_column(l, out->text.p),
                          "a number that begins with 0 would be octal in C; leave the 0 out");
    }
    for (size_t i = 0; i < out->text.n; i++) {
        uint64_t digit = (uint64_t)(out->text.p[i] - '0');
        if (v > ((uint64_t)INT64_MAX - digit) / 10) {
            return expr_error(l->err, expr_column(l, out->text.p), "the number is beyond 64 bits");
        }
        v = v * 10 + digit;
    }
    out->token = EXPR_TOKEN_INT;
    out->integer = (int64_t)v;
    return QUIRE_OK;
}

static quire_err read_float(const expr_lexer *l, expr_word *out) {
    char copy[MAX_FLOAT_LENGTH + 1];
    if (out->text.n > MAX_FLOAT_LENGTH) {
        return expr_error(l->err, expr_column(l, out->text.p), "the number has over %d characters",
                          MAX_FLOAT_LENGTH);
    }
    memcpy(copy, out->text.p, out->text.n);
    copy[out->text.n] = 0;
    out->token = EXPR_TOKEN_FLOAT;
    out->number = (float)c_locale_strtod(copy, NULL);
    return isfinite(out->number)
               ? QUIRE_OK
               : expr_error(l->err, expr_column(l, out->text.p), "the number is beyond a float of 32 bits");
}

/* 12, 1.5, .5, 2., 1e-3 */
static quire_err expr_lex_read_number(expr_lexer *l, expr_word *out) {
    size_t start = l->at;
    bool is_float = false;
    skip_digits(l);
    if (expr_lex_peek(l, 0) == '.') {
        is_float = true;
        l->at++;
        skip_digits(l);
    }
    if (expr_lex_peek(l, 0) == 'e' || expr_lex_peek(l, 0) == 'E') {
        size_t sign = expr_lex_peek(l, 1) == '+' || expr_lex_peek(l, 1) == '-';
        if (!expr_lex_is_digit(expr_lex_peek(l, 1 + sign))) {
            return expr_error(l->err, (int32_t)l->at + 1, "an exponent has no digits");
        }
        is_float = true;
        l->at += 1 + sign;
        skip_digits(l);
    }
    if (expr_lex_is_letter(expr_lex_peek(l, 0)) || expr_lex_peek(l, 0) == '.') {
        return expr_error(l->err, (int32_t)l->at + 1, "'%c' cannot follow a number", expr_lex_peek(l, 0));
    }
    out->text = (str){l->text.p + start, l->at - start};
    return is_float ? read_float(l, out) : read_integer(l, out);
}

static const struct {
    char text[3];
    expr_token token;
} operators[] = {{"||", EXPR_OR_ELSE},   {"&&", EXPR_AND_ALSO},   {"==", EXPR_EQ},      {"!=", EXPR_NE},
                 {"<=", EXPR_LE},        {">=", EXPR_GE},         {"<<", EXPR_SHL},     {">>", EXPR_SHR},
                 {"(", EXPR_OPEN},       {")", EXPR_CLOSE},       {"?", EXPR_QUESTION}, {":", EXPR_COLON},
                 {"[", EXPR_OPEN_INDEX}, {"]", EXPR_CLOSE_INDEX}, {",", EXPR_COMMA},    {"|", EXPR_BIT_OR},
                 {"^", EXPR_BIT_XOR},    {"&", EXPR_BIT_AND},     {"<", EXPR_LT},       {">", EXPR_GT},
                 {"+", EXPR_PLUS},       {"-", EXPR_MINUS},       {"*", EXPR_TIMES},    {"/", EXPR_DIVIDE},
                 {"%", EXPR_MODULO},     {"!", EXPR_NOT},         {"~", EXPR_BIT_NOT}};

static quire_err read_operator(expr_lexer *l, expr_word *out) {
    str rest = {l->text.p + l->at, l->text.n - l->at};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (str_begins(rest, operators[i].text)) {
            out->token = operators[i].token;
            out->text = (str){rest.p, strlen(operators[i].text)};
            l->at += out->text.n;
            return QUIRE_OK;
        }
    }
    unsigned char c = (unsigned char)rest.p[0];
    if (c == '=') {
        return expr_error(l->err, (int32_t)l->at + 1, "'=' assigns nothing here; equality is '=='");
    }
    return c > ' ' && c < 127
               ? expr_error(l->err, (int32_t)l->at + 1, "'%c' is no operator", c)
               : expr_error(l->err, (int32_t)l->at + 1, "byte 0x%02x is no part of an expression", c);
}

quire_err expr_next(expr_lexer *l, expr_word *out) {
    assert(l->at <= l->text.n);
    char c = expr_lex_peek(l, 0);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        l->at++;
        c = expr_lex_peek(l, 0);
    }
    *out = (expr_word){.token = EXPR_END, .text = {l->text.p + l->at, 0}};
    if (l->at == l->text.n) {
        return QUIRE_OK;
    }
    if (expr_lex_is_digit(c) || (c == '.' && expr_lex_is_digit(expr_lex_peek(l, 1)))) {
        return expr_lex_read_number(l, out);
    }
    if (expr_lex_is_letter(c)) {
        size_t start = l->at;
        while (expr_lex_is_letter(expr_lex_peek(l, 0)) || expr_lex_is_digit(expr_lex_peek(l, 0))) {
            l->at++;
        }
        out->token = EXPR_NAME;
        out->text = (str){l->text.p + start, l->at - start};
        return QUIRE_OK;
    }
    return read_operator(l, out);
}
