#include "json/json_scan.h"

#include <assert.h>

#include "json/json_check.h"
#include "json/json_lex.h"

char json_scan_peek(json_scan *s) {
    assert(s != NULL);
    s->at = json_lex_space(s->text, s->at);
    return s->at < s->text.n ? s->text.p[s->at] : '\0';
}

static quire_err json_scan_take(json_scan *s, char c) {
    if (json_scan_peek(s) != c) {
        return QUIRE_BAD_FILE;
    }
    s->at++;
    return QUIRE_OK;
}

quire_err json_scan_open(json_scan *s, char bracket) {
    assert(s != NULL);
    s->begun = true;
    return json_scan_take(s, bracket);
}

quire_err json_scan_more(json_scan *s, char closing, bool *more) {
    assert(s != NULL);
    bool begun = s->begun;
    s->begun = false;
    *more = json_scan_peek(s) != closing;
    return !*more ? json_scan_take(s, closing) : begun ? QUIRE_OK : json_scan_take(s, ',');
}

quire_err json_scan_string(json_scan *s, strbuf *scratch, str *out) {
    return json_scan_peek(s) == '"' ? json_lex_text(s->text, &s->at, scratch, out) : QUIRE_BAD_FILE;
}

quire_err json_scan_key(json_scan *s, strbuf *scratch, str *out) {
    TRY(json_scan_string(s, scratch, out));
    return json_scan_take(s, ':');
}

quire_err json_scan_number(json_scan *s, json_scan_value *out) {
    const char *what;
    json_number number;
    char c = json_scan_peek(s);
    if (c != '-' && (c < '0' || c > '9')) {
        return QUIRE_BAD_FILE;
    }
    size_t start = s->at;
    TRY(json_lex_number(s->text, &s->at, &number, &what));
    *out =
        (json_scan_value){{s->text.p + start, s->at - start}, number.is_integer, number.fits, number.value};
    return QUIRE_OK;
}

quire_err json_scan_int(json_scan *s, int64_t *out) {
    json_scan_value number;
    TRY(json_scan_number(s, &number));
    *out = number.value;
    return number.fits ? QUIRE_OK : QUIRE_BAD_FILE;
}

quire_err json_scan_word(json_scan *s, str *out) {
    const char *what;
    if (json_scan_peek(s) == '\0') {
        return QUIRE_BAD_FILE;
    }
    size_t start = s->at;
    TRY(json_lex_word(s->text, &s->at, &what));
    *out = (str){s->text.p + start, s->at - start};
    return QUIRE_OK;
}

quire_err json_scan_span(json_scan *s, str *span) {
    json_fault fault;
    (void)json_scan_peek(s);
    size_t start = s->at;
    const json_limits *limits = s->of_model ? &json_limits_model : &json_limits_config;
    quire_err e = json_check_value(s->text, &s->at, limits, NULL, &fault);
    *span = (str){s->text.p + start, s->at - start};
    return e == QUIRE_TOO_LARGE ? QUIRE_BAD_FILE : e;
}

quire_err json_scan_next(json_scan *s, strbuf *scratch, str *name, str *span, bool *more) {
    TRY(json_scan_more(s, '}', more));
    if (!*more) {
        return QUIRE_OK;
    }
    TRY(json_scan_key(s, scratch, name));
    return json_scan_span(s, span);
}

quire_err json_scan_members(json_scan *s, quire_err (*read)(void *user, json_scan *s, str name), void *user) {
    strbuf scratch = {.max = 4096};
    bool more = true;
    quire_err e = json_scan_open(s, '{');
    while (e == QUIRE_OK) {
        str name;
        TRY_DONE(e, json_scan_more(s, '}', &more));
        if (!more) {
            break;
        }
        TRY_DONE(e, json_scan_key(s, &scratch, &name));
        TRY_DONE(e, read(user, s, name));
    }
done:
    strbuf_deinit(&scratch);
    return e;
}

quire_err json_scan_member(str text, const char *name, str *span) {
    json_scan s = {.text = text};
    strbuf scratch = {0};
    bool more = true, found = false;
    quire_err e = json_scan_open(&s, '{');
    while (e == QUIRE_OK && more && !found) {
        str key;
        e = json_scan_next(&s, &scratch, &key, span, &more);
        found = e == QUIRE_OK && more && str_is(key, name);
    }
    strbuf_deinit(&scratch);
    return e != QUIRE_OK ? e : found ? QUIRE_OK : QUIRE_NOT_FOUND;
}
