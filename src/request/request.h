/* A parsed request, the result of quire_request_parse: the generation that it asks for,
 * the JSON that it was read from, and fields as given, of which request_check makes the
 * generation final.
 *
 * Its maker owns it until quire_submit takes it. It owns all its texts. The table of
 * fields drives the parsing: a field is checked by its row, then stored by its place or
 * reader (read_field.c). */
#ifndef REQUEST_REQUEST_H
#define REQUEST_REQUEST_H

#include <stdatomic.h>

#include "base/sha256.h"
#include "base/str.h"
#include "chat/chat_form.h"
#include "core/attn_program.h"
#include "core/params.h"
#include "quire.h"
#include "request/generation.h"
#include "request/request_field.h"
#include "request/request_tools.h"
#include "text/tokenizer.h"
#include "json/json.h"
#include "json/json_out.h"

/* The rule that a response must obey, from the fields that can name one: response_format,
 * structured_outputs, and the names of other servers; or from the tools. */

typedef enum request_rule_form {
    RULE_OF_KIND,        /* a rule of some kind */
    RULE_STRUCTURAL_TAG, /* a structural tag (answer/structural_tag.h) */
    RULE_CALLS           /* rule of a request's tools (answer/answer_bind.h) */
} request_rule_form;

typedef struct request_rule {
    const field_desc *field; /* field that gives it; NULL: no rule */
    grammar_kind kind;
    /* as given, or a schema or list of choices written as JSON; in the request; empty
     * where the kind needs none */
    str text;
    str whitespace_pattern; /* empty: none */
    /* structured_outputs has disable_any_whitespace; else the request's json_whitespace
     * counts */
    bool says_space;
    grammar_space space;
    /* structured_outputs has `additional`; else the request's json_additional_properties
     * counts */
    bool says_additional;
    grammar_additional additional;
    request_rule_form form;
} request_rule;

/* White space in the JSON that the rule describes, in a request that says `given`. */
static inline grammar_space request_rule_space(const request_rule *rule, grammar_space given) {
    return rule->says_space ? rule->space : given;
}
/* What objects of the rule's schemas may hold, in a request that says `given`. */
static inline grammar_additional request_rule_additional(const request_rule *rule, grammar_additional given) {
    return rule->says_additional ? rule->additional : given;
}
/* The word of a request for it: "closed" or "schema". */
const char *request_additional_word(grammar_additional a);

#define REQUEST_MAX_BYTES      ((size_t)16 << 20) /* a body; QUIRE_TOO_LARGE beyond that */
#define REQUEST_MAX_DEPTH      64                 /* nesting of its JSON */
#define REQUEST_MAX_VALUES     ((size_t)1 << 21) /* values of every kind; as many ids as a long context has */
#define REQUEST_MAX_CONTAINERS ((size_t)1 << 17) /* arrays and objects among them */
#define REQUEST_MAX_NAMES      ((size_t)1 << 18) /* members of all objects */
#define REQUEST_MAX_PROMPTS    1024
#define REQUEST_MAX_TOOLS      1024
#define REQUEST_MAX_ID_BYTES   64
#define REQUEST_DEFAULT_FIELDS 9 /* fields whose default an engine can set */

/* The defaults of fields that an option gives, and of sampling fields that the model's
 * makers recommend, or those of another generation_config.json. */
typedef struct request_default {
    const char *field; /* borrowed */
    double value;
} request_default;

typedef struct request_defaults {
    int32_t n;
    request_default values[REQUEST_DEFAULT_FIELDS];
    strbuf text; /* "temperature 0.6, top_k 20" */
} request_defaults;

/* The properties of an engine against which a request is checked. */
typedef struct request_context {
    int32_t n_vocab;        /* ids are 0..n_vocab-1 */
    int32_t max_model_len;  /* tokens */
    int32_t max_tool_calls; /* most of an answer; a request may ask for fewer */
    /* most likeliest tokens to report beside one; 0: as the table of fields has it */
    int32_t max_logprobs;
    bool has_vocabulary;               /* else only prompts of ids are accepted */
    const tokenizer *tokenizer;        /* gives the least number of tokens of a text; NULL: unknown */
    const chat_form *form;             /* form of chats; NULL: chats are refused */
    output_formats formats;            /* of their responses */
    bool names_tools, names_reasoning; /* an option names the format: no template of a request changes it */
    /* Called once a request's own fields are right: checks them against the formats and
     * makes the request's final (answer_bind). NULL: responses have no parts and no
     * calls. */
    quire_err (*bind)(quire_request *r, quire_error *err);
    bool trusts_templates; /* of requests */
    /* values of fields that a request leaves out or gives as null; NULL: those of the
     * table of fields */
    const request_defaults *defaults;
    /* the mask and change of scores of requests without their own; the engine's, or
     * NULL */
    attn_mods *mods;
    bool trusts_attention;    /* requests may have their own */
    int32_t n_loras;          /* adapters that the field `lora` may number */
    bool no_tokens;           /* the model gives rows only */
    pooling_desc pooling;     /* pooling that the model's files name */
    int32_t n_row;            /* elements of a pooled row; 0: not known */
    int32_t n_token_types;    /* 0: the model has none */
    grammar_space json_space; /* json_whitespace of requests that leave it out */
    /* json_additional_properties of requests that leave it out is "schema", else
     * "closed" */
    bool opens_objects;
    bool counts_only;                  /* nothing is generated: what says how much may be left out */
    uint8_t thought_key[SHA256_BYTES]; /* under which reasoning is signed */
    quire_history history;             /* finds what requests continue; NULL: nothing */
    void *history_of;
} request_context;

