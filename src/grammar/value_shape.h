/* Shapes: the values that JSON may have, as alternatives for each type. Private to this
 * room.
 *
 * A schema becomes a shape (schema_ref.c); shapes are intersected, united and negated;
 * then a shape becomes nodes (schema_write.c). Values inside objects and arrays remain
 * expressions over schemas, so recursive schemas have finite shapes. Everything lives as
 * long as the compilation and is immutable once made. */
#ifndef GRAMMAR_VALUE_SHAPE_H
#define GRAMMAR_VALUE_SHAPE_H

#include <stdbool.h>

#include "grammar/dfa.h"
#include "json/json.h"

/* The formats of JSON Schema as regexes. Private to this room. */

/* A leap second is one where the time is 23:59 in UTC. The regexes for times accept it
 * only in UTC. */
#define FORMAT_LEAP ":60"

typedef struct schema_format {
    const char *name;
    const char *regex; /* matches the whole text; NULL: a standard format that is not enforced */
    bool is_loose;     /* there are more valid texts, all with FORMAT_LEAP in them (string_part) */
} schema_format;

/* Finds a format; NULL: not in the standard. */
const schema_format *schema_format_find(const char *name);

/* ---- number.c: shapes of numbers ---- */

/* Most digits before and after the point: a double has at most 309, and 341 in its
 * shortest form. */
#define DECIMAL_DIGITS 350
#define DECIMAL_ROOM   (2 * DECIMAL_DIGITS)

/* A decimal number: digits without leading zeros (except one before the point), and
 * without trailing ones after the point. Zero is not negative. */
typedef struct decimal {
    bool negative;
    uint16_t n_int, n_frac;
    const char *digits; /* borrowed */
} decimal;

/* Reads a JSON number; its digits are in `room`. False: over DECIMAL_DIGITS before or
 * after the point. */
bool decimal_read(str text, char room[DECIMAL_ROOM], decimal *out);
bool decimal_is_zero(const decimal *d);
int decimal_compare(const decimal *x, const decimal *y);
/* Appends d as JSON. QUIRE_NO_MEMORY. */
quire_err decimal_write(const decimal *d, strbuf *out);

#define NUMBER_MULTIPLES    6
#define NUMBER_MAX_MULTIPLE 100000000 /* most digits of a multiple, as a number without its point */

typedef struct number_multiple {
    uint32_t m, scale; /* m / 10^scale */
    bool negated;      /* must not be a multiple of it */
} number_multiple;

/* Numbers that satisfy all of these constraints. */
typedef struct number_part {
    bool integer;
    bool has_lo, has_hi, lo_open, hi_open, exact; /* exact: equal to lo */
    decimal lo, hi;
    uint32_t n_multiples;
    number_multiple multiples[NUMBER_MULTIPLES];
} number_part;

/* Intersects x and y. False: nothing satisfies both. Too many multiples fail the
 * build. */
bool number_intersect(build *b, const number_part *x, const number_part *y, number_part *out);
/* Whether any number satisfies it. */
bool number_is_free(const number_part *n);
/* The texts of these numbers, without exponents. */
uint32_t number_dfa(dfa_pool *p, const number_part *n, grammar_numbers spelling);

/* ---- expressions ---- */

typedef enum expr_kind {
    EXPR_IS_ANY,
    EXPR_IS_NEVER,
    EXPR_IS_SCHEMA,
    EXPR_IS_CONST,
    EXPR_IS_AND,
    EXPR_IS_OR,
    EXPR_IS_NOT,
    EXPR_IS_QUIET
} expr_kind;
#define EXPR_ANY   0u
#define EXPR_NEVER 1u

struct shape;

typedef struct expr {
    expr_kind kind;
    const json_value *value; /* of a schema, or a constant */
    uint32_t base;           /* schema: its resource */
    const char *path;        /* schema: its path */
    uint32_t *children, n;
    const struct shape *shape;
    bool open;     /* its shape is being computed */
    uint32_t rule; /* its rule, plus 1 */
} expr;

/* ---- shapes ---- */

#define PARTS(type)                                                                                          \
    struct {                                                                                                 \
        type *p;                                                                                             \
        uint32_t n;                                                                                          \
    }
#define SHAPE_MAX_PARTS 4000 /* most alternatives of one type */

typedef struct string_part {
    uint32_t dfa, min, max;
    /* texts with FORMAT_LEAP may be valid although the dfa rejects them, so a negation
     * excludes them */
    bool is_loose;
} string_part;

