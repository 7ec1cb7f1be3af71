/* The executor that runs programs on an engine, through quire.h. Gens and selects become
 * requests by token ids; the engine's text threads tokenise text. A call owns the
 * requests of its stage; a state owns its ids. One thread: that of the programs. */
#ifndef EXECUTE_ENGINE_CALL_H
#define EXECUTE_ENGINE_CALL_H

#include "program/program_state.h"
#include "json/json_out.h"

/* Bytes of a random text that replaces content in a message if it is tokenised already. A
 * client cannot guess it, so no other text contains it. */
#define MARK_BYTES 40

/* The most sequences of programs in the engine at once, which leaves room for other
 * requests; further calls wait. A call with more runs when no other call does. */
#define MAX_RUNNING 256

struct engine_call;

typedef struct engine_executor {
    quire_engine *e;
    quire_queue *q;
    size_t n_running;                          /* sequences of programs in the engine */
    struct engine_call *waiting, *waiting_end; /* the first and last waiting call */
    uint64_t n_arrivals;                       /* number of calls that had to wait so far */
    char mark[MARK_BYTES];
} engine_executor;

/* Ids shared by states, by reference count. Only a sole owner may change them. */
typedef struct shared_ids {
    int32_t refs;
    size_t n, cap;
    int32_t ids[];
} shared_ids;

/* What the executor keeps for a state. */
typedef struct engine_state {
    shared_ids *ids;
    size_t n_taken;    /* number of the state's parts that ids covers */
    size_t n_computed; /* number of leading ids that the engine has computed */
    size_t n_answered; /* n_taken when ENGINE_ANSWER's ids were last computed */
    size_t n_turn;     /* number of ids before the turn that began last */
    quire_park *park;  /* holds the pages of ids between calls; NULL: not opened */
    strbuf rest;       /* text after ids, if a stop string cut a gen inside a token */
    /* the call that prepares the next gen while one runs; otherwise NULL */
    struct engine_call *ahead;
} engine_state;

/* One request of a call. It is the `user` of the request's stream. */
typedef struct call_request {
    struct engine_call *call;
    quire_stream *stream;
    int32_t index; /* index of the choice, in a select; otherwise 0 */
    bool is_alone; /* the request scores the choice's tokens with nothing before them */
} call_request;

/* A choice of a select. */
typedef struct engine_choice {
    int32_t *ids;             /* [n] the state's ids, then the choice's */
    size_t n, from;           /* the choice's ids are ids[from..n) */
    double *logprobs, *alone; /* [n - from] log-probabilities after the state's ids; with nothing before */
} engine_choice;

typedef enum engine_stage {
    ENGINE_TEXT,    /* tokenises the state's text */
    ENGINE_ANSWER,  /* tokenises the beginning of the answer that forks will share */
    ENGINE_PREFIX,  /* computes the state's ids */
    ENGINE_GEN,     /* generates */
    ENGINE_CHOICES, /* tokenises the choices */
    ENGINE_SCORES   /* scores the choices */
} engine_stage;

typedef struct engine_call {
    engine_executor *x;
    program_call *c;
    engine_stage stage;
    call_request *requests; /* [n_requests] requests of the stage */
    size_t n_requests, n_open;
    size_t n_running; /* sequences of this stage that x->n_running counts */
    /* neighbours in the executor's list of waiting calls, if is_waiting */
    struct engine_call *next_waiting, *last_waiting;
    /* links of the program's heap of waiting calls: first child, next sibling, and the
     * call that links to this one */
    struct engine_call *below, *beside, *above;
    size_t n_wanted;
    uint64_t arrival;
    bool is_waiting;
    bool has_turn; /* it has waited and its stage may begin */
    /* the state whose next gen this call prepares ahead of time; otherwise NULL. c->state
     * is then a shadow whose first id stands for everything before the text between the
     * gens. After that text is tokenised, ENGINE_GEN prepares the gen's request */
    quire_state *ahead_of;
    /* with ahead_of: the call of that gen, if it waits for this one; otherwise NULL */
    struct engine_call *waits;
    shared_ids *answer; /* ids from ENGINE_ANSWER: the state's and the beginning of an answer; or NULL */
    size_t n_kept;      /* ENGINE_CHOICES: number of leading ids that choices keep */
    size_t upto;        /* ENGINE_TEXT: the state's n_taken after the stage */
    size_t **ends;      /* [c->n_outputs] in a gen: byte offset in the text at which each token ends */
    size_t *caps;
    engine_choice *choices; /* [c->n_choices] */
    quire_error error;      /* first error of the call or of one of its requests */
} engine_call;

