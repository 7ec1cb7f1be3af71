/* From a parsed request to sequences in the engine: templates and tokens, on a text thread. */
#include <string.h>

#include "api/stream.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"

static quire_err need_vocabulary(const quire_engine *e, quire_error *err) {
    if (e->tokenizer) {
        return QUIRE_OK;
    }
    return err_set_param(err, QUIRE_UNSUPPORTED, "prompt",
                         "this model has no vocabulary that this server can use; give the prompt as token ids");
}

/* The ids of choice i's prompt. */
static quire_err make_prompt(const quire_engine *e, const quire_request *r, int32_t i, token_list *out, quire_error *err) {
    if (r->info.endpoint == QUIRE_CHAT) {
        strbuf text = {0};
        TRY(need_vocabulary(e, err));
        quire_err er = request_render(r, e->chat, tokenizer_bos_text(e->tokenizer), tokenizer_eos_text(e->tokenizer), &text, err);
        er = er ? er : tokenizer_encode(e->tokenizer, (str){text.p, text.n}, (encode_options){ENCODE_PARSE, r->add_special}, out, err);
        strbuf_deinit(&text);
        return er;
    }
    const request_prompt *p = &r->prompts[i];
    if (!p->ids) {
        TRY(need_vocabulary(e, err));
        return tokenizer_encode(e->tokenizer, p->text, (encode_options){ENCODE_PARSE, r->add_special}, out, err);
    }
    for (int32_t k = 0; k < p->n_ids; k++) {
        if (token_list_add(out, p->ids[k]) != QUIRE_OK) {
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt");
        }
    }
    return QUIRE_OK;
}

/* The prompt must leave room for a token. A max_tokens over what is left is cut by the engine, as vLLM does. */
static quire_err check_length(const quire_engine *e, const choice *c, quire_error *err) {
    int32_t limit = e->info.max_model_len;
    if (c->prompt.n == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prompt", "the prompt is empty; it must have at least one token");
    }
    if (c->prompt.n >= (size_t)limit) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, c->prompt.n == (size_t)limit ? "max_tokens" : "input_tokens",
            "the prompt has %zu tokens; with at least one token to generate that is over the maximum context length of %d tokens",
            c->prompt.n, (int)limit);
    }
    return QUIRE_OK;
}

static quire_err open_choice(const quire_engine *e, const quire_request *r, choice *c, quire_error *err) {
    TRY(make_prompt(e, r, c->index, &c->prompt, err));
    c->sampling = r->sampling;
    c->prompt_only = r->sampling.max_tokens == 0;
    c->sampling.max_tokens = c->prompt_only ? 1 : c->sampling.max_tokens;
    TRY(check_length(e, c, err));
    quire_err er = QUIRE_OK;
    if (e->tokenizer) {
        er = detok_open(e->tokenizer, r->skip_special, &c->detok);
        if (er == QUIRE_OK) {
            detok_hold_replacements(c->detok);
            er = detok_prime(c->detok, c->prompt.ids, c->prompt.n);
        }
    }
    if (er == QUIRE_OK && r->n_stops > 0) {
        er = stopper_open(r->stops, (size_t)r->n_stops, &c->stopper);
    }
    return er == QUIRE_OK ? er : err_set(err, er, -1, "out of memory for a request");
}

/* The name of the space in which r finds prefixes: its tenant, and behind a zero byte, which no tenant's name has, a digest of its salt. */
static size_t write_space(const quire_request *r, uint8_t out[ENGINE_SPACE_BYTES]) {
    size_t n = strlen(r->tenant);
    memcpy(out, r->tenant, n);
    if (r->cache_salt.n > 0) {
        out[n++] = 0;
        sha256(r->cache_salt.p, r->cache_salt.n, out + n);
        n += SHA256_BYTES;
    }
    return n;
}

static kv_retention retention_of(const quire_request *r) {
    kv_retention keep = KV_RETENTION_DEFAULT;
    keep.priority = r->cache_priority >= 0 ? r->cache_priority : keep.priority;
    keep.ttl_us = (int64_t)((double)r->cache_ttl_s * 1e6);
    keep.ttl_us = r->cache_ttl_s > 0 && keep.ttl_us == 0 ? 1 : keep.ttl_us;
    return keep;
}

/* Hands one choice over; its prompt's ids are copied, since START shows them. */
static quire_err submit_choice(quire_stream *s, choice *c, quire_error *err) {
    int32_t *tokens = mem_new(c->prompt.n, sizeof *tokens);
    if (!tokens) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt");
    }
    memcpy(tokens, c->prompt.ids, c->prompt.n * sizeof *tokens);
    if (!c->sampling.has_seed) {
        c->sampling.seed = rng_os_seed();
        c->sampling.has_seed = true;
    }
    uint8_t space[ENGINE_SPACE_BYTES];
    engine_request r = {.tokens = tokens,
                        .n_tokens = (int32_t)c->prompt.n,
                        .sampling = c->sampling,
                        .logprobs_width = s->request->info.logprobs + 1,
                        .prompt_logprobs_width = s->request->info.prompt_logprobs + 1,
                        .logits_out = s->request->logits_out,
                        .space = space,
                        .n_space = write_space(s->request, space),
                        .retains = s->request->cache_priority >= 0 || s->request->cache_ttl_s > 0,
                        .retention = retention_of(s->request),
                        .out = s->q->out,
                        .user = c};
    quire_err e = engine_submit(s->q->e->core, &r, &c->id, err);
    if (e != QUIRE_OK) {
        mem_free(tokens);
        return e;
    }
    c->submitted = true;
    s->n_submitted++;
    return QUIRE_OK;
}

quire_err stream_prepare(quire_stream *s, quire_error *err) {
    TRY(request_tokenize_lists(s->request, s->q->e->tokenizer, err));
    for (int32_t i = 0; i < s->n_choices; i++) {
        TRY(open_choice(s->q->e, s->request, &s->choices[i], err));
    }
    for (int32_t i = 0; i < s->n_choices; i++) {
        TRY(submit_choice(s, &s->choices[i], err));
    }
    return QUIRE_OK;
}
