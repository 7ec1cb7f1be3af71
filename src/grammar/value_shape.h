/* Shapes: what a JSON value may be, as alternatives for each type. Private to this room.
 *
 * A schema becomes a shape (schema_ref.c), shapes are joined, cut with each other and
 * negated, and a shape becomes nodes (schema_write.c). Values inside objects and arrays
 * stay expressions over schemas, so recursive schemas have finite shapes. Everything
 * lives as long as the compilation; nothing here changes once made. */
#ifndef GRAMMAR_VALUE_SHAPE_H
#define GRAMMAR_VALUE_SHAPE_H

#include <stdbool.h>

#include "grammar/dfa.h"
#include "json/json.h"

/* The formats of JSON Schema as regexes. Private to this room. */

/* A second of this number is one where it is 23:59 in UTC. The regexes of times have it
 * in UTC alone. */
#define FORMAT_LEAP ":60"

typedef struct schema_format {
    const char *name;
    const char *regex; /* of the whole text; NULL: a format of the standard that has none */
    bool is_loose;     /* the format has more texts, all of them with FORMAT_LEAP in them: string_part */
} schema_format;

/* Finds a format; NULL: the standard has none of that name. */
const schema_format *schema_format_find(const char *name);

/* ---- number.c: shapes of numbers ---- */

/* before and after the point: a double has at most 309, and 341 as it is written
 * shortest */
#define DECIMAL_DIGITS 350
#define DECIMAL_ROOM   (2 * DECIMAL_DIGITS)

/* A decimal number; digits without leading zeros (but one before the point) and without
 * trailing ones after the point. Zero isn't negative. */
typedef struct decimal {
    bool negative;
    uint16_t n_int, n_frac;
    const char *digits; /* borrowed */
} decimal;

/* Reads a number of JSON; its digits lie in room. false: there are more than
 * DECIMAL_DIGITS before or after the point. */
bool decimal_read(str text, char room[DECIMAL_ROOM], decimal *out);
bool decimal_is_zero(const decimal *d);
int decimal_compare(const decimal *x, const decimal *y);
/* Appends it as JSON. */
quire_err decimal_write(const decimal *d, strbuf *out);

#define NUMBER_MULTIPLES    6
#define NUMBER_MAX_MULTIPLE 100000000 /* digits of one, without its point */

typedef struct number_multiple {
    uint32_t m, scale; /* m / 10^scale */
    bool negated;      /* not a multiple */
} number_multiple;

/* Numbers that satisfy all of it. */
typedef struct number_part {
    bool integer;
    bool has_lo, has_hi, lo_open, hi_open, exact; /* exact: lo alone */
    decimal lo, hi;
    uint32_t n_multiples;
    number_multiple multiples[NUMBER_MULTIPLES];
} number_part;

/* x and y together; false: nothing satisfies both. Too many multiples fail the build. */
bool number_intersect(build *b, const number_part *x, const number_part *y, number_part *out);
/* Whether any number will do. */
bool number_is_free(const number_part *n);
/* The texts, without exponents. */
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
    const json_value *value; /* of a schema or a constant */
    uint32_t base;           /* of a schema: its resource */
    const char *path;        /* of a schema: its place */
    uint32_t *children, n;
    const struct shape *shape;
    bool open;     /* its shape is being made */
    uint32_t rule; /* plus 1 */
} expr;

/* ---- shapes ---- */

#define PARTS(type)                                                                                          \
    struct {                                                                                                 \
        type *p;                                                                                             \
        uint32_t n;                                                                                          \
    }
#define SHAPE_MAX_PARTS 4000 /* alternatives of one type */

typedef struct string_part {
    uint32_t dfa, min, max;
    /* a text with FORMAT_LEAP in it may satisfy the schema though the dfa rejects it: a
     * negation leaves such texts out */
    bool is_loose;
} string_part;

