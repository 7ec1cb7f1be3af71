#include "json/json_wide.h"

#include <jansson.h>

#include "base/c_locale.h"
#include "json/json_pair.h"

#define WIDE_BYTE '\xff'

bool wide_is(const json_value *v) {
    return json_is_string(v) && json_string_value(v)[0] == WIDE_BYTE;
}

str wide_digits(const json_value *v) {
    return (str){json_string_value(v) + 1, json_string_length(v) - 1};
}

/* NULL: no memory. */
static json_t *wide_new(str digits) {
    strbuf text = {0};
    json_t *v = NULL;
    if (strbuf_add_char(&text, WIDE_BYTE) == QUIRE_OK && strbuf_add(&text, digits.p, digits.n) == QUIRE_OK) {
        v = json_stringn_nocheck(text.p, text.n);
    }
    strbuf_deinit(&text);
    return v;
}

/* A number that is none of them, as jansson reads it. */
static json_t *narrow_new(str digits, const json_number *number) {
    strbuf text = {0};
    json_t *v = number->fits ? json_integer(number->value) : NULL;
    if (!number->fits && strbuf_add(&text, digits.p, digits.n) == QUIRE_OK) {
        v = json_real(c_locale_strtod(text.p, NULL));
    }
    strbuf_deinit(&text);
    return v;
}

/* Of an object's equal names the last one counts, and it may be no number. */
static quire_err json_wide_take_number(void *user, str digits, const json_number *number, json_place place,
                                       const json_value *v) {
    json_value **root = user;
    bool wide = number->is_integer && !number->fits;
    if ((!wide && !wide_is(v)) || !json_numeric(v)) {
        return QUIRE_OK;
    }
    json_t *kept = wide ? wide_new(digits) : narrow_new(digits, number),
           *parent = (json_t *)(uintptr_t)place.parent;
    if (kept == NULL) {
        return QUIRE_NO_MEMORY;
    }
    if (parent == NULL) {
        json_drop(*root);
        *root = kept;
        return QUIRE_OK;
    }
    int failed = place.name != NULL ? json_object_set_new_nocheck(parent, place.name, kept)
                                    : json_array_set_new(parent, place.index, kept);
    return failed == 0 ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err wide_place(str text, json_value **root) {
    return json_pair(text, *root, json_wide_take_number, root);
}
