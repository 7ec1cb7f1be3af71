/* Bodies of requests: room for the large ones, how fast they have to come, and receiving
 * them. */
#include <event2/buffer.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/conn_impl.h"

/* of a body, received at once past the input buffer, which takes 4 KB; a piece of room */
#define BODY_PIECE_BYTES ((size_t)64 << 10)
#define BODY_PIECES      4                   /* such pieces, before other connections have their turn */
#define SKIP_BYTES       ((size_t)128 << 10) /* skipped at once of a body that is dropped */
/* what a body begins with, looked over; more than a rule for the answer may have */
#define LOOK_BYTES ((size_t)1152 << 10)

static bool has_length(const conn *c) {
    return c->request.n_encodings == 0;
}

/* ---- deadlines ---- */

/* Whether the body has to come at the least rate: one that is large, or is to be. */
static bool has_pace(const conn *c) {
    const server_options *o = &c->loop->server->options;
    uint64_t n = has_length(c) ? c->request.length : c->request.n_body_bytes;
    return o->body_least_rate > 0 && n > BODY_SMALL_BYTES;
}

/* How long the body may take yet. */
static int64_t left_us(const conn *c) {
    int64_t us = c->body_us - (clock_us() - c->body_from_us);
    return us > 1 ? us : 1;
}

/* Starts counting the body's bytes anew, and the deadline: the end of its time, or of the
 * time that they are counted for. */
static void count_anew(conn *c) {
    int64_t pace_us = c->loop->server->options.body_pace_us, left = left_us(c);
    c->pace_from_us = clock_us();
    c->pace_from_bytes = c->request.n_body_bytes;
    c->had_turn_to_wait_for = false;
    conn_set_deadline(c, left < pace_us ? left : pace_us);
}

/* The client has its time: for all of the body, and for its next bytes. */
static void start_clock(conn *c, int64_t us) {
    c->body_us = us;
    c->body_from_us = clock_us();
    count_anew(c);
}

/* The server does not read for a time, which is not the client's. */
static void stop_clock(conn *c) {
    c->body_us = left_us(c);
    body_turn_leave(&c->loop->turns, &c->turn); /* which would let it read */
    bufferevent_disable(c->bev, EV_READ);
}

static void resume(conn *c) {
    start_clock(c, c->body_us);
    bufferevent_enable(c->bev, EV_READ);
    conn_process(c);
}

void conn_begin_body(conn *c) {
    c->look_bytes = LOOK_BYTES;
    start_clock(c, c->loop->server->options.body_deadline_us);
}

void conn_reads_body(conn *c) {
    if (c->state == CONN_BODY && c->had_turn_to_wait_for) {
        count_anew(c);
    }
    c->had_turn_to_wait_for = false;
}

const char *conn_body_late(conn *c) {
    const server_options *o = &c->loop->server->options;
    if (c->turn.waits) {
        start_clock(c, o->body_deadline_us); /* it is not the client that is late */
        return NULL;
    }
    if (left_us(c) == 1) {
        return "the body did not arrive in time";
    }
    int64_t us = clock_us() - c->pace_from_us;
    double came = (double)(c->request.n_body_bytes - c->pace_from_bytes),
           least = (double)o->body_least_rate * (double)us * 1e-6;
    if (us < o->body_pace_us) {
        conn_set_deadline(c, left_us(c) < o->body_pace_us - us ? left_us(c) : o->body_pace_us - us);
        return NULL;
    }
    if (has_pace(c) && !c->had_turn_to_wait_for && came < least) {
        atomic_fetch_add(&c->loop->n_slow_bodies, 1);
        err_set(&c->refusal_error, QUIRE_BAD_REQUEST, -1,
                "the body came too slowly: %.0f bytes in %.3g s; one of over %zu bytes has to bring %lld a "
                "second (--body-min-rate)",
                came, (double)us * 1e-6, BODY_SMALL_BYTES, (long long)o->body_least_rate);
        return c->refusal_error.message;
    }
    count_anew(c);
    return NULL;
}

/* ---- room ---- */

void conn_give_body_room(conn *c) {
    body_room_give(&c->loop->server->bodies, &c->room);
}

void conn_stop_body(conn *c) {
    c->waits_for_room = false;
    conn_give_body_room(c);
    body_turn_leave(&c->loop->turns, &c->turn);
}

/* Gives a body that has its first room the addresses for all of it, where its length is
 * known. */
static void reserve_memory(conn *c) {
    strbuf *body = &c->request.body;
    if (has_length(c) && body->cap <= c->request.length) {
        /* on a failure, appending fails later */
        (void)strbuf_reserve(body, (size_t)c->request.length - body->n);
    }
}

