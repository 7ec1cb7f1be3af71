/* A parsed request, the result of quire_request_parse: the generation that it asks for,
 * the JSON from which it was read, and fields as given, from which request_check computes
 * the final generation.
 *
 * The caller owns it until quire_submit takes it. It owns all its texts. The table of
 * fields drives parsing: each field is checked against its row, then stored at its place
 * or by its reader (read_field.c). */
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

/* The rule (constraint) that a response must obey. It comes from response_format,
 * structured_outputs and their equivalents in other APIs, or from the tools. */

typedef enum request_rule_form {
    RULE_OF_KIND,        /* a grammar of grammar_kind */
    RULE_STRUCTURAL_TAG, /* a structural tag (answer/structural_tag.h) */
    RULE_CALLS           /* tool calls only (answer/answer_bind.h) */
} request_rule_form;

typedef struct request_rule {
    const field_desc *field; /* the field that set it; NULL: no rule */
    grammar_kind kind;
    /* as given, or a schema or list of choices written as JSON; owned by the request;
     * empty if the kind needs none */
    str text;
    str whitespace_pattern; /* empty: none */
    /* structured_outputs sets disable_any_whitespace, which overrides json_whitespace */
    bool says_space;
    grammar_space space;
    /* structured_outputs sets `additional`, which overrides json_additional_properties */
    bool says_additional;
    grammar_additional additional;
    request_rule_form form;
} request_rule;

/* White space in JSON under the rule; `given` is the request's json_whitespace. */
static inline grammar_space request_rule_space(const request_rule *rule, grammar_space given) {
    return rule->says_space ? rule->space : given;
}
/* Unlisted properties under the rule; `given` is the request's
 * json_additional_properties. */
static inline grammar_additional request_rule_additional(const request_rule *rule, grammar_additional given) {
    return rule->says_additional ? rule->additional : given;
}
/* The request's word for it: "closed" or "schema". */
const char *request_additional_word(grammar_additional a);

#define REQUEST_MAX_BYTES      ((size_t)16 << 20) /* bytes of a body; QUIRE_TOO_LARGE beyond */
#define REQUEST_MAX_DEPTH      64                 /* nesting depth of its JSON */
#define REQUEST_MAX_VALUES     ((size_t)1 << 21)  /* values of all types, each id of a prompt included */
#define REQUEST_MAX_CONTAINERS ((size_t)1 << 17)  /* part of them that are arrays or objects */
#define REQUEST_MAX_NAMES      ((size_t)1 << 18)  /* members of all objects */
#define REQUEST_MAX_PROMPTS    1024
#define REQUEST_MAX_TOOLS      1024
#define REQUEST_MAX_ID_BYTES   64
#define REQUEST_DEFAULT_FIELDS 9 /* number of fields with FIELD_DEFAULTED */

/* Defaults of request fields: those set by option, and sampling parameters that the
 * model's generation_config.json, or another, recommends. */
typedef struct request_default {
    const char *field; /* borrowed */
    double value;
} request_default;

typedef struct request_defaults {
    int32_t n;
    request_default values[REQUEST_DEFAULT_FIELDS];
    strbuf text; /* for people: "temperature 0.6, top_k 20" */
} request_defaults;

/* What a request is checked against: the properties and options of an engine. */
typedef struct request_context {
    int32_t n_vocab;        /* valid ids are 0..n_vocab - 1 */
    int32_t max_model_len;  /* most tokens of a sequence */
    int32_t max_tool_calls; /* most calls in an answer; a request may ask for fewer */
    /* most top_logprobs; 0: the limit in the table of fields */
    int32_t max_logprobs;
    bool has_vocabulary;        /* false: prompts must be ids */
    const tokenizer *tokenizer; /* computes a lower bound on a text's tokens; NULL: no bound is checked */
    const chat_form *form;      /* chat form of the model; NULL: chats are refused */
    output_formats formats;     /* formats of chat responses */
    bool names_tools, names_reasoning; /* set by option, so a request's own template does not change them */
    /* Called once the fields are valid: checks them against the formats and completes the
     * request's formats (answer_bind). NULL: responses have no parts and no calls. */
    quire_err (*bind)(quire_request *r, quire_error *err);
    bool trusts_templates; /* requests may bring templates */
    /* values of fields that are missing or null; NULL: those of the table of fields */
    const request_defaults *defaults;
    /* mask_mod and score_mod for requests without their own; the engine's, or NULL */
    attn_mods *mods;
    bool trusts_attention;    /* requests may bring mask_mod and score_mod */
    int32_t n_loras;          /* adapters that the field `lora` can number */
    bool no_tokens;           /* the model only computes pooled rows */
    pooling_desc pooling;     /* pooling according to the model's files */
    int32_t n_row;            /* elements of a pooled row; 0: unknown */
    int32_t n_token_types;    /* 0: the model has no token types */
    grammar_space json_space; /* default of json_whitespace */
    /* default of json_additional_properties: "schema" if true, else "closed" */
    bool opens_objects;
    bool counts_only; /* the prompt is only counted: fields that limit the output may be missing */
    uint8_t thought_key[SHA256_BYTES]; /* key for signatures of reasoning */
    quire_history history;             /* finds the response that a request continues; NULL: finds none */
    void *history_of;
} request_context;

