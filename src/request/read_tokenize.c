/* The dialects that only prepare prompts: tokenise a text or conversation, render a
 * conversation, or detokenise ids. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"
#include "json/json_out.h"
#include "json/json_scan.h"

quire_endpoint request_form_of_tokenize(str body) {
    str span;
    if (json_scan_member(body, "messages", &span) == QUIRE_OK && !str_is(span, "null")) {
        return QUIRE_TOKENIZE_CHAT;
    }
    return json_scan_member(body, "content", &span) == QUIRE_OK ? QUIRE_TOKENIZE_CONTENT : QUIRE_TOKENIZE;
}

/* Replaces r's prompts by a single empty one; NULL: out of memory. */
static request_prompt *new_prompt(quire_request *r, quire_error *err) {
    request_prompt *p = mem_new(1, sizeof *p);
    if (p == NULL) {
        err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt");
        return NULL;
    }
    request_set_prompts(r, p, 1);
    return p;
}

quire_err request_read_text(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    if (!json_is(v, JSON_KIND_TEXT)) {
        return request_type_error(f, -1, v, "a string", err);
    }
    request_prompt *p = new_prompt(r, err);
    if (p == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    p->text = json_str(v);
    return QUIRE_OK;
}

quire_err request_read_tokens(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    request_prompt read = {.ids = NULL};
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return request_type_error(f, -1, v, "an array of token ids", err);
    }
    if (json_length(v) > 0) {
        TRY(request_read_ids(r, f, v, -1, &read, err));
    } else {
        read.ids = mem_new(1, sizeof *read.ids);
        TRY(mem_check_for(read.ids, "a prompt", err));
    }
    request_prompt *p = new_prompt(r, err);
    if (p == NULL) {
        mem_free(read.ids);
        return QUIRE_NO_MEMORY;
    }
    *p = read;
    return QUIRE_OK;
}

quire_err request_read_parse_special(quire_request *r, const field_desc *f, const json_value *v,
                                     quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.special_is_text = v != NULL && !json_truth(v);
    return QUIRE_OK;
}

quire_err request_check_text(quire_request *r, quire_error *err) {
    const char *name = dialect_of(&r->g)->prompt;
    if (!r->context.has_vocabulary) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "this model has no vocabulary, so token ids have no text");
    }
    if (r->g.n_prompts == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, name, "%s is missing; give %s", name,
                             r->g.info.endpoint == QUIRE_DETOKENIZE ? "an array of token ids"
                             : r->g.info.endpoint == QUIRE_TOKENIZE ? "text or messages"
                                                                    : "a text");
    }
    r->g.info.return_token_ids = r->g.info.endpoint != QUIRE_DETOKENIZE;
    return QUIRE_OK;
}

quire_err request_check_conversation(quire_request *r, quire_error *err) {
    TRY(request_require_chat(r, err));
    if (r->g.n_prompts > 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prompt",
                             "prompt and messages are both given; give one of them");
    }
    TRY(request_check_tools(r, err));
    request_end_with_prompts(r, r->g.info.endpoint == QUIRE_TOKENIZE_CHAT);
    return QUIRE_OK;
}

void request_end_with_prompts(quire_request *r, bool gives_ids) {
    assert(r != NULL);
    quire_request_info *i = &r->g.info;
    i->stream = i->has_parts = i->echo = r->g.more.return_prompt_text = false;
    i->logprobs = i->prompt_logprobs = -1;
    i->return_token_ids = gives_ids;
    r->n = 1;
    r->best_of = -1;
    request_count_choices(r);
}

/* ---- continuing from tokens ---- */

static quire_err read_tokenize_check_ids(const quire_request *r, const quire_continuation *from,
                                         quire_error *err) {
    for (size_t i = 0; i < from->n_ids; i++) {
        if (from->ids[i] < 0 || from->ids[i] >= r->context.n_vocab) {
            return err_set(err, QUIRE_BAD_REQUEST, -1,
                           "token id %d is out of the vocabulary, which has %d ids", (int)from->ids[i],
                           (int)r->context.n_vocab);
        }
    }
    return QUIRE_OK;
}

/* Copies `from` to *to, which is empty. The caller frees *to. */
static quire_err read_tokenize_copy(const quire_continuation *from, request_continuation *to) {
    if (from->n_ids > 0) {
        to->ids = mem_new(from->n_ids, sizeof *to->ids);
        TRY(mem_check(to->ids));
        memcpy(to->ids, from->ids, from->n_ids * sizeof *to->ids);
        to->n_ids = from->n_ids;
    }
    bool has_start = from->size >= sizeof *from && from->n_start > 0 && from->n_start < to->n_ids;
    to->n_start = has_start ? from->n_start : to->n_ids;
    if (from->after != NULL) {
        TRY(strbuf_add_str(&to->after, from->after));
    }
    if (from->before != NULL) {
        TRY(strbuf_add_str(&to->before, from->before));
    }
    for (size_t i = 0, end = 0; i < from->n_plain; i++) {
        const size_t *span = from->plain + 2 * i;
        if (span[0] < end || span[1] < span[0]) {
            return QUIRE_BAD_REQUEST;
        }
        TRY(text_marks_add(&to->plain, span[0], span[1]));
        end = span[1];
    }
    return QUIRE_OK;
}