typedef struct array_layer {
    PARTS(uint32_t) prefix;
    uint32_t rest;
    bool has_rest, silent; /* as of object_layer */
} array_layer;
typedef struct contains_rule {
    uint32_t expr, min, max;
    uint32_t from; /* the first item that counts */
    bool silent;   /* as of object_layer */
} contains_rule;
/* Items satisfy every layer. */
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
    uint32_t rest;         /* of names that match neither */
    bool has_rest, silent; /* rest was given; what it names doesn't count as evaluated */
    bool closes;           /* a `properties` lists names: the object is closed to others (object_is_closed) */
} object_layer;
/* Some member has a name that the dfa accepts and a value of expr: what a negated rule
 * about names that are not listed requires. */
typedef struct member_rule {
    uint32_t dfa, expr;
} member_rule;
/* Members satisfy every layer. */
typedef struct object_part {
    PARTS(object_layer) layers;
    PARTS(str) required;
    PARTS(uint32_t) name_exprs; /* of every member's name */
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
    str uri; /* without fragment */
    const json_value *root;
    bool is_stray; /* below a keyword that holds no schemas; others of the same URI win */
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
    const char *path; /* for errors */
} shape_rule;

/* An object or array that is written as elements, and the schema by which the reader
 * types what is inside. */
typedef struct element_rule {
    uint32_t x, rule;
    const json_value *of;
} element_rule;

/* How values are spelt. */
typedef enum value_style {
    STYLE_JSON,
    STYLE_PYTHON, /* literals: True, None, strings in either quote */
    STYLE_GEMMA   /* names without quotes, strings between two equal marks */
} value_style;

struct grammar_arguments;

typedef struct schema {
    build *b;
    value_style style;
    const struct grammar_arguments *arguments; /* NULL: a single value */
    struct parts *parts;                       /* of the arguments */
    uint32_t avoid;                            /* a dfa: what strings may be; DFA_ANY: everything */
    dfa_pool *dfas, own_dfas;                  /* dfas: those of all schemas of a grammar, or own ones */
    kept_block *blocks;
    NFA_VEC(expr) exprs;
    hash_index expr_index;
    NFA_VEC(uint32_t) queue;    /* expressions whose rules are to be written */
    NFA_VEC(shape_rule) shapes; /* and shapes */
    NFA_VEC(element_rule) elements;
    const json_value *reading; /* the reader's schema of the object whose members are written */
    NFA_VEC(schema_resource) resources;
    NFA_VEC(schema_anchor) anchors;
    const json_digits *digits; /* of numbers that the schema's doubles don't say; NULL: there are none */
    int draft;                 /* 4, 6, 7, 2019, 2020 */
    const char *writing;       /* path of the schema whose rule is written, or one of those that it joins */
    int depth;
    /* expr_probe_begin: under way, one inside the other */
    uint32_t n_probes;
    bool met_open;                                               /* of the innermost */
    uint32_t space_rule, number_rule, integer_rule, string_rule; /* plus 1 */
    bool annotations; /* some unevaluated* depends on which alternatives hold, so none may be left out */
    bool refused;     /* some keyword, with options->survey: the error is `first` */
    bool named;       /* the build's error has path and keyword */
    quire_error first;
} schema;

/* n * size zeroed bytes that live as long as s; NULL: the build failed. */
void *schema_keep(schema *s, size_t n, size_t size);
void schema_free_kept(schema *s);
/* Appends to PARTS: a copy with room for one more; NULL: the build failed. */
void *schema_append(schema *s, void *parts_p, uint32_t *n, size_t size);
#define PART_PUSH(s, parts) schema_append((s), &(parts).p, &(parts).n, sizeof *(parts).p)
/* *x = x then y. */
void schema_join(schema *s, void *parts_p, uint32_t *n, const void *from, uint32_t n_from, size_t size);
#define PARTS_JOIN(s, x, y) schema_join((s), &(x).p, &(x).n, (y).p, (y).n, sizeof *(x).p)

uint32_t expr_schema(schema *s, const json_value *v, uint32_t base, const char *path);
uint32_t expr_const(schema *s, const json_value *v);
uint32_t expr_and(schema *s, uint32_t x, uint32_t y);
uint32_t expr_or(schema *s, uint32_t x, uint32_t y);
uint32_t expr_not(schema *s, uint32_t x);
/* The same values, but none of its objects is closed by what it lists. */
uint32_t expr_quiet(schema *s, uint32_t x);
/* The shape of an expression; never NULL: after a failure the empty one. */
const shape *expr_shape(schema *s, uint32_t x);
/* Between both calls expr_shape gives the empty shape for an expression whose shape is
 * being made, rather than failing. The second call returns whether it has: then nothing
 * is known. */
