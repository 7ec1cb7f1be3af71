#include "jinja/jinja_value.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/turn.h"
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

/* Takes steps for work on a text; usually none. */
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

/* Exact: whether a double is this very integer. */
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
        *out = a.u.list == b.u.list; /* equal only if it is the same object */
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
    static jvalue none; /* not NULL, so that pointer arithmetic in an empty list is valid */
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
        return jinja_value_mix(h, (uint64_t)(int64_t)f); /* same hash as the equal integer */
    }
    f = isnan(f) ? (double)NAN : f;
    memcpy(&bits, &f, sizeof bits);
    return jinja_value_mix(h, bits);
}

/* Same hash as an equal double. */
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

/* Hashes v. QUIRE_BAD_REQUEST: Python cannot hash it. Each part takes a step. */
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

/* Finds a key: its entry number + 1, or 0. *slot: its slot in the index, or the slot to
 * insert it. */
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

/* Makes room for one more entry, in an index that is at most half full. */
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

/* Arena: the memory of a render, freed as a whole: values, and texts with their origins.
 * All of it counts in one budget.
 *
 * The origin of a byte, template or variables, belongs to its place in memory. So a part
 * of a text (slice, split, strip) needs no work, and code that copies bytes copies their
 * origins (jinja_out.c). Texts of one origin are in blocks of that origin and need no
 * more memory; only texts of both origins, which a render puts together, have one origin
 * per byte. Bytes outside the arena, such as the program's literals, are the
 * template's. */

enum { BLOCK_BYTES = 64 << 10, TEXT_BYTES = 16 << 10, LONG_TEXT = 1024 };

typedef struct jblock {
    struct jblock *next;
    size_t used, cap;
    char bytes[];
} jblock;

/* bytes[0..cap) are text; mixed texts: bytes[cap..2 cap) are origins. */
typedef struct jtext_block {
    struct jtext_block *next;
    size_t used, cap;
    char bytes[];
} jtext_block;

bool jarena_charge(jarena *a, size_t n) {
    assert(a != NULL);
    if (n > a->max || a->total > a->max - n) {
        a->refused = JARENA_FULL;
        return false;
    }
    if (turn_hold(n) != QUIRE_OK) {
        a->refused = JARENA_CANCELLED;
        return false;
    }
    a->total += n;
    return true;
}

void jarena_release(jarena *a, size_t n) {
    assert(a != NULL);
    a->total -= n;
    turn_let_go(n);
}

/* Counts and allocates a block with a head and n bytes. */
static void *new_block(jarena *a, size_t head, size_t n) {
    if (!jarena_charge(a, n)) {
        return NULL;
    }
    void *b = mem_new(1, head + n);
    if (b == NULL) {
        jarena_release(a, n);
    }
    return b;
}

void *jarena_new(jarena *a, size_t n) {
    assert(a != NULL);
    jblock *b = a->blocks;
    size_t at = b == NULL ? 0 : size_align(b->used, 8); /* bytes of a block start at multiples of 8 */
    if (b == NULL || at > b->cap || n > b->cap - at) {
        size_t cap = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        b = new_block(a, sizeof *b, cap);
        if (b == NULL) {
            return NULL;
        }
        b->cap = cap;
        b->next = a->blocks;
        a->blocks = b;
        at = 0;
    }
    b->used = at + n;
    return b->bytes + at;
}

char *jarena_bytes(jarena *a, size_t n, int origin, uint8_t **origins) {
    size_t copies = origin == JINJA_MIXED ? 2 : 1;
    jtext_block *b = a->texts[origin];
    if (b == NULL || n > b->cap - b->used) {
        size_t cap = b == NULL ? TEXT_BYTES : 2 * b->cap, room = (a->max - a->total) / copies;
        cap = n > cap || cap > room ? n : cap;
        if (n > a->max / copies) { /* checked before the multiplication */
            a->refused = JARENA_FULL;
            return NULL;
        }
        b = new_block(a, sizeof *b, copies * cap);
        if (b == NULL) {
            return NULL;
        }
        b->cap = cap;
        b->next = a->texts[origin];
        a->texts[origin] = b;
    }
    b->used += n;
    char *p = b->bytes + b->used - n;
    *origins = origin == JINJA_MIXED ? (uint8_t *)p + b->cap : NULL;
    return p;
}

/* The block of a text, and its kind. NULL: outside the arena, so the template's. */
static const jtext_block *jinja_arena_block_of(const jarena *a, str s, int *kind) {
    for (int k = JINJA_TEMPLATE; k < N_JARENA_KINDS && s.n > 0; k++) {
        for (const jtext_block *b = a->texts[k]; b != NULL; b = b->next) {
            if ((uintptr_t)s.p >= (uintptr_t)b->bytes && (uintptr_t)s.p < (uintptr_t)b->bytes + b->cap) {
                *kind = k;
                return b;
            }
        }
    }
    *kind = JINJA_TEMPLATE;
    return NULL;
}

