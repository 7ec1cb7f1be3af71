/* Events: what an output parser found in a piece of an answer. */
#ifndef ANSWER_OUTPUT_EVENTS_H
#define ANSWER_OUTPUT_EVENTS_H

#include "base/str.h"

typedef enum output_kind {
    OUTPUT_REASONING,  /* text */
    OUTPUT_CONTENT,    /* text */
    OUTPUT_CALL_BEGIN, /* text is the function's name, id the call's id as the model wrote it, or empty */
    OUTPUT_ARGUMENTS,  /* text is a piece of the arguments' JSON text */
    OUTPUT_CALL_END
} output_kind;

typedef struct output_event {
    output_kind kind;
    int32_t call;   /* index of the call: 0, 1, 2 .. */
    size_t text, n; /* in output_events.text */
    size_t id, n_id;
} output_event;

/* Zero-initialised: none. Its owner clears it between feeds, or lets it grow. Neighbours
 * of one kind are one event. */
typedef struct output_events {
    output_event *items;
    size_t n, cap;
    strbuf text;
} output_events;

void output_events_clear(output_events *e);
void output_events_deinit(output_events *e);
static inline str output_event_text(const output_events *e, size_t i) {
    return (str){e->text.p + e->items[i].text, e->items[i].n};
}

/* Appends an event; text joins the last one of the same kind and call. QUIRE_NO_MEMORY,
 * QUIRE_TOO_LARGE (text.max). */
quire_err output_events_add(output_events *e, output_kind kind, int32_t call, str text, str id);

/* ---- how many calls an answer has ---- */

/* How many calls an answer has, and that none is made twice: the events of its parser on
 * their way to the reader.
 *
 * A call that begins like an earlier one of the answer is held back until it differs.
 * Where it ends without having differed, the answer is over and that call is none of it;
 * so it is where one more call than allowed begins. All this is a function of the
 * answer's text, so it is the same however the text came about. Owner: its choice; one
 * thread. */

/* Zero-initialised, except the first two members: no call yet. */
typedef struct call_limit {
    int32_t most;     /* calls of an answer; 0: any number */
    bool is_distinct; /* calls with the same name and arguments, white space aside, are the same */
    bool is_over;
    int32_t n; /* calls that have begun */
    /* [n_earlier] the calls that have ended: name, a line end, arguments without white
     * space between tokens */
    strbuf *earlier;
    size_t n_earlier, cap_earlier;
    strbuf now;                 /* the same of the call being read */
    bool in_string, is_escaped; /* at its end */
    bool is_held;
    output_events held, passed;
} call_limit;

/* Replaces the found events by those that the reader gets. is_over is set with the last
 * one. NO_MEMORY. */
quire_err call_limit_pass(call_limit *l, output_events *found);
/* The text has ended: appends the held events of an unfinished call to *found.
 * NO_MEMORY. */
quire_err call_limit_flush(call_limit *l, output_events *found);
void call_limit_deinit(call_limit *l);

#endif
