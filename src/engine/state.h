/* The engine's own struct, shared by engine.c (thread, submission), step.c (a step's two halves), step_arrays.c and stats.c. Fields say who
 * may touch them. */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/cascade.h"
#include "sched/admission_policy.h"
#include "sched/step_cost.h"
#include "sample/sampler.h"
#include "sched/sched.h"
#include "engine/sequence.h"
#include "kv/kv_cache.h"

/* A place in the table of requests. generation grows with each use; cancel names the generation that is to end. */
typedef struct engine_entry {
    uint32_t generation;
    atomic_uint cancel;
    sequence *sequence; /* NULL: none uses the place. Guarded by the engine's lock */
} engine_entry;

/* Arrays of one step's batch, sized at open. */
typedef struct step_arrays {
    sched_seq *running, *waiting;   /* what the plan sees */
    sequence **candidates;               /* [max_seqs] the waiting ones that it sees: those that wait for nothing but their turn */
    sched_plan plan;
    sequence **seqs;                /* [plan.n_items] */
    int64_t collected_us;           /* when the forward pass was over: its tokens' time */
    int32_t *plain;                 /* [plan.n_items] items whose picks are made ahead */
    int32_t *out0;                  /* [plan.n_items] first wanted row of an item, in out_rows */
    int32_t *tokens, *positions, *out_rows;
    int32_t *parents;               /* of drafts only: see batch_seq */
    kv_slot *slots[KV_MAX_GROUPS];
    batch_seq *batch_seqs;
    cascade cascade;                /* the attention work list, and the room to plan it in */
    float *hidden;                  /* [d_model] */
    double *keys, last_key;         /* [max_requests] what waiting sequences are ordered by; that of the last one taken */
    float *raw, *forked;            /* [n_vocab] a row of logits as the model gave it; a copy for a child to choose from */
    kv_copies copies;
    kv_copy_pair *copy_pairs;
    const kv_table **tables;        /* [max_seqs * groups] for the audit */
    batch rows;
} step_arrays;

typedef struct tiering tiering;
typedef struct swap swap;

typedef struct audit_file audit_file;

struct engine {
    model *m;
    backend *b;
    engine_options options;
    const model_desc *desc;
    kv_layout layout;
    sched_limits limits;

    /* any thread */
    ring *in;                /* of sequence*: submitted, not yet seen by the engine thread */
    wake in_wake;
    atomic_bool stop, held;
    atomic_uint n_cancels;   /* calls of engine_cancel */
    engine_entry *entries;   /* [max_requests] */
    _Atomic(struct engine_view *) views; /* looks that are asked for (view.h): a stack */
    pthread_mutex_t lock;    /* guards the four below */
    int32_t *free_entries, n_free_entries;
    uint64_t n_arrivals;
    engine_stats published;
    pthread_mutex_t readers_lock; /* guards the list: of its own, since readers are rung for under it, which takes a while */
    engine_out *outs;
    bool locks_ready, thread_ready;

    /* engine thread */
    pthread_t thread;
    kv_cache kv;
    audit_file *audit_file;  /* NULL: none */
    tiering *tiering;        /* NULL: no tiers */
    swap *swap;              /* NULL: no swap space */
    sampler **samplers, *sampler; /* one for each thread that picks (presample.h), and the first of them, the engine thread's */
    int32_t n_samplers;
    drafter *drafter;        /* NULL: none */
    sequence **drafted;      /* [max_seqs] those that it is asked for in a step */
    float *draft_scratch;    /* [2][n_vocab], the first all 0; with rejection sampling only */
    sequence **running, **waiting; /* oldest first */
    service service;           /* what tenants were served */
    step_cost step_cost;               /* what steps cost */
    int32_t n_running, n_waiting;
    unsigned n_cancels_seen; /* n_cancels when the lists were last searched for who was cancelled */
    uint64_t n_ended;        /* requests whose end was published */
    int32_t n_explained;     /* of all, those that are told what they waited for (explain.h) */
    atomic_llong step_started_us; /* 0 between steps; any thread may read */
    step_arrays step;
    engine_stats stats;
};

/* ---- step.c ---- */
/* First half of a step: takes in what came, plans, reserves pages, fills the batch, starts the forward pass. false: nothing to do. */
bool step_submit(engine *e);
/* Second half: waits, samples, commits, and publishes for readers what out_wake_readers shows them. */
void step_collect(engine *e);
/* Ends s: pages back, the end published. s must stand in neither list any more, or the caller removes it. */
void step_finish(engine *e, sequence *s, finish_reason reason, quire_err error);
/* Samples s's next token from a row of logits, which is changed, and commits it. */
void step_sample(engine *e, sequence *s, float *logits);
/* s's next token is `token`: known, published for its reader, and perhaps its end. */
void step_commit(engine *e, sequence *s, int32_t token);

/* s gives its pages up and waits in its old place. It must stand in neither list. */
void step_preempt(engine *e, sequence *s);

/* ---- step_arrays.c ---- */
/* Sizes the arrays of e->step. */
quire_err step_open(engine *e);
void step_close(engine *e);

/* ---- audit.c ---- */
/* Asserts that pool and tables agree; between steps. Debug builds call it after each step. */
void engine_audit(const engine *e);

/* ---- stats.c ---- */
void stats_token(engine *e, sequence *s, int64_t now_us);
void stats_finish(engine *e, const sequence *s, finish_reason reason, int64_t now_us);
/* A step has its pages. */
void stats_pages(engine *e);
/* Makes the engine thread's numbers visible to engine_stats_read. */
void stats_publish(engine *e);

#endif