/* ---- engine_executor.c ---- */

extern const program_ops engine_ops;
/* Opens an executor with its own queue; *out is for programs_open with engine_ops, which
 * takes it over. e must outlive it. QUIRE_NO_MEMORY. */
quire_err engine_executor_open(quire_engine *e, void **out);

/* ---- engine_call.c ---- */

/* Replaces the ids of *l after the first `keep` by ids[0..n), copying them first if they
 * are shared. QUIRE_NO_MEMORY: *l is unchanged. */
quire_err exec_ids_replace(shared_ids **l, size_t keep, const int32_t *ids, size_t n);
engine_state *exec_state_of(const quire_state *s);
size_t exec_n_ids(const engine_state *es);
quire_err exec_want_state(quire_state *s, quire_error *err);
/* Drops the call that prepares the state's next gen, if there is one. es may be NULL. */
void exec_drop_ahead(engine_state *es);
/* Members of engine_ops; program_ops describes them. */
void exec_cancel(void *executor, program_call *c);
void exec_settle(void *executor, quire_state *s);
void exec_drop(void *executor, quire_state *s);
quire_err exec_fork(void *executor, const quire_state *from, quire_state *to);
const int32_t *exec_tokens(void *executor, const quire_state *s, size_t *n);
void exec_call_free(engine_call *k);
/* Releases the requests of the previous stage and makes room for n of a new one. */
quire_err exec_begin_stage(engine_call *k, engine_stage stage, size_t n, quire_error *err);
/* Whether there is room for a stage of n sequences now. */
bool exec_has_room(const engine_executor *x, size_t n);
/* Whether a stage of n sequences must wait, for room or because others wait. If so it is
 * queued, and exec_take_turn returns it later. */
bool exec_must_wait(engine_call *k, size_t n);
/* Removes and returns the next waiting call: the deepest one (quire_request_step) of the
 * program whose call is first in the list. NULL: none, or there is no room for it. */
engine_call *exec_take_turn(engine_executor *x);
/* Counts n sequences of the stage as running. */
void exec_count_running(engine_call *k, size_t n);
/* Submits a request of the stage, or only prepares it if it is the gen of a call ahead of
 * time. Takes over r, even on failure. */
quire_err exec_submit(engine_call *k, quire_request *r, int32_t index, bool is_alone, quire_error *err);
/* Submits a request that computes ids and generates nothing. start: index of the first
 * token whose log-probability is wanted (earlier ones may be cached); 0: none. */
quire_err exec_submit_prompt(engine_call *k, const int32_t *ids, size_t n, size_t start, int32_t index,
                             bool is_alone, quire_error *err);

/* ---- engine_gen.c: texts and turns become tokens ---- */

/* Submits a text to be tokenised after the state's first n_ids ids. */
quire_err exec_submit_joined(engine_call *k, const program_text *t, size_t n_ids, int32_t index,
                             quire_error *err);
/* Tokenises the rest of a cut gen and the state's next texts together. */
quire_err exec_take_texts(engine_call *k, quire_error *err);
/* Tokenises what the template writes between the end of the last turn in ids and the
 * content of the state's newest turn. If ids include that turn, tokenises the beginning
 * of the answer that probably follows, for forks to share. */
quire_err exec_take_turns(engine_call *k, quire_error *err);

/* ---- engine_gen.c ---- */

quire_err exec_submit_gen(engine_call *k, quire_error *err);
/* Appends a DELTA event to the output of its choice. QUIRE_NO_MEMORY. */
quire_err exec_add_output(engine_call *k, const quire_event *ev);
/* Ends a gen: appends the ids of its first output to the state's. */
quire_err exec_take_gen(engine_call *k, const quire_event *done);
/* Starts the request that was prepared ahead of time for k; k takes it over. */
quire_err exec_start_ahead(engine_call *k, quire_error *err);

/* Submits the choices to be tokenised, each with the text of the state's last id before
 * it, so that a choice may continue that token. If that id is no valid text, the choices
 * are tokenised after it. */
quire_err exec_submit_choices(engine_call *k, quire_error *err);
/* Takes the ids of a choice from its START event. The choice begins after the state's ids
 * or, if their last one changed, at that one. */
quire_err exec_take_choice(engine_call *k, int32_t index, const quire_event *start);
quire_err exec_submit_scores(engine_call *k, quire_error *err);
/* Takes the log-probabilities of a choice's tokens. */
void exec_take_score(engine_call *k, const call_request *r, const quire_event *start);
/* Ends a select whose choices are all scored: the state's ids become the best one's. */
quire_err exec_take_select(engine_call *k);

#endif
