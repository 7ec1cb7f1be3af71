/* Makes requests from bodies: checks the whole body, reads it field by field, then checks
 * that fields agree. */
#include "request/request.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_foreign.h"
#include "request/request_read.h"
#include "json/json_out.h"
#include "json/json_scan.h"

/* ---- dialects ---- */

enum {
    LISTED_BYTES = 32,     /* response bytes of a token and its log-probability in a completion */
    CHAT_LISTED_BYTES = 96 /* the same in a chat, which also lists the token's bytes */
};

/* What dialects have in common: chats, pooled rows, completions, and those that only
 * prepare a prompt of any length. */
#define CHATS(field) .is_chat = true, .adds_bos = true, .prompt = field, .listed_bytes = CHAT_LISTED_BYTES
#define ROWS(field, checks)                                                                                  \
    .gives_rows = true, .adds_special = true, .prompt = field, .check = checks, .too_long = request_long_input
#define COMPLETES                                                                                            \
    .adds_special = true, .prompt = "prompt", .required = request_require_prompt,                            \
    .too_long = request_long_prompt
#define ENDS(field, checks, over)                                                                            \
    .prompt_only = true, .any_length = true, .prompt = field, .check = checks, .too_long = over

const dialect request_dialects[] = {
    [QUIRE_COMPLETIONS] = {.fields = FIELD_COMPLETIONS,
                           COMPLETES,
                           .may_be_prepared = true,
                           .listed_bytes = LISTED_BYTES,
                           .check = request_check_generation},
    [QUIRE_CHAT] = {.fields = FIELD_CHAT,
                    CHATS("prompt"),
                    .may_be_prepared = true,
                    .check = request_check_generation,
                    .required = request_require_chat,
                    .too_long = request_long_chat},
    [QUIRE_OLLAMA_CHAT] = {.fields = FIELD_OLLAMA_CHAT,
                           CHATS("prompt"),
                           .base = FIELD_CHAT,
                           .check = request_check_generation,
                           .assemble = request_assemble_ollama_chat,
                           .required = request_require_chat,
                           .too_long = request_long_chat},
    [QUIRE_OLLAMA_GENERATE] = {.fields = FIELD_OLLAMA_GENERATE,
                               CHATS("prompt"),
                               .base = FIELD_CHAT,
                               .check = request_check_generation,
                               .assemble = request_assemble_ollama_generate,
                               .required = request_require_chat,
                               .too_long = request_long_chat},
    [QUIRE_OLLAMA_RAW] = {.fields = FIELD_OLLAMA_GENERATE,
                          COMPLETES,
                          .base = FIELD_COMPLETIONS,
                          .listed_bytes = LISTED_BYTES,
                          .check = request_check_generation,
                          .assemble = request_assemble_ollama_generate},
    [QUIRE_MESSAGES] = {.fields = FIELD_MESSAGES_API,
                        CHATS("messages"),
                        .base = FIELD_CHAT,
                        .check = request_check_generation,
                        .assemble = request_assemble_messages,
                        .required = request_require_messages,
                        .too_long = request_long_chat},
    [QUIRE_EMBEDDINGS] = {.fields = FIELD_EMBEDDINGS, ROWS("input", request_check_embedding)},
    [QUIRE_OLLAMA_EMBED] = {.fields = FIELD_OLLAMA_EMBED, ROWS("input", request_check_ollama_rows)},
    [QUIRE_OLLAMA_EMBEDDINGS] = {.fields = FIELD_OLLAMA_EMBEDDINGS,
                                 ROWS("prompt", request_check_ollama_rows)},
    [QUIRE_RESPONSES] = {.fields = FIELD_RESPONSES,
                         CHATS("input"),
                         .base = FIELD_CHAT,
                         .check = request_check_generation,
                         .assemble = request_assemble_responses,
                         .required = request_require_responses,
                         .too_long = request_long_responses},
    [QUIRE_POOLING] = {.fields = FIELD_EMBEDDINGS, ROWS("input", request_check_embedding)},
    [QUIRE_EMBEDDING] = {.fields = FIELD_EMBEDDINGS | FIELD_EMBEDDING,
                         ROWS("input", request_check_embedding)},
    [QUIRE_SCORE] = {.fields = FIELD_SCORE, ROWS("text_2", request_check_scores)},
    [QUIRE_RERANK] = {.fields = FIELD_RERANK, ROWS("documents", request_check_scores)},
    [QUIRE_RERANKING] = {.fields = FIELD_RERANK, ROWS("documents", request_check_scores)},
    [QUIRE_COMPLETIONS_RENDER] = {.fields = FIELD_COMPLETIONS,
                                  COMPLETES,
                                  .prompt_only = true,
                                  .listed_bytes = LISTED_BYTES,
                                  .check = request_check_render},
    [QUIRE_CHAT_BATCH] = {.fields = FIELD_CHAT | FIELD_CHAT_BATCH,
                          CHATS("prompt"),
                          .is_batch = true,
                          .check = request_check_batch,
                          .required = request_require_chat,
                          .too_long = request_long_chat},
    [QUIRE_CHAT_RENDER] = {.fields = FIELD_CHAT,
                           CHATS("prompt"),
                           .prompt_only = true,
                           .check = request_check_render,
                           .required = request_require_chat,
                           .too_long = request_long_chat},
    [QUIRE_TOKENIZE] = {.fields = FIELD_TOKENIZE,
                        ENDS("prompt", request_check_text, request_long_prompt),
                        .adds_special = true,
                        .form_of = request_form_of_tokenize},
    [QUIRE_TOKENIZE_CHAT] = {.fields = FIELD_CHAT | FIELD_TOKENIZE,
                             ENDS("messages", request_check_conversation, request_long_chat),
                             .is_chat = true,
                             .adds_bos = true},
    [QUIRE_TOKENIZE_CONTENT] = {.fields = FIELD_CONTENT,
                                ENDS("content", request_check_text, request_long_prompt)},
    [QUIRE_DETOKENIZE] = {.fields = FIELD_DETOKENIZE,
                          ENDS("tokens", request_check_text, request_long_prompt)},
    [QUIRE_APPLY_TEMPLATE] = {.fields = FIELD_CHAT,
                              ENDS("messages", request_check_conversation, request_long_chat),
                              .is_chat = true},
    [QUIRE_LLAMA_COMPLETION] = {.fields = FIELD_LLAMA,
                                COMPLETES,
                                .takes_no_tokens = true,
                                .listed_bytes = CHAT_LISTED_BYTES,
                                .check = request_check_llama},
    [QUIRE_LLAMA_INFILL] = {.fields = FIELD_LLAMA | FIELD_INFILL,
                            COMPLETES,
                            .takes_no_tokens = true,
                            .listed_bytes = CHAT_LISTED_BYTES,
                            .check = request_check_infill},
    [QUIRE_SGLANG_GENERATE] = {.fields = FIELD_SGLANG,
                               .base = FIELD_SGLANG,
                               .adds_special = true,
                               .takes_no_tokens = true,
                               .streams_prompt = true,
                               .prompt = "text",
                               .listed_bytes = CHAT_LISTED_BYTES,
                               .check = request_check_sglang,
                               .assemble = request_assemble_sglang,
                               .required = request_require_sglang,
                               .too_long = request_long_sglang},
    [QUIRE_SGLANG_ENCODE] = {.fields = FIELD_SGLANG_ENCODE,
                             ROWS("text", request_check_sglang_rows),
                             .base = FIELD_SGLANG_ENCODE,
                             .assemble = request_assemble_sglang_rows},
};

