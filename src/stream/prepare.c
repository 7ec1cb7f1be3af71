/* Prepares a parsed request on a text thread: makes its prompts and constraint, and
 * submits its sequences to the engine. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "answer/answer_bind.h"
#include "answer/answer_rule.h"
#include "answer/grammar_constraint.h"
#include "answer/thinking_budget.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "sample/constraint.h"
#include "stream/choice.h"
#include "stream/prompt_ids.h"
#include "stream/stream.h"

/* Whether the request is for pooled rows instead of tokens. */
static bool gives_rows(const generation *g) {
    return dialect_of(g)->gives_rows;
}

/* The request's own mask and score change, if any, else the engine's. */
static attn_mods *mods_of(const stream_engine *e, const generation *g) {
    return g->has_attention ? g->mods : e->context.mods;
}

/* Refuses masks with sparse attention: masks refer to positions, but rows read their
 * chosen keys as a contiguous list. */
static quire_err check_attention(const stream_engine *e, const generation *g, quire_error *err) {
    return mods_of(e, g) == NULL || e->model->index.n_best == 0
               ? QUIRE_OK
               : err_set_param(err, QUIRE_UNSUPPORTED, "attention",
                               "this model selects the keys that each row reads, so masks and score changes "
                               "are not supported");
}

/* Checks the prompt's length. The engine reduces a max_tokens that exceeds the context,
 * as vLLM does. */
static quire_err check_length(const stream_engine *e, const generation *g, const choice *c,
                              quire_error *err) {
    if (c->prompt.n == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, dialect_of(g)->prompt,
                             "the prompt is empty; it must have at least one token");
    }
    if (g->max_prompt_tokens >= 0 && c->prompt.n > (size_t)g->max_prompt_tokens) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "max_prompt_tokens",
                             "the %s has %zu tokens; max_prompt_tokens is %d", dialect_of(g)->prompt,
                             c->prompt.n, (int)g->max_prompt_tokens);
    }
    size_t most = (size_t)e->context.max_model_len - (gives_rows(g) ? 0 : 1);
    return c->prompt.n > most ? generation_too_long(g, e->context.max_model_len, c->prompt.n, false, err)
                              : QUIRE_OK;
}

/* ---- the most bytes of JSON that a response may take ---- */

enum {
    TOKEN_BYTES = 8, /* a token's text, or its id */
    PROMPT_LISTED_BYTES = 80,
    TOKEN_TEXT_BYTES = 24 /* a token id in decimal, with the JSON around it */
};

/* Bytes of one token in the response, or in the echo. */
static int64_t token_bytes(const generation *g) {
    const quire_request_info *info = &g->info;
    int64_t listed = dialect_of(g)->listed_bytes;
    return TOKEN_BYTES + (info->return_token_ids ? TOKEN_BYTES : 0) +
           listed * generation_listed(g, info->logprobs);
}

/* Bytes of the choices of a prompt with n tokens: the echo and, unless streamed,
 * max_tokens tokens. Without max_tokens only the echo counts; the response is cut when it
 * gets too long. */
static int64_t response_bytes(const stream_engine *e, const generation *g, size_t n_prompt) {
    const quire_request_info *info = &g->info;
    int64_t shown = (info->echo ? token_bytes(g) : 0) + (info->return_token_ids ? TOKEN_BYTES : 0) +
                    (g->more.token_texts ? TOKEN_TEXT_BYTES : 0);
    /* tokens before prompt_logprobs_start are written as null */
    int64_t n_null =
                (int64_t)n_prompt < g->prompt_logprobs_start ? (int64_t)n_prompt : g->prompt_logprobs_start,
            listed = PROMPT_LISTED_BYTES * (int64_t)generation_listed(g, info->prompt_logprobs) *
                         ((int64_t)n_prompt - n_null) +
                     (info->prompt_logprobs >= 0 ? TOKEN_BYTES * n_null : 0);
    /* a chat shows its prompt once, a completion with every choice */
    int64_t n_shown = dialect_of(g)->is_chat ? 1 : info->n_samples;
    bool none_new = info->stream || g->more.prompt_only || g->sampling.max_tokens < 0;
    int64_t n_new = none_new ? 0 : g->sampling.max_tokens,
            room = e->context.max_model_len - (int64_t)n_prompt;
    n_new = n_new < room ? n_new : room;
    return info->n_samples * n_new * token_bytes(g) + n_shown * ((int64_t)n_prompt * shown + listed);
}

