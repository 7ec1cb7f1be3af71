/* Values of a render.
 *
 * Values are small and copied freely. What they point to is in the render's arena, which
 * is freed as a whole, and never changes, except for namespaces and iterators. */
#ifndef JINJA_JINJA_VALUE_H
#define JINJA_JINJA_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "base/turn.h"
#include "jinja/jinja.h"

/* ---- jinja_value.c: the arena ---- */

enum { JINJA_MIXED = JINJA_INPUT + 1 /* a text with bytes of both origins */, N_JARENA_KINDS };

/* The limit that stopped the work on a value, for the error message. */
typedef enum jarena_limit {
    JARENA_FREE,
    JARENA_FULL,      /* `max` bytes */
    JARENA_OUTPUT,    /* JINJA_MAX_OUTPUT */
    JARENA_CANCELLED, /* the render was cancelled */
    JARENA_LATE       /* the render's time is over */
} jarena_limit;

typedef struct jarena {
    struct jblock *blocks; /* blocks of objects, newest first */
    /* blocks of text by origin, newest first; each as large as all earlier ones together,
     * so there are few */
    struct jtext_block *texts[N_JARENA_KINDS];
    size_t total, max; /* bytes in total, with those of outputs */
    jarena_limit refused;
    /* the long text that was appended to last: its end, and the end of its room */
    char *text_end, *text_limit;
} jarena;

/* The origins of a text's bytes. */
typedef struct jorigins {
    const uint8_t *of_bytes; /* [n] one per byte; NULL: all are `all` */
    uint8_t all;
} jorigins;

static inline uint8_t jorigins_at(jorigins o, size_t i) {
    return o.of_bytes != NULL ? o.of_bytes[i] : o.all;
}

/* Counts n bytes outside the arena, as for an output. False: over the budget. */
bool jarena_charge(jarena *a, size_t n);
void jarena_release(jarena *a, size_t n);
/* n zeroed bytes, aligned to 8; NULL: out of memory or budget. */
void *jarena_new(jarena *a, size_t n);
/* n bytes for a text of one origin, unaligned. JINJA_MIXED: *origins is one per byte,
 * initially the template's, for the caller to change; otherwise NULL. Returns NULL if out
 * of memory. */
char *jarena_bytes(jarena *a, size_t n, int origin, uint8_t **origins);
/* Copies s, from outside the arena, as a text of one origin. False: out of memory, *out
 * is unchanged. */
bool jarena_copy_as(jarena *a, str s, uint8_t origin, str *out);
jorigins jarena_origins(const jarena *a, str s);
/* Whether any byte of s came from the variables. */
bool jarena_is_input(const jarena *a, str s);
/* Makes room for another element in the array at *(void **)p: n elements of `size` bytes
 * are in use, *cap fit. False: out of memory, nothing changed. */
bool jarena_grow(jarena *a, void *p, size_t *cap, size_t n, size_t size);
/* Appends right to left, with its origins. In place if left was allocated last or is the
 * long text appended to last, so a text that grows in a loop takes linear time and
 * memory. */
bool jarena_append(jarena *a, str left, str right, str *out);
/* Repeats s, with its origins. */
bool jarena_repeat(jarena *a, str s, size_t times, str *out);
void jarena_deinit(jarena *a);

/* ---- jinja_out.c: output ---- */

typedef struct jout {
    strbuf text;       /* at most JINJA_MAX_OUTPUT bytes */
    jinja_spans input; /* runs of `text` that came from the variables */
    jarena *arena;     /* arena of the texts that are added */
    uint8_t origin;    /* origin of the bytes that jout_str, jout_char and jout_f add */
} jout;

void jout_deinit(jout *o);
void jout_clear(jout *o);
/* Append to an output. QUIRE_TOO_LARGE, QUIRE_CANCELLED (arena->refused tells which
 * limit), QUIRE_NO_MEMORY. */
