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
    int32_t call;   /* of a call's events: its index, 0, 1, 2 .. */
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

#endif
