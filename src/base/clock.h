/* Clocks: monotonic time and the time of day. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t clock_us(void);        /* monotonic, microseconds */
int64_t clock_ns(void);        /* the same clock in nanoseconds */
int64_t clock_thread_us(void); /* processor time of the calling thread */
int64_t clock_unix_s(void);    /* seconds since 1970 */

#endif
