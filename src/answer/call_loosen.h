/* A tool's schema without what cannot be enforced of it, where the model may call it but
 * need not: only the property that a refused keyword is in becomes looser. */
#ifndef ANSWER_CALL_LOOSEN_H
#define ANSWER_CALL_LOOSEN_H

#include "answer/output_options.h"
#include "grammar/grammar.h"

enum { CALL_REFUSALS = 32, CALL_REFUSAL_BYTES = 512 };

/* Keywords that are left out, and properties of which only the types stay (`of` is
 * empty). */
typedef struct call_refusals {
    const output_tool *tool;
    struct {
        /* JSON pointer of the schema that has the keyword, or of the property; the
         * keyword */
        char path[CALL_REFUSAL_BYTES], of[64];
    } list[CALL_REFUSALS];
    size_t n;
    bool is_new; /* one was added */
    bool whole;  /* of what is met from now on the property's types stay, not the keyword alone is left out */
} call_refusals;

/* grammar_options.keyword; user: call_refusals *. A keyword that is refused is added, or
 * the keyword around it that gives it another meaning (not, if, oneOf, contains): without
 * that one more texts are allowed, never fewer. */
void call_refusals_note(void *user, const grammar_keyword *k);
/* The schema of the tool without these; NULL: its properties with their types, and which
 * of them are required. *out belongs to the caller (json_drop). QUIRE_NO_MEMORY,
 * QUIRE_TOO_LARGE. */
quire_err call_loosen(const output_tool *tool, const call_refusals *without, json_value **out);

#endif
