#include "json/json_digits.h"

#include <string.h>

#include "base/mem.h"
#include "base/turn.h"
#include "json/json_lex.h"

typedef struct entry {
    const json_value *value; /* NULL: none */
    str text;
} entry;

struct json_digits {
    entry *slots;
    size_t n_slots; /* a power of two */
};

static entry *slot_of(const json_digits *d, const json_value *v) {
    size_t at = (size_t)(((uint64_t)(uintptr_t)v * 0x9E3779B97F4A7C15u) >> 32) & (d->n_slots - 1);
    while (d->slots[at].value != NULL && d->slots[at].value != v) {
        at = (at + 1) & (d->n_slots - 1);
    }
    return &d->slots[at];
}

typedef struct pairing {
    str text; /* was checked */
    size_t at;
    strbuf scratch;
    json_digits *d;
} pairing;

static void skip_space(pairing *p) {
    p->at = json_lex_space(p->text, p->at);
}

/* Of an object's equal names the last one counts: what an earlier one has left is replaced. */
static quire_err pair_number(pairing *p, const json_value *v) {
    json_number number;
    const char *what;
    size_t from = p->at;
    TRY(json_lex_number(p->text, &p->at, &number, &what));
    if (!json_is(v, JSON_KIND_REAL)) {
        return QUIRE_OK;
    }
    entry *e = slot_of(p->d, v);
    if (number.is_long) {
        *e = (entry){v, {p->text.p + from, p->at - from}};
    } else {
        e->text = (str){"", 0};
    }
    return QUIRE_OK;
}

static quire_err pair(pairing *p, const json_value *v);

/* The member's name, and its value in the tree. */
static quire_err pair_name(pairing *p, const json_value *object, const json_value **member) {
    json_letters letters;
    const char *what;
    size_t from = p->at + 1;
    TRY(json_lex_string(p->text, &p->at, SIZE_MAX, &letters, &what));
    strbuf_clear(&p->scratch);
    TRY(json_lex_unescape((str){p->text.p + from, p->at - 1 - from}, &p->scratch));
    *member = json_get(object, p->scratch.n > 0 ? p->scratch.p : "");
    skip_space(p);
    p->at++; /* the colon */
    skip_space(p);
    return QUIRE_OK;
}

/* An array or object: calls itself as deep as the tree is. */
static quire_err pair_container(pairing *p, const json_value *v, bool is_object) {
    p->at++;
    skip_space(p);
    for (size_t i = 0; p->text.p[p->at] != (is_object ? '}' : ']'); i++) {
        const json_value *inside = is_object ? NULL : json_at(v, i);
        if (p->text.p[p->at] == ',') {
            p->at++;
            skip_space(p);
        }
        if (is_object) {
            TRY(pair_name(p, v, &inside));
        }
        TRY(pair(p, inside));
        skip_space(p);
    }
    p->at++;
    return QUIRE_OK;
}

/* The value that stands at p->at is v in the tree, or was replaced by v. */
static quire_err pair(pairing *p, const json_value *v) {
    json_letters letters;
    const char *what;
    char c = p->text.p[p->at];
    TRY(turn_poll(1));
    if (c == '{' || c == '[') {
        return pair_container(p, v, c == '{');
    }
    if (c == '"') {
        return json_lex_string(p->text, &p->at, SIZE_MAX, &letters, &what);
    }
    return c == '-' || (c >= '0' && c <= '9') ? pair_number(p, v) : json_lex_word(p->text, &p->at, &what);
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
    pairing p = {.text = text, .d = d};
    skip_space(&p);
    quire_err e = pair(&p, root);
    strbuf_deinit(&p.scratch);
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
    return d != NULL && v != NULL ? slot_of(d, v)->text : (str){"", 0};
}
