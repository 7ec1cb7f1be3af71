#include "json/json_digits.h"

#include <string.h>

#include "base/mem.h"
#include "json/json_pair.h"

typedef struct entry {
    const json_value *value; /* NULL: none */
    str text;
} entry;

struct json_digits {
    entry *slots;
    size_t n_slots; /* a power of two */
};

static entry *json_digits_slot_of(const json_digits *d, const json_value *v) {
    size_t at = (size_t)(((uint64_t)(uintptr_t)v * 0x9E3779B97F4A7C15u) >> 32) & (d->n_slots - 1);
    while (d->slots[at].value != NULL && d->slots[at].value != v) {
        at = (at + 1) & (d->n_slots - 1);
    }
    return &d->slots[at];
}

/* The digits of a number that its nearest double does not represent. Of equal names in an
 * object the last one counts: it replaces the entry of an earlier one. */
static quire_err json_digits_take_number(void *user, str digits, const json_number *number, json_place place,
                                         const json_value *v) {
    (void)place;
    if (!json_is(v, JSON_KIND_REAL)) {
        return QUIRE_OK;
    }
    entry *e = json_digits_slot_of(user, v);
    if (number->is_long) {
        *e = (entry){v, digits};
    } else {
        e->text = (str){"", 0};
    }
    return QUIRE_OK;
}

quire_err json_digits_find(str text, const json_value *root, size_t n_long, json_digits **out) {
    size_t n_slots = 4;
    while (n_slots < n_long + n_long / 2) {
        n_slots *= 2;
    }
    json_digits *d = *out = mem_new(1, sizeof *d);
    if (d == NULL || (d->slots = mem_new(n_slots, sizeof *d->slots)) == NULL) {
        json_digits_drop(d);
        *out = NULL;
        return QUIRE_NO_MEMORY;
    }
    d->n_slots = n_slots;
    quire_err e = json_pair(text, root, json_digits_take_number, d);
    if (e != QUIRE_OK) {
        json_digits_drop(d);
        *out = NULL;
    }
    return e;
}

void json_digits_drop(json_digits *d) {
    if (d != NULL) {
        mem_free(d->slots);
        mem_free(d);
    }
}

str json_digits_of(const json_digits *d, const json_value *v) {
    return d != NULL && v != NULL ? json_digits_slot_of(d, v)->text : (str){"", 0};
}
