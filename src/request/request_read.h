/* Functions that read a request's JSON, shared by the .c files of this room and of
 * answer. */
#ifndef REQUEST_REQUEST_READ_H
#define REQUEST_REQUEST_READ_H

#include "request/request.h"
#include "json/json_out.h"

/* A set of tool names, by hash. */

enum { TOOL_NAME_SLOTS = 4 * REQUEST_MAX_TOOLS };

/* Zero-initialised when empty. Texts are borrowed. */
typedef struct tool_names {
    str names[REQUEST_MAX_TOOLS];
    size_t n;
    uint16_t slots[TOOL_NAME_SLOTS]; /* position of a name in the list, plus 1; indexed by hash */
} tool_names;

static inline size_t tool_names_slot(const tool_names *t, str name) {
    size_t at = (size_t)(str_hash(STR_HASH_START, name) % TOOL_NAME_SLOTS);
    while (t->slots[at] != 0 && !str_eq(t->names[t->slots[at] - 1], name)) {
        at = (at + 1) % TOOL_NAME_SLOTS;
    }
    return at;
}

static inline bool tool_names_has(const tool_names *t, str name) {
    return t->slots[tool_names_slot(t, name)] != 0;
}

/* Adds a name; returns whether it was new. At most REQUEST_MAX_TOOLS names. */
static inline bool tool_names_add(tool_names *t, str name) {
    size_t at = tool_names_slot(t, name);
    if (t->slots[at] != 0) {
        return false;
    }
    t->names[t->n] = name;
    t->slots[at] = (uint16_t)++t->n;
    return true;
}

/* The rows against which the members of a body are validated. */
typedef struct body_rows {
    const field_desc *(*of)(str name, uint32_t endpoint); /* finds a member's row; NULL: none */
    uint32_t endpoint;
    /* set to the field whose value is too long, if the check fails for that; else NULL */
    const field_desc *over;
} body_rows;

/* The row of a request member. */
const field_desc *request_row(str name, uint32_t endpoint);
/* Checks an untrusted body without building anything: strict JSON within
 * REQUEST_MAX_BYTES, _VALUES, _CONTAINERS and _DEPTH and, if rows is given, each member
 * within its request_field_max_bytes. On failure err has the position, and param is
 * "body", "body.POSITION" or the field that is too large. */
quire_err request_check_body(str text, body_rows *rows, quire_error *err);
/* The same size limit for a value that comes alone. Text that is not JSON passes. */
quire_err request_check_size(const field_desc *f, str text, quire_error *err);

/* Makes a request of an endpoint with all fields at their defaults. QUIRE_NO_MEMORY. */
quire_err request_new(const request_context *ctx, quire_endpoint endpoint, quire_request **out,
                      quire_error *err);

/* Like request_set_field, and keeps v as long as the request lives; a conversation and
 * ids are copied instead. */
quire_err request_set_and_keep(quire_request *r, const field_desc *f, json_value *v, quire_error *err);

/* For dialect.assemble: the value of a field with FIELD_PART; NULL: not given. */
const json_value *request_part(const quire_request *r, const char *field);
/* Whether a field is part of the prompt, which a fork inherits. */
bool request_is_prompt_field(const field_desc *f);
/* For dialect.assemble: changes r's endpoint, keeping its fields. */
void request_become(quire_request *r, quire_endpoint endpoint);
/* Sets a field of a base dialect (FIELD_CHAT, FIELD_COMPLETIONS) to JSON text converted
 * from a dialect's own fields; errors name that field. If e, the result of writing the
 * text, is not QUIRE_OK, returns e. */
quire_err request_set_as(quire_request *r, uint32_t endpoint, const char *field, quire_err e,
                         const strbuf *json, quire_error *err);

/* Validates v (NULL: null) against the field's row and stores it. Stored texts point into
 * v. On failure r is unchanged. */
quire_err request_set_field(quire_request *r, const field_desc *f, const json_value *v, quire_error *err);

/* Stores a number at a field's place. */
void request_store_number(quire_request *r, const field_desc *f, double value);
/* Stores the default numbers of all fields of a new request. */
void request_store_defaults(quire_request *r);

/* ---- readers of fields, by file; errors as for request_set_field ---- */

/* read_attention.c */
field_reader request_read_attention;
/* read_chat.c */
field_reader request_read_template_kwargs, request_read_template, request_read_effort, request_read_verbosity,
    request_read_prediction, request_read_documents, request_read_conversations, request_read_messages;
/* read_completions.c */
field_reader request_read_prompt, request_read_suffix;
/* read_embeddings.c */
field_reader request_read_pooling, request_read_normalize, request_read_encoding, request_read_types,
    request_read_queries, request_read_candidates;
