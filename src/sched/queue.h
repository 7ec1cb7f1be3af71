/* A queue of tasks, running or waiting, ordered by priority, then by arrival. */
#ifndef SCHED_QUEUE_H
#define SCHED_QUEUE_H

#include <stdbool.h>

#include "sched/task.h"

static inline bool queue_goes_after(const sched_task *a, const sched_task *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->arrival > b->arrival;
}

/* Inserts t into a queue, which has room. O(entries behind it). */
static inline void queue_insert(sched_task **queue, int32_t *n, sched_task *t) {
    int32_t i = (*n)++;
    for (; i > 0 && queue_goes_after(queue[i - 1], t); i--) {
        queue[i] = queue[i - 1];
    }
    queue[i] = t;
}

#endif