/* Takes room for the next piece of a large body. Otherwise the connection reads nothing
 * until there is some. A body of unknown length is taken for one of the largest allowed
 * size. */
static void take_room(conn *c) {
    http_request *r = &c->request;
    bool begins = c->room.held == 0;
    size_t n = begins ? (size_t)r->n_body_bytes + BODY_PIECE_BYTES : BODY_PIECE_BYTES;
    uint64_t whole = has_length(c) ? r->length : r->body_limit;
    n = whole - c->room.held < n ? (size_t)(whole - c->room.held) : n;
    str tenant = {c->tenant, c->has_tenant ? strlen(c->tenant) : 0};
    if (body_room_take(&c->loop->server->bodies, &c->room, tenant, whole, n)) {
        reserve_memory(c);
        return;
    }
    stop_clock(c);
    c->waits_for_room = true;
    conn_set_deadline(c, c->loop->server->options.body_deadline_us);
}

/* Bytes of the body that there is room for. A chunked one that has room for the largest
 * allowed size is read on, to its end or to what makes it too large. */
static size_t room_left(const conn *c) {
    const http_request *r = &c->request;
    bool has_most = !has_length(c) && c->room.held >= r->body_limit;
    if (r->drop_body || has_most || (has_length(c) && r->length <= BODY_SMALL_BYTES)) {
        return SIZE_MAX;
    }
    size_t has = c->room.held > 0 ? c->room.held : BODY_SMALL_BYTES;
    return has > r->n_body_bytes ? has - (size_t)r->n_body_bytes : 0;
}

size_t conn_body_takes(conn *c) {
    if (c->state != CONN_BODY || c->waits_for_room || c->pending != NULL) {
        return 0;
    }
    size_t n = room_left(c);
    if (n == 0) {
        take_room(c);
        n = c->waits_for_room ? 0 : room_left(c);
    }
    return n;
}

void conn_resume_bodies(loop *l) {
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        if (c->waits_for_room && !atomic_load(&c->room.waits)) {
            c->waits_for_room = false;
            reserve_memory(c);
            resume(c);
        }
    }
}

/* ---- looks ---- */

void conn_look_if_due(conn *c) {
    http_request *r = &c->request;
    bool is_long = !has_length(c) || r->length - r->n_body_bytes >= r->n_body_bytes;
    if (c->look == NULL || r->drop_body || r->body.n < c->look_bytes || !is_long) {
        return;
    }
    c->look_bytes *= 2;
    if (c->look(c)) {
        stop_clock(c);
        event_del(c->deadline);
    }
}

void conn_resume_body(conn *c) {
    resume(c);
}

void conn_drop_body(conn *c, const quire_error *err) {
    api_error e = error_of(err);
    c->refusal_error = *err;
    c->refusal = e.status;
    c->refusal_text = c->refusal_error.message;
    c->refusal_param = c->refusal_error.param;
    c->request.drop_body = true;
    strbuf_deinit(&c->request.body);
    conn_give_body_room(c);
}

/* ---- receiving ---- */

/* Receives a piece of a body whose length is known, of n bytes at most, into the body
 * where it has its memory. False: nothing was there, or an end that is met at the next
 * event. */
static bool receive_piece(conn *c, size_t n) {
    char piece[BODY_PIECE_BYTES];
    uint64_t left;
    /* TCP throws away what it would copy; UNIX sockets cannot */
    bool skips = c->request.drop_body && c->loop->server->socket_file == NULL;
    char *place = http_body_place(&c->request, &left);
    size_t most = skips ? SKIP_BYTES : sizeof piece;
    most = n < most ? n : most;
    size_t wanted = left < most ? (size_t)left : most;
    char *to = skips ? NULL : place != NULL ? place : piece;
    ssize_t got = recv(bufferevent_getfd(c->bev), to, wanted, MSG_DONTWAIT | (skips ? MSG_TRUNC : 0));
    if (got <= 0) {
        return false;
    }
    if (to != piece) {
        c->turn.n_bytes += (size_t)got;
        conn_go_on(c, http_body_received(&c->request, (size_t)got));
    } else {
        conn_feed(c, piece, (size_t)got, NULL);
    }
    return true;
}

void conn_receive_body(conn *c) {
    c->processing = true;
    for (int i = 0;
         i < BODY_PIECES && has_length(c) && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0; i++) {
        size_t n = conn_body_takes(c);
        if (n == 0 || !receive_piece(c, n)) {
            break;
        }
    }
    c->processing = false;
}