/* Adds the bytes of the choices of one more prompt to *total. */
static quire_err count_response(const stream_engine *e, const generation *g, size_t n_prompt, int64_t *total,
                                quire_error *err) {
    int64_t limit = (int64_t)e->max_answer_bytes;
    *total += response_bytes(e, g, n_prompt);
    if (limit == 0 || gives_rows(g) || *total <= limit) {
        return QUIRE_OK;
    }
    if (g->more.prompt_only) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, dialect_of(g)->prompt,
            "the answer could take %lld bytes, and --max-answer-bytes is %lld: shorten the text",
            (long long)*total, (long long)limit);
    }
    return err_set_param(err, QUIRE_BAD_REQUEST,
                         g->info.n_samples > 1   ? "n"
                         : g->info.logprobs >= 0 ? "logprobs"
                                                 : "max_tokens",
                         "the answer could take %lld bytes, and --max-answer-bytes is %lld: ask for fewer "
                         "choices, tokens or logprobs, or for no echo",
                         (long long)*total, (long long)limit);
}

static quire_err open_choice(const stream_engine *e, const quire_request *r, choice *c, quire_error *err) {
    TRY(check_attention(e, &r->g, err));
    TRY(prompt_take(e, r, c, err));
    c->sampling = r->g.each != NULL ? r->g.each[c->index / r->g.info.n_samples] : r->g.sampling;
    c->prompt_only = c->sampling.max_tokens == 0;
    c->sampling.max_tokens = c->prompt_only ? 1 : c->sampling.max_tokens;
    TRY(check_length(e, &r->g, c, err));
    return err_set(err, gives_rows(&r->g) ? QUIRE_OK : choice_open_text(c, &c->text), -1,
                   "out of memory for a request");
}

_Static_assert(QUIRE_TENANT_BYTES + 1 + 3 * SHA256_BYTES <= ENGINE_NAMESPACE_BYTES,
               "a namespace's name fits");

/* Writes the name of r's namespace, which consists of: the tenant; a zero byte, which no
 * tenant's name contains; a digest of the salt (zeros if none); with a mask or score
 * change, its digest and the b that it reads; with an adapter on all rows, these fields
 * (zeros if unused) and the adapter's digest. */
static size_t write_namespace(const stream_engine *e, const generation *g, int32_t b, const adapter_ref *own,
                              uint8_t out[ENGINE_NAMESPACE_BYTES]) {
    const attn_mods *mods = mods_of(e, g);
    size_t n = strlen(g->tenant);
    memcpy(out, g->tenant, n);
    if (g->cache_salt.n > 0 || mods != NULL || own != NULL) {
        memset(out + n, 0, 1 + SHA256_BYTES);
        n++;
        if (g->cache_salt.n > 0) {
            sha256(g->cache_salt.p, g->cache_salt.n, out + n);
        }
        n += SHA256_BYTES;
    }
    if (mods != NULL) {
        sha256_sum s;
        sha256_begin(&s);
        sha256_add(&s, mods->digest, sizeof mods->digest);
        sha256_add(&s, &b, mods->uses_b ? sizeof b : 0);
        sha256_end(&s, out + n);
        n += SHA256_BYTES;
    } else if (own != NULL) {
        memset(out + n, 0, SHA256_BYTES);
        n += SHA256_BYTES;
    }
    if (own != NULL) {
        memcpy(out + n, own->digest, SHA256_BYTES);
        n += SHA256_BYTES;
    }
    return n;
}

/* The first position with the adapter, as in vLLM and llama.cpp: an activated adapter
 * starts at the last occurrence of its invocation tokens in the prompt. -1: no row has
 * it. */
static int32_t adapter_start(const adapter_ref *a, const int32_t *ids, int32_t n) {
    int32_t at = a->n_invocation > 0 ? n - a->n_invocation : 0;
    while (at >= 0 && a->n_invocation > 0 &&
           memcmp(ids + at, a->invocation, (size_t)a->n_invocation * sizeof *ids) != 0) {
        at--;
    }
    return at < 0 ? -1 : at;
}

static kv_retention retention_of(const generation *g) {
    kv_retention keep = KV_RETENTION_DEFAULT;
    keep.priority = g->cache_priority >= 0 ? g->cache_priority : keep.priority;
    keep.ttl_us = (int64_t)((double)g->cache_ttl_s * 1e6);
    keep.ttl_us = g->cache_ttl_s > 0 && keep.ttl_us == 0 ? 1 : keep.ttl_us;
    return keep;
}

