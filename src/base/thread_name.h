/* A small number for each thread, so that tables indexed by thread are short. */
#ifndef BASE_THREAD_NAME_H
#define BASE_THREAD_NAME_H

#include <stdint.h>

/* The calling thread's number: 1 .. 63, its own until it ends, or 64 if those are taken.
 * Any thread. */
int32_t thread_name(void);

#endif
