/* Writes responses without generation: POST /tokenize, /detokenize, /apply-template and
 * the /render of completions and chats, in vLLM's and llama.cpp's forms. */
#include "base/utf8.h"
#include "server/response.h"

static const response_prompt *tokenize_prompt(const response *a) {
    return &a->prompts[0];
}

static void tokenize_write_nothing(const response *a, json_out *o) {
    (void)a, (void)o;
}

/* ---- vLLM's: {"count":..,"max_model_len":..,"tokens":[..],"token_strs":[..] or null}
 * ---- */

static void tokenize_write(const response *a, int32_t i, json_out *o) {
    const response_prompt *p = tokenize_prompt(a);
    const quire_engine *e = response_engine(a);
    (void)i;
    json_begin(o, '{');
    json_int(json_name(o, "count"), (int64_t)p->n_ids);
    json_int(json_name(o, "max_model_len"), quire_engine_info(e)->max_model_len);
    json_ints(json_name(o, "tokens"), p->ids, p->n_ids);
    json_name(o, "token_strs");
    if (!a->more->token_texts) {
        json_raw(o, "null");
    } else {
        json_begin(o, '[');
        for (size_t k = 0; k < p->n_ids; k++) {
            size_t n;
            const char *piece = quire_token_piece(e, p->ids[k], &n);
            json_text(json_item(o), piece, n);
        }
        json_end(o, ']');
    }
    json_end(o, '}');
}

const response_writer tokenize_writer = {.id_prefix = "tokenize-",
                                         .object = "tokenize",
                                         .begin = tokenize_write_nothing,
                                         .choice = tokenize_write,
                                         .end = tokenize_write_nothing};

/* ---- llama.cpp's: {"tokens":[1,2]} or {"tokens":[{"id":1,"piece":"a"},..]} ---- */

/* Writes a token's piece; one that is part of a character becomes an array of bytes. */
static void tokenize_write_piece(const response *a, int32_t id, json_out *o) {
    str bytes = response_token_bytes(a, id);
    json_begin(json_item(o), '{');
    json_int(json_name(o, "id"), id);
    json_name(o, "piece");
    if (utf8_is_valid(bytes)) {
        json_text(o, bytes.p, bytes.n);
    } else {
        response_write_bytes(bytes, o);
    }
    json_end(o, '}');
}

static void tokenize_write_content(const response *a, int32_t i, json_out *o) {
    const response_prompt *p = tokenize_prompt(a);
    (void)i;
    json_begin(o, '{');
    if (!a->more->token_texts) {
        json_ints(json_name(o, "tokens"), p->ids, p->n_ids);
    } else {
        json_begin(json_name(o, "tokens"), '[');
        for (size_t k = 0; k < p->n_ids; k++) {
            tokenize_write_piece(a, p->ids[k], o);
        }
        json_end(o, ']');
    }
    json_end(o, '}');
}

const response_writer tokenize_content_writer = {.id_prefix = "tokenize-",
                                                 .object = "tokenize",
                                                 .begin = tokenize_write_nothing,
                                                 .choice = tokenize_write_content,
                                                 .end = tokenize_write_nothing};

/* ---- texts: vLLM's member is "prompt", llama.cpp's "content" ---- */

static void detokenize_write(const response *a, int32_t i, json_out *o) {
    const strbuf *text = &tokenize_prompt(a)->text;
    (void)i;
    json_begin(o, '{');
    json_text(json_name(o, "prompt"), text->p, text->n);
    json_text(json_name(o, "content"), text->p, text->n);
    json_end(o, '}');
}

const response_writer detokenize_writer = {.id_prefix = "detokenize-",
                                           .object = "detokenize",
                                           .begin = tokenize_write_nothing,
                                           .choice = detokenize_write,
                                           .end = tokenize_write_nothing};

static void apply_template_write(const response *a, int32_t i, json_out *o) {
    const strbuf *text = &tokenize_prompt(a)->text;
    (void)i;
    json_begin(o, '{');
    json_text(json_name(o, "prompt"), text->p, text->n);
    json_end(o, '}');
}

const response_writer apply_template_writer = {.id_prefix = "template-",
                                               .object = "template",
                                               .begin = tokenize_write_nothing,
                                               .choice = apply_template_write,
                                               .end = tokenize_write_nothing};

/* ---- vLLM's GenerateRequest, an object for each prompt ---- */

static void render_write(const response *a, int32_t i, json_out *o) {
    const response_prompt *p = &a->prompts[a->shown[i]];
    json_raw(o, i > 0 ? "," : "");
    json_begin(o, '{');
    response_write_id(a, json_name(o, "request_id"));
    json_ints(json_name(o, "token_ids"), p->ids, p->n_ids);
    json_raw(o, ",\"token_offsets\":null,\"features\":null,\"content_parts\":null,");
    json_raw(o, a->more->render);
    json_cstr(json_name(o, "model"), response_model(a));
    json_raw(o, ",\"reasoning_ended\":null,\"reasoning_parser_kwargs\":null,\"return_token_ids\":null,"
                "\"output_mode\":\"tokens\",\"kv_transfer_params\":null,\"ec_transfer_params\":null");
    json_end(o, '}');
}

static void render_write_begin(const response *a, json_out *o) {
    (void)a;
    json_begin(o, '[');
}

static void render_write_end(const response *a, json_out *o) {
    (void)a;
    json_end(o, ']');
}

const response_writer completions_render_writer = {.id_prefix = "cmpl-",
                                                   .object = "request",
                                                   .begin = render_write_begin,
                                                   .choice = render_write,
                                                   .end = render_write_end};
const response_writer chat_render_writer = {.id_prefix = "chatcmpl-",
                                            .object = "request",
                                            .begin = tokenize_write_nothing,
                                            .choice = render_write,
                                            .end = tokenize_write_nothing};
