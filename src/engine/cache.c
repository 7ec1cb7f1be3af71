#include "engine/cache.h"

#include "engine/tiering.h"

#define MAX_NAMESPACES      4096 /* tenants with their salts that have sequences or cached pages at once */
#define N_EVENTS        4096 /* capacity of the ring of KV events */
#define EVICT_FOR_NAMESPACE 64   /* pages to evict when there is no namespace for a new one */

/* The scope of public prefixes: all whose keys and values agree, which within one engine are all. */
static const unsigned char SCOPE[] = {0};

static kv_index_options index_options(const engine *e) {
    kv_index_options o = {.page_tokens = e->layout.page_tokens,
                          .n_groups = e->layout.n_groups,
                          .max_namespaces = MAX_NAMESPACES,
                          .granularity = e->options.prefix_cache == PREFIX_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN,
                          .policy = e->options.eviction};
    for (int32_t g = 0; g < e->layout.n_groups; g++) {
        o.windows[g] = e->layout.groups[g].kind == LAYER_WINDOW ? e->layout.groups[g].window : 0;
    }
    return o;
}

int32_t cache_cap_entries(const engine *e) {
    kv_index_options o = index_options(e);
    return kv_index_cap_entries(&o, e->options.n_pages);
}

quire_err cache_open(engine *e) {
    if (e->options.prefix_cache == PREFIX_CACHE_NONE) {
        return QUIRE_OK;
    }
    kv_index_options o = index_options(e);
    o.watch = tiering_watch(e);
    TRY(kv_events_open(N_EVENTS, e->layout.page_tokens, &e->events));
    o.events = e->events;
    TRY(kv_index_open(e->pool, &o, &e->index));
    for (int32_t i = 0; i < e->options.n_prefixes; i++) {
        TRY(kv_index_add_public(e->index, SCOPE, sizeof SCOPE, e->options.prefixes[i].tokens, e->options.prefixes[i].n_tokens));
    }
    return QUIRE_OK;
}

void cache_close(engine *e) {
    if (e->index) {
        kv_index_close(e->index);
    }
    kv_events_close(e->events);
}

static quire_err enter_namespace(engine *e, sequence *s) {
    return kv_index_enter_public(e->index, SCOPE, sizeof SCOPE, s->namespace, s->n_namespace, s->tokens, s->n_known, &s->path);
}

void cache_enter(engine *e, sequence *s) {
    if (!e->index) {
        return;
    }
    quire_err r = enter_namespace(e, s);
    if (r == QUIRE_NO_ROOM) { /* all namespaces have cached pages: evict the oldest; with its last page a namespace is removed */
        (void)kv_index_evict(e->index, kv_pool_counts(e->pool).n_free + EVICT_FOR_NAMESPACE);
        r = enter_namespace(e, s);
    }
    s->cached = r == QUIRE_OK;
    if (s->cached && s->retains) {
        (void)kv_index_retain(e->index, &s->path, &s->retention); /* the caller has checked the range */
    }
}

void cache_set_time(engine *e, int64_t now_us) {
    if (e->index) {
        kv_index_set_time(e->index, now_us);
    }
}

void cache_leave(engine *e, sequence *s) {
    if (s->cached) {
        kv_index_leave(e->index, &s->path);
        s->cached = false;
    }
}

int32_t cache_reusable(const sequence *s) {
    int32_t n = s->n_known - 1;
    return sequence_wants_logits(s) && s->logits_first < n ? s->logits_first : n;
}

int32_t cache_peek(const engine *e, const sequence *s, int32_t *n_held) {
    *n_held = 0;
    return s->cached ? kv_index_peek_held(e->index, &s->path, s->tokens, cache_reusable(s), n_held) : 0;
}

/* Counts that s reuses n tokens: of the prompt at its first admission, later of what it knew when it was preempted. */
static void count_reuse(engine *e, sequence *s, int32_t n) {
    int64_t *total = s->n_admitted == 1 ? &e->stats.prompt_tokens_reused : &e->stats.known_tokens_reused;
    *total += n - s->n_reused;
    s->n_reused = n;
    if (s->n_admitted == 1) {
        s->n_cached = n; /* only once: readers read it from the first token on */
    }
}

