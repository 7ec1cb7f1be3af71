/* Writes log-probabilities in responses: OpenAI's two forms, and vLLM's
 * prompt_logprobs. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/response.h"

/* The number that the APIs show for minus infinity. */
static double shown(float logprob) {
    return logprob > -9999.0f ? (double)logprob : -9999.0;
}

/* The bytes of one token, which may be a part of a character. Computed once for each
 * token and kept by the loop; without memory for it: none. */
static str bytes_of(const response *a, int32_t token) {
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
    bool known = t->p != NULL || quire_token_bytes(e, token, &t->p, &t->n, &err) == QUIRE_OK;
    return known ? (str){t->p, t->n} : (str){"", 0};
}

/* The text of one token, "" where it is only a part of a character. */
static str text_of(const response *a, int32_t token) {
    str bytes = bytes_of(a, token);
    return (str){bytes.p, utf8_is_valid(bytes) ? bytes.n : 0};
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

/* The name of token i in top_logprobs, which no other has: its text or, where one before
 * it has the same, token_id:7, as vLLM names tokens by their ids. */
static void write_name(const response *a, const quire_logprob *p, int32_t i, json_out *o) {
    str text = text_of(a, p[i].token);
    bool is_taken = false;
    char id[32];
    for (int32_t k = 0; k < i && !is_taken; k++) {
        is_taken = str_eq(text_of(a, p[k].token), text);
    }
    if (is_taken) {
        snprintf(id, sizeof id, "token_id:%d", (int)p[i].token);
        text = str_of(id);
    }
    json_text(o, text.p, text.n);
}

/* Adds the numbers of one token to the lists; p NULL: it has none, as the prompt's
 * first. */
static quire_err add_numbers(const response *a, response_logprobs *l, const quire_logprob *p, int32_t width) {
    json_out values = {.to = &l->values}, tops = {.to = &l->tops};
    if (p == NULL) {
        json_raw(json_item(&values), "null");
        json_raw(json_item(&tops), "null");
        return values.err ? values.err : tops.err;
    }
    json_number(json_item(&values), shown(p[0].logprob));
    json_begin(json_item(&tops), '{');
    for (int32_t i = 0; i < width; i++) {
        if (i > 0 && p[i].token == p[0].token) {
            continue; /* it is first already */
        }
        write_name(a, p, i, json_item(&tops));
        json_raw(&tops, ":");
        json_number(&tops, shown(p[i].logprob));
    }
    json_end(&tops, '}');
    return values.err ? values.err : tops.err;
}

/* Adds one token's text to the lists, and where in the whole text it begins. */
static quire_err add_text(response_logprobs *l, str text) {
    json_out tokens = {.to = &l->tokens}, offsets = {.to = &l->offsets};
    json_text(json_item(&tokens), text.p, text.n);
    json_int(json_item(&offsets), l->n_chars);
    l->n_chars += count_chars(text.p, text.n);
    return tokens.err ? tokens.err : offsets.err;
}

/* ---- their texts: what of the response's text each token is ---- */

/* Adds the first waiting token's text, the first n bytes of what is shown. */
static quire_err settle_first(response_logprobs *l, size_t n) {
    token_waiting *w = &l->waiting[l->first_waiting];
    TRY(add_text(l, (str){l->shown.n > 0 ? l->shown.p : "", n}));
    l->n_values = w->n_values;
    l->n_tops = w->n_tops;
    l->base += n;
    l->first_waiting++;
    l->n_settled++;
    if (n > 0) {
        memmove(l->shown.p, l->shown.p + n, l->shown.n - n + 1);
        l->shown.n -= n;
    }
    if (l->first_waiting == l->n_waiting) {
        l->first_waiting = l->n_waiting = 0;
    }
    return QUIRE_OK;
}

/* Takes text that is shown, and adds the tokens to whose end it reaches. */
static quire_err take_shown(response_logprobs *l, const char *text, size_t n) {
    /* behind a rollback: of settled tokens */
    size_t known = l->base + l->shown.n, again = l->n_shown < known ? known - l->n_shown : 0;
    again = again < n ? again : n;
    l->n_shown += n;
    l->n_chars += count_chars(text, again);
    if (again < n) {
        TRY(strbuf_add(&l->shown, text + again, n - again));
    }
    while (l->first_waiting < l->n_waiting && l->waiting[l->first_waiting].n_text <= l->shown.n) {
        TRY(settle_first(l, l->waiting[l->first_waiting].n_text));
    }
    return QUIRE_OK;
}

static quire_err add_waiting(const response *a, response_logprobs *l, const quire_event *ev) {
    TRY(mem_grow(&l->waiting, &l->cap_waiting, l->n_waiting + 1, sizeof *l->waiting));
    TRY(add_numbers(a, l, ev->logprobs, ev->n_logprobs));
    l->waiting[l->n_waiting++] = (token_waiting){ev->n_decoded, l->values.n, l->tops.n};
    return QUIRE_OK;
}

quire_err response_end_logprobs(response_choice *c) {
    response_logprobs *l = &c->logprobs;
    while (l->first_waiting < l->n_waiting) {
        size_t n = l->waiting[l->first_waiting].n_text;
        TRY(settle_first(l, n < l->shown.n ? n : l->shown.n));
    }
    return QUIRE_OK;
}

/* ---- chat: an object a token ---- */

/* An object without its closing brace. */
static void begin_token(const response *a, const quire_logprob *p, json_out *o) {
    str bytes = bytes_of(a, p->token);
    json_begin(json_item(o), '{');
    write_token_text(a, p->token, json_name(o, "token"));
    json_number(json_name(o, "logprob"), shown(p->logprob));
    json_begin(json_name(o, "bytes"), '[');
    for (size_t i = 0; i < bytes.n; i++) {
        json_int(json_item(o), (unsigned char)bytes.p[i]);
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

/* ---- the prompt's: {"ID":{"logprob":..,"rank":..,"decoded_token":..},..} a token
 * ---- */

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

/* The echo's text of the prompt's token at i. */
static str echo_of(const quire_event *ev, int32_t i) {
    size_t from = ev->token_ends != NULL && i > 0 ? ev->token_ends[i - 1] : 0,
           to = ev->token_ends != NULL ? ev->token_ends[i] : 0;
    return (str){ev->text != NULL ? ev->text + from : "", to - from};
}

quire_err response_take_prompt_logprobs(const response *a, response_prompt *to, const quire_event *ev) {
    if (a->info->prompt_logprobs < 0) {
        return QUIRE_OK;
    }
    bool listed = a->info->echo && a->info->logprobs >= 0 && a->info->endpoint == QUIRE_COMPLETIONS;
    int32_t listed_width = a->info->logprobs + 1 < ev->n_logprobs ? a->info->logprobs + 1 : ev->n_logprobs;
    for (int32_t i = 0; i < ev->n_tokens; i++) {
        const quire_logprob *p =
            i > 0 && ev->logprobs != NULL ? ev->logprobs + (size_t)(i - 1) * (size_t)ev->n_logprobs : NULL;
        TRY(p != NULL ? add_prompt(a, to, p, ev->n_logprobs) : QUIRE_OK);
        if (listed) {
            TRY(add_numbers(a, &to->logprobs, p, listed_width));
            TRY(add_text(&to->logprobs, echo_of(ev, i)));
        }
    }
    to->logprobs.n_values = to->logprobs.values.n;
    to->logprobs.n_tops = to->logprobs.tops.n;
    return QUIRE_OK;
}

quire_err response_take_logprobs(const response *a, response_choice *c, const quire_event *ev) {
    response_logprobs *l = &c->logprobs;
    if (a->info->logprobs < 0) {
        return QUIRE_OK;
    }
    if (a->info->endpoint == QUIRE_CHAT) {
        return ev->logprobs != NULL ? add_content(a, l, ev->logprobs, ev->n_logprobs) : QUIRE_OK;
    }
    TRY(ev->n_tokens > 0 ? add_waiting(a, l, ev) : QUIRE_OK);
    return take_shown(l, ev->text, ev->n_text);
}

/* Removes the first n bytes, and the comma behind them. */
static void drop_first(strbuf *b, size_t n) {
    n += n > 0 && n < b->n;
    if (n > 0) {
        memmove(b->p, b->p + n, b->n - n + 1);
        b->n -= n;
    }
}

void response_clear_logprobs(response_choice *c) {
    response_logprobs *l = &c->logprobs;
    size_t n_values = l->values.n, n_tops = l->tops.n;
    drop_first(&l->values, l->n_values);
    drop_first(&l->tops, l->n_tops);
    for (size_t i = l->first_waiting; i < l->n_waiting; i++) {
        l->waiting[i].n_values -= n_values - l->values.n;
        l->waiting[i].n_tops -= n_tops - l->tops.n;
    }
    l->n_values = l->n_tops = 0;
    strbuf_clear(&l->tokens);
    strbuf_clear(&l->offsets);
    strbuf_clear(&l->content);
}

/* Forgets the waiting tokens from index n on, and their numbers. */
static void forget_waiting(response_logprobs *l, size_t n) {
    const token_waiting *last = n > l->first_waiting ? &l->waiting[n - 1] : NULL;
    l->n_waiting = n;
    l->values.n = last != NULL ? last->n_values : l->n_values;
    l->tops.n = last != NULL ? last->n_tops : l->n_tops;
}

quire_err response_rollback_logprobs(const response *a, response_choice *c, const quire_event *ev) {
    response_logprobs *l = &c->logprobs;
    size_t n = (size_t)ev->n_tokens;
    if (a->info->logprobs < 0 || a->info->endpoint == QUIRE_CHAT) {
        return QUIRE_OK;
    }
    if (n <= l->n_settled) {
        forget_waiting(l, l->first_waiting);
        l->n_settled = n;
        l->base = ev->n_decoded;
    } else {
        forget_waiting(l, l->first_waiting + n - l->n_settled);
    }
    strbuf_clear(&l->shown);
    l->n_shown = 0;
    l->n_chars = l->n_prompt_chars;
    return take_shown(l, ev->text, ev->n_text);
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
    strbuf_deinit(&l->shown);
    mem_free(l->waiting);
    l->waiting = NULL;
    l->n_waiting = l->first_waiting = l->cap_waiting = 0;
}

/* Writes two lists as one, either of which may be empty. */
static void write_lists(const char *name, str first, str second, json_out *o) {
    json_begin(json_name(o, name), '[');
    json_raw_part(o, first);
    json_raw(o, first.n > 0 && second.n > 0 ? "," : "");
    json_raw_part(o, second);
    json_end(o, ']');
}

static str whole(const strbuf *b) {
    return (str){b->n > 0 ? b->p : "", b->n};
}

void response_write_logprobs(const response *a, const response_choice *c, json_out *o) {
    static const response_logprobs none = {.n_chars = 0};
    const response_logprobs *l = &c->logprobs,
                            *p = c->prompt_sent ? &none : &response_prompt_of(a, c)->logprobs;
    json_name(o, "logprobs");
    if (l->tokens.n + l->content.n + p->tokens.n == 0) {
        json_raw(o, "null");
        return;
    }
    json_begin(o, '{');
    if (a->info->endpoint == QUIRE_CHAT) {
        write_lists("content", whole(&p->content), whole(&l->content), o);
    } else {
        write_lists("text_offset", whole(&p->offsets), whole(&l->offsets), o);
        write_lists("token_logprobs", whole(&p->values), (str){l->values.p, l->n_values}, o);
        write_lists("tokens", whole(&p->tokens), whole(&l->tokens), o);
        write_lists("top_logprobs", whole(&p->tops), (str){l->tops.p, l->n_tops}, o);
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
