/* The lexer: text and tags, with Jinja's whitespace rules, and the tokens inside tags. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/str.h"
#include "jinja/jinja_ast.h"
#include "jinja/jinja_big.h"

enum { MAX_BRACKETS = 256 };

typedef struct lexer {
    str source;
    size_t at;
    jinja_options options;
    jarena *arena;
    quire_error *err;
    jtoken *tokens;
    size_t n, cap;
    bool line_starting; /* the last item read ended a line */
    size_t line_offset; /* start of the line being counted */
    uint32_t line;
    char brackets[MAX_BRACKETS];
    int n_brackets;
} lexer;

quire_err jinja_error(quire_error *err, quire_err code, uint32_t line, uint32_t column, const char *format,
                      ...) {
    char message[sizeof err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return err_set(err, code, -1, "line %u, column %u: %s", (unsigned)line, (unsigned)column, message);
}

/* Finds line and column of an offset. Linear in total while offsets ascend. */
static void locate(lexer *l, size_t offset, uint32_t *line, uint32_t *column) {
    const char *newline;
    if (offset < l->line_offset) {
        l->line_offset = 0;
        l->line = 1;
    }
    while (l->line_offset < offset &&
           (newline = memchr(l->source.p + l->line_offset, '\n', offset - l->line_offset)) != NULL) {
        l->line_offset = (size_t)(newline - l->source.p) + 1;
        l->line++;
    }
    *line = l->line;
    *column = (uint32_t)(offset - l->line_offset) + 1;
}

static quire_err fail_with(lexer *l, quire_err code, size_t offset, const char *what, str part) {
    uint32_t line, column;
    locate(l, offset, &line, &column);
    return jinja_error(l->err, code, line, column, "%s%.*s", what, (int)(part.n > 40 ? 40 : part.n),
                       part.n > 0 ? part.p : "");
}

static quire_err jinja_lex_fail(lexer *l, size_t offset, const char *what, str part) {
    return fail_with(l, QUIRE_INVALID, offset, what, part);
}

static quire_err jinja_lex_no_memory(lexer *l) {
    return err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory for a template");
}

static quire_err jinja_lex_add(lexer *l, jtoken_kind kind, size_t offset, str text, jvalue value) {
    if (mem_grow(&l->tokens, &l->cap, l->n + 1, sizeof *l->tokens) != QUIRE_OK) {
        return jinja_lex_no_memory(l);
    }
    jtoken *t = &l->tokens[l->n++];
    *t = (jtoken){.kind = kind, .text = text, .value = value};
    locate(l, offset, &t->line, &t->column);
    return QUIRE_OK;
}

static bool jinja_lex_starts(const lexer *l, size_t at, const char *what) {
    size_t n = strlen(what);
    return l->source.n - at >= n && memcmp(l->source.p + at, what, n) == 0;
}

static size_t jinja_lex_skip_space(const lexer *l, size_t at) {
    size_t size;
    while (at < l->source.n && jchar_is_space(jchar_at(l->source.p + at, l->source.n - at, &size))) {
        at += size;
    }
    return at;
}

/* Adds the text from `from` to the tag at `to`, which begins with sign. sign or
 * lstrip_blocks decide whether white space before the tag is dropped. */
static quire_err add_data(lexer *l, size_t from, size_t to, char sign, bool block) {
    str text = {l->source.p + from, to - from};
    if (sign == '-') {
        text = jstr_strip(text, false, true);
    } else if (sign != '+' && block && l->options.lstrip_blocks) {
        size_t line = text.n;
        while (line > 0 && text.p[line - 1] != '\n') {
            line--;
        }
        str blanks = {text.p + line, text.n - line};
        if ((line > 0 || l->line_starting) && jstr_strip(blanks, true, false).n == 0) {
            text.n = line;
        }
    }
    return text.n == 0 ? QUIRE_OK : jinja_lex_add(l, T_DATA, from, text, jnone());
}

/* Where a tag's closing at `at` ends: "%}", "-%}" or "+%}" and the white space dropped
 * after it. Returns 0 if there is none. */
static size_t tag_end(const lexer *l, size_t at, const char *close, bool plus, bool trim) {
    bool minus = l->source.p[at] == '-';
    size_t skip = minus || (plus && l->source.p[at] == '+');
    if (at + skip > l->source.n || !jinja_lex_starts(l, at + skip, close)) {
        return 0;
    }
    size_t end = at + skip + 2;
    if (minus) {
        return jinja_lex_skip_space(l, end);
    }
    return skip == 0 && trim && l->options.trim_blocks && end < l->source.n && l->source.p[end] == '\n'
               ? end + 1
               : end;
}

static char sign_at(const lexer *l, size_t at) {
    return at < l->source.n && (l->source.p[at] == '-' || l->source.p[at] == '+') ? l->source.p[at] : 0;
}

/* Where a block tag at `at` ends that is only a word: "{%", a sign, spaces, word, spaces,
 * an end. Returns 0 if it is not. */
static size_t jinja_lex_block_of(const lexer *l, size_t at, const char *word, bool plus, bool trim) {
    size_t i = at + 2;
    i = jinja_lex_skip_space(l, i + (sign_at(l, i) != 0));
    if (!jinja_lex_starts(l, i, word)) {
        return 0;
    }
    i = jinja_lex_skip_space(l, i + strlen(word));
    return i < l->source.n ? tag_end(l, i, "%}", plus, trim) : 0;
}

static void passed(lexer *l, size_t end) {
    l->at = end;
    l->line_starting = end > 0 && l->source.p[end - 1] == '\n';
}

/* Reads the literal text from {% raw %} to after {% endraw %}. */
static quire_err lex_raw(lexer *l) {
    size_t from = l->at;
    for (size_t i = from; i + 1 < l->source.n; i++) {
        size_t end = jinja_lex_starts(l, i, "{%") ? jinja_lex_block_of(l, i, "endraw", true, true) : 0;
        if (end > 0) {
            TRY(add_data(l, from, i, sign_at(l, i + 2), true));
            passed(l, end);
            return QUIRE_OK;
        }
    }
    l->at = l->source.n;
    return from == l->source.n ? QUIRE_OK : jinja_lex_fail(l, from, "Missing end of raw directive", (str){0});
}

static quire_err lex_comment(lexer *l, size_t tag) {
    size_t from = tag + 2 + (sign_at(l, tag + 2) != 0);
    for (size_t i = from; i + 1 < l->source.n; i++) {
        char c = l->source.p[i];
        size_t end = c == '-' || c == '+' || c == '#' ? tag_end(l, i, "#}", true, true) : 0;
        if (end > 0) {
            passed(l, end);
            return QUIRE_OK;
        }
    }
    l->at = l->source.n;
    return from == l->source.n ? QUIRE_OK : jinja_lex_fail(l, tag, "Missing end of comment tag", (str){0});
}

/* ---- inside tags ---- */

static bool jinja_lex_is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_digit_of(int base, char c) {
    return hex_digit(c) >= 0 && hex_digit(c) < base;
}

/* Skips digits of a base, with single underscores in between, from `at`. Returns the
 * end. */
static size_t jinja_lex_digits(const lexer *l, size_t at, int base) {
    size_t i = at;
    while (i < l->source.n) {
        if (is_digit_of(base, l->source.p[i])) {
            i++;
        } else if (i > at && l->source.p[i] == '_' && i + 1 < l->source.n &&
                   is_digit_of(base, l->source.p[i + 1])) {
            i++;
        } else {
            break;
        }
    }
    return i;
}

/* The end of the float that starts at `at`; 0: none. */
static size_t float_end(const lexer *l, size_t at) {
    if (at > 0 && l->source.p[at - 1] == '.') {
        return 0;
    }
    size_t whole = jinja_lex_digits(l, at, 10), i = whole;
    if (i + 1 < l->source.n && l->source.p[i] == '.' && jinja_lex_is_digit(l->source.p[i + 1])) {
        i = jinja_lex_digits(l, i + 1, 10);
    }
    size_t mantissa = i;
    if (i < l->source.n && (l->source.p[i] == 'e' || l->source.p[i] == 'E')) {
        i++;
        i += sign_at(l, i) != 0;
        if (i < l->source.n && jinja_lex_is_digit(l->source.p[i])) {
            return jinja_lex_digits(l, i, 10);
        }
    }
    return mantissa > whole ? mantissa : 0;
}

static quire_err lex_number(lexer *l) {
    size_t start = l->at, end = float_end(l, start), at = start;
    char text[128];
    int base = 10;
    bool is_float = end > 0;
    if (!is_float) {
        char second = start + 1 < l->source.n ? l->source.p[start + 1] : 0;
        base = l->source.p[start] != '0'        ? 10
               : second == 'x' || second == 'X' ? 16
               : second == 'o' || second == 'O' ? 8
               : second == 'b' || second == 'B' ? 2
                                                : 10;
        if (base != 10) {
            at += start + 2 < l->source.n && l->source.p[start + 2] == '_' ? 3 : 2;
            end = jinja_lex_digits(l, at, base);
        } else {
            /* after a leading zero only zeros may follow */
            end = jinja_lex_digits(l, start, l->source.p[start] == '0' ? 1 : 10);
        }
        if (end == at) {
            return jinja_lex_fail(l, start, "malformed number ", (str){l->source.p + start, 2});
        }
    }
    size_t n = 0;
    for (; at < end; at++) {
        if (l->source.p[at] != '_' && n + 1 < sizeof text) {
            text[n++] = l->source.p[at];
        }
    }
    text[n] = '\0';
    l->at = end;
    str token = {l->source.p + start, end - start};
    if (is_float) {
        return jinja_lex_add(l, T_FLOAT, start, token, jfloat(c_locale_strtod(text, NULL)));
    }
    errno = 0;
    long long value = strtoll(text, NULL, base);
    if (errno != 0 || n + 1 >= sizeof text) {
        size_t prefix = base == 10 ? 0 : 2;
        jvalue big = jbig_parse(l->arena, (str){token.p + prefix, token.n - prefix}, (uint32_t)base, false);
        return jis(big, J_MISSING)
                   ? fail_with(l, QUIRE_TOO_LARGE, start, "an integer of too many digits: ", token)
                   : jinja_lex_add(l, T_INT, start, token, big);
    }
    return jinja_lex_add(l, T_INT, start, token, jint(value));
}

static bool is_name_char(int32_t c, bool first) {
    if (c < 0x80) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
               (!first && c >= '0' && c <= '9');
    }
    const uint32_t letters = JCATEGORY(LU) | JCATEGORY(LL) | JCATEGORY(LT) | JCATEGORY(LM) | JCATEGORY(LO);
    return jchar_in(c, first ? letters : letters | JCATEGORY(MN) | JCATEGORY(MC) | JCATEGORY(ND));
}

