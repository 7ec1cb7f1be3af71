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
    case J_BYTES:
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

static bool lists_equal(const jlist *a, const jlist *b) {
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        if (!jvalue_equal(a->items[i], b->items[i])) {
            return false;
        }
    }
    return true;
}

static bool dicts_equal(const jdict *a, const jdict *b) {
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        const jvalue *other = jdict_get(b, a->entries[i].key);
        if (other == NULL || !jvalue_equal(a->entries[i].value, *other)) {
            return false;
        }
    }
    return true;
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
    return jis(a, J_FLOAT) ? jbig_equals_double(b.u.big, a.u.f) : jis(b, J_FLOAT) && jbig_equals_double(a.u.big, b.u.f);
}

bool jvalue_equal(jvalue a, jvalue b) {
    if (jis(a, J_HUGE) || jis(b, J_HUGE)) {
        return big_equal(a, b);
    }
    if (jis_number(a) && jis_number(b)) {
        if (jis(a, J_FLOAT) && jis(b, J_FLOAT)) {
            return a.u.f == b.u.f;
        }
        if (jis(a, J_FLOAT)) {
            return integer_equals_double(jas_integer(b), a.u.f);
        }
        return jis(b, J_FLOAT) ? integer_equals_double(jas_integer(a), b.u.f) : jas_integer(a) == jas_integer(b);
    }
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
    case J_UNDEFINED:
    case J_NONE:
        return true;
    case J_STRING:
    case J_BYTES:
        return str_eq(a.u.s, b.u.s);
    case J_LIST:
    case J_TUPLE:
        return lists_equal(a.u.list, b.u.list);
    case J_DICT:
        return dicts_equal(a.u.dict, b.u.dict);
    case J_RANGE:
        return a.u.range->n == b.u.range->n &&
               (a.u.range->n == 0 || (a.u.range->start == b.u.range->start && (a.u.range->n == 1 || a.u.range->step == b.u.range->step)));
    default:
        return a.u.list == b.u.list; /* the same object */
    }
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
        [J_BYTES] = "bytes",
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
    static jvalue none; /* so that places in an empty list can be computed */
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

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

bool jvalue_hash(jvalue v, uint64_t *hash) {
    uint64_t h = 0x51ed270b;
    switch (v.kind) {
    case J_BOOL:
    case J_INT:
        h = mix(h, (uint64_t)jas_integer(v));
        break;
    case J_FLOAT:
        if (v.u.f >= -0x1p63 && v.u.f < 0x1p63 && v.u.f == floor(v.u.f)) {
            h = mix(h, (uint64_t)(int64_t)v.u.f); /* as the equal integer */
        } else {
            uint64_t bits;
            memcpy(&bits, &v.u.f, sizeof bits);
            h = mix(h, bits);
        }
        break;
    case J_HUGE: { /* as an equal double */
        double f = jbig_to_double(v.u.big);
        uint64_t bits = v.u.big->limbs[0] + v.u.big->n;
        if (jbig_equals_double(v.u.big, f)) {
            memcpy(&bits, &f, sizeof bits);
        }
        h = mix(h, bits);
        break;
    }
    case J_STRING:
    case J_BYTES:
        h = mix(str_hash(h, v.u.s), v.u.s.n);
        break;
    case J_TUPLE:
        for (size_t i = 0; i < v.u.list->n; i++) {
            uint64_t part;
            if (!jvalue_hash(v.u.list->items[i], &part)) {
                return false;
            }
            h = mix(h, part);
        }
        break;
    case J_LIST:
    case J_DICT:
    case J_NAMESPACE:
    case J_VIEW:
        return false;
    case J_NONE:
    case J_UNDEFINED:
        h = mix(h, v.kind);
        break;
    default:
        h = mix(h, (uint64_t)(uintptr_t)v.u.list);
        break;
    }
    *hash = h;
    return true;
}

/* The entry number + 1 of a key, or 0. *slot is its slot in the index, or the slot to insert it. */
static size_t find(const jdict *d, jvalue key, uint64_t hash, size_t *slot) {
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->entries[i].hash == hash && jvalue_equal(d->entries[i].key, key)) {
                return i + 1;
            }
        }
        return 0;
    }
    for (size_t at = (size_t)hash & (d->n_index - 1);; at = (at + 1) & (d->n_index - 1)) {
        uint32_t entry = d->index[at];
        *slot = at;
        if (entry == 0 || (d->entries[entry - 1].hash == hash && jvalue_equal(d->entries[entry - 1].key, key))) {
            return entry;
        }
    }
}

jvalue *jdict_get(const jdict *d, jvalue key) {
    uint64_t hash;
    size_t slot;
    size_t entry = jvalue_hash(key, &hash) ? find(d, key, hash, &slot) : 0;
    return entry == 0 ? NULL : &d->entries[entry - 1].value;
}

jvalue *jdict_get_str(const jdict *d, str key) {
    return jdict_get(d, jstring(key));
}

/* Ensures room for one more entry, and an index that is at most half full. */
static bool grow(jarena *a, jdict *d) {
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

bool jdict_set(jarena *a, jdict *d, jvalue key, jvalue value) {
    uint64_t hash;
    size_t slot = 0;
    if (!jvalue_hash(key, &hash)) {
        return false;
    }
    int deep = jvalue_depth(key) > jvalue_depth(value) ? jvalue_depth(key) : jvalue_depth(value);
    d->depth = deep + 1 > d->depth ? deep + 1 : d->depth;
    size_t entry = find(d, key, hash, &slot);
    if (entry > 0) {
        d->entries[entry - 1].value = value;
        return true;
    }
    if (!grow(a, d)) {
        return false;
    }
    find(d, key, hash, &slot); /* the index may have moved */
    d->entries[d->n] = (jentry){key, value, hash};
    d->n++;
    if (d->index != NULL) {
        d->index[slot] = (uint32_t)d->n;
    }
    return true;
}
