/* Finds marks, the texts by which a format opens and closes its parts, in a byte stream.
 *
 * In the streams of this room a special token is enclosed in MARK_BEGIN and MARK_END,
 * bytes that UTF-8 never has. So is a mark that is a special token; therefore it never
 * matches ordinary tokens with the same letters. */
#ifndef ANSWER_MARK_SET_H
#define ANSWER_MARK_SET_H

#include "base/str.h"

#define MARK_BEGIN '\xFE'
#define MARK_END   '\xFF'
#define MARK_BYTES 96
#define MARK_MAX   28

typedef struct mark {
    uint8_t role; /* a value that the owner of the set defines */
    uint8_t n;
    bool is_special; /* the mark begins with a special token */
    char text[MARK_BYTES];
} mark;

typedef struct mark_set {
    int n;
    uint64_t firsts[4]; /* a bit for each byte that begins a mark */
    mark marks[MARK_MAX];
} mark_set;

/* Roles of the marks to search for, as bits 1 << role. special: roles of which only marks
 * that are special tokens match. */
typedef struct mark_roles {
    uint32_t any, special;
} mark_roles;

/* The bytes held back because they may become a mark. Zero-initialised: none. */
typedef struct mark_match {
    uint8_t n;
    char held[MARK_BYTES];
} mark_match;

typedef struct mark_test {
    bool (*is_special)(const void *context, str text); /* NULL: no text is special */
    const void *context;
} mark_test;

/* Adds a mark; `test` finds the special tokens inside it. QUIRE_INTERNAL: the set is
 * full, or the text is empty or too long: an error in the table of formats. */
quire_err mark_set_add(mark_set *set, uint8_t role, str text, mark_test test);
/* Reads one byte. Returns the index of the mark that it completes, or -1. Copies the
 * bytes that can no longer begin a mark to text[0..*n), in order. */
int mark_push(mark_match *m, const mark_set *set, mark_roles roles, char c, char text[MARK_BYTES], size_t *n);
/* Moves the held bytes to text, since no mark will follow, and returns their number. */
size_t mark_take(mark_match *m, char text[MARK_BYTES]);
/* The index of the mark of these roles that is the special token `letters`; -1: none. */
int mark_find_special(const mark_set *set, uint32_t roles, str letters);

#endif