/* read_field.c. named_only: lists an ignored field by name */
field_reader request_read_add_special, request_read_logprobs, request_read_model, request_read_n,
    request_read_salt, request_read_seed, request_read_stream_options, request_read_truncation_side,
    request_read_request_id, request_read_named_only;
/* read_lists.c. set_scored: ids whose log-probabilities are reported at each position */
field_reader request_read_loras, request_read_stop, request_read_stop_tokens, request_read_logit_bias,
    request_set_scored, request_read_allowed, request_read_bad_words, request_read_breakers,
    request_read_early_stopping;
/* read_llama.c */
field_reader request_read_llama_prompt, request_read_infill_prompt, request_read_input_prefix,
    request_read_input_suffix, request_read_input_extra, request_read_n_probs, request_read_llama_rule,
    request_read_llama_bias, request_read_response_fields, request_read_samplers;
/* read_ollama.c */
field_reader request_read_ollama_model, request_read_keep_alive;
/* read_rules.c */
field_reader request_read_rule, request_read_structured, request_read_space, request_read_additional,
    request_read_numbers, request_read_order, request_read_format;
/* read_sglang.c */
field_reader request_read_sglang_text, request_read_sglang_ids, request_read_sglang_priority;
/* read_tokenize.c */
field_reader request_read_text, request_read_tokens, request_read_parse_special;
/* read_tools.c */
field_reader request_read_tools, request_read_functions, request_read_tool_choice;
/* request_read.c: keeps a field with FIELD_PART */
field_reader request_read_part;

/* Callbacks of dialects in request_read.c: required fields, and errors about long
 * prompts. */
quire_err request_check_generation(quire_request *r, quire_error *err);
quire_err request_require_prompt(const quire_request *r, quire_error *err);
/* Sets the text that begins the response of a chat with echo. */
void request_settle_echo(quire_request *r);
quire_err request_require_chat(const quire_request *r, quire_error *err);
quire_err request_long_prompt(int32_t limit, size_t n, const char *least, quire_error *err);
/* Arguments: "at least " or "", the number of tokens and the limit. */
#define REQUEST_TOO_LONG                                                                                     \
    "the prompt has %s%zu tokens; with at least one token to generate that is over the maximum context "     \
    "length of %d tokens"
quire_err request_long_chat(int32_t limit, size_t n, const char *least, quire_error *err);
quire_err request_long_responses(int32_t limit, size_t n, const char *least, quire_error *err);
quire_err request_require_responses(const quire_request *r, quire_error *err);
/* dialect.assemble of Responses (read_responses.c). */
quire_err request_assemble_responses(quire_request *r, quire_error *err);
quire_err request_long_input(int32_t limit, size_t n, const char *least, quire_error *err);

/* Errors about a field's value: wrong type (param "body.NAME", or body.NAME.INDEX for
 * index >= 0) or wrong size (param NAME). */
quire_err request_type_error(const field_desc *f, int64_t index, const json_value *v, const char *what,
                             quire_error *err);
