/* Fault injection for tests: one chosen fault point fails. A fault point is a place where
 * a program may run out of something (an allocation, a reserve of pages).
 *
 * Each thread has its own count. In builds without QUIRE_DEBUG no point ever fails, and
 * only fault_due exists. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef QUIRE_DEBUG
/* Makes this thread's n-th fault point from now on (1, 2, ..) fail once; 0: none. */
void fault_at(int64_t n);
/* Whether the point that fault_at chose has failed. */
bool fault_happened(void);
/* Every fault point calls this. True: the point must fail. */
bool fault_due(void);
#else
static inline bool fault_due(void) {
    return false;
}
#endif

#endif