typedef struct expr_probe {
    bool met_open; /* of the probe around it */
} expr_probe;
expr_probe expr_probe_begin(schema *s);
bool expr_probe_end(schema *s, expr_probe around);
/* Whether the shape of x is known to have nothing in it, to a depth of `depth` levels. */
bool expr_is_empty(schema *s, uint32_t x, int depth);

void shape_any(schema *s, shape *out);
void shape_and(schema *s, const shape *x, const shape *y, shape *out);
void shape_or(schema *s, const shape *x, const shape *y, shape *out);
/* NULL, or why it cannot be done. */
const char *shape_not(schema *s, const shape *x, shape *out);
bool shape_is_empty(schema *s, const shape *x, int depth);
/* schema_members.c: the same values, but no object is closed by what x lists; with
 * `silent` what it lists does not count as evaluated. */
void shape_quiet(schema *s, const shape *x, bool silent, shape *out);
/* Whether an object holds only names that it lists or requires, and those of its
 * patterns. */
bool object_is_closed(schema *s, const object_part *o);
/* schema_write.c: what the dfa `texts` accepts, of p's length, which is counted beside
 * the dfa. NFA_FAIL_NODE: there is none. */
uint32_t schema_text(schema *s, uint32_t texts, const string_part *p, nfa_mode mode, uint32_t next);
/* All strings of a shape as one dfa in *out; false: there are none. */
bool shape_strings(schema *s, const shape *x, uint32_t *out);
/* What a member must be. */
uint32_t object_member(schema *s, const object_part *o, str name);

/* schema_ref.c: the shape of one schema object. */
void schema_read(schema *s, uint32_t x, shape *out);
/* The shape of a constant. */
void schema_read_const(schema *s, const json_value *v, shape *out);
/* Says that a keyword cannot be enforced: an error, or with options->survey a report and
 * the error later. */
void schema_refuse(schema *s, const char *path, const char *keyword, const char *why);
/* After something that may have failed for the keyword at `path`: an error without path
 * and keyword gets both. What cannot be enforced becomes a refusal, as schema_refuse has
 * it; with `malformed` so does what is malformed. */
void schema_name_failure(schema *s, const char *path, const char *keyword, bool malformed);
void schema_note(schema *s, const char *path, const char *keyword, int status, const char *how);

/* value_shape_not.c: a number as it is written; its digits are kept. false: over
 * DECIMAL_DIGITS before or after the point. */
bool schema_decimal(schema *s, const json_value *v, decimal *out);
/* Whether two values are equal as JSON Schema has it: 1 is 1.0, also inside. */
bool schema_equal(const schema *s, const json_value *x, const json_value *y);

/* schema_ref.c */
void schema_find_resources(schema *s, const json_value *root);
/* The expression that a $ref names; false: it was refused. */
bool schema_ref(schema *s, const expr *from, const char *keyword, str ref, uint32_t *out);
/* The resource of v, which is `base` unless v has an identifier of its own. */
uint32_t schema_resource_of(const schema *s, const json_value *v, uint32_t base);
/* Whether v has a $ref beside which nothing counts, as in drafts up to 7. */
bool schema_ref_alone(const schema *s, const json_value *v);

/* The draft that a schema names. */
int schema_draft(const json_value *v);
/* dfas: where its automata are made; NULL: in a pool of its own. */
void schema_open(schema *s, build *b, dfa_pool *dfas, const json_value *root);
void schema_close(schema *s);

/* schema_write.c: rules of all expressions reachable from root, the first of which is
 * root's. */
