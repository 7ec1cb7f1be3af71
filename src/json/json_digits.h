/* The digits of numbers that a double may not hold: a table from the values of a tree to
 * their places in its text.
 *
 * A tree's real is the double nearest to the written number. Code that needs the exact
 * number looks here first. Owner: its maker; one thread makes it, then it is
 * immutable. */
#ifndef JSON_JSON_DIGITS_H
#define JSON_JSON_DIGITS_H

#include "json/json.h"

typedef struct json_digits json_digits;

/* Searches the text from which json_read made root, in which json_counts found n_long
 * numbers. *out is NULL on failure. QUIRE_NO_MEMORY, QUIRE_CANCELLED, QUIRE_TOO_LARGE.
 * Takes 72 bytes for each of them at most; its texts are borrowed from `text`. */
quire_err json_digits_find(str text, const json_value *root, size_t n_long, json_digits **out);
void json_digits_drop(json_digits *d);
/* The number as it is written; empty: the value is exact. d may be NULL. */
str json_digits_of(const json_digits *d, const json_value *v);

#endif
