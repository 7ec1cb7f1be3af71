/* A stream is one submitted request; a queue delivers the events of its streams.
 *
 * quire_submit makes a stream on the queue's thread and lends it to a text thread (stream_prepare). After that it lives on the queue's
 * thread: engine events arrive through the queue's output table, the text thread's result through its inbox. It is freed when the text
 * thread is done with it, every choice has ended in the engine, and the user has released it (or the queue closes). */
#ifndef API_STREAM_H
#define API_STREAM_H

#include <pthread.h>

#include "api/quire_engine.h"
#include "base/wake.h"
#include "engine/explain.h"
#include "text/detok.h"
#include "text/stop_matcher.h"

/* One completion: a prompt and the tokens generated behind it. */
typedef struct choice {
    quire_stream *stream;
    int32_t index;
    /* set by the text thread before the choice is submitted to the engine */
    token_list prompt;
    detok *detok;     /* NULL without a vocabulary */
    stop_matcher *stop_matcher; /* NULL without stop strings */
    sampling_params sampling;
    bool prompt_only; /* max_tokens 0 with echo: the engine generates a token, which is counted and not shown */
    request_id id;
    bool submitted;
    /* the queue's thread: */
    bool started, ended; /* START and END were delivered */
    request_id current;  /* its sequence in the engine: known with the first event or once it is prepared */
    bool gone;           /* the engine's end event has come */
    token_list history; /* the tokens of the response so far, without dropped ones */
    double *sums;       /* [history.n] cumulated log-probabilities, where the engine reports them */
    size_t cap_sums;
    quire_request *changed; /* its fields, where they differ from the stream's; else NULL */
    struct stream_command *command; /* the rollback or steer that is under way, or NULL */
    int32_t n_replaced, n_forks;    /* sequences that replaced it so far; forks taken */
    int32_t n_completion;
    double sum_logprob; /* of its tokens' log-probabilities, where the engine reports them */
    double beam_score;
    int32_t n_cached; /* of the prompt, from the engine */
    explain *explain;   /* from the engine's end event, where it was requested */
    int64_t detokenise_us;
    quire_finish finish;
    int32_t stop_token;
    int32_t stop_string; /* index, or -1 */
    int32_t last_token;
    const token_logprob *logprobs, *prompt_logprobs; /* the engine's, of the present event */
} choice;

struct quire_stream {
    text_job job; /* first member: a job* is a stream* */
    quire_queue *q;
    quire_request *request;
    void *user;
    int64_t submitted_us, tokenise_us; /* tokenise_us: from submitted_us until the engine had it */
    quire_stream *next, *prev; /* the queue's list */
    quire_stream *inbox_next;
    int32_t n_choices, n_submitted, n_ended;
    int32_t n_replaced, n_gone; /* further sequences of its choices; sequences whose end event has come */
    int32_t n_commands;         /* under way */
    choice *choices;
    struct beam_stop_matcher *watch;       /* beam search with stop strings: the engine uses it until the last end event */
    quire_error verdict;            /* the text thread's result, written until it is done with the stream */
    quire_error error;              /* QUIRE_OK, or why it failed */
    bool prepared;                  /* the text thread is done with it */
    bool cancelled, done;           /* done: DONE was delivered */
    atomic_bool released;           /* set by the queue's thread; a text thread then stops preparing */
};

/* What quire_queue_next delivers before it looks for new events. */
typedef enum queue_stage { STAGE_NONE, STAGE_ROLLBACK, STAGE_REFUSED, STAGE_DELTA, STAGE_FLUSH, STAGE_END, STAGE_DONE } queue_stage;

struct quire_queue {
    quire_engine *e;
    wake wake;
    engine_out *out;
    quire_stream *streams; /* all that are not freed */
    pthread_mutex_t lock;  /* guards inbox */
    quire_stream *inbox;   /* prepared or failed, in no order */
    struct stream_command *commands; /* prepared by a text thread, in no order; under the lock, too */
    quire_parse *parsed;             /* parsed bodies, in no order; under the lock, too */
    int32_t n_parses;                /* under way, or parsed and not delivered */
    quire_error parse_error;         /* of the PARSED */
    quire_error refusal;   /* of the REFUSED */
    choice *current;       /* the choice whose stages are being delivered */
    queue_stage stage;
    strbuf text; /* of the DELTA */
    strbuf echo; /* of the START */
    quire_logprob *logprobs; /* of the START or DELTA */
    size_t cap_logprobs;
};

/* ---- prepare.c: on a text thread ---- */
/* Renders, tokenises, opens detokenizers and submits every choice to the engine; after a failure some of them may be submitted already. */
quire_err stream_prepare(quire_stream *s, quire_error *err);
/* Opens the detokenizer and stop matcher of a response behind a prompt's ids; those from n_prompt on were a response already. */
quire_err stream_open_text(const quire_engine *e, const quire_request *r, const token_list *prompt, int32_t n_prompt, detok **d,
                           stop_matcher **stops);
/* The engine's request for r, without tokens, users and sampling parameters. The name of its namespace is written to `namespace`. */
engine_request stream_engine_request(const quire_request *r, uint8_t namespace[ENGINE_NAMESPACE_BYTES], engine_out *out);

/* ---- parse.c ---- */
/* Delivers a body that a text thread has parsed, as PARSED; false when there is none. */
bool parse_next(quire_queue *q, quire_event *out);
/* Cancels all parses under way and waits for them. The queue's thread, when the queue is closed. */
void parse_close(quire_queue *q);

/* ---- stream_branch.c ---- */
/* A rollback or steer under way: from the queue's thread to a text thread and back. */
typedef struct stream_command {
    text_job job; /* first member: a job* is a stream_command* */
    choice *c;
    engine_fork *fork_from;     /* the choice's sequence when the command was given */
    quire_request *fields; /* the choice's fields from then on */
    bool has_changes;      /* they differ from the fields before */
    bool has_text;
    strbuf tail_text;
    token_list kept, tail; /* tokens of the response that are kept; tokens appended to them */
    detok *detok;
    stop_matcher *stop_matcher;
    strbuf text;           /* of the kept tokens */
    quire_error verdict;
    struct stream_command *next;
} stream_command;

/* Executes a command that the text thread has prepared: from then on the choice is another sequence. On failure nothing changed. The
 * queue's thread. */
quire_err stream_command_do(stream_command *m, quire_error *err);
void stream_command_free(stream_command *m);
/* Detokenises a token behind the others, and appends to *out the text that can be shown. *match is the stop string that it completes, or
 * -1; with may_end false none can end here. Any thread that owns d and stops. */
quire_err stream_feed(const quire_engine *e, const quire_request *r, const sampling_params *p, detok *d, stop_matcher *stops, int32_t token,
                      bool may_end, strbuf *out, int32_t *match);

/* ---- stream.c ---- */
quire_err stream_new(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err);
void stream_free(quire_stream *s);
/* Cancels every choice that still runs in the engine. */
void stream_cancel_choices(quire_stream *s);

#endif
