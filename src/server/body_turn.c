#include "server/body_turn.h"

/* Takes the first connection that waits out of the queue. */
static conn *take_first(loop *l) {
    conn *c = l->turns;
    l->turns = c->turn_next;
    c->turn_next = NULL;
    c->waits_for_turn = false;
    return c;
}

static LOOP_CALLBACK(on_turn) {
    loop *l = arg;
    if (l->turns != NULL) {
        bufferevent_enable(take_first(l)->bev, EV_READ);
    }
    if (l->turns != NULL) {
        loop_set_timer(l->on_turn, TURN_US);
    }
}

bool body_turn_open(loop *l) {
    l->on_turn = evtimer_new(l->base, on_turn, l);
    return l->on_turn != NULL;
}

void body_turn_end_if_due(conn *c) {
    loop *l = c->loop;
    if (c->turn_bytes < TURN_BYTES || c->waits_for_turn) {
        return;
    }
    c->turn_bytes = 0;
    c->waits_for_turn = true;
    atomic_fetch_add(&l->n_turns, 1);
    conn **end = &l->turns;
    while (*end != NULL) {
        end = &(*end)->turn_next;
    }
    *end = c;
    bufferevent_disable(c->bev, EV_READ);
    if (!event_pending(l->on_turn, EV_TIMEOUT, NULL)) {
        loop_set_timer(l->on_turn, TURN_US);
    }
}

void body_turn_leave(conn *c) {
    c->turn_bytes = 0;
    for (conn **at = &c->loop->turns; c->waits_for_turn && *at != NULL; at = &(*at)->turn_next) {
        if (*at == c) {
            *at = c->turn_next;
            c->turn_next = NULL;
            c->waits_for_turn = false;
            return;
        }
    }
}
