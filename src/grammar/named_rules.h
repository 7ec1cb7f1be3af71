/* Rules that a text names, before and after it defines them: of GBNF, W3C's EBNF and
 * Lark's notation. Private to this room.
 *
 * A rule is known by its place in the list, 0 for the first that was named. Its number in
 * the nfa is another where the nfa has rules already. */
#ifndef GRAMMAR_NAMED_RULES_H
#define GRAMMAR_NAMED_RULES_H

#include "grammar/ast.h"

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
