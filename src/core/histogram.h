/* Adds values to a histogram (quire_stats.h has the type and its bounds). No locks: the
 * caller's thread owns it. */
#ifndef CORE_HISTOGRAM_H
#define CORE_HISTOGRAM_H

#include "quire_stats.h"

/* Counts a value, in the histogram's unit; a negative one counts as 0. O(buckets). */
void histogram_add(quire_histogram *h, quire_histogram_kind kind, int64_t value);

#endif
