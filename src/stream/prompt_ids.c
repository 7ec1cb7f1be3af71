/* Makes the prompts of a request's choices as token ids. */
#include "stream/prompt_ids.h"

#include <assert.h>
#include <string.h>

#include "answer/answer_bind.h"
#include "stream/stream.h"

quire_err prompt_need_vocabulary(const stream_engine *e, const generation *g, quire_error *err) {
    assert(e != NULL);
    if (e->tokenizer) {
        return QUIRE_OK;
    }
    const char *name = dialect_of(g)->prompt;
    return err_set_param(err, QUIRE_UNSUPPORTED, name,
                         "this model has no vocabulary that this server can use; give the %s as token ids",
                         name);
}

/* Tokenises a text. Refuses a text by its length if it certainly does not fit, and stops
 * when it turns out not to fit. */
static quire_err prompt_encode(const stream_engine *e, const generation *g, str text, encode_options options,
                               token_list *out, quire_error *err) {
    bool is_bound = !dialect_of(g)->any_length && g->truncate_prompt_tokens == GENERATION_UNCUT;
    size_t limit = is_bound ? (size_t)e->context.max_model_len : 0,
           least = is_bound ? tokenizer_least_tokens(e->tokenizer, text.n) : 0;
    if (least > limit) {
        return generation_too_long(g, e->context.max_model_len, least, true, err);
    }
    options.special = g->special_is_text ? ENCODE_PLAIN : ENCODE_PARSE;
    options.add_special = g->add_special;
    options.add_bos = g->add_bos;
    options.max_tokens = limit;
    quire_err er = tokenizer_encode(e->tokenizer, text, options, out, err);
    return er == QUIRE_NO_ROOM ? generation_too_long(g, e->context.max_model_len, limit + 1, true, err) : er;
}

static quire_err prompt_copy_ids(token_list *to, const int32_t *ids, size_t n, quire_error *err) {
    return err_set(err, token_list_add_all(to, ids, n), -1, "out of memory for a prompt");
}

/* Tokenises a conversation's text; if the prompt cache has a beginning of it, only the
 * rest is encoded. */
static quire_err prompt_encode_chat(const stream_engine *e, const generation *g, str text,
                                    const text_marks *marks, token_list *out, quire_error *err) {
    prompt_start start = {0};
    uint64_t tenant = text_tenant(g->tenant);
    /* all requests of an engine agree on whether marks count */
    const text_marks *counts = e->parses_messages ? NULL : marks;
    if (e->prompts == NULL) {
        return prompt_encode(e, g, text, (encode_options){.marks = counts}, out, err);
    }
    if (prompt_cache_find(e->prompts, tenant, text, marks, &start) != QUIRE_OK) {
        prompt_start_deinit(&start); /* out of memory: encode the whole text */
    }
    bool is_known = start.at > 0;
    encode_options options = {
        .marks = counts, .seams = &start.seams, .known = is_known ? &start.ids : NULL, .from = start.at};
    quire_err er = prompt_encode(e, g, text, options, out, err);
    if (er == QUIRE_OK) {
        size_t first = start.seams.first;
        prompt_cache_keep(e->prompts, tenant, text, marks, out->ids + first, out->n - first, &start.seams);
    }
    prompt_start_deinit(&start);
    return er;
}

/* Tokenises a conversation's text from byte `from` on. *out has the ids before that. */
static quire_err prompt_encode_from(const stream_engine *e, const generation *g, str text,
                                    const text_marks *marks, size_t from, token_list *out, quire_error *err) {
    token_list whole = {0};
    encode_options options = {.marks = e->parses_messages ? NULL : marks, .known = out, .from = from};
    quire_err er = prompt_encode(e, g, text, options, &whole, err);
    if (er == QUIRE_OK) {
        token_list_deinit(out);
        *out = whole;
    }
    return er;
}

/* Tokenises a conversation. Answers named by their turns get the ids that were generated;
 * the text around them is encoded. */
static quire_err prompt_encode_turns(const stream_engine *e, const generation *g, str text,
                                     const text_marks *marks, token_list *out, turn_counts *counts,
                                     quire_error *err) {
    const strbuf *ids = &g->messages.turn_ids;
    /* only the last ones; the store keeps no more */
    const size_t most = (size_t)TURN_STORE_OF_ONE * CHAT_CALL_ID_BYTES;
    size_t done = 0, at, end;
    quire_err er = QUIRE_OK;
    for (size_t i = ids->n > most ? ids->n - most : 0; e->turns != NULL && i < ids->n && er == QUIRE_OK;
         i += CHAT_CALL_ID_BYTES) {
        token_list turn = {0};
        if (turn_store_find(e->turns, text_tenant(g->tenant), ids->p + i, text, done, &turn, &at, &end,
                            counts)) {
            str before = {text.p, at};
            er = done == 0 ? prompt_encode_chat(e, g, before, marks, out, err)
                           : prompt_encode_from(e, g, before, marks, done, out, err);
            if (er == QUIRE_OK) {
                er = prompt_copy_ids(out, turn.ids, turn.n, err);
            }
            done = end;
        }
        token_list_deinit(&turn);
    }
    TRY(er);
    return done == 0 ? prompt_encode_chat(e, g, text, marks, out, err)
                     : prompt_encode_from(e, g, text, marks, done, out, err);
}

