#include "jinja/jinja.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/turn.h"
#include "base/utf8.h"
#include "jinja/jinja_big.h"
#include "jinja/jinja_run.h"

quire_err jinja_open(str source, jinja_options options, jinja_program **out, quire_error *err) {
    quire_error unread;
    *out = NULL;
    err = err != NULL ? err : &unread;
    if (source.n > JINJA_MAX_SOURCE) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the template has %zu bytes; at most %zu are read", source.n,
                       JINJA_MAX_SOURCE);
    }
    jinja_program *p = mem_new(1, sizeof *p);
    TRY(mem_check_for(p, "a template", err));
    p->arena.max = JINJA_MAX_BYTES;
    p->own = options.own;
    p->set = options.set;
    jtoken *tokens = NULL;
    quire_err e = jinja_lex(source, options, &p->arena, &tokens, err);
    TRY_DONE(e, jinja_parse(tokens, p, err));
done:
    mem_free(tokens);
    if (e != QUIRE_OK) {
        jinja_close(p);
        return e;
    }
    *out = p;
    return QUIRE_OK;
}

bool jinja_uses_others(const jinja_program *p) {
    assert(p != NULL);
    return p->uses_others;
}

void jinja_close(jinja_program *p) {
    if (p != NULL) {
        jarena_deinit(&p->arena);
        mem_free(p);
    }
}

quire_err jinja_define(jinja_program *p, const char *name, str text) {
    assert(p != NULL);
    str own_name, own_text;
    if (p->n_defined == JINJA_MAX_DEFINED ||
        !jarena_copy_as(&p->arena, str_of(name), JINJA_TEMPLATE, &own_name) ||
        !jarena_copy_as(&p->arena, text, JINJA_TEMPLATE, &own_text)) {
        return QUIRE_NO_MEMORY;
    }
    p->defined[p->n_defined].name = own_name;
    p->defined[p->n_defined++].text = own_text;
    return QUIRE_OK;
}

/* ---- steps and errors ---- */

