/* The machine that reads bodies: each state with each event, without a server around
 * it. */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/body_reader.h"
#include "test.h"

#define ROOM_BYTES  ((size_t)4 << 20)
#define LARGE_BYTES 1000000 /* of the body */
#define LONG_US     INT64_C(3600000000)

typedef struct rig {
    server server;
    loop loop;
    http_request request;
    struct bufferevent *bev;
    struct event *deadline;
    int client;
    body_reader body;
} rig;

static void ignore_ring(void *arg) {
    (void)arg;
}

static LOOP_CALLBACK(ignore_deadline) {
    (void)arg;
}

/* A connection whose request has a head that announces a large body. */
static rig *open_rig(void) {
    static const char head[] = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
    rig *r = calloc(1, sizeof *r);
    int fds[2];
    size_t used;
    server_options_init(&r->server.options);
    r->server.options.body_deadline_us = r->server.options.body_pace_us = LONG_US;
    body_room_open(&r->server.bodies, ROOM_BYTES, ignore_ring, NULL);
    r->loop = (loop){.server = &r->server, .base = event_base_new()};
    assert_true(body_turns_open(&r->loop.turns, r->loop.base));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    r->client = fds[1];
    r->bev = bufferevent_socket_new(r->loop.base, fds[0], BEV_OPT_CLOSE_ON_FREE);
    bufferevent_enable(r->bev, EV_READ);
    r->deadline = evtimer_new(r->loop.base, ignore_deadline, r);
    http_init(&r->request, 4096, 2 * LARGE_BYTES);
    assert_int_equal(http_feed(&r->request, head, strlen(head), &used), HTTP_GOT_HEAD);
    body_open(&r->body, &r->loop, &r->request, r->bev, r->deadline);
    return r;
}

static void close_rig(rig *r) {
    body_on(&r->body, BODY_IS_DROPPED);
    assert_int_equal(body_room_count(&r->server.bodies).n_bytes, 0);
    body_room_close(&r->server.bodies);
    body_turns_close(&r->loop.turns);
    event_free(r->deadline);
    bufferevent_free(r->bev);
    http_deinit(&r->request);
    event_base_free(r->loop.base);
    close(r->client);
    free(r);
}

static bool reads(const rig *r) {
    return (bufferevent_get_enabled(r->bev) & EV_READ) != 0;
}

static bool has_deadline(const rig *r) {
    return event_pending(r->deadline, EV_TIMEOUT, NULL) != 0;
}

/* Feeds n bytes of the body. */
static void feed(rig *r, size_t n) {
    char *bytes = calloc(1, n);
    size_t used;
    assert_int_equal(http_feed(&r->request, bytes, n, &used), HTTP_WANTS_MORE);
    free(bytes);
}

/* Takes all of the room that tenant a may have, so that its next body waits in line. */
static void fill_room(rig *r, body_claim *c) {
    assert_true(body_room_take(&r->server.bodies, c, str_of("a"), ROOM_BYTES / 2, ROOM_BYTES / 2));
}

/* Brings the body, of tenant a, into line; c holds the room that it waits for. */
static void bring_into_line(rig *r, body_claim *c) {
    fill_room(r, c);
    body_on(&r->body, BODY_BEGINS);
    feed(r, BODY_SMALL_BYTES);
    assert_int_equal(body_take_room(&r->body, str_of("a")), 0);
    assert_int_equal(r->body.state, BODY_IN_LINE);
}

TEST(each_state_has_the_events_of_its_row) {
    static const bool has[BODY_N_STATES][BODY_N_EVENTS] = {
        [BODY_NONE] = {[BODY_BEGINS] = true, [BODY_ENDS] = true, [BODY_IS_DROPPED] = true},
        [BODY_READING] = {[BODY_LACKS_ROOM] = true,
                          [BODY_LOOK_BEGINS] = true,
                          [BODY_ENDS] = true,
                          [BODY_IS_DROPPED] = true},
        [BODY_IN_LINE] = {[BODY_GETS_ROOM] = true, [BODY_IS_DROPPED] = true},
        [BODY_LOOKED_OVER] = {[BODY_LOOK_ENDS] = true, [BODY_IS_DROPPED] = true},
    };
    for (body_state s = 0; s < BODY_N_STATES; s++) {
        for (body_event e = 0; e < BODY_N_EVENTS; e++) {
            assert_int_equal(body_has_event(s, e), has[s][e]);
        }
    }
}

TEST(none_begins_with_a_deadline) {
    rig *r = open_rig();
    assert_int_equal(body_take_room(&r->body, str_of("a")), 0);
    body_on(&r->body, BODY_BEGINS);
    assert_int_equal(r->body.state, BODY_READING);
    assert_true(has_deadline(r));
    assert_int_equal(body_take_room(&r->body, str_of("a")), BODY_SMALL_BYTES);
    close_rig(r);
}

TEST(none_ends_and_is_dropped_without_effect) {
    rig *r = open_rig();
    body_on(&r->body, BODY_ENDS);
    body_on(&r->body, BODY_IS_DROPPED);
    assert_int_equal(r->body.state, BODY_NONE);
    assert_true(reads(r));
    close_rig(r);
}

