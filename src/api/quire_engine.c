/* Opens and closes a quire_engine, makes its requests, and reads its statistics. */
#include "api/quire_engine.h"

#include <assert.h>
#include <string.h>

#include "answer/answer_bind.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "engine/engine_view.h"
#include "expr/expr.h"
#include "file/npz.h"
#include "request/read_turns.h"
#include "setup/adapter_store.h"
#include "setup/engine_config.h"
#include "setup/pool_plan.h"
#include "stream/stream.h"

#define STUCK_US 60000000

static request_context context_of(const quire_engine *e, const quire_options *o, const model_desc *d,
                                  int32_t max_len) {
    const engine_parts *p = &e->parts;
    request_context c = {.n_vocab = d->n_vocab,
                         .max_model_len = max_len,
                         .max_logprobs = o->max_logprobs,
                         .max_tool_calls = o->max_tool_calls,
                         .has_vocabulary = p->tokenizer != NULL,
                         .tokenizer = p->tokenizer,
                         .form = p->tokenizer != NULL ? &p->chat : NULL,
                         .formats = p->formats,
                         .names_tools = strcmp(o->tool_call_parser, "auto") != 0,
                         .names_reasoning = strcmp(o->reasoning_parser, "auto") != 0,
                         .bind = answer_bind,
                         .trusts_templates = o->trust_request_chat_template,
                         .no_tokens = !desc_gives_tokens(d),
                         .pooling = d->pooling,
                         .n_token_types = d->embed.n_token_types,
                         .n_row = desc_pooled_width(d),
                         .mods = e->mods,
                         .n_loras = options_numbered_adapters(o),
                         .trusts_attention = o->trust_request_attention,
                         .opens_objects = o->json_additional_properties == QUIRE_JSON_PROPERTIES_SCHEMA,
                         .json_space = (grammar_space)o->json_whitespace,
                         .defaults = e->defaults.n > 0 ? &e->defaults : NULL};
    const bool pools_last = o->convert == QUIRE_CONVERT_LAST || o->runner == QUIRE_CONVERT_LAST;
    if (pools_last && !c.no_tokens && c.pooling.kind == POOLING_NONE) {
        c.pooling.kind = POOLING_LAST;
        c.pooling.normalise = true;
    }
    memcpy(c.thought_key, e->thought_key, sizeof c.thought_key);
    return c;
}

typedef struct early_check {
    quire_engine *e;
    const quire_options *o;
} early_check;

/* Sets the defaults that the model's authors recommend. */
static quire_err add_recommended(request_defaults *d, const sampling_defaults *from, quire_error *err) {
    request_default added[SAMPLING_DEFAULT_FIELDS];
    int32_t n = 0;
    for (int i = 0; i < SAMPLING_DEFAULT_FIELDS; i++) {
        if (from->names[i] != NULL) {
            added[n++] = (request_default){from->names[i], from->values[i]};
        }
    }
    return request_defaults_add(d, added, n, from->source.p, err);
}

/* Checks that run before the weights are loaded: the values of request defaults, and the
 * request given in the options (request_check). */
static quire_err check_early(void *user, const engine_parts *p, const model_desc *d, int32_t max_len,
                             quire_error *err) {
    const early_check *c = user;
    quire_request *r;
    TRY(add_recommended(&c->e->defaults, &p->defaults, err));
    if (c->o->request_check == NULL) {
        return QUIRE_OK;
    }
    request_context context = context_of(c->e, c->o, d, max_len);
    quire_err e = request_parse(&context, c->o->request_check_kind, c->o->request_check,
                                strlen(c->o->request_check), &r, err);
    if (e == QUIRE_BAD_REQUEST) {
        return err->code = QUIRE_INVALID;
    }
    TRY(e);
    grammar *g = NULL;
    const reasoning_frame frame = {0};
    const grammar_marks marks = {0};
    bool is_given = r->rule.field != NULL && r->rule.form != RULE_CALLS;
    e = is_given ? answer_rule_compile(&r->rule,
                                       &(rule_context){.frame = &frame,
                                                       .marks = &marks,
                                                       .space = r->g.json_space,
                                                       .order = r->g.json_order,
                                                       .numbers = r->g.json_numbers,
                                                       .additional = r->g.json_additional},
                                       &g, err)
                 : QUIRE_OK;
    grammar_drop(g);
    quire_request_free(r);
    return e == QUIRE_BAD_REQUEST ? err->code = QUIRE_INVALID : e;
}

/* One thread per processor that compute leaves free, at least two so that a long slice
 * does not block other jobs. */
static int32_t text_threads(const quire_options *o, int32_t n_compute) {
    enum { LEAST = 2, MOST = 8 };
    int32_t left = thread_pool_cpus() - n_compute;
    return o->n_text_threads > 0 ? o->n_text_threads : left < LEAST ? LEAST : left > MOST ? MOST : left;
}

