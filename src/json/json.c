#include "json/json.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/turn.h"
#include "json/json_lex.h"

/* ---- a text and its tree, number by number ---- */

/* Where a value is in its parent. */
typedef struct json_place {
    const json_value *parent; /* NULL: it is the root */
    size_t index;             /* index in an array */
    const char *name;         /* name in an object, borrowed for the call; else NULL */
} json_place;

/* Called for each number of the text, with its value v in the tree. v may be another
 * value: if names in an object are equal, the tree has the last one. The callback may
 * replace the members of a parent. */
typedef quire_err json_pair_take(void *user, str digits, const json_number *number, json_place place,
                                 const json_value *v);

typedef struct pairing {
    str text; /* passed json_check */
    size_t at;
    strbuf scratch;
    json_pair_take *take;
    void *user;
} pairing;

static void json_pair_skip_space(pairing *p) {
    p->at = json_lex_space(p->text, p->at);
}

static quire_err pair_number(pairing *p, json_place place, const json_value *v) {
    json_number number;
    const char *what;
    size_t from = p->at;
    TRY(json_lex_number(p->text, &p->at, &number, &what));
    return p->take(p->user, (str){p->text.p + from, p->at - from}, &number, place, v);
}

static quire_err json_pair_do(pairing *p, json_place place, const json_value *v);

/* Reads a member's name, and finds its value in the tree. */
static quire_err pair_name(pairing *p, const json_value *object, json_place *place,
                           const json_value **member) {
    json_letters letters;
    const char *what;
    size_t from = p->at + 1;
    TRY(json_lex_string(p->text, &p->at, SIZE_MAX, &letters, &what));
    strbuf_clear(&p->scratch);
    TRY(json_lex_unescape((str){p->text.p + from, p->at - 1 - from}, &p->scratch));
    place->name = p->scratch.n > 0 ? p->scratch.p : "";
    *member = json_get(object, place->name);
    json_pair_skip_space(p);
    p->at++; /* skips the colon */
    json_pair_skip_space(p);
    return QUIRE_OK;
}

/* Walks an array or object. Recurses as deep as the tree. */
static quire_err pair_container(pairing *p, const json_value *v, bool is_object) {
    p->at++;
    json_pair_skip_space(p);
    for (size_t i = 0; p->text.p[p->at] != (is_object ? '}' : ']'); i++) {
        const json_value *inside = is_object ? NULL : json_at(v, i);
        json_place place = {.parent = v, .index = i};
        if (p->text.p[p->at] == ',') {
            p->at++;
            json_pair_skip_space(p);
        }
        if (is_object) {
            TRY(pair_name(p, v, &place, &inside));
        }
        TRY(json_pair_do(p, place, inside));
        json_pair_skip_space(p);
    }
    p->at++;
    return QUIRE_OK;
}

/* Walks the value at p->at. It is v in the tree, or a later equal name replaced it. */
static quire_err json_pair_do(pairing *p, json_place place, const json_value *v) {
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
    return c == '-' || (c >= '0' && c <= '9') ? pair_number(p, place, v)
                                              : json_lex_word(p->text, &p->at, &what);
}

/* Calls `take` for each number of a checked text; root is its tree. Errors: those of
 * `take`, QUIRE_NO_MEMORY, QUIRE_CANCELLED, QUIRE_TOO_LARGE. */
static quire_err json_pair(str text, const json_value *root, json_pair_take *take, void *user) {
    pairing p = {.text = text, .take = take, .user = user};
    json_pair_skip_space(&p);
    quire_err e = json_pair_do(&p, (json_place){0}, root);
    strbuf_deinit(&p.scratch);
    return e;
}

/* ---- wide integers ---- */

/* Wide integers: integers in a tree that do not fit int64, kept as their digits.
 *
 * jansson has no such value. A wide integer is stored as a string that equals no text,
 * because its first byte is not valid UTF-8. */

#define WIDE_BYTE '\xff'

static bool wide_is(const json_value *v) {
    return json_is_string(v) && json_string_value(v)[0] == WIDE_BYTE;
}

/* The digits of a wide integer, with '-' if it is negative; ends with a 0 byte. */
static str wide_digits(const json_value *v) {
    return (str){json_string_value(v) + 1, json_string_length(v) - 1};
}

