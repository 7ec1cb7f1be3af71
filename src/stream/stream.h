/* A stream is one submitted request; a queue delivers the events of its streams.
 *
 * quire_submit makes a stream on the queue's thread and lends it to a text thread
 * (stream_prepare). After that it belongs to the queue's thread: events of the engine
 * arrive through the queue's output table, and results of text threads as delivered jobs.
 * It is freed once the text thread is done with it, every choice has ended in the engine,
 * and the user has released it (or the queue closes). */
#ifndef STREAM_STREAM_H
#define STREAM_STREAM_H

#include <pthread.h>

#include "base/ring.h"
#include "stream/choice.h"

struct quire_stream {
    text_job job; /* first member: a job* is a stream* */
    quire_queue *q;
    quire_request *request;
    stream_rule rule;
    prediction *prediction; /* the expected answer, with a reference; NULL: none */
    void *user;
    int64_t submitted_us;
    quire_stream *next, *prev; /* links of the queue's list */
    int32_t n_choices, n_submitted, n_ended;
    /* replacing sequences of its choices; sequences whose end event has come */
    int32_t n_replaced, n_gone;
    int32_t n_commands; /* commands in progress */
    /* beam search with stop strings: the engine uses it until the last end event */
    struct beam_stop_matcher *watch;
    adapter_want want;   /* its adapter, referenced until the stream is freed */
    bool has_wanted;     /* owned by the text thread */
    quire_error verdict; /* the text thread's result, written until it is done with the stream */
    quire_error error;   /* QUIRE_OK, or why it failed */
    /* made by quire_prepare; quire_stream_start supplies the first tokens of its
     * prompt */
    bool is_held;
    token_list first; /* first tokens of a held stream */
    /* the text thread is done, and the queue's thread continues: with a held stream once
     * its tokens have come, with one that waits for a place in the engine once a place is
     * free */
    bool is_ready, is_started;
    bool is_open;     /* its choices have their prompts */
    bool wants_place; /* it waits for a place; the smallest turn is first */
    uint64_t turn;
    /* the text thread is done with it; if held, it was also submitted or never will be */
    bool prepared;
    bool cancelled, done; /* done: DONE was delivered */
    atomic_bool released; /* set by the queue's thread; a text thread then stops preparing */
    choice choices[];     /* [n_choices] */
};

/* What quire_queue_next delivers before it reads new events. */
typedef enum queue_stage {
    STAGE_NONE,
    STAGE_PROGRESS,
    STAGE_ROLLBACK,
    STAGE_REFUSED,
    STAGE_DELTA,
    STAGE_FLUSH,
    STAGE_END,
    STAGE_DONE
} queue_stage;

struct quire_queue {
    stream_engine *e;
    wake wake;
    engine_out *out;
    quire_stream *streams;     /* all streams that are not freed */
    pthread_mutex_t lock;      /* guards ran */
    text_job *ran, **ran_last; /* jobs that text threads have finished, first in, first out */
    int32_t n_parses;          /* parses in progress, or finished and not delivered */
    int32_t n_wanting;         /* streams that wait for a place in the engine */
    bool is_awaiting;          /* such streams were announced to the engine */
    uint64_t n_turns;          /* turns given to such streams so far */
    quire_error parse_error;   /* error of the PARSED or CHECKED event */
    strbuf report;             /* report of the CHECKED event */
    quire_error refusal;       /* error of the REFUSED event */
    choice *current;           /* the choice whose next stages are delivered */
    queue_stage stage;
    event_memory memory; /* memory of the event being delivered */
};

/* ---- prepare.c: on a text thread ---- */
/* Renders, tokenises, opens detokenizers and submits every choice to the engine; after a
 * failure some of them may already be submitted. For a held stream, does only what needs
 * no prompt. */
quire_err stream_prepare(quire_stream *s, quire_error *err);
/* Does the rest for a stream that is ready, on the queue's thread. QUIRE_BUSY: may be
 * called again. */
quire_err stream_submit_held(quire_stream *s, quire_error *err);
/* The engine_request for prompt number `prompt` of s, ids[0..n), except for its tokens,
 * users and sampling parameters. Its namespace's name is written to `namespace`. */
engine_request stream_engine_request(const quire_stream *s, int32_t prompt, const int32_t *ids, int32_t n,
                                     uint8_t namespace[ENGINE_NAMESPACE_BYTES]);

/* ---- queue.c ---- */
/* quire_queue_open for an engine. */
quire_err queue_open(stream_engine *e, quire_queue **out);
/* text_job.take of a stream that is prepared, or failed. */
bool queue_take_prepared(text_job *job, quire_event *out);
/* text_job.take of a held stream that is ready, or failed. */
bool queue_take_held(text_job *job, quire_event *out);
/* text_job.take of a stream_command: executes and frees it. */
bool queue_take_command(text_job *job, quire_event *out);

/* ---- stream_branch.c ---- */
/* A rollback or steer in progress: from the queue's thread to a text thread and back. */
typedef struct stream_command {
    text_job job; /* first member: a job* is a stream_command* */
    choice *c;
    engine_fork *fork_from; /* the choice's sequence when the command was given */
    quire_request *fields;  /* new fields of the choice; NULL: unchanged */
    bool has_text;
    strbuf tail_text;
    token_list kept, tail;  /* tokens of the response that are kept; tokens to append to them */
    choice_text shows;      /* text state after the kept tokens */
    strbuf text;            /* text of the kept tokens */
    void *constraint_state; /* the constraint's state after all tokens, mem_new'd; or NULL */
    quire_error verdict;
} stream_command;

/* Executes a command that the text thread has prepared: the choice continues as another
 * sequence. On failure nothing is changed. The queue's thread. */
quire_err stream_command_do(stream_command *m, quire_error *err);
void stream_command_free(stream_command *m);

/* ---- stream.c ---- */
/* Delivers a finished job to q's thread, and wakes it. A text thread. */
void stream_deliver(quire_queue *q, text_job *job);
/* Counts c as ended; call it when its finish is known. */
void stream_settle(choice *c);
/* Adds c to the statistics once it has ended and the engine is done with it, so that all
 * numbers of a completion are added at once. */
void stream_count(choice *c);
/* Frees s when neither the engine, a text thread nor the user refers to it. */
void stream_free_if_over(quire_stream *s);
/* Cancels every choice that still runs in the engine. */
void stream_cancel_choices(quire_stream *s);
/* Whether s, a step of a program, waits for a place when the engine is full. */
static inline bool stream_waits_for_place(const quire_stream *s) {
    return s->request->program != 0;
}
/* Submits a stream that is ready, unless it failed or was cancelled, and delivers it as
 * prepared; or makes it wait for a place. */
void stream_end_wait(quire_stream *s);
/* Submits streams that wait for places, as long as there are places. */
void stream_take_places(quire_queue *q);

#endif