/* ---- new requests ---- */

/* Sets the endpoint and its defaults in a request without fields. */
static void set_endpoint(quire_request *r, quire_endpoint endpoint) {
    r->g.info.endpoint = endpoint;
    r->g.more.prompt_only = dialect_of(&r->g)->prompt_only;
    r->g.add_special = dialect_of(&r->g)->adds_special;
    r->g.add_bos = dialect_of(&r->g)->adds_bos;
    request_store_defaults(r);
    request_count_choices(r);
}

quire_err request_new(const request_context *ctx, quire_endpoint endpoint, quire_request **out,
                      quire_error *err) {
    *out = NULL;
    quire_request *r = mem_new(1, sizeof *r);
    TRY(mem_check_for(r, "a request", err));
    r->context = *ctx;
    r->g.more.size = sizeof r->g.more;
    r->n = 1;
    r->best_of = r->beam_width = -1;
    request_count_choices(r);
    r->g.truncate_prompt_tokens = GENERATION_UNCUT;
    r->g.max_prompt_tokens = -1;
    r->g.prompt_logprobs_start = 1;
    r->g.keeps_end = r->max_completion_tokens = r->g.thinking_budget = r->g.max_tool_calls = r->n_logprobs =
        r->n_prompt_logprobs = r->g.info.logprobs = r->g.info.prompt_logprobs = -1;
    r->g.cache_priority = r->pooling_kind = r->dimensions = r->normalize = -1;
    r->g.json_space = ctx->json_space;
    r->g.json_additional = ctx->opens_objects ? GRAMMAR_ADDITIONAL_SCHEMA : GRAMMAR_ADDITIONAL_CLOSED;
    sampling_params_init(&r->g.sampling);
    set_endpoint(r, endpoint);
    *out = r;
    return QUIRE_OK;
}

