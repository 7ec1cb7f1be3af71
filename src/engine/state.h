/* The engine's own structs, shared by the files of the engine. Comments name the threads
 * that may use the fields. */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/turn.h"
#include "core/batch.h"
#include "engine/sequence.h"
#include "kv/audit.h"
#include "kv/kv_tiering.h"
#include "sample/constraint.h"
#include "sample/sampler.h"
#include "sched/scheduler.h"
#include "sched/step_cost.h"
#include "spec/verify.h"

/* An entry in the table of requests. generation counts its uses; cancel is the generation
 * to be cancelled. */
typedef struct engine_entry {
    uint32_t generation;
    atomic_uint cancel;
    sequence *sequence; /* NULL: the entry is free. Guarded by the engine's lock */
} engine_entry;

/* What the row of an item's last known token is for; set as the batch is filled. */
typedef enum row_use {
    ROW_NONE,   /* nothing: later steps compute more known tokens, or no token is wanted */
    ROW_POOLED, /* every row of the item is part of the pooled row (row_pooling.h) */
    ROW_BEAM,   /* a beam search chooses from its logits */
    ROW_LINE,   /* a thread samples from it; nothing else uses its logits (collect.c) */
    /* the engine thread samples from it: its logits are kept, shared with forks, or used
     * for rejection sampling */
    ROW_ALONE
} row_use;

/* The samples of one item (collect.c). */
typedef struct draft_line {
    sequence *s;
    int32_t row0, n_rows; /* the item's rows in the batch, drafts included */
    int32_t n_drafts;
    sample_row *rows;       /* [n_drafts + 1]; at most one if there are jump-forward tokens */
    sample_result *results; /* [n_drafts + 1] */
} draft_line;

/* Arrays of one step's batch, sized at open. */
typedef struct step_arrays {
    int64_t collected_us; /* when the forward pass ended: the time of the step's tokens */
    draft_line *lines;    /* [max_seqs] the items of step_lines_sample */
    /* [max_out + 1], since an entry is filled before it is known whether the argmax
     * suffices */
    sample_row *line_rows;
    sample_result *line_results; /* [max_rows] */
    int32_t *out0;               /* [plan.n_items] index in out_rows of an item's first wanted row */
    row_use *uses;               /* [plan.n_items] */
    int32_t *tokens, *positions, *types, *out_rows;
    int32_t *parents;                /* parents of draft rows (batch_seq) */
    atomic_uint *faults;             /* [max_rows] faults of attention programs, if one can fault */
    const struct adapter **adapters; /* [max_adapters] */
    int16_t *row_adapters;           /* [max_rows] */
    kv_slot *slots[KV_MAX_GROUPS];
    batch_seq *batch_seqs;
    cascade cascade; /* the attention work list, and scratch memory to plan it */
    float *hidden;   /* for each thread, [d_model] a hidden state that is checked */
    /* for each thread, [DRAFT_MAX][CONSTRAINT_MAX_STATE_BYTES] constraint states after
     * the nodes of a draft */
    uint8_t *states;
    float *raw;              /* for each thread, [n_vocab] a row of logits as the model computed it */
    float *forked;           /* [n_vocab] a copy for a child to sample from */
    const kv_table **tables; /* [(max_seqs + parks.max) * groups] for the audit */
    batch rows;
} step_arrays;

/* A park (park.c). */
struct engine_park {
    engine *e;
    atomic_int holders;
    atomic_bool is_closed;
    engine_park *next_closed; /* link in the engine's stack of closed parks */
    /* engine_park_look reads these, from any thread */
    atomic_int n_tokens, n_pages;
    atomic_llong n_parked, n_bounded;

    /* The engine thread's; valid while the park holds something (kv.n_computed > 0). */
    kv_seq kv;
    int32_t *tail, n_tail; /* [page_tokens] the tokens in its part-filled page */
    float *row;            /* [n_vocab] the logits after its last token; NULL: not kept */
    engine_park *older, *younger;
    int32_t tenant;                        /* index in engine_parks.tenants */
    uint64_t number;                       /* arrival number of its sequence */
    uint8_t owner[ENGINE_NAMESPACE_BYTES]; /* the tenant's name */
    size_t n_owner;
};

/* A tenant whose sequences are in parks. */
typedef struct park_tenant {
    uint64_t id;              /* hash of the tenant's name */
    int32_t n_parks, n_pages; /* n_parks 0: the entry is free */
} park_tenant;

