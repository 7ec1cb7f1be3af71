/* Compilers for each kind of grammar: from text to rules of an nfa. Private to this room.
 *
 * Each appends to b->a; the first rule it adds matches the whole text. Failures go to b.
 * The caller finishes the nfa. */
#ifndef GRAMMAR_COMPILE_H
#define GRAMMAR_COMPILE_H

#include "grammar/build.h"

/* Compiles any kind; refuses texts that are too long. */
void compile_rule(build *b, grammar_kind kind, str text);
/* Finishes b and turns its nfa into a grammar. Returns b's error; QUIRE_NO_MEMORY. */
quire_err compile_finish(build *b, grammar **out);

/* Compiles GBNF, or W3C's EBNF. */
void compile_ebnf(build *b, str text, bool w3c);
/* Compiles Lark's notation. */
void compile_lark(build *b, str text);
void compile_schema(build *b, str text);
/* Compiles "any JSON object". */
void compile_object(build *b);

#endif
