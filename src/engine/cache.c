#include "engine/cache.h"

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

void cache_publish(engine *e, sequence *s) {
    if (s->task.kv.has_path) {
        kv_seq_publish(&e->kv, &s->task.kv, s->task.tokens);
        if (e->kv.n_state_pages > 0 && kv_seq_until_snapshot(&e->kv, &s->task.kv) <= 0) {
            kv_seq_snapshot(&e->kv, &s->task.kv, s->task.tokens, false, NULL);
        }
        kv_tiering_published(e->tiering, &s->task.kv);
    }
}
