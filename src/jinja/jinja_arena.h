/* Arena: the memory of a render's values, which goes at once; and, for each byte of its texts, the origin: whether the template wrote it or
 * it came in with the variables.
 *
 * An origin belongs to a place in memory. So a part of a text (a slice, a split, a strip) has its origins without further ado, and what
 * copies bytes copies their origins (jinja_out.h does). Bytes outside the arena, such as literals of the program, are the template's. */
#ifndef JINJA_JINJA_ARENA_H
#define JINJA_JINJA_ARENA_H

#include <stdbool.h>

#include "base/str.h"
#include "jinja/jinja.h"

typedef struct jarena {
    struct jblock *blocks;       /* of objects, the newest first */
    struct jtext_block *texts;   /* the newest first; each as large as those before together, so there are few */
    size_t total, max;           /* bytes */
    char *text_end, *text_limit; /* the long text that was appended to last: its end and its limit */
} jarena;

/* n zeroed bytes aligned to 8, or NULL. */
void *jarena_new(jarena *a, size_t n);
/* n bytes of text, not aligned, of origin JINJA_TEMPLATE. */
char *jarena_bytes(jarena *a, size_t n);
/* A copy of s with its origins; false when out of memory, and *out is unchanged. */
bool jarena_copy(jarena *a, str s, str *out);
/* The origins of a text of the arena, one a byte; NULL: all of it is the template's. */
uint8_t *jarena_origins(const jarena *a, str s);
/* Whether a byte of s came in with the variables. */
bool jarena_is_input(const jarena *a, str s);
/* Gives the array to which the pointer at p points room for one more element of size bytes: n are in use, *cap fit. False when out of
 * memory: nothing changed. */
bool jarena_grow(jarena *a, void *p, size_t *cap, size_t n, size_t size);
/* Appends right to left, with its origins: in place where left was allocated last or is the long text appended to last. So a text that
 * grows in a loop takes linear time and memory. */
bool jarena_append(jarena *a, str left, str right, str *out);
void jarena_deinit(jarena *a);

#endif
