/* Opens and closes a quire_engine, makes its requests, and reads its statistics. */
#include "api/quire_engine.h"

#include <math.h>
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
                                   .has_chat_template = i->has_chat_template,
                                   .defaults = has_defaults ? &e->defaults : NULL,
                                   .content = p->chat != NULL ? chat_template_content(p->chat) : CHAT_CONTENT_TEXT};
    quire_err r = text_pool_open(o.n_text_threads, &e->text);
    if (r != QUIRE_OK) {
        return err_set(err, r, -1, "the text threads could not start");
    }
    return o.lock_memory ? memory_lock(err) : QUIRE_OK;
}

quire_err engine_open_ablated(const quire_options *o, const engine_ablations *ablations, quire_engine **out, quire_error *err) {
    *out = NULL;
    quire_engine *e = mem_new(1, sizeof *e);
    if (!e) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err r = open_all(e, o, ablations, err);
    if (r != QUIRE_OK) {
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

bool quire_engine_healthy(const quire_engine *e) {
    return engine_busy_us(e->parts.core) < STUCK_US;
}

static void copy_histogram(const engine_histogram *h, int64_t *buckets, double *sum, int64_t *count) {
    int64_t below = 0;
    for (int i = 0; i < ENGINE_N_BOUNDS; i++) {
        below += h->buckets[i];
        buckets[i] = below;
    }
    *sum = (double)h->sum_us * 1e-6;
    *count = h->count;
}

void quire_engine_stats(const quire_engine *e, quire_stats *out) {
    engine_stats s;
    engine_stats_read(e->parts.core, &s);
    *out = (quire_stats){.n_requests_running = s.n_running,
                         .n_requests_waiting = s.n_waiting,
                         .n_pages = s.n_pages,
                         .n_pages_free = s.n_pages_free,
                         .n_pages_held = s.n_pages_held,
                         .n_pages_cached = s.n_pages_cached,
                         .prompt_tokens = s.prompt_tokens,
                         .generation_tokens = s.generation_tokens,
                         .steps = s.steps,
                         .step_rows = s.step_rows,
                         .step_us = s.step_us,
                         .preemptions = s.preemptions,
                         .deadlines_refused = s.deadlines_refused,
                         .prefix_queries = s.prompt_tokens_queried,
                         .prefix_hits = s.prompt_tokens_reused,
                         .preempted_queries = s.known_tokens_queried,
                         .preempted_hits = s.known_tokens_reused};
    out->swapped_out = s.swapped_out;
    out->swapped_in = s.swapped_in;
    out->swapped_pages = s.swapped_pages;
    out->swap_us = s.swap_us;
    out->promoted_tokens = s.promoted_tokens;
    out->drafts = s.drafts;
    out->draft_tokens = s.draft_tokens;
    out->draft_accepted = s.draft_accepted;
    memcpy(out->draft_accepted_at, s.draft_accepted_at, sizeof out->draft_accepted_at);
    out->jump_forward_tokens = s.jump_forward_tokens;
    for (int i = 0; i < KV_N_TIERS; i++) {
        const kv_tier_stats *t = &s.tiers[i];
        out->tiers[i] = (quire_tier_stats){t->is_open, t->hits, t->misses, t->puts, t->dropped, t->errors, t->bytes};
    }
    for (int i = 0; i < 4; i++) {
        out->requests_finished[i] = atomic_load(&e->finished[i]);
    }
    copy_histogram(&s.first_token, out->ttft_buckets, &out->ttft_sum, &out->ttft_count);
    copy_histogram(&s.gap, out->gap_buckets, &out->gap_sum, &out->gap_count);
    copy_histogram(&s.whole, out->e2e_buckets, &out->e2e_sum, &out->e2e_count);
}

const double *quire_stats_bounds(void) {
    static const double bounds[ENGINE_N_BOUNDS] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, HUGE_VAL};
    return bounds;
}
