/* A small number for each thread, so that tables indexed by thread are short. */
#ifndef BASE_THREAD_NAME_H
#define BASE_THREAD_NAME_H

#include <stdint.h>

/* Returns the calling thread's number: 1 to 63, which no other thread has until it ends,
 * or 64 if those are taken. Any thread. */
int32_t thread_name(void);

#endif
