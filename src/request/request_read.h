/* The functions that read the JSON of a request, for the .c files of this room and of
 * answer. */
#ifndef REQUEST_REQUEST_READ_H
#define REQUEST_REQUEST_READ_H

#include "request/request.h"
#include "json/json_out.h"

/* The names of a request's tools, each once, found by hash. */

enum { TOOL_NAME_SLOTS = 4 * REQUEST_MAX_TOOLS };

/* Zero-initialised: none. Texts are borrowed. */
typedef struct tool_names {
    str names[REQUEST_MAX_TOOLS];
    size_t n;
    uint16_t slots[TOOL_NAME_SLOTS]; /* where a name of that hash is in the list, plus 1 */
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

/* Whether it was none of them. At most REQUEST_MAX_TOOLS different ones may be added. */
static inline bool tool_names_add(tool_names *t, str name) {
    size_t at = tool_names_slot(t, name);
    if (t->slots[at] != 0) {
        return false;
    }
    t->names[t->n] = name;
    t->slots[at] = (uint16_t)++t->n;
    return true;
}

/* The rows of the table by which a body's members are validated. */
typedef struct body_rows {
    const field_desc *(*of)(str name, uint32_t endpoint); /* finds the row of a member; NULL: none */
    uint32_t endpoint;
    /* set where a check fails because the value of this field has more bytes than it may
     * have; else NULL */
    const field_desc *over;
} body_rows;

/* The row of a request's member. */
const field_desc *request_row(str name, uint32_t endpoint);
/* Checks a body of hostile origin without building anything: strict JSON, at most
 * REQUEST_MAX_BYTES, REQUEST_MAX_VALUES, REQUEST_MAX_CONTAINERS and REQUEST_MAX_DEPTH; no
 * member has more bytes than its row says (request_field_max_bytes), where there are
 * rows. On failure err has the position, and param is "body", "body.POSITION" or the
 * field that is too large. */
quire_err request_check_body(str text, body_rows *rows, quire_error *err);
/* The same bound for a value that comes alone; one that is not JSON passes here. */
quire_err request_check_size(const field_desc *f, str text, quire_error *err);

/* A new request of an endpoint, with every field at its default. QUIRE_NO_MEMORY. */
quire_err request_new(const request_context *ctx, quire_endpoint endpoint, quire_request **out,
                      quire_error *err);

/* Sets a field as request_set_field does, and keeps v as long as the request (except a
 * conversation and ids, which are copied). */
quire_err request_set_and_keep(quire_request *r, const field_desc *f, json_value *v, quire_error *err);

/* The value of a field with FIELD_PART, or NULL: it was not given. For
 * dialect.assemble. */
const json_value *request_part(const quire_request *r, const char *field);
/* Whether a field is the conversation, or a part of it, which a fork has already. */
bool request_is_prompt_field(const field_desc *f);
/* Makes r a request of another endpoint with the same fields. For dialect.assemble. */
void request_become(quire_request *r, quire_endpoint endpoint);
/* Sets a field of another dialect (FIELD_CHAT, FIELD_COMPLETIONS), which exists, from the
 * JSON text that a dialect's own fields become. Errors name that field; e != QUIRE_OK:
 * that text could not be written, which is the result. */
quire_err request_set_as(quire_request *r, uint32_t endpoint, const char *field, quire_err e,
                         const strbuf *json, quire_error *err);

/* Validates v (NULL: null) by the field's row and stores it. On failure r is unchanged.
 * Texts point into v. */
quire_err request_set_field(quire_request *r, const field_desc *f, const json_value *v, quire_error *err);

/* Stores a number where the row of a field says. */
void request_store_number(quire_request *r, const field_desc *f, double value);
/* Stores the defaults of all fields of a new request, which are numbers. */
void request_store_defaults(quire_request *r);

/* ---- the readers of fields, by file; errors as of request_set_field ---- */

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
/* read_field.c; named_only: a field without effect is named among the ignored */
field_reader request_read_add_special, request_read_logprobs, request_read_model, request_read_n,
    request_read_salt, request_read_seed, request_read_stream_options, request_read_truncation_side,
    request_read_request_id, request_read_named_only;
/* read_lists.c; set_scored: ids whose log-probabilities are reported at each position */
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
/* request_read.c: a field with FIELD_PART is kept */
field_reader request_read_part;

/* Rows of request_read.c: what they must have, and errors of prompts that are too
 * long. */
quire_err request_check_generation(quire_request *r, quire_error *err);
quire_err request_require_prompt(const quire_request *r, quire_error *err);
/* Sets the text with which the response of a chat with echo begins. */
void request_settle_echo(quire_request *r);
quire_err request_require_chat(const quire_request *r, quire_error *err);
quire_err request_long_prompt(int32_t limit, size_t n, const char *least, quire_error *err);
/* Of "at least " or "", the number of tokens and the limit. */
#define REQUEST_TOO_LONG                                                                                     \
    "the prompt has %s%zu tokens; with at least one token to generate that is over the maximum context "     \
    "length of %d tokens"
quire_err request_long_chat(int32_t limit, size_t n, const char *least, quire_error *err);
quire_err request_long_responses(int32_t limit, size_t n, const char *least, quire_error *err);
quire_err request_require_responses(const quire_request *r, quire_error *err);
/* The dialect of responses (read_responses.c): dialect.assemble. */
quire_err request_assemble_responses(quire_request *r, quire_error *err);
quire_err request_long_input(int32_t limit, size_t n, const char *least, quire_error *err);

/* Errors about a field: a value of the wrong type (param "body.NAME", or body.NAME.INDEX
 * for index >= 0), or of the wrong size (param NAME). */
quire_err request_type_error(const field_desc *f, int64_t index, const json_value *v, const char *what,
                             quire_error *err);
quire_err request_range_error(const field_desc *f, quire_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The dialect of messages (read_messages.c): its conversation and tools as a chat's, and
 * what must be given. */
quire_err request_assemble_messages(quire_request *r, quire_error *err);
quire_err request_require_messages(const quire_request *r, quire_error *err);

void request_continuation_deinit(request_continuation *c);

/* The dialects of Ollama (read_ollama.c). */
quire_err request_assemble_ollama_chat(quire_request *r, quire_error *err);
quire_err request_assemble_ollama_generate(quire_request *r, quire_error *err);
/* The rows of the newer form have length 1; those of the older are as they are pooled. */
quire_err request_check_ollama_rows(quire_request *r, quire_error *err);
/* llama.cpp's completions, and the gap of infill (read_llama.c). */
quire_err request_check_llama(quire_request *r, quire_error *err);
quire_err request_check_infill(quire_request *r, quire_error *err);
/* SGLang's forms (read_sglang.c): dialect.assemble, what must be given, and the checks. */
void request_drop_each(quire_request *r); /* frees g.each */
quire_err request_assemble_sglang(quire_request *r, quire_error *err);
quire_err request_assemble_sglang_rows(quire_request *r, quire_error *err);
quire_err request_require_sglang(const quire_request *r, quire_error *err);
quire_err request_long_sglang(int32_t limit, size_t n, const char *least, quire_error *err);
quire_err request_check_sglang(quire_request *r, quire_error *err);
quire_err request_check_sglang_rows(quire_request *r, quire_error *err);
/* Writes the settings of the generation, an object in llama.cpp's form
 * (read_llama.c). */
void request_write_settings(const quire_request *r, json_out *o);
/* Sets the order of the sampling stages that samplers, or llama.cpp's default, asks for. */
quire_err request_settle_samplers(quire_request *r, quire_error *err);
/* Writes "samplers":[..], the samplers in use in their order, once they are settled. */
void request_write_samplers(const quire_request *r, json_out *o);
/* Refuses a prompt, given as its part of the body, if a text in it cannot fit by its
 * length, before anything is built of it. */
quire_err request_check_prompt_length(const quire_request *r, str body, str span, quire_error *err);
quire_err request_check_batch(quire_request *r, quire_error *err);
/* Sets the biases of n ids of the vocabulary; those of an id twice add up. */
quire_err request_set_biases(quire_request *r, const field_desc *f, const int32_t *ids, const float *bias,
                             size_t n, quire_error *err);
/* Writes the texts of a field that has one or an array of them, or is NULL, as an
 * array. */
void request_write_texts(const json_value *v, json_out *o);
/* Writes an array of the texts that no repeat reaches across, given or usual. */
void request_write_breakers(const quire_request *r, json_out *o);
/* Checks that there are at most REQUEST_MAX_TOOLS, which are compared by name with each
 * other; error texts call them `where`. */
quire_err request_check_n_tools(const field_desc *f, const char *where, const json_value *tools,
                                quire_error *err);
/* Checks one of the field tools. */
quire_err request_check_tool(const field_desc *f, size_t i, const json_value *tool, quire_error *err);
/* Sets r->tools: what the fields have, as functions. */
quire_err request_settle_tools(quire_request *r, quire_error *err);
/* The custom part of a tool; NULL: not a custom tool (read_tools.c). */
const json_value *request_custom_of(const json_value *tool);
/* The grammar of a custom tool's text, an object with syntax and definition; NULL:
 * none. */
const json_value *request_custom_rule(const json_value *custom);
/* The text of that grammar, if it is in Lark's notation; else empty. */
bool request_custom_is_lark(const json_value *custom);
str request_custom_lark(const json_value *custom);
/* Lists the names that tool_choice allows; none if it names no tools. */
void request_list_allowed(const quire_request *r, tool_names *out);
/* Checks a tool's name. where: its place, for the message. */
quire_err request_check_tool_name(const field_desc *f, const char *where, str name, quire_error *err);
/* Checks the custom part of tool i, all but what its grammar says
 * (answer/answer_bind.h). */
quire_err request_check_custom(const field_desc *f, size_t i, const json_value *custom, quire_error *err);
/* Writes the function that stands for a custom tool. */
quire_err request_write_custom(const json_value *custom, json_out *o);
/* Scores and reranking (read_embeddings.c). */
quire_err request_check_scores(quire_request *r, quire_error *err);
void request_prompts_free(request_prompt *prompts, int32_t n);
/* Replaces r's prompts with prompts[0..n), mem_new'd, which r takes. */
void request_set_prompts(quire_request *r, request_prompt *prompts, size_t n);
/* Fields and checks of requests that end with their prompts (read_tokenize.c). */
quire_err request_check_text(quire_request *r, quire_error *err);
quire_endpoint request_form_of_tokenize(str body);
quire_err request_check_conversation(quire_request *r, quire_error *err);
/* Drops what concerns a generation's response. gives_ids: START's ids are wanted. */
void request_end_with_prompts(quire_request *r, bool gives_ids);
/* The same of a request whose rendered form is wanted (read_tokenize.c). */
quire_err request_check_render(quire_request *r, quire_error *err);
/* Reads an array of ids (read_completions.c). index >= 0: it is that element of the
 * prompt array. */
quire_err request_read_ids(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                           request_prompt *out, quire_error *err);
/* Checks the fields that exclude suffix (read_completions.c). */
quire_err request_check_fill(const quire_request *r, quire_error *err);

/* Adds an unknown member to the list of ignored ones, as `before` (the path to it, or "")
 * and its name. QUIRE_NO_MEMORY. */
quire_err request_ignore(quire_request *r, const char *before, str name);

/* ---- response_items.c: items of Responses ---- */

typedef struct item_reader item_reader;

/* Opens a reader that writes an array of messages to *messages and, a line each, the
 * items as they are kept to *kept: complete objects, each of which begins with its id.
 * What is read must outlive the reader, and *err too, which is set after a failure of any
 * call. */
quire_err items_open(strbuf *messages, strbuf *kept, quire_error *err, item_reader **out);
/* Adds a system message of a text, before all others. */
void items_add_instructions(item_reader *t, const json_value *text);
/* Reads an array of items. list: how errors name it, "input"; is_kept: they are written
 * to *kept. QUIRE_BAD_REQUEST, whose param is LIST[I].MEMBER. */
quire_err items_read_list(item_reader *t, const char *list, const json_value *items, bool is_kept);
/* Reads a text, which is a message of a user, and keeps it. */
quire_err items_read_text(item_reader *t, const json_value *text);
/* Writes the name of a tool as the model knows it: NAMESPACE.NAME, or NAME where space is
 * empty. */
void items_write_name(str space, str name, json_out *o);
/* Frees the reader, which may be NULL. is_whole: ends the array. The first failure of
 * writing it. */
quire_err items_close(item_reader *t, bool is_whole);

#endif
