/* Executes programs on an OpenAI-compatible API, and speculates across calls: a gen that
 * is followed by constant text and another gen asks for more text than its own, and later
 * gens use that text as far as it agrees with the program (api_client.c). Greedy results
 * do not change, and there are never more calls.
 *
 * States without turns are sent as texts to /completions, states with turns as messages
 * to /chat/completions. A select is one call of /completions with all of its choices as
 * prompts, for which the API returns log-probabilities (echo). */
#ifndef CLI_API_EXECUTOR_H
#define CLI_API_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "program/program_state.h"
#include "quire.h"
#include "json/json.h"

/* ---- api_client.c: the client of an API ---- */

#define API_MAX_AT_ONCE 32 /* most requests in progress at once; others wait */

typedef struct api_client api_client;

typedef struct api_client_options {
    const char *url;     /* "https://api.example.com/v1", to which paths are appended */
    const char *key;     /* API key, sent as a bearer token; NULL: none */
    const char *ca_file; /* file of CA certificates; NULL: the system's */
} api_client_options;

/* A request to the API. From api_client_send to api_client_take the client owns its
 * members. */
typedef struct api_job {
    struct api_job *next;
    void *user;
    const char *path;  /* "/completions"; a constant */
    strbuf body;       /* JSON; empty: the request is a GET */
    strbuf response;   /* body of a response with status 200 */
    quire_error error; /* code QUIRE_OK: `response` is valid */
    int32_t n_sent;    /* number of times it was sent */
    bool is_dropped;
} api_job;

/* Opens a client; the options' texts are borrowed until it is closed. QUIRE_INVALID:
 * there is no address, it contains a password, or the key is invalid. */
quire_err api_client_open(const api_client_options *o, api_client **out, quire_error *err);
/* Cancels all jobs in progress and closes the client. */
void api_client_close(api_client *c);
/* Makes a job; the caller then writes its body. NULL: out of memory. */
api_job *api_job_new(const char *path, void *user);
void api_job_free(api_job *j);
/* Sends a job; the client owns it until it is taken or dropped. QUIRE_UNSUPPORTED: there
 * is no libcurl. QUIRE_NO_MEMORY. On failure the caller keeps it. */
quire_err api_client_send(api_client *c, api_job *j, quire_error *err);
/* Cancels and frees a job that was not taken, whether it was sent or not. */
void api_client_drop(api_client *c, api_job *j);
/* Takes the next job that has ended; the caller frees it. NULL: none has ended. */
api_job *api_client_take(api_client *c);
/* A descriptor that is readable when a job has ended; the client owns it. */
int api_client_fd(const api_client *c);
/* Waits until a job has ended, or timeout_us have passed; -1: no limit. */
void api_client_wait(api_client *c, int64_t timeout_us);

/* ---- the executor ---- */

typedef struct api_executor api_executor;

typedef struct api_executor_options {
    api_client_options client;
    const char *model; /* NULL: the program's model, else the first that the API lists */
    int32_t most_more; /* most tokens to request past a gen's end; 0: no speculation */
} api_executor_options;

/* What an executor's calls have cost, and what speculation has saved. */
typedef struct api_counts {
    int64_t n_calls, n_reused;                /* requests sent; gens answered without a request */
    int64_t prompt_tokens, completion_tokens; /* sums of the API's own counts */
    int64_t saved_prompt_tokens;              /* prompt tokens of the gens in n_reused */
    int64_t unused_tokens;                    /* tokens generated past the end of a gen that no gen used */
} api_counts;

extern const program_ops api_ops;

/* Opens an executor for programs_open with api_ops, which closes it. The options' texts
 * are borrowed until then. Errors of api_client_open; QUIRE_NO_MEMORY. */
quire_err api_executor_open(const api_executor_options *o, api_executor **out, quire_error *err);
/* The counts so far. */
api_counts api_executor_count(const api_executor *x);

/* ---- api_client.c: text past the end of a gen ---- */

/* A generated text, shared by states. */
typedef struct api_text {
    int32_t refs;
    strbuf text;
    size_t *ends; /* [n_tokens] the byte of text after each token, ascending */
    size_t n_tokens, cap_tokens;
    bool has_tokens; /* false: `ends` is unknown */
    bool is_whole;   /* the model ended the text; false: the API cut it */
} api_text;

/* The rule for where a gen ends. */
typedef struct api_rule {
    int32_t max_tokens; /* -1: no limit is known */
    str stops[16];
    size_t n_stops;
} api_rule;

/* The part of a text that a gen takes: the bytes before `end`, and n_tokens tokens,
 * including the one that ended it. */
typedef struct api_cut {
    size_t end, n_tokens;
    quire_finish finish;
} api_cut;

/* Reads the text and tokens of a choice in a response of /chat/completions (is_chat) or
 * /completions. *out has one reference. QUIRE_IO: `choice` is not a choice. */
quire_err api_text_read(const json_value *choice, bool is_chat, api_text **out);
/* Adds, or drops, a reference; the last drop frees the text. NULL is allowed. */
api_text *api_text_share(api_text *t);
void api_text_drop(api_text *t);

/* Reads max_tokens and stop from a request's fields; the stop strings are borrowed.
 * False: there are too many, or a value has another type. */
bool api_rule_read(const json_value *fields, api_rule *out);
/* Finds where a gen with this rule, which begins at byte `from` (the beginning of a
 * token), would end. False: the text ends before the gen does. O(bytes x stops). */
bool api_text_cut(const api_text *t, size_t from, const api_rule *rule, api_cut *out);
/* Whether t has `text` at byte `from`, and a token begins there. */
bool api_text_agrees(const api_text *t, size_t from, str text);

/* Members of a response: the choice with that index, or NULL; why a choice ended; the
 * count `name` of usage, 0 if it is missing or invalid. */
const json_value *api_choice_at(const json_value *response, size_t index);
quire_finish api_finish_of(const json_value *choice);
int64_t api_count_of(const json_value *usage, const char *name);

#endif