/* A field that was set, kept for copies of the request. */
typedef struct request_value {
    const field_desc *field;
    json_value *value;
} request_value;

/* A file of a repository. Its texts point into values. */
typedef struct request_file {
    str name; /* p NULL: not given */
    str text;
} request_file;

/* A gap after the prompt that the answer fills. */
typedef struct request_fill {
    const char *field;     /* the field that asks for it; NULL: no gap */
    str before;            /* text before the prompt; points into values */
    str after;             /* text after the gap; points into values */
    bool is_in_repository; /* the gap is in a file of a repository */
    request_file *files;   /* [n_files] the repository's other files, allocated with mem_new, or NULL */
    size_t n_files;
} request_fill;

/* Tokens that a request for prompt ids continues (quire_continuation). */
typedef struct request_continuation {
    int32_t *ids; /* [n_ids] allocated with mem_new; NULL: none */
    size_t n_ids;
    strbuf after, before; /* empty: not given */
    text_marks plain;     /* texts: spans in which special tokens are plain text */
    size_t n_start;       /* chats: see quire_continuation; at most n_ids */
} request_continuation;

struct quire_request {
    generation g;
    request_context context; /* as it was when the request was created */
    /* fields that were set, in order; texts below that are "in values" point into them */
    request_value *values;
    size_t n_values, cap_values;
    bool is_checked; /* request_check passed, and no field was set since */

    /* As given; -1: absent or null. request_check computes the generation's values from
     * these. */
    int32_t n, best_of, beam_width;
    bool use_beam_search;
    int32_t n_logprobs, n_top_logprobs, n_prompt_logprobs;
    int32_t max_completion_tokens;
    int32_t pooling_kind, dimensions, normalize; /* embeddings only */
    bool truncates;                              /* Ollama: truncate texts that are too long */
    int32_t n_given_stops; /* number of first stop strings that the request itself has */
    bool has_stream_options;
    bool echoes_message;           /* chat: the response repeats the assistant message that it continues */
    const json_value *token_types; /* points into values, or NULL */
    const json_value *queries, *candidates; /* scores and rerank; in values, or NULL */
    request_fill fill;
    request_continuation continuation;

    /* Variables of the chat template. */
    str template_given; /* points into values; empty: not given */
    /* points into values: the array that messages (or all conversations) are from */
    const json_value *given_messages;
    const json_value *template_kwargs, *documents; /* point into values, or NULL */
    const json_value *tools;                       /* an array, or NULL */

    /* Tools as given; request_check_tools computes the rest from them. */
    const json_value *tools_field, *functions; /* point into values; `tools` has all of them as functions */
    const json_value *allowed_tools; /* points into values: tools that tool_choice allows; NULL: all */
    /* owned: the value of `tools` if the fields have another form */
    json_value *plain_tools;
    /* owned: set by quire_request_tools; NULL: tools_field is in values */
    json_value *given_tools;
    bool has_custom; /* some are custom tools */
    /* the field that set tool_choice below: tool_choice or function_call; NULL: none */
    const field_desc *choice_field;
    output_choice tool_choice;
    str named_tool;         /* for OUTPUT_CHOICE_NAMED; points into values */
    output_formats formats; /* formats by which the response is split; NULL: it is not */
    output_tool *offered;   /* [n_offered] the functions in `tools`, allocated with mem_new */
    size_t n_offered;
    request_rule rule; /* the constraint of the response */
    strbuf rule_text;  /* text of `rule` if it was written as JSON */

