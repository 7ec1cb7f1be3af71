/* A render in progress: its state, and the functions that the evaluator's files share.
 *
 * Functions return QUIRE_OK, or set the render's error (with line and column of the node
 * being evaluated) and return its code. */
#ifndef JINJA_JINJA_RUN_H
#define JINJA_JINJA_RUN_H

#include "jinja/jinja_ast.h"

typedef struct jscope jscope;
typedef enum jflow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } jflow;

typedef struct jrun {
    jarena arena;
    const jinja_program *program;
    struct jtemplate *template; /* the template being executed */
    jout *out;                  /* the current output; NULL: output is dropped */
    jout scratch;
    const struct tm *now; /* NULL: the local time */
    quire_error *err;
    const jnode *at; /* the node being evaluated */
    int depth;
    bool autoescape;
    /* in an expression that Jinja evaluates at compile time: a failed slice is
     * undefined */
    bool folds;
    jsteps steps;
    uint64_t chance; /* state of the random filter's generator */
    jflow flow;      /* a break or continue that has not reached its loop yet */
} jrun;

/* Variables of a template, loop body, macro or block. A name is looked up here, then in
 * the parents, then in the outermost scope's context, then in the globals. */
struct jscope {
    jscope *parent;
    struct jbinding {
        str name;
        jvalue value;
    } * bindings;
    size_t n, cap;
    bool captured;  /* a macro refers to it, so it may outlive its statement */
    jdict *context; /* the outermost scope of a template: its variables; else NULL */
};

/* A template being executed, with those that it extends. */
typedef struct jtemplate {
    jscope *root;
    const jinja_program *parent; /* the template that it extends; NULL: none */
    const jnode **blocks;        /* the blocks of all these templates, those of extending templates first */
    size_t n_blocks, cap;
} jtemplate;

/* The value of self (no block) or of a block. */
typedef struct jblock_ref {
    jtemplate *template;
    size_t block;
} jblock_ref;

/* The value of an import. */
typedef struct jmodule {
    jdict *names;
    str text;
} jmodule;

/* The evaluated arguments of a call. */
typedef struct jargs {
    const jvalue *values;
    size_t n;
    const str *names; /* names of the last n_named values; empty for the others */
    size_t n_named;
} jargs;

/* A filter, test, method or global.
 *   params  names separated by spaces; "?name" may be omitted (then J_MISSING); a last
 *           "*" accepts further arguments, passed in rest
 *   args    one value per name; the first is the input, or the method's object
 *   how     selects among functions that share a call
 *   call    NULL: Jinja has the function, but this build refuses it by name */
typedef struct jfunction {
    const char *name, *params;
    quire_err (*call)(jrun *r, int how, const jvalue *args, const jargs *rest, jvalue *out);
    int how;
} jfunction;

/* The head of such a function; most use only some of its parameters. */
#define JFUNCTION(name)                                                                                      \
    quire_err name(__attribute__((unused)) jrun *r, __attribute__((unused)) int how,                         \
                   __attribute__((unused)) const jvalue *args, __attribute__((unused)) const jargs *rest,    \
                   __attribute__((unused)) jvalue *out)

typedef struct jmethod {
    const jfunction *function;
    jvalue self;
} jmethod;

/* A cycler; or a joiner, which returns its item from the second call on. */
typedef struct jturns {
    const jvalue *items;
    size_t n, at;
    bool joins;
} jturns;

typedef struct jmacro {
    const jnode *node;
    jscope *scope; /* the scope where the macro was defined */
} jmacro;

typedef struct jloop {
    const jvalue *items;
    size_t n, index;
    int depth;
    const jnode *node;
    jscope *scope;        /* the scope around the loop, for recursive calls */
    const jargs *changed; /* arguments of the last call of loop.changed */
} jloop;

/* ---- steps and errors (jinja.c) ---- */

quire_err jrun_fail(jrun *r, quire_err code, const char *format, ...) __attribute__((format(printf, 3, 4)));
quire_err jrun_no_memory(jrun *r);
/* Turns a result of jsteps_take or turn_poll into the render's error: QUIRE_OK,
 * QUIRE_CANCELLED, or QUIRE_TOO_LARGE if the render is out of steps or time. */
quire_err jrun_over(jrun *r, quire_err e);
/* Turns the result of a call that can only run out of memory into the render's error. */
quire_err jrun_memory(jrun *r, quire_err e);
/* The error of an allocation that returned p: QUIRE_OK unless p is NULL. */
quire_err jrun_check_memory(jrun *r, const void *p);
/* The error for an integer that is too big to compute, or to use here. */
quire_err jrun_too_big(jrun *r);
/* Counts n steps against the limit. */
quire_err jrun_step(jrun *r, size_t n);
/* Starts evaluating a node: takes a step and goes one level deeper. The caller decrements
 * the level at the end. */
quire_err jrun_enter(jrun *r, const jnode *node);
/* The error for using an undefined value. */
quire_err jrun_undefined(jrun *r, jvalue v);