quire_err quire_request_continue(quire_request *r, const quire_continuation *from, quire_error *err) {
    request_continuation made = {0};
    quire_endpoint kind = r->g.info.endpoint;
    if (kind != QUIRE_TOKENIZE && kind != QUIRE_TOKENIZE_CHAT && kind != QUIRE_CHAT) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "only chats and requests for token ids can be continued from tokens");
    }
    bool has_part = from->after != NULL || from->before != NULL || from->n_plain > 0;
    if (kind == QUIRE_CHAT && (has_part || from->n_ids == 0)) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "a chat can be continued only from token ids, at least one");
    }
    TRY(read_tokenize_check_ids(r, from, err));
    quire_err e = read_tokenize_copy(from, &made);
    if (e != QUIRE_OK) {
        request_continuation_deinit(&made);
        return err_set(err, e, -1,
                       e == QUIRE_NO_MEMORY ? "out of memory for a prompt"
                                            : "the spans of plain text are not in order");
    }
    request_continuation_deinit(&r->continuation);
    r->continuation = made;
    if (made.n_ids > 0) {
        r->g.add_special = r->g.add_bos = false;
    }
    return QUIRE_OK;
}

/* The RENDER dialects: validate a request that would generate, and return its prompt ids
 * and sampling parameters, for routers that send them elsewhere. */

/* Writes a float with the fewest digits that read back as the same value. */
static void write_float(json_out *o, const char *name, float v) {
    char text[40];
    int digits = 6;
    do {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)v);
    } while (strtof(text, NULL) != v && digits++ < 9);
    json_raw(json_name(o, name), text);
}

static void write_ints_that_differ(const quire_request *r, json_out *o) {
    const sampling_params *s = &r->g.sampling;
    const struct {
        const char *name;
        int32_t value, otherwise;
    } rows[] = {{"n", r->n, 1},
                {"top_k", s->top_k > 0 ? s->top_k : 0, 0},
                {"min_tokens", s->min_tokens, 0},
                {"max_tokens", s->max_tokens, -1},
                {"logprobs", r->g.info.logprobs, -1},
                {"prompt_logprobs", r->g.info.prompt_logprobs, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value != rows[i].otherwise) {
            json_int(json_name(o, rows[i].name), rows[i].value);
        }
    }
    if (s->has_seed) {
        json_int(json_name(o, "seed"), (int64_t)s->seed);
    }
}

static void write_stops(const quire_request *r, json_out *o) {
    const sampling_params *s = &r->g.sampling;
    const chat_form *form = dialect_of(&r->g)->is_chat ? r->context.form : NULL;
    json_begin(json_name(o, "stop"), '[');
    for (int32_t i = 0; i < r->n_given_stops; i++) {
        json_text(json_item(o), r->g.stops[i].p, r->g.stops[i].n);
    }
    json_end(o, ']');
    json_begin(json_name(o, "stop_token_ids"), '[');
    for (int32_t i = 0; i < s->n_stop_tokens; i++) {
        if (form == NULL || s->stop_tokens[i] != form->end_token) {
            json_int(json_item(o), s->stop_tokens[i]);
        }
    }
    json_end(o, ']');
    request_write_texts(r->bad_words, json_name(o, "bad_words"));
}

/* Writes vLLM's SamplingParams: members that differ from their defaults, and those always
 * written. */
static void write_sampling(const quire_request *r, json_out *o) {
    const sampling_params *s = &r->g.sampling;
    json_begin(json_name(o, "sampling_params"), '{');
    write_float(o, "presence_penalty", s->presence_penalty);
    write_float(o, "frequency_penalty", s->frequency_penalty);
    write_float(o, "repetition_penalty", s->repetition_penalty);
    write_float(o, "temperature", s->temperature);
    if (s->top_p < 1.0f) {
        write_float(o, "top_p", s->top_p);
    }
    if (s->min_p > 0.0f) {
        write_float(o, "min_p", s->min_p);
    }
    write_ints_that_differ(r, o);
    write_stops(r, o);
    if (s->ignore_eos) {
        json_bool(json_name(o, "ignore_eos"), true);
    }
    if (r->g.include_stop) {
        json_bool(json_name(o, "include_stop_str_in_output"), true);
    }
    if (!r->g.skip_special) {
        json_bool(json_name(o, "skip_special_tokens"), false);
    }
    json_int(json_name(o, "output_kind"), r->g.info.stream ? 1 : 2); /* 1: deltas, 2: everything at the end */
    json_bool(json_name(o, "skip_clone"), true);
    json_bool(json_name(o, "skip_reading_prefix_cache"), false);
    json_end(o, '}');
}

/* Writes the members of the rendered request after its ids. */
static quire_err write_members(const quire_request *r, strbuf *out) {
    json_out o = {.to = out};
    json_begin(&o, '{');
    write_sampling(r, &o);
    json_bool(json_name(&o, "stream"), r->g.info.stream);
    json_name(&o, "stream_options");
    if (r->has_stream_options) {
        json_begin(&o, '{');
        json_bool(json_name(&o, "include_usage"), r->g.info.include_usage);
        json_bool(json_name(&o, "continuous_usage_stats"), r->g.info.continuous_usage);
        json_end(&o, '}');
    } else {
        json_raw(&o, "null");
    }
    json_name(&o, "cache_salt");
    if (r->g.cache_salt.n > 0) {
        json_text(&o, r->g.cache_salt.p, r->g.cache_salt.n);
    } else {
        json_raw(&o, "null");
    }
    json_int(json_name(&o, "priority"), r->g.priority);
    json_end(&o, '}');
    return o.err;
}

quire_err request_check_render(quire_request *r, quire_error *err) {
    TRY(request_check_generation(r, err));
    strbuf_clear(&r->rendered);
    TRY(err_set(err, write_members(r, &r->rendered), -1, "out of memory for a request"));
    /* strip the braces */
    r->rendered.p[r->rendered.n - 1] = '\0';
    r->g.more.render = r->rendered.p + 1;
    request_end_with_prompts(r, true);
    return QUIRE_OK;
}
