/* Writes log-probabilities in responses: OpenAI's two forms, and vLLM's prompt_logprobs. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/response.h"

/* The number that the APIs show for minus infinity. */
static double shown(float logprob) {
    return logprob > -9999.0f ? (double)logprob : -9999.0;
}

/* The text of one token, "" where it is only a part of a character. Computed once for each token and kept by the loop; without memory for
 * it: "". */
static str text_of(const response *a, int32_t token) {
    loop *l = a->conn->loop;
    const quire_engine *e = l->server->engine;
    int32_t n_vocab = quire_engine_info(e)->n_vocab;
    quire_error err;
    if (l->token_texts == NULL) {
        l->token_texts = mem_new((size_t)n_vocab, sizeof *l->token_texts);
        l->n_token_texts = l->token_texts != NULL ? n_vocab : 0;
    }
    if (token < 0 || token >= l->n_token_texts) {
        return (str){"", 0};
    }
    token_text *t = &l->token_texts[token];
    if (t->p == NULL && quire_detokenize(e, &token, 1, false, &t->p, &t->n, &err) == QUIRE_OK &&
        str_contains((str){t->p, t->n}, str_of(UTF8_REPLACEMENT))) {
        t->n = 0;
    }
    return t->p != NULL ? (str){t->p, t->n} : (str){"", 0};
}

static void write_token_text(const response *a, int32_t token, json_out *o) {
    str text = text_of(a, token);
    json_text(o, text.p, text.n);
}

/* ---- completions: four lists ---- */