/* ---- the engine's work on text threads ---- */

_Static_assert(sizeof(text_job) <= sizeof((engine_work *)0)->of_outside, "a job fits");

static text_job *job_of(engine_work *w) {
    return (text_job *)(void *)w->of_outside;
}

static void run_work(text_job *job) {
    engine_work *w = (engine_work *)(void *)((char *)job - offsetof(engine_work, of_outside));
    w->run(w);
}

/* engine_outside.add: adds work of a tenant to the text pool, charged like its texts. */
static void add_work(void *context, engine_work *w) {
    *job_of(w) = (text_job){.run = run_work, .tenant = w->tenant, .is_off = w->is_off};
    text_pool_add(context, job_of(w));
}

/* ---- predictions ---- */

/* The beginning of a text, long enough for a whole sequence of the longest token in the
 * vocabulary. */
static str beginning_of(const stream_engine *e, str text) {
    size_t limit = (size_t)e->context.max_model_len, least = tokenizer_least_tokens(e->tokenizer, text.n);
    return (str){text.p, least > limit ? text.n / least * limit : text.n};
}

/* Tokenises the request's prediction as it would follow the first prompt, with control
 * tokens as plain text. Keeps at most a sequence's number of tokens. */
static quire_err make_prediction(quire_stream *s, quire_error *err) {
    const stream_engine *e = s->q->e;
    const choice *first = &s->choices[0];
    str text = s->request->g.prediction;
    if (text.n == 0 || e->tokenizer == NULL || s->request->g.more.prompt_only) {
        return QUIRE_OK;
    }
    strbuf after = {0};
    token_list ids = {0};
    text = beginning_of(e, text);
    const token_list known = {.ids = first->prompt.ids + choice_first_prompt(first) - 1, .n = 1};
    encode_options options = {.special = ENCODE_PLAIN, .known = &known, .from = 1};
    quire_error why = {.message = "out of memory"};
    quire_err er = strbuf_add_char(&after, '\n'); /* stands for the prompt */
    TRY_DONE(er, strbuf_add(&after, text.p, text.n));
    TRY_DONE(er, tokenizer_encode(e->tokenizer, (str){after.p, after.n}, options, &ids, &why));
    size_t n = ids.n - known.n, most = (size_t)e->context.max_model_len;
    er = prediction_new(ids.ids + known.n, (int32_t)(n < most ? n : most), &s->prediction);
done:
    strbuf_deinit(&after);
    token_list_deinit(&ids);
    return err_set_param(err, er, "prediction", "the prediction: %s", why.message);
}

engine_request stream_engine_request(const quire_stream *s, int32_t prompt, const int32_t *ids, int32_t n,
                                     uint8_t namespace[ENGINE_NAMESPACE_BYTES]) {
    assert(prompt >= 0 && n >= 0);
    const quire_request *r = s->request;
    int32_t from = s->want.ref != NULL ? adapter_start(s->want.ref, ids, n) : -1;
    adapter_ref *ref = from >= 0 ? s->want.ref : NULL;
    /* candidates are ranked by log-probability */
    bool ranked = r->g.info.n_samples > r->g.info.n_best;
    return (engine_request){
        .priority = r->g.priority,
        .deadline_us = request_deadline_us(&r->g),
        .logprobs_width = generation_listed(&r->g, ranked && r->g.info.logprobs < 0 ? 0 : r->g.info.logprobs),
        .prompt_logprobs_width = generation_listed(&r->g, r->g.info.prompt_logprobs),
        .prompt_logprobs_start = r->g.prompt_logprobs_start,
        .beams = r->g.beams,
        .logits_out = r->logits_out,
        .constraint = s->rule.constraint,
        .prediction = s->prediction,
        .mods = mods_of(s->q->e, &r->g),
        .mods_b = prompt,
        .mods_are_own = r->g.has_attention,
        .adapter = ref,
        .adapter_from = ref != NULL ? from : 0,
        .namespace = namespace,
        .n_namespace = write_namespace(s->q->e, &r->g, prompt, from == 0 ? ref : NULL, namespace),
        .retains = r->g.cache_priority >= 0 || r->g.cache_ttl_s > 0,
        .retention = retention_of(&r->g),
        .tree = r->program,
        .depth = r->depth,
        .has_waited = s->wants_place,
        .explain = r->g.info.explain,
        .shows_progress = r->g.more.return_progress,
        .outside = {add_work, s->q->e->text, text_tenant(r->g.tenant)},
        .out = s->q->out};
}

