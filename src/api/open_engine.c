/* Opens and closes an engine: file, numeric configuration, weights, pages, threads. */
#include "api/open_engine.h"

#include <string.h>

#include "api/engine_config.h"
#include "api/memory_limits.h"
#include "api/prefixes.h"
#include "api/request_defaults.h"
#include "api/tier_config.h"
#include "base/log.h"
#include "base/mem.h"
#include "text/token_texts.h"

#define REQUESTS_A_SEQ 16 /* waiting requests for each running one, before the engine is busy */
#define MIN_REQUESTS   1024
#define STUCK_US       60000000

/* Opens tokenizer and template. With a vocabulary that this build cannot use, the engine works with ids. */
static quire_err open_text(quire_engine *e, const quire_options *o, const model_file *f, quire_error *err) {
    quire_err r = tokenizer_open(model_file_vocab(f), &e->tokenizer, &e->text_error);
    if (r != QUIRE_OK && r != QUIRE_NOT_FOUND && r != QUIRE_UNSUPPORTED) {
        return err_set(err, r, e->text_error.position, "%s", e->text_error.message);
    }
    if (r == QUIRE_UNSUPPORTED) {
        log_line(LOG_WARN, "%s; prompts of token ids only", e->text_error.message);
    }
    chat_tokens tokens = {.tokenizer = e->tokenizer};
    if (e->tokenizer != NULL) {
        tokens.bos = tokenizer_bos_text(e->tokenizer);
        tokens.eos = tokenizer_eos_text(e->tokenizer);
    }
    if (o->chat_template) {
        return chat_template_open(str_of(o->chat_template), &tokens, &e->chat, err);
    }
    str own = model_file_chat_template(f);
    if (own.n > 0 && chat_template_open(own, &tokens, &e->chat, &e->template_error) != QUIRE_OK) {
        log_line(LOG_WARN, "the model's chat template is not understood (%s); give --chat-template to chat", e->template_error.message);
    }
    return QUIRE_OK;
}

/* Loads the weights into a backend with the numeric configuration. */
static quire_err open_model(quire_engine *e, const quire_options *o, model_file *f, int32_t *max_len, dtype *kv, quire_error *err) {
    model_desc d;
    compute_mode compute;
    TRY(model_describe(f, &d, err));
    TRY(options_compute(o, &d, &compute, err));
    TRY(options_kv_dtype(o, compute, kv, err));
    TRY(options_max_model_len(o, &d, max_len, err));
    backend_options b = {.compute = compute, .isa = o->isa, .n_threads = o->n_threads, .cpu_bind = o->cpu_bind};
    TRY(backend_cpu_open(&b, &e->b, err));
    TRY(model_open(f, e->b, *max_len, &e->m, err));
    if (tiers_are_kept(o)) {
        tiers_version(f, model_description(e->m), e->b, *kv, *max_len, e->tier_version);
    }
    return QUIRE_OK;
}

/* Allocates as many pages as fit; without --max-model-len the longest sequence is limited to what the pool holds. */
static quire_err open_pages(quire_engine *e, const quire_options *o, int32_t *max_len, dtype kv, quire_error *err) {
    const model_desc *d = model_description(e->m);
    TRY(kv_layout_init(d, kv, o->page_tokens, &e->layout, err));
    step_limits limits = {.max_rows = o->max_batched_tokens,
                          .max_seqs = o->max_seqs,
                          .max_out = draft_max_out(&e->speculation.draft, o->max_seqs, o->max_batched_tokens)};
    TRY(e->b->ops->step_open(e->b, &limits, &e->layout, d->n_vocab, err));
    int32_t n_pages, least = o->max_model_len > 0 ? *max_len : 2;
    TRY(options_pages(o, &e->layout, options_left_for_pages(o, memory_available()), least, &n_pages, err));
    int64_t holds = (int64_t)(n_pages / e->layout.n_groups) * o->page_tokens;
    *max_len = holds < *max_len ? (int32_t)holds : *max_len;
    TRY(e->b->ops->kv_open(e->b, n_pages, err));
    e->info.n_pages = n_pages;
    return QUIRE_OK;
}

static quire_err open_core(quire_engine *e, const quire_options *o, int32_t max_len, quire_error *err) {
    int32_t max_requests = o->max_seqs * REQUESTS_A_SEQ;
    engine_options eo = {.page_tokens = o->page_tokens,
                         .n_pages = e->info.n_pages,
                         .max_model_len = max_len,
                         .max_batched_tokens = o->max_batched_tokens,
                         .max_seqs = o->max_seqs,
                         .prefill_chunk = o->prefill_chunk,
                         .no_chunked_prefill = o->no_chunked_prefill,
                         .no_fork_sharing = o->no_fork_sharing,
                         .no_cascade = o->no_cascade,
                         .audit_path = o->audit,
                         .tiers = tiers_options(o, e->tier_version),
                         .swap_bytes = o->swap_bytes,
                         .draft = e->speculation.draft,
                         .max_requests = max_requests > MIN_REQUESTS ? max_requests : MIN_REQUESTS};
    TRY(options_prefix_cache(o, &eo.prefix_cache, err));
    TRY(options_schedule(o, &eo.schedule, err));
    eo.schedule_lambda = o->schedule_lambda;
    TRY(options_preemption(o, &eo.preempt, err));
    eo.step_target_us = o->step_target_us;
    TRY(kv_policy_parse(o->eviction_policy, &eo.eviction)); /* checked before */
    prefix_list prefixes = {0};
    quire_err r = prefixes_read(o, e->tokenizer, model_description(e->m)->n_vocab, &prefixes, err);
    if (r == QUIRE_OK) {
        eo.prefixes = prefixes.list;
        eo.n_prefixes = prefixes.n;
        r = engine_open(e->m, e->b, &e->layout, &eo, &e->core, err);
    }
    prefixes_free(&prefixes);
    TRY(r);
    r = text_pool_open(o->n_text_threads, &e->text);
    return r == QUIRE_OK ? r : err_set(err, r, -1, "the text threads could not start");
}

