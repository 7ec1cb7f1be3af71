/* A parsed request: what quire_request_parse makes of a JSON body, before anything is tokenised.
 *
 * Belongs to whoever made it until quire_submit takes it. All texts are owned by the request and live as long as it. Reading is driven by
 * the table of fields (core/params.h): a field is validated by its row, then stored by its binding (request_fields.c). */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include "base/str.h"
#include "core/params.h"
#include "engine/engine.h"
#include "quire.h"
#include "text/template.h"
#include "text/tokenizer.h"

#define REQUEST_MAX_BYTES   ((size_t)16 << 20) /* a body; QUIRE_TOO_LARGE past that */
#define REQUEST_MAX_DEPTH   64                 /* nesting of its JSON */
#define REQUEST_MAX_PROMPTS 1024

/* The facts about an engine against which a request is checked. */
typedef struct request_context {
    int32_t n_vocab;        /* ids are 0..n_vocab-1 */
    int32_t max_model_len;  /* tokens */
    bool has_vocabulary;    /* else only prompts of ids are taken */
    bool has_chat_template; /* else chat is refused */
    chat_content content;   /* what the chat template can do with content (chat_template_content) */
} request_context;

/* One prompt: a text, or ids where ids is not NULL. */
typedef struct request_prompt {
    str text;
    int32_t *ids; /* mem_new'd */
    int32_t n_ids;
} request_prompt;

/* Where a request goes on from tokens of another: its one prompt is those. held NULL: nowhere. */
typedef struct request_stem {
    engine_stem *held;
    int32_t n_prompt; /* of the tokens, those that were a prompt; the others were generated */
} request_stem;

struct json_object;

struct quire_request {
    quire_request_info info;
    request_context context;    /* as when it was made */
    struct json_object *values; /* an array of what was parsed; the texts below are borrowed from it */

    /* Completions: n_prompts >= 1 (== info.n_choices). Chat: the conversation as a JSON array for the template. */
    request_prompt *prompts;
    int32_t n_prompts;
    char *messages;
    size_t n_messages;
    const char *template_kwargs; /* a JSON object, or NULL */
    bool add_special, add_generation_prompt, continue_final_message;

    sampling_params sampling;
    float ttft_deadline_ms; /* 0: none */
    int32_t priority; /* lower is served earlier, under that policy */
    int32_t n, best_of; /* best_of -1: not given */
    bool use_beam_search;
    beam_params beams;  /* width: as given, -1 where it was not; info has what comes of it */
    int32_t n_logprobs, n_top_logprobs, n_prompt_logprobs; /* as given: -1 for null; request_check makes info's of them */
    int32_t max_completion_tokens; /* -1: not given; request_check moves it into sampling.max_tokens */
    struct json_object *bad_words, *dry_breakers; /* borrowed from values, or NULL: request_tokenize_lists makes them tokens */
    str stops[PARAMS_MAX_STOP];
    int32_t n_stops;
    bool include_stop, skip_special;
    bool has_stream_options;
    request_stem stem;
    float *logits_out; /* the caller's; see quire_request_logits */
    char tenant[QUIRE_TENANT_BYTES + 1]; /* 0-terminated; see quire_request_tenant */
    str cache_salt;         /* empty: none */
    int32_t cache_priority; /* -1: not given */
    float cache_ttl_s;      /* 0: no end */
};

/* As quire_request_parse, quire_request_ids, on a context rather than an engine. */
quire_err request_parse(const request_context *ctx, quire_endpoint endpoint, const char *body, size_t n, quire_request **out,
                        quire_error *err);
quire_err request_ids(const request_context *ctx, const int32_t *ids, size_t n, quire_request **out, quire_error *err);

/* A request of its own with the fields that were set in r, but those that belong to its answer rather than to its tokens: stream and its options, n, best_of,
 * echo, prompt_logprobs. Without a prompt. */
quire_err request_copy(const quire_request *r, quire_request **out, quire_error *err);
/* Whether a running choice can change that field: one that only shapes the choice of tokens. */
bool request_field_steers(const char *name);

/* The checks between fields. request_parse has made them; quire_submit makes them again, since fields may have been set one by one. */
quire_err request_check(quire_request *r, quire_error *err);

/* Renders a chat request's prompt: the template's variables are messages, tools and documents (none), add_generation_prompt, bos_token,
 * eos_token and template_kwargs. Appends to *out. With continue_final_message the text ends where the last message's content does. Any
 * thread. */
quire_err request_render(const quire_request *r, const chat_template *t, str bos, str eos, strbuf *out, quire_error *err);

/* Brings info's numbers of choices up to date with the prompts, n and best_of. */
void request_count_choices(quire_request *r);

/* The number of beams that r asks for; 0: no beam search. */
int32_t request_beam_width(const quire_request *r);
/* The checks between r's beam search and its other fields. */
quire_err request_check_beams(const quire_request *r, quire_error *err);

/* Turns the texts of bad_words and dry_sequence_breakers into tokens in r->sampling.lists. Once, before the request is submitted. */
quire_err request_tokenize_lists(quire_request *r, const tokenizer *t, quire_error *err);

/* The context of an open engine; lives as long as it. Defined beside quire_engine (src/api/engine.c). */
const request_context *engine_request_context(const quire_engine *e);

#endif
