/* Parses an expression by precedence and types its nodes: an operator with a float
 * operand computes in floats; comparisons and logical operators give the integers 0 and
 * 1. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/str.h"
#include "expr/expr_tree.h"

/* The lexer: splits an expression into numbers, names and operators, as in C. */

#define MAX_FLOAT_LENGTH 63

/* The column of p in the text, counted from 1. */
static int32_t expr_column(const expr_lexer *l, const char *p) {
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

/* The character n places after the current one; 0 at the end. */
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
            return expr_error(l->err, expr_column(l, out->text.p), "the number does not fit in 64 bits");
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
               : expr_error(l->err, expr_column(l, out->text.p), "the number does not fit in a 32-bit float");
}

/* Reads a number such as 12, 1.5, .5, 2. or 1e-3. */
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
               ? expr_error(l->err, (int32_t)l->at + 1, "'%c' is not an operator", c)
               : expr_error(l->err, (int32_t)l->at + 1, "byte 0x%02x cannot be part of an expression", c);
}

static quire_err expr_next(expr_lexer *l, expr_word *out) {
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

typedef struct parser {
    expr_lexer lexer;
    expr_word word; /* the next token */
    expr_kind kind;
    expr_tree *tree;
    int32_t depth;
} parser;

static const char *const variable_names[N_EXPR_VARIABLES] = {"q_idx", "h",      "b",    "n_heads",
                                                             "n_kv",  "kv_idx", "score"};

static const struct {
    const char *name;
    int32_t n_arguments;
} functions[N_EXPR_FUNCTIONS] = {{"tanh", 1}, {"exp", 1}, {"log", 1}, {"sqrt", 1}, {"abs", 1}, {"floor", 1},
                                 {"sin", 1},  {"cos", 1}, {"min", 2}, {"max", 2},  {"pow", 2}};

/* The precedence of each binary operator; 0: not a binary operator. */
static const int8_t binds[N_EXPR_TOKENS] = {
    [EXPR_OR_ELSE] = 1, [EXPR_AND_ALSO] = 2, [EXPR_BIT_OR] = 3, [EXPR_BIT_XOR] = 4, [EXPR_BIT_AND] = 5,
    [EXPR_EQ] = 6,      [EXPR_NE] = 6,       [EXPR_LT] = 7,     [EXPR_LE] = 7,      [EXPR_GT] = 7,
    [EXPR_GE] = 7,      [EXPR_SHL] = 8,      [EXPR_SHR] = 8,    [EXPR_PLUS] = 9,    [EXPR_MINUS] = 9,
    [EXPR_TIMES] = 10,  [EXPR_DIVIDE] = 10,  [EXPR_MODULO] = 10};

/* Whether the operator's result is 0 or 1. */
static bool gives_truth(expr_token t) {
    return t == EXPR_OR_ELSE || t == EXPR_AND_ALSO || (t >= EXPR_EQ && t <= EXPR_GE) || t == EXPR_NOT;
}
static bool takes_integers(expr_token t) {
    return (t >= EXPR_BIT_OR && t <= EXPR_BIT_AND) || t == EXPR_SHL || t == EXPR_SHR || t == EXPR_MODULO ||
           t == EXPR_BIT_NOT;
}

static quire_err expr_parse_advance(parser *p) {
    return expr_next(&p->lexer, &p->word);
}

static int32_t column(const parser *p) {
    return expr_column(&p->lexer, p->word.text.p);
}

static quire_err expr_parse_expected(parser *p, const char *what) {
    if (p->word.token == EXPR_END) {
        return expr_error(p->lexer.err, column(p), "expected %s, but the expression ends", what);
    }
    int n = p->word.text.n > 40 ? 40 : (int)p->word.text.n;
    return expr_error(p->lexer.err, column(p), "expected %s, not '%.*s'", what, n, p->word.text.p);
}

static quire_err expr_parse_take(parser *p, expr_token token, const char *what) {
    return p->word.token == token ? expr_parse_advance(p) : expr_parse_expected(p, what);
}

static quire_err add_node(parser *p, expr_node node, int32_t *out) {
    if (p->tree->n == EXPR_MAX_NODES) {
        return expr_error(p->lexer.err, node.column,
                          "the expression has over %d numbers, names and operators", EXPR_MAX_NODES);
    }
    *out = p->tree->n;
    p->tree->nodes[p->tree->n++] = node;
    return QUIRE_OK;
}

static bool expr_parse_is_float(const parser *p, int32_t node) {
    return p->tree->nodes[node].type == EXPR_FLOAT;
}

/* Adds a node for an operator with n operands. */
static quire_err add_operator(parser *p, expr_token token, str text, int32_t n, const int32_t *child,
                              int32_t *out) {
    expr_node node = {.form = EXPR_OPERATOR,
                      .which = (uint8_t)token,
                      .column = expr_column(&p->lexer, text.p),
                      .n_children = n};
    bool any_float = false;
    for (int32_t i = 0; i < n; i++) {
        node.child[i] = child[i];
        any_float = any_float || (expr_parse_is_float(p, child[i]) && !(token == EXPR_QUESTION && i == 0));
    }
    if (any_float && takes_integers(token)) {
        return expr_error(p->lexer.err, node.column, "'%.*s' takes integers, but an operand is a float",
                          (int)text.n, text.p);
    }
    node.type = any_float && !gives_truth(token) ? EXPR_FLOAT : EXPR_INT;
    return add_node(p, node, out);
}

static quire_err parse_inner(parser *p, int32_t *out);

static quire_err unknown_name(parser *p, const expr_word *name) {
    nearest n = {.wanted = name->text};
    for (int32_t i = 0; i < N_EXPR_VARIABLES; i++) {
        nearest_offer(&n, str_of(variable_names[i]));
    }
    for (int32_t i = 0; i < N_EXPR_FUNCTIONS; i++) {
        nearest_offer(&n, str_of(functions[i].name));
    }
    for (int32_t i = 0; i < p->tree->n_arrays; i++) {
        nearest_offer(&n, str_of(p->tree->arrays[i].name));
    }
    int length = name->text.n > 40 ? 40 : (int)name->text.n;
    int32_t at = expr_column(&p->lexer, name->text.p);
    if (n.best.n > 0) {
        return expr_error(p->lexer.err, at, "'%.*s' is not a known name; did you mean '%.*s'?", length,
                          name->text.p, (int)n.best.n, n.best.p);
    }
    return expr_error(
        p->lexer.err, at,
        "'%.*s' is neither a variable (b, h, q_idx, kv_idx, n_heads, n_kv%s) nor one of the arrays", length,
        name->text.p, p->kind == EXPR_SCORE ? ", score" : "");
}

/* Parses the indices of array[i][j].. after the name. */
static quire_err parse_element(parser *p, const expr_word *name, int32_t array, int32_t *out) {
    const attn_array *a = &p->tree->arrays[array];
    expr_node node = {.form = EXPR_ELEMENT,
                      .type = a->is_float ? EXPR_FLOAT : EXPR_INT,
                      .column = expr_column(&p->lexer, name->text.p),
                      .array = array,
                      .n_children = a->n_dims};
    for (int32_t i = 0; i < a->n_dims; i++) {
        if (p->word.token != EXPR_OPEN_INDEX) {
            return expr_error(p->lexer.err, column(p), "'%s' has %d dimensions but is given %d indices",
                              a->name, (int)a->n_dims, (int)i);
        }
        TRY(expr_parse_advance(p));
        int32_t at = column(p);
        TRY(parse_inner(p, &node.child[i]));
        if (expr_parse_is_float(p, node.child[i])) {
            return expr_error(p->lexer.err, at, "an index of '%s' must be an integer, not a float", a->name);
        }
        TRY(expr_parse_take(p, EXPR_CLOSE_INDEX, "']'"));
    }
    if (p->word.token == EXPR_OPEN_INDEX) {
        return expr_error(p->lexer.err, column(p), "'%s' has %d dimensions but is given more indices",
                          a->name, (int)a->n_dims);
    }
    return add_node(p, node, out);
}

static quire_err expr_parse_call(parser *p, const expr_word *name, int32_t function, int32_t *out) {
    expr_node node = {.form = EXPR_CALL,
                      .which = (uint8_t)function,
                      .column = expr_column(&p->lexer, name->text.p),
                      .n_children = functions[function].n_arguments};
    bool any_float = false,
         keeps_integers = function == EXPR_FN_ABS || function == EXPR_FN_MIN || function == EXPR_FN_MAX;
    TRY(expr_parse_take(p, EXPR_OPEN, "'(' after a function's name"));
    for (int32_t i = 0; i < node.n_children; i++) {
        if (i > 0) {
            TRY(expr_parse_take(p, EXPR_COMMA, "',' and a second argument"));
        }
        TRY(parse_inner(p, &node.child[i]));
        any_float = any_float || expr_parse_is_float(p, node.child[i]);
    }
    TRY(expr_parse_take(p, EXPR_CLOSE, "')' after the last argument"));
    node.type = keeps_integers && !any_float ? EXPR_INT : EXPR_FLOAT;
    return add_node(p, node, out);
}

static quire_err expr_parse_name(parser *p, int32_t *out) {
    expr_word name = p->word;
    TRY(expr_parse_advance(p));
    for (int32_t i = 0; i < N_EXPR_VARIABLES; i++) {
        if (str_is(name.text, variable_names[i])) {
            if (i == EXPR_VAR_SCORE && p->kind == EXPR_MASK) {
                return expr_error(p->lexer.err, expr_column(&p->lexer, name.text.p),
                                  "a mask_mod cannot use score; only a score_mod can");
            }
            return add_node(p,
                            (expr_node){.form = EXPR_VARIABLE,
                                        .type = i == EXPR_VAR_SCORE ? EXPR_FLOAT : EXPR_INT,
                                        .which = (uint8_t)i,
                                        .column = expr_column(&p->lexer, name.text.p)},
                            out);
        }
    }
    for (int32_t i = 0; i < N_EXPR_FUNCTIONS; i++) {
        if (str_is(name.text, functions[i].name)) {
            return expr_parse_call(p, &name, i, out);
        }
    }
    for (int32_t i = 0; i < p->tree->n_arrays; i++) {
        if (str_is(name.text, p->tree->arrays[i].name)) {
            return parse_element(p, &name, i, out);
        }
    }
    return unknown_name(p, &name);
}

/* Parses a number, a name or an expression in parentheses. */
static quire_err parse_primary(parser *p, int32_t *out) {
    expr_word w = p->word;
    expr_node number = {.form = EXPR_NUMBER, .column = column(p), .integer = w.integer, .number = w.number};
    switch (w.token) {
    case EXPR_TOKEN_INT:
    case EXPR_TOKEN_FLOAT:
        number.type = w.token == EXPR_TOKEN_FLOAT ? EXPR_FLOAT : EXPR_INT;
        TRY(expr_parse_advance(p));
        return add_node(p, number, out);
    case EXPR_NAME:
        return expr_parse_name(p, out);
    case EXPR_OPEN:
        TRY(expr_parse_advance(p));
        TRY(parse_inner(p, out));
        return expr_parse_take(p, EXPR_CLOSE, "')'");
    default:
        return expr_parse_expected(p, "a number, a name or '('");
    }
}

static quire_err deeper(parser *p) {
    return ++p->depth <= EXPR_MAX_DEPTH
               ? QUIRE_OK
               : expr_error(p->lexer.err, column(p), "the expression is over %d levels deep", EXPR_MAX_DEPTH);
}

static quire_err expr_parse_unary(parser *p, int32_t *out) {
    expr_word w = p->word;
    if (w.token != EXPR_MINUS && w.token != EXPR_NOT && w.token != EXPR_BIT_NOT && w.token != EXPR_PLUS) {
        return parse_primary(p, out);
    }
    int32_t operand;
    TRY(deeper(p));
    TRY(expr_parse_advance(p));
    TRY(expr_parse_unary(p, &operand));
    p->depth--;
    return add_operator(p, w.token, w.text, 1, &operand, out);
}

/* Parses binary operators of precedence `least` or higher, left to right. */
static quire_err parse_binary(parser *p, int32_t least, int32_t *out) {
    TRY(expr_parse_unary(p, out));
    while (binds[p->word.token] >= least) {
        expr_word w = p->word;
        int32_t child[2] = {*out};
        TRY(expr_parse_advance(p));
        TRY(parse_binary(p, binds[w.token] + 1, &child[1]));
        TRY(add_operator(p, w.token, w.text, 2, child, out));
    }
    return QUIRE_OK;
}

/* Parses a condition with both branches, or a binary expression. */
static quire_err parse_condition(parser *p, int32_t *out) {
    TRY(parse_binary(p, 1, out));
    if (p->word.token == EXPR_QUESTION) {
        expr_word w = p->word;
        int32_t child[3] = {*out};
        TRY(expr_parse_advance(p));
        TRY(parse_inner(p, &child[1]));
        TRY(expr_parse_take(p, EXPR_COLON, "':' and the other alternative"));
        TRY(parse_inner(p, &child[2]));
        TRY(add_operator(p, w.token, w.text, 3, child, out));
    }
    return QUIRE_OK;
}

/* Parses a nested expression: in parentheses or brackets, or a branch of a condition. */
static quire_err parse_inner(parser *p, int32_t *out) {
    TRY(deeper(p));
    TRY(parse_condition(p, out));
    p->depth--;
    return QUIRE_OK;
}

/* Checks that the array's name is not a reserved one, and that its element count fits 32
 * bits. */
static quire_err check_array(const attn_array *a, quire_error *err) {
    int64_t n = 1;
    for (int32_t i = 0; i < N_EXPR_VARIABLES; i++) {
        if (strcmp(a->name, variable_names[i]) == 0) {
            return err_set(err, QUIRE_INVALID, -1, "array '%s' has the name of a variable", a->name);
        }
    }
    for (int32_t i = 0; i < N_EXPR_FUNCTIONS; i++) {
        if (strcmp(a->name, functions[i].name) == 0) {
            return err_set(err, QUIRE_INVALID, -1, "array '%s' has the name of a function", a->name);
        }
    }
    if (a->n_dims < 1 || a->n_dims > ATTN_ARRAY_DIMS) {
        return err_set(err, QUIRE_INVALID, -1, "array '%s' has %d dimensions; it must have 1 to %d", a->name,
                       (int)a->n_dims, ATTN_ARRAY_DIMS);
    }
    for (int32_t i = 0; i < a->n_dims; i++) {
        n *= a->dims[i];
        if (a->dims[i] < 1 || n > INT32_MAX) {
            return err_set(err, QUIRE_INVALID, -1,
                           "array '%s' has a dimension of %d; dimensions must be at least 1, and the number "
                           "of elements below 2^31",
                           a->name, (int)a->dims[i]);
        }
    }
    return QUIRE_OK;
}

quire_err expr_parse(expr_kind kind, str text, const attn_array *arrays, int32_t n_arrays, expr_tree *out,
                     quire_error *err) {
    assert(n_arrays >= 0);
    parser p = {.lexer = {.text = text, .err = err}, .kind = kind, .tree = out};
    out->n = 0;
    out->arrays = arrays;
    out->n_arrays = n_arrays;
    if (text.n > EXPR_MAX_LENGTH) {
        return err_set(err, QUIRE_INVALID, -1, "the expression has %zu characters; at most %d are allowed",
                       text.n, EXPR_MAX_LENGTH);
    }
    if (n_arrays > ATTN_PROGRAM_ARRAYS) {
        return err_set(err, QUIRE_INVALID, -1, "%d arrays are given; at most %d are allowed", (int)n_arrays,
                       ATTN_PROGRAM_ARRAYS);
    }
    for (int32_t i = 0; i < n_arrays; i++) {
        TRY(check_array(&arrays[i], err));
    }
    TRY(expr_parse_advance(&p));
    TRY(parse_condition(&p, &out->root));
    return p.word.token == EXPR_END ? QUIRE_OK : expr_parse_expected(&p, "an operator or the end");
}