typedef struct array_layer {
    PARTS(uint32_t) prefix;
    uint32_t rest;
    bool has_rest, silent; /* as in object_layer */
} array_layer;
typedef struct contains_rule {
    uint32_t expr, min, max;
    uint32_t from; /* index of the first item that counts */
    bool silent;   /* as in object_layer */
} contains_rule;
/* Arrays whose items satisfy every layer. */
typedef struct array_part {
    PARTS(array_layer) layers;
    PARTS(contains_rule) contains;
    uint32_t min, max;
    bool unique;
} array_part;

typedef struct named_expr {
    str name;
    uint32_t expr;
} named_expr;
typedef struct pattern_expr {
    uint32_t dfa, expr;
} pattern_expr;
typedef struct object_layer {
    PARTS(named_expr) names;
    PARTS(pattern_expr) patterns;
    uint32_t rest;         /* for names that match neither */
    bool has_rest, silent; /* rest was given; names it matches do not count as evaluated */
    bool closes;           /* `properties` lists names, which may close the object (object_is_closed) */
} object_layer;
/* Some member must have a name in the dfa and a value of expr: what the negation of a
 * rule about unlisted names requires. */
typedef struct member_rule {
    uint32_t dfa, expr;
} member_rule;
/* Objects whose members satisfy every layer. */
typedef struct object_part {
    PARTS(object_layer) layers;
    PARTS(str) required;
    PARTS(uint32_t) name_exprs; /* for the name of every member */
    PARTS(member_rule) rules;
    uint32_t min, max;
} object_part;

typedef struct shape {
    bool null, yes, no;
    PARTS(number_part) numbers;
    PARTS(string_part) strings;
    PARTS(array_part) arrays;
    PARTS(object_part) objects;
} shape;

/* ---- the compilation of a schema ---- */

typedef struct schema_resource {
    str uri; /* without the fragment */
    const json_value *root;
    bool is_stray; /* below a keyword that has no schemas: yields to others with the same URI */
} schema_resource;
typedef struct schema_anchor {
    uint32_t resource;
    str name;
    const json_value *value;
    bool dynamic;
} schema_anchor;
typedef struct kept_block kept_block;

typedef struct shape_rule {
    shape shape;
    uint32_t rule;
    const char *path; /* its path in the schema, for errors */
} shape_rule;

/* An object or array written as elements, with the schema by which the reader finds the
 * types of what is inside. */
typedef struct element_rule {
    uint32_t x, rule;
    const json_value *of;
} element_rule;

/* How values are spelled. */
typedef enum value_style {
    STYLE_JSON,
    STYLE_PYTHON, /* Python literals: True, None, strings in either quote */
    STYLE_GEMMA   /* names without quotes, strings between equal marks */
} value_style;

struct grammar_arguments;

typedef struct schema {
    build *b;
    value_style style;
    const struct grammar_arguments *arguments; /* NULL: a single value */
    struct parts *parts;                       /* the parts that the arguments belong to */
    uint32_t avoid;                            /* the dfa of allowed strings; DFA_ANY: all */
    dfa_pool *dfas, own_dfas; /* pool of automata: common to all schemas of a grammar, or own_dfas */
    kept_block *blocks;
    NFA_VEC(expr) exprs;
    hash_index expr_index;
    NFA_VEC(uint32_t) queue;    /* expressions whose rules are to be written */
    NFA_VEC(shape_rule) shapes; /* shapes whose rules are to be written */
    NFA_VEC(element_rule) elements;
    const json_value *reading; /* the reader's schema for the object being written */
    NFA_VEC(schema_resource) resources;
    NFA_VEC(schema_anchor) anchors;
    const json_digits *digits; /* digits of numbers that doubles cannot represent; NULL: none */
    int draft;                 /* 4, 6, 7, 2019, 2020 */
    const char *writing;       /* path of the schema whose rule is being written, or of one that it joins */
    int depth;
    /* probes in progress, nested */
    uint32_t n_probes;
    bool met_open;                                               /* of the innermost probe */
    uint32_t space_rule, number_rule, integer_rule, string_rule; /* numbers plus 1 */
    bool annotations; /* some unevaluated* depends on which alternatives hold, so all must be kept */
    bool refused;     /* a keyword was refused under options->survey; the error is `first` */
    bool named;       /* the build's error names path and keyword */
    quire_error first;
} schema;

/* Allocates n * size zeroed bytes that live as long as s. NULL: the build failed. */
void *schema_keep(schema *s, size_t n, size_t size);
void schema_free_kept(schema *s);
/* Appends to PARTS: copies them with room for another one. NULL: the build failed. */
void *schema_append(schema *s, void *parts_p, uint32_t *n, size_t size);
#define PART_PUSH(s, parts) schema_append((s), &(parts).p, &(parts).n, sizeof *(parts).p)
/* Appends a copy of an element; false if the build failed. */
#define PART_ADD(s, parts, ...)                                                                              \
    (PART_PUSH(s, parts) != NULL ? ((parts).p[(parts).n - 1] = __VA_ARGS__, true) : false)
