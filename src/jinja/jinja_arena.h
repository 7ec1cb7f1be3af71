/* Arena: the memory of a render, freed at once: its values, and its texts with their
 * origins. One budget counts all of it.
 *
 * The origin of a byte is the template or the variables. It belongs to a place in memory,
 * so a part of a text (a slice, a split, a strip) needs no extra work, and code that
 * copies bytes copies their origins (jinja_out.c). Texts of one origin lie in blocks of
 * that origin and cost only their bytes; only texts of both origins, which a render puts
 * together, have an origin for each byte. Bytes outside the arena, such as literals of
 * the program, are the template's. */
#ifndef JINJA_JINJA_ARENA_H
#define JINJA_JINJA_ARENA_H

#include <stdbool.h>

#include "base/str.h"
#include "jinja/jinja.h"

enum { JINJA_MIXED = JINJA_INPUT + 1 /* a text of both origins */, N_JARENA_KINDS };

/* The limit that ended the work on a value; the render's error names it. */
typedef enum jarena_limit {
    JARENA_FREE,
    JARENA_FULL,      /* max */
    JARENA_OUTPUT,    /* JINJA_MAX_OUTPUT */
    JARENA_CANCELLED, /* the render was cancelled */
    JARENA_LATE       /* its time is over */
} jarena_limit;

typedef struct jarena {
    struct jblock *blocks; /* blocks of objects, the newest first */
    /* blocks of text by origin, the newest first; each as large as all earlier ones, so
     * there are few */
    struct jtext_block *texts[N_JARENA_KINDS];
    size_t total, max; /* bytes, including those of outputs */
    jarena_limit refused;
    char *text_end, *text_limit; /* the long text that was appended to last: its end and its limit */
} jarena;

/* The origins of a text. */
typedef struct jorigins {
    const uint8_t *of_bytes; /* one per byte; NULL: all are `all` */
    uint8_t all;
} jorigins;

static inline uint8_t jorigins_at(jorigins o, size_t i) {
    return o.of_bytes != NULL ? o.of_bytes[i] : o.all;
}

/* Counts n bytes outside the arena (an output's); false: over the budget. */
bool jarena_charge(jarena *a, size_t n);
void jarena_release(jarena *a, size_t n);
/* n zeroed bytes aligned to 8, or NULL. */
void *jarena_new(jarena *a, size_t n);
/* n bytes of text of one origin, not aligned. JINJA_MIXED: *origins has one per byte, set
 * to the template's, for the caller to change; else NULL. NULL: out of memory. */
char *jarena_bytes(jarena *a, size_t n, int origin, uint8_t **origins);
/* A copy of s, which is outside the arena, as a text of one origin; false when out of
 * memory, and *out is unchanged. */
bool jarena_copy_as(jarena *a, str s, uint8_t origin, str *out);
jorigins jarena_origins(const jarena *a, str s);
/* Whether a byte of s came from the variables. */
bool jarena_is_input(const jarena *a, str s);
/* Makes room for one more element of size bytes in the array to which the pointer at p
 * points: n are in use, *cap fit. False: out of memory, nothing changed. */
bool jarena_grow(jarena *a, void *p, size_t *cap, size_t n, size_t size);
/* Appends right to left, with its origins: in place if left was allocated last or is the
 * long text appended to last. So a text that grows in a loop takes linear time and
 * memory. */
bool jarena_append(jarena *a, str left, str right, str *out);
/* s repeated, with its origins. */
bool jarena_repeat(jarena *a, str s, size_t times, str *out);
void jarena_deinit(jarena *a);

#endif
