/* The answer to one generation request, from its submission to its last byte: events of the queue in, a JSON object or server-sent events out.
 *
 * Whole answers are collected and sent at DONE. Streams send their head at the first START, so that a request that fails before it gets a real
 * status. A chunk is held back until the queue is drained or the next event of its choice comes, so that the last text and the finish reason
 * travel together. Owner: the loop's thread; it hangs on its connection (conn.answer) and goes with it. */
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server/conn.h"
#include "server/json_out.h"

/* Log-probabilities of tokens, written as they come: lists of JSON values without their brackets. */
typedef struct answer_logprobs {
    strbuf tokens, values, tops, offsets; /* completions */
    strbuf content;                       /* chat: one object a token */
    int64_t n_chars, n_prompt_chars;      /* of the tokens' texts so far; of these, the prompt's */
} answer_logprobs;

typedef struct answer_choice {
    answer_logprobs logprobs;
    strbuf prompt_logprobs;      /* one value a token of the prompt but the first */
    strbuf text;                 /* whole answers: all of it; streams: the chunk held back */
    strbuf stop_string;
    int32_t *tokens, *prompt;    /* only when ids are wanted */
    size_t n_tokens, cap_tokens, n_prompt;
    int32_t prompt_tokens, completion_tokens;
    double sum_logprob;          /* known from its END on */
    double beam_score;           /* the same; has_score: there is one */
    bool has_score;
    int32_t stop_token;          /* -1: none */
    const quire_explain *explain; /* the stream's, from its END on, where it was asked for */
    struct stream_order *order;  /* a rollback or steer that waits for its event, or NULL */
    quire_finish finish;         /* NONE until its END */
    bool held;                   /* a chunk is held back */
    bool prompt_sent;
} answer_choice;

typedef struct answer answer;

/* How an endpoint writes its answers. usage and system_fingerprint are written by the functions below. */
typedef struct answer_format {
    const char *id_prefix;
    bool skips_empty; /* a chunk without text is not worth sending */
    void (*whole)(const answer *a, json_out *o);
    /* The first chunk of a choice; NULL: none. Those of all choices go out together, when the first one starts. */
    void (*first)(const answer *a, int32_t choice, json_out *o);
    /* The chunk held back; with choice.finish set, the last of its choice. */
    void (*chunk)(const answer *a, int32_t choice, json_out *o);
    const char *chunk_object; /* "object" in chunks */
} answer_format;

extern const answer_format completions_format, chat_format;

struct answer {
    conn *conn;
    quire_stream *stream;
    const quire_request_info *info;
    const answer_format *format;
    answer_choice *choices;
    int64_t created_s;
    int32_t prompt_tokens, completion_tokens, cached_tokens; /* of all choices, at DONE */
    bool started;                                            /* the stream's head is sent */
    int32_t first_started;                                   /* the choice whose START came first */
    int32_t n_choices;
    int32_t *shown, n_shown;                  /* the choices of a whole answer, in order: the best of each prompt; NULL before DONE */
    bool listed;                              /* in loop.unsent */
    answer *next_unsent;
    char id[40];
};

/* Parses and submits the body of c's request. Afterwards c is either answered with an error or has its answer. */
void answer_start(conn *c, quire_endpoint endpoint);
/* Submits a request whose body was read; the rest as above. Takes r. */
void answer_start_request(conn *c, quire_request *r);
/* One event of the loop's queue. */
void answer_event(const quire_event *ev);
/* The queue is drained: sends what was held back. */
void answer_flush_unsent(loop *l);
/* Sends nothing more: cancels the stream if it still runs, frees. The connection has no answer then. */
void answer_close(answer *a);
/* The server is shutting down: cancels the stream, and says so to the client. */
void answer_abort(answer *a);

/* ---- parts that the formats share ---- */

/* "id":..,"object":..,"created":..,"model":.. */
void answer_write_head(const answer *a, const char *object, json_out *o);
/* "finish_reason":..,"stop_reason":.. and, of a result of beam search, "beam_score":.. */
void answer_write_finish(const answer_choice *c, json_out *o);
/* The generated ids when they are wanted, else null. */
void answer_write_token_ids(const answer *a, const answer_choice *c, json_out *o);
void answer_write_prompt_ids(const answer *a, const answer_choice *c, json_out *o);
/* {"prompt_tokens":..,"total_tokens":..,"completion_tokens":..,"prompt_tokens_details":{"cached_tokens":..}}, at DONE */
void answer_write_usage(const answer *a, json_out *o);
/* ---- answer_logprobs.c ---- */
/* Takes those of an event in: of a token or, at the START, of the prompt. */
quire_err answer_take_logprobs(const answer *a, answer_choice *c, const quire_event *ev);
/* Forgets those of the answer's tokens. */
void answer_clear_logprobs(answer_choice *c);
/* The answer was taken back: offsets go on behind the tokens that stand. */
void answer_rollback_logprobs(const answer *a, answer_choice *c, const int32_t *tokens, int32_t n);
void answer_deinit_logprobs(answer_choice *c);
/* "logprobs":{..} or null */
void answer_write_logprobs(const answer *a, const answer_choice *c, json_out *o);
/* "prompt_logprobs":[null,..] or null */
void answer_write_prompt_logprobs(const answer *a, const answer_choice *c, json_out *o);
/* ,"explain":{"choices":[..]}: of the one choice, or, with NULL, of all that are shown; nothing where it was not asked for (answer_explain.c) */
void answer_write_explain(const answer *a, const answer_choice *c, json_out *o);
/* ,"usage":{..} when it is wanted in every chunk, and ,"system_fingerprint":.. in a choice's last one when no usage chunk follows,
 * and there ,"explain":{..} where it was asked for */
void answer_write_chunk_tail(const answer *a, const answer_choice *c, json_out *o);
/* ,"service_tier":null,"system_fingerprint":..,"usage":{..}: the end of a whole answer */
void answer_write_tail(const answer *a, json_out *o);

#endif