void request_continuation_deinit(request_continuation *c) {
    mem_free(c->ids);
    strbuf_deinit(&c->after);
    strbuf_deinit(&c->before);
    text_marks_deinit(&c->plain);
    *c = (request_continuation){0};
}

void request_drop_each(quire_request *r) {
    assert(r != NULL);
    for (int32_t i = 0; i < r->n_each; i++) {
        sampling_lists_drop(r->g.each[i].lists);
    }
    mem_free(r->g.each);
    r->g.each = NULL;
    r->n_each = 0;
}

void request_free(quire_request *r) {
    if (r == NULL) {
        return;
    }
    request_prompts_free(r->g.prompts, r->g.n_prompts);
    mem_free(r->texts);
    chat_messages_deinit(&r->g.messages);
    json_drop(r->given_tools);
    json_drop(r->plain_tools);
    strbuf_deinit(&r->rule_text);
    mem_free(r->offered);
    mem_free(r->fill.files);
    request_continuation_deinit(&r->continuation);
    strbuf_deinit(&r->ignored);
    strbuf_deinit(&r->model);
    strbuf_deinit(&r->prediction);
    strbuf_deinit(&r->response_members);
    strbuf_deinit(&r->response_input);
    strbuf_deinit(&r->response_previous);
    tool_spaces_deinit(&r->tool_spaces);
    strbuf_deinit(&r->rendered);
    strbuf_deinit(&r->settings);
    strbuf_deinit(&r->response_paths);
    strbuf_deinit(&r->own_salt);
    strbuf_deinit(&r->adapter);
    strbuf_deinit(&r->names);
    request_drop_each(r);
    sampling_lists_drop(r->g.sampling.lists);
    attn_mods_drop(r->g.mods);
    for (size_t i = 0; i < r->n_values; i++) {
        json_drop(r->values[i].value);
    }
    mem_free(r->values);
    mem_free(r);
}

size_t request_text_bytes(const quire_request *r) {
    assert(r != NULL);
    size_t n = r->g.messages.json.n + r->fill.before.n + r->fill.after.n + r->g.prediction.n;
    for (size_t i = 0; i < r->fill.n_files; i++) {
        n += r->fill.files[i].text.n;
    }
    for (int32_t i = 0; i < r->g.n_prompts; i++) {
        n += r->g.prompts[i].text.n + r->g.prompts[i].pair.n;
    }
    return n;
}