/* Sets *x to x followed by `from`. */
void schema_join(schema *s, void *parts_p, uint32_t *n, const void *from, uint32_t n_from, size_t size);
#define PARTS_JOIN(s, x, y) schema_join((s), &(x).p, &(x).n, (y).p, (y).n, sizeof *(x).p)

uint32_t expr_schema(schema *s, const json_value *v, uint32_t base, const char *path);
uint32_t expr_const(schema *s, const json_value *v);
uint32_t expr_and(schema *s, uint32_t x, uint32_t y);
uint32_t expr_or(schema *s, uint32_t x, uint32_t y);
uint32_t expr_not(schema *s, uint32_t x);
/* The values of x, but no object is closed by the names that it lists. */
uint32_t expr_quiet(schema *s, uint32_t x);
/* The shape of an expression, never NULL; empty after a failure. */
const shape *expr_shape(schema *s, uint32_t x);
/* Between begin and end, expr_shape returns the empty shape for an expression whose shape
 * is being computed, instead of failing. expr_probe_end returns whether that happened:
 * then the results are meaningless. */
typedef struct expr_probe {
    bool met_open; /* of the enclosing probe */
} expr_probe;
expr_probe expr_probe_begin(schema *s);
bool expr_probe_end(schema *s, expr_probe around);
/* Whether the shape of x is known to be empty, looking `depth` levels deep. */
bool expr_is_empty(schema *s, uint32_t x, int depth);

void shape_any(schema *s, shape *out);
void shape_and(schema *s, const shape *x, const shape *y, shape *out);
void shape_or(schema *s, const shape *x, const shape *y, shape *out);
/* Negates x; returns NULL, or why that is not possible. */
const char *shape_not(schema *s, const shape *x, shape *out);
bool shape_is_empty(schema *s, const shape *x, int depth);
/* schema_members.c: the same values, but no object is closed by the names in x; with
 * `silent`, those do not count as evaluated. */
void shape_quiet(schema *s, const shape *x, bool silent, shape *out);
/* Whether "required" has the name. */
bool object_requires(const object_part *o, str name);
/* Whether an object may only have names that it lists or requires, or that match its
 * patterns. */
bool object_is_closed(schema *s, const object_part *o);
/* schema_write.c: nodes for the bytes of text, then next. */
uint32_t schema_literal(schema *s, const char *text, uint32_t next);
/* The expression for an item of an array, by its layers. */
uint32_t array_item(schema *s, const array_part *a, uint32_t item);
/* Nodes for texts of the dfa `texts` with p's length, which is counted
 * beside it. NFA_FAIL_NODE: there are none. */
uint32_t schema_text(schema *s, uint32_t texts, const string_part *p, nfa_mode mode, uint32_t next);
/* Sets *out to a dfa of all strings of a shape. False: there are none. */
bool shape_strings(schema *s, const shape *x, uint32_t *out);
/* The expression for the value of a member. */
uint32_t object_member(schema *s, const object_part *o, str name);

/* schema_ref.c: computes the shape of a schema object. */
void schema_read(schema *s, uint32_t x, shape *out);
/* Computes the shape of a constant. */
void schema_read_const(schema *s, const json_value *v, shape *out);
/* Refuses a keyword that cannot be enforced: an error or, with options->survey, a report
 * and an error at the end. */
void schema_refuse(schema *s, const char *path, const char *keyword, const char *why);
/* Call it when something may have failed for the keyword at `path`. An error without path
 * and keyword gets both. If it cannot be enforced, or with `malformed` if it is
 * malformed, it becomes a refusal, as by schema_refuse. */
void schema_name_failure(schema *s, const char *path, const char *keyword, bool malformed);
void schema_note(schema *s, const char *path, const char *keyword, int status, const char *how);

/* value_shape_not.c: a number as it is written; keeps the digits. False: over
 * DECIMAL_DIGITS before or after the point. */
bool schema_decimal(schema *s, const json_value *v, decimal *out);
/* Whether values are equal in JSON Schema, where 1 equals 1.0, also inside. */
bool schema_equal(const schema *s, const json_value *x, const json_value *y);

