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
#ifndef BASE_WORK_ROOM_H
#define BASE_WORK_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
/* Before n units of work are done: whether they may be. False: the call gives up, and
 * each later work_add is false too. */
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
