/* The response to one generation request, from its submission to its last byte: events of the queue in, a JSON object or server-sent events
 * out.
 *
 * Whole responses are collected until DONE; a long one is then written choice by choice, as the client reads. Streams send their head at
 * the first START, so that a request that fails before it gets a real status. A chunk is held back until the queue is drained or the next
 * event of its choice comes, so that the last text and the finish reason travel together. While the connection has
 * server_options.max_output_bytes unsent nothing more is written: chunks are held, and grow, until the client has read. Owner: the loop's
 * thread; it hangs on its connection (conn.response) and goes with it. */
#ifndef SERVER_RESPONSE_H
#define SERVER_RESPONSE_H

#include "server/conn.h"
#include "json/json_out.h"

/* Log-probabilities of tokens, written as they come: lists of JSON values without their brackets. */
typedef struct response_logprobs {
    strbuf tokens, values, tops, offsets; /* completions */
    strbuf content;                       /* chat: one object a token */
    int64_t n_chars, n_prompt_chars;      /* of the tokens' texts so far; of these, the prompt's */
} response_logprobs;

/* What the choices of a prompt show of it: made once, at the first START, and written with each of them. */
typedef struct response_prompt {
    bool taken;
    response_logprobs logprobs; /* of the echo */
    strbuf text;              /* the echo */
    strbuf prompt_logprobs;   /* one value a token but the first */
    int32_t *ids;             /* only when ids are wanted */
    size_t n_ids;
} response_prompt;

typedef struct response_choice {
    response_logprobs logprobs;
    strbuf text;                 /* whole responses: all of it; streams: the chunk held back */
    strbuf stop_string;
    int32_t *tokens;             /* only when ids are wanted */
    size_t n_tokens, cap_tokens;
    int32_t prompt_tokens, completion_tokens;
    double sum_logprob;          /* known from its END on */
    double beam_score;           /* the same; has_score: there is one */
    bool has_score;
    int32_t stop_token;          /* -1: none */
    const quire_explain *explain; /* the stream's, from its END on, where it was asked for */
    struct stream_order *order;  /* a rollback or steer that waits for its event, or NULL */
    quire_finish finish;         /* NONE until its END */
    bool held;                   /* a chunk is held back */
    bool prompt_sent;            /* what is written of it has no prompt_part any more */
} response_choice;

typedef struct response response;

/* How an endpoint writes its responses. usage and system_fingerprint are written by the functions below. */
typedef struct response_format {
    const char *id_prefix;
    bool skips_empty; /* a chunk without text is not worth sending */
    /* A whole response: everything before its choices, the choice shown at place i, everything behind them. */
    void (*begin)(const response *a, json_out *o);
    void (*choice)(const response *a, int32_t i, json_out *o);
    void (*end)(const response *a, json_out *o);
    /* The first chunk of a choice; NULL: none. Those of all choices go out together, when the first one starts. */
    void (*first)(const response *a, int32_t choice, json_out *o);
    /* The chunk held back; with choice.finish set, the last of its choice. */
    void (*chunk)(const response *a, int32_t choice, json_out *o);
    const char *chunk_object; /* "object" in chunks */
} response_format;

extern const response_format completions_format, chat_format;

struct response {
    conn *conn;
    quire_stream *stream;
    const quire_request_info *info;
    const response_format *format;
    response_choice *choices;
    response_prompt *prompts;                                  /* [n_choices / n_samples] */
    int32_t n_samples;                                       /* choices of one prompt */
    int64_t created_s;
    size_t n_bytes;                                          /* of its choices and prompts, not sent yet */
    int32_t prompt_tokens, completion_tokens, cached_tokens; /* of all choices, at DONE */
    bool started;                                            /* the stream's head is sent */
    int32_t n_choices;
    bool is_done;                             /* DONE came: what is left is sent as the client reads */
    bool is_long;                             /* a whole response that is written in pieces */
    int32_t next_shown;                       /* of these, the next to be written */
    int32_t *shown, n_shown;                  /* the choices of a whole response, in order: the best of each prompt; NULL before DONE */
    bool listed;                              /* in loop.unsent */
    response *next_unsent;
    char id[40];
};

