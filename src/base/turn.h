/* Turns: a long computation on a shared thread lets others go on every millisecond.
 *
 * Code whose time grows with its input calls turn_poll as it works. On a thread that has
 * a turn (turn_begin) and whose slice is over, the owner of the turn then decides which
 * thread continues, and the call returns when this computation may continue. Elsewhere
 * turn_poll is a test of a pointer.
 *
 * Owner: the thread that began it; a thread has one turn at most. */
#ifndef BASE_TURN_H
#define BASE_TURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct turn {
    /* at the end of a slice; returns when the computation may go on. QUIRE_CANCELLED: it
     * shall end */
    quire_err (*over)(struct turn *t);
    int64_t slice_ends_us; /* on clock_us; the owner moves it on in over */
    int64_t used_us;       /* processor time of earlier slices; the owner keeps it */
    int64_t limit_us;      /* of used_us, for a part of the computation (turn_limit); 0: none */
    uint32_t n_work;       /* since the clock was last read */
    /* what the computation ends with; each later poll returns it again */
    quire_err ended;
    /* held_bytes is over may_hold: returns when the computation may hold more. Errors as
     * of over */
    quire_err (*more)(struct turn *t);
    size_t held_bytes; /* of memory that the computation has declared (turn_hold) */
    size_t may_hold;   /* of it without asking; the owner raises it in more */
} turn;

/* Work after which turn_poll reads the clock: some 100 microseconds. */
#define TURN_WORK 1024u

/* Sets the calling thread's turn; NULL ends it. */
void turn_begin(turn *t);
/* Ends the slice if its time is over. QUIRE_CANCELLED: the result is not needed any more.
 * QUIRE_TOO_LARGE: past the limit. Who cannot forward the error drops it: the next poll
 * has it too. */
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

/* Says that the computation takes n more bytes of memory. Where many computations wait in
 * the middle, the owner lets few hold much at a time: the call returns when this one may.
 * QUIRE_CANCELLED. */
quire_err turn_hold(size_t n);
/* The same bytes are free again. */
void turn_let_go(size_t n);

/* From now on the thread's turn has us microseconds of processor time, after which
 * turn_poll gives QUIRE_TOO_LARGE; 0: no limit. Nothing if there is no turn. */
void turn_limit(int64_t us);

/* ---- work within a step ---- */

/* Work within a step is bounded: what does not fit is left to a thread that may take its
 * time.
 *
 * A thread that computes in a step has a work_room (work_room_enter). Code whose time
 * depends on requests' data measures itself with a work_meter and gives up when that is
 * used up; what it has built so far stays, so another thread can go on from there. A
 * thread without a room does all the work.
 *
 * Owner: the thread that runs the steps. Several threads may have one room at once; a
 * meter belongs to one call. */

typedef struct work_room {
    uint32_t most; /* units of work that one call does at most */
    /* processor time that all calls of the step may still take, on all threads
     * together */
    atomic_llong left_us;
    _Atomic uint32_t largest; /* units of the largest call so far */
} work_room;

typedef struct work_meter {
    work_room *room;  /* NULL: no bounds */
    uint64_t n, next; /* units done; the count at which it checks the room */
    int64_t from_us;  /* on clock_thread_us; 0: nothing was done yet */
    bool is_over;     /* no more may be done */
} work_meter;

extern _Thread_local work_room *work_room_current;

/* r becomes the calling thread's room (NULL: none); returns the one that it had. */
static inline work_room *work_room_enter(work_room *r) {
    work_room *had = work_room_current;
    work_room_current = r;
    return had;
}

/* Begins a step with so many microseconds. */
void work_room_fill(work_room *r, uint32_t most, int64_t us);

/* Measures a call on the calling thread, in its room. A call that does no work costs
 * nothing, also where the room is used up. */
static inline void work_begin(work_meter *m) {
    *m = (work_meter){.room = work_room_current, .next = work_room_current != NULL ? 0 : UINT64_MAX};
}
/* The slow part of work_add. */
bool work_look(work_meter *m, uint32_t n);
/* Asks for n more units of work. False: they may not be done; the call gives up, and each
 * later work_add returns false too. */
static inline bool work_add(work_meter *m, uint32_t n) {
    if (m->n + n >= m->next) {
        return work_look(m, n);
    }
    m->n += n;
    return true;
}
/* Takes the call's time from the room. */
void work_end(work_meter *m);

#endif