/* schema_ref.c: finds the identifiers and anchors below root. */
void schema_find_resources(schema *s, const json_value *root);
/* Finds the expression that a $ref names. False: it was refused. */
bool schema_ref(schema *s, const expr *from, const char *keyword, str ref, uint32_t *out);
/* The resource of v: `base`, unless v has its own identifier. */
uint32_t schema_resource_of(const schema *s, const json_value *v, uint32_t base);
/* Whether v has a $ref that disables all other keywords, as in drafts up to 7. */
bool schema_ref_alone(const schema *s, const json_value *v);

/* The draft that a schema declares. */
int schema_draft(const json_value *v);
/* dfas: the pool for automata; NULL: one of its own. */
void schema_open(schema *s, build *b, dfa_pool *dfas, const json_value *root);
void schema_close(schema *s);

/* schema_write.c: writes rules for all expressions reachable from root, root's first. */
void schema_write(schema *s, uint32_t root);
/* Writes the rules of expressions that schema_rule has met. */
void schema_write_rest(schema *s);
/* The path of an expression in the schema, for errors; "": unknown. */
const char *schema_path_of(const schema *s, uint32_t x);
uint32_t schema_rule(schema *s, uint32_t x);
uint32_t schema_shape_rule(schema *s, const shape *x);
/* Makes a node for a value of this shape, ending in RETURN. */
uint32_t schema_value(schema *s, const shape *x);
/* White space, then next. */
uint32_t schema_space(schema *s, uint32_t next);
/* A comma and white space, ending in RETURN. */
uint32_t schema_comma(schema *s);
/* Functions that write an item, ending in RETURN. */
typedef struct item_writer {
    uint32_t (*item)(schema *s, uint32_t value);
    uint32_t comma; /* as in member_writer */
    bool comma_may_miss;
} item_writer;
/* The items of an array, then next. */
uint32_t schema_items_of(schema *s, const array_part *a, const item_writer *w, uint32_t next);
/* A name as a JSON string, then next. */
uint32_t schema_json_name(schema *s, str name, uint32_t next);

/* How an open member is written. */
typedef struct open_way {
    uint32_t names, value; /* a dfa, not empty; an expression */
    uint32_t rules;        /* rules that it satisfies */
    bool named, once; /* named: of which NFA_NAMED is told after the name; once: the name may not repeat */
    bool is_word;     /* the name has no quotes */
} open_way;

/* Functions that write a member, name and value, ending in RETURN. NFA_FAIL_NODE: it
 * cannot be written. */
typedef struct member_writer {
    uint32_t (*listed)(schema *s, str name, uint32_t value);
    uint32_t (*open)(schema *s, const open_way *w);
    uint32_t (*names)(schema *s); /* the dfa of names that open members may have in this syntax */
    uint32_t comma;               /* node for what separates members, ending in RETURN */
    bool comma_may_miss;
    bool leaves_out;     /* leaves out names that the schema does not mention */
    bool looks_at_names; /* open() supports `named` */
    bool has_words;      /* names have no quotes */
} member_writer;
/* schema_write.c: the texts of a dfa if there are at most SCHEMA_FEW, else false. The
 * texts are kept. */
#define SCHEMA_FEW 64
bool schema_few_texts(schema *s, uint32_t dfa, str texts[SCHEMA_FEW], uint32_t *n);
/* The number of texts in a dfa; NFA_NONE: over NFA_FEW_NAMES. */
uint32_t schema_count_texts(schema *s, uint32_t dfa);

/* schema_members.c: an object in braces, ending in RETURN; and only its members, then
 * next. */
uint32_t schema_object(schema *s, const object_part *o);
uint32_t schema_members(schema *s, const object_part *o, const member_writer *w, uint32_t next);

#define STYLE_WORDS "^[A-Za-z_][A-Za-z0-9_]{0,63}$" /* names of open members without quotes */

/* value_shape.c: values in other notations than plain JSON. */
bool style_is_plain(const schema *s);
const char *style_word(const schema *s, const char *json);
uint32_t style_string(schema *s, const string_part *p, uint32_t next);
/* Whether a name is letters, digits and these signs, and begins with a letter: Gemma's
 * notation ("-.") and Python ("") read it without quotes as itself. */
bool style_is_word(str name, const char *signs);
uint32_t style_name(schema *s, str name, uint32_t next);
/* Names that open members may have; and one such name as w describes, spelled like a
 * string or, in Gemma's notation, as itself. */
uint32_t style_open_names(schema *s);
uint32_t style_open_name(schema *s, const open_way *w, uint32_t next);
/* The text of such a name without what surrounds it. names: as spelled. */
uint32_t schema_open_name(schema *s, const open_way *w, uint32_t names, nfa_mode mode, uint32_t next);
/* A string without quotes and escapes, restricted to what `also` accepts. */
uint32_t style_raw_string(schema *s, const string_part *p, uint32_t also, uint32_t next);

#endif
