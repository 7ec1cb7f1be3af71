/* A stream is one submitted request; a queue delivers the events of its streams.
 *
 * quire_submit makes a stream on the queue's thread and lends it to a text thread
 * (stream_prepare). After that it belongs to the queue's thread: events of the engine
 * arrive through the queue's output table, results of text threads as delivered jobs. It
 * is freed once the text thread is done with it, every choice has ended in the engine,
 * and the user has released it (or the queue closes). */
#ifndef STREAM_STREAM_H
#define STREAM_STREAM_H

#include <pthread.h>

#include "base/ring.h"
#include "stream/choice.h"

struct quire_stream {
    text_job job; /* first member, so that a job* is a stream* */
    quire_queue *q;
    quire_request *request;
    stream_rule rule;
    prediction *prediction; /* the expected answer, with a reference; NULL: none */
    void *user;
    int64_t submitted_us;
    quire_stream *next, *prev; /* neighbours in the queue's list */
    int32_t n_choices, n_submitted, n_ended;
    /* sequences that replaced others; sequences with a delivered end event */
    int32_t n_replaced, n_gone;
    int32_t n_commands; /* commands in progress */
    /* beam search with stop strings; the engine uses it until the last end event */
    struct beam_stop_matcher *watch;
    adapter_want want;   /* its adapter; holds a reference until the stream is freed */
    bool has_wanted;     /* the adapter was requested; owned by the text thread */
    quire_error verdict; /* the text thread's result, valid once that is done with the stream */
    quire_error error;   /* why the stream failed; code QUIRE_OK if it did not */
    /* from quire_prepare: quire_stream_start will supply the first tokens of its
     * prompt */
    bool is_held;
    token_list first; /* those first tokens */
    /* is_ready: the text thread is done, and the queue's thread will submit the stream: a
     * held one once it has its first tokens (is_started), others once the engine has a
     * place */
    bool is_ready, is_started;
    bool is_open;     /* all choices have their prompts */
    bool wants_place; /* it waits for a place in the engine; the smallest `turn` gets it */
    uint64_t turn;
    /* the text thread is done with it and, if it is held, it was submitted or given up */
    bool prepared;
    bool cancelled, done; /* done: its DONE was delivered */
    atomic_bool released; /* set by the queue's thread; a text thread then stops preparing it */
    choice choices[];     /* [n_choices] */
};

/* What quire_queue_next delivers before it reads new events, in stages. */
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
    quire_stream *streams;     /* all streams that are not freed, newest first */
    pthread_mutex_t lock;      /* guards `ran` */
    text_job *ran, **ran_last; /* jobs that text threads have finished, in order */
    int32_t n_parses;          /* parses in progress or not yet delivered */
    int32_t n_wanting;         /* streams that wait for a place in the engine */
    bool is_awaiting;          /* the engine was told that such streams exist */
    uint64_t n_turns;          /* turns given to such streams so far */
    quire_error parse_error;   /* for the PARSED or CHECKED event */
    strbuf report;             /* for the CHECKED event */
    quire_error refusal;       /* for the REFUSED event */
    choice *current;           /* the choice whose stages are being delivered */
    queue_stage stage;
    event_memory memory; /* memory of the last event that was delivered */
};

/* Renders, tokenises, opens detokenizers and submits every choice to the engine, on a
 * text thread. After a failure some choices may already be submitted. For a held stream,
 * only does what needs no prompt. */
quire_err stream_prepare(quire_stream *s, quire_error *err);
/* Does the rest for a held stream that is ready, on the queue's thread. QUIRE_BUSY: may
 * be called again. */
quire_err stream_submit_held(quire_stream *s, quire_error *err);
/* The engine_request for prompt number `prompt` of s, with ids[0..n), except for tokens,
 * users and sampling parameters. The name of its namespace is written to `namespace`. */
engine_request stream_engine_request(const quire_stream *s, int32_t prompt, const int32_t *ids, int32_t n,
                                     uint8_t namespace[ENGINE_NAMESPACE_BYTES]);

/* Opens a queue for an engine (quire_queue_open). */
quire_err queue_open(stream_engine *e, quire_queue **out);
/* text_job.take for a stream that was prepared, or has failed. */
bool queue_take_prepared(text_job *job, quire_event *out);
/* text_job.take for a held stream that is ready, or has failed. */
bool queue_take_held(text_job *job, quire_event *out);
/* text_job.take for a stream_command: executes and frees it. */
bool queue_take_command(text_job *job, quire_event *out);

/* A rollback or steer in progress, passed from the queue's thread to a text thread and
 * back. */
typedef struct stream_command {
    text_job job; /* first member, so that a job* is a stream_command* */
    choice *c;
    engine_fork *fork_from; /* the choice's sequence at the time of the command */
    quire_request *fields;  /* the choice's new fields; NULL: unchanged */
    bool has_text;
    strbuf tail_text;
    token_list kept, tail;  /* tokens of the response to keep; tokens to append to them */
    choice_text shows;      /* the text state after the kept tokens */
    strbuf text;            /* text of the kept tokens */
    void *constraint_state; /* the constraint's state after all tokens, owned; NULL: none */
    quire_error verdict;
} stream_command;

/* Executes a command that a text thread has prepared: another sequence continues the
 * choice. On failure nothing changes. The queue's thread. */
quire_err stream_command_do(stream_command *m, quire_error *err);
void stream_command_free(stream_command *m);

/* Delivers a finished job to q's thread and wakes it. Called on a text thread. */
void stream_deliver(quire_queue *q, text_job *job);
/* Counts c as ended. Call it when c's finish is known. */
void stream_settle(choice *c);
/* Adds c to the statistics once it has ended and the engine is done with it, so that all
 * figures of a completion are added at once. */
void stream_count(choice *c);
/* Frees s if no engine, text thread or user refers to it any more. */
void stream_free_if_over(quire_stream *s);
/* Cancels the choices that still run in the engine. */
void stream_cancel_choices(quire_stream *s);
/* Whether s is a step of a program, which waits for a place if the engine is full. */
static inline bool stream_waits_for_place(const quire_stream *s) {
    return s->request->program != 0;
}
/* Submits a stream that is ready, unless it failed or was cancelled, and delivers it as
 * prepared; or makes it wait for a place in the engine. */
void stream_end_wait(quire_stream *s);
/* Submits streams that wait for a place in the engine, while there are places. */
void stream_take_places(quire_queue *q);

#endif