void request_drop_texts(quire_request *r) {
    assert(r != NULL);
    bool is_shown = r->g.info.echo;
    for (size_t i = 0; i < r->n_values; i++) {
        field_type type = r->values[i].field->type;
        bool is_echoed = r->g.more.echo != NULL; /* g.more.echo points into the messages */
        if ((type == FIELD_MESSAGES && !is_echoed) || (type == FIELD_PROMPT && !is_shown)) {
            json_drop(r->values[i].value);
            r->values[i].value = NULL;
        }
    }
    for (int32_t i = 0; i < r->g.n_prompts && !is_shown; i++) {
        r->g.prompts[i].text = (str){0};
    }
    chat_messages_deinit(&r->g.messages);
    r->given_messages = NULL;
}

quire_err request_set_and_keep(quire_request *r, const field_desc *f, json_value *v, quire_error *err) {
    assert(r != NULL && f != NULL);
    bool copied = (f->flags & FIELD_IGNORED) != 0;
    if (mem_grow(&r->values, &r->cap_values, r->n_values + 1, sizeof *r->values) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    TRY(request_set_field(r, f, v, err));
    request_count_choices(r);
    bool is_ids = f->type == FIELD_PROMPT && r->g.n_prompts > 0 && r->g.prompts[0].ids != NULL;
    if (!copied && !is_ids) {
        r->values[r->n_values++] = (request_value){f, json_share(v)};
    }
    return QUIRE_OK;
}

/* ---- dialects that convert their conversation ---- */

const json_value *request_part(const quire_request *r, const char *field) {
    assert(r != NULL);
    const json_value *found = NULL; /* the last one wins */
    for (size_t i = 0; i < r->n_values; i++) {
        bool is = (r->values[i].field->flags & FIELD_PART) && strcmp(r->values[i].field->name, field) == 0;
        found = is ? r->values[i].value : found;
    }
    return found;
}

quire_err request_read_part(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    (void)r, (void)f, (void)v, (void)err;
    return QUIRE_OK;
}

void request_become(quire_request *r, quire_endpoint endpoint) {
    assert(request_dialects[endpoint].fields == dialect_of(&r->g)->fields);
    r->g.info.endpoint = endpoint;
    r->g.add_special = dialect_of(&r->g)->adds_special;
    r->g.add_bos = dialect_of(&r->g)->adds_bos;
    request_count_choices(r);
}

quire_err request_set_as(quire_request *r, uint32_t endpoint, const char *field, quire_err e,
                         const strbuf *json, quire_error *err) {
    const field_desc *f = request_field(field, endpoint);
    json_value *v;
    assert(f != NULL);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "out of memory for %s", field);
    }
    TRY(request_read_value((str){json->p, json->n}, 0, field, &v, err));
    e = request_set_and_keep(r, f, v, err);
    json_drop(v);
    return e;
}

/* Converts the fields with FIELD_PART to the base dialect's, and drops them. */
static quire_err request_assemble(quire_request *r, quire_error *err) {
    size_t n_parts = 0, n = 0;
    for (size_t i = 0; i < r->n_values; i++) {
        n_parts += (r->values[i].field->flags & FIELD_PART) != 0;
    }
    if (n_parts == 0 || dialect_of(&r->g)->assemble == NULL) {
        return QUIRE_OK;
    }
    TRY(dialect_of(&r->g)->assemble(r, err));
    for (size_t i = 0; i < r->n_values; i++) {
        if (r->values[i].field->flags & FIELD_PART) {
            json_drop(r->values[i].value);
        } else {
            r->values[n++] = r->values[i];
        }
    }
    r->n_values = n;
    return QUIRE_OK;
}

bool request_is_prompt_field(const field_desc *f) {
    return f->type == FIELD_PROMPT || f->type == FIELD_MESSAGES || (f->flags & FIELD_PART) ||
           (f->flags & FIELD_INFILL) || f->read == request_read_suffix;
}

/* The member's text, or a short value of the same type if only the type matters, to avoid
 * building a large value that is not used. */
static str worth_building(const field_desc *f, str span) {
    bool only_kind = (f->flags & (FIELD_IGNORED | FIELD_LATER)) && span.n > 4096;
    return !only_kind ? span : span.p[0] == '{' ? str_of("{}") : span.p[0] == '[' ? str_of("[0]") : span;
}

