/* How many calls an answer has, and that none is made twice: the events of its parser on
 * their way to the reader.
 *
 * A call that begins like an earlier one of the answer is held back until it differs.
 * Where it ends without having differed, the answer is over and that call is none of it;
 * so it is where one more call than allowed begins. All this is a function of the
 * answer's text, so it is the same however the text came about. Owner: its choice; one
 * thread. */
#ifndef ANSWER_CALL_LIMIT_H
#define ANSWER_CALL_LIMIT_H

#include "answer/output_events.h"

/* Zero-initialised but for the first two: no call yet. */
typedef struct call_limit {
    int32_t most;     /* calls of an answer; 0: any number */
    bool is_distinct; /* calls with the same name and arguments, white space aside, are the same */
    bool is_over;
    int32_t n; /* calls that have begun */
    /* [n_earlier] the calls that have ended: name, a line end, arguments without white
     * space between tokens */
    strbuf *earlier;
    size_t n_earlier, cap_earlier;
    strbuf now;                 /* the same of the call that is read */
    bool in_string, is_escaped; /* at its end */
    bool is_held;
    output_events held, passed;
} call_limit;

/* Replaces what was found by what of it the reader gets. is_over is set with the last of
 * it. NO_MEMORY. */
quire_err call_limit_pass(call_limit *l, output_events *found);
/* The text has ended: appends what is held back of an unfinished call to *found.
 * NO_MEMORY. */
quire_err call_limit_flush(call_limit *l, output_events *found);
void call_limit_deinit(call_limit *l);

#endif
