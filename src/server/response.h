/* The response to one generation request, from its submission to its last byte: reads
 * events of the queue and writes a JSON object or server-sent events.
 *
 * A whole response is collected until DONE; a long one is then written choice by choice,
 * as the client reads. A stream sends its head at the first START, so a request that
 * fails before that gets a proper status. A chunk is withheld until the queue is drained
 * or its choice's next event comes, so that the last text and the finish reason are sent
 * together. While the connection has server_options.max_output_bytes unsent, chunks are
 * withheld, and grow, until the client has read. Owner: the loop's thread. The connection
 * (conn.pending_of) owns the response. */
#ifndef SERVER_RESPONSE_H
#define SERVER_RESPONSE_H

#include "server/answer_parts.h"
#include "server/conn.h"
#include "server/loop.h"
#include "server/loop_order.h"
#include "json/json_out.h"

/* A token that may yet be left out of the list: in completions its text may begin a stop
 * string, in Responses it may belong to a mark. */
typedef struct token_waiting {
    size_t n_text;           /* bytes of the token's text */
    int32_t id;              /* id shown in place of its text; -1: its text is shown */
    size_t n_values, n_tops; /* bytes of `values` and `tops` up to and with its numbers */
} token_waiting;

/* Log-probabilities of tokens, written as they arrive to lists of JSON values without
 * brackets.
 *
 * The tokens of a completion are the pieces of its text: a token is listed once its text
 * is shown, and a stop string cuts the last ones. The numbers of waiting tokens are at
 * the end of `values` and `tops`.
 *
 * In Responses with parts, a token waits until parts tell what its text is: `values` has
 * only the numbers of waiting tokens, and `content` gets them once they are text of a
 * message. */
typedef struct response_logprobs {
    strbuf tokens, values, tops, offsets; /* used by completions; `values` also by Responses */
    size_t n_values, n_tops;              /* bytes of values and tops for the listed tokens */
    token_waiting *waiting;               /* entries [first_waiting, n_waiting) wait */
    size_t first_waiting, n_waiting, cap_waiting;
    /* completions: the shown part of the waiting tokens' text; Responses: the end of the
     * shown text, of which no part has come yet */
    strbuf shown;
    /* tokens that no longer wait: their number, of completions alone; their text ends at
     * byte `base` of the response's */
    size_t n_settled;
    size_t base, n_shown; /* n_shown: bytes of the response's text that are shown */
    strbuf content;       /* used by chat and Responses: one object for each token */
    /* characters in the texts of the listed tokens, and of the prompt's */
    int64_t n_chars, n_prompt_chars;
} response_logprobs;

/* The parts of a prompt that its choices show: computed once, at the first START, and
 * written with each choice. */
typedef struct response_prompt {
    bool taken, has_logprobs;
    response_logprobs logprobs; /* log-probabilities of the echo */
    strbuf text;                /* the echo or, for a reranking, the document */
    strbuf rendered;            /* the template's output, if requested */
    strbuf prompt_logprobs;     /* one JSON value for each token except the first */
    int32_t *ids;               /* the prompt's ids; NULL: not requested */
    size_t n_ids;
} response_prompt;

/* Drafted tokens of the request's prediction: how many were accepted and rejected. */
typedef struct response_prediction {
    int32_t n_accepted, n_rejected;
} response_prediction;

typedef struct response_choice {
    response_logprobs logprobs;
    /* the whole text; in a stream, the withheld chunk; with parts, the content */
    strbuf text;
    answer_parts parts;
    strbuf stop_string;
    int32_t *tokens; /* the generated ids; NULL: not requested */
    size_t n_tokens, cap_tokens;
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    response_prediction prediction;
    double sum_logprob; /* sum of the tokens' log-probabilities, set at the choice's END event */
    double beam_score;  /* set at the choice's END event, valid if has_score */
    bool has_score;
    int32_t stop_token; /* -1: none */
    /* owned by the stream, set at the choice's END event; NULL: not requested */
    const quire_explain *explain;
    loop_order *order;   /* a rollback or steer that waits for its event; NULL: none */
    quire_finish finish; /* QUIRE_FINISH_NONE until the choice's END event */
    bool held;           /* a chunk is withheld */
    bool has_begun;      /* a chunk with tokens was sent */
    int32_t n_withheld;  /* number of tokens since the last chunk */
    bool prompt_sent;    /* what is shown of its prompt was sent */
    bool progress_held;  /* the progress of its prompt is still to be sent */
} response_choice;