/* Reads one member of a body; span is its value. */
static quire_err request_read_member(quire_request *r, const field_desc *f, str body, str span,
                                     quire_error *err) {
    json_value *v;
    if (f->type == FIELD_PROMPT && r->fork_from == NULL) {
        TRY(request_check_prompt_length(r, body, span, err));
    }
    TRY(request_read_value(worth_building(f, span), (size_t)(span.p - body.p), f->name, &v, err));
    quire_err e;
    if (r->fork_from != NULL && v != NULL && request_is_prompt_field(f)) {
        e = err_set_param(
            err, QUIRE_BAD_REQUEST, f->name,
            "%s is given, but a fork has the prompt of the stream that it was forked from; leave it out",
            f->name);
    } else {
        e = request_set_and_keep(r, f, v, err);
    }
    json_drop(v);
    return e;
}

/* Handles an unknown member: null is ignored, others may be refused. */
static quire_err read_foreign(quire_request *r, str name, str span, quire_error *err) {
    const char *instead;
    if (str_is(span, "null")) {
        return QUIRE_OK;
    }
    if (!foreign_changes_generation(name, dialect_of(&r->g)->fields, &instead)) {
        return err_set(err, request_ignore(r, "", name), -1, "out of memory");
    }
    char field[64]; /* known names are shorter */
    snprintf(field, sizeof field, "%.*s", (int)name.n, name.p);
    return instead != NULL
               ? err_set_param(err, QUIRE_BAD_REQUEST, field, "%s is not a field here; use %s", field,
                               instead)
               : err_set_param(err, QUIRE_BAD_REQUEST, field, "%s is not supported; leave it out", field);
}

const field_desc *request_row(str name, uint32_t endpoint) {
    char text[64];
    if (name.n >= sizeof text || (name.n > 0 && memchr(name.p, '.', name.n) != NULL)) {
        return NULL;
    }
    memcpy(text, name.p, name.n);
    text[name.n] = 0;
    return request_field(text, endpoint);
}

/* Reads all fields of a checked body, which is an object. For a fork, fields that the
 * parent determines are refused. */
static quire_err read_members(quire_request *r, str body, strbuf *scratch, quire_error *err) {
    json_scan s = {.text = body};
    bool more;
    TRY(json_scan_open(&s, '{'));
    for (;;) {
        str name, span;
        TRY(err_set(err, json_scan_next(&s, scratch, &name, &span, &more), -1,
                    "out of memory for a request"));
        if (!more) {
            return QUIRE_OK;
        }
        const field_desc *f = request_row(name, dialect_of(&r->g)->fields);
        TRY(f != NULL ? request_read_member(r, f, body, span, err) : read_foreign(r, name, span, err));
    }
}

quire_err request_look(quire_endpoint endpoint, str begin, quire_error *err) {
    body_rows rows = {.of = request_row, .endpoint = request_dialects[endpoint].fields};
    quire_error found = {0};
    if (request_check_body(begin, &rows, &found) == QUIRE_OK || rows.over == NULL) {
        return QUIRE_OK;
    }
    *err = found;
    return found.code;
}

static quire_err read_body(quire_request *r, const char *text, size_t n, quire_error *err) {
    str body = {text, n};
    strbuf scratch = {0};
    body_rows rows = {.of = request_row, .endpoint = dialect_of(&r->g)->fields};
    TRY(request_check_body(body, &rows, err));
    if (json_scan_peek(&(json_scan){.text = body}) != '{') {
        char brief[JSON_BRIEF_BYTES];
        json_value *v = NULL;
        bool is_array = json_scan_peek(&(json_scan){.text = body}) == '[';
        if (!is_array) {
            TRY(request_read_value(body, 0, NULL, &v, err));
        }
        err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body is %s; it must be a JSON object",
                      is_array ? "an array" : json_brief(v, brief));
        json_drop(v);
        return QUIRE_BAD_REQUEST;
    }
    const dialect *d = dialect_of(&r->g);
    quire_endpoint form = d->form_of != NULL ? d->form_of(body) : r->g.info.endpoint;
    if (d != &request_dialects[form]) {
        set_endpoint(r, form);
        rows = (body_rows){.of = request_row, .endpoint = dialect_of(&r->g)->fields};
        TRY(request_check_body(body, &rows, err));
    }
    quire_err e = read_members(r, body, &scratch, err);
    strbuf_deinit(&scratch);
    return e;
}