/* Finds the part of a chat's text that its continuation names: *from is its start; cuts
 * `text` at its end. */
static quire_err prompt_find_part(const request_continuation *c, str *text, size_t *from, quire_error *err) {
    const strbuf *const marks[] = {&c->after, &c->before};
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        size_t n = marks[i]->n;
        while (n > 0 && (at + n > text->n || memcmp(text->p + at, marks[i]->p, n) != 0)) {
            if (at + n > text->n) {
                return err_set_param(err, QUIRE_BAD_REQUEST, "messages",
                                     "the chat template leaves out the content of a message");
            }
            at++;
        }
        if (i == 0) {
            at += n;
            *from = at;
        } else if (n > 0) {
            text->n = at;
        }
    }
    return QUIRE_OK;
}

/* Appends the text from byte `from` on with the marks in it; if is_after, after a newline
 * that stands for the preceding text. */
static quire_err prompt_take_after(str text, size_t from, bool is_after, const text_marks *marks,
                                   strbuf *after, text_marks *moved) {
    const size_t lead = is_after ? 1 : 0;
    if (is_after) {
        TRY(strbuf_add_char(after, '\n'));
    }
    TRY(strbuf_add(after, text.p + from, text.n - from));
    for (size_t i = 0; marks != NULL && i < marks->n; i++) {
        const mark_run *m = &marks->runs[i];
        size_t start = m->start > from ? m->start : from, end = m->end < text.n ? m->end : text.n;
        if (start < end) {
            TRY(text_marks_add(moved, start - from + lead, end - from + lead));
        }
    }
    return QUIRE_OK;
}

/* Tokenises a text from byte `from` on, to continue the request's ids. */
static quire_err prompt_encode_continued(const stream_engine *e, const quire_request *r, str text,
                                         size_t from, const text_marks *marks, token_list *out,
                                         quire_error *err) {
    const request_continuation *c = &r->continuation;
    const token_list known = {.ids = c->ids, .n = c->n_ids};
    const bool is_after = c->n_ids > 0;
    const size_t lead = is_after ? 1 : 0;
    strbuf after = {0};
    text_marks moved = {0};
    quire_err er = err_set(err, prompt_take_after(text, from, is_after, marks, &after, &moved), -1,
                           "out of memory for a prompt");
    const encode_options options = {
        .marks = marks != NULL ? &moved : NULL, .known = is_after ? &known : NULL, .from = lead};
    if (er == QUIRE_OK) {
        er = prompt_encode(e, &r->g, (str){after.n > 0 ? after.p : "", after.n}, options, out, err);
    }
    strbuf_deinit(&after);
    text_marks_deinit(&moved);
    return er;
}

/* A prompt's last tokens, whose text shows how the answer begins. */
#define TAIL_IDS 16

quire_err prompt_start_of_ids(const stream_engine *e, const quire_request *r, output_start *out,
                              quire_error *err) {
    const request_continuation *from = &r->continuation;
    const text_marks none = {0};
    size_t n = from->n_start < TAIL_IDS ? from->n_start : TAIL_IDS;
    strbuf tail = {0};
    quire_err er = QUIRE_OK;
    *out = OUTPUT_START_UNKNOWN;
    if (r->g.info.has_parts) {
        er = tokenizer_decode(e->tokenizer, from->ids + from->n_ids - n, n, false, &tail);
        *out = er == QUIRE_OK ? answer_output_start(r, (str){tail.n > 0 ? tail.p : "", tail.n}, &none) : *out;
    }
    strbuf_deinit(&tail);
    return err_set(err, er, -1, "out of memory for a prompt");
}

/* Takes the tokens that precede a held stream's prompt. */
static quire_err prompt_take_held(choice *c, quire_error *err) {
    const quire_stream *s = c->stream;
    return s != NULL && s->is_held ? prompt_copy_ids(&c->prompt, s->first.ids, s->first.n, err) : QUIRE_OK;
}

/* Uses the ids of a chat that continues from tokens as its prompt. */
static quire_err prompt_of_ids(const stream_engine *e, const quire_request *r, choice *c, quire_error *err) {
    TRY(prompt_take_held(c, err));
    TRY(prompt_copy_ids(&c->prompt, r->continuation.ids, r->continuation.n_ids, err));
    return prompt_start_of_ids(e, r, &c->start, err);
}