/* A field that was set, for copies of the request. */
typedef struct request_value {
    const field_desc *field;
    json_value *value;
} request_value;

/* A file of a repository. Its texts are in values. */
typedef struct request_file {
    str name; /* p NULL: not given */
    str text;
} request_file;

/* A gap that the answer fills, after the prompt. */
typedef struct request_fill {
    const char *field;     /* field that requests it; NULL: none does */
    str before;            /* the text before the prompt, in values */
    str after;             /* the text after the gap, in values */
    bool is_in_repository; /* the file with the gap is one of a repository */
    request_file *files;   /* [n_files] its other files, mem_new'd, or NULL */
    size_t n_files;
} request_fill;

/* The tokens that a request for a prompt's ids continues (quire_continuation). */
typedef struct request_continuation {
    int32_t *ids; /* [n_ids] mem_new'd; NULL: there are none */
    size_t n_ids;
    strbuf after, before; /* empty: not given */
    text_marks plain;     /* of a text */
    size_t n_start;       /* of a chat: see quire_continuation; at most n_ids */
} request_continuation;

struct quire_request {
    generation g;
    request_context context; /* as when the request was made */
    request_value *values;   /* the fields that were set, in order; the texts below point into it */
    size_t n_values, cap_values;
    bool is_checked; /* request_check passed, and nothing was set since */

    /* As given; -1: absent or null. request_check computes the generation's values
     * from them. */
    int32_t n, best_of, beam_width;
    bool use_beam_search;
    int32_t n_logprobs, n_top_logprobs, n_prompt_logprobs;
    int32_t max_completion_tokens;
    int32_t pooling_kind, dimensions, normalize; /* of embeddings */
    bool truncates;                              /* Ollama's: long texts are cut */
    int32_t n_given_stops;                       /* the request's own stops are the first */
    bool has_stream_options;
    bool echoes_message;                    /* of a chat */
    const json_value *token_types;          /* in values, or NULL */
    const json_value *queries, *candidates; /* for scores; in values, or NULL */
    request_fill fill;
    request_continuation continuation;

    /* The template's variables. */
    str template_given; /* in values; empty: not given */
    /* the array in values from which messages, or all conversations, were read */
    const json_value *given_messages;
    const json_value *template_kwargs, *documents; /* in values, or NULL */
    const json_value *tools;                       /* an array, or NULL */

    /* Tools: what a client gives, and what request_check_tools makes of it. */
    const json_value *tools_field, *functions; /* in values; tools has them all as functions */
    const json_value *allowed_tools;           /* tools that tool_choice allows, in values; NULL: all */
    /* the value of tools where the fields have another form: owned */
    json_value *plain_tools;
    /* given by quire_request_tools, owned; NULL: tools_field is in values */
    json_value *given_tools;
    bool has_custom; /* some are custom tools */
    /* field that sets the next: tool_choice or function_call; NULL: none does */
    const field_desc *choice_field;
    output_choice tool_choice;
    str named_tool;         /* for OUTPUT_CHOICE_NAMED; in values */
    output_formats formats; /* in which the response is split; NULLs: it is not */
    output_tool *offered;   /* [n_offered] the functions among tools, mem_new'd */
    size_t n_offered;
    request_rule rule; /* rule that the response must obey */
    strbuf rule_text;  /* its text, if it is written as JSON */