static void fill_info(quire_engine *e, const quire_options *o, int32_t max_len) {
    const model_desc *d = model_description(e->m);
    e->context = (request_context){.n_vocab = d->n_vocab,
                                   .max_model_len = max_len,
                                   .has_vocabulary = e->tokenizer != NULL,
                                   .tokenizer = e->tokenizer,
                                   .has_chat_template = e->chat != NULL,
                                   .defaults = e->defaults.n > 0 ? &e->defaults : NULL,
                                   .content = e->chat != NULL ? chat_template_content(e->chat) : CHAT_CONTENT_TEXT};
    quire_info *i = &e->info;
    i->model_path = e->model_path;
    i->architecture = d->architecture;
    i->model_name = d->name;
    i->compute = compute_name(e->b->compute);
    i->kv_dtype = dtype_name(e->layout.type);
    i->backend = e->b->ops->describe(e->b);
    i->n_layers = d->n_layers;
    i->d_model = d->d_model;
    i->n_heads = d->n_heads;
    i->n_kv_heads = d->n_kv_heads;
    i->d_head = d->d_head;
    i->d_ff = d->d_ff;
    i->n_vocab = d->n_vocab;
    i->max_model_len = max_len;
    i->page_tokens = o->page_tokens;
    i->max_batched_tokens = o->max_batched_tokens;
    i->max_seqs = o->max_seqs;
    i->n_threads = e->b->ops->n_workers(e->b);
    i->n_params = d->n_params;
    i->weight_bytes = e->b->ops->weight_bytes(e->b);
    i->page_bytes = e->layout.page_bytes;
    i->token_bytes = kv_layout_token_bytes(&e->layout);
    i->buffer_bytes = e->b->ops->step_bytes(e->b);
    i->bos = d->bos;
    i->eos = d->n_eos > 0 ? d->eos[0] : -1;
    i->has_vocabulary = e->tokenizer != NULL;
    i->has_chat_template = e->chat != NULL;
    i->max_answer_bytes = (size_t)o->max_answer_bytes;
    i->generation_config = e->defaults.n > 0 ? e->defaults.source.p : NULL;
    i->generation_defaults = e->defaults.n > 0 ? e->defaults.text.p : "";
}

static quire_err open_parts(quire_engine *e, const quire_options *options, quire_error *err) {
    quire_options own, *o = &own;
    model_file *f = NULL;
    int32_t max_len = 0;
    dtype kv = DTYPE_F32;
    TRY(options_read(options, o, err));
    TRY(options_check(o, err));
    TRY(tiers_check(o, err));
    TRY(speculation_read(o, &e->speculation, err));
    e->model_path = mem_dup(o->model, strlen(o->model));
    if (!e->model_path) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    TRY(options_open_file(o, &f, err));
    quire_err r = open_model(e, o, f, &max_len, &kv, err);
    r = r ? r : open_text(e, o, f, err);
    r = r ? r : defaults_open(o, f, &e->defaults, err);
    model_file_close(f);
    TRY(r);
    own.max_batched_tokens = options_max_rows(o, max_len);
    TRY(open_pages(e, o, &max_len, kv, err));
    TRY(speculation_open(&e->speculation, o, (int64_t)(e->info.n_pages / e->layout.n_groups) * o->page_tokens, max_len, err));
    TRY(open_core(e, o, max_len, err));
    fill_info(e, o, max_len);
    return o->lock_memory ? memory_lock(err) : QUIRE_OK;
}

quire_err quire_engine_open(const quire_options *o, quire_engine **out, quire_error *err) {
    *out = NULL;
    quire_engine *e = mem_new(1, sizeof *e);
    if (!e) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err r = open_parts(e, o, err);
    if (r != QUIRE_OK) {
        quire_engine_close(e);
        return r;
    }
    *out = e;
    return QUIRE_OK;
}

void quire_engine_close(quire_engine *e) {
    if (!e) {
        return;
    }
    text_pool_close(e->text);
    engine_close(e->core);
    chat_template_close(e->chat);
    token_texts_close(atomic_load(&e->texts));
    tokenizer_close(e->tokenizer);
    model_close(e->m);
    if (e->b) {
        e->b->ops->close(e->b);
    }
    speculation_close(&e->speculation);
    defaults_close(&e->defaults);
    mem_free(e->model_path);
    mem_free(e);
}

const char *quire_version(void) {
    return QUIRE_VERSION;
}

const quire_info *quire_engine_info(const quire_engine *e) {
    return &e->info;
}

const request_context *engine_request_context(const quire_engine *e) {
    return &e->context;
}

bool quire_engine_healthy(const quire_engine *e) {
    return engine_busy_us(e->core) < STUCK_US;
}
