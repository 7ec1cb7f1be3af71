/* Integers in a tree that an int64 does not hold: kept as their digits. Private to this
 * room.
 *
 * jansson has no such value. Here it is a string of which no text can make an equal one:
 * its first byte is in no UTF-8. */
#ifndef JSON_JSON_WIDE_H
#define JSON_JSON_WIDE_H

#include "json/json.h"

bool wide_is(const json_value *v);
/* Its digits, with a sign where it is negative; ends with a 0 byte. v is one. */
str wide_digits(const json_value *v);
/* Puts those of text, which was checked, where *root, which was read of it, has other
 * numbers. On failure the tree stays the caller's. QUIRE_NO_MEMORY, QUIRE_CANCELLED,
 * QUIRE_TOO_LARGE. */
quire_err wide_place(str text, json_value **root);

#endif