typedef struct response response;

/* How an endpoint shows log-probabilities. They are collected in response_logprobs. */
typedef struct logprob_writer {
    /* Lists token i of an echoed prompt. p: its numbers, `width` of them; NULL: it has
     * none. If this member is NULL, the endpoint does not show them. */
    quire_err (*prompt)(const response *a, response_prompt *to, const quire_event *ev, int32_t i,
                        const quire_logprob *p);
    /* Lists the token of a DELTA event. */
    quire_err (*token)(const response *a, response_choice *c, const quire_event *ev);
    /* Drops waiting data of tokens that a rollback removed; offsets continue after the
     * remaining ones. NULL: nothing ever waits. */
    quire_err (*roll_back)(response_choice *c, const quire_event *ev);
    /* Lists the waiting tokens as far as they are shown, since no more text will come.
     * NULL: they are not listed. */
    quire_err (*end)(response_choice *c);
    /* Writes the members of "logprobs": the prompt's lists, then the choice's. */
    void (*write)(const response_logprobs *prompt, const response_logprobs *l, json_out *o);
    /* `prompt` is called for every request with log-probabilities, even without echo;
     * such a request then has no "prompt_logprobs" */
    bool lists_prompts;
} logprob_writer;

/* Stages of a response that is stored: it waits in the background; it has its first token
 * there; its last event came, but its end is not sent; or it failed in the background. */
typedef enum response_stage {
    RESPONSE_QUEUED,
    RESPONSE_BEGUN,
    RESPONSE_COMPLETE,
    RESPONSE_FAILED
} response_stage;

#define RESPONSE_ANSWER_ID_BYTES 128

/* How an endpoint writes its responses. Each writer is in one file. */
typedef struct response_writer {
    /* id_prefix: of ids, before the number; object, chunk_object: values of "object" in
     * whole responses and in chunks. chunk_object NULL: its streams cannot be rolled
     * back */
    const char *id_prefix, *object, *chunk_object;
    const char *stream_type; /* media type of streams; NULL: server-sent events */
    bool is_at_once;         /* the whole response is written at once, whatever its size */
    bool skips_empty;        /* a chunk without text is not sent */
    /* even short bodies are parsed on a text thread (they may continue a stored
     * response) */
    bool parses_apart;
    bool is_linear;     /* its streams cannot be forked, rolled back or steered */
    bool is_cumulative; /* each chunk of its streams repeats all text and lists so far */
    /* bytes of the writer's own state, which response.state points to, zeroed at first;
     * deinit frees its contents (NULL: it owns nothing) */
    size_t state_bytes;
    void (*deinit)(void *state);
    /* Prepares the state before submission. An error ends the response. May be NULL. */
    quire_err (*open)(response *a, quire_error *err);
    /* Writes the id by which a later conversation may name the answer of c, which has no
     * calls (quire_stream_recall), 0-terminated; false or NULL: none. */
    bool (*answer_id)(const response *a, const response_choice *c, char out[RESPONSE_ANSWER_ID_BYTES]);
    /* Called with each DELTA event; may be NULL. */
    void (*note)(response *a, const quire_event *ev);
    /* Called when the response reaches a stage, to store it; why: the reason of a
     * failure. NULL: responses are not stored. */
    void (*keep)(response *a, response_stage stage, const api_error *why);
    /* Write a whole response: all before its choices, the choice at index i of
     * response.shown, and all after them. */
    void (*begin)(const response *a, json_out *o);
    void (*choice)(const response *a, int32_t i, json_out *o);
    void (*end)(const response *a, json_out *o);
    /* Write pieces of a stream: a choice's first one (NULL: none; those of all choices
     * are sent together, when the first one starts); the withheld chunk, which is the
     * choice's last if choice.finish is set; the end of a stream, and of one that
     * fails. */
    void (*first)(const response *a, int32_t choice, json_out *o);
    void (*chunk)(const response *a, int32_t choice, json_out *o);
    void (*last)(const response *a, json_out *o);
    void (*error)(const response *a, const api_error *e, json_out *o);
    /* Writes a ping of a silent stream; NULL: an SSE comment, if streams are SSE. */
    void (*ping)(const response *a, json_out *o);
    /* Writes what a stream sends while the prompt of a choice is processed, if requested
     * (response_write_progress). NULL: nothing. */
    void (*progress)(const response *a, int32_t choice, json_out *o);
    error_writer error_body; /* writes errors that precede a response; NULL: in OpenAI's form */
    /* Writes header lines with facts that the body does not have, and returns their
     * length. NULL: there are none. */
    int (*headers)(const quire_info *engine, char *out, size_t size);
    logprob_writer logprobs;
    /* Stores the row of an EMBEDDING event in c->text. NULL: the endpoint has no rows. */
    quire_err (*row)(const response *a, response_choice *c, const quire_event *ev);
    /* Refuses a request that this model cannot serve. NULL: refuses none. */
    quire_err (*check)(const quire_row_info *rows, const quire_request_more *more, quire_error *err);
} response_writer;

