/* The grammar of an answer that may or must call tools, made from the format's writings
 * (answer_format.h), the tools and their schemas.
 *
 * In free text the format's opening marks begin calls; after a mark, each call must name
 * an offered function and have arguments that match its schema. */
#ifndef ANSWER_CALL_GRAMMAR_H
#define ANSWER_CALL_GRAMMAR_H

#include "answer/answer_format.h"
#include "answer/reasoning_frame.h"
#include "core/model_desc.h"
#include "core/params.h"
#include "grammar/grammar_parts.h"

typedef struct call_grammar {
    const answer_format *format;
    const output_tool *tools; /* the offered tools */
    size_t n_tools;
    str only;         /* the one function that may be called; empty: any */
    bool is_required; /* the answer consists of calls only */
    bool is_single;   /* one call at most */
    /* out, may be NULL; true if a schema was loosened because compiling took too long */
    bool *in_haste;
} call_grammar;

/* Finds the next writing, from index *i on, in which at least one of the tools can be
 * called, and moves *i past it. False if there is none. */
bool call_grammar_next(const call_grammar *c, size_t *i, call_writing *out);
/* Whether at least one of the tools can be called in some writing of the format. */
bool call_grammar_exists(const call_grammar *c);
/* Compiles the grammar inside `frame`, the text around an answer (NULL: none). If no call
 * is required, a schema that cannot be enforced is loosened, at most to the types of its
 * properties, unless its tool is_strict. *out and errors as grammar_compile_parts. */
quire_err call_grammar_compile(const call_grammar *c, const reasoning_frame *frame,
                               const grammar_marks *marks, const grammar_options *options, grammar **out,
                               quire_error *err);

/* ---- its parts ---- */

typedef struct call_parts {
    const call_grammar *c;
    const grammar_marks *marks;
    const json_value **schemas; /* [n_tools] schemas of the arguments, as given or loosened */
    /* [n_tools] each tool's arguments, built once a compilation; NULL: not built yet */
    const grammar_arguments **made;
    part_arena arena;
    bool is_own_fault; /* the error is in one tool's schema, not in the number of tools */
} call_parts;

/* Forgets the last compilation's parts; their memory stays in the arena. */
void call_parts_forget(call_parts *m);

/* Builds the part of a whole answer inside its frame, in m's arena. */
grammar_part call_parts_answer(call_parts *m, const reasoning_frame *frame);
/* Builds the part of a tool's arguments in a writing; all writings of one format write
 * arguments alike. tool: its index. */
grammar_part call_parts_arguments(call_parts *m, const call_writing *w, size_t tool);
bool call_grammar_takes(const call_grammar *c, const call_writing *w, size_t tool);

/* The special tokens that calls need, and whether the request's other rules forbid
 * them. */

/* Iterates over the special tokens in a text, taking the longest at each place.
 * mark_scan_next sets `found` and moves after it; false: there is no other. */
typedef struct mark_scan {
    str text;
    size_t at;
    const grammar_mark *found;
} mark_scan;
bool mark_scan_next(mark_scan *s, const grammar_marks *marks);

/* Checks that the request lets the model write calls. QUIRE_BAD_REQUEST, with the field's
 * name: bad_words bans a special token that calls need, allowed_token_ids lacks it, or it
 * ends the answer in the middle of a call. If no call is required, a writing whose
 * opening mark is forbidden needs no other token. */
quire_err call_marks_check(const call_grammar *c, const grammar_marks *marks, const sampling_params *p,
                           const model_desc *d, quire_error *err);

#endif