/* Tokenises the conversation. Special tokens are recognised only where the template wrote
 * them, or everywhere, as the server is configured. */
static quire_err prompt_of_chat(const stream_engine *e, const quire_request *r, choice *c, quire_error *err) {
    strbuf text = {0};
    text_marks marks = {0};
    quire_err er = request_render(r, c->index / r->g.info.n_samples, &text, &marks, err);
    c->start = er == QUIRE_OK && r->g.info.has_parts ? answer_output_start(r, (str){text.p, text.n}, &marks)
                                                     : OUTPUT_START_UNKNOWN;
    if (er == QUIRE_OK) {
        c->place = turn_place_after((str){text.p, text.n});
        str shown = {text.p, text.n};
        size_t from = 0;
        if (!request_continues(r)) {
            er = prompt_encode_turns(e, &r->g, shown, &marks, &c->prompt, &c->turns, err);
        } else if ((er = prompt_find_part(&r->continuation, &shown, &from, err)) == QUIRE_OK) {
            er = prompt_encode_continued(e, r, shown, from, e->parses_messages ? NULL : &marks, &c->prompt,
                                         err);
        }
    }
    text_marks_deinit(&marks);
    if (r->g.more.return_prompt_text) {
        c->shown = text;
    } else {
        strbuf_deinit(&text);
    }
    return er;
}

/* Tokenises a pair of texts, with token types. Special tokens in them are plain text, so
 * a document cannot end the query. */
static quire_err prompt_encode_pair(const stream_engine *e, const request_prompt *p, choice *c,
                                    quire_error *err) {
    bool has_types = e->context.n_token_types > 1;
    return tokenizer_encode_pair(e->tokenizer, p->text, &p->pair, ENCODE_PLAIN, &c->prompt,
                                 has_types ? &c->types : NULL, err);
}

/* Makes the ids of c's prompt, and finds how the text after it begins. */
static quire_err prompt_of_request(const stream_engine *e, const quire_request *r, choice *c,
                                   quire_error *err) {
    c->start = r->fork_from != NULL ? r->fork_from->start : OUTPUT_START_UNKNOWN;
    if (dialect_of(&r->g)->is_chat && r->fork_from == NULL) {
        TRY(prompt_need_vocabulary(e, &r->g, err));
        return request_continues(r) && !dialect_of(&r->g)->prompt_only ? prompt_of_ids(e, r, c, err)
                                                                       : prompt_of_chat(e, r, c, err);
    }
    const request_prompt *p = &r->g.prompts[c->index / r->g.info.n_samples];
    if (r->fill.field != NULL && r->fork_from == NULL) {
        return fill_prompt(e, r, p, &c->prompt, err);
    }
    if (!p->ids) {
        TRY(prompt_need_vocabulary(e, &r->g, err));
        return request_continues(r)
                   ? prompt_encode_continued(e, r, p->text, 0, &r->continuation.plain, &c->prompt, err)
                   : prompt_encode(e, &r->g, p->text, (encode_options){0}, &c->prompt, err);
    }
    TRY(prompt_take_held(c, err));
    return prompt_copy_ids(&c->prompt, p->ids, (size_t)p->n_ids, err);
}

quire_err prompt_count(const stream_engine *e, const quire_request *r, size_t *n, quire_error *err) {
    choice c = {.index = 0};
    quire_err er = prompt_of_request(e, r, &c, err);
    *n = c.prompt.n;
    token_list_deinit(&c.prompt);
    return er;
}

/* ---- truncation ---- */

/* Most tokens that g's prompt may have. */
static size_t prompt_cut_limit(const generation *g, int32_t max_model_len) {
    bool gives_rows = dialect_of(g)->gives_rows;
    int32_t max_tokens = g->sampling.max_tokens, reserved = gives_rows ? 0
                                                            : max_tokens > 0 && max_tokens < max_model_len
                                                                ? max_tokens
                                                                : 1;
    return (size_t)(g->truncate_prompt_tokens >= 0 ? g->truncate_prompt_tokens : max_model_len - reserved);
}

/* Counts the special tokens at both ends of ids: those that an empty text gets too. */
static quire_err count_ends(const generation *g, const tokenizer *t, const token_list *ids, size_t *head,
                            size_t *tail, quire_error *err) {
    token_list ends = {0};
    quire_err e = tokenizer_encode(
        t, (str){"", 0}, (encode_options){.add_special = g->add_special, .add_bos = g->add_bos}, &ends, err);
    *head = *tail = 0;
    while (e == QUIRE_OK && *head < ends.n && *head < ids->n && ends.ids[*head] == ids->ids[*head]) {
        (*head)++;
    }
    while (e == QUIRE_OK && *head + *tail < ends.n && *head + *tail < ids->n &&
           ends.ids[ends.n - 1 - *tail] == ids->ids[ids->n - 1 - *tail]) {
        (*tail)++;
    }
    token_list_deinit(&ends);
    return e;
}

