#include "server/body_reader.h"

#include <assert.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"

/* bytes received at once without the input buffer, which takes 4 KB, and unit of room */
#define PIECE_BYTES ((size_t)64 << 10)
#define SKIP_BYTES  ((size_t)128 << 10) /* bytes of a dropped body that are skipped at once */
/* bytes at which the first look at a body begins, more than a rule may have */
#define LOOK_BYTES ((size_t)1152 << 10)

static const server_options *body_options(const body_reader *b) {
    return &b->loop->server->options;
}

static bool body_has_length(const body_reader *b) {
    return b->request->n_encodings == 0;
}

/* ---- the client's time ---- */

/* Whether the minimum rate applies: the body is large, or was announced as large. */
static bool body_has_pace(const body_reader *b) {
    uint64_t n = body_has_length(b) ? b->request->length : b->request->n_body_bytes;
    return body_options(b)->body_least_rate > 0 && n > BODY_SMALL_BYTES;
}

/* How much time the body has left. */
static int64_t body_left_us(const body_reader *b) {
    int64_t us = b->time_us - (clock_us() - b->time_from_us);
    return us > 1 ? us : 1;
}

/* Sets the deadline to the end of the body's time, or us from now if that is earlier. */
static void body_set_deadline(body_reader *b, int64_t us) {
    int64_t left = body_left_us(b);
    loop_set_timer(b->deadline, left < us ? left : us);
}

/* Restarts the interval over which the body's rate is measured. */
static void body_count_anew(body_reader *b) {
    b->pace_from_us = clock_us();
    b->pace_from_bytes = b->request->n_body_bytes;
    b->has_waited = false;
    body_set_deadline(b, body_options(b)->body_pace_us);
}

static void body_start_clock(body_reader *b, int64_t us) {
    b->time_us = us;
    b->time_from_us = clock_us();
    body_count_anew(b);
}

/* Stops reading for a time that does not count as the client's. */
static void body_stop_clock(body_reader *b) {
    b->time_us = body_left_us(b);
    body_turn_leave(&b->loop->turns, &b->turn); /* a turn would resume reading */
    bufferevent_disable(b->bev, EV_READ);
}

/* ---- the machine ---- */

static void body_do_nothing(body_reader *b) {
    (void)b;
}

static void body_begin(body_reader *b) {
    b->look_bytes = LOOK_BYTES;
    body_start_clock(b, body_options(b)->body_deadline_us);
}

static void body_wait_in_line(body_reader *b) {
    body_stop_clock(b);
    loop_set_timer(b->deadline, body_options(b)->body_deadline_us);
}

static void body_wait_for_look(body_reader *b) {
    body_stop_clock(b);
    event_del(b->deadline);
}

static void body_read_on(body_reader *b) {
    body_start_clock(b, b->time_us);
    bufferevent_enable(b->bev, EV_READ);
}

/* Reserves address space for the whole of a body that has room and a known length. */
static void body_reserve(body_reader *b) {
    strbuf *text = &b->request->body;
    if (body_has_length(b) && text->cap <= b->request->length) {
        /* a failure shows up when bytes are appended */
        (void)strbuf_reserve(text, (size_t)b->request->length - text->n);
    }
}

static void body_get_room(body_reader *b) {
    assert(!atomic_load(&b->room.waits));
    body_reserve(b);
    body_read_on(b);
}

static void body_drop(body_reader *b) {
    body_give_room(b);
    body_turn_leave(&b->loop->turns, &b->turn);
}

static const struct body_step {
    body_state from;
    body_event event;
    body_state to;
    void (*act)(body_reader *b);
} body_steps[] = {
    {BODY_NONE, BODY_BEGINS, BODY_READING, body_begin},
    {BODY_READING, BODY_LACKS_ROOM, BODY_IN_LINE, body_wait_in_line},
    {BODY_IN_LINE, BODY_GETS_ROOM, BODY_READING, body_get_room},
    {BODY_READING, BODY_LOOK_BEGINS, BODY_LOOKED_OVER, body_wait_for_look},
    {BODY_LOOKED_OVER, BODY_LOOK_ENDS, BODY_READING, body_read_on},
    {BODY_NONE, BODY_ENDS, BODY_NONE, body_do_nothing},
    {BODY_READING, BODY_ENDS, BODY_NONE, body_do_nothing},
    {BODY_NONE, BODY_IS_DROPPED, BODY_NONE, body_drop},
    {BODY_READING, BODY_IS_DROPPED, BODY_NONE, body_drop},
    {BODY_IN_LINE, BODY_IS_DROPPED, BODY_NONE, body_drop},
    {BODY_LOOKED_OVER, BODY_IS_DROPPED, BODY_NONE, body_drop},
};

static const struct body_step *body_find_step(body_state s, body_event e) {
    const struct body_step *found = NULL;
    for (size_t i = 0; i < sizeof body_steps / sizeof *body_steps; i++) {
        found = body_steps[i].from == s && body_steps[i].event == e ? &body_steps[i] : found;
    }
    return found;
}

void body_open(body_reader *b, loop *l, http_request *r, struct bufferevent *bev, struct event *deadline) {
    assert(l != NULL && r != NULL && bev != NULL && deadline != NULL);
    *b = (body_reader){.loop = l, .request = r, .bev = bev, .deadline = deadline};
}

bool body_has_event(body_state s, body_event e) {
    return body_find_step(s, e) != NULL;
}

void body_on(body_reader *b, body_event e) {
    const struct body_step *step = body_find_step(b->state, e);
    assert(step != NULL);
    b->state = step->to;
    step->act(b);
}

/* ---- turns ---- */

