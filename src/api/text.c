/* The text functions of quire.h, and the engine's statistics. */
#include <math.h>
#include <string.h>

#include "api/open_engine.h"
#include "base/mem.h"

static quire_err no_vocabulary(const quire_engine *e, quire_error *err) {
    const char *why = e->text_error.code == QUIRE_UNSUPPORTED ? e->text_error.message : "the model has no vocabulary";
    return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: text cannot be used; token ids can", why);
}

quire_err quire_tokenize(const quire_engine *e, const char *text, size_t n, bool add_special, int32_t **ids, size_t *n_ids,
                         quire_error *err) {
    token_list l = {0};
    if (!e->tokenizer) {
        return no_vocabulary(e, err);
    }
    quire_err r =
        tokenizer_encode(e->tokenizer, (str){text, n}, (encode_options){.special = ENCODE_PARSE, .add_special = add_special}, &l, err);
    if (r != QUIRE_OK) {
        token_list_deinit(&l);
        return r;
    }
    *ids = l.ids;
    *n_ids = l.n;
    return QUIRE_OK;
}

quire_err quire_detokenize(const quire_engine *e, const int32_t *ids, size_t n, bool skip_special, char **text, size_t *n_text,
                           quire_error *err) {
    strbuf b = {0};
    if (!e->tokenizer) {
        return no_vocabulary(e, err);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= e->info.n_vocab) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "token id %d is out of the vocabulary's range 0..%d", (int)ids[i],
                           (int)e->info.n_vocab - 1);
        }
    }
    quire_err r = tokenizer_decode(e->tokenizer, ids, n, skip_special, &b);
    r = r ? r : strbuf_add(&b, "", 0);
    if (r != QUIRE_OK) {
        strbuf_deinit(&b);
        return err_set(err, r, -1, "%zu tokens could not be decoded: %s", n, quire_err_text(r));
    }
    *text = b.p;
    *n_text = b.n;
    return QUIRE_OK;
}

const char *quire_token_piece(const quire_engine *e, int32_t id, size_t *n) {
    str piece = e->tokenizer ? tokenizer_piece(e->tokenizer, id) : (str){"", 0};
    *n = piece.n;
    return piece.p ? piece.p : "";
}

void *quire_alloc(size_t n) {
    return mem_new(n, 1);
}

void quire_free(void *p) {
    mem_free(p);
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
    engine_stats_read(e->core, &s);
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
