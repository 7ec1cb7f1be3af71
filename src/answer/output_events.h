/* Events: what an output parser found in a piece of an answer. */
#ifndef ANSWER_OUTPUT_EVENTS_H
#define ANSWER_OUTPUT_EVENTS_H

#include "base/str.h"

typedef enum output_kind {
    OUTPUT_REASONING,  /* text */
    OUTPUT_CONTENT,    /* text */
    OUTPUT_CALL_BEGIN, /* text: the function's name; id: the call's id as the model wrote it, or empty */
    OUTPUT_ARGUMENTS,  /* text: a piece of the arguments' JSON text */
    OUTPUT_CALL_END
} output_kind;

typedef struct output_event {
    output_kind kind;
    int32_t call;   /* index of the call: 0, 1, 2 .. */
    size_t text, n; /* the event's text is bytes [text, text + n) of output_events.text */
    size_t id, n_id;
} output_event;

/* A list of events; zero-initialised: empty. Its owner clears it between calls of
 * output_parser_feed, or lets it grow. Adjacent text events of one kind are merged. */
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

/* Appends an event; text of the same kind and call as the last event is added to that
 * one. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE (e->text.max). */
quire_err output_events_add(output_events *e, output_kind kind, int32_t call, str text, str id);

/* Limits the number of calls of an answer, and drops repeated ones, by filtering the
 * parser's events.
 *
 * A call that begins like an earlier one of the answer is held back until it differs. If
 * it ends without differing, the answer ends before that call; the answer also ends
 * before the first call beyond the limit. The result depends on the answer's text alone,
 * however it was generated. Owner: its choice; one thread. */

/* Zero-initialised, except the first two members: no calls so far. */
typedef struct call_limit {
    int32_t most; /* most calls of an answer; 0: any number */
    /* a repeated call (the same but for white space) ends the answer */
    bool is_distinct;
    bool is_over;
    int32_t n; /* calls that have begun */
    /* [n_earlier] the calls that have ended, each as its name, a newline and its
     * arguments without white space outside strings */
    strbuf *earlier;
    size_t n_earlier, cap_earlier;
    strbuf now;                 /* the call being read, in the form of `earlier` */
    bool in_string, is_escaped; /* whether `now` ends inside a string; after a backslash in it */
    bool is_held;
    output_events held, passed;
} call_limit;

/* Replaces the events in *found by those to pass on. Sets is_over once the answer has
 * ended. QUIRE_NO_MEMORY. */
quire_err call_limit_pass(call_limit *l, output_events *found);
/* Appends an unfinished call's held events to *found, at the end of text.
 * QUIRE_NO_MEMORY. */
quire_err call_limit_flush(call_limit *l, output_events *found);
void call_limit_deinit(call_limit *l);

#endif
