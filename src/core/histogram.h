/* Adds values to a histogram (quire_stats.h has the type and its bounds). Not
 * thread-safe: only the thread that owns the histogram may add. */
#ifndef CORE_HISTOGRAM_H
#define CORE_HISTOGRAM_H

#include "quire_stats.h"

/* Counts a value, in the unit of the histogram; negative ones as 0. O(buckets). */
void histogram_add(quire_histogram *h, quire_histogram_kind kind, int64_t value);

#endif
