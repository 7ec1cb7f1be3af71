/* The grammar of an answer that may or must call tools: from the format's writings
 * (answer_format.h), the tools and their schemas.
 *
 * Free text begins calls by their format's own opening marks; from there on each call is
 * one of the offered functions, with arguments of its schema. */
#ifndef ANSWER_CALL_GRAMMAR_H
#define ANSWER_CALL_GRAMMAR_H

#include "answer/answer_format.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "core/params.h"
#include "grammar/grammar_parts.h"

typedef struct call_grammar {
    const answer_format *format;
    const output_tool *tools; /* offered ones */
    size_t n_tools;
    str only;         /* the one function that may be called; empty: any */
    bool is_required; /* the answer consists of calls only */
    bool is_single;   /* one call at most */
    /* set where a schema was loosened because compiling took too long; NULL: not
     * reported */
    bool *in_haste;
} call_grammar;

/* The next of the format's writings, from number *i on, in which at least one of the
 * tools can be called; *i moves past it. False if there is none. */
bool call_grammar_next(const call_grammar *c, size_t *i, call_writing *out);
/* Whether there is such a writing. */
bool call_grammar_exists(const call_grammar *c);
/* Compiles the grammar inside `frame`, the text around an answer (NULL: none). If no call
 * is required, a tool without `is_strict` whose schema cannot be enforced is only held to
 * the types of its properties. Errors as grammar_compile_parts. */
quire_err call_grammar_compile(const call_grammar *c, const reasoning_frame *frame,
                               const grammar_marks *marks, const grammar_options *options, grammar **out,
                               quire_error *err);

/* ---- its parts ---- */

typedef struct call_parts {
    const call_grammar *c;
    const grammar_marks *marks;
    const json_value **schemas; /* schemas of the tools' arguments: as given, or as relaxed */
    /* each tool's arguments as last made, for one compilation; NULL: not made yet */
    const grammar_arguments **made;
    part_arena arena;
    bool is_own_fault; /* a single tool's schema is too large */
} call_parts;

/* Starts the parts of another compilation. */
void call_parts_forget(call_parts *m);

/* The answer, inside its frame. */
grammar_part call_parts_answer(call_parts *m, const reasoning_frame *frame);
/* The arguments of tool i in a writing; and whether it can be called there. */
grammar_part call_parts_arguments(call_parts *m, const call_writing *w, size_t tool);
bool call_grammar_takes(const call_grammar *c, const call_writing *w, size_t tool);

/* ---- the special tokens of a grammar ---- */

/* The special tokens that a grammar of calls is written with, and whether the request's
 * other rules leave them. */

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
 * If no call is required, a writing whose opening mark is forbidden needs no other
 * token. */
quire_err call_marks_check(const call_grammar *c, const grammar_marks *marks, const sampling_params *p,
                           const model_desc *d, quire_error *err);

#endif
