/* Numbers of a schema as they are written, and values that are equal. */
#include "grammar/value_shape.h"
#include "json/json_out.h"

static bool read_decimal(const schema *s, const json_value *v, char room[DECIMAL_ROOM], decimal *out) {
    str written = json_is(v, JSON_KIND_WIDE) ? json_wide_str(v) : json_digits_of(s->digits, v);
    if (written.n > 0) {
        return decimal_read(written, room, out);
    }
    strbuf text = {0};
    json_out o = {.to = &text};
    if (json_is(v, JSON_KIND_INT)) {
        json_int(&o, json_int64(v));
    } else {
        json_exact(&o, json_double(v));
    }
    bool ok = o.err == QUIRE_OK && decimal_read((str){text.p, text.n}, room, out);
    strbuf_deinit(&text);
    return ok;
}

bool schema_decimal(schema *s, const json_value *v, decimal *out) {
    char room[DECIMAL_ROOM];
    if (!read_decimal(s, v, room, out)) {
        return false;
    }
    size_t n = (size_t)out->n_int + out->n_frac;
    char *kept = schema_keep(s, n, 1);
    if (kept == NULL) {
        *out = (decimal){.n_int = 1, .digits = "0"}; /* the build has failed */
        return true;
    }
    memcpy(kept, out->digits, n);
    out->digits = kept;
    return true;
}

static bool equal_numbers(const schema *s, const json_value *x, const json_value *y) {
    char rooms[2][DECIMAL_ROOM];
    decimal a, b;
    if (json_is(x, JSON_KIND_INT) && json_is(y, JSON_KIND_INT)) {
        return json_int64(x) == json_int64(y);
    }
    if (json_is(x, JSON_KIND_WIDE) && json_is(y, JSON_KIND_WIDE)) {
        return str_eq(json_wide_str(x), json_wide_str(y));
    }
    return read_decimal(s, x, rooms[0], &a) && read_decimal(s, y, rooms[1], &b) &&
           decimal_compare(&a, &b) == 0;
}

/* Calls itself as deep as JSON may nest. */
bool schema_equal(const schema *s, const json_value *x, const json_value *y) {
    bool same = json_length(x) == json_length(y);
    if (json_numeric(x) && json_numeric(y)) {
        return equal_numbers(s, x, y);
    }
    if (json_kind_of(x) != json_kind_of(y)) {
        return false;
    }
    if (json_is(x, JSON_KIND_ARRAY)) {
        for (size_t i = 0; i < json_length(x) && same; i++) {
            same = build_step(s->b, 1) && schema_equal(s, json_at(x, i), json_at(y, i));
        }
        return same;
    }
    if (json_is(x, JSON_KIND_OBJECT)) {
        for (json_member m = {0}; same && json_next(x, &m);) {
            same =
                build_step(s->b, 1) && json_has(y, m.name) && schema_equal(s, m.value, json_get(y, m.name));
        }
        return same;
    }
    return json_same(x, y);
}