/* Removes n elements from index `from` on, and returns the memory of a long text. */
static quire_err prompt_cut_remove(token_list *l, size_t from, size_t n, quire_error *err) {
    token_list left = {0};
    if (l->n == 0) {
        return QUIRE_OK;
    }
    assert(from + n <= l->n);
    quire_err e = token_list_add_all(&left, l->ids, from);
    if (e != QUIRE_OK || (e = token_list_add_all(&left, l->ids + from + n, l->n - from - n)) != QUIRE_OK) {
        token_list_deinit(&left);
        return err_set(err, e, -1, "out of memory for a prompt");
    }
    token_list_deinit(l);
    *l = left;
    return QUIRE_OK;
}

quire_err prompt_cut(const generation *g, int32_t max_model_len, const tokenizer *t, bool is_text,
                     token_list *ids, token_list *types, bool *is_cut, quire_error *err) {
    assert(g != NULL);
    size_t head = 0, tail = 0;
    *is_cut = false;
    if (g->truncate_prompt_tokens == GENERATION_UNCUT || ids->n <= prompt_cut_limit(g, max_model_len)) {
        return QUIRE_OK;
    }
    size_t n_over = ids->n - prompt_cut_limit(g, max_model_len);
    bool keeps_end = g->keeps_end >= 0 ? g->keeps_end > 0 : !dialect_of(g)->gives_rows;
    if (is_text) {
        TRY(count_ends(g, t, ids, &head, &tail, err));
    }
    if (head + tail + n_over > ids->n) {
        head = tail = 0;
    }
    size_t from = keeps_end ? head : ids->n - tail - n_over;
    TRY(prompt_cut_remove(ids, from, n_over, err));
    TRY(prompt_cut_remove(types, from, n_over, err));
    *is_cut = true;
    return QUIRE_OK;
}

/* ---- the prompts of choices ---- */

/* Makes the prompt ids of c, which is the first sample of its prompt. */
static quire_err prompt_make_first(const stream_engine *e, const quire_request *r, choice *c,
                                   quire_error *err) {
    int32_t i = c->index / r->g.info.n_samples;
    const request_prompt *p = r->g.prompts != NULL ? &r->g.prompts[i] : NULL;
    if (p != NULL && p->pair.p != NULL) {
        TRY(prompt_need_vocabulary(e, &r->g, err));
        TRY(prompt_encode_pair(e, p, c, err));
    } else {
        TRY(prompt_of_request(e, r, c, err));
    }
    if (p != NULL && p->types != NULL) {
        TRY(prompt_copy_ids(&c->types, p->types, (size_t)p->n_ids, err));
    }
    bool is_text = (p == NULL || p->ids == NULL) && r->fork_from == NULL;
    return prompt_cut(&r->g, e->context.max_model_len, e->tokenizer, is_text, &c->prompt, &c->types,
                      &c->is_cut, err);
}

quire_err prompt_take(const stream_engine *e, const quire_request *r, choice *c, quire_error *err) {
    assert(r != NULL && c != NULL);
    int32_t k = c->index % r->g.info.n_samples;
    if (k == 0) {
        return prompt_make_first(e, r, c, err);
    }
    c->start = (c - k)->start;
    c->place = (c - k)->place;
    c->turns = (c - k)->turns;
    c->is_cut = (c - k)->is_cut;
    const token_list *made = &(c - k)->prompt;
    return prompt_copy_ids(&c->prompt, made->ids, made->n, err);
}

/* ---- marks ---- */

#define MARK_GAP  8  /* most tokens between two control tokens of one position */
#define MARK_SPAN 24 /* most tokens from the first to the last control token of one position */

int32_t prompt_marks(const tokenizer *t, const int32_t *ids, int32_t n, int32_t most, int32_t *marks) {
    assert(n >= 0 && most >= 0);
    int32_t n_marks = 0, last = 0;
    for (int32_t p = t != NULL ? n - 1 : 0; p > 0; p--) {
        if (!tokenizer_is_special(t, ids[p])) {
            continue;
        }
        if (n_marks > 0 && marks[n_marks - 1] - p <= MARK_GAP && last - p <= MARK_SPAN) {
            marks[n_marks - 1] = p;
            continue;
        }
        if (n_marks == most) {
            break;
        }
        last = p;
        marks[n_marks++] = p;
    }
    return n_marks;
}