quire_err request_range_error(const field_desc *f, quire_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Messages (read_messages.c): converts conversation and tools to a chat's; checks
 * required fields. */
quire_err request_assemble_messages(quire_request *r, quire_error *err);
quire_err request_require_messages(const quire_request *r, quire_error *err);

void request_continuation_deinit(request_continuation *c);

/* Ollama (read_ollama.c). */
quire_err request_assemble_ollama_chat(quire_request *r, quire_error *err);
quire_err request_assemble_ollama_generate(quire_request *r, quire_error *err);
/* Rows of the newer API have length 1; those of the older one are not normalised. */
quire_err request_check_ollama_rows(quire_request *r, quire_error *err);
/* llama.cpp's completions and infill (read_llama.c). */
quire_err request_check_llama(quire_request *r, quire_error *err);
quire_err request_check_infill(quire_request *r, quire_error *err);
/* SGLang (read_sglang.c): dialect.assemble, required fields and checks. */
void request_drop_each(quire_request *r); /* frees g.each */
quire_err request_assemble_sglang(quire_request *r, quire_error *err);
quire_err request_assemble_sglang_rows(quire_request *r, quire_error *err);
quire_err request_require_sglang(const quire_request *r, quire_error *err);
quire_err request_long_sglang(int32_t limit, size_t n, const char *least, quire_error *err);
quire_err request_check_sglang(quire_request *r, quire_error *err);
quire_err request_check_sglang_rows(quire_request *r, quire_error *err);
/* Writes the generation's settings as an object in llama.cpp's form (read_llama.c). */
void request_write_settings(const quire_request *r, json_out *o);
/* Sets the order of sampling stages by the field samplers or llama.cpp's default. */
quire_err request_settle_samplers(quire_request *r, quire_error *err);
/* Writes "samplers":[..]: the samplers in use, in their settled order. */
void request_write_samplers(const quire_request *r, json_out *o);
/* Refuses a prompt (`span` of the body) if a text in it is too long to fit, before
 * anything is built from it. */
quire_err request_check_prompt_length(const quire_request *r, str body, str span, quire_error *err);
quire_err request_check_batch(quire_request *r, quire_error *err);
/* Sets the biases of n valid ids; biases of a repeated id add up. */
quire_err request_set_biases(quire_request *r, const field_desc *f, const int32_t *ids, const float *bias,
                             size_t n, quire_error *err);
/* Writes a field of one text, an array of texts or NULL as an array. */
void request_write_texts(const json_value *v, json_out *o);
/* Writes the DRY sequence breakers in use, given or default, as an array. */
void request_write_breakers(const quire_request *r, json_out *o);
/* Checks that there are at most REQUEST_MAX_TOOLS tools, since their names are compared
 * pairwise. where: the list's name in errors. */
quire_err request_check_n_tools(const field_desc *f, const char *where, const json_value *tools,
                                quire_error *err);
/* Checks one of the field tools. */
quire_err request_check_tool(const field_desc *f, size_t i, const json_value *tool, quire_error *err);
/* Sets r->tools to the tools of all fields, as functions. */
quire_err request_settle_tools(quire_request *r, quire_error *err);
/* The custom part of a tool; NULL: not a custom tool (read_tools.c). */
const json_value *request_custom_of(const json_value *tool);
/* The grammar of a custom tool's input, an object with syntax and definition; NULL:
 * none. */
const json_value *request_custom_rule(const json_value *custom);
/* Whether that grammar is in Lark's notation. */
bool request_custom_is_lark(const json_value *custom);
str request_custom_lark(const json_value *custom);
/* Lists the names that tool_choice allows; none if it names no tools. */
void request_list_allowed(const quire_request *r, tool_names *out);
/* Checks a tool's name. where: its place, for the message. */
quire_err request_check_tool_name(const field_desc *f, const char *where, str name, quire_error *err);
/* Checks the custom part of tool i, except the grammar itself (answer/answer_bind.h). */
quire_err request_check_custom(const field_desc *f, size_t i, const json_value *custom, quire_error *err);
/* Writes the function that represents a custom tool. */
quire_err request_write_custom(const json_value *custom, json_out *o);
/* Scores and reranking (read_embeddings.c). */
quire_err request_check_scores(quire_request *r, quire_error *err);
void request_prompts_free(request_prompt *prompts, int32_t n);
/* Replaces r's prompts by prompts[0..n), allocated with mem_new. Takes them. */
void request_set_prompts(quire_request *r, request_prompt *prompts, size_t n);
/* Fields and checks of requests that only prepare prompts (read_tokenize.c). */
quire_err request_check_text(quire_request *r, quire_error *err);
quire_endpoint request_form_of_tokenize(str body);
quire_err request_check_conversation(quire_request *r, quire_error *err);
/* Removes what concerns a generated response. gives_ids: START must carry the ids. */
void request_end_with_prompts(quire_request *r, bool gives_ids);
/* The same for the RENDER endpoints (read_tokenize.c). */
quire_err request_check_render(quire_request *r, quire_error *err);
/* Reads an array of ids (read_completions.c). index >= 0: it is this element of an array
 * of prompts. */
quire_err request_read_ids(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                           request_prompt *out, quire_error *err);
/* Checks fields that cannot be combined with suffix (read_completions.c). */
quire_err request_check_fill(const quire_request *r, quire_error *err);

/* Adds an unknown member to the ignored ones. before: path to it, or "".
 * QUIRE_NO_MEMORY. */
quire_err request_ignore(quire_request *r, const char *before, str name);

/* ---- response_items.c: items of the Responses API ---- */

typedef struct item_reader item_reader;

/* Opens a reader that writes an array of chat messages to *messages and the items to
 * store to *kept: one complete object a line, starting with its id. *err is set by any
 * call that fails; it and everything read must outlive the reader. */
quire_err items_open(strbuf *messages, strbuf *kept, quire_error *err, item_reader **out);
/* Adds a system message before all others. */
void items_add_instructions(item_reader *t, const json_value *text);
/* Reads an array of items. list: its name in errors, as in "input". is_kept: also write
 * them to *kept. QUIRE_BAD_REQUEST: param is LIST[I].MEMBER. */
quire_err items_read_list(item_reader *t, const char *list, const json_value *items, bool is_kept);
/* Reads a text as a user message, and keeps it. */
quire_err items_read_text(item_reader *t, const json_value *text);
/* Writes a tool's name as the model knows it: NAMESPACE.NAME, or NAME if space is
 * empty. */
void items_write_name(str space, str name, json_out *o);
/* Frees the reader, which may be NULL. is_whole: finishes the array. Returns the first
 * failure to write it. */
quire_err items_close(item_reader *t, bool is_whole);

#endif
