/* The response to one generation request, from its submission to its last byte: events of
 * the queue in, a JSON object or server-sent events out.
 *
 * Whole responses are collected until DONE; a long one is then written choice by choice,
 * as the client reads. Streams send their head at the first START, so that a request that
 * fails before that gets a proper status. A chunk is withheld until the queue is drained
 * or the next event of its choice comes, so that the last text and the finish reason are
 * sent together. While the connection has server_options.max_output_bytes unsent, nothing
 * more is written: chunks are withheld, and grow, until the client has read. Owner: the
 * loop's thread. Its connection (conn.pending_of) owns it. */
#ifndef SERVER_RESPONSE_H
#define SERVER_RESPONSE_H

#include "server/answer_parts.h"
#include "server/conn.h"
#include "server/loop.h"
#include "server/loop_order.h"
#include "json/json_out.h"

/* A token of which it is not known yet whether it is listed: in completions its text may
 * begin a stop string, in Responses it may be of a mark. */
typedef struct token_waiting {
    size_t n_text;           /* bytes of its text */
    int32_t id;              /* id that is shown instead of its text; -1: its text is shown */
    size_t n_values, n_tops; /* lengths of these lists after its numbers */
} token_waiting;

/* Log-probabilities of tokens, written as they arrive: lists of JSON values without their
 * brackets.
 *
 * The tokens of a completion are the pieces of its text: a token is listed once its text
 * is shown, and the last ones are cut where a stop string cuts the text. Numbers of
 * waiting tokens are at the end of `values` and `tops`.
 *
 * In Responses with parts a token waits until parts tell what its text is: `values` has
 * the numbers of waiting tokens alone, and `content` gets them once they are text of a
 * message. */
typedef struct response_logprobs {
    strbuf tokens, values, tops, offsets; /* completions; values: Responses too */
    size_t n_values, n_tops;              /* bytes of values and tops for the listed tokens */
    token_waiting *waiting;               /* [first_waiting, n_waiting) */
    size_t first_waiting, n_waiting, cap_waiting;
    /* the shown part of the waiting tokens' text; Responses: the end of the shown text,
     * of which no part has come yet */
    strbuf shown;
    /* tokens that no longer wait: those of the response's text up to byte `base` */
    size_t n_settled;
    size_t base, n_shown; /* n_shown: bytes of that text that are shown */
    strbuf content;       /* chat and Responses: one object a token */
    /* characters of the listed tokens' texts so far; those of the prompt */
    int64_t n_chars, n_prompt_chars;
} response_logprobs;

/* The parts of a prompt that its choices contain: computed once, at the first START, and
 * written with each of them. */
typedef struct response_prompt {
    bool taken, has_logprobs;
    response_logprobs logprobs; /* of the echo */
    strbuf text;                /* the echo, or a document */
    strbuf rendered;            /* the template's output, if requested */
    strbuf prompt_logprobs;     /* one value for each token except the first */
    int32_t *ids;               /* only if ids were requested */
    size_t n_ids;
} response_prompt;

/* Tokens of the request's prediction that were drafted: accepted into the answer, and
 * rejected. */
typedef struct response_prediction {
    int32_t n_accepted, n_rejected;
} response_prediction;

typedef struct response_choice {
    response_logprobs logprobs;
    /* the whole text; in a stream the withheld chunk; in a response with parts the
     * content */
    strbuf text;
    answer_parts parts;
    strbuf stop_string;
    int32_t *tokens; /* only if ids were requested */
    size_t n_tokens, cap_tokens;
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    response_prediction prediction;
    double sum_logprob; /* set at its END */
    double beam_score;  /* set at its END; has_score: there is one */
    bool has_score;
    int32_t stop_token;           /* -1: none */
    const quire_explain *explain; /* the stream's, set at its END, if requested */
    loop_order *order;            /* a rollback or steer waiting for its event, or NULL */
    quire_finish finish;          /* NONE until its END */
    bool held;                    /* a chunk is withheld */
    bool has_begun;               /* a chunk with tokens was sent */
    int32_t n_withheld;           /* tokens since the last chunk */
    bool prompt_sent;             /* its prompt was sent already */
    bool progress_held;           /* progress of its prompt is still to be sent */
} response_choice;

