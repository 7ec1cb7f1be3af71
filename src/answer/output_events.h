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

/* Limits an answer's number of calls, and drops repeated ones, as the parser's events
 * pass on to the reader.
 *
 * A call that begins like an earlier one of the answer is held back until it differs. If
 * it ends without having differed, the answer ends before that call; so it does if one
 * call more than allowed begins. All this is a function of the answer's text, however it
 * was generated. Owner: its choice; one thread. */

/* Zero-initialised, except the first two members: no call yet. */
typedef struct call_limit {
    int32_t most; /* most calls of an answer; 0: any number */
    /* a call with the same name and arguments as an earlier one, except for white space,
     * is a repetition */
    bool is_distinct;
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

/* Replaces the found events by those that the reader gets. Sets is_over with the last
 * one. QUIRE_NO_MEMORY. */
quire_err call_limit_pass(call_limit *l, output_events *found);
/* The text has ended: appends the held events of an unfinished call to *found.
 * NO_MEMORY. */
quire_err call_limit_flush(call_limit *l, output_events *found);
void call_limit_deinit(call_limit *l);

#endif
