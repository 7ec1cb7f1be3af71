/* Marks in a stream of bytes: the texts by which a format opens and closes its parts.
 *
 * In the streams of this room a special token stands between MARK_BEGIN and MARK_END,
 * bytes that UTF-8 never has. A mark that is a special token is written in the same way,
 * so it never matches the same letters in ordinary tokens. */
#ifndef ANSWER_MARK_SET_H
#define ANSWER_MARK_SET_H

#include "base/str.h"

#define MARK_BEGIN '\xFE'
#define MARK_END   '\xFF'
#define MARK_BYTES 96
#define MARK_MAX   28

typedef struct mark {
    uint8_t role; /* its owner's */
    uint8_t n;
    bool is_special; /* it begins with a special token */
    char text[MARK_BYTES];
} mark;

typedef struct mark_set {
    int n;
    uint64_t firsts[4]; /* a bit for each byte that begins a mark */
    mark marks[MARK_MAX];
} mark_set;

/* Which marks are looked for: bits 1 << role. special: roles that count only as special
 * tokens. */
typedef struct mark_roles {
    uint32_t any, special;
} mark_roles;

/* The bytes that may become a mark. Zero-initialised: none. */
typedef struct mark_match {
    uint8_t n;
    char held[MARK_BYTES];
} mark_match;

typedef struct mark_test {
    bool (*is_special)(const void *context, str text); /* NULL: nothing is */
    const void *context;
} mark_test;

/* Adds a mark; the test finds its parts that are special tokens. A mark that does not fit
 * is an error in the table: QUIRE_INTERNAL. */
quire_err mark_set_add(mark_set *set, uint8_t role, str text, mark_test test);
/* Reads one byte. Returns the index of the mark that it completes, or -1. text[0..*n):
 * bytes that belong to no mark any more, in order. */
int mark_push(mark_match *m, const mark_set *set, mark_roles roles, char c, char text[MARK_BYTES], size_t *n);
/* Removes the held text, which will not become a mark. */
size_t mark_take(mark_match *m, char text[MARK_BYTES]);
/* The mark with the text of a special token; -1: no mark of these roles. */
int mark_find_special(const mark_set *set, uint32_t roles, str letters);

#endif
