#include "engine/cache.h"

#include "kv/kv_tiering.h"

#define MAX_NAMESPACES 4096 /* tenants with their salts that have sequences or cached pages at once */
#define N_EVENTS       4096 /* capacity of the ring of KV events */

/* The scope of public prefixes: all whose keys and values agree, which within one engine are all. */
static const unsigned char SCOPE[] = {0};

quire_err cache_open(engine *e) {
    kv_cache_options o = kv_cache_options_of(&e->layout, e->options.n_pages);
    o.mover = &e->mover;
    o.no_index = e->options.prefix_cache == PREFIX_CACHE_NONE;
    o.max_namespaces = MAX_NAMESPACES;
    o.n_events = N_EVENTS;
    o.granularity = e->options.prefix_cache == PREFIX_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN;
    o.policy = e->options.eviction;
    TRY(kv_cache_open(&o, &e->kv));
    for (int32_t i = 0; e->kv.index != NULL && i < e->options.n_prefixes; i++) {
        TRY(kv_index_add_public(e->kv.index, SCOPE, sizeof SCOPE, e->options.prefixes[i].tokens, e->options.prefixes[i].n_tokens));
    }
    return QUIRE_OK;
}

void cache_enter(engine *e, sequence *s) {
    quire_err r = kv_seq_open(&e->kv, &s->task.kv, SCOPE, sizeof SCOPE, s->namespace, s->n_namespace, s->task.tokens, s->task.n_known);
    if (r == QUIRE_OK && s->task.kv.has_path && s->retains) {
        (void)kv_index_retain(e->kv.index, &s->task.kv.path, &s->retention); /* the caller has checked the range */
    }
}

int32_t cache_peek(const engine *e, const sequence *s, int32_t *n_held) {
    return kv_seq_peek(&e->kv, &s->task.kv, s->task.tokens, task_reusable(&s->task), n_held);
}

void cache_count_reuse(engine *e, sequence *s, int32_t n) {
    int64_t *total = s->task.n_admitted == 1 ? &e->stats.prompt_tokens_reused : &e->stats.known_tokens_reused;
    *total += n - s->task.n_reused;
    s->task.n_reused = n;
    if (s->task.n_admitted == 1) {
        s->n_cached = n; /* only once: readers read it from the first token on */
    }
}

void cache_admit(engine *e, sequence *s) {
    (void)kv_seq_admit(&e->kv, &s->task.kv, s->task.tokens, task_reusable(&s->task)); /* its tables have room */
    s->task.n_admitted++;
    s->task.n_reused = 0;
    *(s->task.n_admitted == 1 ? &e->stats.prompt_tokens_queried : &e->stats.known_tokens_queried) += s->task.n_known;
    cache_count_reuse(e, s, s->task.kv.n_computed);
}

void cache_publish(engine *e, sequence *s) {
    if (s->task.kv.has_path) {
        kv_seq_publish(&e->kv, &s->task.kv, s->task.tokens);
        kv_tiering_published(e->tiering, &s->task.kv);
    }
}

void cache_keep_whole_pages(engine *e, sequence *s) {
    int32_t keep = s->task.kv.n_computed - s->task.kv.n_computed % e->layout.page_tokens;
    if (keep == s->task.kv.n_computed) {
        return;
    }
    kv_seq_truncate(&e->kv, &s->task.kv, keep);
    cache_count_reuse(e, s, keep);
}

bool cache_drop_tail(engine *e, sequence *s) {
    int32_t keep = s->task.kv.n_computed - s->task.kv.n_computed % e->layout.page_tokens;
    bool is_reused = s->task.kv.n_computed == s->task.n_reused; /* what it computed itself is not dropped */
    if (!s->task.kv.has_path || keep == s->task.kv.n_computed || !is_reused || !kv_seq_can_truncate(&e->kv, &s->task.kv, keep)) {
        return false;
    }
    cache_keep_whole_pages(e, s);
    return true;
}
