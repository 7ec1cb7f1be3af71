#include "server/bodies.h"

#include <assert.h>

void body_room_open(body_room *r, size_t max_bytes, void (*ring)(void *arg), void *ring_arg) {
    assert(max_bytes > 0 && ring != NULL);
    *r = (body_room){.max_bytes = max_bytes, .ring = ring, .ring_arg = ring_arg};
    pthread_mutex_init(&r->lock, NULL);
}

void body_room_close(body_room *r) {
    assert(r->n_bytes == 0 && r->first == NULL && r->lane == NULL); /* all room was returned */
    pthread_mutex_destroy(&r->lock);
}

/* ---- memory: with the lock held ---- */

/* The share of a tenant: its own if it has one, else a free one, else the last. */
static body_share *body_share_of(body_room *r, uint64_t tenant) {
    body_share *found = NULL;
    for (int32_t i = 0; i < BODY_SHARES; i++) {
        body_share *s = &r->shares[i];
        if (s->n_claims > 0 && s->tenant == tenant) {
            return s;
        }
        found = found == NULL && s->n_claims == 0 ? s : found;
    }
    found = found == NULL ? &r->shares[BODY_SHARES - 1] : found;
    if (found->n_claims == 0) {
        *found = (body_share){.tenant = tenant};
    }
    return found;
}

/* Whether at least as much stays free as the tenant holds once c has its bytes. */
static bool body_fits_share(const body_room *r, const body_claim *c) {
    size_t left = r->max_bytes - r->n_bytes;
    return c->wanted <= left && c->share->held <= left - c->wanted &&
           c->wanted <= left - c->wanted - c->share->held;
}

/* Whether c, which is in line, may get room: it has the lane, or it is its tenant's first
 * and there is room or, if the tenant is stuck, the lane is free. */
static bool body_may_go_on(const body_room *r, const body_claim *c) {
    bool is_stuck = c->share->n_waiting == c->share->n_claims;
    return r->lane == c || (!c->share->is_passed && (body_fits_share(r, c) || (r->lane == NULL && is_stuck)));
}

static void body_grant(body_room *r, body_claim *c) {
    if (body_fits_share(r, c)) {
        r->n_bytes += c->wanted;
        c->share->held += c->wanted;
    } else {
        r->lane = c;
        c->in_lane += c->wanted;
    }
    r->n_taken += c->wanted;
    c->held += c->wanted;
    c->share->n_waiting--;
}

static void body_enter_line(body_room *r, body_claim *c) {
    body_claim **at = &r->first;
    while (*at != NULL && (*at)->turn <= c->turn) {
        at = &(*at)->next;
    }
    c->next = *at;
    *at = c;
    c->share->n_waiting++;
    atomic_store(&c->waits, true);
}

static void body_leave_line(body_room *r, body_claim *c) {
    for (body_claim **at = &r->first; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            c->share->n_waiting--;
            return;
        }
    }
}

/* Grants room to the claims in line that may have it. True if one of them is not `own`:
 * the caller then wakes their threads. */
static bool body_walk_line(body_room *r, const body_claim *own) {
    bool others = false;
    for (body_claim **at = &r->first; *at != NULL;) {
        body_claim *c = *at;
        if (body_may_go_on(r, c)) {
            *at = c->next;
            body_grant(r, c);
            others = others || c != own;
            atomic_store(&c->waits, false); /* from here on the claim's owner may use it on another thread */
        } else {
            c->share->is_passed = true;
            at = &c->next;
        }
    }
    for (const body_claim *c = r->first; c != NULL; c = c->next) {
        c->share->is_passed = false;
    }
    return others;
}

/* ---- memory: the calls ---- */

bool body_room_take(body_room *r, body_claim *c, str tenant, uint64_t whole, size_t n) {
    assert(n > 0 && !atomic_load(&c->waits));
    pthread_mutex_lock(&r->lock);
    if (c->share == NULL) {
        c->share = body_share_of(r, str_hash(STR_HASH_START, tenant));
        c->share->n_claims++;
        c->turn = r->n_taken + whole;
    }
    c->wanted = n;
    body_enter_line(r, c);
    bool rings = body_walk_line(r, c), taken = !atomic_load(&c->waits);
    pthread_mutex_unlock(&r->lock);
    if (rings) {
        r->ring(r->ring_arg);
    }
    return taken;
}

void body_room_give(body_room *r, body_claim *c) {
    if (c->share == NULL) {
        return;
    }
    pthread_mutex_lock(&r->lock);
    body_leave_line(r, c);
    r->n_bytes -= c->held - c->in_lane;
    c->share->held -= c->held - c->in_lane;
    c->share->n_claims--;
    r->lane = r->lane == c ? NULL : r->lane;
    bool rings = body_walk_line(r, NULL);
    pthread_mutex_unlock(&r->lock);
    *c = (body_claim){0};
    if (rings) {
        r->ring(r->ring_arg);
    }
}

body_room_counts body_room_count(body_room *r) {
    body_room_counts n = {0};
    pthread_mutex_lock(&r->lock);
    n.n_bytes = r->n_bytes + (r->lane != NULL ? r->lane->in_lane : 0);
    for (const body_claim *c = r->first; c != NULL; c = c->next) {
        n.n_waiting++;
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

/* ---- turns ---- */

/* Starts the timer unless it is running. */
static void body_turns_start(const body_turns *t) {
    if (!event_pending(t->timer, EV_TIMEOUT, NULL)) {
        event_add(t->timer, &(struct timeval){.tv_usec = TURN_US});
    }
}

static void body_turns_next(evutil_socket_t fd, short what, void *arg) {
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
        body_turns_start(t);
    }
}

bool body_turns_open(body_turns *t, struct event_base *base) {
    t->timer = evtimer_new(base, body_turns_next, t);
    return t->timer != NULL;
}

void body_turns_close(body_turns *t) {
    if (t->timer != NULL) {
        event_free(t->timer);
        t->timer = NULL;
    }
}

void body_turn_end_if_due(body_turns *t, body_turn *turn, struct bufferevent *bev) {
    assert(bev != NULL && t->timer != NULL);
    if (turn->n_bytes < TURN_BYTES || turn->waits) {
        return;
    }
    body_turns_start(t);
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
