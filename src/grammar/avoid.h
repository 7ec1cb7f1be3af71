/* Restricts rules to texts that fit into other notations: strings of JSON and Python, and
 * raw texts that may not contain their end marker. Private to this room.
 *
 * The rules must come from ast_emit in raw mode: splits, bytes, characters, calls,
 * repeats. */
#ifndef GRAMMAR_AVOID_H
#define GRAMMAR_AVOID_H

#include "grammar/dfa.h"

/* Rewrites the characters of nodes[first ..) as those of a JSON string. */
void respell_json(build *b, uint32_t first);
/* Rewrites the characters of nodes[first ..) as those of a Python string in double
 * quotes: as themselves if they can be, else escaped. */
void respell_python(build *b, uint32_t first);
/* Makes a rule for the texts of `rule` that the dfa accepts. All nodes of `rule` are in
 * nodes[first ..). Counted repeats are expanded; over AVOID_MAX_ROUNDS rounds are
 * refused. */
#define AVOID_MAX_ROUNDS 4096
uint32_t avoid_rule(dfa_pool *p, uint32_t rule, uint32_t first, uint32_t dfa);

#endif
