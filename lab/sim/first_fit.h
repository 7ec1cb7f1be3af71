/* Memory given out in pieces, each in the first gap that holds it: what keys and values
 * in one piece get, holes between them included.
 *
 * Owner: one simulation. Invariant: pieces are in ascending order and do not overlap. */
#ifndef LAB_SIM_FIRST_FIT_H
#define LAB_SIM_FIRST_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

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
