#include "server/body_turn.h"

/* Starts the timer, unless it runs. */
static void start_timer(const body_turns *t) {
    if (!event_pending(t->timer, EV_TIMEOUT, NULL)) {
        event_add(t->timer, &(struct timeval){.tv_usec = TURN_US});
    }
}

static void on_turn(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    body_turns *t = arg;
    body_turn *turn = t->first;
    if (turn == NULL) {
        return;
    }
    t->first = turn->next;
    turn->next = NULL;
    turn->waits = false;
    bufferevent_enable(turn->bev, EV_READ);
    if (t->first != NULL) {
        start_timer(t);
    }
}

bool body_turns_open(body_turns *t, struct event_base *base) {
    t->timer = evtimer_new(base, on_turn, t);
    return t->timer != NULL;
}

void body_turns_close(body_turns *t) {
    if (t->timer != NULL) {
        event_free(t->timer);
        t->timer = NULL;
    }
}

void body_turn_end_if_due(body_turns *t, body_turn *turn, struct bufferevent *bev) {
    if (turn->n_bytes < TURN_BYTES || turn->waits) {
        return;
    }
    start_timer(t);
    body_turn **end = &t->first;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = turn;
    *turn = (body_turn){.waits = true, .bev = bev};
    bufferevent_disable(bev, EV_READ);
    atomic_fetch_add(&t->n_waits, 1);
}

void body_turn_leave(body_turns *t, body_turn *turn) {
    for (body_turn **at = &t->first; turn->waits && *at != NULL; at = &(*at)->next) {
        if (*at == turn) {
            *at = turn->next;
            break;
        }
    }
    *turn = (body_turn){0};
}