/* All parks of an engine. */
typedef struct engine_parks {
    engine_park *oldest, *youngest; /* parks that hold something */
    int32_t n, max;
    int32_t *counts;      /* [n_pages] parks that hold each page */
    park_tenant *tenants; /* [max + 1] */
    int64_t n_pages, max_pages, max_tenant_pages;
    int32_t n_rows, max_rows;    /* parks that keep logits */
    int64_t n_parked, n_bounded; /* totals */
    int64_t tails_seen;          /* kv_index_counts.tails_replaced at the last parks_follow */
    _Atomic(engine_park *) closed;
} engine_parks;

/* An engine's place in its team; guarded by the team's lock. */
typedef struct team_place {
    bool is_member, leaves, is_arriving;
    quire_err refused; /* why it was not admitted to the team */
    engine *next;      /* link in the list of joining engines */
} team_place;

struct engine {
    model *m;
    backend *b;
    engine_options options;
    const model_desc *desc;
    kv_layout layout;

    /* any thread: */
    ring *in;            /* the in-ring of sequence *: submitted, not yet taken by the engine thread */
    engine_team *team;   /* the team whose thread runs the steps; a reference */
    const wake *in_wake; /* the team's */
    team_place place;
    atomic_bool paused;
    /* engine_drop_cache was called: the cache is dropped before the next step */
    atomic_bool drops_cache;
    _Atomic(struct tenant_drop *) drops; /* tenants to be dropped, as a stack */
    atomic_uint n_cancels;               /* number of calls of engine_cancel */
    engine_entry *entries;               /* [max_requests] */
    _Atomic(struct engine_view *) views; /* snapshots that are requested (engine_view.h): a stack */
    pthread_mutex_t lock;                /* guards the next eleven members */
    int32_t *free_entries, n_free_entries;
    engine_out *awaiting; /* first table whose reader waits for free entries (a list) */
    int32_t n_saved;      /* free entries that only the reader of `awaiting` may take */
    bool has_saved;       /* the last entry that was freed while a table waited was saved */
    uint64_t n_arrivals;
    quire_stats published;
    quire_snapshot_stats published_snapshots;
    quire_page_memory published_memory;
    quire_parked_stats published_parked;
    engine_profile published_profile;
    /* guards `outs`; a lock of its own, since waking readers under it takes a while */
    pthread_mutex_t readers_lock;
    engine_out *outs;

    /* engine thread only: */
    turn_claim turn; /* the engine's account in the team's fair order of engines */
    kv_cache kv;
    audit_file *audit_file;                /* NULL: none */
    kv_tiering *tiering;                   /* NULL: no tiers */
    kv_mover mover;                        /* moves the backend's pages */
    engine_parks parks;                    /* the engine thread's, except for `closed` */
    copy_cost swap_out_cost, swap_in_cost; /* measured cost of copying a page */
    sample_pool samples;                   /* one sampler for each thread of the backend */
    drafter *drafter;                      /* NULL: none */
    /* [max_seqs] the sequences with drafts in a step: those of the drafter from the
     * start, those of predictions from the end */
    draft_seq **drafted;
    draft_options predicting; /* options of drafts from predictions */
    work_room rule_room;      /* budget of the present step for rules (rule_step.h) */
    int32_t n_drafted;        /* number of sequences in `drafted` with drafts of the drafter */
    /* sequences whose rule a text thread has, or has returned without being taken back */
    int32_t n_rules_outside;
    bool some_rule_failed; /* the rule of a waiting sequence has failed since rule_step_planning */
    /* decaying counts of tokens that constraints guessed, and of those that were right */
    float guessed, guessed_right;
    double sample_row_us;         /* moving average of the sampling time of a row */
    scheduler sched;              /* the queues of sequences, and the step's plan */
    uint64_t n_moves_seen;        /* the budget's number of moves when statistics were last published */
    unsigned n_cancels_seen;      /* n_cancels when the lists were last searched for cancelled requests */
    uint64_t n_ended;             /* number of requests whose end was published */
    int32_t n_explained;          /* number of sequences with a report (explain.h) */
    atomic_llong step_started_us; /* start of the running step; 0 between steps; any thread may read it */
    step_arrays step;
    quire_stats stats;
    engine_profile profile; /* member `steps` is not used, since stats counts steps */
};

/* The number of pages guaranteed to e, whatever other engines do. */
static inline int32_t engine_sure_pages(const engine *e) {
    return e->options.floor_pages > 0 ? e->options.floor_pages : e->options.n_pages;
}

