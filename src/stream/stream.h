/* A stream is one submitted request; a queue delivers the events of its streams.
 *
 * quire_submit makes a stream on the queue's thread and lends it to a text thread
 * (stream_prepare). After that it lives on the queue's thread: engine events arrive
 * through the queue's output table, what text threads have run as delivered jobs. It is
 * freed when the text thread is done with it, every choice has ended in the engine, and
 * the user has released it (or the queue closes). */
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
    quire_stream *next, *prev; /* the queue's list */
    int32_t n_choices, n_submitted, n_ended;
    /* further sequences of its choices; sequences whose end event has come */
    int32_t n_replaced, n_gone;
    int32_t n_commands; /* under way */
    /* beam search with stop strings: the engine uses it until the last end event */
    struct beam_stop_matcher *watch;
    adapter_want want;   /* its adapter, referenced until the stream is freed */
    bool has_wanted;     /* the text thread's */
    quire_error verdict; /* the text thread's result, written until it is done with the stream */
    quire_error error;   /* QUIRE_OK, or why it failed */
    /* made by quire_prepare: quire_stream_start brings the first tokens of its prompt */
    bool is_held;
    token_list first; /* held: those */
    /* the text thread's work is done and the rest the queue's thread's: of a held stream
     * once the tokens have come, of one that waits for a place in the engine once it is
     * free */
    bool is_ready, is_started;
    bool is_open;     /* its choices have their prompts */
    bool wants_place; /* it waits for a place; and its turn, the least one first */
    uint64_t turn;
    bool prepared;        /* the text thread is done with it; held: and it was submitted, or never will be */
    bool cancelled, done; /* done: DONE was delivered */
    atomic_bool released; /* set by the queue's thread; a text thread then stops preparing */
    choice choices[];     /* [n_choices] */
};

/* What quire_queue_next delivers before new events. */
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
    quire_stream *streams;     /* all that are not freed */
    pthread_mutex_t lock;      /* guards ran */
    text_job *ran, **ran_last; /* jobs that text threads have run, first in, first out */
    int32_t n_parses;          /* under way, or parsed and not delivered */
    int32_t n_wanting;         /* streams that wait for a place */
    bool is_awaiting;          /* some of them were announced to the engine */
    uint64_t n_turns;          /* turns that such streams were given */
    quire_error parse_error;   /* error of the PARSED or CHECKED event */
    strbuf report;             /* of the CHECKED */
    quire_error refusal;       /* of the REFUSED */
    choice *current;           /* the choice whose stages are being delivered */
    queue_stage stage;
    event_memory memory; /* memory of the event being delivered */
};

/* ---- prepare.c: on a text thread ---- */
/* Renders, tokenises, opens detokenizers and submits every choice to the engine; after a
 * failure some of them may be submitted already. Of a held stream only what needs no
 * prompt. */
quire_err stream_prepare(quire_stream *s, quire_error *err);
/* The rest of a stream that is ready: on the queue's thread. BUSY: it may be called
 * again. */
quire_err stream_submit_held(quire_stream *s, quire_error *err);
/* The engine's request for prompt number `prompt` of s, ids[0..n), without tokens, users
 * and sampling parameters. The name of its namespace is written to `namespace`. */
engine_request stream_engine_request(const quire_stream *s, int32_t prompt, const int32_t *ids, int32_t n,
                                     uint8_t namespace[ENGINE_NAMESPACE_BYTES]);

/* ---- queue.c ---- */
/* quire_queue_open of an engine. */
quire_err queue_open(stream_engine *e, quire_queue **out);
/* text_job.take of a stream: it is prepared, or failed. */
bool queue_take_prepared(text_job *job, quire_event *out);
/* The same of a held one: it is ready, or failed. */
bool queue_take_held(text_job *job, quire_event *out);
/* text_job.take of a stream_command: executes and frees it. */
bool queue_take_command(text_job *job, quire_event *out);

/* ---- stream_branch.c ---- */
/* A rollback or steer under way: from the queue's thread to a text thread and back. */
typedef struct stream_command {
    text_job job; /* first member: a job* is a stream_command* */
    choice *c;
    engine_fork *fork_from; /* the choice's sequence when the command was given */
    quire_request *fields;  /* new fields of the choice; NULL: unchanged */
    bool has_text;
    strbuf tail_text;
    token_list kept, tail;  /* tokens of the response that are kept; tokens appended to them */
    choice_text shows;      /* has seen the kept tokens */
    strbuf text;            /* text of the kept tokens */
    void *constraint_state; /* the constraint's state after all tokens, mem_new'd; or NULL */
    quire_error verdict;
} stream_command;

/* Executes a command that the text thread has prepared: from then on the choice is
 * another sequence. On failure nothing changed. The queue's thread. */
quire_err stream_command_do(stream_command *m, quire_error *err);
void stream_command_free(stream_command *m);

/* ---- stream.c ---- */
/* Hands a job that was run to q's thread, and wakes it. A text thread. */
void stream_deliver(quire_queue *q, text_job *job);
/* Counts c as ended; its finish is known. */
void stream_settle(choice *c);
/* Adds c to the statistics once it has ended and the engine is done with it, so that the
 * numbers of a completion are known and count together. */
void stream_count(choice *c);
/* Frees s when neither the engine, a text thread nor the user refers to it. */
void stream_free_if_over(quire_stream *s);
/* Cancels every choice that still runs in the engine. */
void stream_cancel_choices(quire_stream *s);
/* Whether s waits for a place where the engine is full: it is a step of a program. */
static inline bool stream_waits_for_place(const quire_stream *s) {
    return s->request->program != 0;
}
/* Submits a stream that is ready, unless it failed or was cancelled, and delivers it as
 * prepared; or lets it wait for a place. */
void stream_end_wait(quire_stream *s);
/* Submits streams that wait for places, as far as there are some. */
void stream_take_places(quire_queue *q);

#endif