/* Decodes the escape at p[0], a backslash, to out. Returns the bytes read; 0:
 * malformed. */
static size_t unescape_one(const char *p, size_t n, char *out, size_t *n_out) {
    static const char plain[] = "n\nt\tr\r\\\\'\'\"\"a\ab\bf\fv\v";
    char c = p[1];
    for (size_t i = 0; i + 1 < sizeof plain; i += 2) {
        if (plain[i] == c) {
            out[0] = plain[i + 1];
            *n_out = 1;
            return 2;
        }
    }
    *n_out = 0;
    if (c == '\n') {
        return 2;
    }
    size_t i = 2, width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (c >= '0' && c <= '7') {
        for (i = 1; i < n && i < 4 && p[i] >= '0' && p[i] <= '7'; i++) {
            code = code * 8 + (uint32_t)(p[i] - '0');
        }
    } else if (width > 0) {
        for (; i < 2 + width; i++) {
            if (i >= n || hex_digit(p[i]) < 0) {
                return 0;
            }
            code = code * 16 + (uint32_t)hex_digit(p[i]);
        }
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
            return 0;
        }
    } else {
        out[0] = '\\'; /* an unknown escape keeps the backslash */
        *n_out = 1;
        return 1;
    }
    *n_out = jchar_put((int32_t)code, out);
    return i;
}