/* Makes a wide integer; NULL: no memory. */
static json_t *wide_new(str digits) {
    strbuf text = {0};
    json_t *v = NULL;
    if (strbuf_add_char(&text, WIDE_BYTE) == QUIRE_OK && strbuf_add(&text, digits.p, digits.n) == QUIRE_OK) {
        v = json_stringn_nocheck(text.p, text.n);
    }
    strbuf_deinit(&text);
    return v;
}

/* Makes any other number, as jansson would read it; NULL: no memory. */
static json_t *narrow_new(str digits, const json_number *number) {
    strbuf text = {0};
    json_t *v = number->fits ? json_integer(number->value) : NULL;
    if (!number->fits && strbuf_add(&text, digits.p, digits.n) == QUIRE_OK) {
        v = json_real(c_locale_strtod(text.p, NULL));
    }
    strbuf_deinit(&text);
    return v;
}

/* Replaces v by the number as written. v may not be a number: of equal names in an object
 * the tree has the last one. */
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

/* Replaces, in the tree *root made from checked text, the stand-ins for wide integers. On
 * failure the caller still owns the tree. QUIRE_NO_MEMORY, QUIRE_CANCELLED,
 * QUIRE_TOO_LARGE. */
static quire_err wide_place(str text, json_value **root) {
    return json_pair(text, *root, json_wide_take_number, root);
}

/* Casts const away, because jansson's functions take no const pointers although most
 * change nothing. */
static json_t *mutable(const json_value *v) {
    return (json_t *)(uintptr_t)v;
}

static json_value *or_null(json_t *v) {
    return json_is_null(v) ? NULL : v;
}

/* ---- reading ---- */

/* Appends the object that represents NaN, Infinity or -Infinity in the tree:
 * {"__float__": "NaN"}. */
static quire_err add_nonfinite(strbuf *out, str word) {
    TRY(strbuf_add_str(out, "{\"__float__\":\""));
    TRY(strbuf_add(out, word.p, word.n));
    return strbuf_add_str(out, "\"}");
}

/* Copies checked text, and writes every integer that does not fit int64 as a real: the
 * nearest one, or a stand-in if its digits are inserted later (JSON_WIDE_KEPT). */
static quire_err json_widen(str text, json_wide wide, strbuf *out) {
    size_t done = 0;
    for (size_t at = 0; at < text.n;) {
        const char *what;
        json_letters letters;
        json_number number;
        size_t from = at;
        char c = text.p[at];
        size_t n_word = c == 'N' || c == 'I' || c == '-' ? json_lex_nonfinite(text, at) : 0;
        if (n_word > 0) {
            TRY(strbuf_add(out, text.p + done, at - done));
            TRY(add_nonfinite(out, (str){text.p + at, n_word}));
            done = at += n_word;
        } else if (c == '"') {
            TRY(json_lex_string(text, &at, SIZE_MAX, &letters, &what));
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            TRY(json_lex_number(text, &at, &number, &what));
            if (number.is_integer && !number.fits) {
                TRY(strbuf_add(out, text.p + done, (wide == JSON_WIDE_KEPT ? from : at) - done));
                TRY(strbuf_add_str(out, wide == JSON_WIDE_KEPT ? "0.0" : "e0"));
                done = at;
            }
        } else {
            at++;
        }
    }
    return strbuf_add(out, text.p + done, text.n - done);
}

/* Whether the name between the quotes, `inside`, has a NUL. False on a failure. */
static bool has_nul(str inside, strbuf *scratch) {
    strbuf_clear(scratch);
    return json_lex_unescape(inside, scratch) == QUIRE_OK && scratch->n > 0 &&
           memchr(scratch->p, 0, scratch->n) != NULL;
}

static bool is_beyond_double(str digits, strbuf *scratch) {
    strbuf_clear(scratch);
    return strbuf_add(scratch, digits.p, digits.n) == QUIRE_OK && isinf(c_locale_strtod(scratch->p, NULL));
}

/* Fills *fault for a checked text that jansson refuses: a number beyond a double, or a
 * NUL in a name. */
