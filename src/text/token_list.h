/* A growing array of token ids. Zero-initialised is empty. Owned by one thread at a
 * time. */
#ifndef TEXT_TOKEN_LIST_H
#define TEXT_TOKEN_LIST_H

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

typedef struct token_list {
    int32_t *ids;
    size_t n, cap;
} token_list;

void token_list_deinit(token_list *l);
/* Appends one id. QUIRE_NO_MEMORY leaves the list unchanged. */
quire_err token_list_add(token_list *l, int32_t id);
/* Appends ids[0..n), or on NO_MEMORY none. */
quire_err token_list_add_all(token_list *l, const int32_t *ids, size_t n);

/* Seams: positions of a text at which its encoding can be taken up again.
 *
 * Added tokens cut a text into stretches that are encoded independently, so where such a
 * token begins in the raw text, what precedes it is encoded for good: no later text
 * changes its ids. A conversation that grows keeps those ids, and only what is new is
 * encoded. */

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