void schema_write(schema *s, uint32_t root);
/* The same of those that schema_rule has met. */
void schema_write_rest(schema *s);
/* The place of an expression in the schema's text, for errors; "": unknown. */
const char *schema_path_of(const schema *s, uint32_t x);
uint32_t schema_rule(schema *s, uint32_t x);
uint32_t schema_shape_rule(schema *s, const shape *x);
/* A node for a value of the shape, ending in RETURN. */
uint32_t schema_value(schema *s, const shape *x);
/* White space, then next. */
uint32_t schema_space(schema *s, uint32_t next);
/* A comma and white space, ending in RETURN. */
uint32_t schema_comma(schema *s);
/* Writes one item, ending in RETURN. */
typedef struct item_writer {
    uint32_t (*item)(schema *s, uint32_t value);
    uint32_t comma; /* as of member_writer */
    bool comma_may_miss;
} item_writer;
/* The items of an array, then next. */
uint32_t schema_items_of(schema *s, const array_part *a, const item_writer *w, uint32_t next);
/* A name as JSON writes it. */
uint32_t schema_json_name(schema *s, str name, uint32_t next);

/* An open member. */
typedef struct open_way {
    uint32_t names, value; /* a dfa, not empty; an expression */
    uint32_t rules;        /* that it satisfies; */
    bool named, once;      /* NFA_NAMED is told of them after the name; the name comes once */
    bool is_word;          /* it is written without quotes */
} open_way;

/* Writes one member, from its name to its value, ending in RETURN; NFA_FAIL_NODE: it
 * cannot be written. */
typedef struct member_writer {
    uint32_t (*listed)(schema *s, str name, uint32_t value);
    uint32_t (*open)(schema *s, const open_way *w);
    uint32_t (*names)(schema *s); /* the dfa of those that open members may have in this syntax */
    uint32_t comma;               /* a node between two members, ending in RETURN */
    bool comma_may_miss;
    bool leaves_out;     /* names that the schema does not mention */
    bool looks_at_names; /* open() can do `named` */
    bool has_words;      /* names stand without quotes */
} member_writer;
/* schema_write.c: the texts of a dfa, if there are at most SCHEMA_FEW; else false. They
 * are kept. */
#define SCHEMA_FEW 64
bool schema_few_texts(schema *s, uint32_t dfa, str texts[SCHEMA_FEW], uint32_t *n);
/* How many texts a dfa has; NFA_NONE: over NFA_FEW_NAMES. */
uint32_t schema_count_texts(schema *s, uint32_t dfa);

/* schema_arguments.c: a value of the reader's schema `of` between its tags, then end. */
uint32_t element_value(schema *s, uint32_t x, const json_value *of, uint32_t end);
/* The rules of the objects and arrays that element_value has met. */
void element_write_rest(schema *s);

/* schema_members.c: an object in braces, ending in RETURN; and the members of an object,
 * then next. */
uint32_t schema_object(schema *s, const object_part *o);
uint32_t schema_members(schema *s, const object_part *o, const member_writer *w, uint32_t next);

/* schema_arguments.c: the arguments that are one text of a grammar; a node that ends in
 * RETURN. */
uint32_t argument_text(schema *s);

#define STYLE_WORDS "^[A-Za-z_][A-Za-z0-9_]{0,63}$" /* names of open members that stand without quotes */

/* value_shape.c: spellings other than plain JSON. */
bool style_is_plain(const schema *s);
const char *style_word(const schema *s, const char *json);
uint32_t style_string(schema *s, const string_part *p, uint32_t next);
/* Whether a name without quotes is read as itself in Gemma's notation. */
bool style_is_word(str name);
uint32_t style_name(schema *s, str name, uint32_t next);
/* Names that open members may have; and one of them as w describes, spelt as a string is
 * or, in Gemma's notation, as itself. */
uint32_t style_open_names(schema *s);
uint32_t style_open_name(schema *s, const open_way *w, uint32_t next);
/* The name's text, without what surrounds it; names: as they are spelt. */
uint32_t schema_open_name(schema *s, const open_way *w, uint32_t names, nfa_mode mode, uint32_t next);
/* A string without quotes and escapes, of those that `also` accepts. */
uint32_t style_raw_string(schema *s, const string_part *p, uint32_t also, uint32_t next);

#endif
