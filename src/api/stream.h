/* Streams and queues: one request on its way, and where its events come out.
 *
 * A stream is made by quire_submit on the queue's thread, lent to a text thread (stream_prepare), and from then on lives on the queue's
 * thread: engine events arrive through the queue's board, the text thread's verdict through its inbox. It is freed when the text thread
 * is done with it, every choice has ended in the engine, and the user has released it (or the queue closes). */
#ifndef API_STREAM_H
#define API_STREAM_H

#include <pthread.h>

#include "api/open_engine.h"
#include "base/wake.h"
#include "engine/explain.h"
#include "text/detok.h"
#include "text/stop_matcher.h"

/* One completion: a prompt and what grows behind it. */
typedef struct choice {
    quire_stream *stream;
    int32_t index;
    /* set by the text thread before the engine knows the choice */
    token_list prompt;
    detok *detok;     /* NULL without a vocabulary */
    stop_matcher *stop_matcher; /* NULL without stop strings */
    sampling_params sampling;
    bool prompt_only; /* max_tokens 0 with echo: the engine makes a token, which is counted and not shown */
    request_id id;
    bool submitted;
    /* the queue's thread */
    bool started, ended; /* START and END were given out */
    request_id current;  /* the sequence that it is: known with the first event or once it is prepared */
    bool gone;           /* the engine's end has come */
    token_list history; /* the tokens of the response that stand */
    double *sums;       /* [history.n] of their log-probabilities, where the engine reports them */
    size_t cap_sums;
    quire_request *changed; /* its fields, once they differ from the stream's; else NULL */
    struct stream_command *command; /* the rollback or steer that is under way, or NULL */
    int32_t n_replaced, n_forks;    /* sequences that took its place so far; forks taken */
    int32_t n_completion;
    double sum_logprob; /* of its tokens, where the engine reports them */
    double beam_score;
    int32_t n_cached; /* of the prompt, as the engine said */
    explain *explain;   /* with the engine's end, where it was asked for */
    int64_t detokenise_us;
    quire_finish finish;
    int32_t stop_token;
    int32_t stop_string; /* index, or -1 */
    int32_t last_token;
    const token_logprob *logprobs, *prompt_logprobs; /* the engine's, of the event at hand */
} choice;

struct quire_stream {
    text_job job; /* first: a job* is a stream* */
    quire_queue *q;
    quire_request *request;
    void *user;
    int64_t submitted_us, tokenise_us; /* from there until the engine had it */
    quire_stream *next, *prev; /* the queue's list */
    quire_stream *inbox_next;
    int32_t n_choices, n_submitted, n_ended;
    int32_t n_replaced, n_gone; /* further sequences of its choices; sequences whose end has come */
    int32_t n_commands;         /* under way */
    choice *choices;
    struct beam_stop_matcher *watch;       /* beam search with stop strings: the engine's, until its last end */
    quire_error verdict;            /* the text thread's, until it is done with the stream */
    quire_error error;              /* QUIRE_OK, or why it failed */
    bool prepared;                  /* the text thread is done with it */
    bool cancelled, done;           /* done: DONE was given out */
    atomic_bool released;           /* by the queue's thread; a text thread stops preparing then */
};

/* What quire_queue_next gives out before it looks for anything new. */
typedef enum queue_stage { STAGE_NONE, STAGE_ROLLBACK, STAGE_REFUSED, STAGE_DELTA, STAGE_FLUSH, STAGE_END, STAGE_DONE } queue_stage;

struct quire_queue {
    quire_engine *e;
    wake wake;
    engine_out *out;
    quire_stream *streams; /* all that are not freed */
    pthread_mutex_t lock;  /* guards inbox */
    quire_stream *inbox;   /* prepared or failed, in no order */
    struct stream_command *commands; /* ready to be done, in no order; under the lock, too */
    quire_parse *parsed;             /* bodies that were read, in no order; under the lock, too */
    int32_t n_parses;                /* under way, or read and not given out */
    quire_error parse_error;         /* of the PARSED */
    quire_error refusal;   /* of the REFUSED */
    choice *current;       /* whose stages are being given out */
    queue_stage stage;
    strbuf text; /* of the DELTA */
    strbuf echo; /* of the START */
    quire_logprob *logprobs; /* of the START or DELTA */
    size_t cap_logprobs;
};

/* ---- prepare.c: on a text thread ---- */
/* Renders, tokenises, opens detokenizers and hands every choice to the engine; on failure some of them may be there already. */
quire_err stream_prepare(quire_stream *s, quire_error *err);
/* What turns the tokens of a response into text, behind a prompt's ids of which those from n_prompt on were a response already. */
quire_err stream_open_text(const quire_engine *e, const quire_request *r, const token_list *prompt, int32_t n_prompt, detok **d,
                           stop_matcher **stops);
/* What the engine is to know of r, but for tokens, users and choice of tokens. namespace is where its name is written. */
engine_request stream_engine_request(const quire_request *r, uint8_t namespace[ENGINE_NAMESPACE_BYTES], engine_out *out);

/* ---- parse.c ---- */
/* Gives out a body that a text thread has read, as PARSED; false when none waits. */
bool parse_next(quire_queue *q, quire_event *out);
/* Cancels all that are under way and waits for them. The queue's thread, at its close. */
void parse_close(quire_queue *q);

/* ---- branch.c ---- */
/* A rollback or steer on its way: from the queue's thread to a text thread and back. */
typedef struct stream_command {
    text_job job; /* first: a job* is a stream_command* */
    choice *c;
    engine_fork *fork_from;     /* what the choice was when it was asked for */
    quire_request *fields; /* of the choice from now on */
    bool has_changes;      /* they differ from what they were */
    bool has_text;
    strbuf tail_text;
    token_list kept, tail; /* tokens of the response that stand; what is put behind them */
    detok *detok;
    stop_matcher *stop_matcher;
    strbuf text;           /* of what stands */
    quire_error verdict;
    struct stream_command *next;
} stream_command;

/* Does what the text thread has made ready: the choice is another sequence's from now on. On failure nothing changed. The queue's thread.
 */
quire_err stream_command_do(stream_command *m, quire_error *err);
void stream_command_free(stream_command *m);
/* Detokenises a token behind the others: appends to *out what can be shown. *match is the stop string that it completes, or -1; with
 * may_end false none can end here. Any thread that has d and stops. */
quire_err stream_feed(const quire_engine *e, const quire_request *r, const sampling_params *p, detok *d, stop_matcher *stops, int32_t token,
                      bool may_end, strbuf *out, int32_t *match);

/* ---- stream.c ---- */
quire_err stream_new(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err);
void stream_free(quire_stream *s);
/* Asks the engine to end every choice that still runs there. */
void stream_cancel_choices(quire_stream *s);

#endif