static quire_err lex_string(lexer *l) {
    size_t start = l->at, end = start + 1;
    char quote = l->source.p[start];
    while (end < l->source.n && l->source.p[end] != quote) {
        end += l->source.p[end] == '\\' ? 2 : 1;
    }
    if (end >= l->source.n) {
        return jinja_lex_fail(l, start, "unexpected char ", (str){l->source.p + start, 1});
    }
    uint8_t *none;
    char *text = jarena_bytes(l->arena, end - start, JINJA_TEMPLATE, &none);
    if (text == NULL) {
        return jinja_lex_no_memory(l);
    }
    size_t n = 0;
    for (size_t i = start + 1; i < end;) {
        if (l->source.p[i] != '\\') {
            text[n++] = l->source.p[i++];
            continue;
        }
        if (l->source.p[i + 1] == 'N') {
            return fail_with(l, QUIRE_UNSUPPORTED, i,
                             "characters by name are not supported: ", (str){l->source.p + i, end - i});
        }
        size_t written, read = unescape_one(l->source.p + i, end - i, text + n, &written);
        if (read == 0) {
            return jinja_lex_fail(l, i, "malformed or unknown escape ",
                                  (str){l->source.p + i, end - i < 6 ? end - i : 6});
        }
        i += read;
        n += written;
    }
    l->at = end + 1;
    return jinja_lex_add(l, T_STRING, start, (str){text, n}, jnone());
}

static quire_err lex_operator(lexer *l) {
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t start = l->at, n = 1;
    char c = l->source.p[start];
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        n = jinja_lex_starts(l, start, two[i]) ? 2 : n;
    }
    if (n == 1 && (c == '\0' || strchr("+-/*%~[](){}><=.:|,;", c) == NULL)) {
        return jinja_lex_fail(
            l, start, "unexpected char ",
            (str){l->source.p + start, jchar_size(l->source.p + start, l->source.n - start)});
    }
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_brackets == MAX_BRACKETS) {
            return jinja_lex_fail(l, start, "brackets nested too deeply", (str){0});
        }
        l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (l->n_brackets == 0 || l->brackets[l->n_brackets - 1] != c) {
            return jinja_lex_fail(l, start, "unexpected ", (str){l->source.p + start, 1});
        }
        l->n_brackets--;
    }
    l->at += n;
    return jinja_lex_add(l, T_OPERATOR, start, (str){l->source.p + start, n}, jnone());
}

