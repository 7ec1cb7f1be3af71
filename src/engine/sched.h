/* The scheduler: what the next step computes, as a pure function of integers. No clock, no allocation, no device (DESIGN.md, 4).
 *
 * Every step has a budget of rows. Running sequences that decode go first with a row each, prefills take what is left in chunks, and waiting
 * sequences are admitted in order of arrival while rows, sequence slots and pages last; one that is held for pages which another computes is passed
 * over. When pages run out, the newest running sequence is
 * preempted: its pages are given back and it waits, in its old place, to be computed again (bit for bit the same, DESIGN.md, 1).
 *
 * Progress: the oldest running sequence is never preempted for another, and a lone sequence always fits (admission at submit proves it). */
#ifndef ENGINE_SCHED_H
#define ENGINE_SCHED_H

#include <stdbool.h>
#include <stdint.h>

/* What planning knows of one sequence. */
typedef struct sched_seq {
    int32_t n_known;     /* tokens known: prompt and sampled */
    int32_t n_computed;  /* of these, tokens whose keys and values are in pages; < n_known */
    int32_t n_pages;     /* pages it holds, in all groups; of a waiting one those that it will share with others that run */
    int32_t n_groups;    /* block tables: pages that one more page of tokens takes */
    bool wants_logits;   /* every row's logits are wanted, not the last known token's alone */
    bool held;           /* waiting only: it is not admitted while the sequence waits_for (as in sched_item.seq) runs or is admitted, since that one */
    int32_t waits_for;   /* computes pages which it will find. Those behind it are not held up */
} sched_seq;

typedef struct sched_limits {
    int32_t max_rows;    /* rows a step */
    int32_t max_out;     /* rows a step whose logits are wanted */
    int32_t max_seqs;    /* sequences running at once */
    int32_t max_chunk;   /* rows of one sequence in a step */
    int32_t page_tokens;
} sched_limits;

/* seq is an index into the arrays given; n_rows of its tokens from n_computed on are computed. */
typedef struct sched_item {
    int32_t seq, n_rows;
} sched_item;

typedef struct sched_plan {
    int32_t n_items;      /* in the order of rows in the batch */
    sched_item *items;    /* room for max_seqs */
    int32_t n_rows, n_out, n_pages; /* what the items take: rows, wanted rows, new pages */
    int32_t n_admitted;   /* waiting sequences that start to run: those that have an item, the last n_admitted items */
    int32_t n_preempted;  /* the last n_preempted of the running sequences go back to waiting */
} sched_plan;

/* running[0..n_running) and waiting[0..n_waiting), each oldest first; a plan's item names running sequences by their index and admitted ones by
 * n_running + their index in waiting. n_free: pages that can be had. The plan's arrays are the caller's. */
void sched_make_plan(const sched_limits *l, const sched_seq *running, int32_t n_running, const sched_seq *waiting, int32_t n_waiting,
                     int32_t n_free, sched_plan *plan);

#endif
