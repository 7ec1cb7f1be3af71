#include "server/body_room.h"

bool body_room_take(body_room *r, size_t n) {
    size_t held = atomic_load(&r->n_bytes);
    do {
        if (held > 0 && (held > r->max_bytes || n > r->max_bytes - held)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&r->n_bytes, &held, held + n));
    return true;
}

bool body_room_give(body_room *r, size_t n) {
    atomic_fetch_sub(&r->n_bytes, n);
    return atomic_load(&r->n_waiting) > 0;
}