extern const response_writer completions_writer, chat_writer, messages_writer, ollama_writer,
    responses_writer, llama_writer, sglang_writer;
extern const response_writer ollama_embed_writer, ollama_embeddings_writer;
extern const response_writer embeddings_writer, pooling_writer, embedding_writer, score_writer, rerank_writer,
    reranking_writer, sglang_rows_writer;
extern const response_writer tokenize_writer, tokenize_content_writer, detokenize_writer,
    apply_template_writer, completions_render_writer, chat_render_writer;
/* A response_writer.row for endpoints that keep a row as JSON text. */
quire_err embeddings_take_row(const response *a, response_choice *c, const quire_event *ev);
/* The writer of an endpoint; NULL: the server has no such route. */
const response_writer *response_writer_of(quire_endpoint endpoint);

struct response {
    conn *conn; /* NULL: the response is generated in the background */
    loop *loop;
    loop_model *model; /* the model, held by the response */
    quire_stream *stream;
    const quire_request_info *info;
    const quire_responses_info *responses; /* NULL: not a request of /v1/responses */
    const quire_request_more *more;
    const response_writer *writer;
    void *state; /* the writer's own state */
    response_choice *choices;
    response_prompt *prompts; /* [n_choices / n_samples] */
    int32_t n_samples;        /* number of choices for each prompt */
    int64_t created_s;
    char adapter_name[256];                                  /* name of the LoRA adapter; "": none */
    size_t n_bytes;                                          /* unsent bytes of choices and prompts */
    int32_t prompt_tokens, completion_tokens, cached_tokens; /* sums over all choices, at DONE */
    response_prediction prediction;                          /* sums over all choices, at DONE */
    bool opened;                                             /* the stream's head is sent */
    bool started;                                            /* the choices' first chunks were sent */
    int64_t sent_us;                                         /* time when it last sent something, or began */
    int32_t n_choices;
    bool is_done;       /* DONE has come; the rest is sent as the client reads */
    bool is_long;       /* the whole response is sent in pieces */
    int32_t next_shown; /* index in `shown` of the next choice to write */
    /* [n_shown] choices of a whole response: the best of each prompt; NULL before DONE */
    int32_t *shown, n_shown;
    bool listed; /* the response is in the list loop.unsent */
    response *next_unsent;
    response *next_background; /* next response in the list loop.background */
    request_record record;     /* log record of a response in the background */
    char id[40];
    char tenant[QUIRE_TENANT_BYTES + 1]; /* "": the request needed no key */
};

/* Submits r, which it takes over. c has then sent an error or has the response. */
void response_start(conn *c, quire_request *r);
/* Handles one event of the loop's queue. */
void response_event(const quire_event *ev);
/* Sends the withheld chunks of l's responses, once the queue is drained. */
void response_flush_unsent(loop *l);
/* Pings l's streams that sent nothing for server_options.ping_us and have nothing
 * unsent. */
