#include "base/turn.h"

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
