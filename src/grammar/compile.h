/* Compilers of each kind of grammar: from text to the rules of an nfa, rule 0 first. Private to this room.
 *
 * Each appends to b->a; failures are b's. The caller finishes the nfa. */
#ifndef GRAMMAR_COMPILE_H
#define GRAMMAR_COMPILE_H

#include "grammar/build.h"

void compile_regex(build *b, str text);
void compile_choice(build *b, str text);
/* GBNF, or W3C's notation. */
void compile_ebnf(build *b, str text, bool w3c);
/* Lark's notation. */
void compile_lark(build *b, str text);
void compile_schema(build *b, str text);
/* Any JSON object. */
void compile_object(build *b);

#endif