/* Checks required fields: a chat needs messages and a model that can chat; a completion
 * needs a prompt. */
static quire_err check_required(const quire_request *r, quire_error *err) {
    if (r->context.no_tokens) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       r->context.pooling.n_scores > 0
                           ? "this model gives scores, not text: use POST /v1/score, /v1/rerank, or quire "
                             "run --embed --text-pair"
                           : "this model gives embeddings, not text: use POST /v1/embeddings, or quire run "
                             "--embed, quire_embed");
    }
    if (r->fork_from != NULL) {
        if (r->g.info.beam_width > 0) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "beam_width",
                                 "beam_width is given, but a fork continues by sampling; leave it out");
        }
        return r->n_prompt_logprobs < 0 ? QUIRE_OK
                                        : err_set_param(err, QUIRE_BAD_REQUEST, "prompt_logprobs",
                                                        "prompt_logprobs is given, but a fork does not "
                                                        "compute its prompt again; leave it out");
    }
    return dialect_of(&r->g)->required(r, err);
}

void request_count_choices(quire_request *r) {
    const dialect *d = dialect_of(&r->g);
    int32_t n_prompts = d->is_chat && !d->is_batch ? 1 : r->g.n_prompts;
    r->g.info.n_best = r->n;
    r->g.info.beam_width = r->g.beams.width = request_beam_width(r);
    r->g.info.n_samples = r->best_of > r->n && r->g.info.beam_width == 0 ? r->best_of : r->n;
    /* at most REQUEST_MAX_PROMPTS * PARAMS_MAX_CHOICES */
    r->g.info.n_choices = n_prompts * r->g.info.n_samples;
}

static quire_err check_choices(const quire_request *r, quire_error *err) {
    if (r->best_of >= 0 && r->best_of < r->n) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "best_of",
                             "best_of is %d; it must be at least n, which is %d", (int)r->best_of, (int)r->n);
    }
    if (r->g.info.n_samples > r->n && r->g.info.stream) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "best_of",
                             "best_of cannot be streamed; leave best_of or stream out");
    }
    if (r->g.info.n_choices > PARAMS_MAX_CHOICES) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "n",
                             "the request asks for %d answers in all; at most %d are allowed",
                             (int)r->g.info.n_choices, PARAMS_MAX_CHOICES);
    }
    return QUIRE_OK;
}

/* Sets the numbers of log-probabilities to report. With echo, logprobs includes the
 * prompt's. */
