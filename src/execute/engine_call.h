/* A call that is executed on an engine: the requests of its stages, and the ids of its
 * state. For the .c files of the engine's executor (engine_executor.h). */
#ifndef EXECUTE_ENGINE_CALL_H
#define EXECUTE_ENGINE_CALL_H

#include "program/program_state.h"
#include "json/json_out.h"

/* Stands in messages for a content that has tokens already. Nobody can guess it, so that
 * no text has it. */
#define MARK_BYTES 40

/* Sequences that programs have in the engine at once, so that they leave room for others:
 * calls wait for their turn. One that has more is alone. */
#define MAX_RUNNING 256

struct engine_call;

typedef struct engine_executor {
    quire_engine *e;
    quire_queue *q;
    size_t n_running; /* sequences */
    struct engine_call *waiting, **waiting_last;
    char mark[MARK_BYTES];
} engine_executor;

/* Ids that states share; changed by an owner that is the only one. */
typedef struct shared_ids {
    int32_t refs;
    size_t n, cap;
    int32_t ids[];
} shared_ids;

/* The gen that follows the running one of a state, made ready meanwhile: the text between
 * them becomes tokens, and its request is prepared. It is taken when that gen begins. */
typedef struct engine_ahead {
    engine_executor *x;
    struct engine_request *request; /* of the text, then of the gen */
    struct engine_call *waits;      /* the gen has begun, and waits for its request; or NULL */
    program_call next;              /* its step and seed */
    size_t n_parts;                 /* of the state when it begins */
    shared_ids *ids;                /* of the text between; NULL: not yet */
    bool is_prepared;
} engine_ahead;

/* What the executor has of a state. */
typedef struct engine_state {
    shared_ids *ids;
    size_t n_taken;      /* parts that are in ids */
    size_t n_computed;   /* of ids */
    size_t n_answered;   /* n_taken as the beginning of an answer after it was computed */
    quire_park *park;    /* holds the pages of ids between calls; NULL: not yet, or not any more */
    strbuf rest;         /* text after ids, of a gen that a stop string cut within a token */
    engine_ahead *ahead; /* or NULL */
} engine_state;

/* One request of a call; the user of its stream. */
typedef struct engine_request {
    struct engine_call *call; /* NULL: it is of `ahead` */
    quire_state *ahead;       /* whose next gen it is for */
    quire_stream *stream;
    int32_t index; /* of a select: its choice */
    bool is_alone; /* it scores the choice's tokens without anything before them */
} engine_request;

/* A choice of a select. */
typedef struct engine_choice {
    int32_t *ids;             /* [n] of the state with the choice */
    size_t n, from;           /* the choice's tokens are [from, n) */
    double *logprobs, *alone; /* [n - from] */
} engine_choice;

typedef enum engine_stage {
    ENGINE_TEXT,    /* the state's text becomes tokens */
    ENGINE_ANSWER,  /* what begins an answer after it becomes tokens, for forks */
    ENGINE_PREFIX,  /* what the state has is computed */
    ENGINE_GEN,     /* the gen runs */
    ENGINE_CHOICES, /* the choices become tokens */
    ENGINE_SCORES   /* they are scored */
} engine_stage;

typedef struct engine_call {
    engine_executor *x;
    program_call *c;
    engine_stage stage;
    engine_request *requests; /* [n_requests] all of the stage */
    size_t n_requests, n_open;
    size_t n_running;                 /* of the executor's, of this stage */
    struct engine_call *next_waiting; /* in its list, if is_waiting */
    size_t n_wanted;                  /* sequences, if is_waiting */
    bool is_waiting;
    shared_ids *answer; /* of ENGINE_ANSWER */
    size_t n_kept;      /* ENGINE_CHOICES: ids that stay whatever a choice is */
    size_t upto;        /* ENGINE_TEXT: how many parts are in ids then */
    size_t **ends;      /* [outputs of c] of a gen: bytes of text up to the end of each token */
    size_t *caps;
    engine_choice *choices; /* [choices of c] */
    quire_error error;      /* of a request; the first one */
} engine_call;

/* ---- engine_call.c ---- */

