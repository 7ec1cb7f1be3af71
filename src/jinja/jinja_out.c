#include "jinja/jinja_out.h"

#include <stdio.h>

#include "base/mem.h"

void jout_deinit(jout *o) {
    strbuf_deinit(&o->text);
    strbuf_deinit(&o->origins);
}

void jout_clear(jout *o) {
    strbuf_clear(&o->text);
    strbuf_clear(&o->origins);
    o->origin = JINJA_TEMPLATE;
}

/* Gives the origins room for n more than the text has, all of the template's up to there. */
static quire_err reach(jout *o, size_t n) {
    TRY(strbuf_reserve(&o->origins, o->text.n - o->origins.n + n));
    memset(o->origins.p + o->origins.n, JINJA_TEMPLATE, o->text.n - o->origins.n);
    o->origins.n = o->text.n;
    return QUIRE_OK;
}

quire_err jout_add(jout *o, str s) {
    const uint8_t *origins = jarena_origins(o->arena, s);
    if (origins != NULL && memchr(origins, JINJA_INPUT, s.n) != NULL) {
        TRY(reach(o, s.n));
        TRY(strbuf_add(&o->text, s.p, s.n));
        return strbuf_add(&o->origins, origins, s.n);
    }
    return strbuf_add(&o->text, s.p, s.n);
}

quire_err jout_add_as(jout *o, str s, uint8_t origin) {
    if (origin == JINJA_TEMPLATE || s.n == 0) {
        return strbuf_add(&o->text, s.p, s.n);
    }
    TRY(reach(o, s.n));
    TRY(strbuf_add(&o->text, s.p, s.n));
    memset(o->origins.p + o->origins.n, origin, s.n); /* reach made room */
    o->origins.n += s.n;
    return QUIRE_OK;
}

quire_err jout_str(jout *o, const char *s) {
    return jout_add_as(o, str_of(s), o->origin);
}

quire_err jout_char(jout *o, char c) {
    return jout_add_as(o, (str){&c, 1}, o->origin);
}

quire_err jout_f(jout *o, const char *format, ...) {
    char text[512]; /* of numbers, whatever they are */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return n < 0 || (size_t)n >= sizeof text ? QUIRE_TOO_LARGE : jout_add_as(o, (str){text, (size_t)n}, o->origin);
}

bool jout_take(const jout *o, jarena *a, str *out) {
    char *copy = jarena_bytes(a, o->text.n);
    if (copy == NULL) {
        return false;
    }
    *out = (str){copy, o->text.n};
    mem_copy(copy, o->text.p, o->text.n);
    if (o->origins.n > 0) {
        mem_copy(jarena_origins(a, *out), o->origins.p, o->origins.n);
    }
    return true;
}
