/* Measurements for `quire bench attention`: the backend's attention op on its own pages,
 * without a model. */
#ifndef LAB_BENCH_ATTENTION_MEASURE_H
#define LAB_BENCH_ATTENTION_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"

/* A piece is what attention reads of a head in one page. Pieces are listed by layer, in
 * the order in which attention reads them: by chunk, then by head, keys before values. */
typedef struct pieces {
    int32_t n_layers, n; /* n: pieces per layer */
    int64_t bytes;       /* bytes of a piece */
    const uint8_t **at;  /* [n_layers, n] */
} pieces;

/* Ways to read: one piece at a time or four side by side, with or without prefetching
 * pieces ahead. */
enum { PIECES_WAYS = 4 };

/* Loads from each cache line of a layer's pieces and does nothing else: a lower bound for
 * any attention over them in this order. Returns the sum, so that the loads are not
 * optimised away. */
uint64_t pieces_read(const pieces *p, int32_t layer, int way);

enum { ATTENTION_STEP_ROWS = 512 }; /* most rows of a sequence in a step */

/* The attention of one layer: the last n_rows rows (1: a decode) of each of n_seqs
 * sequences of n_tokens tokens. */
typedef struct attention_shape {
    int32_t n_heads, n_kv_heads, d_head;
    /* width of the value within a latent of d_head elements that all heads share; 0:
     * separate keys and values of d_head elements */
    int32_t n_value;
    dtype type; /* type of keys and values */
    int32_t n_seqs, n_tokens, n_rows;
    /* tokens whose pages all sequences share, in whole chunks of attention */
    int32_t n_shared;
} attention_shape;

typedef struct attention_machine {
    compute_mode compute;
    const char *isa; /* "auto", ... */
    int32_t n_threads, n_runs;
    int32_t page_tokens; /* page size of the paged way; 0: 16 */
    bool in_order;       /* pages of the paged way are consecutive */
} attention_machine;

/* Least time per layer over all runs. Runs of the two ways alternate; layers change, so
 * that keys and values come from memory as in a step. */
typedef struct attention_speed {
    double paged_us;      /* pages of m->page_tokens, in random order unless m->in_order */
    double contiguous_us; /* pages of 256 in order: what a chunk reads of a head is contiguous */
} attention_speed;

/* QUIRE_NO_MEMORY: keys and values do not fit. QUIRE_INVALID: the backend refuses the
 * shape or machine. */
quire_err attention_measure(const attention_shape *shape, const attention_machine *m, attention_speed *out,
                            quire_error *err);

/* Measures reading only, with one thread: the keys and values of one sequence, piece by
 * piece in attention's order, in the fastest of several ways. */
quire_err attention_measure_reading(const attention_shape *shape, const attention_machine *m,
                                    attention_speed *out, quire_error *err);

/* Times of sequences that share n_shared tokens. */
typedef struct cascade_speed {
    double each_us, cascade_us; /* shared pages read once per sequence, or once for all */
    /* bytes of keys and values per layer in the pages that the work list reads */
    int64_t each_bytes, cascade_bytes;
} cascade_speed;

quire_err attention_measure_cascade(const attention_shape *shape, const attention_machine *m,
                                    cascade_speed *out, quire_error *err);

/* Times under a layer's own mask, and under expressions for the same keys instead
 * (docs/attention.md): causal, and a window of ATTENTION_WINDOW. Runs of the ways
 * alternate. */
enum { ATTENTION_WINDOW = 64 };
typedef struct mods_speed {
    double causal_us, causal_mod_us, window_us, window_mod_us;
} mods_speed;

quire_err attention_measure_mods(const attention_shape *shape, const attention_machine *m, mods_speed *out,
                                 quire_error *err);

/* Times with a window (0: none) and a soft cap on scores (0: none), and without either
 * over a context in which rows see as many keys in total: the shape's or, with a window,
 * window + (n_rows - 1) / 2 tokens. A window is less than n_tokens - n_rows. Runs of the
 * ways alternate. */
typedef struct bound_speed {
    double bound_us, plain_us;
} bound_speed;

quire_err attention_measure_bound(const attention_shape *shape, const attention_machine *m, int32_t window,
                                  float soft_cap, bound_speed *out, quire_error *err);

/* Bytes of keys and values that a layer's attention must read, each once for all its rows
 * and shared ones once for all sequences; and its multiplications and additions over the
 * tokens that rows see. */
int64_t attention_bytes(const attention_shape *shape);
double attention_operations(const attention_shape *shape);

#endif
