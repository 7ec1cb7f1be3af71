/* What paging and continuous batching replaced, to compare with: padded batches that run
 * until their longest member ends, and keys and values reserved in one piece. Exists for
 * experiments only; the engine has none of it. Pure functions of integers. */
#ifndef LAB_BENCH_BASELINE_H
#define LAB_BENCH_BASELINE_H

#include <stdint.h>

/* How much room a sequence's keys and values are given. */
typedef enum reservation {
    RESERVE_MAX,     /* the longest sequence that may come, from the start */
    RESERVE_POW2,    /* its prompt, and its answer's length rounded up to a power of two */
    RESERVE_ORACLE,  /* its final length, which no real server knows */
    RESERVE_GROWING, /* its present length, in one piece that is copied to a larger one for every token */
    RESERVE_PAGED,   /* its present length, in whole pages */
    RESERVE_N
} reservation;

const char *reservation_name(reservation r);

typedef struct reserved_seq {
    int32_t n_prompt, n_output; /* in the end */
    int32_t n_now;              /* tokens it has */
} reserved_seq;

/* Slots that the sequence takes; max_len is what RESERVE_MAX gives, page_tokens what a
 * page holds. */
int64_t reservation_slots(reservation r, const reserved_seq *s, int32_t max_len, int32_t page_tokens);

/* Pad tokens of a batch of prompts that are brought to the length of the longest. */
int64_t baseline_pads(const int32_t *lengths, int32_t n);

/* Static batching: requests in order, `slots` at a time; a batch starts when the one
 * before has ended, and ends with its longest. ends[i]: the step at which the answer of
 * request i is given, which is when its batch ends. Returns the last. */
int64_t baseline_static(const int32_t *lengths, int32_t n, int32_t slots, int64_t *ends);

#endif