/* Compiles the options' mask_mod and score_mod for all requests; *out has one reference,
 * NULL: none given. INVALID and BAD_FILE name the option. */
static quire_err default_attention(const quire_options *o, attn_mods **out, quire_error *err) {
    npz arrays = {0};
    *out = NULL;
    if (o->attention_arrays != NULL) {
        TRY(npz_open(o->attention_arrays, &arrays, err));
    }
    const expr_mods from = {o->mask_mod != NULL ? str_of(o->mask_mod) : (str){NULL, 0},
                            o->score_mod != NULL ? str_of(o->score_mod) : (str){NULL, 0}, arrays.arrays,
                            arrays.n};
    quire_err e = expr_compile_mods(&from, out, err);
    npz_close(&arrays);
    return e;
}

static quire_err quire_engine_open_all(quire_engine *e, const quire_options *given,
                                       const engine_ablations *ablations, const quire_engine *beside,
                                       quire_error *err) {
    quire_options o;
    engine_parts *p = &e->parts;
    quire_info *i = &p->info;
    TRY(options_read(given, &o, err));
    TRY(request_defaults_read(&e->defaults, o.request_defaults, err));
    TRY(default_attention(&o, &e->mods, err));
    int32_t n_given = e->defaults.n;
    const engine_parts_check check = {check_early, &(early_check){e, &o}};
    TRY(engine_parts_open(&o, ablations, &check, beside != NULL ? &beside->parts : NULL, p, err));
    i->generation_config = e->defaults.n > n_given ? p->defaults.source.p : NULL;
    i->generation_defaults = e->defaults.n > 0 ? e->defaults.text.p : "";
    thought_key(o.signing_key, e->thought_key);
    e->streams = (stream_engine){
        .core = p->core,
        .model = model_description(p->model.m),
        .tokenizer = p->tokenizer,
        .context = context_of(e, &o, model_description(p->model.m), i->max_model_len),
        .adapters = p->adapters.store != NULL ? adapter_store_source(p->adapters.store) : (adapter_source){0},
        .parses_messages = p->parses_messages,
        .max_answer_bytes = (int64_t)i->max_answer_bytes};
    const stream_engine_sizes sizes = {.n_text_threads = text_threads(&o, i->n_threads),
                                       .text_cache_bytes = (size_t)o.text_cache_bytes,
                                       .rule_bytes = (size_t)p->rule_bytes};
    TRY(stream_engine_open(&e->streams, &sizes, err));
    /* pools that share memory reserve more addresses than they have memory for */
    return o.lock_memory ? memory_lock(p->memory != NULL, err) : QUIRE_OK;
}

quire_err engine_open_ablated(const quire_options *o, const engine_ablations *ablations,
                              const quire_engine *beside, quire_engine **out, quire_error *err) {
    *out = NULL;
    quire_engine *e = mem_new(1, sizeof *e);
    TRY(mem_check_for(e, "an engine", err));
    quire_err r = quire_engine_open_all(e, o, ablations, beside, err);
    if (r != QUIRE_OK) {
        if (r == QUIRE_NO_MEMORY) {
            engine_parts_explain_memory(&e->parts, err);
        }
        quire_engine_close(e);
        return r;
    }
    *out = e;
    return QUIRE_OK;
}

quire_err quire_engine_open(const quire_options *o, quire_engine **out, quire_error *err) {
    return engine_open_ablated(o, &(engine_ablations){0}, NULL, out, err);
}

quire_err quire_engine_open_beside(quire_engine *host, const quire_options *o, quire_engine **out,
                                   quire_error *err) {
    return engine_open_ablated(o, &(engine_ablations){0}, host, out, err);
}

void quire_engine_close(quire_engine *e) {
    if (!e) {
        return;
    }
    stream_engine_stop(&e->streams);
    engine_parts_close(&e->parts);
    stream_engine_close(&e->streams);
    request_defaults_deinit(&e->defaults);
    attn_mods_drop(e->mods);
    mem_free(e);
}

const char *quire_version(void) {
    return QUIRE_VERSION;
}

const quire_info *quire_engine_info(const quire_engine *e) {
    return &e->parts.info;
}

void quire_sign(const quire_engine *e, const uint8_t digest[32], char out[QUIRE_SIGNATURE_BYTES + 1]) {
    thought_sign(e->thought_key, digest, out);
}

const quire_row_info *quire_engine_rows(const quire_engine *e) {
    return &e->parts.row_info;
}

quire_err quire_queue_open(quire_engine *e, quire_queue **out) {
    return queue_open(&e->streams, out);
}

