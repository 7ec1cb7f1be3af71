/* Seams: positions of a text at which its encoding can be taken up again.
 *
 * Added tokens cut a text into stretches that are encoded independently, so where such a
 * token begins in the raw text, what precedes it is encoded for good: no later text
 * changes its ids. A conversation that grows keeps those ids, and only what is new is
 * encoded. */
#ifndef TEXT_SEAMS_H
#define TEXT_SEAMS_H

#include <stddef.h>

#include "base/err.h"

typedef struct encode_seam {
    size_t at;    /* the stretch before an added token ends here */
    size_t needs; /* a text with this seam has the same bytes up to here */
    size_t n_ids; /* of the text before `at` */
} encode_seam;

/* In ascending order. Zero-initialised: none. One thread. */
typedef struct encode_seams {
    encode_seam *at;
    size_t n, cap;
    size_t first; /* where the text's own ids begin among those that an encoding appended: after a BOS */
} encode_seams;

void encode_seams_deinit(encode_seams *s);
/* QUIRE_NO_MEMORY leaves it unchanged. */
quire_err encode_seams_add(encode_seams *s, encode_seam seam);

#endif