typedef struct response response;

/* How an endpoint shows log-probabilities, which are listed in response_logprobs as they
 * come. */
typedef struct logprob_writer {
    /* Lists the prompt's token i, of an echo. p: its numbers, width of them; NULL: it has
     * none. NULL: not shown. */
    quire_err (*prompt)(const response *a, response_prompt *to, const quire_event *ev, int32_t i,
                        const quire_logprob *p);
    /* Lists the token of a DELTA. */
    quire_err (*token)(const response *a, response_choice *c, const quire_event *ev);
    /* The response was rolled back: drops waiting data of the dropped tokens; offsets
     * continue after the remaining ones. NULL: nothing waits. */
    quire_err (*roll_back)(response_choice *c, const quire_event *ev);
    /* No more text will come: lists the waiting tokens as far as shown. NULL: what still
     * waits is not listed. */
    quire_err (*end)(response_choice *c);
    /* Writes the members of "logprobs": the prompt's lists, then the choice's. */
    void (*write)(const response_logprobs *prompt, const response_logprobs *l, json_out *o);
    /* `prompt` is called for every request with log-probabilities, which then has no
     * "prompt_logprobs" */
    bool lists_prompts;
} logprob_writer;

/* Stage of a response: it waits in the background, or has its first token there; its last
 * event came, but its end is not sent; or it failed in the background. */
typedef enum response_stage {
    RESPONSE_QUEUED,
    RESPONSE_BEGUN,
    RESPONSE_COMPLETE,
    RESPONSE_FAILED
} response_stage;

#define RESPONSE_ANSWER_ID_BYTES 128

/* How an endpoint writes its responses; each is one file that uses the shared functions
 * below. */
typedef struct response_writer {
    /* prefix of ids, before the number; "object" of whole responses and of chunks, if
     * any. chunk_object NULL: its streams cannot be rolled back */
    const char *id_prefix, *object, *chunk_object;
    const char *stream_type; /* media type of streams; NULL: server-sent events */
    bool is_at_once;         /* a whole response is never written choice by choice, whatever its size */
    bool skips_empty;        /* a chunk without text is not sent */
    /* even short bodies are parsed on a text thread: they continue stored
     * conversations */
    bool parses_apart;
    bool is_linear;     /* its streams are not forked, rolled back or steered */
    bool is_cumulative; /* each piece of its streams has all of the text and the lists so far */
    /* bytes of the writer's own state in a response (response.state, zeroed); and how its
     * contents are freed (NULL: it owns nothing) */
    size_t state_bytes;
    void (*deinit)(void *state);
    /* Before the request is submitted: prepares the state. An error ends the response.
     * NULL: nothing to do. */
    quire_err (*open)(response *a, quire_error *err);
    /* Writes the id by which a later conversation names an answer without calls
     * (quire_stream_recall), 0-terminated; false: it has none. NULL: none has. */
    bool (*answer_id)(const response *a, const response_choice *c, char out[RESPONSE_ANSWER_ID_BYTES]);
    /* Called with each DELTA; may be NULL. */
    void (*note)(response *a, const quire_event *ev);
    /* Called when the response reaches a stage, for writers that store it; why: the
     * reason of a failure. NULL: nothing is stored. */
    void (*keep)(response *a, response_stage stage, const api_error *why);
    /* Write a whole response: everything before its choices, the choice shown at index i,
     * and everything after them. */
    void (*begin)(const response *a, json_out *o);
    void (*choice)(const response *a, int32_t i, json_out *o);
    void (*end)(const response *a, json_out *o);
    /* Server-sent events: the first one of a choice (NULL: none; those of all choices are
     * sent together, when the first one starts); the withheld chunk (with choice.finish
     * set, the last of its choice); the end of a stream; and the end of one that
     * fails. */
    void (*first)(const response *a, int32_t choice, json_out *o);
    void (*chunk)(const response *a, int32_t choice, json_out *o);
    void (*last)(const response *a, json_out *o);
    void (*error)(const response *a, const api_error *e, json_out *o);
    /* A ping of a silent stream; NULL: an SSE comment, or nothing in streams of another
     * type. */
    void (*ping)(const response *a, json_out *o);
    /* What a stream sends while the prompt of a choice is processed, if the request wants
     * it (response_write_progress). NULL: nothing. */
    void (*progress)(const response *a, int32_t choice, json_out *o);
    error_writer error_body; /* writer of errors before the response; NULL: OpenAI's */
    /* Writes header lines with what the body does not say; returns their length. NULL:
     * none. */
    int (*headers)(const quire_info *engine, char *out, size_t size);
    logprob_writer logprobs;
    /* Stores the row of an EMBEDDING in c->text. NULL: the endpoint has no rows. */
    quire_err (*row)(const response *a, response_choice *c, const quire_event *ev);
    /* Refuses what this model cannot do for a request. NULL: nothing is refused. */
    quire_err (*check)(const quire_row_info *rows, const quire_request_more *more, quire_error *err);
} response_writer;

