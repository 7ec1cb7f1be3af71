/* Shapes: intersection, union and emptiness. */
#include "grammar/value_shape.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "grammar/parts.h"

/* Formats of JSON Schema (draft 2020-12, section 7.3), by the RFC that each refers to. */

/* RFC 3339: days by month, with February 29 in years divisible by 4, except those
 * divisible by 100 but not by 400. */
#define YEAR   "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define LEAP   "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DAYS28 "(?:0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                                 \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:" DAYS28 "|29|30|31)|(?:0[469]|11)-(?:" DAYS28                     \
    "|29|30)|02-" DAYS28 ")|" LEAP "-02-29)"
#define TIME                                                                                                 \
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]" \
    ")|23:59" FORMAT_LEAP "(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00))"

/* RFC 1123 */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL ")*"
/* RFC 5321, without quoted local parts and address literals */
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

/* RFC 2673, RFC 4291 */
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  OCTET "\\." OCTET "\\." OCTET "\\." OCTET
#define H     "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                                 \
    "(?:(?:" H ":){7}(?:" H "|:)|(?:" H ":){6}(?::" H "|" IPV4 "|:)|(?:" H ":){5}(?:(?::" H "){1,2}|:" IPV4  \
    "|:)|(?:" H ":){4}(?:(?::" H "){1,3}|(?::" H ")?:" IPV4 "|:)|(?:" H ":){3}(?:(?::" H "){1,4}|(?::" H     \
    "){0,2}:" IPV4 "|:)|(?:" H ":){2}(?:(?::" H "){1,5}|(?::" H "){0,3}:" IPV4 "|:)|" H ":(?:(?::" H         \
    "){1,6}|(?::" H "){0,4}:" IPV4 "|:)|:(?:(?::" H "){1,7}|(?::" H "){0,5}:" IPV4 "|:))"

/* RFC 3986 */
#define PCT       "%[0-9A-Fa-f]{2}"
#define PCHAR     "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define PCHAR_NC  "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PCT ")"
#define USERINFO  "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*"
#define REGNAME   "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")*"
#define IPVFUTURE "[Vv][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+"
#define AUTHORITY "(?:" USERINFO "@)?(?:" REGNAME "|\\[(?:" IPV6 "|" IPVFUTURE ")\\])(?::[0-9]*)?"
#define TAIL      "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define HIER                                                                                                 \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR "*)*|)"
#define RELATIVE                                                                                             \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR_NC "+(?:/" PCHAR "*)*|)"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:" HIER TAIL

/* RFC 6901, RFC 6570 */
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define VARNAME "(?:[A-Za-z0-9_]|" PCT ")(?:\\.?(?:[A-Za-z0-9_]|" PCT "))*"
#define VARSPEC VARNAME "(?::[1-9][0-9]{0,3}|\\*)?"
/* ucschar and iprivate, in assigned planes */
#define UCS                                                                                                  \
    "\\u00a0-\\ud7ff\\ue000-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"                \
    "\\u{30000}-\\u{3fffd}\\u{e1000}-\\u{efffd}\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}"
#define TEMPLATE                                                                                             \
    "(?:[!#$&()*+,./0-9:;=?@A-Z\\[\\]_a-z~" UCS "-]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC       \
    ")*\\})*"

/* ISO 8601 as in appendix A of RFC 3339 */
#define TIME_PART "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DURATION                                                                                             \
    "P(?:(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)(?:" TIME_PART ")?|" TIME_PART       \
    "|[0-9]+W)"

#define UUID "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

static const schema_format formats[] = {
    {"date", DATE, false},
    {"time", TIME, true},
    {"date-time", DATE "[Tt]" TIME, true},
    {"duration", DURATION, false},
    {"email", ATOM "(?:\\." ATOM ")*@" HOST, false},
    {"hostname", HOST, false},
    {"ipv4", IPV4, false},
    {"ipv6", IPV6, false},
    {"uri", URI, false},
    {"uri-reference", "(?:" URI "|" RELATIVE TAIL ")", false},
    {"uri-template", TEMPLATE, false},
    {"uuid", UUID, false},
    {"json-pointer", POINTER, false},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")", false},
    {"idn-email", NULL, false},
    {"idn-hostname", NULL, false},
    {"iri", NULL, false},
    {"iri-reference", NULL, false},
    {"regex", NULL, false},
};

