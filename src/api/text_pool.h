/* The text pool: a few threads that tokenise and render templates, so that neither server loops nor the engine ever do. First in, first
 * out. */
#ifndef API_TEXT_POOL_H
#define API_TEXT_POOL_H

#include <stdint.h>

#include "base/err.h"

typedef struct text_pool text_pool;

/* A piece of work; the pool owns nothing in it. next is the pool's while the job waits. */
typedef struct text_job {
    void (*run)(struct text_job *job);
    struct text_job *next;
} text_job;

quire_err text_pool_open(int32_t n_threads, text_pool **out);
/* Runs what still waits, then ends the threads. */
void text_pool_close(text_pool *p);
/* Any thread; allocates nothing. */
void text_pool_add(text_pool *p, text_job *job);

#endif