extern const response_writer completions_writer, chat_writer, messages_writer, ollama_writer,
    responses_writer, llama_writer, sglang_writer;
extern const response_writer ollama_embed_writer, ollama_embeddings_writer;
extern const response_writer embeddings_writer, pooling_writer, embedding_writer, score_writer, rerank_writer,
    reranking_writer, sglang_rows_writer;
extern const response_writer tokenize_writer, tokenize_content_writer, detokenize_writer,
    apply_template_writer, completions_render_writer, chat_render_writer;
/* response_writer.row for endpoints that keep a row as JSON text. */
quire_err embeddings_take_row(const response *a, response_choice *c, const quire_event *ev);
/* The writer of an endpoint; NULL: the server has no route for it. */
const response_writer *response_writer_of(quire_endpoint endpoint);

struct response {
    conn *conn; /* NULL: it is generated in the background */
    loop *loop;
    loop_model *model; /* the model, on which it has a hold */
    quire_stream *stream;
    const quire_request_info *info;
    const quire_responses_info *responses; /* NULL: not a request of /v1/responses */
    const quire_request_more *more;
    const response_writer *writer;
    void *state; /* state of the writer */
    response_choice *choices;
    response_prompt *prompts; /* [n_choices / n_samples] */
    int32_t n_samples;        /* choices of one prompt */
    int64_t created_s;
    char adapter_name[256];                                  /* name of its adapter; "": none */
    size_t n_bytes;                                          /* unsent bytes of its choices and prompts */
    int32_t prompt_tokens, completion_tokens, cached_tokens; /* sums over all choices, at DONE */
    response_prediction prediction;                          /* likewise */
    bool opened;                                             /* the stream's head is sent */
    bool started;                                            /* the first chunks are sent */
    int64_t sent_us;                                         /* when it last sent something, or began */
    int32_t n_choices;
    bool is_done;       /* DONE came: the rest is sent as the client reads */
    bool is_long;       /* a whole response that is sent in pieces */
    int32_t next_shown; /* index of the next one to write */
    /* the choices of a whole response: the best of each prompt; NULL before DONE */
    int32_t *shown, n_shown;
    bool listed; /* in loop.unsent */
    response *next_unsent;
    response *next_background; /* in loop.background */
    request_record record;     /* record of a response in the background */
    char id[40];
    char tenant[QUIRE_TENANT_BYTES + 1]; /* "": no key was needed */
};

/* Submits a request, which it takes over. Afterwards c has either sent an error or has
 * the response. */
void response_start(conn *c, quire_request *r);
/* Handles one event of the loop's queue. */
void response_event(const quire_event *ev);
/* Sends the withheld chunks, once the queue is drained. */
void response_flush_unsent(loop *l);
/* Sends a ping on each stream of the loop that sent nothing for server_options.ping_us
 * and has nothing unsent. */
