/* The body of a request while it arrives: a separate state machine, which the connection
 * (conn.h) feeds with events. Its table is in body_reader.c.
 *
 *   BODY_NONE -BEGINS-> BODY_READING -LACKS_ROOM-> BODY_IN_LINE     -GETS_ROOM->  BODY_READING
 *                       BODY_READING -LOOK_BEGINS-> BODY_LOOKED_OVER -LOOK_ENDS-> BODY_READING
 *   any state -ENDS or IS_DROPPED-> BODY_NONE
 *
 * Bytes are read, and the client's time runs, only in BODY_READING: the whole body
 * must arrive within server_options.body_deadline_us, and a large one at the minimum
 * rate. A large body takes memory from the server's room, in whose line it waits, and
 * a connection that sends much waits for its turn (bodies.h). A text thread inspects
 * the beginning of a long body while the rest is still on its way. Owner: the loop's
 * thread. */
#ifndef SERVER_BODY_READER_H
#define SERVER_BODY_READER_H

#include "server/bodies.h"
#include "server/error_body.h"
#include "server/http.h"
#include "server/loop.h"

typedef enum body_state {
    BODY_NONE,        /* no body is arriving */
    BODY_READING,     /* its bytes are read */
    BODY_IN_LINE,     /* it waits for room for its next piece */
    BODY_LOOKED_OVER, /* a text thread inspects what has arrived so far */
    BODY_N_STATES
} body_state;

typedef enum body_event {
    BODY_BEGINS,      /* the head was read: the body may come */
    BODY_LACKS_ROOM,  /* its next piece finds no room */
    BODY_GETS_ROOM,   /* the room for which it waited is granted */
    BODY_LOOK_BEGINS, /* a text thread begins to inspect what has arrived */
    BODY_LOOK_ENDS,
    BODY_ENDS,       /* all of it has arrived; it keeps its room */
    BODY_IS_DROPPED, /* the rest is not wanted: gives up its room, its place in line and its turn */
    BODY_N_EVENTS
} body_event;

typedef struct body_reader {
    /* For as long as the connection is open; borrowed. */
    loop *loop;
    http_request *request;
    struct bufferevent *bev;
    struct event *deadline;

    body_state state;
    body_claim room;               /* its memory of server.bodies, until the first token of the response */
    body_turn turn;                /* the connection's turn at receiving, in loop.turns */
    size_t look_bytes;             /* number of bytes at which it is inspected next */
    int64_t time_us, time_from_us; /* time_us: time allowed from time_from_us on */
    /* start of the interval over which its rate is measured, and the bytes before it */
    int64_t pace_from_us;
    uint64_t pace_from_bytes;
    bool has_waited; /* it waited for its turn since pace_from_us: the interval begins again */
} body_reader;

/* Attaches b to a connection. */
void body_open(body_reader *b, loop *l, http_request *r, struct bufferevent *bev, struct event *deadline);
/* True if the state accepts the event, so that body_on may be called with it. */
bool body_has_event(body_state s, body_event e);
void body_on(body_reader *b, body_event e);

/* There is input: if the body waited for its turn, its rate is measured from now on. */
void body_note_input(body_reader *b);
/* Ends the connection's turn at receiving if it has had its share. Not called while the
 * body waits for something else. */
void body_end_turn_if_due(body_reader *b);
/* How many bytes of the body may be read now; SIZE_MAX: any number; 0: none, until an
 * event. tenant: whose room it takes. */
size_t body_take_room(body_reader *b, str tenant);
/* Receives a piece of at most n bytes of a body of known length, past the input buffer:
 * in large pieces, since a body of megabytes would otherwise take thousands of rounds of
 * the loop. False: nothing had arrived. *e: as for http_feed. */
bool body_receive(body_reader *b, size_t n, http_event *e);
/* True if enough has arrived to be inspected, and as much again may follow. True once per
 * length. */
bool body_is_look_due(body_reader *b);
/* Handles the deadline. True: the body is given up, for the reason in *why, whose text
 * err holds. False: it has time left. */
bool body_is_late(body_reader *b, quire_error *err, api_error *why);
/* Gives back the body's room, if it has any, because the body is freed or its response
 * has begun. */
void body_give_room(body_reader *b);

#endif