static quire_err check_logprobs(quire_request *r, quire_error *err) {
    quire_request_info *i = &r->g.info;
    if (r->n_top_logprobs > 0 && r->n_logprobs < 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "top_logprobs",
                             "top_logprobs needs logprobs; set logprobs to true");
    }
    if (r->n_top_logprobs > PARAMS_MAX_LOGPROBS) { /* OpenAI's error names logprobs */
        return err_set_param(err, QUIRE_BAD_REQUEST, "logprobs",
                             "top_logprobs is %d; it must be from 0 to %d", (int)r->n_top_logprobs,
                             PARAMS_MAX_LOGPROBS);
    }
    if (i->stream && r->n_prompt_logprobs > 0 && !dialect_of(&r->g)->streams_prompt) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prompt_logprobs",
                             "prompt_logprobs cannot be streamed; leave stream out");
    }
    /* chats: n_logprobs is 0 if true; completions: n_top_logprobs is unset */
    i->logprobs = r->n_logprobs == 0 ? r->n_top_logprobs : r->n_logprobs;
    i->prompt_logprobs = i->echo && i->logprobs > r->n_prompt_logprobs ? i->logprobs : r->n_prompt_logprobs;
    if (r->echoes_message && !i->stream && i->prompt_logprobs < 0) {
        i->prompt_logprobs = r->n_top_logprobs; /* the message that a chat echoes is part of its prompt */
    }
    r->g.prompt_logprobs_start = r->g.prompt_logprobs_start > 1 ? r->g.prompt_logprobs_start : 1;
    i->logprobs = i->logprobs < r->context.n_vocab ? i->logprobs : r->context.n_vocab;
    i->prompt_logprobs = i->prompt_logprobs < r->context.n_vocab ? i->prompt_logprobs : r->context.n_vocab;
    int32_t most = i->logprobs > i->prompt_logprobs ? i->logprobs : i->prompt_logprobs;
    /* at PARAMS_MAX_LOGPROBS the option sets no limit: some dialects allow more */
    bool is_bounded = r->context.max_logprobs > 0 && r->context.max_logprobs < PARAMS_MAX_LOGPROBS;
    if (is_bounded && most > r->context.max_logprobs) {
        return err_set_param(err, QUIRE_BAD_REQUEST, i->logprobs == most ? "logprobs" : "prompt_logprobs",
                             "the request asks for log-probabilities of %d tokens at each position; this "
                             "server returns at most %d (--max-logprobs)",
                             (int)most, (int)r->context.max_logprobs);
    }
    /* an explicit prompt_logprobs was refused before */
    if (r->fork_from != NULL && i->prompt_logprobs >= 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "echo",
                             "echo with logprobs needs the log-probabilities of the fork's prompt, which it "
                             "does not compute; leave echo out, or give null for logprobs");
    }
    return QUIRE_OK;
}

/* The endpoint's name for the field stored at a place. */
static const char *request_name_at(const quire_request *r, size_t place, const char *otherwise) {
    int32_t n;
    const field_desc *f = request_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        if ((f[i].flags & dialect_of(&r->g)->fields) != 0 && f[i].read == NULL && f[i].place == place) {
            return f[i].name;
        }
    }
    return otherwise;
}

quire_err request_check_lengths(quire_request *r, quire_error *err) {
    assert(r != NULL);
    sampling_params *s = &r->g.sampling;
    if (r->max_completion_tokens >= 0) {
        s->max_tokens = r->max_completion_tokens;
    }
    bool is_over_most = s->max_tokens > 0 && s->min_tokens > s->max_tokens;
    if (is_over_most || s->min_tokens > r->context.max_model_len) {
        const char *least = request_name_at(r, offsetof(quire_request, g.sampling.min_tokens), "min_tokens"),
                   *most = request_name_at(r, offsetof(quire_request, g.sampling.max_tokens), "max_tokens");
        return is_over_most ? err_set_param(err, QUIRE_BAD_REQUEST, least,
                                            "%s is %d; it must be at most %s, which is %d", least,
                                            (int)s->min_tokens, most, (int)s->max_tokens)
                            : err_set_param(err, QUIRE_BAD_REQUEST, least,
                                            "%s is %d; on this server a sequence has at most %d tokens",
                                            least, (int)s->min_tokens, (int)r->context.max_model_len);
    }
    if (s->max_tokens > r->context.max_model_len) { /* the engine reduces it to what fits */
        s->max_tokens = r->context.max_model_len;
    }
    return QUIRE_OK;
}

quire_err request_check_generation(quire_request *r, quire_error *err) {
    TRY(check_required(r, err));
    TRY(check_choices(r, err));
    request_settle_drawing(r);
    TRY(request_check_beams(r, err));
    TRY(check_logprobs(r, err));
    TRY(request_check_lengths(r, err));
    TRY(request_check_fill(r, err));
    TRY(request_check_tools(r, err));
    request_end_turns(r);
    request_settle_echo(r);
    if (r->has_stream_options && !r->g.info.stream) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "stream_options",
                             "stream_options needs stream; set stream to true");
    }
    bool takes_none = r->g.info.echo || dialect_of(&r->g)->takes_no_tokens || r->n_parks > 0;
    if (r->g.sampling.max_tokens == 0 && !takes_none) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "max_tokens",
                             "max_tokens is 0; it must be at least 1, or echo must be true");
    }
    if (r->logits_out != NULL && (r->g.n_prompts != 1 || r->fork_from != NULL)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "logits are available only for a request with a single prompt that is not a fork");
    }
    return QUIRE_OK;
}

