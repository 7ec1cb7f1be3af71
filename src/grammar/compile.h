/* Compilers of each kind of grammar: from text to rules of an nfa. Private to this room.
 *
 * Each appends to b->a; the first rule that it adds is the whole text's. Failures are
 * b's. The caller finishes the nfa. */
#ifndef GRAMMAR_COMPILE_H
#define GRAMMAR_COMPILE_H

#include "grammar/build.h"

/* Any kind; refuses texts that are too long. */
void compile_rule(build *b, grammar_kind kind, str text);
/* Finishes b and makes its nfa a grammar. */
quire_err compile_finish(build *b, grammar **out);

/* GBNF, or W3C's notation. */
void compile_ebnf(build *b, str text, bool w3c);
/* Lark's notation. */
void compile_lark(build *b, str text);
void compile_schema(build *b, str text);
/* Any JSON object. */
void compile_object(build *b);

#endif
