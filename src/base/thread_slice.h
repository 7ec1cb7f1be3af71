/* The calling thread's time slice: how long it may run before another thread that wakes
 * up may preempt it. With a short slice it is also scheduled sooner when it wakes up
 * itself.
 *
 * Linux 6.12 and later have one per thread; a thread's share of the processor does not
 * change. Elsewhere this does nothing. Any thread. */
#ifndef BASE_THREAD_SLICE_H
#define BASE_THREAD_SLICE_H

#include <stdint.h>

/* us: 100 to 100,000; 0: the system's default. Threads that this one starts inherit
 * it. */
void thread_set_slice(int32_t us);

#endif
