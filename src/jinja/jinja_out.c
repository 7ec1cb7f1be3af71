/* Output: a growing text with the runs of bytes that came from the variables. Its memory
 * counts in the arena's budget. */
#include "jinja/jinja_value.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/turn.h"

enum { FIRST_BYTES = 256, FIRST_SPANS = 8 };

void jout_deinit(jout *o) {
    assert(o != NULL);
    jarena_release(o->arena, o->text.cap + o->input.cap * sizeof *o->input.spans);
    strbuf_deinit(&o->text);
    jinja_spans_deinit(&o->input);
}

void jout_clear(jout *o) {
    assert(o != NULL);
    strbuf_clear(&o->text);
    o->input.n = 0;
    o->origin = JINJA_TEMPLATE;
}

/* The next capacity for an array with elements of `size` bytes, to hold `needed`. Counts
 * it in the budget; the caller releases the old capacity. */
static quire_err jinja_out_more(jout *o, size_t cap, size_t first, size_t needed, size_t size,
                                size_t *wanted) {
    *wanted = cap == 0 ? first : 2 * cap;
    *wanted = needed > *wanted ? needed : *wanted;
    return jarena_charge(o->arena, *wanted * size) ? QUIRE_OK : QUIRE_TOO_LARGE;
}

static quire_err beyond_output(jout *o) {
    o->arena->refused = JARENA_OUTPUT;
    return QUIRE_TOO_LARGE;
}

static quire_err jinja_out_reserve(jout *o, size_t n) {
    size_t cap = o->text.cap, wanted;
    if (n < cap - o->text.n) { /* with the terminating 0 */
        return QUIRE_OK;
    }
    TRY(jinja_out_more(o, cap, FIRST_BYTES, o->text.n + n + 1, 1, &wanted));
    quire_err e = strbuf_reserve(&o->text, wanted - 1 - o->text.n);
    jarena_release(o->arena, e == QUIRE_OK ? cap + wanted - o->text.cap : wanted);
    return e;
}

static quire_err add_span(jout *o, size_t start, size_t end) {
    jinja_spans *in = &o->input;
    size_t cap = in->cap, wanted;
    if (in->n > 0 && in->spans[in->n - 1].end == start) {
        in->spans[in->n - 1].end = end;
        return QUIRE_OK;
    }
    if (in->n == cap) {
        if (cap >= JINJA_MAX_OUTPUT / sizeof *in->spans) {
            TRY(beyond_output(o));
        }
        TRY(jinja_out_more(o, cap, FIRST_SPANS, in->n + 1, sizeof *in->spans, &wanted));
        quire_err e = mem_grow(&in->spans, &in->cap, wanted, sizeof *in->spans);
        jarena_release(o->arena, (e == QUIRE_OK ? cap + wanted - in->cap : wanted) * sizeof *in->spans);
        TRY(e);
    }
    in->spans[in->n++] = (jinja_span){start, end};
    return QUIRE_OK;
}

/* Yields to other jobs, since a long text is added in many small parts. */
static quire_err poll(jout *o) {
    quire_err e = turn_poll(1);
    if (e != QUIRE_OK) {
        o->arena->refused = e == QUIRE_CANCELLED ? JARENA_CANCELLED : JARENA_LATE;
    }
    return e;
}

static quire_err jinja_out_append(jout *o, str s) {
    TRY(poll(o));
    TRY(s.n > JINJA_MAX_OUTPUT - o->text.n ? beyond_output(o) : jinja_out_reserve(o, s.n));
    return strbuf_add(&o->text, s.p, s.n);
}

quire_err jout_add_as(jout *o, str s, uint8_t origin) {
    if (s.n == 0) {
        return QUIRE_OK;
    }
    TRY(jinja_out_append(o, s));
    return origin == JINJA_INPUT ? add_span(o, o->text.n - s.n, o->text.n) : QUIRE_OK;
}

quire_err jout_add(jout *o, str s) {
    assert(o != NULL);
    jorigins origins = jarena_origins(o->arena, s);
    if (origins.of_bytes == NULL) {
        return jout_add_as(o, s, origins.all);
    }
    size_t at = o->text.n;
    TRY(jinja_out_append(o, s));
    for (size_t i = 0; i < s.n;) {
        const uint8_t *from = memchr(origins.of_bytes + i, JINJA_INPUT, s.n - i);
        if (from == NULL) {
            break;
        }
        size_t start = (size_t)(from - origins.of_bytes);
        const uint8_t *to = memchr(from, JINJA_TEMPLATE, s.n - start);
        i = to == NULL ? s.n : (size_t)(to - origins.of_bytes);
        TRY(add_span(o, at + start, at + i));
    }
    return QUIRE_OK;
}

quire_err jout_str(jout *o, const char *s) {
    assert(o != NULL);
    return jout_add_as(o, str_of(s), o->origin);
}

quire_err jout_char(jout *o, char c) {
    return jout_add_as(o, (str){&c, 1}, o->origin);
}

quire_err jout_f(jout *o, const char *format, ...) {
    char text[512]; /* enough for a number of any value */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return n < 0 || (size_t)n >= sizeof text ? QUIRE_TOO_LARGE
                                             : jout_add_as(o, (str){text, (size_t)n}, o->origin);
}

bool jout_take(const jout *o, str *out) {
    const jinja_spans *in = &o->input;
    bool whole = in->n == 1 && in->spans[0].start == 0 && in->spans[0].end == o->text.n;
    uint8_t *origins;
    char *copy = jarena_bytes(o->arena, o->text.n,
                              whole       ? JINJA_INPUT
                              : in->n > 0 ? JINJA_MIXED
                                          : JINJA_TEMPLATE,
                              &origins);
    if (copy == NULL) {
        return false;
    }
    mem_copy(copy, o->text.p, o->text.n);
    for (size_t i = 0; i < in->n && !whole; i++) {
        memset(origins + in->spans[i].start, JINJA_INPUT, in->spans[i].end - in->spans[i].start);
    }
    *out = (str){copy, o->text.n};
    return true;
}