void response_ping_all(loop *l);
/* The engine that generates a response. */
static inline quire_engine *response_engine(const response *a) {
    return a->model->m->engine;
}
/* The name of that model, for the `model` fields of responses. */
static inline const char *response_model(const response *a) {
    return a->adapter_name[0] != '\0' ? a->adapter_name : a->model->m->name;
}
/* The generation that c has in progress, or NULL. */
response *response_of(const conn *c);
/* Cancels the stream of a client that reads too slowly. The unsent output is followed by
 * an error event or, in a whole response, by the end of the connection. Neither a nor its
 * connection may be used afterwards. */
void response_cut(response *a, const char *reason);

/* ---- response_send.c: output, and its end ---- */

/* Adds the token counts and finish reasons to a record. */
void response_count_tokens(const response *a, request_record *r);
/* Cancels the stream if it still runs, sends nothing more, and frees a. The connection
 * then has no response. */
void response_close(response *a);
/* Ends the response with an error: a status if nothing was sent yet, otherwise an
 * event. */
void response_fail(response *a, api_error e);
/* The same: a status without a parameter. */
void response_fail_with(response *a, int status, const char *message);
/* Sends a stream's head and the first chunk of each choice. False: a was freed; the same
 * holds for the next five. */
bool response_send_head(response *a);
/* Sends a ping on a stream; its head before it, if that is still unsent. */
void response_ping(response *a);
/* Sends how much of choice i's prompt is processed: now if there is room, otherwise once
 * there is, or before the choice's first chunk, with the value known then. */
bool response_send_progress(response *a, int32_t i);
/* Sends choice i's chunk if there is room, otherwise keeps it. */
bool response_send_held(response *a, int32_t i);
/* Sends choice i's chunk, even without room. */
bool response_send_now(response *a, int32_t i);
/* Sends what was written to o, even without room. */
bool response_send_piece(response *a, const json_out *o);
/* Withholds choice i's chunk until the queue is drained or its next event comes. */
void response_hold(response *a, int32_t i);
/* Called after DONE: sends the rest, now or as the client reads. May free a. */
void response_finish(response *a);
/* Sends more of a response whose client has read. May free it. */
void response_drained(conn *c);
/* Adds delta to the unsent bytes of its choices and prompts. */
void response_count(response *a, int64_t delta);

/* ---- responses in the background: they go on without a connection until their last
 * event, a cancellation or the end of the server ---- */

/* Answers the submitted request of a at once, with what its writer's `begin`, `choice`
 * and `end` write when there was no event yet, and detaches a from its connection. */
void response_detach(response *a);
/* Ends a background response, complete or failed (why), logs and counts it, and frees
 * it. */
void response_end_detached(response *a, const api_error *why);
/* Cancels the responses in the background of l for which `is_wanted` is false. */
void response_drop_detached(loop *l, bool (*is_wanted)(const response *a));
/* Fails all responses in the background of l: the server shuts down. */
void response_fail_detached(loop *l);

/* ---- parts that the formats share ---- */

/* The response's id: the client's name for it, or the server's. */
void response_shown_id(const response *a, char out[RESPONSE_ANSWER_ID_BYTES]);
void response_write_id(const response *a, json_out *o);
/* "id":..,"object":..,"created":..,"model":.. */
void response_write_head(const response *a, const char *object, json_out *o);
/* Shared by OpenAI's dialects. They write the opening brace of a response, and with it
 * "choices":[; a chunk also has "data: " before it. */
void response_write_begin(const response *a, json_out *o);
void response_begin_chunk(const response *a, json_out *o);
/* Write the end of a stream: a chunk with the usage of all choices, if requested, and
 * [DONE]; or an error and [DONE]. */
void response_write_last(const response *a, json_out *o);
void response_write_error(const response *a, const api_error *e, json_out *o);
/* The runs of c's answer, or of its withheld chunk, in order (answer_parts.h). Where it is not
 * split into parts, its text is one, *whole. Returns their number. */
