/* The dialects of requests that end with their prompts: a text or a conversation whose
 * ids are wanted, a conversation whose text is, and ids whose text is. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"
#include "json/json_scan.h"

quire_endpoint request_form_of_tokenize(str body) {
    str span;
    if (json_scan_member(body, "messages", &span) == QUIRE_OK && !str_is(span, "null")) {
        return QUIRE_TOKENIZE_CHAT;
    }
    return json_scan_member(body, "content", &span) == QUIRE_OK ? QUIRE_TOKENIZE_CONTENT : QUIRE_TOKENIZE;
}

/* The one prompt of r, in place of those that it has; NULL: out of memory. */
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
        return err_set(err, QUIRE_BAD_REQUEST, -1, "this model has no vocabulary, so it has no texts of ids");
    }
    if (r->g.n_prompts == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, name, "%s is missing; give %s", name,
                             r->g.info.endpoint == QUIRE_DETOKENIZE ? "an array of token ids"
                             : r->g.info.endpoint == QUIRE_TOKENIZE ? "a text, or messages"
                                                                    : "a text");
    }
    r->g.info.return_token_ids = r->g.info.endpoint != QUIRE_DETOKENIZE;
    return QUIRE_OK;
}

quire_err request_check_conversation(quire_request *r, quire_error *err) {
    TRY(request_require_chat(r, err));
    if (r->g.n_prompts > 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prompt", "prompt is given beside messages; give one");
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

/* ---- going on from tokens ---- */

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

/* Copies what `from` has into *to, which is empty; its caller frees it. */
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
        return err_set(err, QUIRE_UNSUPPORTED, -1, "only chats and requests for ids go on from tokens");
    }
    bool has_part = from->after != NULL || from->before != NULL || from->n_plain > 0;
    if (kind == QUIRE_CHAT && (has_part || from->n_ids == 0)) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "a chat goes on from ids alone, at least one");
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
