/* Names of sets of characters in regular expressions: those of POSIX, as items of a class
 * of PCRE2. */
#ifndef TEXT_REGEX_NAMES_H
#define TEXT_REGEX_NAMES_H

#include "base/str.h"

#define SPACE_ITEMS                                                                                          \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"     \
    "3000}"
#define WORD_ITEMS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* outside of classes: Oniguruma has Latin-1's numbers there */
#define LOOSE_ITEMS WORD_ITEMS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define RUST_ITEMS  WORD_ITEMS "\\x{200c}\\x{200d}"
#define HEX_ITEMS   "0-9a-fA-F"

/* The items of [:name:], or NULL. */
const char *regex_bracket_items(str name);
/* The items of \p{name}, where it is one of POSIX's names, or NULL. As everywhere in such
 * names, case, spaces, '-' and '_' do not count. */
const char *regex_property_items(str name, bool in_class);

#endif
