/* A session: an open engine and a queue of its events, for one command; and responses
 * collected from its streams. One thread. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/body.h"
#include "cli/files.h"
#include "cli/options.h"
#include "server/answer_parts.h"

typedef struct session {
    quire_engine *engine;
    quire_queue *queue;
} session;

/* Opens the engine, and prints on stderr the chosen settings with reasons, and the
 * capacity of its KV pages. On failure nothing is left open. */
quire_err session_open(const cli_options *o, session *s, quire_error *err);
/* Closes the queue and the engine. */
void session_close(session *s);

/* One choice of a response. */
typedef struct response_choice {
    strbuf text;        /* the whole text, as the model wrote it */
    strbuf content;     /* if the response has parts: text that is neither reasoning nor a call */
    answer_parts parts; /* if the response has parts: reasoning and calls */
    int32_t *tokens;    /* mem_new'd */
    size_t n_tokens, tokens_cap;
    quire_finish finish;
    int32_t stop_token; /* the stop token that ended it; -1: none */
    char *stop_string;  /* mem_new'd; NULL: none */
} response_choice;

/* The collected response of one stream. All zero: empty. */
typedef struct response {
    quire_stream *stream;
    response_choice *choices; /* [n_choices] mem_new'd */
    size_t n_choices;
    bool has_parts, names_call, old_calls; /* copied from quire_request_info */
    int32_t prompt_tokens, completion_tokens;
    int32_t cached_tokens; /* prompt tokens found in the prefix cache */
    /* set by response_run: time from its start to the first token, and from there to the
     * end; first_us 0: no token came */
    int64_t first_us, tokens_us;
    bool has_begun, done; /* has_begun: the prompt was accepted; done: all events came */
    quire_error error;    /* code OK unless the request failed */
} response;

/* Frees the choices, and the stream if there is one. */
void response_deinit(response *a);
/* Submits a request of n bytes for an empty response; `a` is the user pointer of its
 * events. On failure a->error has the reason, and a->done is true. QUIRE_BUSY, here or in
 * the event DONE: try again when another stream has ended. */
quire_err response_submit(response *a, session *s, quire_endpoint endpoint, const char *text, size_t n);
/* Adds an event to the response. DONE releases the stream. Out of memory ends the
 * response with that error. */
void response_add(response *a, const quire_event *ev);
/* The name of f: "stop", "length", "cancelled" or "error"; NULL: unfinished. */
const char *response_finish_name(quire_finish f);

/* How response_run prints. All zero: only the text. */
typedef struct response_printing {
    str before; /* printed before the text */
    const volatile int *
        /* cancels the response when it becomes non-zero; NULL: never, and after a failure
         * no newline is printed */
        cancel;
    /* called once, when the prompt is accepted, before text is printed; may be NULL */
    void (*on_start)(void *user);
    void *user;
} response_printing;

/* Runs one request to its end, and prints the text of choice 0 piece by piece and a
 * newline. If the output fails, the request is cancelled. */
quire_err response_run(response *a, session *s, quire_endpoint endpoint, const body *request,
                       const response_printing *how, quire_error *err);

#endif
