/* What paging replaced, to compare with: keys and values reserved in one piece, and the
 * memory that such pieces are given out of. Exists for experiments only; the engine has
 * none of it. */
#ifndef LAB_SIM_RESERVATION_H
#define LAB_SIM_RESERVATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* How much room a sequence's keys and values are given. */
typedef enum reservation {
    RESERVE_MAX,     /* the longest sequence that may come, from the start */
    RESERVE_POW2,    /* its prompt, and its answer's length rounded up to a power of two */
    RESERVE_ORACLE,  /* its final length, which no real server knows */
    RESERVE_GROWING, /* its present length, in one piece that is copied to a larger one for every token */
    RESERVE_PAGED,   /* its present length, in whole pages */
    RESERVE_N
} reservation;

const char *reservation_name(reservation r);

typedef struct reserved_seq {
    int32_t n_prompt, n_output; /* in the end */
    int32_t n_now;              /* tokens it has */
} reserved_seq;

/* Slots that the sequence takes; max_len is what RESERVE_MAX gives, page_tokens what a
 * page holds. */
int64_t reservation_slots(reservation r, const reserved_seq *s, int32_t max_len, int32_t page_tokens);

/* Memory given out in pieces, each in the first gap that holds it: what keys and values
 * in one piece get, holes between them included.
 *
 * Owner: one simulation. Invariant: pieces are in ascending order and do not overlap. */

typedef struct first_fit {
    struct piece {
        int64_t first, n;
        int32_t owner;
    } * pieces; /* [cap] */
    int32_t n, cap;
    int64_t size;
} first_fit;

/* `size` units for at most cap pieces. */
quire_err first_fit_open(int64_t size, int32_t cap, first_fit *out);
void first_fit_close(first_fit *f);
/* Gives owner n units, from *first on; false when no gap holds them. O(pieces). */
bool first_fit_take(first_fit *f, int32_t owner, int64_t n, int64_t *first);
/* What `from` has becomes `to`'s. O(pieces). */
void first_fit_rename(first_fit *f, int32_t from, int32_t to);
/* Takes owner's pieces back, if it has any. O(pieces). */
void first_fit_give(first_fit *f, int32_t owner);

#endif
