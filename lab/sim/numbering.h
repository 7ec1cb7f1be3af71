/* Numbers for byte strings: the first new one is 0, the next 1, and so on; the same bytes
 * always get the same number. One thread. */
#ifndef LAB_SIM_NUMBERING_H
#define LAB_SIM_NUMBERING_H

#include <stdint.h>

#include "base/str.h"

typedef struct numbering {
    strbuf bytes;        /* all names, one after the other */
    struct named *names; /* [n] */
    size_t cap_names;
    int32_t n;
    /* [n_slots], a power of two: number + 1, or 0 for empty; linear probing, at most half
     * full */
    int32_t *slots;
    size_t n_slots;
} numbering;

/* The number of name, which is added if it is new. QUIRE_NO_MEMORY, or QUIRE_TOO_LARGE
 * past 2^30 names: unchanged. O(name). */
quire_err numbering_of(numbering *g, str name, int32_t *out);
void numbering_deinit(numbering *g);

#endif
