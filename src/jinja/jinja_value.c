#include "jinja/jinja_value.h"

#include <math.h>

#include "base/mem.h"
#include "jinja/jinja_big.h"

enum { SMALL_DICT = 8 };

/* ---- truth, equality, types ---- */

bool jvalue_truth(jvalue v) {
    switch (v.kind) {
    case J_UNDEFINED:
    case J_NONE:
        return false;
    case J_BOOL:
        return v.u.b;
    case J_INT:
        return v.u.i != 0;
    case J_FLOAT:
        return v.u.f != 0;
    case J_STRING:
        return v.u.s.n > 0;
    case J_LIST:
    case J_TUPLE:
    case J_VIEW:
        return v.u.list->n > 0;
    case J_DICT:
        return v.u.dict->n > 0;
    case J_RANGE:
        return v.u.range->n > 0;
    default:
        return true;
    }
}

static quire_err lists_equal(jsteps *s, const jlist *a, const jlist *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        TRY(jsteps_take(s, 1));
        TRY(jvalue_matches(s, a->items[i], b->items[i], out));
    }
    return QUIRE_OK;
}

static quire_err dicts_equal(jsteps *s, const jdict *a, const jdict *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        const jvalue *other;
        TRY(jsteps_take(s, 1));
        TRY(jdict_get(s, b, a->entries[i].key, &other));
        *out = other != NULL;
        if (*out) {
            TRY(jvalue_matches(s, a->entries[i].value, *other, out));
        }
    }
    return QUIRE_OK;
}

/* Counts work on a text; most are short. */
static inline quire_err jinja_value_take_text(jsteps *s, size_t n) {
    return n < 64 ? QUIRE_OK : jsteps_take(s, n / 64);
}

static inline quire_err texts_equal(jsteps *s, str a, str b, bool *out) {
    *out = a.n == b.n && (a.n == 0 || a.p == b.p || memcmp(a.p, b.p, a.n) == 0);
    return a.n != b.n || a.p == b.p ? QUIRE_OK : jinja_value_take_text(s, a.n);
}

