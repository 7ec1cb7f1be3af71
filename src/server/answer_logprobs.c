/* Log-probabilities in answers: OpenAI's two forms, and the reference's prompt_logprobs. */
#include <string.h>


#include "server/answer.h"

/* What the APIs show of minus infinity. */
static double shown(float logprob) {
    return logprob > -9999.0f ? (double)logprob : -9999.0;
}

/* The text of a token by itself, "" where it is only a part of a character. Freed with quire_free. */
static char *text_of(const answer *a, int32_t token, size_t *n) {
    char *text = NULL;
    quire_error err;
    if (quire_detokenize(a->conn->loop->server->engine, &token, 1, false, &text, n, &err) != QUIRE_OK) {
        *n = 0;
        return NULL;
    }
    for (size_t i = 0; i + 3 <= *n; i++) {
        if (memcmp(text + i, "\xEF\xBF\xBD", 3) == 0) {
            *n = 0;
        }
    }
    return text;
}

static void write_token_text(const answer *a, int32_t token, json_out *o) {
    size_t n;
    char *text = text_of(a, token, &n);
    json_text(o, text != NULL ? text : "", n);
    quire_free(text);
}

/* ---- completions: four lists ---- */

static int64_t count_chars(const char *text, size_t n) {
    int64_t chars = 0;
    for (size_t i = 0; i < n; i++) {
        chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return chars;
}

static void begin_value(json_out *o) {
    if (o->to->n > 0) {
        json_raw(o, ",");
    }
}

/* One token into the lists; width 0: the prompt's first, which has no log-probability. */
static quire_err add_to_lists(const answer *a, answer_logprobs *l, int32_t token, const quire_logprob *p, int32_t width) {
    json_out tokens = {.to = &l->tokens}, values = {.to = &l->values}, tops = {.to = &l->tops}, offsets = {.to = &l->offsets};
    size_t n;
    char *text = text_of(a, token, &n);
    begin_value(&tokens);
    json_text(&tokens, text != NULL ? text : "", n);
    begin_value(&offsets);
    json_int(&offsets, l->n_chars);
    l->n_chars += text != NULL ? count_chars(text, n) : 0;
    quire_free(text);
    begin_value(&values);
    begin_value(&tops);
    if (width == 0) {
        json_raw(&values, "null");
        json_raw(&tops, "null");
    } else {
        json_number(&values, shown(p[0].logprob));
        json_raw(&tops, "{");
        for (int32_t i = 0; i < width; i++) {
            if (i > 0 && p[i].token == p[0].token) {
                continue; /* it stands first already */
            }
            json_raw(&tops, i > 0 ? "," : "");
            write_token_text(a, p[i].token, &tops);
            json_raw(&tops, ":");
            json_number(&tops, shown(p[i].logprob));
        }
        json_raw(&tops, "}");
    }
    return tokens.err ? tokens.err : values.err ? values.err : tops.err ? tops.err : offsets.err;
}

/* ---- chat: an object a token ---- */

static void write_members(const answer *a, const quire_logprob *p, json_out *o) {
    size_t n;
    char *text = text_of(a, p->token, &n);
    json_raw(o, "\"token\":");
    json_text(o, text != NULL ? text : "", n);
    json_raw(o, ",\"logprob\":");
    json_number(o, shown(p->logprob));
    json_raw(o, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) {
        json_raw(o, i > 0 ? "," : "");
        json_int(o, (unsigned char)text[i]);
    }
    json_raw(o, "]");
    quire_free(text);
}

static quire_err add_content(const answer *a, answer_logprobs *l, const quire_logprob *p, int32_t width) {
    json_out o = {.to = &l->content};
    begin_value(&o);
    json_raw(&o, "{");
    write_members(a, &p[0], &o);
    json_raw(&o, ",\"top_logprobs\":[");
    for (int32_t i = 1; i < width; i++) {
        json_raw(&o, i > 1 ? ",{" : "{");
        write_members(a, &p[i], &o);
        json_raw(&o, "}");
    }
    json_raw(&o, "]}");
    return o.err;
}

/* ---- the prompt's: {"ID":{"logprob":..,"rank":..,"decoded_token":..},..} a token ---- */

static quire_err add_prompt(const answer *a, answer_choice *c, const quire_logprob *p, int32_t width) {
    json_out o = {.to = &c->prompt_logprobs};
    json_raw(&o, ",{");
    for (int32_t i = 0; i < width; i++) {
        if (i > 0 && p[i].token == p[0].token) {
            continue;
        }
        json_raw(&o, i > 0 ? ",\"" : "\"");
        json_int(&o, p[i].token);
        json_raw(&o, "\":{\"logprob\":");
        json_number(&o, shown(p[i].logprob));
        json_raw(&o, ",\"rank\":");
        json_int(&o, p[i].rank);
        json_raw(&o, ",\"decoded_token\":");
        write_token_text(a, p[i].token, &o);
        json_raw(&o, "}");
    }
    json_raw(&o, "}");
    return o.err;
}

static quire_err take_prompt(const answer *a, answer_choice *c, const quire_event *ev) {
    bool listed = a->info->echo && a->info->logprobs >= 0 && a->info->endpoint == QUIRE_COMPLETIONS;
    int32_t listed_width = a->info->logprobs + 1 < ev->n_logprobs ? a->info->logprobs + 1 : ev->n_logprobs;
    if (listed && ev->n_tokens > 0) {
        TRY(add_to_lists(a, &c->logprobs, ev->tokens[0], NULL, 0));
    }
    for (int32_t i = 1; i < ev->n_tokens && ev->logprobs != NULL; i++) {
        const quire_logprob *p = ev->logprobs + (size_t)(i - 1) * (size_t)ev->n_logprobs;
        TRY(add_prompt(a, c, p, ev->n_logprobs));
        if (listed) {
            TRY(add_to_lists(a, &c->logprobs, ev->tokens[i], p, listed_width));
        }
    }
    return QUIRE_OK;
}

quire_err answer_take_logprobs(const answer *a, answer_choice *c, const quire_event *ev) {
    if (ev->kind == QUIRE_EVENT_START) {
        return a->info->prompt_logprobs >= 0 ? take_prompt(a, c, ev) : QUIRE_OK;
    }
    if (ev->logprobs == NULL) {
        return QUIRE_OK;
    }
    return a->info->endpoint == QUIRE_CHAT ? add_content(a, &c->logprobs, ev->logprobs, ev->n_logprobs)
                                           : add_to_lists(a, &c->logprobs, ev->tokens[0], ev->logprobs, ev->n_logprobs);
}

void answer_clear_logprobs(answer_choice *c) {
    strbuf_clear(&c->logprobs.tokens);
    strbuf_clear(&c->logprobs.values);
    strbuf_clear(&c->logprobs.tops);
    strbuf_clear(&c->logprobs.offsets);
    strbuf_clear(&c->logprobs.content);
}

void answer_rollback_logprobs(const answer *a, answer_choice *c, const int32_t *tokens, int32_t n) {
    c->logprobs.n_chars = c->logprobs.n_prompt_chars;
    for (int32_t i = 0; a->info->logprobs >= 0 && i < n; i++) {
        size_t n_text;
        char *text = text_of(a, tokens[i], &n_text);
        c->logprobs.n_chars += text != NULL ? count_chars(text, n_text) : 0;
        quire_free(text);
    }
}

void answer_deinit_logprobs(answer_choice *c) {
    strbuf_deinit(&c->logprobs.tokens);
    strbuf_deinit(&c->logprobs.values);
    strbuf_deinit(&c->logprobs.tops);
    strbuf_deinit(&c->logprobs.offsets);
    strbuf_deinit(&c->logprobs.content);
    strbuf_deinit(&c->prompt_logprobs);
}

static void write_list(const char *before, const strbuf *list, json_out *o) {
    json_raw(o, before);
    json_raw(o, list->n > 0 ? list->p : "");
    json_raw(o, "]");
}

void answer_write_logprobs(const answer *a, const answer_choice *c, json_out *o) {
    const answer_logprobs *l = &c->logprobs;
    if (l->tokens.n + l->content.n == 0) {
        json_raw(o, "\"logprobs\":null");
    } else if (a->info->endpoint == QUIRE_CHAT) {
        write_list("\"logprobs\":{\"content\":[", &l->content, o);
        json_raw(o, "}");
    } else {
        write_list("\"logprobs\":{\"text_offset\":[", &l->offsets, o);
        write_list(",\"token_logprobs\":[", &l->values, o);
        write_list(",\"tokens\":[", &l->tokens, o);
        write_list(",\"top_logprobs\":[", &l->tops, o);
        json_raw(o, "}");
    }
}

void answer_write_prompt_logprobs(const answer *a, const answer_choice *c, json_out *o) {
    if (a->info->prompt_logprobs < 0) {
        json_raw(o, "\"prompt_logprobs\":null");
    } else {
        write_list("\"prompt_logprobs\":[null", &c->prompt_logprobs, o);
    }
}