void response_ping_all(loop *l);
/* The engine that generates the response. */
static inline quire_engine *response_engine(const response *a) {
    return a->model->m->engine;
}
/* The name in the `model` fields of responses: the adapter's, else the model's. */
static inline const char *response_model(const response *a) {
    return a->adapter_name[0] != '\0' ? a->adapter_name : a->model->m->name;
}
/* The response that c has in progress; NULL: none. */
response *response_of(const conn *c);
/* Cancels the generation of a client that reads too slowly. Unsent output is followed by
 * an error event or, in a whole response, by the end of the connection. a, and perhaps
 * its connection, are freed: use neither afterwards. */
void response_cut(response *a, const char *reason);

/* ---- response_send.c: output, and its end ---- */

/* Adds the response's token counts and finish reasons to a record. */
void response_count_tokens(const response *a, request_record *r);
/* Cancels the generation if it still runs and frees a, without sending more. The
 * connection then has no response. */
void response_close(response *a);
/* Ends the response with an error, a status if nothing was sent, else an event; frees it,
 * and may close the connection. */
void response_fail(response *a, api_error e);
/* As response_fail, with a status and message only. */
void response_fail_with(response *a, int status, const char *message);
/* Sends a stream's head and the first chunk of each choice. False: a was freed; so it is
 * with the functions below that return bool. */
bool response_send_head(response *a);
/* Sends a ping on a stream, after its head if that is still unsent. */
void response_ping(response *a);
/* Sends how much of choice i's prompt is processed: now if there is room, else once there
 * is, or before the choice's first chunk, with the value known then. */
bool response_send_progress(response *a, int32_t i);
/* Sends choice i's withheld chunk if there is room, otherwise keeps it. */
bool response_send_held(response *a, int32_t i);
/* Sends choice i's withheld chunk, even without room. */
bool response_send_now(response *a, int32_t i);
/* Sends the text in o, even without room. */
bool response_send_piece(response *a, const json_out *o);
/* Withholds choice i's chunk until the queue is drained or its next event comes. */
void response_hold(response *a, int32_t i);
/* Call after DONE: sends the rest, now or as the client reads. May free a. */
void response_finish(response *a);
/* Sends more of c's response once the client has read. May free the response. */
void response_drained(conn *c);
/* Adds delta, which may be negative, to the count of a's unsent bytes. */
void response_count(response *a, int64_t delta);

/* ---- background responses: without a connection, until their last event, a cancellation
 * or the end of the server ---- */

/* Answers a's request, which was submitted, at once: with what the writer's `begin`,
 * `choice` and `end` write before any event. Detaches a from its connection. */
void response_detach(response *a);
/* Ends, logs, counts and frees a background response. why: its failure; NULL:
 * complete. */
void response_end_detached(response *a, const api_error *why);
/* Cancels l's background responses for which `is_wanted` is false. */
void response_drop_detached(loop *l, bool (*is_wanted)(const response *a));
/* Fails all of l's background responses, because the server shuts down. */
void response_fail_detached(loop *l);

/* ---- parts that the formats share ---- */

/* The id of the response, 0-terminated: the client's, or else the server's. */
void response_shown_id(const response *a, char out[RESPONSE_ANSWER_ID_BYTES]);
/* Writes the response's id as a JSON string. */
void response_write_id(const response *a, json_out *o);
/* Writes "id":..,"object":..,"created":..,"model":.. */
void response_write_head(const response *a, const char *object, json_out *o);
/* Write the beginning of a whole response, and of a chunk ("data: " first), in OpenAI's
 * dialects: the opening brace, the head, and "choices":[. */
void response_write_begin(const response *a, json_out *o);
void response_begin_chunk(const response *a, json_out *o);
/* Write the end of a stream in OpenAI's dialects: a chunk with the usage of all choices,
 * if requested, and [DONE]; or an error and [DONE]. */
void response_write_last(const response *a, json_out *o);
void response_write_error(const response *a, const api_error *e, json_out *o);
/* The runs of c's answer or withheld chunk, in order (answer_parts.h). If it is not split
 * into parts, the only run is *whole. Returns their number. */
