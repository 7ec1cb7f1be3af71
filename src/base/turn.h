/* Turns: a long computation on a shared thread yields to others every millisecond.
 *
 * Code whose time grows with its input calls turn_poll as it works. If the thread has a
 * turn (turn_begin) whose slice is over, the turn's owner decides which thread runs next,
 * and the call returns when this computation may continue. On other threads turn_poll
 * only tests a pointer.
 *
 * A turn belongs to the thread that began it; a thread has at most one. */
#ifndef BASE_TURN_H
#define BASE_TURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct turn {
    /* called at the end of a slice; returns when the computation may continue.
     * QUIRE_CANCELLED: the computation must end */
    quire_err (*over)(struct turn *t);
    int64_t slice_ends_us; /* end of the current slice on clock_us; `over` moves it forward */
    int64_t used_us;       /* processor time of earlier slices, updated by the owner */
    int64_t limit_us; /* most used_us for the current part of the computation (turn_limit); 0: no limit */
    uint32_t n_work;  /* units of work since the clock was last read */
    /* the error that ends the computation; each later poll returns it again */
    quire_err ended;
    /* called when held_bytes exceeds may_hold; returns when the computation may hold
     * more. QUIRE_CANCELLED: the computation must end */
    quire_err (*more)(struct turn *t);
    size_t held_bytes; /* memory that the computation has declared (turn_hold) */
    size_t may_hold;   /* bytes that it may hold without a call of `more`, which raises this */
} turn;

/* Units of work, some 100 microseconds, after which turn_poll reads the clock. */
#define TURN_WORK 1024u

/* Sets the calling thread's turn; NULL ends it. */
void turn_begin(turn *t);
/* Yields if the slice's time is over. QUIRE_CANCELLED: the result is no longer needed.
 * QUIRE_TOO_LARGE: used_us exceeds limit_us. A caller that cannot forward the error may
 * drop it: the next poll returns it again. */
quire_err turn_check(void);
extern _Thread_local turn *turn_current;

/* Counts work, a unit being some 100 nanoseconds: a byte of text, a quarter of a
 * template's step. Errors as turn_check. */
static inline quire_err turn_poll(uint32_t work) {
    turn *t = turn_current;
    if (t == NULL || (t->n_work += work) < TURN_WORK) {
        return QUIRE_OK;
    }
    return turn_check();
}

/* Declares n more bytes of memory. Since many computations may be paused, the owner lets
 * only a few hold much: the call returns when this one may. QUIRE_CANCELLED: it must
 * end. */
quire_err turn_hold(size_t n);
/* Declares n bytes of memory as freed. */
void turn_let_go(size_t n);

/* Allows the thread's turn `us` microseconds of processor time from now on, after which
 * turn_poll returns QUIRE_TOO_LARGE; 0: no limit. Does nothing without a turn. */
void turn_limit(int64_t us);

/* ---- work within a step ---- */

/* Bounds the work within a step: the rest is left to a thread outside the step.
 *
 * A thread that computes in a step has a work_room (work_room_enter). Code whose time
 * depends on request data counts its work with a work_meter and stops when the room is
 * used up; what it has built is kept, so another thread can continue from there. A thread
 * without a room does all the work at once.
 *
 * Owner: the thread that runs the steps. Several threads may have one room at once; a
 * meter belongs to one call. */

typedef struct work_room {
    uint32_t most; /* most units of work of one call */
    /* processor time left for all calls of the step on all threads */
    atomic_llong left_us;
    _Atomic uint32_t largest; /* units of the largest call so far */
} work_room;

typedef struct work_meter {
    work_room *room;  /* NULL: work is not limited */
    uint64_t n, next; /* n: units done; next: the value of n at which to check the room */
    int64_t from_us;  /* clock_thread_us at the last check of the room; 0: no check yet */
    bool is_over;     /* no more work is allowed */
} work_meter;

extern _Thread_local work_room *work_room_current;

/* Makes r the calling thread's room (NULL: none); returns the previous one. */
static inline work_room *work_room_enter(work_room *r) {
    work_room *had = work_room_current;
    work_room_current = r;
    return had;
}

/* Begins a step: allows `us` microseconds in all, and `most` units of work per call. */
void work_room_fill(work_room *r, uint32_t most, int64_t us);

/* Starts the meter of a call, in the calling thread's room. A call that does no work
 * costs nothing, even if the room is used up. */
static inline void work_begin(work_meter *m) {
    *m = (work_meter){.room = work_room_current, .next = work_room_current != NULL ? 0 : UINT64_MAX};
}
/* The slow path of work_add, which checks the room. */
bool work_look(work_meter *m, uint32_t n);
/* Requests n more units of work. False: not allowed; the call must stop, and each later
 * work_add also returns false. */
static inline bool work_add(work_meter *m, uint32_t n) {
    if (m->n + n >= m->next) {
        return work_look(m, n);
    }
    m->n += n;
    return true;
}
/* Ends a call: subtracts its time since the last check from the room. */
void work_end(work_meter *m);

#endif