/* ---- making values (jinja.c) ---- */

/* Allocates n values in the arena. */
quire_err jrun_values(jrun *r, size_t n, jvalue **out);
quire_err jrun_list(jrun *r, jkind kind, jvalue *items, size_t n, jvalue *out);
/* Makes an empty dictionary. */
quire_err jrun_dict(jrun *r, jdict **out);
/* Appends right to left, like jarena_append. */
quire_err jrun_append(jrun *r, str left, str right, str *out);
/* jvalue_equal and jvalue_matches, with the render's error. */
quire_err jrun_equal(jrun *r, jvalue a, jvalue b, bool *out);
quire_err jrun_matches(jrun *r, jvalue a, jvalue b, bool *out);
/* Adds to a dictionary. An unhashable key is an error. */
quire_err jrun_set(jrun *r, jdict *d, jvalue key, jvalue value);
/* Finds the value of a key; NULL if absent. An unhashable key is an error. */
quire_err jrun_get(jrun *r, const jdict *d, jvalue key, const jvalue **out);
/* Makes a string with a copy of these bytes. */
quire_err jrun_text(jrun *r, str s, jvalue *out);
quire_err jrun_make_undefined(jrun *r, jvalue *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends str(v) to *out; an escaped string as it is. */
quire_err jrun_write(jrun *r, jvalue v, jout *out);
/* Sets *out to str(v) in the arena; for a string, to v's own text. */
quire_err jrun_to_text(jrun *r, jvalue v, str *out);
/* Sets *out to v's text. A TypeError if v is no string; `what` is its name there. */
quire_err jrun_want_text(jrun *r, jvalue v, const char *what, str *out);
quire_err jrun_want_integer(jrun *r, jvalue v, const char *what, int64_t *out);
/* Whether an optional argument is present and not none. */
static inline bool jgiven(jvalue v) {
    return !jis(v, J_MISSING) && !jis(v, J_NONE);
}
/* Whether an optional flag is present and true. */
static inline bool jflag(jvalue v) {
    return !jis(v, J_MISSING) && jvalue_truth(v);
}
/* An empty output of this render; the caller deinits it. */
jout jrun_out(jrun *r);
/* Adds s to the scratch buffer, with its own origins or with one origin. */
quire_err jrun_add_as(jrun *r, str s, uint8_t origin);
quire_err jrun_add(jrun *r, str s);
/* Makes a string of the scratch buffer's text. */
quire_err jrun_scratch(jrun *r, jvalue *out);
/* Makes a string of the buffer's text, unless e, the result of filling it, is an error.
 * Frees the buffer. */
quire_err jrun_take_text(jrun *r, quire_err e, jout *text, jvalue *out);
/* The items of an iteration over v. Exhausts an iterator. */
quire_err jrun_items(jrun *r, jvalue v, const jvalue **items, size_t *n);
/* The origin of the character at byte i of s. */
static inline uint8_t jrun_origin(const jrun *r, str s, size_t i) {
    return jorigins_at(jarena_origins(&r->arena, s), i);
}
/* Escapes & < > ' " for HTML. A safe string stays as it is. */
quire_err jrun_escape(jrun *r, jvalue v, jvalue *out);

/* ---- expressions and statements ---- */

quire_err jeval(jrun *r, const jnode *node, jscope *scope, jvalue *out); /* jinja_eval.c */
quire_err jexec(jrun *r, const jnode *node, jscope *scope);              /* jinja_exec.c */
/* Executes a body with its output as a string. */
quire_err jexec_capture(jrun *r, const jnode *body, jscope *scope, jvalue *out);
quire_err jexec_for(jrun *r, const jnode *node, jscope *scope, jvalue iterable, int depth);
quire_err jscope_new(jrun *r, jscope *parent, jscope **out);
quire_err jscope_set(jrun *r, jscope *s, str name, jvalue value);

/* Evaluates the arguments of a call, filter or test. */
quire_err jeval_args(jrun *r, const jnode *node, jscope *scope, jargs *args);

/* ---- blocks, and templates that use others (jinja_templates.c) ---- */

/* Executes a program, and those that it extends, with root as the outermost scope. */
quire_err jexec_template(jrun *r, const jinja_program *p, jscope *root);
quire_err jexec_block(jrun *r, const jnode *node, jscope *scope);
quire_err jexec_extends(jrun *r, const jnode *node, jscope *scope);
quire_err jexec_include(jrun *r, const jnode *node, jscope *scope);
/* Executes an N_IMPORT or N_FROM. */
quire_err jexec_import(jrun *r, const jnode *node, jscope *scope);
/* Makes the value of `self`. */
quire_err jblock_self(jrun *r, jvalue *out);
/* A block of self by name, or the block that this one overrides (super); J_MISSING:
 * none. */
quire_err jblock_member(jrun *r, jvalue object, str name, jvalue *out);
/* Calls a block; *out is its text. */
quire_err jblock_call(jrun *r, const jblock_ref *b, const jargs *args, jvalue *out);

/* ---- operators (jinja_ops.c) ---- */

quire_err jop_binary(jrun *r, jop op, jvalue a, jvalue b, jvalue *out);
quire_err jop_negate(jrun *r, bool minus, jvalue a, jvalue *out);
quire_err jop_compare(jrun *r, jcompare op, jvalue a, jvalue b, bool *out);
/* Orders values like Python: *order is <0, 0, >0, or 2 if they are unordered (NaN). */
quire_err jop_order(jrun *r, const char *symbol, jvalue a, jvalue b, int *order);

/* ---- formatting (jinja_percent.c) ---- */

/* Computes format % args. */
quire_err jformat_percent(jrun *r, jvalue format, jvalue args, jvalue *out);
/* Computes format.format(args). */
quire_err jformat_braces(jrun *r, jvalue format, const jargs *args, jvalue *out);

/* ---- members, items, calls ---- */

quire_err jget_member(jrun *r, jvalue object, str name, jvalue *out); /* jinja_member.c */
quire_err jget_item(jrun *r, jvalue object, jvalue key, jvalue *out);
bool jcan_slice(jvalue v, const jvalue bounds[3]);
quire_err jget_slice(jrun *r, jvalue object, const jvalue bounds[3], jvalue *out); /* J_NONE if omitted */
/* Follows a path like "city.zip" or "0", for filters with attribute=. fallback
 * (J_MISSING: none) replaces undefined values on the way. */
quire_err jget_path(jrun *r, jvalue object, jvalue path, jvalue fallback, jvalue *out);
quire_err jcall(jrun *r, jvalue callee, const jargs *args, jvalue *out); /* jinja_eval.c */
/* The argument with this name; J_MISSING: none. */
jvalue jargs_named(const jargs *args, str name);
/* args without the first n, which must be positional. */
jargs jargs_without(const jargs *args, size_t n);
/* Calls a function of the tables; input, unless NULL, goes before args. */
quire_err jcall_function(jrun *r, const jfunction *f, const jvalue *input, const jargs *args, jvalue *out);

/* ---- case, with Python's full mappings (jinja_case.c) ---- */

/* CASE_WORDS: the first character of each word, after spaces and opening brackets,
 * becomes upper case. */
typedef enum jcase { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP, CASE_WORDS } jcase;
quire_err jcase_map(jrun *r, str s, jcase how, jvalue *out);
/* Python's islower and isupper. */
bool jcase_is(str s, bool upper);
bool jchar_is_alpha(int32_t c);
/* Python's istitle. */
bool jcase_is_title(str s);
/* Python's casefold. */
quire_err jcase_fold(jrun *r, str s, jvalue *out);
bool jchar_is_decimal(int32_t c);
bool jchar_is_digit(int32_t c);
bool jchar_is_numeric(int32_t c);

/* Splits s into lines like Python's splitlines. */
quire_err jstr_split_lines(jrun *r, str s, bool keep_ends, jvalue **lines, size_t *n);

/* A SecurityError if the name is not allowed in a namespace (jinja_globals.c). */
quire_err jrun_check_stored(jrun *r, jvalue name);

/* ---- look-ups in tables; NULL: no such name ---- */

const jfunction *jinja_find_filter(str name);
const jfunction *jinja_find_test(str name);
const jfunction *jinja_find_global(str name);
const jfunction *jinja_find_method(jvalue object, str name);
const jfunction *jfunction_find(const jfunction *table, size_t n, str name);

/* Whether a method of strings escapes what it inserts into an escaped string; the others
 * are not supported on such strings. */
bool jinja_escapes(const jfunction *f);

/* ---- JSON (jinja_json.c) ---- */

quire_err jjson_read(jrun *r, str text, jvalue *out);
typedef struct jjson_style {
    bool ascii, sort_keys;
    bool indented;
    str indent; /* spaces per level, if indented */
    str item_separator, key_separator;
} jjson_style;
quire_err jjson_write(jrun *r, jvalue v, const jjson_style *style, jout *out);

/* A flag argument, by default false. Python accepts integers and booleans. */
quire_err jarg_flag(jrun *r, jvalue v, const char *what, bool *out);

/* ---- one value by a format specification (jinja_percent.c) ---- */

#define JFORMAT_MAX_WIDTH 1000000

typedef struct jformat_spec {
    str fill;          /* one character */
    char align;        /* '<', '>', '^', '='; 0: by the kind of value */
    char sign;         /* '+', ' ' or '-' */
    bool alternate;    /* 0x before the digits, a point after them */
    char group;        /* ',' or '_' between groups of digits; 0: none */
    int64_t width;     /* least number of characters */
    int64_t precision; /* -1: not given */
    char type;         /* 0: by the kind of value */
} jformat_spec;

/* Appends v: a number, a text, or str(v). QUIRE_BAD_REQUEST if v cannot have this
 * type. */
quire_err jformat_value(jrun *r, jvalue v, const jformat_spec *spec, jout *out);

#endif
