/* Syntax trees over characters, the result of parsing a regex or EBNF. Private to this
 * room.
 *
 * Nodes are numbers; `sibling` links the children of a node. Node 0 is the empty text. */
#ifndef GRAMMAR_AST_H
#define GRAMMAR_AST_H

#include "grammar/build.h"

typedef enum ast_kind {
    AST_EMPTY,
    AST_CLASS,  /* one character out of ranges[first .. first + n) */
    AST_CAT,    /* the children in sequence */
    AST_ALT,    /* one of the children */
    AST_REPEAT, /* the child, min to max times */
    AST_START,  /* the start of the text */
    AST_END,    /* the end of the text */
    AST_MARK,   /* one special token out of the nfa's mark set `first` */
    AST_RULE    /* a call of rule `first` */
} ast_kind;

typedef struct ast_node {
    ast_kind kind;
    uint32_t child, sibling;
    uint32_t first, n; /* AST_CLASS, AST_MARK, AST_RULE */
    uint32_t min, max; /* AST_REPEAT */
    uint32_t size;     /* number of nodes when expanded, saturating */
    uint32_t depth;    /* height of the tree below the node */
} ast_node;

typedef struct ast {
    build *b;
    bool only_space; /* white space of JSON only: other characters are removed from classes */
    NFA_VEC(ast_node) nodes;
    NFA_VEC(nfa_range) ranges;
} ast;

#define AST_MAX_DEPTH 250 /* most nesting of groups */
/* Most nesting of nodes, and so of recursion over the tree: a group has an alternative, a
 * sequence and a repeat. */
#define AST_MAX_NESTED (4 * AST_MAX_DEPTH)
/* Limit on the rounds of nested counted repeats, multiplied. */
#define AST_MAX_SIZE 200000

void ast_init(ast *t, build *b);
void ast_deinit(ast *t);
/* A list of children under construction; zeroed is empty. */
typedef struct ast_list {
    uint32_t first, last, n;
} ast_list;
void ast_add(ast *t, ast_list *l, uint32_t node);
/* Makes one node of the list: its elements in sequence. */
uint32_t ast_cat(ast *t, ast_list l);
uint32_t ast_alt(ast *t, ast_list l);
/* A node's *n children from its first, for mem_free; NULL: the build failed. */
uint32_t *ast_children(const ast *t, uint32_t child, uint32_t *n);
/* The alternatives `all`, and one more: the sequence of `last`. */
uint32_t ast_alternatives(ast *t, ast_list all, ast_list last);
/* Makes a class: sorts and merges n ranges, and complements them if `negated`. */
uint32_t ast_class(ast *t, nfa_range *ranges, uint32_t n, bool negated);
uint32_t ast_char(ast *t, uint32_t c);
/* Makes a repeat. child must not be in a list, since it may become the repeat itself. */
uint32_t ast_repeat(ast *t, uint32_t child, uint32_t min, uint32_t max);
uint32_t ast_leaf(ast *t, ast_kind kind, uint32_t first);

/* Appends the tree to the nfa in raw mode; returns its first node. Anchors match only at
 * the edges of the whole text, and are refused elsewhere. edges: bit 0: the tree is at
 * the start of the text; bit 1: at its end. Rules have the nfa's numbers. */
uint32_t ast_emit(ast *t, uint32_t node, uint32_t next, unsigned edges);

/* ---- rules by name ---- */

/* Named rules of GBNF, W3C's EBNF and Lark's notation, which a text may use before it
 * defines them. Private to this room.
 *
 * A rule is known by its index in the list, 0 for the first one named. Its number in the
 * nfa differs if the nfa has rules already. */

#define NAMED_RULES_MAX 20000

typedef struct named_rule {
    str name;
    uint32_t root; /* root of its tree */
    size_t at;     /* byte offset of the first use */
    bool defined;
} named_rule;

typedef struct named_rules {
    ast *t;
    uint32_t first; /* number of rule 0 in the nfa */
    NFA_VEC(named_rule) list;
} named_rules;

/* Starts an empty list; rules are numbered after those in the nfa of t. Names are
 * borrowed. Errors go to the tree's build. */
void named_rules_init(named_rules *r, ast *t);
void named_rules_deinit(named_rules *r);
/* The rule with this name; adds it at the first use, at byte `at`. 0 after an error. */
uint32_t named_rules_find(named_rules *r, str name, size_t at);
/* Makes a node that calls rule i. */
uint32_t named_rules_call(const named_rules *r, uint32_t i);
bool named_rules_has(const named_rules *r, uint32_t i);
/* Defines rule i, which must be undefined unless the build has failed. */
void named_rules_define(named_rules *r, uint32_t i, uint32_t root);
/* Writes all rules into the nfa and rewrites left recursion. kind_of: what an error calls
 * a rule without definition. */
void named_rules_emit(named_rules *r, const char *(*kind_of)(str name));

#endif
