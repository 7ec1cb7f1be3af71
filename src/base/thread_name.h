/* A small number for each thread, so that tables by thread are short. */
#ifndef BASE_THREAD_NAME_H
#define BASE_THREAD_NAME_H

#include <stdint.h>

/* The calling thread's: 1 .. 63, which no other thread has until this one ends, or 64
 * where those are taken. Any thread. */
int32_t thread_name(void);

#endif