void body_note_input(body_reader *b) {
    if (b->state == BODY_READING && b->has_waited) {
        body_count_anew(b);
    }
    b->has_waited = false;
}

void body_end_turn_if_due(body_reader *b) {
    if (b->state == BODY_NONE || b->state == BODY_READING) {
        body_turn_end_if_due(&b->loop->turns, &b->turn, b->bev);
        b->has_waited = b->turn.waits;
    }
}

/* ---- lateness ---- */

/* Whether bytes came below the minimum rate over the last `us`; err says how many did. */
static bool body_is_slow(body_reader *b, int64_t us, quire_error *err) {
    int64_t rate = body_options(b)->body_least_rate;
    double came = (double)(b->request->n_body_bytes - b->pace_from_bytes), seconds = (double)us * 1e-6;
    if (!body_has_pace(b) || b->has_waited || came >= (double)rate * seconds) {
        return false;
    }
    atomic_fetch_add(&b->loop->n_slow_bodies, 1);
    err_set(err, QUIRE_BAD_REQUEST, -1,
            "the body came too slowly: %.0f bytes in %.3g s; a body of over %zu bytes must arrive at %lld "
            "bytes a second or more (--body-min-rate)",
            came, seconds, BODY_SMALL_BYTES, (long long)rate);
    return true;
}

/* Whether a body that is being read is too late, by its deadline or its rate. */
static bool body_reads_too_late(body_reader *b, quire_error *err) {
    int64_t us = clock_us() - b->pace_from_us, pace_us = body_options(b)->body_pace_us;
    if (b->turn.waits) {
        body_start_clock(b, body_options(b)->body_deadline_us); /* the server caused the delay */
    } else if (body_left_us(b) == 1) {
        err_set(err, QUIRE_BAD_REQUEST, -1, "the body did not arrive in time");
        return true;
    } else if (us < pace_us) {
        body_set_deadline(b, pace_us - us);
    } else if (body_is_slow(b, us, err)) {
        return true;
    } else {
        body_count_anew(b);
    }
    return false;
}

bool body_is_late(body_reader *b, quire_error *err, api_error *why) {
    if (b->state == BODY_IN_LINE) {
        *why = (api_error){
            .status = 503, .message = "too many large bodies are being read; try again", .retry_after_s = 1};
        return true;
    }
    if (b->state != BODY_READING || !body_reads_too_late(b, err)) {
        return false;
    }
    *why = (api_error){.status = 408, .message = err->message};
    return true;
}

/* ---- room ---- */

void body_give_room(body_reader *b) {
    body_room_give(&b->loop->server->bodies, &b->room);
}

/* Takes room for a large body's next piece; false: it waits in line. A body of unknown
 * length is assumed to have the largest allowed size. */
static bool body_take_piece(body_reader *b, str tenant) {
    const http_request *r = b->request;
    uint64_t whole = body_has_length(b) ? r->length : r->body_limit;
    size_t n = b->room.held == 0 ? (size_t)r->n_body_bytes + PIECE_BYTES : PIECE_BYTES;
    n = whole - b->room.held < n ? (size_t)(whole - b->room.held) : n;
    if (!body_room_take(&b->loop->server->bodies, &b->room, tenant, whole, n)) {
        body_on(b, BODY_LACKS_ROOM);
        return false;
    }
    body_reserve(b);
    return true;
}

/* Bytes of the body that may still be read into its room. A chunked body with room for
 * the largest allowed size is read until it ends or exceeds that size. */
static size_t body_room_left(const body_reader *b) {
    const http_request *r = b->request;
    bool has_most = !body_has_length(b) && b->room.held >= r->body_limit;
    if (r->drop_body || has_most || (body_has_length(b) && r->length <= BODY_SMALL_BYTES)) {
        return SIZE_MAX;
    }
    size_t has = b->room.held > 0 ? b->room.held : BODY_SMALL_BYTES;
    return has > r->n_body_bytes ? has - (size_t)r->n_body_bytes : 0;
}

size_t body_take_room(body_reader *b, str tenant) {
    if (b->state != BODY_READING) {
        return 0;
    }
    size_t n = body_room_left(b);
    return n > 0 || !body_take_piece(b, tenant) ? n : body_room_left(b);
}

/* ---- looks ---- */

bool body_is_look_due(body_reader *b) {
    const http_request *r = b->request;
    bool is_long = !body_has_length(b) || r->length - r->n_body_bytes >= r->n_body_bytes;
    if (b->state != BODY_READING || r->drop_body || r->body.n < b->look_bytes || !is_long) {
        return false;
    }
    b->look_bytes *= 2;
    return true;
}

/* ---- receiving ---- */

bool body_receive(body_reader *b, size_t n, http_event *e) {
    assert(n > 0 && body_has_length(b));
    char piece[PIECE_BYTES];
    uint64_t left;
    /* TCP can discard bytes without a copy; UNIX sockets cannot */
    bool skips = b->request->drop_body && b->loop->server->socket_file == NULL;
    char *place = http_body_place(b->request, &left);
    size_t most = skips ? SKIP_BYTES : sizeof piece;
    most = n < most ? n : most;
    size_t wanted = left < most ? (size_t)left : most, used;
    char *to = skips ? NULL : place != NULL ? place : piece;
    ssize_t got = recv(bufferevent_getfd(b->bev), to, wanted, MSG_DONTWAIT | (skips ? MSG_TRUNC : 0));
    if (got <= 0) {
        return false; /* the next event reports the end of input */
    }
    *e = to != piece ? http_body_received(b->request, (size_t)got)
                     : http_feed(b->request, piece, (size_t)got, &used);
    b->turn.n_bytes += (size_t)got;
    return true;
}