/* The sequence of a task. */
static inline sequence *sequence_of(const sched_task *t) {
    return (sequence *)(uintptr_t)t; /* the task is its first member */
}
/* Entry i of the running, the waiting, or the step's planned sequences. */
static inline sequence *running_at(const engine *e, int32_t i) {
    return sequence_of(e->sched.running[i]);
}
static inline sequence *waiting_at(const engine *e, int32_t i) {
    return sequence_of(e->sched.waiting[i]);
}
static inline sequence *planned_at(const engine *e, int32_t i) {
    return sequence_of(e->sched.tasks[i]);
}

/* ---- step.c ---- */
/* The first half of a step: takes in new requests, plans, reserves pages, fills the
 * batch, starts the forward pass. False: there is nothing to do. */
bool step_submit(engine *e);
/* The second half: waits for the forward pass, samples, commits and publishes. Readers
 * see the result after out_wake_readers. */
void step_collect(engine *e);

/* Moves submitted sequences from the in-ring to the queues. True: some of them are
 * cancelled already. */
bool intake_new(engine *e);
/* Ends cancelled sequences. Searches only if engine_cancel was called since the last
 * search, or if some_came_so: a sequence was cancelled before it was taken in. */
void intake_drop_cancelled(engine *e, bool some_came_so);
/* Removes every sequence in state TASK_DONE from a queue, and drops it. */
void intake_drop_done(sched_task **queue, int32_t *n);
/* Ends all sequences as cancelled, including submitted ones; called when the engine
 * closes. */
void intake_cancel_all(engine *e);

/* ---- lifecycle.c: the hooks of the scheduler ---- */
/* The hooks of an engine; with `audits` every reservation is recorded in its audit
 * file. */
const sched_hooks *sched_hooks_of(bool audits);

/* ---- batch_fill.c ---- */
/* Allocates the arrays of e->step, so that a step allocates nothing. */
quire_err batch_open(engine *e);
void batch_close(engine *e);

/* Fills e->step.rows from the scheduler's plan. */
void batch_fill(engine *e);
/* The first position of s whose logits are wanted, as are those of all after it. */
int32_t batch_first_wanted(const sequence *s);

/* ---- collect.c ---- */
/* After the forward pass: commits every planned item's rows and samples its tokens. */
void collect_items(engine *e);
/* Ends s: releases its pages and publishes its end. s is in neither queue, or the caller
 * removes it. */
void step_finish(engine *e, sequence *s, finish_reason reason, quire_err error);
/* Appends `token`, of that kind, to s: publishes it to the reader, and ends s if it is
 * its last. */
void step_commit(engine *e, sequence *s, int32_t token, end_kind end);

/* ---- cache.c ---- */
/* Lists the tables of every running sequence and park in e->step.tables; returns their
 * number. */
int32_t engine_list_tables(const engine *e);
/* Asserts that the pool's counts match the tables of running sequences and parks. Between
 * steps; debug builds call it after each step. */
void engine_audit(const engine *e);

/* ---- engine_view.c ---- */
void stats_computed(engine *e, sequence *s, int32_t n);
void stats_token(engine *e, sequence *s, int64_t now_us);
/* Adds the prompt of s, which generates no token, to the counters. */
void stats_pooled(engine *e, const sequence *s);
/* Counts a step that took `us` microseconds. */
void stats_step(engine *e, int64_t us);
/* Counts the pages that a step has reserved. */
void stats_pages(engine *e);
/* Publishes the engine thread's numbers for engine_stats_read. */
void stats_publish(engine *e);

/* Opens e's empty table of parks. After QUIRE_NO_MEMORY, call parks_close. */
quire_err parks_open(engine *e);
/* Empties all parks and frees the table. No sequence may be running. */
void parks_close(engine *e);

/* Between steps: empties the parks that were closed. */
void parks_collect_closed(engine *e);
/* Call when s, which holds pages, ends. True: its park has taken them, and s has none. */
bool parks_take(engine *e, sequence *s);
/* After a step: parks follow their tails to the pages that now hold their last tokens
 * (kv_index_follow_tail). */
void parks_follow(engine *e);
/* Empties the oldest park. False: none holds anything. */
bool parks_yield_oldest(engine *e);
/* The logits that a park keeps after exactly the known tokens of s, whose pages s has;
 * NULL if no park does. */
const float *parks_find_row(const engine *e, const sequence *s);
/* Empties the oldest parks until n_pages more can be allocated, as far as possible. */
void parks_yield(engine *e, int64_t n_pages);

/* Checks the counts of all parks. QUIRE_INTERNAL, with what is wrong. */
quire_err parks_check(const engine *e, quire_error *err);

#endif