static bool ranges_equal(const jrange *a, const jrange *b) {
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

/* An int64 equals a double only where the double is that very integer. */
static bool integer_equals_double(int64_t i, double f) {
    return f >= -0x1p63 && f < 0x1p63 && f == floor(f) && (int64_t)f == i;
}

/* Big integers are beyond 64 bits, so none equals a J_INT. */
static bool big_equal(jvalue a, jvalue b) {
    if (jis(a, J_HUGE) && jis(b, J_HUGE)) {
        return jbig_compare(a.u.big, b.u.big) == 0;
    }
    return jis(a, J_FLOAT) ? jbig_equals_double(b.u.big, a.u.f)
                           : jis(b, J_FLOAT) && jbig_equals_double(a.u.big, b.u.f);
}

static bool numbers_equal(jvalue a, jvalue b) {
    if (jis(a, J_HUGE) || jis(b, J_HUGE)) {
        return big_equal(a, b);
    }
    if (jis(a, J_FLOAT) && jis(b, J_FLOAT)) {
        return a.u.f == b.u.f;
    }
    if (jis(a, J_FLOAT)) {
        return integer_equals_double(jas_integer(b), a.u.f);
    }
    return jis(b, J_FLOAT) ? integer_equals_double(jas_integer(a), b.u.f) : jas_integer(a) == jas_integer(b);
}

quire_err jvalue_equal(jsteps *s, jvalue a, jvalue b, bool *out) {
    if ((jis_number(a) || jis(a, J_HUGE)) && (jis_number(b) || jis(b, J_HUGE))) {
        *out = numbers_equal(a, b);
        return QUIRE_OK;
    }
    *out = false;
    if (a.kind != b.kind) {
        return QUIRE_OK;
    }
    switch (a.kind) {
    case J_UNDEFINED:
    case J_NONE:
        *out = true;
        return QUIRE_OK;
    case J_STRING:
        return texts_equal(s, a.u.s, b.u.s, out);
    case J_RANGE:
        *out = ranges_equal(a.u.range, b.u.range);
        return QUIRE_OK;
    default:
        *out = a.u.list == b.u.list; /* the same object */
        break;
    }
    if (!*out && (jis(a, J_LIST) || jis(a, J_TUPLE))) {
        return lists_equal(s, a.u.list, b.u.list, out);
    }
    return !*out && jis(a, J_DICT) ? dicts_equal(s, a.u.dict, b.u.dict, out) : QUIRE_OK;
}

quire_err jvalue_matches(jsteps *s, jvalue a, jvalue b, bool *out) {
    if (jis(a, J_STRING) && jis(b, J_STRING)) { /* the common case first */
        return texts_equal(s, a.u.s, b.u.s, out);
    }
    *out = jis(a, J_FLOAT) && jis(b, J_FLOAT) && isnan(a.u.f) && isnan(b.u.f);
    return *out ? QUIRE_OK : jvalue_equal(s, a, b, out);
}

int jvalue_depth(jvalue v) {
    return jis_listlike(v) ? v.u.list->depth : jis(v, J_DICT) ? v.u.dict->depth : 0;
}

const char *jvalue_type(jvalue v) {
    static const char *const names[] = {
        [J_UNDEFINED] = "Undefined",
        [J_NONE] = "NoneType",
        [J_BOOL] = "bool",
        [J_INT] = "int",
        [J_HUGE] = "int",
        [J_FLOAT] = "float",
        [J_STRING] = "str",
        [J_LIST] = "list",
        [J_TUPLE] = "tuple",
        [J_DICT] = "dict",
        [J_RANGE] = "range",
        [J_ITERATOR] = "generator",
        [J_NAMESPACE] = "Namespace",
        [J_LOOP] = "LoopContext",
        [J_MACRO] = "Macro",
        [J_TURNS] = "Cycler",
        [J_SELF] = "TemplateReference",
        [J_BLOCK] = "BlockReference",
        [J_MODULE] = "TemplateModule",
        [J_METHOD] = "function",
        [J_FUNCTION] = "function",
        [J_MISSING] = "function",
    };
    return jis(v, J_VIEW) ? v.u.list->view : jis(v, J_STRING) && v.safe ? "Markup" : names[v.kind];
}

jvalue jvalue_list(jarena *a, jkind kind, jvalue *items, size_t n) {
    jlist *list = jarena_new(a, sizeof *list);
    if (list == NULL) {
        return (jvalue){.kind = J_MISSING};
    }
    static jvalue none; /* so that pointer arithmetic in an empty list is valid */
    list->items = items != NULL ? items : &none;
    list->n = n;
    for (size_t i = 0; i < n; i++) {
        int depth = jvalue_depth(items[i]);
        list->depth = depth > list->depth ? depth : list->depth;
    }
    list->depth++;
    return (jvalue){.kind = (uint8_t)kind, .u.list = list};
}

void jvalues_reverse(jvalue *items, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        jvalue v = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = v;
    }
}

/* ---- dictionaries ---- */

jdict *jdict_new(jarena *a) {
    jdict *d = jarena_new(a, sizeof *d);
    if (d != NULL) {
        d->depth = 1;
    }
    return d;
}

static uint64_t jinja_value_mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

static uint64_t hash_double(uint64_t h, double f) {
    uint64_t bits;
    if (f >= -0x1p63 && f < 0x1p63 && f == floor(f)) {
        return jinja_value_mix(h, (uint64_t)(int64_t)f); /* hashed as the equal integer */
    }
    f = isnan(f) ? (double)NAN : f;
    memcpy(&bits, &f, sizeof bits);
    return jinja_value_mix(h, bits);
}

/* Hashed as an equal double. */
static uint64_t hash_big(uint64_t h, const jbig *b) {
    double f = jbig_to_double(b);
    uint64_t bits = b->limbs[0] + b->n;
    if (jbig_equals_double(b, f)) {
        memcpy(&bits, &f, sizeof bits);
    }
    return jinja_value_mix(h, bits);
}

static quire_err jinja_value_hash_of(jsteps *s, jvalue v, uint64_t *out);

static quire_err hash_tuple(jsteps *s, uint64_t h, const jlist *l, uint64_t *out) {
    for (size_t i = 0; i < l->n; i++) {
        uint64_t part;
        TRY(jsteps_take(s, 1));
        TRY(jinja_value_hash_of(s, l->items[i], &part));
        h = jinja_value_mix(h, part);
    }
    *out = h;
    return QUIRE_OK;
}