const schema_format *schema_format_find(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

struct kept_block {
    kept_block *next;
    size_t used, size;
    max_align_t data[];
};

void *schema_keep(schema *s, size_t n, size_t size) {
    assert(s != NULL);
    size_t bytes = (n * size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (s->b->failed != QUIRE_OK || n > SIZE_MAX / 64 / (size > 0 ? size : 1)) {
        return NULL;
    }
    if (s->blocks == NULL || s->blocks->size - s->blocks->used < bytes) {
        size_t room = bytes > 16384 ? bytes : 16384;
        s->b->bytes -= (int64_t)room;
        kept_block *block = s->b->bytes >= 0 ? mem_new(1, sizeof *block + room) : NULL;
        if (block == NULL) {
            (void)build_fail(s->b, QUIRE_TOO_LARGE, -1, "the schema takes too much memory; make it smaller");
            return NULL;
        }
        block->size = room;
        block->next = s->blocks;
        s->blocks = block;
    }
    void *p = (char *)s->blocks->data + s->blocks->used;
    s->blocks->used += bytes;
    return p;
}

void schema_free_kept(schema *s) {
    assert(s != NULL);
    while (s->blocks != NULL) {
        kept_block *next = s->blocks->next;
        s->b->bytes += (int64_t)s->blocks->size; /* returned to the build's budget */
        mem_free(s->blocks);
        s->blocks = next;
    }
}

void schema_join(schema *s, void *parts_p, uint32_t *n, const void *from, uint32_t n_from, size_t size) {
    void *old, *p;
    memcpy(&old, parts_p, sizeof old);
    if (n_from == 0) {
        return;
    }
    if (*n == 0) {
        p = schema_keep(s, n_from, size);
    } else {
        p = build_step(s->b, *n + n_from) ? schema_keep(s, (size_t)*n + n_from, size) : NULL;
    }
    if (p == NULL) {
        return;
    }
    mem_copy(p, old, *n * size);
    memcpy((char *)p + *n * size, from, n_from * size);
    memcpy(parts_p, &p, sizeof p);
    *n += n_from;
}

void *schema_append(schema *s, void *parts_p, uint32_t *n, size_t size) {
    assert(n != NULL);
    char *p;
    memcpy(&p, parts_p, sizeof p);
    if ((*n & (*n - 1)) == 0) { /* capacity doubles at each power of two */
        char *larger = build_step(s->b, *n + 1) ? schema_keep(s, *n == 0 ? 1 : (size_t)*n * 2, size) : NULL;
        if (larger == NULL) {
            return NULL;
        }
        mem_copy(larger, p, *n * size);
        p = larger;
        memcpy(parts_p, &p, sizeof p);
    }
    return p + (*n)++ * size;
}

void shape_any(schema *s, shape *out) {
    *out = (shape){.null = true, .yes = true, .no = true};
    (void)PART_ADD(s, out->numbers, (number_part){0});
    (void)PART_ADD(s, out->strings, (string_part){DFA_ANY, 0, NFA_NONE, false});
    (void)PART_ADD(s, out->arrays, (array_part){.max = NFA_NONE});
    (void)PART_ADD(s, out->objects, (object_part){.max = NFA_NONE});
}

static bool string_is_any(const string_part *p) {
    return p->dfa == DFA_ANY && p->min == 0 && p->max == NFA_NONE;
}
static bool array_is_any(const array_part *p) {
    return p->layers.n == 0 && p->contains.n == 0 && p->min == 0 && p->max == NFA_NONE && !p->unique;
}
static bool object_is_any(const object_part *p) {
    return p->layers.n == 0 && p->required.n == 0 && p->name_exprs.n == 0 && p->rules.n == 0 && p->min == 0 &&
           p->max == NFA_NONE;
}

/* The sizes are small: each type is checked against SHAPE_MAX_PARTS. */
static bool value_shape_fits(schema *s, uint32_t x, uint32_t y) {
    if ((uint64_t)x * y > SHAPE_MAX_PARTS) {
        (void)build_fail(s->b, QUIRE_UNSUPPORTED, -1,
                         "anyOf, oneOf and allOf combine to over %d alternatives", SHAPE_MAX_PARTS);
    }
    return s->b->failed == QUIRE_OK;
}

static uint32_t value_shape_larger(uint32_t x, uint32_t y) {
    return x > y ? x : y;
}
static uint32_t value_shape_smaller(uint32_t x, uint32_t y) {
    return x < y ? x : y;
}

/* The dfa of a string part, limited to its length. */
static uint32_t string_dfa(schema *s, const string_part *p) {
    assert(p != NULL);
    if (p->min == 0 && p->max == NFA_NONE) {
        return p->dfa;
    }
    return dfa_combine(s->dfas, p->dfa, dfa_length(s->dfas, p->min, p->max), DFA_AND);
}

/* Whether a text with FORMAT_LEAP may satisfy p. */
static bool may_leap(schema *s, const string_part *p) {
    return p->is_loose ||
           !dfa_is_empty(s->dfas,
                         dfa_combine(s->dfas, p->dfa, dfa_pattern(s->dfas, str_of(FORMAT_LEAP)), DFA_AND));
}

static bool string_and(schema *s, const string_part *x, const string_part *y, string_part *out) {
    bool is_loose = (x->is_loose || y->is_loose) && may_leap(s, x) && may_leap(s, y);
    *out = (string_part){dfa_combine(s->dfas, x->dfa, y->dfa, DFA_AND), value_shape_larger(x->min, y->min),
                         value_shape_smaller(x->max, y->max), is_loose};
    if (out->min > out->max || dfa_is_empty(s->dfas, out->dfa)) {
        return out->min <= out->max && out->is_loose;
    }
    const dfa_lengths *l = out->dfa != DFA_ANY && (out->min > 0 || out->max != NFA_NONE)
                               ? dfa_lengths_of(s->dfas, out->dfa)
                               : NULL;
    bool all = false, some = l == NULL || dfa_lengths_meet(l, out->min, out->max, &all);
    if (all) { /* the length is no restriction */
        out->min = 0;
        out->max = NFA_NONE;
    }
    return some || out->is_loose;
}

static bool array_and(schema *s, const array_part *x, const array_part *y, array_part *out) {
    *out = *x;
    PARTS_JOIN(s, out->layers, y->layers);
    PARTS_JOIN(s, out->contains, y->contains);
    out->min = value_shape_larger(x->min, y->min);
    out->max = value_shape_smaller(x->max, y->max);
    out->unique = x->unique || y->unique;
    return out->min <= out->max;
}

bool object_requires(const object_part *o, str name) {
    for (uint32_t i = 0; i < o->required.n; i++) {
        if (str_eq(o->required.p[i], name)) {
            return true;
        }
    }
    return false;
}

/* The layer that names all allowed members; NULL: others are allowed. */
static const object_layer *closed_layer(const object_part *o) {
    for (uint32_t i = 0; i < o->layers.n; i++) {
        if (o->layers.p[i].rest == EXPR_NEVER && o->layers.p[i].patterns.n == 0) {
            return &o->layers.p[i];
        }
    }
    return NULL;
}

/* Makes a member required, with this expression for its value. */
static void require_member(schema *s, object_part *o, str name, uint32_t value) {
    object_layer l = {.rest = EXPR_ANY, .silent = true};
    if (PART_ADD(s, l.names, (named_expr){name, value})) {
        PARTS_JOIN(s, o->layers, ((PARTS(object_layer)){&l, 1}));
    }
    if (!object_requires(o, name)) {
        PARTS_JOIN(s, o->required, ((PARTS(str)){&name, 1}));
    }
}

/* Settles rules that only listed names can satisfy: false if none can; if only one can,
 * it becomes required. */
static bool settle_rules(schema *s, object_part *o) {
    const object_layer *closed = o->rules.n > 0 ? closed_layer(o) : NULL;
    PARTS(member_rule) left = {0};
    for (uint32_t i = 0; i < o->rules.n; i++) {
        member_rule r = o->rules.p[i];
        const named_expr *only = NULL;
        uint32_t n = 0;
        for (uint32_t k = 0; closed != NULL && k < closed->names.n; k++) {
            const named_expr *name = &closed->names.p[k];
            bool may = dfa_accepts(s->dfas, r.dfa, name->name) &&
                       expr_and(s, object_member(s, o, name->name), r.expr) != EXPR_NEVER;
            n += may;
            only = may ? name : only;
        }
        if (closed == NULL || n > 1) {
            PARTS_JOIN(s, left, ((PARTS(member_rule)){&r, 1}));
        } else if (n == 1) {
            require_member(s, o, only->name, r.expr);
        } else {
            return false;
        }
    }
    o->rules.p = left.p;
    o->rules.n = left.n;
    return true;
}

static bool object_and(schema *s, const object_part *x, const object_part *y, object_part *out) {
    *out = *x;
    PARTS_JOIN(s, out->layers, y->layers);
    PARTS_JOIN(s, out->name_exprs, y->name_exprs);
    PARTS_JOIN(s, out->rules, y->rules);
    for (uint32_t i = 0; i < y->required.n; i++) {
        if (!object_requires(x, y->required.p[i])) {
            PARTS_JOIN(s, out->required, ((PARTS(str)){&y->required.p[i], 1}));
        }
    }
    out->min = value_shape_larger(x->min, y->min);
    out->max = value_shape_smaller(x->max, y->max);
    if (!settle_rules(s, out)) {
        return false;
    }
    for (uint32_t i = 0; i < out->required.n; i++) {
        if (object_member(s, out, out->required.p[i]) == EXPR_NEVER) {
            return false;
        }
    }
    return out->min <= out->max && out->required.n <= out->max && (out->rules.n == 0 || out->max > 0);
}

void shape_and(schema *s, const shape *x, const shape *y, shape *out) {
    *out = (shape){.null = x->null && y->null, .yes = x->yes && y->yes, .no = x->no && y->no};
    if (!value_shape_fits(s, x->numbers.n, y->numbers.n) ||
        !value_shape_fits(s, x->strings.n, y->strings.n) || !value_shape_fits(s, x->arrays.n, y->arrays.n) ||
        !value_shape_fits(s, x->objects.n, y->objects.n)) {
        return;
    }
#define EACH_PAIR(list, type, meet)                                                                          \
    for (uint32_t i = 0; i < x->list.n; i++) {                                                               \
        for (uint32_t k = 0; k < y->list.n && build_step(s->b, 1); k++) {                                    \
            type both;                                                                                       \
            if (meet) {                                                                                      \
                (void)PART_ADD(s, out->list, both);                                                          \
            }                                                                                                \
        }                                                                                                    \
    }
    EACH_PAIR(numbers, number_part, number_intersect(s->b, &x->numbers.p[i], &y->numbers.p[k], &both))
    EACH_PAIR(strings, string_part, string_and(s, &x->strings.p[i], &y->strings.p[k], &both))
    EACH_PAIR(arrays, array_part, array_and(s, &x->arrays.p[i], &y->arrays.p[k], &both))
    EACH_PAIR(objects, object_part, object_and(s, &x->objects.p[i], &y->objects.p[k], &both))
#undef EACH_PAIR
}

void shape_or(schema *s, const shape *x, const shape *y, shape *out) {
    shape or = {.null = x->null || y->null, .yes = x->yes || y->yes, .no = x->no || y->no};
    /* an unrestricted alternative makes the others redundant */
#define UNITE(list, is_any)                                                                                  \
    do {                                                                                                     \
        bool first = !s->annotations && x->list.n == 1 && is_any(&x->list.p[0]);                             \
        bool second = !s->annotations && y->list.n == 1 && is_any(&y->list.p[0]);                            \
        or.list.p = second ? y->list.p : x->list.p;                                                          \
        or.list.n = second ? y->list.n : x->list.n;                                                          \
        if (!first && !second) {                                                                             \
            PARTS_JOIN(s, or.list, y->list);                                                                 \
        }                                                                                                    \
        (void)value_shape_fits(s, or.list.n, 1);                                                             \
    } while (0)
    UNITE(numbers, number_is_free);
    UNITE(strings, string_is_any);
    UNITE(arrays, array_is_any);
    UNITE(objects, object_is_any);
#undef UNITE
    *out = or ;
}

/* ---- emptiness ---- */

/* Whether x may allow this name. False: certainly not. */
static bool may_be_named(schema *s, uint32_t x, str name) {
    uint32_t names;
    expr_probe around = expr_probe_begin(s);
    bool may = shape_strings(s, expr_shape(s, x), &names) && dfa_accepts(s->dfas, names, name);
    return expr_probe_end(s, around) || may;
}

uint32_t object_member(schema *s, const object_part *o, str name) {
    assert(o != NULL);
    uint32_t all = EXPR_ANY;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        const object_layer *l = &o->layers.p[i];
        bool found = false;
        for (uint32_t k = 0; k < l->names.n && build_step(s->b, 1); k++) {
            if (str_eq(l->names.p[k].name, name)) {
                all = expr_and(s, all, l->names.p[k].expr);
                found = true;
            }
        }
        for (uint32_t k = 0; k < l->patterns.n && build_step(s->b, 1); k++) {
            if (dfa_accepts(s->dfas, l->patterns.p[k].dfa, name)) {
                all = expr_and(s, all, l->patterns.p[k].expr);
                found = true;
            }
        }
        all = found ? all : expr_and(s, all, l->rest);
    }
    for (uint32_t i = 0; i < o->name_exprs.n && all != EXPR_NEVER; i++) {
        all = may_be_named(s, o->name_exprs.p[i], name) ? all : EXPR_NEVER;
    }
    return all;
}

bool shape_strings(schema *s, const shape *x, uint32_t *out) {
    assert(x != NULL);
    uint32_t all = 0;
    for (uint32_t i = 0; i < x->strings.n; i++) {
        uint32_t one = string_dfa(s, &x->strings.p[i]);
        all = i == 0 ? one : dfa_combine(s->dfas, all, one, DFA_OR);
    }
    *out = all;
    return x->strings.n > 0;
}

static bool object_is_empty(schema *s, const object_part *o, int depth) {
    for (uint32_t i = 0; i < o->required.n && depth > 0; i++) {
        if (expr_is_empty(s, object_member(s, o, o->required.p[i]), depth - 1)) {
            return true;
        }
    }
    return o->min > o->max || o->required.n > o->max;
}

static bool array_is_empty(schema *s, const array_part *a, int depth) {
    for (uint32_t item = 0; item < a->min && item < 16 && depth > 0; item++) {
        if (expr_is_empty(s, array_item(s, a, item), depth - 1)) {
            return true;
        }
    }
    return a->min > a->max;
}

bool shape_is_empty(schema *s, const shape *x, int depth) {
    assert(x != NULL);
    if (x->null || x->yes || x->no || x->numbers.n > 0 || x->strings.n > 0) {
        return false; /* numbers and strings that cannot be satisfied were dropped before */
    }
    for (uint32_t i = 0; i < x->arrays.n; i++) {
        if (!array_is_empty(s, &x->arrays.p[i], depth)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < x->objects.n; i++) {
        if (!object_is_empty(s, &x->objects.p[i], depth)) {
            return false;
        }
    }
    return true;
}

bool expr_is_empty(schema *s, uint32_t x, int depth) {
    if (x == EXPR_NEVER || x == EXPR_ANY) {
        return x == EXPR_NEVER;
    }
    expr_probe around = expr_probe_begin(s);
    bool is = shape_is_empty(s, expr_shape(s, x), depth);
    return !expr_probe_end(s, around) && is;
}

/* How words, strings and names are spelled, where that is not plain JSON. */

bool style_is_plain(const schema *s) {
    return s->style == STYLE_JSON && s->avoid == DFA_ANY;
}

const char *style_word(const schema *s, const char *json) {
    bool is_python = s->style == STYLE_PYTHON;
    return !is_python ? json : *json == 'n' ? "None" : *json == 't' ? "True" : "False";
}

/* The quote, where special tokens are themselves. */
static uint32_t quote(schema *s, uint32_t next) {
    return parts_emit_text(s->parts, s->arguments->quote, next);
}

/* ---- strings ---- */

static uint32_t avoiding(schema *s, const string_part *p) {
    return dfa_combine(s->dfas, p->dfa, s->avoid, DFA_AND);
}

uint32_t style_raw_string(schema *s, const string_part *p, uint32_t also, uint32_t next) {
    return schema_text(s, dfa_combine(s->dfas, avoiding(s, p), also, DFA_AND), p, NFA_RAW, next);
}

static uint32_t python_string(schema *s, const string_part *p, uint32_t next) {
    static const char quotes[] = "\"'";
    uint32_t ways[2];
    for (int i = 0; i < 2; i++) {
        str mark = {quotes + i, 1};
        uint32_t body =
            schema_text(s, dfa_quoted(s->dfas, p->dfa, quotes[i]), p, NFA_RAW, build_bytes(s->b, mark, next));
        ways[i] = body == NFA_FAIL_NODE ? body : build_bytes(s->b, mark, body);
    }
    return build_split(s->b, ways, 2);
}

static uint32_t json_string(schema *s, const string_part *p, uint32_t next) {
    uint32_t text = schema_text(s, avoiding(s, p), p, p->dfa == DFA_ANY ? NFA_JSON : NFA_PLAIN,
                                schema_literal(s, "\"", next));
    return text == NFA_FAIL_NODE ? text : schema_literal(s, "\"", text);
}

uint32_t style_string(schema *s, const string_part *p, uint32_t next) {
    assert(s != NULL);
    switch (s->style) {
    case STYLE_PYTHON:
        return python_string(s, p, next);
    case STYLE_GEMMA: {
        uint32_t text = style_raw_string(s, p, DFA_ANY, quote(s, next));
        return text == NFA_FAIL_NODE ? text : quote(s, text);
    }
    default:
        return json_string(s, p, next);
    }
}

/* ---- names ---- */

bool style_is_word(str name, const char *signs) {
    assert(signs != NULL);
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (uint8_t)c >= 0x80;
        bool is_sign = (c >= '0' && c <= '9') || (c != 0 && strchr(signs, c) != NULL);
        if (!is_letter && (i == 0 || !is_sign)) {
            return false;
        }
    }
    return name.n > 0;
}

uint32_t style_name(schema *s, str name, uint32_t next) {
    assert(s != NULL);
    if (s->style == STYLE_GEMMA) {
        return style_is_word(name, "-.") ? build_bytes(s->b, name, next) : NFA_FAIL_NODE;
    }
    if (s->style == STYLE_PYTHON) {
        return python_string(s, &(string_part){dfa_names(s->dfas, &name, 1), 0, NFA_NONE, false}, next);
    }
    return dfa_accepts(s->dfas, s->avoid, name) ? schema_json_name(s, name, next) : NFA_FAIL_NODE;
}

uint32_t style_open_names(schema *s) {
    assert(s != NULL);
    return s->style == STYLE_GEMMA    ? dfa_pattern(s->dfas, str_of(STYLE_WORDS))
           : s->style == STYLE_PYTHON ? dfa_pattern(s->dfas, str_of("^[^\\x00-\\x08\\x0B\\x0C\\x0E-\\x1F]*$"))
                                      : s->avoid;
}

uint32_t style_open_name(schema *s, const open_way *w, uint32_t next) {
    assert(s != NULL);
    static const char quotes[] = "\"'";
    uint32_t ways[2], n = s->style == STYLE_PYTHON ? 2 : 1;
    if (s->style == STYLE_GEMMA) {
        return schema_open_name(s, w, w->names, NFA_RAW, next);
    }
    for (uint32_t i = 0; i < n; i++) {
        str mark = {quotes + i, 1};
        uint32_t names = n > 1 ? dfa_quoted(s->dfas, w->names, quotes[i]) : w->names;
        uint32_t text =
            schema_open_name(s, w, names, n > 1 ? NFA_RAW : NFA_JSON, build_bytes(s->b, mark, next));
        ways[i] = text == NFA_FAIL_NODE ? text : build_bytes(s->b, mark, text);
    }
    return build_split(s->b, ways, n);
}
