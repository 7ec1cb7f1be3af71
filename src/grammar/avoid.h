/* Rules of a grammar inside texts with their own marks: strings of JSON and Python, and
 * raw texts that must not contain their end mark. Private to this room.
 *
 * A rule here is one that ast_emit wrote in raw mode: splits, bytes, characters, calls
 * and repeats. */
#ifndef GRAMMAR_AVOID_H
#define GRAMMAR_AVOID_H

#include "grammar/dfa.h"

/* Respells the characters of nodes[first ..) as those of a JSON string. */
void respell_json(build *b, uint32_t first);
/* The same as those of a Python string between "": a character of its own where it may
 * be, else after a backslash. */
void respell_python(build *b, uint32_t first);
/* A rule of the texts of `rule`, all of whose nodes are in nodes[first ..), that the
 * dfa accepts too. A counted repeat is written out; over AVOID_MAX_ROUNDS rounds are
 * refused. */
#define AVOID_MAX_ROUNDS 4096
uint32_t avoid_rule(dfa_pool *p, uint32_t rule, uint32_t first, uint32_t dfa);

#endif
