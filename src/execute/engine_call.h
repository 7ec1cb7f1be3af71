/* The engine's executor, over quire.h: gens and selects are requests by ids, and text
 * becomes tokens on the engine's text threads. A call owns the requests of its stages, a
 * state owns its ids. */
#ifndef EXECUTE_ENGINE_CALL_H
#define EXECUTE_ENGINE_CALL_H

#include "program/program_state.h"
#include "json/json_out.h"

/* A random text that stands in messages for content that is already tokens. It cannot be
 * guessed, so no client's text contains it. */
#define MARK_BYTES 40

/* The most sequences that programs may have in the engine at once, so that there is room
 * for other requests; further calls wait. A call with more sequences runs when no other
 * call does. */
#define MAX_RUNNING 256

struct engine_call;

typedef struct engine_executor {
    quire_engine *e;
    quire_queue *q;
    size_t n_running;                          /* sequences */
    struct engine_call *waiting, *waiting_end; /* its first and last */
    uint64_t n_arrivals;                       /* number of calls that had to wait so far */
    char mark[MARK_BYTES];
} engine_executor;

/* Ids that states share. Only a sole owner changes them. */
typedef struct shared_ids {
    int32_t refs;
    size_t n, cap;
    int32_t ids[];
} shared_ids;

/* What the executor keeps for a state. */
typedef struct engine_state {
    shared_ids *ids;
    size_t n_taken;    /* parts whose tokens are in ids */
    size_t n_computed; /* computed ids */
    size_t n_answered; /* n_taken when the beginning of an answer was last computed */
    size_t n_turn;     /* ids before the turn that began last */
    quire_park *park;  /* holds the ids' pages between calls; NULL: none does */
    strbuf rest;       /* text after ids, if a stop string cut a gen inside a token */
    /* while a gen runs: the next gen if it is being prepared; otherwise NULL */
    struct engine_call *ahead;
} engine_state;

/* One request of a call; its stream's `user`. */
typedef struct call_request {
    struct engine_call *call;
    quire_stream *stream;
    int32_t index; /* in a select: the choice */
    bool is_alone; /* scores the choice's tokens with nothing before them */
} call_request;

/* A choice of a select. */
typedef struct engine_choice {
    int32_t *ids;             /* [n] ids of the state, then of the choice */
    size_t n, from;           /* the choice's tokens are [from, n) */
    double *logprobs, *alone; /* [n - from] */
} engine_choice;

typedef enum engine_stage {
    ENGINE_TEXT,    /* tokenises the state's text */
    ENGINE_ANSWER,  /* tokenises the beginning of an answer after it, for forks */
    ENGINE_PREFIX,  /* computes what the state has so far */
    ENGINE_GEN,     /* the gen runs */
    ENGINE_CHOICES, /* tokenises the choices */
    ENGINE_SCORES   /* scores the choices */
} engine_stage;

typedef struct engine_call {
    engine_executor *x;
    program_call *c;
    engine_stage stage;
    call_request *requests; /* [n_requests] those of the stage */
    size_t n_requests, n_open;
    size_t n_running; /* this stage's share of the executor's n_running */
    /* if is_waiting: in the executor's list; among those of its program; the sequences
     * that it waits to begin; since when */
    struct engine_call *next_waiting, *last_waiting;
    struct engine_call *below, *beside, *above; /* above: the call whose `below` or `beside` is this call */
    size_t n_wanted;
    uint64_t arrival;
    bool is_waiting;
    bool has_turn; /* it has waited, and its stage begins now */
    /* The state whose next gen this call prepares ahead of time; otherwise NULL. The
     * call's own state is then a shadow, in which the text between the gens becomes
     * tokens, after one id that stands for everything before. Then the gen's request is
     * prepared, in stage ENGINE_GEN. */
    quire_state *ahead_of;
    /* the gen's own call, if it has begun and waits for this request; otherwise NULL */
    struct engine_call *waits;
    shared_ids *answer; /* of ENGINE_ANSWER */
    size_t n_kept;      /* ENGINE_CHOICES: ids that no choice changes */
    size_t upto;        /* ENGINE_TEXT: n_taken after it */
    size_t **ends;      /* [n_outputs of c] in a gen: where each token ends in the text */
    size_t *caps;
    engine_choice *choices; /* [n_choices of c] */
    quire_error error;      /* the first error of a request */
} engine_call;

