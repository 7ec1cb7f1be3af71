/* The scheduler plans the next step, as a pure function of integers and measured costs.
 * No clock, no allocation, no device (docs/design.md, Scheduler).
 *
 * Every step has a budget of rows. Running sequences that decode take a row each first,
 * and prefills take what is left in chunks. Waiting sequences are admitted in the given
 * order while rows, places to run and pages last; one in a prefix wait, or whose adapter
 * finds no slot, is skipped. While a sequence decodes, prefills take only so many rows
 * that the step stays within twice the time of the decodes, or the target if that is
 * longer.
 *
 * Rows with an attention program (step_cost.h) cost more, as measured. Their prefills
 * stay within that time even if nothing decodes, since new requests wait for the end of
 * the step; their decodes take turns if not all of them fit into it.
 *
 * Sequences that are first (ADMISSION_FAIR, step_plan.c) get rows before other prefills.
 * So a tenant's new prompt does not wait for the prompts of a tenant that floods the
 * server.
 *
 * Drafts (draft.h) follow their sequence's next token. They take rows before prefills do,
 * but at most half of the rows if prefills need some. They take pages last, so no
 * sequence is preempted or not admitted because of drafts.
 *
 * When pages run out, running sequences are preempted: among the newest few that have no
 * rows in the step, the one that has computed least. It releases its pages and waits, in
 * order of its arrival, to be computed again (with the same bits: docs/design.md,
 * Determinism). A sequence that was preempted max_preemptions times has aged: it is
 * admitted once all pages that it may ever need are available; they are promised to it,
 * and it is not preempted again.
 *
 * Progress: the first running sequence is never preempted for another, and a sequence
 * that runs alone always fits (engine_submit checks this), since then it shares no page.
 * If a step still finds pages for no sequence, step_plan preempts the newest, or all if
 * only one group runs. */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/most_pages.h"

#define SCHED_MAX_PREEMPTIONS 8 /* preemptions after which a sequence is protected */

/* The planner's description of one sequence. */
typedef struct sched_seq {
    int32_t n_known;    /* known tokens: prompt and sampled */
    int32_t n_computed; /* known tokens whose keys and values are in pages; < n_known */
    /* pages that it holds in all groups, except shared ones that are copied before its
     * next token; if it waits, pages that it will share with running ones */
    int32_t n_pages;
    int32_t n_groups; /* block tables of tokens, and so the pages that one more page of tokens takes */
    /* entries of n_pages that will never hold a page again (kv_seq_passed). Set where
     * pages are claimed */
    int32_t n_passed;
    int32_t n_most;      /* tokens at which it ends */
    int32_t n_preempted; /* how often it was preempted */
    int32_t group;       /* sequences of one group (not 0) are preempted together or not at all: beams */
    /* pages of n_pages that preempting its group does not free, since another of the
     * group counts them or others hold them */
    int32_t n_shared;
    /* sequences that will run beside it and are not running yet: places are reserved for
     * them (beam.h) */
    int32_t n_beside;
    int32_t n_behind;  /* pages that those will take */
    bool no_logits;    /* no logits are wanted, not even the last known token's */
    bool wants_logits; /* the logits of every row are wanted, not only the last known token's */
    /* waiting only: not admitted while the sequence blocked_on, which computes pages that
     * it will reuse, runs or is admitted */
    bool prefix_wait;
    /* index of the sequence that it waits for, as in sched_item.seq. Later ones do not
     * wait */
    int32_t blocked_on;
    /* running: its known tokens' pages are promised to it, and its prefill comes before
     * others */
    bool is_first;
    bool sits_out; /* running: gets no rows in this step, and may be preempted */
    /* running and decoding only: tokens after the known ones to verify, as many as fit */
    int32_t n_drafts;
    uint64_t adapter;       /* 0: none. A waiting sequence whose adapter finds no slot is skipped */
    bool has_program;       /* its attention runs the request's own program */
    double program_pair_us; /* measured time that the program adds per pair; 0: unknown */
    double program_pairs;   /* the most pairs with the program in a step: few while their cost is uncertain */
    bool is_jump_forward;   /* its drafts are certain, so their logits are not wanted (jump_forward.h) */
} sched_seq;

/* The cost of a step in microseconds: a constant, plus a term for each row, and for each
 * pair of a row and a token to which it attends. */
typedef struct sched_cost {
    double step_us, row_us, pair_us;
} sched_cost;

typedef struct sched_limits {
    int32_t max_rows;     /* rows in a step */
    int32_t max_out;      /* rows in a step whose logits are wanted */
    int32_t max_seqs;     /* sequences that run at once */
    int32_t max_adapters; /* different adapters that run at once (adapter_slots.h) */
    int32_t max_chunk;    /* rows of one sequence in a step */
    int32_t page_tokens;
    int32_t state_pages; /* pages that a sequence takes whatever its length: its recurrent states */
    kv_most most;        /* most pages that one sequence holds; used if groups have windows */
    /* a prompt is prefilled in a single step or waits; does not apply if every row's
     * logits are wanted */
    bool whole_prefills;
    int32_t max_preemptions;
    /* time of a step in which something decodes; 0: no target, prefills take all
     * remaining rows */
    double target_us;
    /* of the decodes with programs, the one whose turn is first, modulo their number */
    uint32_t program_turn;
    sched_cost cost;
} sched_limits;

/* One sequence in the batch. seq is an index into the given arrays. n_rows of its tokens,
 * from n_computed on, are computed; the last n_drafts of them are drafts. n_out: rows
 * before the drafts that may want logits. */
typedef struct sched_item {
    int32_t seq, n_rows, n_drafts, n_out;
} sched_item;

/* What the plan does with a running sequence. */
typedef enum sched_decision { SCHED_IDLE, SCHED_PLANNED, SCHED_PREEMPTED } sched_decision;

typedef struct sched_plan {
    int32_t n_items;                /* items, in the order of rows in the batch */
    sched_item *items;              /* room for max_seqs */
    int32_t n_rows, n_out, n_pages; /* totals of the items, drafts included: rows, wanted rows, new pages */
    double n_pairs;                 /* pairs of a row and a token to which it attends */
    double program_us;              /* time that programs add to the step, as far as known */
    int32_t n_program_decodes;      /* planned decodes with programs */
    /* waiting sequences that start to run; they are the last n_admitted items until they
     * are admitted */
    int32_t n_admitted;
    /* [n_running] of sched_decision; preempted ones wait again. Room for max_seqs */
    uint8_t *decisions;
    int32_t n_preempted;
} sched_plan;

double sched_predict_us(const sched_cost *c, double n_rows, double n_pairs);

/* Pages beyond those it holds that s takes until it has n_tokens in all; with windows
 * this is less than what it reserves over time. */
int32_t sched_pages_claimed(const sched_limits *l, const sched_seq *s, int32_t n_tokens);

/* Plans a step over running[0..n_running) and waiting[0..n_waiting), both in order of
 * service. An item's seq is the index of a running sequence, or n_running + the index of
 * a waiting one that is admitted. n_free: pages that can be allocated. The caller owns
 * the plan's arrays. */
void sched_make_plan(const sched_limits *l, const sched_seq *running, int32_t n_running,
                     const sched_seq *waiting, int32_t n_waiting, int32_t n_free, sched_plan *plan);

#endif