void cache_take(engine *e, sequence *s) {
    int32_t n = 0;
    if (s->cached && kv_index_match(e->index, &s->path, s->tokens, cache_reusable(s), s->tables, &n) == QUIRE_OK) {
        s->n_computed = n;
    }
    s->n_admitted++;
    s->n_reused = 0;
    *(s->n_admitted == 1 ? &e->stats.prompt_tokens_queried : &e->stats.known_tokens_queried) += s->n_known;
    count_reuse(e, s, n);
}

void cache_publish(engine *e, sequence *s) {
    if (s->cached) {
        /* a full tree leaves the rest unpublished: only reuse is lost */
        (void)kv_index_publish(e->index, &s->path, s->tokens, s->n_computed, s->tables, KV_PUBLISH_PAGES);
        tiering_published(e, s);
    }
}

/* The first position that group g's layers attend to from position n. */
static int32_t first_seen(const engine *e, int32_t g, int32_t n) {
    int32_t window = e->layout.groups[g].kind == LAYER_WINDOW ? e->layout.groups[g].window : 0;
    return window == 0 || n < window ? 0 : n - window + 1;
}

void cache_forget(engine *e, sequence *s) {
    for (int32_t g = 0; g < s->n_tables; g++) {
        kv_table_forget(e->pool, &s->tables[g], first_seen(e, g, s->n_computed), e->layout.page_tokens);
    }
}

bool cache_can_go_back(const engine *e, const sequence *s, int32_t n) {
    for (int32_t g = 0; g < s->n_tables; g++) {
        int32_t first = first_seen(e, g, n);
        if (first < n && s->tables[g].pages[first / e->layout.page_tokens].v == PAGE_NONE.v) {
            return false;
        }
    }
    return true;
}

/* Whether no other sequence holds the pages of s's last tokens. If they were published all the same, the other holder would have to copy
 * them to write on, and a full pool has no page for that. */
static bool owns_tail(const engine *e, const sequence *s) {
    bool owns = true;
    for (int32_t g = 0; g < s->n_tables && s->n_computed % e->layout.page_tokens != 0; g++) {
        page_id tail = s->tables[g].pages[s->n_computed / e->layout.page_tokens];
        owns = owns && (tail.v == PAGE_NONE.v || kv_pool_count(e->pool, tail) == 1);
    }
    return owns;
}

void cache_release(engine *e, sequence *s, cache_keep keep) {
    if (s->cached && keep == CACHE_KEEP && s->n_computed > 0) {
        (void)kv_index_publish(e->index, &s->path, s->tokens, s->n_computed, s->tables,
                               owns_tail(e, s) ? KV_PUBLISH_TAIL : KV_PUBLISH_PAGES);
    }
    for (int32_t g = 0; g < s->n_tables; g++) {
        kv_table_clear(e->pool, &s->tables[g]);
    }
    if (s->cached) {
        kv_index_truncate(e->index, &s->path, 0);
    }
    s->n_computed = 0;
}

int32_t cache_available(const engine *e) {
    kv_counts c = kv_pool_counts(e->pool);
    return c.n_free + c.n_cached;
}

void cache_make_free(engine *e, int32_t n) {
    if (e->index && kv_pool_counts(e->pool).n_free < n) {
        (void)kv_index_evict(e->index, n); /* a lack of pages shows when they are reserved */
    }
}

void cache_go_back(engine *e, sequence *s, int32_t n) {
    for (int32_t g = 0; g < s->n_tables; g++) {
        kv_table_truncate(e->pool, &s->tables[g], n, e->layout.page_tokens);
    }
    if (s->cached) {
        kv_index_truncate(e->index, &s->path, n);
    }
    s->n_computed = n;
}

void cache_keep_whole_pages(engine *e, sequence *s) {
    int32_t keep = s->n_computed - s->n_computed % e->layout.page_tokens;
    if (keep == s->n_computed) {
        return;
    }
    cache_go_back(e, s, keep);
    count_reuse(e, s, keep);
}

bool cache_drop_tail(engine *e, sequence *s) {
    int32_t keep = s->n_computed - s->n_computed % e->layout.page_tokens;
    if (!s->cached || keep == s->n_computed || s->n_computed != s->n_reused || !cache_can_go_back(e, s, keep)) {
        return false; /* what it computed itself is not dropped */
    }
    cache_keep_whole_pages(e, s);
    return true;
}

bool cache_take_over_tail(engine *e, sequence *s) {
    return e->index != NULL && kv_index_take_over_tail(e->index, s->tables, s->n_computed);
}
