/* From a parsed request to sequences in the engine: templates and tokens, on a text thread. */
#include <string.h>

#include "api/stop_watch.h"
#include "api/stream.h"
#include "base/clock.h"
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

/* The ids of prompt i. */
static quire_err make_prompt(const quire_engine *e, const quire_request *r, int32_t i, token_list *out, quire_error *err) {
    if (r->info.endpoint == QUIRE_CHAT && r->stem.held == NULL) {
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

/* The ids of c's prompt: made for its first sample, copied for the others. */
static quire_err take_prompt(const quire_engine *e, const quire_request *r, choice *c, quire_error *err) {
    int32_t k = c->index % r->info.n_samples;
    if (k == 0) {
        return make_prompt(e, r, c->index / r->info.n_samples, &c->prompt, err);
    }
    const token_list *made = &(c - k)->prompt;
    for (size_t i = 0; i < made->n; i++) {
        if (token_list_add(&c->prompt, made->ids[i]) != QUIRE_OK) {
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt");
        }
    }
    return QUIRE_OK;
}

quire_err stream_open_text(const quire_engine *e, const quire_request *r, const token_list *prompt, int32_t n_prompt, detok **d, stopper **stops) {
    strbuf shown = {0};
    quire_err er = QUIRE_OK;
    if (e->tokenizer) {
        TRY(detok_open(e->tokenizer, r->skip_special, d));
        detok_hold_replacements(*d);
        er = detok_prime(*d, prompt->ids, (size_t)n_prompt);
    }
    if (er == QUIRE_OK && r->n_stops > 0) {
        er = stopper_open(r->stops, (size_t)r->n_stops, stops);
    }
    for (size_t i = (size_t)n_prompt; i < prompt->n && er == QUIRE_OK; i++) {
        int32_t match;
        strbuf_clear(&shown);
        er = stream_feed(e, r, &r->sampling, *d, *stops, prompt->ids[i], false, &shown, &match);
    }
    strbuf_deinit(&shown);
    return er;
}

static quire_err open_choice(const quire_engine *e, const quire_request *r, choice *c, quire_error *err) {
    TRY(take_prompt(e, r, c, err));
    c->sampling = r->sampling;
    c->prompt_only = r->sampling.max_tokens == 0;
    c->sampling.max_tokens = c->prompt_only ? 1 : c->sampling.max_tokens;
    TRY(check_length(e, c, err));
    int32_t n_prompt = r->stem.held != NULL ? r->stem.n_prompt : (int32_t)c->prompt.n;
    quire_err er = stream_open_text(e, r, &c->prompt, n_prompt, &c->detok, &c->stopper);
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

engine_request stream_engine_request(const quire_request *r, uint8_t space[ENGINE_SPACE_BYTES], engine_out *out) {
    bool ranked = r->info.n_samples > r->info.n_best; /* by the log-probabilities of their tokens */
    engine_request q = {.priority = r->priority,
                        .deadline_us = (int64_t)((double)r->ttft_deadline_ms * 1e3),
                        .logprobs_width = ranked && r->info.logprobs < 0 ? 1 : r->info.logprobs + 1,
                        .prompt_logprobs_width = r->info.prompt_logprobs + 1,
                        .beams = r->beams,
                        .logits_out = r->logits_out,
                        .space = space,
                        .n_space = write_space(r, space),
                        .retains = r->cache_priority >= 0 || r->cache_ttl_s > 0,
                        .retention = retention_of(r),
                        .explain = r->info.explain,
                        .out = out};
    q.beams.width = r->info.beam_width;
    return q;
}

/* A forked request's fields count from where it was forked; the engine counts from the prompt's end. */
static void add_stem(const request_stem *stem, engine_request *r) {
    int32_t n = r->n_tokens - stem->n_prompt;
    r->stem = stem->held;
    r->stem_tokens = r->n_tokens;
    r->n_prompt = stem->n_prompt;
    r->sampling.max_tokens += r->sampling.max_tokens >= 0 ? n : 0;
    r->sampling.min_tokens += n;
}

/* Hands n samples of one prompt over, of which c is the first; its prompt's ids are copied, since START shows them. */
static quire_err submit_samples(quire_stream *s, choice *c, int32_t n, request_id *ids, void **users, quire_error *err) {
    const quire_request *q = s->request;
    int32_t *tokens = mem_new(c->prompt.n, sizeof *tokens);
    if (!tokens) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt");
    }
    memcpy(tokens, c->prompt.ids, c->prompt.n * sizeof *tokens);
    uint8_t space[ENGINE_SPACE_BYTES];
    engine_request r = stream_engine_request(q, space, s->q->out);
    r.tokens = tokens;
    r.n_tokens = (int32_t)c->prompt.n;
    r.sampling = c->sampling;
    r.sample_index = (uint32_t)(c->index % q->info.n_samples);
    if (s->watch != NULL) {
        r.ending = (engine_ending){stop_watch_is_over, s->watch};
    }
    if (q->stem.held != NULL) {
        add_stem(&q->stem, &r);
    }
    for (int32_t k = 0; k < n; k++) {
        users[k] = c + k;
    }
    quire_err e = engine_submit_samples(s->q->e->core, &r, n, users, ids, err);
    if (e != QUIRE_OK) {
        mem_free(tokens);
        return e;
    }
    for (int32_t k = 0; k < n; k++) {
        c[k].id = ids[k];
        c[k].submitted = true;
    }
    s->n_submitted += n;
    return QUIRE_OK;
}

/* Samples share the computation of their prompt, but where each reports on the whole prompt. */
static quire_err submit_all(quire_stream *s, quire_error *err) {
    const quire_request_info *info = &s->request->info;
    bool alone = info->beam_width == 0 && (info->prompt_logprobs >= 0 || s->request->logits_out);
    int32_t group = alone ? 1 : info->n_samples;
    request_id *ids = mem_new((size_t)group, sizeof *ids);
    void **users = mem_new((size_t)group, sizeof *users);
    s->tokenise_us = clock_us() - s->submitted_us;
    quire_err e = ids && users ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    for (int32_t i = 0; e == QUIRE_OK && i < s->n_choices; i += group) {
        choice *c = &s->choices[i], *first = c - i % info->n_samples;
        if (!first->sampling.has_seed) {
            first->sampling.seed = rng_os_seed();
            first->sampling.has_seed = true;
        }
        for (int32_t k = 0; k < group; k++) {
            c[k].sampling = first->sampling; /* what each goes on by, should it be rolled back */
        }
        e = submit_samples(s, c, group, ids, users, err);
    }
    mem_free(ids);
    mem_free(users);
    return e;
}

quire_err stream_prepare(quire_stream *s, quire_error *err) {
    TRY(request_tokenize_lists(s->request, s->q->e->tokenizer, err));
    for (int32_t i = 0; i < s->n_choices; i++) {
        TRY(open_choice(s->q->e, s->request, &s->choices[i], err));
    }
    if (s->request->info.beam_width > 0 && s->request->n_stops > 0 && s->q->e->tokenizer != NULL &&
        stop_watch_open(s->q->e, s->request, &s->watch) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for stop strings");
    }
    return submit_all(s, err);
}