size_t response_runs(const response *a, const response_choice *c, answer_run *whole, const answer_run **runs);
/* The text of a run of reasoning or content. */
str response_run_text(const response_choice *c, const answer_run *run);
/* The place of c's parts (answer_parts.h). */
answer_place response_place(const response *a, const response_choice *c);
/* "finish_reason":..,"stop_reason":.. and, of a result of beam search, "beam_score":.. */
void response_write_finish(const response *a, const response_choice *c, json_out *o);
/* Writes the generated ids if requested, otherwise null. */
void response_write_token_ids(const response *a, const response_choice *c, json_out *o);
void response_write_prompt_ids(const response *a, const response_choice *c, json_out *o);
/* The prompt's echo if it was not sent yet, otherwise empty. */
str response_echo(const response *a, const response_choice *c);
/* Writes "prompt_text":.., the template's output, if requested, otherwise null. */
void response_write_prompt_text(const response *a, const response_choice *c, json_out *o);
/* The echo and the text. */
void response_write_text(const response *a, const response_choice *c, json_out *o);
/* "prompt_progress":{..}: how much of a choice's prompt is processed. */
void response_write_progress(const response *a, int32_t choice, json_out *o);
/* The prompt of c. */
response_prompt *response_prompt_of(const response *a, const response_choice *c);

/* ---- log-probabilities ---- */

/* Adds those of a DELTA's token, or of the prompt, at the first START of its choices. */
quire_err response_take_logprobs(const response *a, response_choice *c, const quire_event *ev);
quire_err response_take_prompt_logprobs(const response *a, response_prompt *p, const quire_event *ev);
quire_err response_rollback_logprobs(const response *a, response_choice *c, const quire_event *ev);
quire_err response_end_logprobs(const response *a, response_choice *c);
/* Adds the log-probabilities of a DELTA's token to a list, an object a token; nothing where it has
 * none. */
quire_err chat_list_numbers(const response *a, strbuf *list, const quire_event *ev);
void chat_write_logprobs(const response_logprobs *p, const response_logprobs *l, json_out *o);
/* The bytes of memory that they take. */
size_t response_logprobs_bytes(const response_logprobs *l);
/* Clears the written log-probabilities. */
void response_clear_logprobs(response_choice *c);
void response_deinit_logprobs(response_logprobs *l);
/* "logprobs":{..} or null */
void response_write_logprobs(const response *a, const response_choice *c, json_out *o);
/* "prompt_logprobs":[null,..] or null */
void response_write_prompt_logprobs(const response *a, const response_choice *c, json_out *o);
/* The number that the APIs show; -9999 for minus infinity. */
double response_logprob(float logprob);
/* A token's bytes, which may be part of a character; and its text, "" if it is only a
 * part. */
str response_token_bytes(const response *a, int32_t token);
str response_token_text(const response *a, int32_t token);
void response_write_token_text(const response *a, int32_t token, json_out *o);
/* The form in which a token's id stands for its text: token_id:7. */
#define RESPONSE_TOKEN_NAME_BYTES 24
str response_token_name(int32_t token, char out[RESPONSE_TOKEN_NAME_BYTES]);
/* Writes the member `name`: the prompt's list and then the first n bytes of another. */
void response_write_lists(const char *name, const strbuf *of_prompt, const strbuf *list, size_t n,
                          json_out *o);

/* "usage":{..} if requested in every chunk, and "system_fingerprint":.. in a choice's
 * last one when no usage chunk follows, and there "explain":{..} if requested; the
 * end of the chunk */
void response_end_chunk(const response *a, const response_choice *c, json_out *o);
/* "explain":{"choices":[..]}: of the one choice, or, with NULL, of all that are shown;
 * nothing unless requested */
void response_write_explain(const response *a, const response_choice *c, json_out *o);
/* "usage":{..} of requests that give rows: of their inputs. */
void response_write_input_usage(const response *a, json_out *o);
/* "service_tier":null,"system_fingerprint":..,"usage":{..}: ends a whole response */
void response_write_tail(const response *a, json_out *o);

#endif