/* Converts the limits of a forked request: the request counts from the fork position, the
 * engine from the end of the prompt. */
static void add_fork(const stream_fork *fork_from, engine_request *r) {
    int32_t n = r->n_tokens - fork_from->n_prompt;
    r->fork_from = fork_from->held;
    r->fork_position = r->n_tokens;
    r->n_prompt = fork_from->n_prompt;
    r->sampling.max_tokens += r->sampling.max_tokens >= 0 ? n : 0;
    r->sampling.min_tokens += n;
}

#define MARKED_PLACES                                                                                        \
    5 /* marks of a prompt: the ends of its last four messages, and the beginning of the answer */
_Static_assert(MARKED_PLACES <= ENGINE_MARKS, "the engine takes them all");

/* Whether c ends when its prompt is computed, without any of the prompt's rows. */
static bool takes_none(const choice *c) {
    const quire_request *r = c->request;
    return c->prompt_only && r->n_parks > 0 && r->g.info.prompt_logprobs < 0 && r->logits_out == NULL;
}

/* Submits n samples of one prompt; c is the first. Copies the prompt's ids, since START
 * shows them. */
static quire_err submit_samples(quire_stream *s, choice *c, int32_t n, request_id *ids, void **users,
                                engine_park **parks, quire_error *err) {
    const quire_request *q = s->request;
    int32_t *tokens = mem_new(c->prompt.n, sizeof *tokens);
    if (!tokens) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt");
    }
    memcpy(tokens, c->prompt.ids, c->prompt.n * sizeof *tokens);
    uint8_t namespace[ENGINE_NAMESPACE_BYTES];
    int32_t n_prompt = q->fork_from != NULL ? q->fork_from->n_prompt : (int32_t)c->prompt.n;
    engine_request r = stream_engine_request(s, c->index / q->g.info.n_samples, tokens, n_prompt, namespace);
    r.tokens = tokens;
    r.n_tokens = (int32_t)c->prompt.n;
    r.n_marks = prompt_marks(s->q->e->tokenizer, tokens, r.n_tokens, MARKED_PLACES, r.marks);
    r.sampling = c->sampling;
    r.pooling = q->g.pooling;
    r.types = !gives_rows(&q->g) ? NULL : c->types.n > 0 ? c->types.ids : q->g.prompts[c->index].types;
    r.sample_index = (uint32_t)(c->index % q->g.info.n_samples);
    if (s->watch != NULL) {
        r.ending = (engine_ending){beam_stop_matcher_is_over, s->watch};
    }
    if (q->fork_from != NULL) {
        add_fork(q->fork_from, &r);
    }
    if (takes_none(c)) {
        r.no_tokens = true;
        r.constraint = NULL;
        r.prediction = NULL;
        r.logprobs_width = 0;
        r.sampling.mirostat = MIROSTAT_OFF;
    }
    for (int32_t k = 0; k < n; k++) {
        users[k] = c + k;
        parks[k] = stream_park_of(q, c[k].index);
    }
    r.parks = q->n_parks > 0 ? parks : NULL;
    quire_err e = engine_submit_samples(s->q->e->core, &r, n, users, ids, err);
    if (e != QUIRE_OK) {
        mem_free(tokens);
        if (e == QUIRE_BUSY && !stream_waits_for_place(s)) {
            request_stats_refused(s->q->e->requests);
        }
        return e;
    }
    for (int32_t k = 0; k < n; k++) {
        c[k].id = ids[k];
        c[k].submitted = true;
    }
    s->n_submitted += n;
    return QUIRE_OK;
}

/* Submits the choices that are not submitted yet. Samples share the computation of their
 * prompt, unless each reports on the whole prompt. */
