/* The text pool: a few threads that tokenise and render templates, so that server loops and the engine thread never do. First in, first
 * out. */
#ifndef API_TEXT_POOL_H
#define API_TEXT_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct text_pool text_pool;

struct quire_event;

/* A job; the pool owns nothing in it. The pool uses next while the job waits, and a queue while it waits there (queue_deliver). */
typedef struct text_job {
    void (*run)(struct text_job *job); /* on a text thread */
    /* on the thread of the queue that the job was delivered to, which owns it from then on; true where it filled *out with an event */
    bool (*take)(struct text_job *job, struct quire_event *out);
    struct text_job *next;
} text_job;

quire_err text_pool_open(int32_t n_threads, text_pool **out);
/* Runs the queued jobs, then ends the threads. */
void text_pool_close(text_pool *p);
/* Any thread; allocates nothing. */
void text_pool_add(text_pool *p, text_job *job);

#endif
