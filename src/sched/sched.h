/* The planner: plans the next step as a pure function of integers and measured costs. No
 * clock, no allocation, no device (docs/design.md, Scheduler).
 *
 * Every step has a budget of rows. Decoding sequences get a row each first, and prefills
 * get what is left, in chunks. Waiting sequences are admitted in the given order while
 * rows, places in the batch and pages last; one in a prefix wait, or without an adapter
 * slot, is skipped. While a sequence decodes, prefills get only as many rows as keep the
 * step within twice the time of the decodes, or within the target if that is longer.
 *
 * Rows with an attention program (step_cost.h) cost more, as measured. Their prefills
 * stay within that time even if nothing decodes, since new requests wait for the end of
 * the step. Their decodes take turns if not all fit.
 *
 * Sequences with is_first (ADMISSION_FAIR, step_plan.c) get rows before other prefills,
 * so that a tenant's new prompt does not wait for the prompts of a tenant that floods the
 * server.
 *
 * Drafts (draft.h) follow their sequence's next token. They get rows before prefills do,
 * but at most half of the rows if prefills need some. They get pages last, so drafts
 * never cause a preemption or a refused admission.
 *
 * When pages run out, running sequences are preempted: of the newest few without rows in
 * the step, the one that has computed least. It releases its pages and waits, in order of
 * arrival, to be computed again (with the same bits: docs/design.md, Determinism). After
 * max_preemptions preemptions a sequence has aged: it is admitted once all pages that it
 * may ever need are available; these are promised to it, and it is not preempted again.
 *
 * Progress: the first running sequence is never preempted for another. A sequence that
 * runs alone shares no page and always fits (engine_submit checks this). If a step still
 * finds pages for no sequence, step_plan preempts the newest, or all if only one group
 * runs. */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/most_pages.h"

#define SCHED_MAX_PREEMPTIONS 8 /* preemptions after which a sequence has aged */

/* The planner's description of one sequence. */
typedef struct sched_seq {
    int32_t n_known;    /* known tokens: prompt and sampled */
    int32_t n_computed; /* known tokens whose keys and values are in pages; less than n_known */
    /* pages that it holds in all groups, without shared ones that are copied before its
     * next token. Waiting: pages that it will share with running ones */
    int32_t n_pages;
    int32_t n_groups; /* block tables of tokens; one more page of tokens takes this many pages */
    /* entries of n_pages that will never hold a page again (kv_seq_passed); set where
     * pages are claimed */
    int32_t n_passed;
    int32_t n_most;      /* length at which it ends, in tokens */
    int32_t n_preempted; /* how often it was preempted */
    int32_t group;       /* sequences of one group (not 0) are preempted together or not at all: beams */
    /* pages of n_pages that preempting its group does not free: another of the group
     * counts them, or others hold them */
    int32_t n_shared;
    /* beams that will start beside it (beam.h): places in the batch are reserved for
     * them */
    int32_t n_beside;
    int32_t n_behind;  /* pages reserved for these beams */
    bool no_logits;    /* no logits are wanted, not even of the last known token */
    bool wants_logits; /* the logits of every row are wanted, not only of the last known token */
    /* waiting: not admitted while the sequence blocked_on, which computes pages that it
     * will reuse, runs or is admitted */
    bool prefix_wait;
    /* the sequence that it waits for, as in sched_item.seq; that one waits for none */
    int32_t blocked_on;
    /* running: pages for its known tokens are promised to it, and its prefill comes
     * before others */
    bool is_first;
    bool sits_out; /* running: gets no rows in this step, and may be preempted */
    /* running, decoding: drafts to verify after the known tokens, as many as fit */
    int32_t n_drafts;
    uint64_t adapter;       /* 0: none. A waiting sequence is skipped if its adapter gets no slot */
    bool has_program;       /* attention runs a program of its request */
    double program_pair_us; /* measured time that the program adds per pair; 0: unknown */
    double program_pairs;   /* most pairs with the program in a step: few while their cost is uncertain */
    bool is_jump_forward;   /* its drafts are certain, so their logits are not wanted (jump_forward.h) */
} sched_seq;

/* The cost of a step in microseconds: a constant, plus one term per row and one per pair.
 * A pair is a row and a token to which it attends. */
typedef struct sched_cost {
    double step_us, row_us, pair_us;
} sched_cost;

typedef struct sched_limits {
    int32_t max_rows;     /* rows in a step */
    int32_t max_out;      /* rows in a step that get logits */
    int32_t max_seqs;     /* sequences that run at once */
    int32_t max_adapters; /* different adapters that run at once (adapter_slots.h) */
    int32_t max_chunk;    /* rows of one sequence in a step */
    int32_t page_tokens;
    int32_t state_pages; /* pages of a sequence's recurrent states, whatever its length */
    kv_most most;        /* most pages that one sequence holds; used if groups have windows */
    /* a prompt is prefilled in one step or waits; not for sequences that want the logits
     * of every row */
    bool whole_prefills;
    int32_t max_preemptions;
    /* target time of a step in which something decodes; 0: none, prefills take all rows
     * left */
    double target_us;
    /* the decode with a program whose turn is first, modulo the number of such decodes */
    uint32_t program_turn;
    sched_cost cost;
} sched_limits;

/* One sequence's part of the batch. seq: index in the given arrays. n_rows: tokens
 * computed, from n_computed on; the last n_drafts of them are drafts. n_out: rows before
 * the drafts that may want logits. */
typedef struct sched_item {
    int32_t seq, n_rows, n_drafts, n_out;
} sched_item;

/* What the plan does with a running sequence: nothing, compute, preempt. */
typedef enum sched_decision { SCHED_IDLE, SCHED_PLANNED, SCHED_PREEMPTED } sched_decision;

typedef struct sched_plan {
    int32_t n_items;   /* number of items, in the order of rows in the batch */
    sched_item *items; /* with room for max_seqs */
    /* totals of the items, drafts included: rows, rows that want logits, new pages */
    int32_t n_rows, n_out, n_pages;
    double n_pairs;            /* pairs of a row and a token to which it attends, in all items */
    double program_us;         /* known part of the time that attention programs add to the step */
    int32_t n_program_decodes; /* planned decodes with attention programs */
    /* waiting sequences that are admitted; they are the last n_admitted items until
     * then */
    int32_t n_admitted;
    /* [n_running] sched_decision of each; preempted ones wait again. Room for max_seqs */
    uint8_t *decisions;
    int32_t n_preempted;
} sched_plan;

double sched_predict_us(const sched_cost *c, double n_rows, double n_pairs);

/* Pages that s takes until it has n_tokens in all, beyond those it holds. With windows
 * this is less than what it reserves over time. */
int32_t sched_pages_claimed(const sched_limits *l, const sched_seq *s, int32_t n_tokens);

/* Plans a step over running[0..n_running) and waiting[0..n_waiting), both in order of
 * service. An item's seq is the index of a running sequence, or n_running + the index of
 * a waiting one. n_free: pages that can be allocated. The caller owns the plan's
 * arrays. */
void sched_make_plan(const sched_limits *l, const sched_seq *running, int32_t n_running,
                     const sched_seq *waiting, int32_t n_waiting, int32_t n_free, sched_plan *plan);

#endif
