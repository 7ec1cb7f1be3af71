/* Clocks: monotonic time, processor time and the time of day. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t clock_us(void);        /* monotonic time in microseconds */
int64_t clock_ns(void);        /* monotonic time in nanoseconds, from the same origin */
int64_t clock_thread_us(void); /* processor time of the calling thread in microseconds */
int64_t clock_unix_s(void);    /* Unix time in seconds */

#endif
