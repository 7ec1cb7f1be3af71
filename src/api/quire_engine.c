/* Opens and closes a quire_engine, makes its requests, and reads its statistics. */
#include "api/quire_engine.h"

#include <stdlib.h>

#include "base/mem.h"
#include "setup/engine_config.h"
#include "setup/memory_limits.h"
#include "text/token_texts.h"

#define STUCK_US 60000000

static quire_err open_all(quire_engine *e, const quire_options *given, const engine_ablations *ablations, quire_error *err) {
    quire_options o;
    engine_parts *p = &e->parts;
    quire_info *i = &p->info;
    TRY(options_read(given, &o, err));
    TRY(request_defaults_read(&e->defaults, o.request_defaults, err));
    int32_t n_given = e->defaults.n;
    TRY(engine_parts_open(&o, ablations, p, err));
    TRY(request_defaults_add(&e->defaults, &p->defaults, err));
    bool has_defaults = e->defaults.n > 0;
    const char *most = request_defaults_find(&e->defaults, "max_tokens");
    if (most != NULL && strtoll(most, NULL, 10) > i->max_model_len) {
        return err_set(err, QUIRE_INVALID, -1, "defaults of requests: max_tokens is %s; a sequence has at most %d tokens here", most,
                       (int)i->max_model_len);
    }
    i->generation_config = e->defaults.n > n_given ? p->defaults.source.p : NULL;
    i->generation_defaults = has_defaults ? e->defaults.text.p : "";
    e->context = (request_context){.n_vocab = i->n_vocab,
                                   .max_model_len = i->max_model_len,
                                   .max_logprobs = o.max_logprobs,
                                   .has_vocabulary = i->has_vocabulary,
                                   .tokenizer = p->tokenizer,
                                   .form = i->chat_form != NULL ? &p->chat : NULL,
                                   .defaults = has_defaults ? &e->defaults : NULL,
                                   .content = i->chat_form != NULL ? chat_template_content(p->chat.template) : CHAT_CONTENT_TEXT};
    quire_err r = text_pool_open(o.n_text_threads, &e->text);
    if (r != QUIRE_OK) {
        return err_set(err, r, -1, "the text threads could not start");
    }
    return o.lock_memory ? memory_lock(err) : QUIRE_OK;
}

quire_err engine_open_ablated(const quire_options *o, const engine_ablations *ablations, quire_engine **out, quire_error *err) {
    *out = NULL;
    quire_engine *e = mem_new(1, sizeof *e);
    TRY(mem_check_for(e, "an engine", err));
    quire_err r = mem_check_for(request_stats_open(&e->requests) == QUIRE_OK ? e : NULL, "an engine", err);
    r = r ? r : open_all(e, o, ablations, err);
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
    return engine_open_ablated(o, &(engine_ablations){0}, out, err);
}

void quire_engine_close(quire_engine *e) {
    if (!e) {
        return;
    }
    text_pool_close(e->text);
    request_stats_close(e->requests);
    engine_parts_close(&e->parts);
    token_texts_close(atomic_load(&e->texts));
    request_defaults_deinit(&e->defaults);
    mem_free(e);
}

const char *quire_version(void) {
    return QUIRE_VERSION;
}

const quire_info *quire_engine_info(const quire_engine *e) {
    return &e->parts.info;
}

quire_err quire_request_parse(const quire_engine *e, quire_endpoint endpoint, const char *body, size_t n, quire_request **out,
                              quire_error *err) {
    return request_parse(&e->context, endpoint, body, n, out, err);
}

quire_err quire_request_ids(const quire_engine *e, const int32_t *ids, size_t n, quire_request **out, quire_error *err) {
    return request_ids(&e->context, ids, n, out, err);
}

void quire_engine_drop_cache(quire_engine *e) {
    engine_drop_cache(e->parts.core);
}

bool quire_engine_healthy(const quire_engine *e) {
    return engine_busy_us(e->parts.core) < STUCK_US;
}

void quire_engine_stats(const quire_engine *e, quire_stats *out) {
    engine_stats_read(e->parts.core, out);
    request_stats_read(e->requests, out); /* as their readers saw them: a stop string is a cancelled request of the engine */
}