/* Reads the tokens of a tag, from after its opening to after its end. */
static quire_err lex_tag(lexer *l, size_t tag, bool block) {
    TRY(jinja_lex_add(l, block ? T_BLOCK_BEGIN : T_PRINT_BEGIN, tag, (str){0}, jnone()));
    l->at = tag + 2 + (sign_at(l, tag + 2) != 0);
    l->n_brackets = 0;
    for (;;) {
        l->at = jinja_lex_skip_space(l, l->at);
        if (l->at >= l->source.n) {
            return QUIRE_OK; /* the parser will report the missing end */
        }
        size_t end = l->n_brackets > 0 ? 0 : tag_end(l, l->at, block ? "%}" : "}}", block, block);
        if (end > 0) {
            TRY(jinja_lex_add(l, block ? T_BLOCK_END : T_PRINT_END, l->at, (str){0}, jnone()));
            passed(l, end);
            return QUIRE_OK;
        }
        size_t size, start = l->at;
        int32_t c = jchar_at(l->source.p + start, l->source.n - start, &size);
        if (jinja_lex_is_digit((char)c) && c < 0x80) {
            TRY(lex_number(l));
        } else if (c == '"' || c == '\'') {
            TRY(lex_string(l));
        } else if (c > 0 && is_name_char(c, true)) {
            do {
                l->at += size;
                c = l->at < l->source.n ? jchar_at(l->source.p + l->at, l->source.n - l->at, &size) : 0;
            } while (c > 0 && is_name_char(c, false));
            TRY(jinja_lex_add(l, T_NAME, start, (str){l->source.p + start, l->at - start}, jnone()));
        } else {
            TRY(lex_operator(l));
        }
    }
}

static quire_err lex_all(lexer *l) {
    while (l->at < l->source.n) {
        size_t tag = l->at;
        while (tag + 1 < l->source.n &&
               !(l->source.p[tag] == '{' && strchr("{%#", l->source.p[tag + 1]) != NULL &&
                 l->source.p[tag + 1] != '\0')) {
            tag++;
        }
        if (tag + 1 >= l->source.n) {
            TRY(jinja_lex_add(l, T_DATA, l->at, (str){l->source.p + l->at, l->source.n - l->at}, jnone()));
            l->at = l->source.n;
            break;
        }
        char kind = l->source.p[tag + 1];
        TRY(add_data(l, l->at, tag, sign_at(l, tag + 2), kind != '{'));
        size_t raw = kind == '%' ? jinja_lex_block_of(l, tag, "raw", false, false) : 0;
        if (raw > 0) {
            passed(l, raw);
            TRY(lex_raw(l));
        } else {
            TRY(kind == '#' ? lex_comment(l, tag) : lex_tag(l, tag, kind == '%'));
        }
    }
    return QUIRE_OK;
}

/* Ends the list of tokens. The last one is at the place of the one before it. */
static quire_err lex_end(lexer *l, jtoken_kind kind) {
    jtoken last = l->n > 0 ? l->tokens[l->n - 1] : (jtoken){.line = 1, .column = 1};
    TRY(jinja_lex_add(l, kind, 0, (str){0}, jnone()));
    l->tokens[l->n - 1].line = last.line;
    l->tokens[l->n - 1].column = last.column;
    return QUIRE_OK;
}

/* Copies the source with every line end as \n, and without the last one. */
static quire_err jinja_lex_normalise(str source, jarena *arena, str *out) {
    uint8_t *none;
    char *text = jarena_bytes(arena, source.n + 1, JINJA_TEMPLATE, &none);
    TRY(mem_check(text));
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        if (source.p[i] == '\r') {
            i += i + 1 < source.n && source.p[i + 1] == '\n';
            text[n++] = '\n';
        } else {
            text[n++] = source.p[i];
        }
    }
    *out = (str){text, n - (n > 0 && text[n - 1] == '\n')};
    return QUIRE_OK;
}

quire_err jinja_lex(str source, jinja_options options, jarena *arena, jtoken **tokens, quire_error *err) {
    lexer l = {.options = options, .arena = arena, .err = err, .line = 1, .line_starting = true};
    quire_err e = jinja_lex_normalise(source, arena, &l.source);
    e = e != QUIRE_OK ? jinja_lex_no_memory(&l) : lex_all(&l);
    if (e != QUIRE_NO_MEMORY) {
        e = lex_end(&l, e == QUIRE_OK ? T_END : T_FAULT);
    }
    if (e != QUIRE_OK) {
        mem_free(l.tokens);
        l.tokens = NULL;
    }
    *tokens = l.tokens;
    return e;
}
