/* Reads the body of a request: a state machine of its own, which the connection (conn.h)
 * feeds with events; the table is in body_reader.c.
 *
 *   BODY_NONE -BEGINS-> BODY_READING -LACKS_ROOM-> BODY_IN_LINE     -GETS_ROOM->  BODY_READING
 *                       BODY_READING -LOOK_BEGINS-> BODY_LOOKED_OVER -LOOK_ENDS-> BODY_READING
 *   any state -ENDS or IS_DROPPED-> BODY_NONE
 *
 * Bytes are read, and the client's time runs, only in BODY_READING: the whole body must
 * arrive within server_options.body_deadline_us, and a large one at the minimum rate. A
 * large body takes memory from the server's room and waits in its line, and a connection
 * that sends much waits for its turn (bodies.h). A text thread inspects the beginning of
 * a long body while the rest is on its way. Owner: the loop's thread. */
#ifndef SERVER_BODY_READER_H
#define SERVER_BODY_READER_H

#include "server/bodies.h"
#include "server/error_body.h"
#include "server/http.h"
#include "server/loop.h"

typedef enum body_state {
    BODY_NONE,        /* no body is arriving */
    BODY_READING,     /* bytes are read as they arrive */
    BODY_IN_LINE,     /* the body waits for room for its next piece */
    BODY_LOOKED_OVER, /* a text thread inspects what has arrived so far */
    BODY_N_STATES
} body_state;

typedef enum body_event {
    BODY_BEGINS,      /* the head was read, the body follows */
    BODY_LACKS_ROOM,  /* the next piece finds no room */
    BODY_GETS_ROOM,   /* the line has granted room */
    BODY_LOOK_BEGINS, /* a text thread begins to inspect what has arrived */
    BODY_LOOK_ENDS,
    BODY_ENDS,       /* the whole body has arrived; it keeps its room */
    BODY_IS_DROPPED, /* the rest is not needed: the body gives up its room, place in line and turn */
    BODY_N_EVENTS
} body_event;

typedef struct body_reader {
    /* borrowed for as long as the connection is open */
    loop *loop;
    http_request *request;
    struct bufferevent *bev;
    struct event *deadline;

    body_state state;
    body_claim room;               /* room in server.bodies, until the first token of the response */
    body_turn turn;                /* the connection's turn at receiving, in loop.turns */
    size_t look_bytes;             /* number of bytes at which the next look begins */
    int64_t time_us, time_from_us; /* the client has time_us from time_from_us on */
    /* start of the interval over which the rate is measured, and bytes received before */
    int64_t pace_from_us;
    uint64_t pace_from_bytes;
    bool has_waited; /* it waited for its turn since pace_from_us, so the interval begins again */
} body_reader;

/* Attaches b to a connection's loop, request, bufferevent and deadline timer. */
void body_open(body_reader *b, loop *l, http_request *r, struct bufferevent *bev, struct event *deadline);
/* Whether state s accepts event e; body_on may be called with no other. */
bool body_has_event(body_state s, body_event e);
/* Applies an event that the state accepts. May stop or resume reading. */
void body_on(body_reader *b, body_event e);

/* Notes that input came: after a wait for its turn, the rate is measured from now. */
void body_note_input(body_reader *b);
/* Ends the connection's turn at receiving if it is used up. The body must not be waiting
 * for anything. */
void body_end_turn_if_due(body_reader *b);
/* How many bytes of the body may be read now: SIZE_MAX: any number; 0: none until an
 * event. Takes the room from the tenant's share. */
size_t body_take_room(body_reader *b, str tenant);
/* Receives at most n bytes of a body of known length without the input buffer, in large
 * pieces, since otherwise a body of megabytes would take thousands of rounds of the loop.
 * False: nothing had arrived. *e as http_feed returns it. */
bool body_receive(body_reader *b, size_t n, http_event *e);
/* Whether a look is due: enough has arrived, and as much again may follow. True only once
 * for each number of bytes. */
bool body_is_look_due(body_reader *b);
/* Handles the deadline. True: the body is given up, for the reason in *why, whose text is
 * in *err. False: it has time left. */
bool body_is_late(body_reader *b, quire_error *err, api_error *why);
/* Returns the body's room, if any, once the body is freed or its response has begun. */
void body_give_room(body_reader *b);

#endif
