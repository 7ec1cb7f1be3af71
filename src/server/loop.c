#include "server/loop.h"

#include "base/rng.h"

void loop_set_timer(struct event *timer, int64_t us) {
    struct timeval t = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    event_add(timer, &t);
}

void loop_free_event(struct event *event) {
    if (event != NULL) {
        event_free(event);
    }
}

void loop_wake_all(const server *s) {
    for (int32_t i = 0; i < s->n_loops; i++) {
        if (s->loops[i].bell.is_open) { /* not closed yet */
            wake_ring(&s->loops[i].bell);
        }
    }
}

int64_t loop_count_busy(const server *s) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load(&s->loops[i].n_busy);
    }
    return n;
}

uint64_t loop_new_id(loop *l) {
    uint64_t mine = (uint64_t)(l - l->server->loops), mask = (1u << LOOP_BITS) - 1;
    return (rng_next(&l->random) & ~mask) | mine;
}