TEST(reading_that_lacks_room_stops_and_goes_on_when_it_gets_room) {
    rig *r = open_rig();
    body_claim other = {0};
    bring_into_line(r, &other);
    assert_false(reads(r));
    assert_int_equal(body_room_count(&r->server.bodies).n_waiting, 1);
    assert_int_equal(body_take_room(&r->body, str_of("a")), 0);
    body_room_give(&r->server.bodies, &other);
    assert_false(atomic_load(&r->body.room.waits));
    body_on(&r->body, BODY_GETS_ROOM);
    assert_int_equal(r->body.state, BODY_READING);
    assert_true(reads(r));
    assert_true(body_take_room(&r->body, str_of("a")) > 0);
    assert_true(r->request.body.cap > LARGE_BYTES); /* the addresses of all of it */
    close_rig(r);
}

TEST(in_line_is_late_with_503_and_leaves_when_it_is_dropped) {
    rig *r = open_rig();
    body_claim other = {0};
    quire_error err;
    api_error why;
    bring_into_line(r, &other);
    assert_true(has_deadline(r));
    assert_true(body_is_late(&r->body, &err, &why));
    assert_int_equal(why.status, 503);
    assert_int_equal(why.retry_after_s, 1);
    body_on(&r->body, BODY_IS_DROPPED);
    assert_int_equal(r->body.state, BODY_NONE);
    assert_int_equal(body_room_count(&r->server.bodies).n_waiting, 0);
    body_room_give(&r->server.bodies, &other);
    close_rig(r);
}

TEST(reading_pauses_without_a_deadline_during_a_look) {
    rig *r = open_rig();
    quire_error err;
    api_error why;
    body_on(&r->body, BODY_BEGINS);
    body_on(&r->body, BODY_LOOK_BEGINS);
    assert_int_equal(r->body.state, BODY_LOOKED_OVER);
    assert_false(reads(r));
    assert_false(has_deadline(r));
    assert_false(body_is_late(&r->body, &err, &why));
    assert_int_equal(body_take_room(&r->body, str_of("a")), 0);
    body_on(&r->body, BODY_LOOK_ENDS);
    assert_int_equal(r->body.state, BODY_READING);
    assert_true(reads(r));
    assert_true(has_deadline(r));
    body_on(&r->body, BODY_LOOK_BEGINS);
    body_on(&r->body, BODY_IS_DROPPED);
    assert_int_equal(r->body.state, BODY_NONE);
    close_rig(r);
}

TEST(the_clients_time_stands_still_while_nothing_is_read) {
    rig *r = open_rig();
    quire_error err;
    api_error why;
    body_on(&r->body, BODY_BEGINS);
    r->body.time_from_us -= LONG_US / 2;
    body_on(&r->body, BODY_LOOK_BEGINS);
    r->body.time_from_us -= LONG_US; /* a look that takes longer than all of its time */
    body_on(&r->body, BODY_LOOK_ENDS);
    assert_false(body_is_late(&r->body, &err, &why));
    assert_true(r->body.time_us <= LONG_US / 2);
    r->body.time_from_us -= LONG_US;
    assert_true(body_is_late(&r->body, &err, &why));
    assert_int_equal(why.status, 408);
    close_rig(r);
}

TEST(reading_that_ends_keeps_its_room_and_gives_it_when_it_is_dropped) {
    rig *r = open_rig();
    for (int i = 0; i < 2; i++) {
        body_on(&r->body, BODY_BEGINS);
        feed(r, BODY_SMALL_BYTES);
        assert_true(body_take_room(&r->body, str_of("a")) > 0);
        body_on(&r->body, i == 0 ? BODY_ENDS : BODY_IS_DROPPED);
        assert_int_equal(r->body.state, BODY_NONE);
        assert_int_equal(body_room_count(&r->server.bodies).n_bytes > 0, i == 0);
        body_give_room(&r->body);
        r->request.n_body_bytes = 0;
    }
    close_rig(r);
}

TEST(a_slow_body_is_late_unless_it_waited_for_its_turn) {
    rig *r = open_rig();
    quire_error err;
    api_error why;
    r->server.options.body_pace_us = 1000000;
    body_on(&r->body, BODY_BEGINS);
    r->body.pace_from_us -= 2000000;
    r->body.has_waited = true;
    assert_false(body_is_late(&r->body, &err, &why));
    assert_false(r->body.has_waited); /* its bytes are counted anew */
    r->body.pace_from_us -= 2000000;
    assert_true(body_is_late(&r->body, &err, &why));
    assert_int_equal(why.status, 408);
    assert_non_null(strstr(why.message, "--body-min-rate"));
    assert_int_equal(atomic_load(&r->loop.n_slow_bodies), 1);
    r->body.turn.n_bytes = TURN_BYTES;
    body_end_turn_if_due(&r->body);
    assert_true(r->body.turn.waits);
    r->body.time_from_us -= 2 * LONG_US;
    assert_false(body_is_late(&r->body, &err, &why)); /* it is the server that did not read */
    close_rig(r);
}

TEST_MAIN(NULL, NULL)
