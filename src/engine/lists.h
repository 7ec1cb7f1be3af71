/* The engine's two lists of sequences, running and waiting, each ordered by priority, then by arrival. The engine thread. */
#ifndef ENGINE_LISTS_H
#define ENGINE_LISTS_H

#include <stdbool.h>

#include "engine/sequence.h"

static inline bool list_goes_after(const sequence *a, const sequence *b) {
    return a->task.priority != b->task.priority ? a->task.priority > b->task.priority : a->task.arrival > b->task.arrival;
}

/* Inserts s into a list, which has room. O(entries behind it). */
static inline void list_insert(sequence **list, int32_t *n, sequence *s) {
    int32_t i = (*n)++;
    for (; i > 0 && list_goes_after(list[i - 1], s); i--) {
        list[i] = list[i - 1];
    }
    list[i] = s;
}

/* Removes and drops every sequence in state TASK_DONE. */
static inline void list_drop_done(sequence **list, int32_t *n) {
    int32_t kept = 0;
    for (int32_t i = 0; i < *n; i++) {
        if (list[i]->task.state != TASK_DONE) {
            list[kept++] = list[i];
        } else {
            sequence_drop(list[i]);
        }
    }
    *n = kept;
}

#endif