    /* in values, or NULL: request_tokenize_lists makes tokens of them */
    const json_value *bad_words, *dry_breakers;
    /* texts of the prompts, mem_new'd, if the request was made without JSON; else NULL */
    char *texts;
    strbuf ignored;    /* names of unknown members, as in g.info */
    strbuf prediction; /* joined, if it was given in parts */
    strbuf model;      /* the model's name in the server's form, if given in another */
    strbuf rendered;   /* the rendered form, as in g.more */
    /* for QUIRE_RESPONSES: what quire_request_responses returns, once assembled, and
     * its texts */
    const quire_responses_info *responses;
    quire_responses_info response_info;
    strbuf response_members, response_input, response_previous;
    tool_spaces tool_spaces; /* of its tools */
    /* the stream room's: the stream that its one prompt continues; NULL: not a fork */
    struct stream_fork *fork_from;
    /* llama.cpp's completions: fields, in values, or NULL; and the texts of g.more */
    const json_value *samplers, *response_fields;
    bool has_input_prefix, has_input_suffix;
    strbuf settings, response_paths;
    bool reuses_prefix; /* false: it gets a salt that no other request has */
    strbuf own_salt;
    strbuf adapter;    /* the text of g.adapter */
    strbuf names;      /* SGLang's forms: names for g.more.request_id */
    int32_t n_each;    /* elements of g.each */
    float *logits_out; /* the caller's; see quire_request_logits */
    /* [n_parks] parks of the choices, or NULL; references held by the stream room */
    struct quire_park **parks;
    size_t n_parks, cap_parks;
    uint64_t program; /* see quire_request_step */
    int32_t depth;
};

/* What requests of an endpoint differ in beside their fields (request_read.c). */
typedef struct dialect {
    uint32_t fields;             /* its flags in the table of fields */
    uint32_t base;               /* the flag of the fields that `assemble` sets, whose defaults hold; or 0 */
    bool is_chat;                /* its prompt is a conversation, which a template renders */
    bool is_batch;               /* its prompts are several */
    bool gives_rows;             /* in place of tokens */
    bool prompt_only;            /* it ends with its prompts, which are not generated from */
    bool any_length;             /* its prompts may be longer than the context */
    bool adds_special, adds_bos; /* where add_special_tokens is not given */
    bool takes_no_tokens;        /* a request may ask for none: its prompt is computed */
    bool may_be_prepared;        /* before the tokens that it continues are known (quire_prepare) */
    bool streams_prompt;         /* a stream may have log-probabilities of its prompt */
    /* the endpoint that the members of a checked body indicate; NULL: the path's */
    quire_endpoint (*form_of)(str body);
    const char *prompt;   /* name of the prompt's field in errors */
    int32_t listed_bytes; /* bytes in a response of a token and its log-probability */
    quire_err (*check)(quire_request *r, quire_error *err); /* the checks between fields */
    /* Called before the checks if there are fields with FIELD_PART: makes of them,
     * which request_part finds, fields of chats or completions, by request_set_as.
     * They are dropped afterwards. NULL: the dialect has none. */
    quire_err (*assemble)(quire_request *r, quire_error *err);
    /* the first of them: what must be given; NULL: among the others */
    quire_err (*required)(const quire_request *r, quire_error *err);
    /* Sets the error for a prompt of "at least " (or "") n tokens, where `limit` is the
     * most. */
    quire_err (*too_long)(int32_t limit, size_t n, const char *least, quire_error *err);
} dialect;

extern const dialect request_dialects[]; /* by quire_endpoint */

static inline const dialect *dialect_of(const generation *g) {
    return &request_dialects[g->info.endpoint];
}

/* Whether the prompt continues given ids, or is only a part of its text. */
static inline bool request_continues(const quire_request *r) {
    const request_continuation *c = &r->continuation;
    return c->n_ids > 0 || c->after.n > 0 || c->before.n > 0 || c->plain.n > 0;
}

/* Two sources of an empty *d, each value checked as a request's would be; deinit it also
 * after a failure. json: an object, or NULL; INVALID names the field. */
quire_err request_defaults_read(request_defaults *d, const char *json, quire_error *err);
/* Adds fields that d has not yet; BAD_FILE names file and field. */
quire_err request_defaults_add(request_defaults *d, const request_default *from, int32_t n,
                               const char *source, quire_error *err);
void request_defaults_deinit(request_defaults *d);
/* The default of a field in d, which may be NULL; NULL: not set there. */
const double *request_defaults_find(const request_defaults *d, const char *field);

/* Whether a tool is a custom one (read_tools.c). */
bool request_is_custom(const quire_request *r, str name);

/* quire_request_free of a request that is not a fork. */
void request_free(quire_request *r);

/* As quire_request_parse and quire_request_ids, with a context in place of an engine. */
quire_err request_parse(const request_context *ctx, quire_endpoint endpoint, const char *body, size_t n,
                        quire_request **out, quire_error *err);
quire_err request_ids(const request_context *ctx, const int32_t *ids, size_t n, quire_request **out,
                      quire_error *err);