quire_err quire_request_parse(const quire_engine *e, quire_endpoint endpoint, const char *body, size_t n,
                              quire_request **out, quire_error *err) {
    return request_parse(&e->streams.context, endpoint, body, n, out, err);
}

void quire_engine_history(quire_engine *e, quire_history find, void *user) {
    e->streams.context.history = find;
    e->streams.context.history_of = user;
}

quire_err quire_request_schema(const quire_engine *e, quire_endpoint endpoint, char **json, size_t *n,
                               quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    *json = NULL;
    request_schema(&e->streams.context, endpoint, &o);
    if (o.err != QUIRE_OK) {
        strbuf_deinit(&text);
        return err_set(err, o.err, -1, "out of memory for the schema of a request");
    }
    *json = text.p;
    *n = text.n;
    return QUIRE_OK;
}

quire_err quire_request_ids(const quire_engine *e, const int32_t *ids, size_t n, quire_request **out,
                            quire_error *err) {
    return request_ids(&e->streams.context, ids, n, out, err);
}

quire_err quire_request_embed(const quire_engine *e, const quire_input *inputs, size_t n,
                              const quire_embed_options *o, quire_request **out, quire_error *err) {
    return request_embed(&e->streams.context, inputs, 0, n, o, out, err);
}

void quire_engine_drop_cache(quire_engine *e) {
    engine_drop_cache(e->parts.core);
}

quire_err quire_engine_drop_tenant(quire_engine *e, const char *tenant) {
    return engine_drop_tenant(e->parts.core, tenant, strlen(tenant));
}

bool quire_engine_healthy(const quire_engine *e) {
    return engine_busy_us(e->parts.core) < STUCK_US;
}

void quire_engine_stats(const quire_engine *e, quire_stats *out) {
    assert(e != NULL && out != NULL);
    engine_stats_read(e->parts.core, out);
    out->rule_bytes = (int64_t)grammar_memory_used(e->streams.rule_memory);
    out->max_rule_bytes = (int64_t)grammar_memory_max(e->streams.rule_memory);
    /* an answer that a stop string ended counts as cancelled in the engine */
    request_stats_read(e->streams.requests, out);
}

void quire_engine_turns(const quire_engine *e, quire_turn_stats *out) {
    assert(e != NULL);
    const turn_counts n = e->streams.turns != NULL ? turn_store_count(e->streams.turns) : (turn_counts){0};
    const quire_turn_stats all = {
        .size = out->size, .n_reused = n.n_reused, .n_gone = n.n_gone, .n_differ = n.n_differ};
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
}

void quire_engine_snapshots(const quire_engine *e, quire_snapshot_stats *out) {
    assert(e != NULL && out != NULL);
    quire_snapshot_stats all;
    size_t size = out->size;
    engine_snapshots_read(e->parts.core, &all);
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
    out->size = size;
}

void quire_engine_parked(const quire_engine *e, quire_parked_stats *out) {
    assert(e != NULL && out != NULL);
    quire_parked_stats all;
    size_t size = out->size;
    engine_parked_read(e->parts.core, &all);
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
    out->size = size;
}

quire_err quire_park_open(quire_engine *e, quire_park **out) {
    assert(e != NULL);
    engine_park *p;
    *out = NULL;
    TRY(engine_park_open(e->parts.core, &p));
    *out = (quire_park *)(void *)p; /* a quire_park is an engine_park */
    return QUIRE_OK;
}

void quire_engine_page_memory(const quire_engine *e, quire_page_memory *out) {
    assert(e != NULL && out != NULL);
    quire_page_memory all;
    size_t size = out->size;
    engine_page_memory_read(e->parts.core, &all);
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
    out->size = size;
}

/* ---- snapshots of pages: engine/engine_view.h under its public name ---- */

/* A quire_pool_view is an engine_view. */
static engine_view *view_of(quire_pool_view *v) {
    return (engine_view *)(void *)v;
}

quire_err quire_pool_view_open(quire_engine *e, quire_pool_view **out) {
    assert(e != NULL);
    engine_view *w;
    TRY(engine_view_open(e->parts.core, &w));
    *out = (quire_pool_view *)(void *)w;
    return QUIRE_OK;
}

void quire_pool_view_close(quire_pool_view *v) {
    engine_view_close(view_of(v));
}

int quire_pool_view_fd(const quire_pool_view *v) {
    return engine_view_reader((const engine_view *)(const void *)v)->fd;
}

void quire_pool_view_ask(quire_pool_view *v, int32_t page, uint64_t after) {
    engine_view_ask(view_of(v), page, after);
}

const quire_kv_view *quire_pool_view_get(quire_pool_view *v) {
    return engine_view_get(view_of(v));
}
