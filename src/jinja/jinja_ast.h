/* A template as tokens and as a tree, shared by jinja_lex.c, jinja_parse.c, jinja_expr.c
 * and the files that walk the tree. Stored in the program's arena; immutable after
 * open. */
#ifndef JINJA_JINJA_AST_H
#define JINJA_JINJA_AST_H

#include "jinja/jinja.h"
#include "jinja/jinja_value.h"

#define JINJA_MAX_ARGUMENTS 64
#define JINJA_MAX_CHAIN     500 /* longest chain of operators, members or filters */

typedef enum jtoken_kind {
    T_END,
    T_FAULT, /* not a token: jinja_lex failed here, and its error says why */
    T_DATA,
    T_PRINT_BEGIN,
    T_PRINT_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OPERATOR
} jtoken_kind;

typedef struct jtoken {
    jtoken_kind kind;
    uint32_t line, column;
    str text;     /* data, a name or an operator; a string's content */
    jvalue value; /* numbers */
} jtoken;

/* Splits source into tokens. The last one is T_END, or T_FAULT where there is no valid
 * token; then *err says why. The caller frees *tokens with mem_free. QUIRE_NO_MEMORY. */
quire_err jinja_lex(str source, jinja_options options, jarena *arena, jtoken **tokens, quire_error *err);

typedef enum jnode_kind {
    /* expressions, with the members that they use */
    N_CONST, /* value */
    N_NAME,  /* name */
    N_LIST,
    N_TUPLE,  /* items */
    N_DICT,   /* items: key, value, key, value ... */
    N_MEMBER, /* a.name */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* b of N_ITEM: items[0]:items[1]:items[2], each may be NULL */
    N_CALL,   /* a(items); names[i] is empty for a positional argument */
    N_FILTER, /* a|filter(items), names; in a filter block a is NULL */
    N_TEST,   /* a is test(items), names */
    N_NEGATE,
    N_PLUS,
    N_NOT,
    N_BINARY,  /* a op b */
    N_CONCAT,  /* items joined by ~ */
    N_COMPARE, /* a ops[0] items[0] ops[1] items[1] ... */
    N_AND,
    N_OR,
    N_COND, /* b if a else c (may be NULL) */
    /* statements, with the members that they use */
    N_BODY,         /* items */
    N_DATA,         /* name: the text */
    N_PRINT,        /* a */
    N_IF,           /* if a: b, else c (may be NULL) */
    N_FOR,          /* for a in b if c (may be NULL): body, else `otherwise` (may be NULL) */
    N_SET,          /* a = b; a is a name, a tuple of names, or an N_MEMBER of a namespace */
    N_SET_BLOCK,    /* a = body, passed through the filter chain b (may be NULL) */
    N_MACRO,        /* name(items), the last n_more with defaults in more; body */
    N_CALL_BLOCK,   /* a: the call; b: the body as an N_MACRO named caller */
    N_FILTER_BLOCK, /* a: the filter chain; the body that it is applied to */
    N_WITH,         /* items: targets, more: values; body */
    N_SCOPE,        /* body in a scope of its own */
    N_AUTOESCAPE,   /* body; its prints are escaped if a is true */
    N_BLOCK,        /* name: body; scoped, required */
    N_EXTENDS,      /* a: the name of a template */
    N_INCLUDE,      /* a: a name, or a list of names */
    N_IMPORT,       /* a as name */
    N_FROM,         /* from a import names[i] as items[i] */
    N_BREAK,
    N_CONTINUE
} jnode_kind;

typedef enum jop { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOOR_DIV, OP_MOD, OP_POW } jop;
typedef enum jcompare { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN } jcompare;

typedef struct jnode jnode;
struct jnode {
    uint8_t kind; /* jnode_kind */
    uint8_t op;   /* N_BINARY: jop */
    /* height of the chain of expressions to its left; N_COND: or of its value */
    uint16_t height;
    bool recursive;                     /* N_FOR */
    bool scoped, required;              /* N_BLOCK */
    bool folds;                         /* N_PRINT: Jinja would evaluate this expression at compile time */
    bool with_context, ignores_missing; /* N_INCLUDE, N_IMPORT, N_FROM */
    /* N_CALL, N_FILTER, N_TEST: the name of some argument is "*" or "**" */
    bool unpacks;
    bool uses_varargs, uses_kwargs, uses_caller; /* N_MACRO */
    uint32_t line, column;
    str name;
    jvalue value;
    jnode *a, *b, *c, *body, *otherwise;
    jnode **items, **more;
    size_t n, n_more;
    str *names;                       /* names of arguments or imports */
    uint8_t *ops;                     /* N_COMPARE: jcompare of each */
    const struct jfunction *function; /* N_FILTER, N_TEST; NULL: unknown, an error when reached */
};