/* Parses and submits the body of c's request. Afterwards c is either answered with an error or has its response. */
void response_start(conn *c, quire_endpoint endpoint);
/* Submits a request whose body was read; the rest as above. Takes r. */
void response_start_request(conn *c, quire_request *r);
/* One event of the loop's queue. */
void response_event(const quire_event *ev);
/* The queue is drained: sends what was held back. */
void response_flush_unsent(loop *l);
/* The client has read: sends on. The connection may have ended its response then. */
void response_drained(response *a);
/* Whether a byte of it was written. */
bool response_has_begun(const response *a);
/* The client reads too slowly: cancels the stream; what follows what is unsent already is an error event, or, in a whole response, the
 * connection's end. Nobody may use a or its connection afterwards. */
void response_cut(response *a, const char *reason);
/* Sends nothing more: cancels the stream if it still runs, frees. The connection has no response then. */
void response_close(response *a);
/* The server is shutting down: cancels the stream, and says so to the client. */
void response_abort(response *a);

/* ---- answer_send.c: what goes out ---- */

/* Ends the response with an error: a status when nothing was sent yet, else an event. */
void response_fail(response *a, const api_error *e);
/* The same: a status without a parameter. */
void response_fail_with(response *a, int status, const char *message);
/* Empties the loop's scratch buffer and writes into it. */
json_out response_begin_json(const response *a);
/* Sends a stream's head and the first chunk of each choice. False: a is gone; and so for the next two. */
bool response_send_head(response *a);
/* Sends choice i's chunk where there is room, else it stays held. */
bool response_send_held(response *a, int32_t i);
/* Sends what o wrote, room or not. */
bool response_send_piece(response *a, const json_out *o);
/* Sends choice i's chunk when the queue is drained or its next event comes. */
void response_hold(response *a, int32_t i);
/* DONE came: sends what is left, now or as the client reads. a may be gone. */
void response_finish(response *a);
/* delta bytes more or fewer wait in its choices and prompts. */
void response_count(response *a, int64_t delta);

/* ---- parts that the formats share ---- */

/* "id":..,"object":..,"created":..,"model":.. */
void response_write_head(const response *a, const char *object, json_out *o);
/* "finish_reason":..,"stop_reason":.. and, of a result of beam search, "beam_score":.. */
void response_write_finish(const response_choice *c, json_out *o);
/* The generated ids when they are wanted, else null. */
void response_write_token_ids(const response *a, const response_choice *c, json_out *o);
void response_write_prompt_ids(const response *a, const response_choice *c, json_out *o);
/* The text, behind the echo where that was not sent yet. */
void response_write_text(const response *a, const response_choice *c, json_out *o);
/* The prompt of c. */
response_prompt *response_prompt_of(const response *a, const response_choice *c);
/* {"prompt_tokens":..,"total_tokens":..,"completion_tokens":..,"prompt_tokens_details":{"cached_tokens":..}}, at DONE */
void response_write_usage(const response *a, json_out *o);
/* ---- response_logprobs.c ---- */
/* Takes those of a token in. */
quire_err response_take_logprobs(const response *a, response_choice *c, const quire_event *ev);
/* Takes those of the prompt in, at the first START of its choices. */
quire_err response_take_prompt_logprobs(const response *a, response_prompt *p, const quire_event *ev);
/* Bytes that they take. */
size_t response_logprobs_bytes(const response_logprobs *l);
/* Forgets them. */
void response_clear_logprobs(response_choice *c);
/* The response was taken back: offsets go on behind the tokens that stand. */
void response_rollback_logprobs(const response *a, response_choice *c, const int32_t *tokens, int32_t n);
void response_deinit_logprobs(response_logprobs *l);
/* "logprobs":{..} or null */
void response_write_logprobs(const response *a, const response_choice *c, json_out *o);
/* "prompt_logprobs":[null,..] or null */
void response_write_prompt_logprobs(const response *a, const response_choice *c, json_out *o);
/* ,"explain":{"choices":[..]}: of the one choice, or, with NULL, of all that are shown; nothing where it was not asked for
 * (answer_explain.c) */
void response_write_explain(const response *a, const response_choice *c, json_out *o);
/* ,"usage":{..} when it is wanted in every chunk, and ,"system_fingerprint":.. in a choice's last one when no usage chunk follows,
 * and there ,"explain":{..} where it was asked for */
void response_write_chunk_tail(const response *a, const response_choice *c, json_out *o);
/* ,"service_tier":null,"system_fingerprint":..,"usage":{..}: the end of a whole response */
void response_write_tail(const response *a, json_out *o);

#endif
