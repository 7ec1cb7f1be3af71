#include "base/turn.h"

#include <assert.h>

#include "base/clock.h"

_Thread_local turn *turn_current;

void turn_begin(turn *t) {
    if (t != NULL) {
        t->ended = QUIRE_OK;
        t->n_work = 0;
    }
    turn_current = t;
}

quire_err turn_hold(size_t n) {
    turn *t = turn_current;
    if (t == NULL) {
        return QUIRE_OK;
    }
    t->held_bytes = n > SIZE_MAX - t->held_bytes ? SIZE_MAX : t->held_bytes + n;
    return t->held_bytes <= t->may_hold ? QUIRE_OK : t->more(t);
}

void turn_let_go(size_t n) {
    turn *t = turn_current;
    if (t != NULL) {
        t->held_bytes = n > t->held_bytes ? 0 : t->held_bytes - n;
    }
}

void turn_limit(int64_t us) {
    turn *t = turn_current;
    if (t != NULL) {
        t->limit_us = us > 0 ? t->used_us + us : 0;
        t->ended = t->ended == QUIRE_TOO_LARGE ? QUIRE_OK : t->ended;
    }
}

quire_err turn_check(void) {
    turn *t = turn_current;
    if (t == NULL) {
        return QUIRE_OK;
    }
    if (t->ended == QUIRE_OK && clock_us() >= t->slice_ends_us) {
        quire_err e = t->over(t);
        t->ended = e == QUIRE_OK && t->limit_us > 0 && t->used_us > t->limit_us ? QUIRE_TOO_LARGE : e;
    }
    t->n_work = t->ended == QUIRE_OK ? 0 : TURN_WORK;
    return t->ended;
}

/* ---- work within a step ---- */

/* units between two checks of the room: tens of microseconds if they miss the caches */
#define UNITS_A_LOOK 256u

_Thread_local work_room *work_room_current;

void work_room_fill(work_room *r, uint32_t most, int64_t us) {
    r->most = most;
    atomic_store(&r->left_us, us);
}

/* Subtracts the time since the last check from the room. Returns the time left. */
static int64_t work_room_spend(work_meter *m) {
    int64_t now = clock_thread_us(), us = m->from_us == 0 ? 0 : now - m->from_us;
    m->from_us = now;
    return atomic_fetch_sub(&m->room->left_us, us) - us;
}

bool work_look(work_meter *m, uint32_t n) {
    assert(m != NULL);
    if (m->room == NULL) {
        m->n += n;
        return true;
    }
    m->is_over = m->is_over || m->n + n > m->room->most || work_room_spend(m) <= 0;
    if (m->is_over) {
        m->next = 0;
        return false;
    }
    m->n += n;
    m->next = m->n + UNITS_A_LOOK < m->room->most ? m->n + UNITS_A_LOOK : m->room->most;
    return true;
}

void work_end(work_meter *m) {
    assert(m != NULL);
    if (m->room == NULL || m->from_us == 0) {
        return;
    }
    (void)work_room_spend(m);
    uint32_t n = (uint32_t)m->n, largest = atomic_load(&m->room->largest);
    while (n > largest && !atomic_compare_exchange_weak(&m->room->largest, &largest, n)) {
    }
}