#define JINJA_MAX_DEFINED 4

struct jinja_program {
    jarena arena;
    jnode *root;
    struct {
        str name, text;
    } defined[JINJA_MAX_DEFINED];
    size_t n_defined;
    jinja_words own;
    const jinja_set *set; /* NULL: there are no other templates */
    jnode **blocks;
    size_t n_blocks;
    bool uses_others;
};

typedef struct jnodes {
    jnode **p;
    size_t n, cap;
} jnodes;

/* The parser's state, for jinja_parse.c and jinja_expr.c. */
typedef struct jparser {
    const jtoken *at; /* the next token */
    jarena *arena;
    quire_error *err; /* set at T_FAULT to the lexer's error */
    /* Errors that Jinja reports only if there is no syntax error; code QUIRE_OK: none.
     * unknown: the first unknown filter or test. stray: the first break or continue
     * outside a loop, or duplicate argument, which Python's compiler refuses. */
    quire_error unknown, stray;
    int depth;
    /* in a branch, where an unknown filter or test is an error only when evaluated, as in
     * Jinja */
    bool soft;
    int loops;                  /* enclosing for loops in this macro */
    int fors;                   /* all enclosing for loops */
    struct jnames_used *macros; /* enclosing macros, innermost first */
    jnodes *blocks;             /* the template's blocks, in the order in which they end */
    bool uses_others;           /* it extends, includes or imports another template */
} jparser;

typedef struct jnames_used {
    bool varargs, kwargs, caller;
    struct jnames_used *outer;
} jnames_used;

/* Sets err to "line L, column C: message" with a code, which it returns. */
quire_err jinja_error(quire_error *err, quire_err code, uint32_t line, uint32_t column, const char *format,
                      ...) __attribute__((format(printf, 5, 6)));
quire_err jparse_fail(jparser *p, quire_err code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records an error in *first, a member of the parser, unless it already has one. */
void jparse_note(jparser *p, quire_error *first, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The error of an allocation that returned p: QUIRE_OK unless p is NULL. */
quire_err jparse_check_memory(jparser *parser, const void *p);
/* Enters a deeper level. Every recursion of the parser passes through a function that
 * calls this and undoes it. */
quire_err jparse_enter(jparser *p);
quire_err jparse_node(jparser *p, jnode_kind kind, const jtoken *at, jnode **out);
quire_err jparse_add(jparser *p, jnodes *list, jnode *node);
static inline void jnode_set_items(jnode *node, const jnodes *items) {
    node->items = items->p;
    node->n = items->n;
}
/* Makes a tuple of items that begins at start; without a comma, returns the only item. */
quire_err jparse_make_tuple(jparser *p, const jtoken *start, bool comma, const jnodes *items, jnode **out);
bool jparse_is_op(const jparser *p, const char *op);
bool jparse_is_name(const jparser *p, const char *name);
/* Skips the next token if it is this operator or name; returns whether it was. */
bool jparse_skip_op(jparser *p, const char *op);
bool jparse_skip_name(jparser *p, const char *name);
quire_err jparse_expect_op(jparser *p, const char *op);
quire_err jparse_expect_name(jparser *p, str *name);

/* Parses an expression (jinja_expr.c). with_cond: it may be of the form `x if y`. */
quire_err jparse_expression(jparser *p, bool with_cond, jnode **out);
/* Parses an expression with_cond and appends it to list. */
quire_err jparse_add_expression(jparser *p, jnodes *list);
/* Parses an expression, or several separated by commas as a tuple. */
quire_err jparse_tuple(jparser *p, bool with_cond, jnode **out);
/* Whether a tuple without parentheses ends here, after a comma. */
bool jparse_ends_tuple(const jparser *p);
quire_err jparse_primary(jparser *p, jnode **out);
/* Parses the filters of a filter or set block, separated by |: a chain that starts at
 * NULL. */
quire_err jparse_filter_chain(jparser *p, jnode **out);

/* Parses a template: sets the program's root, blocks and uses_others. */
quire_err jinja_parse(const jtoken *tokens, jinja_program *program, quire_error *err);

#endif