    /* point into values, or NULL; request_tokenize_lists tokenises them */
    const json_value *bad_words, *dry_breakers;
    /* prompt texts of a request made without JSON, allocated with mem_new; else NULL */
    char *texts;
    strbuf ignored;    /* names of ignored members; g.info points to it */
    strbuf prediction; /* the prediction, joined if it came in parts */
    strbuf model;      /* the model's name, if it had to be converted to the server's form */
    strbuf rendered;   /* g.more.render points to it */
    /* QUIRE_RESPONSES: the result of quire_request_responses once assembled, and its
     * texts */
    const quire_responses_info *responses;
    quire_responses_info response_info;
    strbuf response_members, response_input, response_previous;
    tool_spaces tool_spaces; /* namespaces of its tools */
    /* owned by the stream room: the stream that its prompt continues; NULL: not a fork */
    struct stream_fork *fork_from;
    /* llama.cpp's completions: fields, in values, or NULL; and the texts of g.more */
    const json_value *samplers, *response_fields;
    bool has_input_prefix, has_input_suffix;
    strbuf settings, response_paths;
    bool reuses_prefix; /* false: the request gets a unique cache salt */
    strbuf own_salt;
    strbuf adapter;    /* g.adapter points to it */
    strbuf names;      /* SGLang: g.more.request_id points to it */
    int32_t n_each;    /* length of g.each */
    float *logits_out; /* borrowed; see quire_request_logits */
    /* [n_parks] the park of each choice, or NULL; the stream room holds the references */
    struct quire_park **parks;
    size_t n_parks, cap_parks;
    uint64_t program; /* see quire_request_step */
    int32_t depth;
};

/* A dialect: how an endpoint's requests differ, besides their fields (request_read.c). */
typedef struct dialect {
    uint32_t fields;  /* flags of its fields in the table */
    uint32_t base;    /* flag of the base dialect that `assemble` converts to, whose defaults apply; or 0 */
    bool is_chat;     /* the prompt is a conversation rendered by a template */
    bool is_batch;    /* it has several prompts */
    bool gives_rows;  /* it returns rows instead of tokens */
    bool prompt_only; /* it generates nothing after its prompts */
    bool any_length;  /* prompts may be longer than the context */
    bool adds_special, adds_bos; /* default of add_special_tokens */
    bool takes_no_tokens;        /* max_tokens may be 0: the prompt is only computed */
    bool may_be_prepared;        /* allowed with quire_prepare, before its first tokens are known */
    bool streams_prompt;         /* prompt log-probabilities are allowed in a stream */
    /* refines the endpoint by the members of a checked body; NULL: the path alone
     * decides */
    quire_endpoint (*form_of)(str body);
    const char *prompt;   /* name of the prompt's field in errors */
    int32_t listed_bytes; /* bytes of a token with its log-probability in a response */
    quire_err (*check)(quire_request *r, quire_error *err); /* checks between fields */
    /* Runs before the checks if any field with FIELD_PART was given: converts those
     * fields (request_part), by request_set_as, to fields of chats or completions, and
     * drops them. NULL: none. */
    quire_err (*assemble)(quire_request *r, quire_error *err);
    /* checks for missing fields, before all other checks; NULL: done in `check` */
    quire_err (*required)(const quire_request *r, quire_error *err);
    /* Sets the error for a prompt of n tokens (least: "at least " or "") over the
     * limit. */
    quire_err (*too_long)(int32_t limit, size_t n, const char *least, quire_error *err);
} dialect;

extern const dialect request_dialects[]; /* indexed by quire_endpoint */

static inline const dialect *dialect_of(const generation *g) {
    return &request_dialects[g->info.endpoint];
}

/* Whether the prompt continues given ids, or is only part of the template's output. */
static inline bool request_continues(const quire_request *r) {
    const request_continuation *c = &r->continuation;
    return c->n_ids > 0 || c->after.n > 0 || c->before.n > 0 || c->plain.n > 0;
}

/* Reads the defaults that an option gives as a JSON object (may be NULL) into an empty
 * *d. Each value is checked like a request's. INVALID names the field. Deinit d even on
 * failure. */
quire_err request_defaults_read(request_defaults *d, const char *json, quire_error *err);
/* Adds defaults for fields that d lacks, checked likewise; BAD_FILE names file and
 * field. */
quire_err request_defaults_add(request_defaults *d, const request_default *from, int32_t n,
                               const char *source, quire_error *err);
void request_defaults_deinit(request_defaults *d);
/* The default of a field; NULL: d is NULL or has none. */
const double *request_defaults_find(const request_defaults *d, const char *field);

/* Whether the tool of this name is a custom tool (read_tools.c). */
bool request_is_custom(const quire_request *r, str name);

/* Frees a request that is not a fork. */
void request_free(quire_request *r);

/* Like quire_request_parse and quire_request_ids, with a context instead of an engine. */
quire_err request_parse(const request_context *ctx, quire_endpoint endpoint, const char *body, size_t n,
                        quire_request **out, quire_error *err);
quire_err request_ids(const request_context *ctx, const int32_t *ids, size_t n, quire_request **out,
                      quire_error *err);
