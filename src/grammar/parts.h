/* State of compiling parts, shared by parts.c and free_text.c. Private to this room. */
#ifndef GRAMMAR_PARTS_H
#define GRAMMAR_PARTS_H

#include "grammar/dfa.h"
#include "grammar/grammar_parts.h"

typedef struct parts {
    build *b;
    const grammar_options *options; /* for all rules */
    grammar_marks marks;
    dfa_pool dfas;
    int depth;
} parts;

/* A piece of a text: a special token, or the letters before the next one. */
typedef struct part_piece {
    str text;
    int32_t mark; /* its id; -1: letters */
} part_piece;

static inline bool begins_with(str text, str with) {
    return text.n >= with.n && memcmp(text.p, with.p, with.n) == 0;
}
/* Removes the first piece from a text that is not empty. */
part_piece parts_take(parts *p, str *rest);
/* Append nodes for part (or text) that continue at `next`, and return the first. */
uint32_t parts_emit(parts *p, const grammar_part *part, uint32_t next);
uint32_t parts_emit_text(parts *p, str text, uint32_t next);
uint32_t parts_emit_mark(parts *p, int32_t id, uint32_t next);
/* schema_arguments.c: compiles arguments; the first rule that it adds matches them. */
void compile_arguments(parts *p, const grammar_arguments *a);
/* free_text.c: emits parts of the kinds FREE, UNTIL and TAGS. */
uint32_t parts_emit_free(parts *p, const grammar_part *part, uint32_t next);

#endif