quire_err jout_add(jout *o, str s); /* s keeps its origins */
quire_err jout_str(jout *o, const char *s);
quire_err jout_char(jout *o, char c);
quire_err jout_f(jout *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends bytes with one origin. */
quire_err jout_add_as(jout *o, str s, uint8_t origin);
/* Copies what was written into the arena. False: out of memory. */
bool jout_take(const jout *o, str *out);

/* ---- steps ---- */

/* The steps of a render, up to JINJA_MAX_STEPS. */
typedef struct jsteps {
    int64_t taken;
    bool over; /* a step was refused */
} jsteps;

/* Takes n steps. QUIRE_TOO_LARGE: over the limit; errors of turn_poll. */
static inline quire_err jsteps_take(jsteps *s, size_t n) {
    if (n > (size_t)(JINJA_MAX_STEPS - s->taken)) {
        s->over = true;
        return QUIRE_TOO_LARGE;
    }
    s->taken += (int64_t)n;
    return turn_poll(n < TURN_WORK ? (uint32_t)n : TURN_WORK);
}

/* ---- values ---- */

typedef enum jkind {
    J_MISSING, /* an argument that was not given; never seen by a template */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STRING,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_RANGE,    /* range(...) */
    J_ITERATOR, /* result of map, select and similar filters; can be iterated once */
    J_VIEW,     /* result of .items() and similar methods */
    J_NAMESPACE,
    J_LOOP,     /* the loop variable */
    J_METHOD,   /* a method bound to its object */
    J_FUNCTION, /* a global function */
    J_MACRO,
    J_HUGE,  /* an integer beyond 64 bits */
    J_TURNS, /* a cycler or joiner */
    J_SELF,  /* self */
    J_BLOCK, /* a member of self, or super */
    J_MODULE /* an imported template */
} jkind;

typedef struct jvalue jvalue;

#define JGROUP "grouper" /* view of a tuple with the members grouper and list */
/* Deepest nesting of lists and dictionaries, for functions that build values. */
#define JVALUE_MAX_DEPTH 200

typedef struct jlist {
    jvalue *items;
    size_t n;
    int depth;        /* 1 + depth of the deepest item */
    size_t at;        /* J_ITERATOR: index of the next item */
    const char *view; /* J_VIEW: its type, such as "dict_items"; J_TUPLE: NULL or JGROUP */
} jlist;

typedef struct jrange {
    int64_t start, stop, step, n;
} jrange;

/* Why a value is undefined: the name is unknown, or its owner lacks the member. */
typedef struct jundefined {
    str message; /* "'x' is undefined" */
} jundefined;

struct jvalue {
    uint8_t kind; /* jkind */
    bool safe;    /* J_STRING: already escaped (Markup) */
    /* other kinds than strings: from the variables, or computed from such values. The
     * origins of a text are in the arena */
    bool is_input;
    union {
        bool b;
        int64_t i;
        double f;
        str s;
        jlist *list;        /* J_LIST, J_TUPLE, J_ITERATOR, J_VIEW */
        struct jdict *dict; /* J_DICT, J_NAMESPACE */
        jrange *range;
        jundefined *undefined;
        struct jloop *loop;
        struct jmethod *method;
        const struct jfunction *function;
        struct jmacro *macro;
        const struct jbig *big;
        struct jturns *turns;
        struct jblock_ref *block; /* J_SELF, J_BLOCK */
        struct jmodule *module;
    } u;
};

static inline jvalue jnone(void) {
    return (jvalue){.kind = J_NONE};
}
static inline jvalue jbool(bool b) {
    return (jvalue){.kind = J_BOOL, .u.b = b};
}
static inline jvalue jint(int64_t i) {
    return (jvalue){.kind = J_INT, .u.i = i};
}
static inline jvalue jfloat(double f) {
    return (jvalue){.kind = J_FLOAT, .u.f = f};
}
static inline jvalue jstring(str s) {
    /* not NULL, so that pointer arithmetic is valid */
    return (jvalue){.kind = J_STRING, .u.s = {s.p != NULL ? s.p : "", s.n}};
}
static inline bool jis(jvalue v, jkind kind) {
    return v.kind == kind;
}
bool jbig_equals_double(const struct jbig *x, double f);
/* Whether v is a J_INT or J_BOOL: in Python a bool is an int. */
static inline bool jis_integer(jvalue v) {
    return v.kind == J_INT || v.kind == J_BOOL;
}
static inline int64_t jas_integer(jvalue v) {
    return v.kind == J_BOOL ? v.u.b : v.u.i;
}
/* Whether v is an integer of any size. */
static inline bool jis_whole(jvalue v) {
    return jis_integer(v) || v.kind == J_HUGE;
}
static inline bool jis_number(jvalue v) {
    return jis_integer(v) || v.kind == J_FLOAT;
}
static inline double jas_double(jvalue v) {
    return v.kind == J_FLOAT ? v.u.f : (double)jas_integer(v);
}
/* Whether jrun_items returns this value's elements. */
static inline bool jis_listlike(jvalue v) {
    return v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_VIEW || v.kind == J_ITERATOR;
}

/* Truth as in Python. */
bool jvalue_truth(jvalue v);
/* Python's ==. Each part that is compared counts as a step, since values that share parts
 * may have many more parts than are stored. Errors of jsteps_take. */
quire_err jvalue_equal(jsteps *s, jvalue a, jvalue b, bool *out);
/* Python's `is` or ==, as containers find items. All NaN are one object here. */
quire_err jvalue_matches(jsteps *s, jvalue a, jvalue b, bool *out);
/* The nesting depth of a list or dictionary; 0 for other values. */
int jvalue_depth(jvalue v);
/* The type's name in Python's error messages ("str", "NoneType"), or in Jinja's ("str
 * object", "None"). */
const char *jvalue_type(jvalue v);

/* A list, tuple, iterator or view of n borrowed items. J_MISSING: out of memory. */
jvalue jvalue_list(jarena *a, jkind kind, jvalue *items, size_t n);
/* Reverses the order of n items. */
void jvalues_reverse(jvalue *items, size_t n);

/* ---- dictionaries: in insertion order, with keys unique by == ---- */

typedef struct jentry {
    jvalue key, value;
    uint64_t hash;
} jentry;

typedef struct jdict {
    jentry *entries;
    size_t n, cap;
    uint32_t *index; /* open addressing: entry number + 1, or 0; NULL while small */
    size_t n_index;  /* size of index, a power of two */
    int depth;
} jdict;

jdict *jdict_new(jarena *a);
/* Finds the value of a key; NULL if absent. QUIRE_BAD_REQUEST: a key that Python cannot
 * hash; errors of jsteps_take, as in jvalue_equal. */
quire_err jdict_get(jsteps *s, const jdict *d, jvalue key, const jvalue **out);
/* Adds or replaces an entry. Errors as in jdict_get, QUIRE_NO_MEMORY; they leave d
 * unchanged. */
quire_err jdict_set(jarena *a, jsteps *s, jdict *d, jvalue key, jvalue value);

/* ---- characters (UTF-8; a byte that is not part of a character counts as one) ---- */

/* The length in bytes of the character at p[0..n), n > 0. */
size_t jchar_size(const char *p, size_t n);
/* The code point at p, and its size in bytes; -1 for a stray byte. */
int32_t jchar_at(const char *p, size_t n, size_t *size);
/* Writes a code point as UTF-8 to out[4]; returns the number of bytes. */
size_t jchar_put(int32_t c, char *out);
size_t jstr_length(str s);
/* The substring of up to n characters from character `start` (at most jstr_length) on. */
str jstr_part(str s, size_t start, size_t n);
/* Whether c is in one of these Unicode general categories, a set of JCATEGORY(LU), ...; a
 * stray byte (-1) is in CN. */
bool jchar_in(int32_t c, uint32_t categories);
#define JCATEGORY(name) (1 << UTF8PROC_CATEGORY_##name)
/* Python's str.isprintable and str.isspace for a character. */
bool jchar_is_printable(int32_t c);
bool jchar_is_space(int32_t c);
/* s without spaces (jchar_is_space) at the chosen ends. */
str jstr_strip(str s, bool left, bool right);
/* The first byte offset of needle at or after `from`; SIZE_MAX: none. */
size_t jstr_find(str s, str needle, size_t from);
/* Compares by code point, like Python; in UTF-8 that is by byte. Returns <0, 0 or >0. */
int jstr_compare(str a, str b);

/* Whether s is one of the n names. */
bool jname_in(str s, const char *const *names, size_t n);
/* The last character of s; s.n > 0. */
str jstr_last(str s);

/* ---- values as text ---- */

/* Append str(v), or repr(v). QUIRE_UNSUPPORTED for values without a stable text
 * (iterators, functions). */
quire_err jvalue_write(jvalue v, jout *out);
quire_err jvalue_write_repr(jvalue v, jout *out);
/* Appends a float as Python's repr does. */
quire_err jfloat_write(double f, jout *out);

#endif
