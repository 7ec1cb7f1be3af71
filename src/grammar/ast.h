/* Expressions over characters as a tree: what regexes and EBNF parse to. Private to this
 * room.
 *
 * Nodes are numbers; children are a list by `sibling`. Node 0 is the empty text. */
#ifndef GRAMMAR_AST_H
#define GRAMMAR_AST_H

#include "grammar/build.h"

typedef enum ast_kind {
    AST_EMPTY,
    AST_CLASS,  /* one character of ranges[first .. first + n) */
    AST_CAT,    /* children one after the other */
    AST_ALT,    /* one of the children */
    AST_REPEAT, /* child min to max times */
    AST_START,  /* nothing precedes */
    AST_END,    /* nothing follows */
    AST_MARK,   /* one special token of the nfa's set of marks number first */
    AST_RULE    /* rule number first */
} ast_kind;

typedef struct ast_node {
    ast_kind kind;
    uint32_t child, sibling;
    uint32_t first, n; /* of AST_CLASS, AST_MARK, AST_RULE */
    uint32_t min, max; /* of AST_REPEAT */
    uint32_t size;     /* nodes that it takes when it is written out, saturating */
    uint32_t depth;    /* of the nodes below it */
} ast_node;

typedef struct ast {
    build *b;
    bool only_space; /* white space of JSON alone: other characters are taken out of classes */
    NFA_VEC(ast_node) nodes;
    NFA_VEC(nfa_range) ranges;
} ast;

#define AST_MAX_DEPTH 250 /* of groups */
/* Of nodes: a group has an alternative, a sequence and a repeat. What walks the tree
 * calls itself as often. */
#define AST_MAX_NESTED (4 * AST_MAX_DEPTH)
/* Rounds of nested repeats together; more are refused. */
#define AST_MAX_SIZE 200000

void ast_init(ast *t, build *b);
void ast_deinit(ast *t);
/* A list of children under construction: {0} is empty. */
typedef struct ast_list {
    uint32_t first, last, n;
} ast_list;
void ast_add(ast *t, ast_list *l, uint32_t node);
/* The list as one node. */
uint32_t ast_cat(ast *t, ast_list l);
uint32_t ast_alt(ast *t, ast_list l);
/* Sorts and merges the n ranges, and takes their complement where `negated`. */
uint32_t ast_class(ast *t, nfa_range *ranges, uint32_t n, bool negated);
uint32_t ast_char(ast *t, uint32_t c);
/* child must be in no list: it may become the repeat. */
uint32_t ast_repeat(ast *t, uint32_t child, uint32_t min, uint32_t max);
uint32_t ast_leaf(ast *t, ast_kind kind, uint32_t first);

/* Appends the tree to the nfa in raw mode; returns its first node. `edges`: bit 0, it is
 * at the beginning of the whole text; bit 1, at its end: there anchors match, elsewhere
 * they are refused. Rules have the numbers of the nfa's. */
uint32_t ast_emit(ast *t, uint32_t node, uint32_t next, unsigned edges);

/* ---- rules by name ---- */

/* Rules that a text names, before and after it defines them: of GBNF, W3C's EBNF and
 * Lark's notation. Private to this room.
 *
 * A rule is known by its place in the list, 0 for the first that was named. Its number in
 * the nfa is another where the nfa has rules already. */

#define NAMED_RULES_MAX 20000

typedef struct named_rule {
    str name;
    uint32_t root; /* of its tree */
    size_t at;     /* where it was named first */
    bool defined;
} named_rule;

typedef struct named_rules {
    ast *t;
    uint32_t first; /* number of rule 0 in the nfa */
    NFA_VEC(named_rule) list;
} named_rules;

/* Begins an empty list after the rules that the nfa of t has. The names are borrowed.
 * Errors are those of the tree's build. */
void named_rules_init(named_rules *r, ast *t);
void named_rules_deinit(named_rules *r);
/* The rule of that name, a new one at its first mention, at byte `at`. After an error
 * 0. */
uint32_t named_rules_find(named_rules *r, str name, size_t at);
/* A leaf that calls rule i. */
uint32_t named_rules_call(const named_rules *r, uint32_t i);
bool named_rules_has(const named_rules *r, uint32_t i);
/* Defines rule i, which is not yet, unless the build failed. */
void named_rules_define(named_rules *r, uint32_t i, uint32_t root);
/* Writes all rules into the nfa and makes left recursion right. kind_of is what an error
 * calls a rule without definition. */
void named_rules_emit(named_rules *r, const char *(*kind_of)(str name));

#endif
