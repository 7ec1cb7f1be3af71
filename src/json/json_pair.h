/* Walks a text and the tree made from it together, number by number. Private to this
 * room. */
#ifndef JSON_JSON_PAIR_H
#define JSON_JSON_PAIR_H

#include "json/json.h"
#include "json/json_lex.h"

/* The place of a value in the tree. */
typedef struct json_place {
    const json_value *parent; /* NULL: it is the root */
    size_t index;             /* in an array */
    const char *name;         /* in an object, borrowed for the call; else NULL */
} json_place;

/* Takes a number of the text and its value v in the tree. v may be another value: of
 * equal names in an object the tree has the last. The members of a parent may be
 * replaced. */
typedef quire_err json_pair_take(void *user, str digits, const json_number *number, json_place place,
                                 const json_value *v);

/* text is checked, and root is the tree that json_read made from it. Errors: those of
 * `take`, QUIRE_NO_MEMORY, QUIRE_CANCELLED, QUIRE_TOO_LARGE. */
quire_err json_pair(str text, const json_value *root, json_pair_take *take, void *user);

#endif