/* QUIRE_BAD_REQUEST: Python cannot hash it. Each part is a step. */
static quire_err jinja_value_hash_of(jsteps *s, jvalue v, uint64_t *out) {
    const uint64_t h = 0x51ed270b;
    switch (v.kind) {
    case J_BOOL:
    case J_INT:
        *out = jinja_value_mix(h, (uint64_t)jas_integer(v));
        return QUIRE_OK;
    case J_FLOAT:
        *out = hash_double(h, v.u.f);
        return QUIRE_OK;
    case J_HUGE:
        *out = hash_big(h, v.u.big);
        return QUIRE_OK;
    case J_STRING:
        *out = jinja_value_mix(str_hash(h, v.u.s), v.u.s.n);
        return jinja_value_take_text(s, v.u.s.n);
    case J_TUPLE:
        return hash_tuple(s, h, v.u.list, out);
    case J_LIST:
    case J_DICT:
    case J_NAMESPACE:
    case J_VIEW:
        return QUIRE_BAD_REQUEST;
    case J_NONE:
    case J_UNDEFINED:
        *out = jinja_value_mix(h, v.kind);
        return QUIRE_OK;
    default:
        *out = jinja_value_mix(h, (uint64_t)(uintptr_t)v.u.list);
        return QUIRE_OK;
    }
}

/* The entry number + 1 of a key, or 0. *slot: its slot in the index, or the slot for
 * inserting it. */
static quire_err jinja_value_find(jsteps *s, const jdict *d, jvalue key, uint64_t hash, size_t *entry,
                                  size_t *slot) {
    bool matches = false;
    *entry = 0;
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n && !matches; i++) {
            if (d->entries[i].hash == hash) {
                TRY(jvalue_matches(s, d->entries[i].key, key, &matches));
            }
            *entry = matches ? i + 1 : 0;
        }
        return QUIRE_OK;
    }
    size_t n_seen = 0;
    for (size_t at = (size_t)hash & (d->n_index - 1); !matches; at = (at + 1) & (d->n_index - 1), n_seen++) {
        *entry = d->index[at];
        *slot = at;
        if (*entry == 0) {
            break;
        }
        if (d->entries[*entry - 1].hash == hash) {
            TRY(jvalue_matches(s, d->entries[*entry - 1].key, key, &matches));
        }
    }
    return n_seen < 8 ? QUIRE_OK : jsteps_take(s, n_seen / 8); /* many hashes may collide */
}

quire_err jdict_get(jsteps *s, const jdict *d, jvalue key, const jvalue **out) {
    uint64_t hash;
    size_t slot, entry;
    TRY(jinja_value_hash_of(s, key, &hash));
    TRY(jinja_value_find(s, d, key, hash, &entry, &slot));
    *out = entry == 0 ? NULL : &d->entries[entry - 1].value;
    return QUIRE_OK;
}

/* Ensures room for one more entry, and an index that is at most half full. */
static bool jinja_value_grow(jarena *a, jdict *d) {
    if (d->n < d->cap) {
        return true;
    }
    size_t cap = d->cap == 0 ? 4 : d->cap * 2;
    jentry *entries = cap > UINT32_MAX / 4 ? NULL : jarena_new(a, cap * sizeof *entries);
    if (entries == NULL) {
        return false;
    }
    mem_copy(entries, d->entries, d->n * sizeof *entries);
    uint32_t *index = NULL;
    if (cap > SMALL_DICT) {
        index = jarena_new(a, cap * 2 * sizeof *index);
        if (index == NULL) {
            return false;
        }
        for (size_t i = 0; i < d->n; i++) {
            size_t at = (size_t)entries[i].hash & (cap * 2 - 1);
            while (index[at] != 0) {
                at = (at + 1) & (cap * 2 - 1);
            }
            index[at] = (uint32_t)i + 1;
        }
    }
    d->entries = entries;
    d->cap = cap;
    d->index = index;
    d->n_index = cap * 2;
    return true;
}

quire_err jdict_set(jarena *a, jsteps *s, jdict *d, jvalue key, jvalue value) {
    uint64_t hash;
    size_t slot = 0, entry;
    TRY(jinja_value_hash_of(s, key, &hash));
    TRY(jinja_value_find(s, d, key, hash, &entry, &slot));
    if (entry == 0) {
        bool moves = d->n == d->cap;
        if (!jinja_value_grow(a, d)) {
            TRY(QUIRE_NO_MEMORY);
        }
        if (moves) {
            TRY(jinja_value_find(s, d, key, hash, &entry, &slot));
        }
        d->entries[d->n] = (jentry){key, value, hash};
        d->n++;
        if (d->index != NULL) {
            d->index[slot] = (uint32_t)d->n;
        }
    } else {
        d->entries[entry - 1].value = value;
    }
    int deep = jvalue_depth(key) > jvalue_depth(value) ? jvalue_depth(key) : jvalue_depth(value);
    d->depth = deep + 1 > d->depth ? deep + 1 : d->depth;
    return QUIRE_OK;
}