void exec_ids_drop(shared_ids *l);
/* Replaces what *l has after its first `keep` ids. NO_MEMORY: it is unchanged. */
quire_err exec_ids_replace(shared_ids **l, size_t keep, const int32_t *ids, size_t n);
engine_state *exec_state_of(const quire_state *s);
size_t exec_n_ids(const engine_state *es);
quire_err exec_want_state(quire_state *s, quire_error *err);
/* What is ahead of a state is given up. */
void exec_drop_ahead(engine_state *es);
/* Of engine_ops. */
void exec_cancel(void *executor, program_call *c);
void exec_settle(void *executor, quire_state *s);
void exec_drop(void *executor, quire_state *s);
quire_err exec_fork(void *executor, const quire_state *from, quire_state *to);
const int32_t *exec_tokens(void *executor, const quire_state *s, size_t *n);
void exec_call_free(engine_call *k);
/* Makes room for the n requests of a stage. */
quire_err exec_begin_stage(engine_call *k, engine_stage stage, size_t n, quire_error *err);
/* Whether there is room for a stage of n sequences now. */
bool exec_has_room(const engine_executor *x, size_t n);
/* Whether a stage of n sequences waits for its turn: the executor goes on with it then. */
bool exec_must_wait(engine_call *k, size_t n);
/* Says for whom a request is, of the call of a state at a depth of its program. */
quire_err exec_address(engine_executor *x, quire_state *s, quire_request *r, bool parks, int32_t depth,
                       quire_error *err);
/* Counts n sequences of the stage as running. */
void exec_count_running(engine_call *k, size_t n);
/* Submits a request of the stage, which it takes. */
quire_err exec_submit(engine_call *k, quire_request *r, int32_t index, bool is_alone, quire_error *err);
/* Submits a request for ids that generates nothing. start: the first token that has its
 * log-probability, what comes before the one ahead of it is not computed again; 0: none
 * has. */
quire_err exec_submit_prompt(engine_call *k, const int32_t *ids, size_t n, size_t start, int32_t index,
                             bool is_alone, quire_error *err);

/* ---- engine_text.c: texts and turns become tokens ---- */

/* Appends a text and its spans of ordinary text. */
quire_err exec_join_text(program_text *to, const program_text *t);
/* Makes the request for the ids of a text that goes on from n_ids ids. */
quire_err exec_new_joined(const engine_executor *x, const program_text *t, const int32_t *ids, size_t n_ids,
                          quire_request **out, quire_error *err);
/* Submits a text that goes on from the state's first n_ids ids. */
quire_err exec_submit_joined(engine_call *k, const program_text *t, size_t n_ids, int32_t index,
                             quire_error *err);
/* The texts that come next become tokens together. */
quire_err exec_take_texts(engine_call *k, quire_error *err);
/* What the template writes from the end of the turn that is in the ids to the content of
 * the last one becomes tokens. Where that is in the ids too, those of the answer that
 * probably comes next: forks have them in common. */
quire_err exec_take_turns(engine_call *k, quire_error *err);

/* ---- engine_gen.c ---- */

quire_err exec_submit_gen(engine_call *k, quire_error *err);
/* Adds what a DELTA brings. */
quire_err exec_add_output(engine_call *k, const quire_event *ev);
/* A gen is over: its first output goes to the state. */
quire_err exec_take_gen(engine_call *k, const quire_event *done);
/* Begins a gen whose request was made ahead, or will be soon. *is_begun: so it is; else
 * nothing is ahead any more, and it is to go the usual way. */
quire_err exec_begin_ahead(engine_call *k, bool *is_begun, quire_error *err);
/* Takes an event of a request that is ahead. The result is the call that waited for it and
 * is to begin now, or NULL. */
engine_call *exec_take_ahead(const engine_request *r, const quire_event *ev);

/* ---- engine_select.c ---- */

/* The choices become tokens after all of the state's but the last one, whose text goes
 * before theirs where it is one. */
quire_err exec_submit_choices(engine_call *k, quire_error *err);
/* Takes the ids of a choice: its tokens begin after the state's or, where the last of
 * these became another one, with that. */
quire_err exec_take_choice(engine_call *k, int32_t index, const quire_event *start);
quire_err exec_submit_scores(engine_call *k, quire_error *err);
/* Takes the log-probabilities of a choice's tokens. */
void exec_take_score(engine_call *k, const engine_request *r, const quire_event *start);
/* All choices are scored: the one that is chosen goes to the state. */
quire_err exec_take_select(engine_call *k);

#endif
