/* An open engine with the queue of the command that uses it, and what one stream on it has answered so far. One thread. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/body.h"

#include "cli/options.h"
#include "cli/text_out.h"

typedef struct session {
    quire_engine *engine;
    quire_queue *queue;
} session;

/* Opens the engine and says on stderr what was chosen and why, and what its KV pages hold. On failure nothing is left open. */
quire_err session_open(const cli_options *o, session *s, quire_error *err);
void session_close(session *s);

/* One choice of a response. */
typedef struct response_choice {
    strbuf text;
    int32_t *prompt_tokens, *tokens; /* mem_new'd */
    size_t n_prompt_tokens, prompt_cap, n_tokens, tokens_cap;
    quire_finish finish;
    int32_t stop_token;  /* -1: none */
    char *stop_string;   /* mem_new'd; NULL: none */
} response_choice;

/* What a stream has said. Zero-initialised is empty. */
typedef struct response {
    quire_stream *stream;
    response_choice *choices; /* mem_new'd, n_choices of them */
    size_t n_choices;
    int32_t prompt_tokens, completion_tokens;
    bool done, chat;
    quire_error error; /* code OK unless the request failed */
} response;

void response_deinit(response *a);
/* Sends a request whose events come with `a` as their user pointer. On failure a->error says why, and a->done is true. BUSY, here or as the
 * error of the DONE, means: try again when another stream has ended. */
quire_err response_submit(response *a, session *s, quire_endpoint endpoint, const char *text, size_t n);
/* Takes an event in. On its DONE the stream is released. Out of memory ends the response with that error. */
void response_add(response *a, const quire_event *ev);
/* "stop", "length", "cancelled", "error", or NULL while unfinished. */
const char *response_finish_name(quire_finish f);

/* Runs one request to its end and prints the text of choice 0 piece by piece, without the end of its line. When *cancel (may be NULL) turns
 * non-zero, it is cancelled, as it is when nothing can be printed any more. */
quire_err response_run(response *a, session *s, quire_endpoint endpoint, const body *request, text_out *out, const volatile int *cancel);

#endif