quire_err jrun_fail(jrun *r, quire_err code, const char *format, ...) {
    assert(r != NULL);
    char message[sizeof r->err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return jinja_error(r->err, code, r->at->line, r->at->column, "%s", message);
}

quire_err jrun_over(jrun *r, quire_err e) {
    if (e == QUIRE_OK) {
        return e;
    }
    if (e == QUIRE_TOO_LARGE && r->steps.over) {
        return jrun_fail(r, e, "the template takes more than %d steps", JINJA_MAX_STEPS);
    }
    return jrun_fail(r, e, e == QUIRE_CANCELLED ? "cancelled" : "the template takes too long");
}

quire_err jrun_no_memory(jrun *r) {
    assert(r != NULL);
    switch (r->arena.refused) {
    case JARENA_CANCELLED:
        return jrun_over(r, QUIRE_CANCELLED);
    case JARENA_LATE:
        return jrun_over(r, QUIRE_TOO_LARGE);
    case JARENA_FULL:
        return jrun_fail(r, QUIRE_TOO_LARGE, "the template makes more than %zu bytes of values",
                         r->arena.max);
    case JARENA_OUTPUT:
        return jrun_fail(r, QUIRE_TOO_LARGE, "the template writes more than %zu bytes", JINJA_MAX_OUTPUT);
    default:
        return jrun_fail(r, QUIRE_NO_MEMORY, "out of memory");
    }
}

quire_err jrun_memory(jrun *r, quire_err e) {
    return e == QUIRE_OK ? e : jrun_no_memory(r);
}

quire_err jrun_check_memory(jrun *r, const void *p) {
    return p != NULL ? QUIRE_OK : jrun_no_memory(r);
}

quire_err jrun_too_big(jrun *r) {
    return jrun_fail(r, QUIRE_TOO_LARGE, "an integer of more than %d bits, or too big for its use",
                     32 * JBIG_MAX_LIMBS);
}

quire_err jrun_step(jrun *r, size_t n) {
    return jrun_over(r, jsteps_take(&r->steps, n));
}

quire_err jrun_enter(jrun *r, const jnode *node) {
    assert(r != NULL);
    r->at = node;
    TRY(jrun_step(r, 1));
    return ++r->depth > JINJA_MAX_DEPTH
               ? jrun_fail(r, QUIRE_BAD_REQUEST, "the template recurses more than %d deep", JINJA_MAX_DEPTH)
               : QUIRE_OK;
}

quire_err jrun_undefined(jrun *r, jvalue v) {
    str m = v.u.undefined->message;
    return jrun_fail(r, QUIRE_BAD_REQUEST, "%.*s", (int)(m.n > 300 ? 300 : m.n), m.p);
}

/* ---- making values ---- */

quire_err jrun_values(jrun *r, size_t n, jvalue **out) {
    if (n > JINJA_MAX_BYTES / sizeof **out) {
        return jrun_fail(r, QUIRE_TOO_LARGE, "a list of %zu items", n);
    }
    *out = jarena_new(&r->arena, (n > 0 ? n : 1) * sizeof **out);
    TRY(jrun_check_memory(r, *out));
    return jrun_step(r, n);
}

static quire_err check_depth(jrun *r, jvalue v) {
    return jvalue_depth(v) > JVALUE_MAX_DEPTH
               ? jrun_fail(r, QUIRE_TOO_LARGE, "values nested more than %d deep", JVALUE_MAX_DEPTH)
               : QUIRE_OK;
}

quire_err jrun_list(jrun *r, jkind kind, jvalue *items, size_t n, jvalue *out) {
    *out = jvalue_list(&r->arena, kind, items, n);
    return jis(*out, J_MISSING) ? jrun_no_memory(r) : check_depth(r, *out);
}

quire_err jrun_dict(jrun *r, jdict **out) {
    *out = jdict_new(&r->arena);
    return jrun_check_memory(r, *out);
}

quire_err jrun_append(jrun *r, str left, str right, str *out) {
    return jarena_append(&r->arena, left, right, out) ? QUIRE_OK : jrun_no_memory(r);
}

quire_err jrun_equal(jrun *r, jvalue a, jvalue b, bool *out) {
    return jrun_over(r, jvalue_equal(&r->steps, a, b, out));
}

quire_err jrun_matches(jrun *r, jvalue a, jvalue b, bool *out) {
    return jrun_over(r, jvalue_matches(&r->steps, a, b, out));
}

/* Turns the result of a dictionary function into the render's error. */
static quire_err dict_error(jrun *r, jvalue key, quire_err e) {
    switch (e) {
    case QUIRE_OK:
        return e;
    case QUIRE_BAD_REQUEST:
        return jrun_fail(r, e, "unhashable type: '%s'", jvalue_type(key));
    case QUIRE_NO_MEMORY:
        return jrun_no_memory(r);
    default:
        return jrun_over(r, e);
    }
}

quire_err jrun_get(jrun *r, const jdict *d, jvalue key, const jvalue **out) {
    return dict_error(r, key, jdict_get(&r->steps, d, key, out));
}

quire_err jrun_set(jrun *r, jdict *d, jvalue key, jvalue value) {
    TRY(dict_error(r, key, jdict_set(&r->arena, &r->steps, d, key, value)));
    return check_depth(r, (jvalue){.kind = J_DICT, .u.dict = d});
}

quire_err jrun_text(jrun *r, str s, jvalue *out) {
    str copy;
    if (!jarena_copy_as(&r->arena, s, JINJA_TEMPLATE, &copy)) {
        return jrun_no_memory(r);
    }
    *out = jstring(copy);
    return jrun_step(r, s.n / 64);
}

jout jrun_out(jrun *r) {
    return (jout){.arena = &r->arena};
}

static quire_err jrun_text_of(jrun *r, const jout *o, jvalue *out) {
    str text;
    if (!jout_take(o, &text)) {
        return jrun_no_memory(r);
    }
    *out = jstring(text);
    return jrun_step(r, text.n / 64);
}

quire_err jrun_add_as(jrun *r, str s, uint8_t origin) {
    return jrun_memory(r, jout_add_as(&r->scratch, s, origin));
}

quire_err jrun_add(jrun *r, str s) {
    return jrun_memory(r, jout_add(&r->scratch, s));
}

quire_err jrun_scratch(jrun *r, jvalue *out) {
    return jrun_text_of(r, &r->scratch, out);
}

quire_err jrun_take_text(jrun *r, quire_err e, jout *text, jvalue *out) {
    TRY_DONE(e, jrun_text_of(r, text, out));
done:
    jout_deinit(text);
    return e;
}

quire_err jrun_make_undefined(jrun *r, jvalue *out, const char *format, ...) {
    char message[200];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    jvalue text;
    jundefined *u = jarena_new(&r->arena, sizeof *u);
    TRY(jrun_check_memory(r, u));
    TRY(jrun_text(r, (str){message, utf8_valid_run(str_of(message))}, &text));
    u->message = text.u.s;
    *out = (jvalue){.kind = J_UNDEFINED, .u.undefined = u};
    return QUIRE_OK;
}

quire_err jrun_write(jrun *r, jvalue v, jout *out) {
    assert(out != NULL);
    size_t before = out->text.n;
    quire_err e = jvalue_write(v, out);
    switch (e) {
    case QUIRE_OK:
        return jrun_step(r, (out->text.n - before) / 64);
    case QUIRE_UNSUPPORTED:
        return jrun_fail(r, e, "the text of a %s is not supported", jvalue_type(v));
    default:
        return jrun_no_memory(r);
    }
}

quire_err jrun_to_text(jrun *r, jvalue v, str *out) {
    if (jis(v, J_STRING)) {
        *out = v.u.s;
        return v.safe ? jrun_fail(r, QUIRE_UNSUPPORTED, "this use of an escaped string is not supported")
                      : QUIRE_OK;
    }
    jvalue text;
    jout_clear(&r->scratch);
    TRY(jrun_write(r, v, &r->scratch));
    TRY(jrun_scratch(r, &text));
    *out = text.u.s;
    return QUIRE_OK;
}

quire_err jrun_want_text(jrun *r, jvalue v, const char *what, str *out) {
    if (jis(v, J_UNDEFINED)) {
        return jrun_undefined(r, v);
    }
    if (!jis(v, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "%s must be a string, not %s", what, jvalue_type(v));
    }
    return jrun_to_text(r, v, out);
}

quire_err jrun_want_integer(jrun *r, jvalue v, const char *what, int64_t *out) {
    if (jis(v, J_UNDEFINED)) {
        return jrun_undefined(r, v);
    }
    if (!jis_integer(v)) {
        return jrun_fail(r, jis(v, J_HUGE) ? QUIRE_UNSUPPORTED : QUIRE_BAD_REQUEST,
                         "%s must be an integer, not %s", what, jvalue_type(v));
    }
    *out = jas_integer(v);
    return QUIRE_OK;
}

/* Makes a list of the characters of a string. */
static quire_err characters(jrun *r, str s, const jvalue **items, size_t *n) {
    jvalue *chars;
    *n = jstr_length(s);
    TRY(jrun_values(r, *n, &chars));
    for (size_t i = 0, at = 0; i < *n; i++) {
        size_t size = jchar_size(s.p + at, s.n - at);
        chars[i] = jstring((str){s.p + at, size});
        at += size;
    }
    *items = chars;
    return QUIRE_OK;
}

static quire_err range_items(jrun *r, const jrange *range, const jvalue **items, size_t *n) {
    jvalue *numbers;
    *n = (size_t)range->n;
    TRY(jrun_values(r, *n, &numbers));
    for (size_t i = 0; i < *n; i++) {
        numbers[i] = jint(range->start + (int64_t)i * range->step);
    }
    *items = numbers;
    return QUIRE_OK;
}

quire_err jrun_items(jrun *r, jvalue v, const jvalue **items, size_t *n) {
    *items = NULL;
    *n = 0;
    switch (v.kind) {
    case J_UNDEFINED:
        return QUIRE_OK;
    case J_STRING:
        return characters(r, v.u.s, items, n);
    case J_RANGE:
        return range_items(r, v.u.range, items, n);
    case J_LIST:
    case J_TUPLE:
    case J_VIEW:
        *items = v.u.list->items;
        *n = v.u.list->n;
        return jrun_step(r, *n);
    case J_ITERATOR:
        *items = v.u.list->items + v.u.list->at;
        *n = v.u.list->n - v.u.list->at;
        v.u.list->at = v.u.list->n;
        return jrun_step(r, *n);
    case J_DICT: {
        jvalue *keys;
        TRY(jrun_values(r, v.u.dict->n, &keys));
        for (size_t i = 0; i < v.u.dict->n; i++) {
            keys[i] = v.u.dict->entries[i].key;
        }
        *items = keys;
        *n = v.u.dict->n;
        return QUIRE_OK;
    }
    case J_LOOP:
        return jrun_fail(r, QUIRE_UNSUPPORTED, "iterating over the loop variable is not supported");
    default:
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' object is not iterable", jvalue_type(v));
    }
}

quire_err jrun_escape(jrun *r, jvalue v, jvalue *out) {
    static const struct {
        char c;
        const char *form;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    str s;
    if (jis(v, J_STRING) && v.safe) {
        *out = v;
        return QUIRE_OK;
    }
    TRY(jrun_to_text(r, v, &s));
    jout_clear(&r->scratch);
    for (size_t i = 0; i < s.n; i++) {
        size_t k = 0;
        while (k < sizeof escapes / sizeof *escapes && escapes[k].c != s.p[i]) {
            k++;
        }
        TRY(k < sizeof escapes / sizeof *escapes
                ? jrun_add_as(r, str_of(escapes[k].form), jrun_origin(r, s, i))
                : jrun_add(r, (str){s.p + i, 1}));
    }
    TRY(jrun_scratch(r, out));
    out->safe = true;
    return QUIRE_OK;
}

/* ---- rendering ---- */

/* Adds the program's defined texts that the variables do not name. */
static quire_err add_defined(jrun *r, const jinja_program *p, jdict *variables) {
    for (size_t i = 0; i < p->n_defined; i++) {
        const jvalue *found;
        TRY(jrun_get(r, variables, jstring(p->defined[i].name), &found));
        if (found == NULL) {
            TRY(jrun_set(r, variables, jstring(p->defined[i].name), jstring(p->defined[i].text)));
        }
    }
    return QUIRE_OK;
}

void jinja_spans_deinit(jinja_spans *s) {
    mem_free(s->spans);
    *s = (jinja_spans){0};
}

/* Moves the rendered text and its spans to the caller. */
static quire_err give(jout *text, strbuf *out, jinja_spans *input, quire_error *err) {
    quire_err e = text->text.n > 0 ? strbuf_add(out, text->text.p, text->text.n) : QUIRE_OK;
    if (e == QUIRE_OK && input != NULL) {
        *input = text->input;
        text->input = (jinja_spans){0};
    }
    return err_set(err, e, -1, "no room for the rendered template");
}

static quire_err jinja_jinja_render(const jinja_program *p, str variables_json, const struct tm *now,
                                    int64_t *steps_left, strbuf *out, jinja_spans *input, quire_error *err) {
    quire_error unwanted;
    jrun r = {.arena = {.max = JINJA_MAX_BYTES},
              .program = p,
              .now = now,
              .err = err != NULL ? err : &unwanted,
              .at = p->root};
    r.steps.taken = JINJA_MAX_STEPS - *steps_left;
    r.scratch = jrun_out(&r);
    jout text = jrun_out(&r);
    r.out = &text;
    jvalue variables;
    jscope *scope;
    quire_err e = jjson_read(&r, variables_json, &variables);
    if (e == QUIRE_OK && !jis(variables, J_DICT)) {
        e = jrun_fail(&r, QUIRE_INVALID, "the variables must be a JSON object");
    }
    TRY_DONE(e, add_defined(&r, p, variables.u.dict));
    TRY_DONE(e, jscope_new(&r, NULL, &scope));
    scope->context = variables.u.dict;
    e = jexec_template(&r, p, scope);
done:
    jout_deinit(&r.scratch);
    jarena_deinit(&r.arena); /* freed before the output is copied, to save memory */
    if (e == QUIRE_OK) {
        e = give(&text, out, input, r.err);
    }
    jout_deinit(&text);
    *steps_left = JINJA_MAX_STEPS - r.steps.taken;
    return e;
}

quire_err jinja_render(const jinja_program *p, str variables_json, const struct tm *now, strbuf *out,
                       jinja_spans *input, quire_error *err) {
    locale_t before = c_locale_enter(); /* numbers and dates as in Python with no locale set */
    int64_t steps = JINJA_MAX_STEPS;
    quire_err e = jinja_jinja_render(p, variables_json, now, &steps, out, input, err);
    c_locale_leave(before);
    return e;
}

quire_err jinja_render_within(const jinja_program *p, str variables_json, int64_t *steps_left, strbuf *out,
                              quire_error *err) {
    assert(*steps_left >= 0 && *steps_left <= JINJA_MAX_STEPS);
    locale_t before = c_locale_enter();
    quire_err e = jinja_jinja_render(p, variables_json, NULL, steps_left, out, NULL, err);
    c_locale_leave(before);
    return e;
}