static int64_t count_chars(const char *text, size_t n) {
    int64_t chars = 0;
    for (size_t i = 0; i < n; i++) {
        chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return chars;
}

/* Adds one token to the lists; width 0: the prompt's first, which has no log-probability. */
static quire_err add_to_lists(const response *a, response_logprobs *l, int32_t token, const quire_logprob *p, int32_t width) {
    json_out tokens = {.to = &l->tokens}, values = {.to = &l->values}, tops = {.to = &l->tops}, offsets = {.to = &l->offsets};
    str text = text_of(a, token);
    json_text(json_item(&tokens), text.p, text.n);
    json_int(json_item(&offsets), l->n_chars);
    l->n_chars += count_chars(text.p, text.n);
    if (width == 0) {
        json_raw(json_item(&values), "null");
        json_raw(json_item(&tops), "null");
    } else {
        json_number(json_item(&values), shown(p[0].logprob));
        json_begin(json_item(&tops), '{');
        for (int32_t i = 0; i < width; i++) {
            if (i > 0 && p[i].token == p[0].token) {
                continue; /* it is first already */
            }
            write_token_text(a, p[i].token, json_item(&tops));
            json_raw(&tops, ":");
            json_number(&tops, shown(p[i].logprob));
        }
        json_end(&tops, '}');
    }
    return tokens.err ? tokens.err : values.err ? values.err : tops.err ? tops.err : offsets.err;
}

/* ---- chat: an object a token ---- */

/* An object without its closing brace. */
static void begin_token(const response *a, const quire_logprob *p, json_out *o) {
    str text = text_of(a, p->token);
    json_begin(json_item(o), '{');
    json_text(json_name(o, "token"), text.p, text.n);
    json_number(json_name(o, "logprob"), shown(p->logprob));
    json_begin(json_name(o, "bytes"), '[');
    for (size_t i = 0; i < text.n; i++) {
        json_int(json_item(o), (unsigned char)text.p[i]);
    }
    json_end(o, ']');
}

static quire_err add_content(const response *a, response_logprobs *l, const quire_logprob *p, int32_t width) {
    json_out o = {.to = &l->content};
    begin_token(a, &p[0], &o);
    json_begin(json_name(&o, "top_logprobs"), '[');
    for (int32_t i = 1; i < width; i++) {
        begin_token(a, &p[i], &o);
        json_end(&o, '}');
    }
    json_end(&o, ']');
    json_end(&o, '}');
    return o.err;
}

/* ---- the prompt's: {"ID":{"logprob":..,"rank":..,"decoded_token":..},..} a token ---- */

static quire_err add_prompt(const response *a, response_prompt *to, const quire_logprob *p, int32_t width) {
    json_out o = {.to = &to->prompt_logprobs};
    char id[16];
    json_raw(&o, ",{");
    for (int32_t i = 0; i < width; i++) {
        if (i > 0 && p[i].token == p[0].token) {
            continue;
        }
        snprintf(id, sizeof id, "%d", (int)p[i].token);
        json_begin(json_name(&o, id), '{');
        json_number(json_name(&o, "logprob"), shown(p[i].logprob));
        json_int(json_name(&o, "rank"), p[i].rank);
        write_token_text(a, p[i].token, json_name(&o, "decoded_token"));
        json_end(&o, '}');
    }
    json_end(&o, '}');
    return o.err;
}

quire_err response_take_prompt_logprobs(const response *a, response_prompt *to, const quire_event *ev) {
    if (a->info->prompt_logprobs < 0) {
        return QUIRE_OK;
    }
    bool listed = a->info->echo && a->info->logprobs >= 0 && a->info->endpoint == QUIRE_COMPLETIONS;
    int32_t listed_width = a->info->logprobs + 1 < ev->n_logprobs ? a->info->logprobs + 1 : ev->n_logprobs;
    if (listed && ev->n_tokens > 0) {
        TRY(add_to_lists(a, &to->logprobs, ev->tokens[0], NULL, 0));
    }
    for (int32_t i = 1; i < ev->n_tokens && ev->logprobs != NULL; i++) {
        const quire_logprob *p = ev->logprobs + (size_t)(i - 1) * (size_t)ev->n_logprobs;
        TRY(add_prompt(a, to, p, ev->n_logprobs));
        if (listed) {
            TRY(add_to_lists(a, &to->logprobs, ev->tokens[i], p, listed_width));
        }
    }
    return QUIRE_OK;
}

quire_err response_take_logprobs(const response *a, response_choice *c, const quire_event *ev) {
    if (ev->logprobs == NULL) {
        return QUIRE_OK;
    }
    return a->info->endpoint == QUIRE_CHAT ? add_content(a, &c->logprobs, ev->logprobs, ev->n_logprobs)
                                           : add_to_lists(a, &c->logprobs, ev->tokens[0], ev->logprobs, ev->n_logprobs);
}

void response_clear_logprobs(response_choice *c) {
    strbuf_clear(&c->logprobs.tokens);
    strbuf_clear(&c->logprobs.values);
    strbuf_clear(&c->logprobs.tops);
    strbuf_clear(&c->logprobs.offsets);
    strbuf_clear(&c->logprobs.content);
}

void response_rollback_logprobs(const response *a, response_choice *c, const int32_t *tokens, int32_t n) {
    c->logprobs.n_chars = c->logprobs.n_prompt_chars;
    for (int32_t i = 0; a->info->logprobs >= 0 && i < n; i++) {
        str text = text_of(a, tokens[i]);
        c->logprobs.n_chars += count_chars(text.p, text.n);
    }
}

size_t response_logprobs_bytes(const response_logprobs *l) {
    return l->tokens.n + l->values.n + l->tops.n + l->offsets.n + l->content.n;
}

void response_deinit_logprobs(response_logprobs *l) {
    strbuf_deinit(&l->tokens);
    strbuf_deinit(&l->values);
    strbuf_deinit(&l->tops);
    strbuf_deinit(&l->offsets);
    strbuf_deinit(&l->content);
}

/* Writes two lists as one, either of which may be empty. */
static void write_lists(const char *name, const strbuf *first, const strbuf *second, json_out *o) {
    json_begin(json_name(o, name), '[');
    json_raw(o, first->n > 0 ? first->p : "");
    json_raw(o, first->n > 0 && second->n > 0 ? "," : "");
    json_raw(o, second->n > 0 ? second->p : "");
    json_end(o, ']');
}

void response_write_logprobs(const response *a, const response_choice *c, json_out *o) {
    static const response_logprobs none = {.n_chars = 0};
    const response_logprobs *l = &c->logprobs, *p = c->prompt_sent ? &none : &response_prompt_of(a, c)->logprobs;
    json_name(o, "logprobs");
    if (response_logprobs_bytes(l) + response_logprobs_bytes(p) == 0) {
        json_raw(o, "null");
        return;
    }
    json_begin(o, '{');
    if (a->info->endpoint == QUIRE_CHAT) {
        write_lists("content", &p->content, &l->content, o);
    } else {
        write_lists("text_offset", &p->offsets, &l->offsets, o);
        write_lists("token_logprobs", &p->values, &l->values, o);
        write_lists("tokens", &p->tokens, &l->tokens, o);
        write_lists("top_logprobs", &p->tops, &l->tops, o);
    }
    json_end(o, '}');
}

void response_write_prompt_logprobs(const response *a, const response_choice *c, json_out *o) {
    const strbuf *list = &response_prompt_of(a, c)->prompt_logprobs;
    json_name(o, "prompt_logprobs");
    if (a->info->prompt_logprobs < 0) {
        json_raw(o, "null");
        return;
    }
    json_raw(o, "[null");
    json_raw(o, list->n > 0 ? list->p : "");
    json_end(o, ']');
}