static quire_err submit_all(quire_stream *s, quire_error *err) {
    const quire_request_info *info = &s->request->g.info;
    bool alone = info->beam_width == 0 &&
                 (info->prompt_logprobs >= 0 || s->request->logits_out || takes_none(&s->choices[0]));
    int32_t group = alone ? 1 : info->n_samples;
    request_id *ids = mem_new((size_t)group, sizeof *ids);
    void **users = mem_new((size_t)group, sizeof *users);
    engine_park **parks = mem_new((size_t)group, sizeof *parks);
    bool is_again = s->n_submitted > 0 || s->choices[0].tokenise_us > 0;
    int64_t tokenise_us =
        is_again ? s->choices[0].tokenise_us : clock_us() - s->submitted_us - s->want.load_us;
    quire_err e =
        ids && users && parks ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    for (int32_t i = s->n_submitted; e == QUIRE_OK && i < s->n_choices; i += group) {
        choice *c = &s->choices[i], *first = c - i % info->n_samples;
        if (!first->sampling.has_seed) {
            first->sampling.seed = rng_os_seed();
            first->sampling.has_seed = true;
        }
        for (int32_t k = 0; k < group; k++) {
            c[k].sampling = first->sampling; /* kept in case of a rollback */
            c[k].tokenise_us = tokenise_us;
        }
        e = submit_samples(s, c, group, ids, users, parks, err);
        e = e != QUIRE_OK && e != QUIRE_BUSY && gives_rows(&s->request->g)
                ? request_name_input(s->request, i, e, err)
                : e;
    }
    mem_free(ids);
    mem_free(users);
    mem_free(parks);
    return e;
}

/* Compiles r's rule, which exists, with the vocabulary that it needs. */
static quire_err make_rule(quire_stream *s, const reasoning_frame *frame, quire_error *err) {
    stream_engine *e = s->q->e;
    const quire_request *r = s->request;
    grammar_vocab *v;
    grammar *g;
    const grammar_marks none = {0}, *marks = &none;
    if (answer_rule_is_marked(&r->rule, frame)) {
        const marked_vocab *marked;
        TRY(err_set(err, stream_engine_marked(e, &marked), -1, "out of memory for the vocabulary"));
        v = marked->vocab;
        marks = &marked->marks;
    } else {
        TRY(err_set(err, stream_engine_vocab(e, &v), -1, "out of memory for the vocabulary"));
    }
    int64_t began_us = clock_us();
    const model_desc *d = e->model;
    int32_t ends[DESC_MAX_EOS + PARAMS_MAX_STOP_TOKENS + 1];
    const rule_context c = {.frame = frame,
                            .marks = marks,
                            .space = r->g.json_space,
                            .order = r->g.json_order,
                            .numbers = r->g.json_numbers,
                            .additional = r->g.json_additional,
                            .cache = e->grammars,
                            .tenant = text_tenant(r->g.tenant),
                            .model = d,
                            .ends = ends,
                            .n_ends = end_tokens_list(&r->g.sampling, d, ends)};
    TRY(answer_compile(r, &c, &g, err));
    s->rule.compile_us = clock_us() - began_us;
    quire_err opened = grammar_constraint_open(g, v, e->rule_memory, c.tenant, &s->rule.constraint);
    grammar_drop(g);
    if (opened == QUIRE_OK && r->g.info.explain) {
        opened = schema_check_list(r, &s->rule.keywords);
    }
    return opened == QUIRE_OK ? opened : answer_rule_outgrown(&r->rule, opened, NULL, err);
}

/* Wraps the response's constraint, if any, in the reasoning budget. */
static quire_err make_budget(quire_stream *s, const reasoning_frame *frame, quire_error *err) {
    stream_engine *e = s->q->e;
    const quire_request *r = s->request;
    const marked_vocab *marked;
    TRY(err_set(err, stream_engine_marked(e, &marked), -1, "out of memory for the vocabulary"));
    constraint *inner = s->rule.constraint, **made = &s->rule.constraint;
    *made = NULL;
    TRY(thinking_budget_open(frame, r->g.thinking_budget, e->tokenizer, marked, inner, made, err));
    return thinking_budget_check(*made, &r->g.sampling, e->model, err);
}

/* Makes a request's constraint from its rule and reasoning budget. start: how the
 * response begins. */
