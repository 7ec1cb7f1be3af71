/* A growing array of token ids. Zeroed is empty. One thread at a time. */
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
/* Appends an id. QUIRE_NO_MEMORY leaves the list unchanged. */
quire_err token_list_add(token_list *l, int32_t id);
/* Appends ids[0..n). QUIRE_NO_MEMORY leaves the list unchanged. */
quire_err token_list_add_all(token_list *l, const int32_t *ids, size_t n);

/* Seams: positions in a text at which encoding can resume.
 *
 * Added tokens cut a text into stretches that are encoded independently. So where such a
 * token begins in the raw text, the ids of what precedes it are final: no later text
 * changes them. A conversation that grows keeps those ids, and only new text is
 * encoded. */

typedef struct encode_seam {
    size_t at;    /* end of the stretch before an added token */
    size_t needs; /* a text with this seam has the same bytes up to here */
    size_t n_ids; /* number of ids of the text before `at` */
} encode_seam;

/* Seams in ascending order. Zeroed: none. One thread. */
typedef struct encode_seams {
    encode_seam *at;
    size_t n, cap;
    size_t first; /* where the text's own ids begin among those that the encoding appended: after a BOS */
} encode_seams;

void encode_seams_deinit(encode_seams *s);
/* Appends a seam. QUIRE_NO_MEMORY leaves them unchanged. */
quire_err encode_seams_add(encode_seams *s, encode_seam seam);

#endif