/* ---- engine_executor.c ---- */

extern const program_ops engine_ops;
/* Opens an executor with a queue of its own; *out is for programs_open with engine_ops.
 * NO_MEMORY. */
quire_err engine_executor_open(quire_engine *e, void **out);

/* ---- engine_call.c ---- */

/* Replaces the ids of *l after the first `keep`. NO_MEMORY: unchanged. */
quire_err exec_ids_replace(shared_ids **l, size_t keep, const int32_t *ids, size_t n);
engine_state *exec_state_of(const quire_state *s);
size_t exec_n_ids(const engine_state *es);
quire_err exec_want_state(quire_state *s, quire_error *err);
/* Drops the call prepared for the state's next gen. */
void exec_drop_ahead(engine_state *es);
/* Members of engine_ops. */
void exec_cancel(void *executor, program_call *c);
void exec_settle(void *executor, quire_state *s);
void exec_drop(void *executor, quire_state *s);
quire_err exec_fork(void *executor, const quire_state *from, quire_state *to);
const int32_t *exec_tokens(void *executor, const quire_state *s, size_t *n);
void exec_call_free(engine_call *k);
/* Begins a stage of n requests, and allocates them. */
quire_err exec_begin_stage(engine_call *k, engine_stage stage, size_t n, quire_error *err);
/* Whether there is room for a stage of n sequences now. */
bool exec_has_room(const engine_executor *x, size_t n);
/* Whether a stage of n sequences must wait, for room or behind other waiting stages. If
 * so it is queued, and the executor continues it later. */
bool exec_must_wait(engine_call *k, size_t n);
/* Removes the next call from the waiting ones. Turns are given by arrival, and a
 * program's deepest call takes the program's turn (quire_request_step). NULL: none waits,
 * or there is no room for it. */
engine_call *exec_take_turn(engine_executor *x);
/* Counts n sequences of the stage as running. */
void exec_count_running(engine_call *k, size_t n);
/* Submits a request of the stage; the request of a gen ahead of time is only prepared.
 * Takes over r, even on failure. */
quire_err exec_submit(engine_call *k, quire_request *r, int32_t index, bool is_alone, quire_error *err);
/* Submits a request that computes ids and generates nothing. start: the first token
 * whose log-probability is wanted (earlier ones are taken from the cache); 0: none. */
quire_err exec_submit_prompt(engine_call *k, const int32_t *ids, size_t n, size_t start, int32_t index,
                             bool is_alone, quire_error *err);

/* ---- engine_gen.c: texts and turns become tokens ---- */

/* Submits a text to be tokenised after the state's first n_ids ids. */
quire_err exec_submit_joined(engine_call *k, const program_text *t, size_t n_ids, int32_t index,
                             quire_error *err);
/* Tokenises the state's next texts together. */
quire_err exec_take_texts(engine_call *k, quire_error *err);
/* Tokenises what the template writes from the end of the last turn in the ids to the
 * content of the newest one. If the ids include that too, tokenises the beginning of the
 * answer that probably follows, which forks share. */
quire_err exec_take_turns(engine_call *k, quire_error *err);

/* ---- engine_gen.c ---- */

quire_err exec_submit_gen(engine_call *k, quire_error *err);
/* Appends a DELTA event to the call's outputs. */
quire_err exec_add_output(engine_call *k, const quire_event *ev);
/* Ends a gen, whose first output is appended to the state. */
quire_err exec_take_gen(engine_call *k, const quire_event *done);
/* Starts the request that was prepared for k, which takes it over. */
quire_err exec_start_ahead(engine_call *k, quire_error *err);

/* Submits the choices to be tokenised after all of the state's ids but the last, whose
 * text is put before theirs if it is text. */
quire_err exec_submit_choices(engine_call *k, quire_error *err);
/* Takes the ids of a choice: its tokens begin after the state's or, if the last of
 * these changed, with that one. */
quire_err exec_take_choice(engine_call *k, int32_t index, const quire_event *start);
quire_err exec_submit_scores(engine_call *k, quire_error *err);
/* Takes the log-probabilities of a choice's tokens. */
void exec_take_score(engine_call *k, const call_request *r, const quire_event *start);
/* Ends a select whose choices are all scored; the best one is appended to the state. */
quire_err exec_take_select(engine_call *k);

#endif
