/* Streams and queues: one request on its way, and where its events come out.
 *
 * A stream is made by quire_submit on the queue's thread, lent to a text thread (stream_prepare), and from then on lives on the queue's
 * thread: engine events arrive through the queue's out-ring, the text thread's verdict through its inbox. It is freed when the text thread
 * is done with it, every choice has ended in the engine, and the user has released it (or the queue closes). */
#ifndef API_STREAM_H
#define API_STREAM_H

#include <pthread.h>

#include "api/engine.h"
#include "base/wake.h"
#include "engine/explain.h"
#include "text/detok.h"
#include "text/stop.h"

/* One completion: a prompt and what grows behind it. */
typedef struct choice {
    quire_stream *stream;
    int32_t index;
    /* set by the text thread before the engine knows the choice */
    token_list prompt;
    detok *detok;     /* NULL without a vocabulary */
    stopper *stopper; /* NULL without stop strings */
    sampling_params sampling;
    bool prompt_only; /* max_tokens 0 with echo: the engine makes a token, which is counted and not shown */
    request_id id;
    bool submitted;
    /* the queue's thread */
    bool started, ended; /* START and END were given out */
    bool gone;           /* the engine's end has come */
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
    int32_t n_choices, n_submitted, n_ended, n_gone;
    choice *choices;
    quire_error verdict;            /* the text thread's, until it is done with the stream */
    quire_error error;              /* QUIRE_OK, or why it failed */
    bool prepared;                  /* the text thread is done with it */
    bool released, cancelled, done; /* done: DONE was given out */
};

/* What quire_queue_next gives out before it looks for anything new. */
typedef enum queue_stage { STAGE_NONE, STAGE_DELTA, STAGE_FLUSH, STAGE_END, STAGE_DONE } queue_stage;

struct quire_queue {
    quire_engine *e;
    wake wake;
    engine_out *out;
    quire_stream *streams; /* all that are not freed */
    pthread_mutex_t lock;  /* guards inbox */
    quire_stream *inbox;   /* prepared or failed, in no order */
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

/* ---- stream.c ---- */
quire_err stream_new(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err);
void stream_free(quire_stream *s);
/* Asks the engine to end every choice that still runs there. */
void stream_cancel_choices(quire_stream *s);

#endif
