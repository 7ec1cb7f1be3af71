/* Serving without paging, really run: the model computes every row that such a server
 * computes, padding and dead rows among them.
 *
 *   static     requests in order, as many at a time as there are places and room; prompts
 *              are padded on the left to the longest, and all rows run until the longest
 *              answer ends
 *   iteration  requests come and go between steps (Yu et al. 2022, "Orca"), whole prompts
 *              beside decodes; each has its keys and values in one piece of memory, as
 *              large as the reservation says, and waits until such a piece is free
 *
 * Memory is a row of n_pages slots of 16 tokens, of which a piece takes some that lie
 * side by side: what is free but too scattered is of no use, as in any allocator. Growing
 * pieces are copied, by the backend, into a free piece one page larger; where there is
 * none the newest is dropped and computed again. Answers are the likeliest tokens, the
 * same as the engine's to the token (checked where it is used). Owner: one thread. */
#ifndef LAB_BENCH_BASELINE_SERVE_H
#define LAB_BENCH_BASELINE_SERVE_H

#include "lab/bench/bare.h"
#include "lab/bench/baseline.h"
#include "lab/bench/lab.h"

typedef struct baseline_options {
    bool is_static;
    /* not RESERVE_PAGED; static: how long a sequence may become is known to be max_len,
     * whatever it says */
    reservation reservation;
    int32_t n_pages; /* memory, in pages of BASELINE_PAGE tokens */
    int32_t max_seqs, max_len;
    /* [n] found: when each request's answer was given, from the start, wall time; NULL:
     * nobody asks */
    double *end_ms;
} baseline_options;

enum { BASELINE_PAGE = 16 };

typedef struct baseline_result {
    /* computed rows; of these for padding, and for answers that had ended */
    int64_t n_rows, n_padding, n_dead;
    int64_t n_steps, n_dropped;
    int64_t copied_bytes;
    int32_t most_at_once;
    double used;              /* part of the reserved slots that held a token, mean over steps */
    double seconds, first_ms; /* all, by figures_time_us; mean wall time to the first token, from the start */
    uint64_t digest;          /* of the answers, as lab_result's */
} baseline_result;

/* Pages that the model below needs beside o->n_pages: keys and values of padding, which
 * nobody reads. */
int32_t baseline_extra_pages(const baseline_options *o);

/* Serves requests[0..n), which follow nobody and want one answer, all there from the
 * start. b has o->n_pages + baseline_extra_pages(o) pages of BASELINE_PAGE tokens and
 * passes of max_rows rows and 2 x max_seqs sequences at least. QUIRE_TOO_LARGE when one
 * does not fit in memory alone. */
quire_err baseline_serve(bare *b, const baseline_options *o, const lab_request *requests, int32_t n,
                         baseline_result *out);

#endif