/* As request_parse, for a tenant ("": the unnamed one), whose responses it may
 * continue. */
quire_err request_parse_for(const request_context *ctx, const char *tenant, quire_endpoint endpoint,
                            const char *body, size_t n, quire_request **out, quire_error *err);

/* Writes the JSON Schema of an endpoint's bodies (quire_request_schema). Any thread. */
void request_schema(const request_context *ctx, quire_endpoint endpoint, json_out *o);

/* Checks the beginning of a hostile body for fields that are too large: fails as
 * request_parse would fail on the whole body, and for no other reason. O(begin.n). */
quire_err request_look(quire_endpoint endpoint, str begin, quire_error *err);

/* Gives a request without a prompt one of ids, mem_new'd, which r takes, also on failure.
 * NULL: NO_MEMORY. */
quire_err request_take_ids(quire_request *r, int32_t *ids, int32_t n, quire_error *err);
/* A new request with the fields that were set in r, except those of its response rather
 * than its tokens: stream and its options, n, best_of, echo, prompt_logprobs. It has no
 * prompt. */
quire_err request_copy(const quire_request *r, quire_request **out, quire_error *err);
/* Sets fields of r, a copy of a running choice's request, from a JSON object. BAD_REQUEST
 * for a field that affects more than sampling; r may have some of the fields then. */
quire_err request_change(quire_request *r, const char *fields, size_t n, quire_error *err);

/* Sets the error for a prompt of n tokens, or of at least so many, which leave no room
 * for one more. */
quire_err generation_too_long(const generation *g, int32_t limit, size_t n, bool is_least, quire_error *err);

/* The checks between fields. request_parse makes them; quire_submit makes them again
 * where fields were set since. */
quire_err request_check(quire_request *r, quire_error *err);
/* The part of them about max_tokens and min_tokens. Afterwards sampling.max_tokens is the
 * final limit, and sums with positions stay within int32_t. */
quire_err request_check_lengths(quire_request *r, quire_error *err);
/* Adds what ends the answers of a chat besides its fields, unless ignore_eos is set. Once
 * more where they have changed. */
void request_end_turns(quire_request *r);

/* The checks between a chat's tools, its choice of them and, by the context's bind, what
 * the model can answer; r->formats, offered and info.has_parts are final afterwards. */
quire_err request_check_tools(quire_request *r, quire_error *err);
/* Whether a chat brings a template of its own, r->template_given, in place of one of the
 * model's. */
bool request_has_template(const quire_request *r);

#define RENDER_MAX_US 1000000 /* processor time of a chat template on a text thread */

/* Renders prompt number `prompt` of a chat request as chat_render does. A conversation
 * that is too large for the template, or on which it takes longer than RENDER_MAX_US, is
 * QUIRE_BAD_REQUEST.
 * err is not NULL. */
quire_err request_render(const quire_request *r, int32_t prompt, strbuf *out, text_marks *marks,
                         quire_error *err);

/* Bytes of text that have to be tokenised, about. */
size_t request_text_bytes(const quire_request *r);
/* Frees the conversation or prompt, and the JSON that it was read from, once its tokens
 * are known; the texts of an echo stay. r is not rendered or checked any more, and can
 * still be copied. */
void request_drop_texts(quire_request *r);

/* Computes info's numbers of choices from the prompts, n and best_of. */
void request_count_choices(quire_request *r);

/* The beam width of r; 0: no beam search. */
int32_t request_beam_width(const quire_request *r);
/* Drops the context's defaults of sampling fields where r is a beam search, which draws
 * no tokens, and restores them where it is not. */
void request_settle_drawing(quire_request *r);
/* The checks between r's beam search and its other fields. */
quire_err request_check_beams(const quire_request *r, quire_error *err);

/* The checks of an embeddings request between its fields and the model's rows;
 * r->g.pooling is final afterwards. */
quire_err request_check_embedding(quire_request *r, quire_error *err);
/* As quire_request_embed, of n inputs from `first` on, with a context in place of an
 * engine. */
quire_err request_embed(const request_context *ctx, const quire_input *inputs, size_t first, size_t n,
                        const quire_embed_options *o, quire_request **out, quire_error *err);
/* Puts the input's number before the error e; not where there is one only. Returns e. */
quire_err request_name_input(const quire_request *r, int32_t i, quire_err e, quire_error *err);

/* Tokenises bad_words and dry_sequence_breakers into r->g.sampling.lists. Called once,
 * before the request is submitted. QUIRE_CANCELLED between two of them once *stop is true
 * (NULL: never), which any thread may set. */
quire_err request_tokenize_lists(quire_request *r, const tokenizer *t, const atomic_bool *stop,
                                 quire_error *err);

#endif
