/* Clients that read slowly: who counts as one, and which connections close when too much
 * is unread. */
#include "base/clock.h"
#include "server/conn.h"

#define PATIENT_US 1000000 /* a client that read some output within this time is not slow */

void conn_count_slow(conn *c) {
    if (!c->is_slow) {
        c->is_slow = true;
        atomic_fetch_add(&c->loop->n_slow_readers, 1);
    }
}

/* The connection that has read nothing for longest, and for PATIENT_US at least; NULL:
 * none. */
static conn *slowest(const loop *l) {
    conn *found = NULL;
    int64_t latest_us = clock_us() - PATIENT_US;
    for (conn *c = l->conns; c != NULL; c = c->next) {
        if (conn_unsent(c) > 0 && c->taken_us < latest_us) {
            latest_us = c->taken_us;
            found = c;
        }
    }
    return found;
}

void conn_relieve(loop *l) {
    while (l->n_unread > (int64_t)l->server->options.max_unread_bytes) {
        conn *c = slowest(l);
        if (c == NULL) {
            return;
        }
        conn_count_slow(c);
        conn_close(c);
    }
}
