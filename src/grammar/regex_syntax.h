/* Regular expressions: the common subset of Python's, JavaScript's and PCRE's syntax.
 * Private to this room.
 *
 * \d and \w are ASCII, \s is ECMA-262's white space, as in JSON Schema; `.` is anything
 * but a newline. Look-around, back references, word boundaries, possessive repeats and
 * \p{..} are refused: QUIRE_UNSUPPORTED. */
#ifndef GRAMMAR_REGEX_SYNTAX_H
#define GRAMMAR_REGEX_SYNTAX_H

#include "grammar/ast.h"

/* Parses text into t; returns the root. Failures go to t's build, with the byte
 * position. */
uint32_t regex_parse(ast *t, str text);
#define REGEX_ESCAPE_RANGES 12
/* Parses an escape after a backslash at *at, outside a class. Returns the character if *n
 * is 0, else the class is ranges[0 .. *n). Also for other notations. */
uint32_t regex_escape(ast *t, str text, size_t *at, nfa_range ranges[REGEX_ESCAPE_RANGES], uint32_t *n);

#endif
