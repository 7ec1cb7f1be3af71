/* The scheduler: what the next step computes, as a pure function of integers and measured costs. No clock, no allocation, no device
 * (docs/design.md, Scheduler).
 *
 * Every step has a budget of rows. Running sequences that decode go first with a row each, prefills take what is left in chunks, and
 * waiting sequences are admitted in the order given while rows, sequence slots and pages last; one that is held for pages which another
 * computes is passed over. Where something decodes, prefills take no more rows than keep the step within twice the time of the decodes, or
 * the target if that is longer.
 *
 * Drafts (draft.h) ride behind their sequence's next token. They take rows before prefills do, at most half of them where somebody else
 * wants some, and pages last of all, so that nobody is preempted or kept out for them.
 *
 * When pages run out, running sequences are preempted: of the newest few that have no rows in the step yet, the one that has computed
 * least. Its pages are given back and it waits, in its old place, to be computed again (bit for bit the same, docs/design.md, Determinism).
 * One that was preempted max_preemptions times has aged: it comes back when all pages that it may ever need can be had, these are promised
 * to it, and it is not preempted again.
 *
 * Progress: the first running sequence is never preempted for another, and a lone sequence always fits (admission at submit proves it): a
 * page that it shared is its own by then. Where a step finds pages for nobody all the same, step.c preempts the newest. */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

/* What planning knows of one sequence. */
typedef struct sched_seq {
    int32_t n_known;     /* tokens known: prompt and sampled */
    int32_t n_computed;  /* of these, tokens whose keys and values are in pages; < n_known */
    int32_t n_pages; /* pages it holds, in all groups, but for shared ones that it copies before its next token; of a waiting one those that
                      * it will share with others that run */
    int32_t n_groups;    /* block tables: pages that one more page of tokens takes */
    int32_t n_most;      /* tokens at which it ends */
    int32_t n_preempted; /* how often it was */
    int32_t group;       /* those of one group, not 0, are preempted together or not at all: beams */
    /* of n_pages, those that preempting its group does not give back: counted with another of the group, or others hold them */
    int32_t n_shared;
    int32_t n_beside;    /* sequences that will run beside it, and are not among the running yet: places are kept for them (beam.h) */
    int32_t n_behind;    /* pages that these take */
    bool wants_logits;   /* every row's logits are wanted, not the last known token's alone */
    /* waiting only: it is not admitted while the sequence blocked_on (as in sched_item.seq) runs or is admitted, since that one */
    bool prefix_wait;
    int32_t blocked_on;   /* computes pages which it will find. Those behind it are not held up */
    int32_t n_drafts;    /* of one that runs and decodes: tokens behind the known ones to be verified, as many as there is room for */
    bool is_jump_forward;         /* these are certain, so that their logits are not wanted (jump.h) */
} sched_seq;

/* What a step takes: a time of its own, one for each row, and one for each pair of a row and a token that it attends to; microseconds. */
typedef struct sched_cost {
    double step_us, row_us, pair_us;
} sched_cost;

typedef struct sched_limits {
    int32_t max_rows;    /* rows a step */
    int32_t max_out;     /* rows a step whose logits are wanted */
    int32_t max_seqs;    /* sequences running at once */
    int32_t max_chunk;   /* rows of one sequence in a step */
    int32_t page_tokens;
    bool whole_prefills; /* what is to be computed of a prompt goes into one step, or waits; not where every row's logits are wanted */
    int32_t max_preemptions;
    double target_us;    /* a step's, where something decodes; 0: none, and prefills take all rows there are */
    sched_cost cost;
} sched_limits;

/* seq is an index into the arrays given; n_rows of its tokens from n_computed on are computed, the last n_drafts of which are drafts. */
typedef struct sched_item {
    int32_t seq, n_rows, n_drafts;
} sched_item;

/* What becomes of a running sequence. */
typedef enum sched_decision { SCHED_IDLE, SCHED_PLANNED, SCHED_PREEMPTED } sched_decision;

typedef struct sched_plan {
    int32_t n_items;      /* in the order of rows in the batch */
    sched_item *items;    /* room for max_seqs */
    int32_t n_rows, n_out, n_pages; /* what the items take: rows, wanted rows, new pages; with drafts */
    double n_pairs;       /* of a row and a token that it attends to */
    int32_t n_admitted;   /* waiting sequences that start to run: those that have an item, the last n_admitted items */
    uint8_t *decisions;       /* [n_running] of sched_decision: the preempted go back to waiting. Room for max_seqs */
    int32_t n_preempted;
} sched_plan;

double sched_predict_us(const sched_cost *c, double n_rows, double n_pairs);

/* running[0..n_running) and waiting[0..n_waiting), each the first to be served first; a plan's item names running sequences by their index
 * and admitted ones by n_running + their index in waiting. n_free: pages that can be had. The plan's arrays are the caller's. */
void sched_make_plan(const sched_limits *l, const sched_seq *running, int32_t n_running, const sched_seq *waiting, int32_t n_waiting,
                     int32_t n_free, sched_plan *plan);

#endif