static quire_err make_constraint(quire_stream *s, output_start start, quire_error *err) {
    stream_engine *e = s->q->e;
    const quire_request *r = s->request;
    TRY(bind_calls_check_customs(r, e->grammars, text_tenant(r->g.tenant), err));
    if (r->rule.field == NULL && r->g.thinking_budget < 0) {
        return QUIRE_OK;
    }
    const char *field = r->rule.field != NULL ? r->rule.field->name : "thinking_token_budget";
    if (e->tokenizer == NULL) {
        return err_set_param(err, QUIRE_UNSUPPORTED, field,
                             "this model has no vocabulary that this server can use, so %s is not supported",
                             field);
    }
    const char *obstacle = tokenizer_sum_obstacle(e->tokenizer);
    if (obstacle != NULL) {
        return err_set_param(err, QUIRE_UNSUPPORTED, field,
                             "this model's decoder has %s, so its text is not the sum of its tokens and %s "
                             "cannot be enforced exactly",
                             obstacle, field);
    }
    reasoning_frame frame = answer_frame(r, start);
    if (r->rule.field != NULL) {
        TRY(make_rule(s, &frame, err));
    }
    return r->g.thinking_budget >= 0 ? make_budget(s, &frame, err) : QUIRE_OK;
}

/* ---- requests that end with their prompts ---- */

/* Sets what START delivers of the choice's prompt: its ids, or its text. */
static quire_err show_prompt(const stream_engine *e, const quire_request *r, choice *c, quire_error *err) {
    text_marks marks = {0};
    quire_err er;
    TRY(prompt_need_vocabulary(e, &r->g, err));
    switch (r->g.info.endpoint) {
    case QUIRE_APPLY_TEMPLATE:
        er = request_render(r, 0, &c->shown, &marks, err);
        text_marks_deinit(&marks);
        return er;
    case QUIRE_DETOKENIZE:
        er = tokenizer_decode(e->tokenizer, r->g.prompts[c->index].ids, (size_t)r->g.prompts[c->index].n_ids,
                              false, &c->shown);
        return err_set(err, er, -1, "out of memory for a text");
    default:
        return prompt_take(e, r, c, err);
    }
}

static quire_err prepare_prompts(quire_stream *s, quire_error *err) {
    const generation *g = &s->request->g;
    int64_t n_bytes = 0;
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice *c = &s->choices[i];
        TRY(show_prompt(s->q->e, s->request, c, err));
        if (!dialect_of(g)->any_length) {
            TRY(check_length(s->q->e, g, c, err));
        }
        n_bytes += (int64_t)c->shown.n;
        TRY(count_response(s->q->e, g, c->prompt.n, &n_bytes, err));
    }
    return QUIRE_OK;
}

/* Makes the prompts of all choices, and opens their texts. */
static quire_err open_choices(quire_stream *s, quire_error *err) {
    int64_t n_bytes = 0;
    for (int32_t i = 0; i < s->n_choices; i++) {
        if (atomic_load(&s->released)) {
            TRY(err_set(err, QUIRE_CANCELLED, -1, "cancelled"));
        }
        quire_err e = open_choice(s->q->e, s->request, &s->choices[i], err);
        TRY(e != QUIRE_OK && gives_rows(&s->request->g) ? request_name_input(s->request, i, e, err) : e);
        if (i % s->request->g.info.n_samples == 0) {
            TRY(count_response(s->q->e, &s->request->g, s->choices[i].prompt.n, &n_bytes, err));
        }
    }
    if (s->request->g.info.beam_width > 0 && s->request->g.n_stops > 0 && s->q->e->tokenizer != NULL &&
        beam_stop_matcher_open(s->q->e, &s->request->g, &s->watch) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for stop strings");
    }
    return QUIRE_OK;
}

quire_err stream_submit_held(quire_stream *s, quire_error *err) {
    if (!s->is_open) {
        TRY(open_choices(s, err));
    }
    s->is_open = true;
    return submit_all(s, err);
}

quire_err stream_prepare(quire_stream *s, quire_error *err) {
    assert(s != NULL);
    if (s->request->g.more.prompt_only) {
        return prepare_prompts(s, err);
    }
    TRY(request_tokenize_lists(s->request, s->q->e->tokenizer, &s->released, err));
    if (s->is_held) {
        output_start start = OUTPUT_START_UNKNOWN;
        if (request_continues(s->request)) {
            TRY(prompt_start_of_ids(s->q->e, s->request, &start, err));
        }
        return make_constraint(s, start, err);
    }
    TRY(open_choices(s, err));
    s->is_open = true;
    request_drop_texts(s->request); /* before the queue's thread can fork the request */
    TRY(make_constraint(s, s->choices[0].start, err));
    TRY(make_prediction(s, err));
    return submit_all(s, err);
}
