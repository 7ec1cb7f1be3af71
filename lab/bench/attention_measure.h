/* Measures for `quire bench attention`: the backend's attention op over its own pages,
 * without a model. */
#ifndef LAB_BENCH_ATTENTION_MEASURE_H
#define LAB_BENCH_ATTENTION_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"

/* Reading a sequence's keys and values from their pages and doing nothing else: what the
 * machine takes for pieces of such a size, which no attention over the same pages can
 * undercut as long as it takes them in this order. */

struct backend; /* the CPU's, with open pages */

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

enum { ATTENTION_STEP_ROWS = 512 }; /* rows of a sequence that a step takes at most */

/* One layer's attention: of each of n_seqs sequences of n_tokens tokens the last n_rows
 * rows (1: a decode). */
typedef struct attention_shape {
    int32_t n_heads, n_kv_heads, d_head;
    /* elements that are the value in a latent of d_head elements, which one kv head
     * keeps for all heads; 0: keys and values of d_head elements */
    int32_t n_value;
    dtype type; /* type of keys and values */
    int32_t n_seqs, n_tokens, n_rows;
    /* of its tokens, those whose pages all sequences have in common; whole chunks of
     * attention */
    int32_t n_shared;
} attention_shape;

typedef struct attention_machine {
    compute_mode compute;
    const char *isa; /* "auto", ... */
    int32_t n_threads, n_runs;
    int32_t page_tokens; /* page size of the paged way; 0: 16 */
    bool in_order;       /* its pages lie in a row */
} attention_machine;

/* Least time of the runs, a layer. Runs of the two ways take turns; layers change, so
 * that keys and values come from memory as in a step. */
typedef struct attention_speed {
    double paged_us;      /* pages of m->page_tokens, in no order unless m->in_order */
    double contiguous_us; /* pages of 256, in order: what a chunk reads of a head lies in one piece */
} attention_speed;

/* NO_MEMORY where keys and values do not fit; INVALID for a shape or machine that the
 * backend refuses. */
quire_err attention_measure(const attention_shape *shape, const attention_machine *m, attention_speed *out,
                            quire_error *err);

/* The same for reading alone, by one thread: the keys and values of one sequence, piece
 * by piece as attention takes them, the quickest of several ways. */
quire_err attention_measure_reading(const attention_shape *shape, const attention_machine *m,
                                    attention_speed *out, quire_error *err);

/* The same for sequences that share n_shared tokens. */
typedef struct cascade_speed {
    double each_us, cascade_us; /* the shared pages read for each sequence, or once */
    /* of keys and values in the pages that the work list has read, a layer */
    int64_t each_bytes, cascade_bytes;
} cascade_speed;

quire_err attention_measure_cascade(const attention_shape *shape, const attention_machine *m,
                                    cascade_speed *out, quire_error *err);

/* The same under masks of a layer's own, and under expressions for the same keys in place
 * of them (docs/attention.md): causal, and a window of ATTENTION_WINDOW. Runs of the ways
 * take turns. */
enum { ATTENTION_WINDOW = 64 };
typedef struct mods_speed {
    double causal_us, causal_mod_us, window_us, window_mod_us;
} mods_speed;

quire_err attention_measure_mods(const attention_shape *shape, const attention_machine *m, mods_speed *out,
                                 quire_error *err);

/* The same under a window (0: none) and a soft cap on scores (0: none), and without
 * either over a context in which the rows see as many keys in all: shape's, or where a
 * window is given window + (n_rows - 1) / 2 tokens. A window is less than n_tokens -
 * n_rows. Runs of the ways take turns. */
typedef struct bound_speed {
    double bound_us, plain_us;
} bound_speed;

quire_err attention_measure_bound(const attention_shape *shape, const attention_machine *m, int32_t window,
                                  float soft_cap, bound_speed *out, quire_error *err);

/* Keys and values that a layer's attention has to read, each once for all of its rows,
 * what is shared once for all sequences; and its multiplications and additions, over what
 * rows see. */
int64_t attention_bytes(const attention_shape *shape);
double attention_operations(const attention_shape *shape);

#endif
