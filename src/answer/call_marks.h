/* The special tokens that a grammar of calls is written with, and whether the request's
 * other rules leave them. */
#ifndef ANSWER_CALL_MARKS_H
#define ANSWER_CALL_MARKS_H

#include "answer/call_grammar.h"
#include "core/model_desc.h"
#include "core/params.h"

/* The special tokens in a text, the longest at each place: mark_scan_next finds the next
 * one and moves after it. */
typedef struct mark_scan {
    str text;
    size_t at;
    const grammar_mark *found;
} mark_scan;
bool mark_scan_next(mark_scan *s, const grammar_marks *marks);

/* QUIRE_BAD_REQUEST, naming the field: bad_words bans a special token that calls need,
 * allowed_token_ids leaves it out, or the answer ends with one in the midst of a call.
 * Where no call is required, a layout whose opening mark cannot come needs no other. */
quire_err call_marks_check(const call_grammar *c, const grammar_marks *marks, const sampling_params *p,
                           const model_desc *d, quire_error *err);

#endif