size_t response_runs(const response *a, const response_choice *c, answer_run *whole, const answer_run **runs);
/* The text of a run of reasoning or content. */
str response_run_text(const response_choice *c, const answer_run *run);
/* The answer_place of c's parts (answer_parts.h). */
answer_place response_place(const response *a, const response_choice *c);
/* Writes "finish_reason":..,"stop_reason":.. and, after beam search, "beam_score":.. */
void response_write_finish(const response *a, const response_choice *c, json_out *o);
/* Write the choice's generated ids, or its prompt's, if requested; otherwise null. */
void response_write_token_ids(const response *a, const response_choice *c, json_out *o);
void response_write_prompt_ids(const response *a, const response_choice *c, json_out *o);
/* The prompt's echo; empty if it was sent or not requested. */
str response_echo(const response *a, const response_choice *c);
/* Writes "prompt_text":..: the template's output if requested, otherwise null. */
void response_write_prompt_text(const response *a, const response_choice *c, json_out *o);
/* Writes the echo and the text as one string. */
void response_write_text(const response *a, const response_choice *c, json_out *o);
/* Writes "prompt_progress":{..}: how much of a choice's prompt is processed. */
void response_write_progress(const response *a, int32_t choice, json_out *o);
/* The prompt of c. */
response_prompt *response_prompt_of(const response *a, const response_choice *c);

/* ---- log-probabilities ---- */

/* Collect log-probabilities: of a DELTA's token; of a prompt, at the first START of its
 * choices. After a rollback; at the end of the text. */
quire_err response_take_logprobs(const response *a, response_choice *c, const quire_event *ev);
quire_err response_take_prompt_logprobs(const response *a, response_prompt *p, const quire_event *ev);
quire_err response_rollback_logprobs(const response *a, response_choice *c, const quire_event *ev);
quire_err response_end_logprobs(const response *a, response_choice *c);
/* Appends an object for a DELTA's token to *list; nothing if it has no
 * log-probabilities. */
quire_err chat_list_numbers(const response *a, strbuf *list, const quire_event *ev);
/* Writes the member "content" of "logprobs", as in chats: the prompt's list, then l's. */
void chat_write_logprobs(const response_logprobs *p, const response_logprobs *l, json_out *o);
/* Bytes of memory that the log-probabilities take. */
size_t response_logprobs_bytes(const response_logprobs *l);
/* Clears the log-probabilities of c that were written. */
void response_clear_logprobs(response_choice *c);
/* Frees the lists of l. */
void response_deinit_logprobs(response_logprobs *l);
/* Writes "logprobs":{..} or null. */
void response_write_logprobs(const response *a, const response_choice *c, json_out *o);
/* Writes "prompt_logprobs":[null,..] or null. */
void response_write_prompt_logprobs(const response *a, const response_choice *c, json_out *o);
/* The number that the APIs show for a log-probability: -9999 for minus infinity. */
double response_logprob(float logprob);
/* A token's bytes; its text, "" if it is only part of a character. */
str response_token_bytes(const response *a, int32_t token);
str response_token_text(const response *a, int32_t token);
void response_write_token_text(const response *a, int32_t token, json_out *o);
/* Writes bytes as an array of numbers. */
void response_write_bytes(str bytes, json_out *o);
/* Writes token_id:7, the form in which a token's id replaces its text. */
#define RESPONSE_TOKEN_NAME_BYTES 24
str response_token_name(int32_t token, char out[RESPONSE_TOKEN_NAME_BYTES]);
/* Writes the member `name`: an array of the prompt's list and the first n bytes of
 * list. */
void response_write_lists(const char *name, const strbuf *of_prompt, const strbuf *list, size_t n,
                          json_out *o);

/* Ends a chunk: writes "usage":{..} if requested in every chunk; in a choice's last chunk
 * also "system_fingerprint":.., unless a usage chunk follows, and "explain":{..} if
 * requested. */
void response_end_chunk(const response *a, const response_choice *c, json_out *o);
/* Writes "explain":{"choices":[..]} if requested: of c; NULL: of all choices shown. */
void response_write_explain(const response *a, const response_choice *c, json_out *o);
/* Writes "usage":{..} of a request for rows: of its inputs. */
void response_write_input_usage(const response *a, json_out *o);
/* Ends a whole response: writes
 * "service_tier":null,"system_fingerprint":..,"usage":{..}. */
void response_write_tail(const response *a, json_out *o);

#endif