jorigins jarena_origins(const jarena *a, str s) {
    int kind;
    const jtext_block *b = jinja_arena_block_of(a, s, &kind);
    return kind == JINJA_MIXED ? (jorigins){.of_bytes = (const uint8_t *)s.p + b->cap}
                               : (jorigins){.all = (uint8_t)kind};
}

bool jarena_is_input(const jarena *a, str s) {
    jorigins o = jarena_origins(a, s);
    return o.of_bytes != NULL ? memchr(o.of_bytes, JINJA_INPUT, s.n) != NULL
                              : o.all == JINJA_INPUT && s.n > 0;
}

/* Copies s to `to`, its origins to `origins` (NULL: the target block has one origin). */
static void jinja_arena_put(const jarena *a, char *to, uint8_t *origins, str s) {
    mem_copy(to, s.p, s.n);
    if (origins != NULL && s.n > 0) {
        jorigins from = jarena_origins(a, s);
        if (from.of_bytes != NULL) {
            memcpy(origins, from.of_bytes, s.n);
        } else {
            memset(origins, from.all, s.n);
        }
    }
}

bool jarena_copy_as(jarena *a, str s, uint8_t origin, str *out) {
    uint8_t *none;
    char *copy = jarena_bytes(a, s.n, origin, &none);
    if (copy == NULL) {
        return false;
    }
    mem_copy(copy, s.p, s.n);
    *out = (str){copy, s.n};
    return true;
}

bool jarena_grow(jarena *a, void *p, size_t *cap, size_t n, size_t size) {
    if (n < *cap) {
        return true;
    }
    size_t wanted = *cap == 0 ? 4 : *cap * 2;
    if (wanted > a->max / size) {
        a->refused = JARENA_FULL;
        return false;
    }
    void *old, *grown = jarena_new(a, wanted * size);
    if (grown == NULL) {
        return false;
    }
    memcpy(&old, p, sizeof old);
    mem_copy(grown, old, n * size);
    memcpy(p, &grown, sizeof grown);
    *cap = wanted;
    return true;
}

/* Appends right to left in place, if there is room and left is its block's newest text or
 * the long text appended to last. */
static bool append_in_place(jarena *a, str left, int kind, str right) {
    jtext_block *b = a->texts[kind];
    char *to = b == NULL ? NULL : b->bytes + b->used;
    size_t cap;
    if (left.p + left.n == a->text_end && right.n <= (size_t)(a->text_limit - a->text_end)) {
        int same;
        to = a->text_end;
        cap = jinja_arena_block_of(a, left, &same)->cap;
        a->text_end += right.n;
    } else if (b != NULL && left.p + left.n == to && right.n <= b->cap - b->used) {
        b->used += right.n;
        cap = b->cap;
    } else {
        return false;
    }
    jinja_arena_put(a, to, kind == JINJA_MIXED ? (uint8_t *)to + cap : NULL, right);
    return true;
}

bool jarena_append(jarena *a, str left, str right, str *out) {
    int left_kind, right_kind;
    jinja_arena_block_of(a, left, &left_kind);
    jinja_arena_block_of(a, right, &right_kind);
    int kind = left.n == 0 ? right_kind : right.n == 0 || left_kind == right_kind ? left_kind : JINJA_MIXED;
    size_t n = left.n + right.n;
    if (left.n == 0 || kind != left_kind || !append_in_place(a, left, kind, right)) {
        bool is_long = n >= LONG_TEXT;
        uint8_t *origins;
        char *p = jarena_bytes(a, is_long ? 2 * n : n, kind, &origins);
        if (p == NULL) {
            return false;
        }
        jinja_arena_put(a, p, origins, left);
        jinja_arena_put(a, p + left.n, origins != NULL ? origins + left.n : NULL, right);
        if (is_long) {
            a->text_end = p + n;
            a->text_limit = p + 2 * n;
        }
        left.p = p;
    }
    *out = (str){left.p, n};
    return true;
}

bool jarena_repeat(jarena *a, str s, size_t times, str *out) {
    int kind;
    uint8_t *origins;
    jinja_arena_block_of(a, s, &kind);
    if (times > 0 && s.n > a->max / times) {
        a->refused = JARENA_FULL;
        return false;
    }
    char *p = jarena_bytes(a, s.n * times, kind, &origins);
    if (p == NULL) {
        return false;
    }
    for (size_t i = 0; i < times && s.n > 0; i++) {
        jinja_arena_put(a, p + i * s.n, origins != NULL ? origins + i * s.n : NULL, s);
    }
    *out = (str){p, s.n * times};
    return true;
}

void jarena_deinit(jarena *a) {
    assert(a != NULL);
    while (a->blocks != NULL) {
        jblock *next = a->blocks->next;
        mem_free(a->blocks);
        a->blocks = next;
    }
    for (int k = 0; k < N_JARENA_KINDS; k++) {
        while (a->texts[k] != NULL) {
            jtext_block *next = a->texts[k]->next;
            mem_free(a->texts[k]);
            a->texts[k] = next;
        }
    }
    *a = (jarena){.max = a->max};
}
