/* Arena: the memory of a render, which goes at once: its values, and its texts with their
 * origins. One budget counts all of it.
 *
 * An origin is whether the template wrote a byte or it came in with the variables. It
 * belongs to a place in memory, so a part of a text (a slice, a split, a strip) has its
 * origins without further ado, and what copies bytes copies their origins (jinja_out.c
 * does). Texts of one origin lie in blocks of that origin, and cost nothing beside their
 * bytes; only texts of both, which the render puts together, have a byte of origin for
 * each byte. Bytes outside the arena, such as literals of the program, are the
 * template's. */
#ifndef JINJA_JINJA_ARENA_H
#define JINJA_JINJA_ARENA_H

#include <stdbool.h>

#include "base/str.h"
#include "jinja/jinja.h"

enum { JINJA_MIXED = JINJA_INPUT + 1 /* a text of both origins */, N_JARENA_KINDS };

/* What ended the work on a value; the error of the render names it. */
typedef enum jarena_limit {
    JARENA_FREE,
    JARENA_FULL,      /* max */
    JARENA_OUTPUT,    /* JINJA_MAX_OUTPUT */
    JARENA_CANCELLED, /* the render was cancelled */
    JARENA_LATE       /* its time is over */
} jarena_limit;

typedef struct jarena {
    struct jblock *blocks; /* of objects, the newest first */
    /* by origin, the newest first; each as large as those before, so there are few */
    struct jtext_block *texts[N_JARENA_KINDS];
    size_t total, max; /* bytes, those of outputs too */
    jarena_limit refused;
    char *text_end, *text_limit; /* the long text that was appended to last: its end and its limit */
} jarena;

/* The origins of a text. */
typedef struct jorigins {
    const uint8_t *of_bytes; /* one a byte; NULL: all are `all` */
    uint8_t all;
} jorigins;

static inline uint8_t jorigins_at(jorigins o, size_t i) {
    return o.of_bytes != NULL ? o.of_bytes[i] : o.all;
}

/* Counts n bytes that lie elsewhere (an output's); false: there is no room for them. */
bool jarena_charge(jarena *a, size_t n);
void jarena_release(jarena *a, size_t n);
/* n zeroed bytes aligned to 8, or NULL. */
void *jarena_new(jarena *a, size_t n);
/* n bytes of text, not aligned, of an origin. JINJA_MIXED: *origins, one a byte, are the
 * template's and the caller's to change; else NULL. NULL: out of memory. */
char *jarena_bytes(jarena *a, size_t n, int origin, uint8_t **origins);
/* A copy of s, which is outside the arena, as a text of one origin; false when out of
 * memory, and *out is unchanged. */
bool jarena_copy_as(jarena *a, str s, uint8_t origin, str *out);
jorigins jarena_origins(const jarena *a, str s);
/* Whether a byte of s came in with the variables. */
bool jarena_is_input(const jarena *a, str s);
/* Gives the array to which the pointer at p points room for one more element of size
 * bytes: n are in use, *cap fit. False when out of memory: nothing changed. */
bool jarena_grow(jarena *a, void *p, size_t *cap, size_t n, size_t size);
/* Appends right to left, with its origins: in place where left was allocated last or is
 * the long text appended to last. So a text that grows in a loop takes linear time and
 * memory. */
bool jarena_append(jarena *a, str left, str right, str *out);
/* s repeated, with its origins. */
bool jarena_repeat(jarena *a, str s, size_t times, str *out);
void jarena_deinit(jarena *a);

#endif
