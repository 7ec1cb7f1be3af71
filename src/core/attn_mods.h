/* A request's own mask and change of scores (He et al. 2024, arXiv:2412.05496): programs
 * that attention runs beside what a layer's attn_spec says. src/expr compiles them from
 * text.
 *
 * Made once, then read-only and reference-counted: a request and its sequences share
 * them. Any thread. */
#ifndef CORE_ATTN_MODS_H
#define CORE_ATTN_MODS_H

#include "base/sha256.h"
#include "core/attn_program.h"

typedef struct attn_mods {
    attn_program *mask, *score; /* owned; NULL: none */
    void *data;                 /* the elements of the arrays that the programs read, owned; or NULL */
    bool uses_b;
    /* of both texts and of the arrays: with equal digests, attention computes the same */
    uint8_t digest[SHA256_BYTES];
} attn_mods;

/* New and empty with one reference; NULL without memory. */
attn_mods *attn_mods_new(void);
/* Adds a reference and gives mods back. NULL is allowed here and in the next. */
attn_mods *attn_mods_hold(attn_mods *mods);
/* Drops a reference; the last one frees the mods. */
void attn_mods_drop(attn_mods *mods);

#endif