/* Like request_parse, for a tenant ("": the default one) whose responses it may
 * continue. */
quire_err request_parse_for(const request_context *ctx, const char *tenant, quire_endpoint endpoint,
                            const char *body, size_t n, quire_request **out, quire_error *err);

/* Writes the JSON Schema of an endpoint's bodies (quire_request_schema). Any thread. */
void request_schema(const request_context *ctx, quire_endpoint endpoint, json_out *o);

/* Checks the beginning of an untrusted body for fields that are too large. Fails only
 * where request_parse would fail on the whole body. O(begin.n). */
quire_err request_look(quire_endpoint endpoint, str begin, quire_error *err);

/* Sets the prompt of a request that has none to ids, allocated with mem_new. Takes ids,
 * even on failure; NULL ids: NO_MEMORY. */
quire_err request_take_ids(quire_request *r, int32_t *ids, int32_t n, quire_error *err);
/* Makes a request with the fields set in r, but without a prompt and without fields that
 * concern its response: stream, stream_options, n, best_of, echo, prompt_logprobs. */
quire_err request_copy(const quire_request *r, quire_request **out, quire_error *err);
/* Sets fields from a JSON object in r, a copy of a running choice's request. BAD_REQUEST:
 * a field affects more than sampling; some fields may have been set. */
quire_err request_change(quire_request *r, const char *fields, size_t n, quire_error *err);

/* Sets the error for a prompt of n tokens (is_least: at least n) that leaves no room for
 * another token. */
quire_err generation_too_long(const generation *g, int32_t limit, size_t n, bool is_least, quire_error *err);

/* Checks that fields agree. Called by request_parse, and again by quire_submit if fields
 * were set since. */
quire_err request_check(quire_request *r, quire_error *err);
/* The checks of max_tokens and min_tokens. Then sampling.max_tokens is final, and adding
 * it to a position cannot overflow int32_t. */
quire_err request_check_lengths(quire_request *r, quire_error *err);
/* Adds the chat form's own stop tokens and strings, unless ignore_eos is set. May be
 * repeated after fields change. */
void request_end_turns(quire_request *r);

/* Checks a chat's tools, tool_choice and, by context.bind, what the model's format can
 * express. Then r->formats, offered and info.has_parts are final. */
quire_err request_check_tools(quire_request *r, quire_error *err);
/* Whether a chat brings its own template text (r->template_given) instead of naming one
 * of the model's. */
bool request_has_template(const quire_request *r);

#define RENDER_MAX_US 1000000 /* CPU time limit of a chat template on a text thread */

/* Renders prompt number `prompt` of a chat like chat_render. QUIRE_BAD_REQUEST: the
 * template's limits or RENDER_MAX_US are exceeded. err must not be NULL. */
quire_err request_render(const quire_request *r, int32_t prompt, strbuf *out, text_marks *marks,
                         quire_error *err);

/* Approximate bytes of text to tokenise. */
size_t request_text_bytes(const quire_request *r);
/* Frees the conversation or prompt and its JSON once it is tokenised; texts to echo stay.
 * Afterwards r can be copied but not rendered or checked. */
void request_drop_texts(quire_request *r);

/* Computes info's counts of choices from the prompts, n and best_of. */
void request_count_choices(quire_request *r);

/* Beam width of r; 0: no beam search. */
int32_t request_beam_width(const quire_request *r);
/* Removes the context's sampling defaults if r is a beam search, which doesn't sample;
 * restores them if it is not. */
void request_settle_drawing(quire_request *r);
/* Checks that beam search and the other fields agree. */
quire_err request_check_beams(const quire_request *r, quire_error *err);

/* Checks an embeddings request against the model's rows; r->g.pooling is then final. */
quire_err request_check_embedding(quire_request *r, quire_error *err);
/* Like quire_request_embed for n inputs, the first of which is number `first` of the
 * caller's, with a context instead of an engine. */
quire_err request_embed(const request_context *ctx, const quire_input *inputs, size_t first, size_t n,
                        const quire_embed_options *o, quire_request **out, quire_error *err);
/* Prepends the input's number to the message of error e, unless there is only one input.
 * Returns e. */
quire_err request_name_input(const quire_request *r, int32_t i, quire_err e, quire_error *err);

/* Tokenises bad_words and dry_sequence_breakers into r->g.sampling.lists. Call once,
 * before submitting. QUIRE_CANCELLED: *stop (may be NULL, set from any thread) became
 * true. */
quire_err request_tokenize_lists(quire_request *r, const tokenizer *t, const atomic_bool *stop,
                                 quire_error *err);

#endif
