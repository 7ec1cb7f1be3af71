/* Methods that replace characters: maketrans and translate. */
#include "jinja/jinja_methods.h"

static quire_err set_char(jrun *r, jdict *d, int32_t c, jvalue value) {
    return jrun_set(r, d, jint(c), value);
}

/* Of a dictionary: its keys of one character become their code points. */
static quire_err table_of(jrun *r, jvalue given, jdict *d) {
    TRY(jis(given, J_DICT) ? QUIRE_OK : jrun_fail(r, QUIRE_BAD_REQUEST, "if you give only one argument to maketrans it must be a dict"));
    for (size_t i = 0; i < given.u.dict->n; i++) {
        const jentry *e = &given.u.dict->entries[i];
        size_t size = 0;
        int32_t c = jis(e->key, J_STRING) && e->key.u.s.n > 0 ? jchar_at(e->key.u.s.p, e->key.u.s.n, &size) : -1;
        if (jis(e->key, J_STRING) && size != e->key.u.s.n) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "string keys in translate table must be of length 1");
        }
        TRY(jis(e->key, J_STRING) ? set_char(r, d, c, e->value) : jrun_set(r, d, e->key, e->value));
    }
    return QUIRE_OK;
}

JFUNCTION(str_maketrans) {
    jdict *d;
    str x, y, gone;
    TRY(jrun_dict(r, &d));
    *out = (jvalue){.kind = J_DICT, .u.dict = d};
    if (jis(args[2], J_MISSING)) {
        return table_of(r, args[1], d);
    }
    TRY(jrun_want_text(r, args[1], "the first argument", &x));
    TRY(jrun_want_text(r, args[2], "the second argument", &y));
    TRY(jarg_text(r, args[3], "the third argument", &gone));
    if (jstr_length(x) != jstr_length(y)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "the first two maketrans arguments must have equal length");
    }
    for (size_t i = 0, k = 0, n_x, n_y; i < x.n; i += n_x, k += n_y) {
        TRY(set_char(r, d, jchar_at(x.p + i, x.n - i, &n_x), jint(jchar_at(y.p + k, y.n - k, &n_y))));
    }
    for (size_t i = 0, size; i < gone.n; i += size) {
        TRY(set_char(r, d, jchar_at(gone.p + i, gone.n - i, &size), jnone()));
    }
    return QUIRE_OK;
}

/* Adds what stands for a character: a text, a code point, or none. What a client's character becomes counts as the client's. */
static quire_err add_translated(jrun *r, jvalue to, uint8_t origin) {
    char bytes[4];
    if (jis(to, J_NONE)) {
        return QUIRE_OK;
    }
    if (jis(to, J_STRING)) {
        return origin == JINJA_INPUT ? jrun_add_as(r, to.u.s, origin) : jrun_add(r, to.u.s);
    }
    if (!jis_integer(to) || jas_integer(to) < 0 || jas_integer(to) > 0x10ffff) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "character mapping must return integer, None or str, in range(0x110000)");
    }
    return jrun_add_as(r, (str){bytes, jchar_put((int32_t)jas_integer(to), bytes)}, to.is_input ? JINJA_INPUT : origin);
}

JFUNCTION(str_translate) {
    str s;
    TRY(jarg_self(r, args, &s));
    TRY(jis(args[1], J_DICT) ? QUIRE_OK : jrun_fail(r, QUIRE_BAD_REQUEST, "translate takes a dictionary, not %s", jvalue_type(args[1])));
    TRY(jrun_step(r, s.n));
    jout_clear(&r->scratch);
    for (size_t i = 0, size; i < s.n; i += size) {
        const jvalue *to;
        TRY(jrun_get(r, args[1].u.dict, jint(jchar_at(s.p + i, s.n - i, &size)), &to));
        TRY(to == NULL ? jrun_add(r, (str){s.p + i, size}) : add_translated(r, *to, jrun_origin(r, s, i)));
    }
    return jrun_scratch(r, out);
}
