/* The nearest of some names to a mistyped one, by the least number of edits: "did you
 * mean".
 *
 * An edit inserts, deletes or replaces a byte, or swaps two neighbours (Damerau 1964,
 * each pair swapped at most once). One thread. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include "base/str.h"

/* {.wanted = ...} has no name yet. best is empty while no name is near enough: two edits
 * at most, and at most a third of wanted's bytes. */
#define NEAREST_MAX_EDITS 2
typedef struct nearest {
    str wanted, best;
    size_t distance; /* of best */
} nearest;

/* The number of edits between two texts of at most EDIT_MAX bytes; SIZE_MAX for longer
 * ones. */
#define EDIT_MAX 64
size_t edit_distance(str a, str b);

/* Makes name the best one if it is nearer than the best so far. The bytes are
 * borrowed. */
void nearest_offer(nearest *n, str name);
/* The same for each of some names that spaces separate. */
void nearest_offer_all(nearest *n, const char *names);

#endif
