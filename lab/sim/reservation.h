/* What paging replaced, for comparison: contiguous reservations of keys and values, and
 * an allocator for them. For experiments only; the engine has none of it. */
#ifndef LAB_SIM_RESERVATION_H
#define LAB_SIM_RESERVATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* How much room is reserved for a sequence's keys and values. */
typedef enum reservation {
    RESERVE_MAX,     /* for the longest possible sequence, from the start */
    RESERVE_POW2,    /* for its prompt, and its answer's length rounded up to a power of two */
    RESERVE_ORACLE,  /* for its final length, which no real server knows */
    RESERVE_GROWING, /* for its present length, contiguous: copied to a larger piece for every token */
    RESERVE_PAGED,   /* for its present length, in whole pages */
    RESERVE_N
} reservation;

const char *reservation_name(reservation r);

typedef struct reserved_seq {
    int32_t n_prompt, n_output; /* final lengths */
    int32_t n_now;              /* tokens so far */
} reserved_seq;

/* Slots that the sequence takes. max_len: what RESERVE_MAX reserves; page_tokens: tokens
 * per page. */
int64_t reservation_slots(reservation r, const reserved_seq *s, int32_t max_len, int32_t page_tokens);

/* A first-fit allocator: memory for contiguous keys and values, including the gaps
 * between pieces.
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

/* size units for at most cap pieces. */
quire_err first_fit_open(int64_t size, int32_t cap, first_fit *out);
void first_fit_close(first_fit *f);
/* Allocates n units for owner, starting at *first. False: no gap is large enough.
 * O(pieces). */
bool first_fit_take(first_fit *f, int32_t owner, int64_t n, int64_t *first);
/* Transfers what `from` has to `to`. O(pieces). */
void first_fit_rename(first_fit *f, int32_t from, int32_t to);
/* Frees owner's pieces, if any. O(pieces). */
void first_fit_give(first_fit *f, int32_t owner);

#endif
