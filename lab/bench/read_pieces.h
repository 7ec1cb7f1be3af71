/* Reading a sequence's keys and values from their pages and doing nothing else: what the
 * machine takes for pieces of such a size, which no attention over the same pages can
 * undercut as long as it takes them in this order. */
#ifndef LAB_BENCH_READ_PIECES_H
#define LAB_BENCH_READ_PIECES_H

#include <stdint.h>

#include "base/err.h"

struct backend; /* of the CPU, with pages open */

/* What attention reads of a head in one page lies in one piece. By layer the pieces of
 * all heads, in the order in which attention takes them: chunk by chunk, in it head by
 * head, keys before values. */
typedef struct pieces {
    int32_t n_layers, n; /* n: of a layer */
    int64_t bytes;       /* of a piece */
    const uint8_t **at;  /* [n_layers, n] */
} pieces;

/* Lists the pieces of the n_tokens tokens of these pages, all of the backend's layers
 * being alike. The caller frees them. */
quire_err pieces_open(struct backend *b, const int32_t *pages, int32_t n_tokens, pieces *out);
void pieces_free(pieces *p);

/* Ways to read: one piece after another or four side by side, with a prefetch of those
 * some way ahead or without. */
enum { PIECES_WAYS = 4 };

/* Loads from each cache line of the layer's pieces. Returns the sum, so that no load is
 * for nothing. */
uint64_t pieces_read(const pieces *p, int32_t layer, int way);

#endif
