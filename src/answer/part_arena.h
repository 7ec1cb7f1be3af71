/* Memory for assembling a grammar's parts: many small blocks that are freed together. One
 * thread.
 *
 * part_arena.failed keeps the first failure; parts made after it are empty, so the caller
 * checks only once, at the end. */
#ifndef ANSWER_PART_ARENA_H
#define ANSWER_PART_ARENA_H

#include "grammar/grammar_parts.h"

#define PART_ARENA_BYTES ((size_t)64 << 20)

typedef struct part_arena {
    void **blocks;
    size_t n, cap;
    size_t bytes;
    quire_err failed; /* QUIRE_NO_MEMORY; QUIRE_TOO_LARGE: over PART_ARENA_BYTES */
} part_arena;

/* Returns an array of n zeroed elements of `size` bytes, which belongs to the arena;
 * NULL: the arena has failed, or n is 0. */
void *part_arena_new(part_arena *a, size_t n, size_t size);
/* Moves the text of *s into the arena and returns it; *s is empty afterwards. Returns an
 * empty text if the arena has failed. */
str part_arena_take(part_arena *a, strbuf *s);
void part_arena_deinit(part_arena *a);

/* ---- common parts ---- */

grammar_part part_text(str text);
grammar_part part_rule(grammar_kind kind, str text, const char *where);
/* The parts one after another; parts[0..n) are copied. */
grammar_part part_sequence(part_arena *a, const grammar_part *parts, size_t n);
/* The part, min to max times; it is copied. */
grammar_part part_repeat(part_arena *a, grammar_part part, uint32_t min, uint32_t max);
/* Any text up to the first occurrence of one of the texts, which are borrowed. */
grammar_part part_until(const str *texts, size_t n);

#endif
