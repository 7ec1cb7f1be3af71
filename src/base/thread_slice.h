/* The slice of the calling thread: how long it may run before a thread that wakes up may
 * take its place. With a short one it also gets its turn sooner when it wakes up itself.
 *
 * Linux has it for each thread from 6.12 on; a thread's share of the processor stays as
 * it is. Elsewhere nothing changes. Any thread. */
#ifndef BASE_THREAD_SLICE_H
#define BASE_THREAD_SLICE_H

#include <stdint.h>

/* us: 100 to 100,000, or 0 for the system's own. Threads that this one starts have the
 * same. */
void thread_set_slice(int32_t us);

#endif