static void explain_refusal(str text, json_wide wide, json_fault *fault) {
    strbuf scratch = {0};
    const char *what, *found = NULL;
    size_t start = 0;
    for (size_t at = 0; at < text.n && found == NULL;) {
        json_letters letters;
        json_number number;
        char c = text.p[start = at];
        if (c == '"') {
            (void)json_lex_string(text, &at, SIZE_MAX, &letters, &what);
            size_t behind = json_lex_space(text, at);
            bool is_name = behind < text.n && text.p[behind] == ':';
            bool with_nul =
                is_name && letters.escaped && has_nul((str){text.p + start + 1, at - start - 2}, &scratch);
            found = with_nul ? "a name with a NUL character" : NULL;
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            (void)json_lex_number(text, &at, &number, &what);
            found = !(wide == JSON_WIDE_KEPT && number.is_integer) &&
                            is_beyond_double((str){text.p + start, at - start}, &scratch)
                        ? "a number too large for a double"
                        : NULL;
        } else {
            at++;
        }
    }
    strbuf_deinit(&scratch);
    fault->at = found != NULL ? start : 0;
    snprintf(fault->what, sizeof fault->what, "%s", found != NULL ? found : "not valid JSON");
}

/* The text that jansson reads, and how far it has read. */
typedef struct feed {
    str text;
    size_t at;
    quire_err e;
} feed;

/* Gives jansson the next bytes (json_load_callback_t). Polls the turn, so that a large
 * text takes turns with other work. */
static size_t feed_next(void *buffer, size_t n, void *data) {
    feed *f = data;
    size_t left = f->text.n - f->at;
    n = n < left ? n : left;
    f->e = turn_poll((uint32_t)n / 4);
    if (f->e != QUIRE_OK) {
        return (size_t)-1;
    }
    memcpy(buffer, f->text.p + f->at, n);
    f->at += n;
    return n;
}

quire_err json_read(str text, const json_limits *limits, json_wide wide, json_value **out,
                    json_fault *fault) {
    json_counts counts;
    return json_read_counted(text, limits, wide, out, &counts, fault);
}

static quire_err given_up(quire_err e, json_fault *fault) {
    *fault = (json_fault){0};
    (void)snprintf(fault->what, sizeof fault->what, "%s",
                   e == QUIRE_NO_MEMORY ? "out of memory" : "given up");
    return e;
}

quire_err json_read_counted(str text, const json_limits *limits, json_wide wide, json_value **out,
                            json_counts *counts, json_fault *fault) {
    json_error_t error;
    strbuf widened = {0};
    *out = NULL;
    TRY(json_check(text, limits, counts, fault));
    if (counts->n_wide > 0 && wide == JSON_WIDE_REFUSED) {
        *fault = (json_fault){.at = counts->wide_at, .what = "an integer that does not fit in 64 bits"};
        return QUIRE_BAD_FILE;
    }
    bool is_widened = counts->n_wide > 0 || counts->n_nonfinite > 0;
    if (is_widened) {
        quire_err e = json_widen(text, wide, &widened);
        if (e != QUIRE_OK) {
            strbuf_deinit(&widened);
            return given_up(e, fault);
        }
    }
    size_t flags =
        JSON_DECODE_ANY | JSON_ALLOW_NUL | (limits->names == JSON_NAMES_UNIQUE ? JSON_REJECT_DUPLICATES : 0);
    feed f = {.text = is_widened ? (str){widened.p, widened.n} : text};
    json_t *v = json_load_callback(feed_next, &f, flags, &error);
    strbuf_deinit(&widened);
    if (f.e != QUIRE_OK) {
        *fault = (json_fault){.what = "given up"};
        return f.e;
    }
    if (v == NULL && json_error_code(&error) == json_error_out_of_memory) {
        *fault = (json_fault){.what = "out of memory"};
        return QUIRE_NO_MEMORY;
    }
    if (v == NULL) {
        explain_refusal(text, wide, fault);
        return QUIRE_BAD_FILE;
    }
    quire_err placed = counts->n_wide > 0 && wide == JSON_WIDE_KEPT ? wide_place(text, &v) : QUIRE_OK;
    if (placed != QUIRE_OK) {
        json_decref(v);
        return given_up(placed, fault);
    }
    *out = or_null(v);
    return QUIRE_OK;
}

