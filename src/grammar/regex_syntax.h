/* Regular expressions: the common part of Python's, JavaScript's and PCRE's syntax.
 * Private to this room.
 *
 * \d \w are ASCII and \s is ECMA-262's white space, as JSON Schema has them; `.` is
 * anything but a newline. Look-around, back references, word boundaries, possessive
 * repeats and \p{..} are refused: QUIRE_UNSUPPORTED. */
#ifndef GRAMMAR_REGEX_SYNTAX_H
#define GRAMMAR_REGEX_SYNTAX_H

#include "grammar/ast.h"

/* Parses text into t; returns its root. Failures are b's, with the byte position. */
uint32_t regex_parse(ast *t, str text);
#define REGEX_ESCAPE_RANGES 12
/* Parses one escape after a backslash at *at, outside of a class: a character, or a class
 * in ranges[0 .. *n), n 0: the character. For other notations too. */
uint32_t regex_escape(ast *t, str text, size_t *at, nfa_range ranges[REGEX_ESCAPE_RANGES], uint32_t *n);

#endif
