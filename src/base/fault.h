/* Fault injection for tests: of all the points where a program may run short (an allocation, a reserve of pages), a chosen one fails.
 *
 * Counts for the calling thread only. In builds without QUIRE_DEBUG no point ever fails, and there is nothing to call but fault_due. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef QUIRE_DEBUG
/* The n-th point from now on (1, 2, ...) fails, once; 0: none does. */
void fault_at(int64_t n);
/* Whether it did since fault_at. */
bool fault_happened(void);
/* Asked at every point: whether this one fails. */
bool fault_due(void);
#else
static inline bool fault_due(void) {
    return false;
}
#endif

#endif
