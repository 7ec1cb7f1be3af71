/* Executes programs on an OpenAI-compatible API, and speculates across calls: a gen that
 * is followed by constant text and another gen is requested past its end, and later gens
 * take the additional text as long as it agrees (api_client.c). Greedy results are the
 * same, and there are never more calls.
 *
 * States without turns are texts for /completions, those with turns are messages for
 * /chat/completions. A select is one call of /completions for all of its choices, whose
 * log-probabilities the API echoes. */
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

#define API_MAX_AT_ONCE 32 /* requests under way at once; others wait */

typedef struct api_client api_client;

typedef struct api_client_options {
    const char *url;     /* "https://api.example.com/v1", to which paths are appended */
    const char *key;     /* sent as a bearer token; NULL: none */
    const char *ca_file; /* file of certificates; NULL: the system's */
} api_client_options;

/* A request. From api_client_send to api_client_take its members belong to the client. */
typedef struct api_job {
    struct api_job *next;
    void *user;
    const char *path;  /* "/completions"; a constant */
    strbuf body;       /* JSON; empty: it is a GET */
    strbuf response;   /* of status 200 */
    quire_error error; /* code QUIRE_OK: there is a response */
    int32_t n_sent;    /* how often it was sent */
    bool is_dropped;
} api_job;

/* Opens a client; the options' texts are borrowed until the close. INVALID: no address,
 * one with a password, or no key. */
quire_err api_client_open(const api_client_options *o, api_client **out, quire_error *err);
/* Cancels all jobs in progress and closes the client. */
void api_client_close(api_client *c);
/* Makes a job, whose body the caller then writes; NULL: out of memory. */
api_job *api_job_new(const char *path, void *user);
void api_job_free(api_job *j);
/* Sends a job, which belongs to the client until it is taken or dropped; on failure
 * the caller keeps it. UNSUPPORTED: there is no libcurl; NO_MEMORY. */
quire_err api_client_send(api_client *c, api_job *j, quire_error *err);
/* Cancels and frees a job that was not taken, sent or not. */
void api_client_drop(api_client *c, api_job *j);
/* Takes the next job that has ended, which the caller frees. NULL: none has. */
api_job *api_client_take(api_client *c);
/* Readable when a job has ended. */
int api_client_fd(const api_client *c);
void api_client_wait(api_client *c, int64_t timeout_us);

/* ---- the executor ---- */

typedef struct api_executor api_executor;

typedef struct api_executor_options {
    api_client_options client;
    const char *model; /* NULL: the program's, else the first that the API lists */
    int32_t most_more; /* most tokens to request past a gen's end; 0: no speculation */
} api_executor_options;

/* What calls have cost, and how much speculation has saved. */
typedef struct api_counts {
    int64_t n_calls, n_reused;                /* requests sent; gens that needed none */
    int64_t prompt_tokens, completion_tokens; /* as the API counts them */
    int64_t saved_prompt_tokens;              /* of the prompts of those gens */
    int64_t unused_tokens;                    /* tokens generated past an end that no gen took */
} api_counts;

extern const program_ops api_ops;

/* Opens an executor; *out is for programs_open with api_ops. The options' texts are
 * borrowed until it is closed. Errors of api_client_open; NO_MEMORY. */
quire_err api_executor_open(const api_executor_options *o, api_executor **out, quire_error *err);
api_counts api_executor_count(const api_executor *x);

/* ---- api_client.c: text past the end of a gen ---- */

/* A generated text. Shared by states. */
typedef struct api_text {
    int32_t refs;
    strbuf text;
    size_t *ends; /* [n_tokens] where each token ends in text, ascending */
    size_t n_tokens, cap_tokens;
    bool has_tokens; /* false: ends is not known */
    bool is_whole;   /* the model ended it; false: it was cut */
} api_text;

/* Where a gen ends. */
typedef struct api_rule {
    int32_t max_tokens; /* -1: not known */
    str stops[16];
    size_t n_stops;
} api_rule;

/* The part of a text that a gen takes: the bytes up to `end`, and n_tokens, including the
 * token that ended it. */
typedef struct api_cut {
    size_t end, n_tokens;
    quire_finish finish;
} api_cut;

/* Reads the text and tokens of a choice in a response of /chat/completions (is_chat) or
 * /completions. *out has one reference. IO: it is not a choice. */
quire_err api_text_read(const json_value *choice, bool is_chat, api_text **out);
api_text *api_text_share(api_text *t);
void api_text_drop(api_text *t);

/* Reads max_tokens and stop from a request's fields. False: too many stop strings, or
 * other types. The stops are borrowed. */
bool api_rule_read(const json_value *fields, api_rule *out);
/* Cuts the text, from a byte at which a token begins, where a gen with this rule would
 * end. False: the text ends before the gen does. O(bytes x stops). */
bool api_text_cut(const api_text *t, size_t from, const api_rule *rule, api_cut *out);
/* Whether a token begins at byte `from`, and the text from there on begins with
 * `text`. */
bool api_text_agrees(const api_text *t, size_t from, str text);

/* Reads of a response: the choice with that index, or NULL; why a choice ended; a count
 * of tokens, 0 if invalid. */
const json_value *api_choice_at(const json_value *response, size_t index);
quire_finish api_finish_of(const json_value *choice);
int64_t api_count_of(const json_value *usage, const char *name);

#endif