quire_err request_check_batch(quire_request *r, quire_error *err) {
    assert(r != NULL);
    if (r->g.info.stream) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "stream",
                             "several conversations cannot be streamed; leave stream out");
    }
    return request_check_generation(r, err);
}

quire_err request_check(quire_request *r, quire_error *err) {
    if (!r->is_checked) {
        TRY(request_assemble(r, err));
        TRY(dialect_of(&r->g)->check(r, err));
    }
    r->is_checked = true;
    return QUIRE_OK;
}

quire_err request_parse_for(const request_context *ctx, const char *tenant, quire_endpoint endpoint,
                            const char *body, size_t n, quire_request **out, quire_error *err) {
    *out = NULL;
    quire_request *r;
    TRY(request_new(ctx, endpoint, &r, err));
    quire_err e = err_set(err, quire_request_tenant(r, tenant), -1, "the tenant's name is too long");
    TRY_DONE(e, read_body(r, body, n, err));
    TRY_DONE(e, request_check(r, err));
done:
    if (e != QUIRE_OK) {
        request_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

quire_err request_take_ids(quire_request *r, int32_t *ids, int32_t n, quire_error *err) {
    assert(r != NULL);
    r->g.prompts = ids != NULL ? mem_new(1, sizeof *r->g.prompts) : NULL;
    if (r->g.prompts == NULL) {
        mem_free(ids);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt of %d ids", (int)n);
    }
    r->g.prompts[0] = (request_prompt){.ids = ids, .n_ids = n};
    r->g.n_prompts = 1;
    r->is_checked = false;
    request_count_choices(r);
    return QUIRE_OK;
}

quire_err request_parse(const request_context *ctx, quire_endpoint endpoint, const char *body, size_t n,
                        quire_request **out, quire_error *err) {
    return request_parse_for(ctx, "", endpoint, body, n, out, err);
}

quire_err request_ids(const request_context *ctx, const int32_t *ids, size_t n, quire_request **out,
                      quire_error *err) {
    *out = NULL;
    if (n == 0 || n > INT32_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "a prompt of %zu ids; it must have at least one", n);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= ctx->n_vocab) {
            return err_set(err, QUIRE_BAD_REQUEST, -1,
                           "token id %d is out of the vocabulary, which has %d ids", (int)ids[i],
                           (int)ctx->n_vocab);
        }
    }
    quire_request *r;
    TRY(request_new(ctx, QUIRE_COMPLETIONS, &r, err));
    void *copy = mem_dup(ids, n * sizeof *ids);
    quire_err e = request_take_ids(r, copy, (int32_t)n, err);
    if (e != QUIRE_OK) {
        request_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

quire_err quire_request_set(quire_request *r, const char *field, const char *json, quire_error *err) {
    const field_desc *f = request_field(field, dialect_of(&r->g)->fields);
    if (f == NULL) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "a request has no field %s", field);
    }
    json_value *value;
    TRY(request_check_size(f, str_of(json), err));
    TRY(request_read_value(str_of(json), 0, NULL, &value, err));
    quire_err e = request_set_and_keep(r, f, value, err);
    json_drop(value);
    return e;
}

quire_err quire_request_set_all(quire_request *r, const char *json, size_t n, quire_error *err) {
    return read_body(r, json, n, err);
}

quire_err quire_request_tenant(quire_request *r, const char *tenant) {
    size_t n = strlen(tenant);
    if (n > QUIRE_TENANT_BYTES) {
        return QUIRE_INVALID;
    }
    memcpy(r->g.tenant, tenant, n + 1);
    return QUIRE_OK;
}