json_value *json_document(str text) {
    json_value *v;
    json_fault fault;
    (void)json_read(text, &json_limits_config, JSON_WIDE_REAL, &v, &fault);
    return v;
}

json_value *json_model_document(str text) {
    json_value *v;
    json_fault fault;
    (void)json_read(text, &json_limits_model, JSON_WIDE_REAL, &v, &fault);
    return v;
}

json_value *json_share(json_value *v) {
    return json_incref(v);
}

void json_drop(json_value *v) {
    json_decref(v);
}

/* ---- reading values ---- */

json_kind json_kind_of(const json_value *v) {
    if (v == NULL) {
        return JSON_KIND_NULL;
    }
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return JSON_KIND_OBJECT;
    case JSON_ARRAY:
        return JSON_KIND_ARRAY;
    case JSON_STRING:
        return wide_is(v) ? JSON_KIND_WIDE : JSON_KIND_TEXT;
    case JSON_INTEGER:
        return JSON_KIND_INT;
    case JSON_REAL:
        return JSON_KIND_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return JSON_KIND_BOOL;
    default:
        return JSON_KIND_NULL;
    }
}

bool json_truth(const json_value *v) {
    return json_is_true(v);
}

int64_t json_int64(const json_value *v) {
    return json_integer_value(v);
}

bool json_numeric(const json_value *v) {
    return json_is_number(v) || (v != NULL && wide_is(v));
}

double json_double(const json_value *v) {
    return json_is(v, JSON_KIND_WIDE) ? c_locale_strtod(wide_digits(v).p, NULL) : json_number_value(v);
}

str json_wide_str(const json_value *v) {
    return json_is(v, JSON_KIND_WIDE) ? wide_digits(v) : (str){"", 0};
}

bool json_whole(const json_value *v, int64_t *out) {
    if (json_is(v, JSON_KIND_INT)) {
        *out = json_int64(v);
        return true;
    }
    double d = json_double(v);
    if (!json_is(v, JSON_KIND_REAL) || !(fabs(d) < 0x1p53) || d != floor(d)) {
        return false;
    }
    *out = (int64_t)d;
    return true;
}

str json_str(const json_value *v) {
    return json_is(v, JSON_KIND_TEXT) ? (str){json_string_value(v), json_string_length(v)} : (str){"", 0};
}

size_t json_length(const json_value *v) {
    return json_is_array(v) ? json_array_size(v) : json_object_size(v);
}

json_value *json_at(const json_value *v, size_t i) {
    return or_null(json_array_get(v, i));
}

json_value *json_get(const json_value *v, const char *name) {
    return or_null(json_object_get(v, name));
}

bool json_has(const json_value *v, const char *name) {
    return json_object_get(v, name) != NULL;
}

str json_get_str(const json_value *v, const char *name) {
    return json_str(json_get(v, name));
}

bool json_get_bool(const json_value *v, const char *name, bool otherwise) {
    const json_value *member = json_get(v, name);
    return json_is(member, JSON_KIND_BOOL) ? json_truth(member) : otherwise;
}

int32_t json_get_int32(const json_value *v, const char *name, int32_t otherwise) {
    const json_value *member = json_get(v, name);
    int64_t n = json_int64(member);
    return json_is(member, JSON_KIND_INT) && n >= INT32_MIN && n <= INT32_MAX ? (int32_t)n : otherwise;
}

bool json_same(const json_value *a, const json_value *b) {
    return a == b || (a != NULL && b != NULL && json_equal(mutable(a), mutable(b)) == 1);
}

bool json_next(const json_value *object, json_member *m) {
    assert(m != NULL);
    json_t *o = mutable(object);
    m->at = m->at == NULL ? json_object_iter(o) : json_object_iter_next(o, m->at);
    if (m->at == NULL) {
        return false;
    }
    m->name = json_object_iter_key(m->at);
    m->value = or_null(json_object_iter_value(m->at));
    return true;
}

typedef struct entry {
    const json_value *value; /* NULL: the slot is empty */
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

/* Records the digits of a number that a double may not hold. Of equal names in an object
 * the last one wins: it replaces the entry of an earlier one. */
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
