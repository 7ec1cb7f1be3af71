#include "engine/tiering.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/tiering_parts.h"

#define FLUSH_US       5000000 /* most time to flush at closing */
#define FLUSH_PENDING  4       /* pages that are being written at once during the flush */
#define SHORT_WAIT_US  1000
#define WRITES_A_STEP  4 /* pages of tokens that a step writes through: each costs the engine thread a copy and a checksum */
#define WRITES_AT_ONCE 8 /* transfers at which write-through pauses: demotion and promotion need frames too */

/* ---- keys ---- */

kv_tier_id tiering_root(const engine *e, kv_tier_id before, int32_t namespace) {
    kv_index_namespace s = kv_index_describe_namespace(e->kv.index, namespace);
    return kv_tier_id_root(before, s.name, s.n_name, s.is_public);
}

/* The key of the parent of a full entry, before which all have keys. */
static kv_tier_id parent_of(const engine *e, const kv_index_entry *d) {
    kv_tier_id before = d->up != ENTRY_NONE ? e->tiering->names[d->up].id : (kv_tier_id){0, 0};
    bool begins = d->up == ENTRY_NONE || kv_index_describe(e->kv.index, d->up).namespace != d->namespace;
    return begins ? tiering_root(e, before, d->namespace) : before;
}

kv_tier_id tiering_name(engine *e, int32_t entry) {
    tiering *t = e->tiering;
    int32_t n = 0;
    for (int32_t i = entry; i != ENTRY_NONE && !t->names[i].is_known; i = kv_index_describe(e->kv.index, i).up) {
        t->path[n++] = i;
    }
    while (n > 0) {
        kv_index_entry d = kv_index_describe(e->kv.index, t->path[--n]);
        t->names[d.entry].id = kv_tier_id_page(parent_of(e, &d), d.tokens, e->layout.page_tokens);
        t->names[d.entry].is_known = true;
    }
    return t->names[entry].id;
}

/* ---- demotion ---- */

/* Stores the page of a full entry in one group in the tiers that lack it. */
static void put_page(engine *e, const kv_index_entry *d, int32_t group, kv_put to) {
    kv_tier_id id = tiering_name(e, d->entry);
    kv_tier_key key = {
        .namespace = d->name, .n_namespace = d->n_name, .group = group, .parent = parent_of(e, d), .id = id, .tokens = d->tokens};
    void *body = kv_tiers_put_begin(e->tiering->tiers, &key, to);
    if (body) {
        e->b->ops->kv_read_page(e->b, d->pages[group], body);
        kv_tiers_put_end(e->tiering->tiers, &key);
    }
}

/* A page is about to be removed: stores its bytes in the tiers. Part-filled pages are not worth it. */
static void on_remove(void *context, int32_t entry, int32_t group) {
    engine *e = context;
    kv_index_entry d = kv_index_describe(e->kv.index, entry);
    if (d.n_tokens == e->layout.page_tokens) {
        put_page(e, &d, group, e->tiering->closes ? KV_PUT_KEPT : KV_PUT_ALL);
    }
}

static void on_drop(void *context, int32_t entry) {
    const engine *e = context;
    e->tiering->names[entry] = (entry_name){0};
}

const kv_index_watch *tiering_watch(engine *e) {
    return e->tiering ? &e->tiering->watch : NULL;
}

/* ---- write-through ---- */

void tiering_published(engine *e, const sequence *s) {
    tiering *t = e->tiering;
    if (!t || !t->to_write.entries) {
        return;
    }
    int32_t n = 0;
    for (int32_t i = s->task.kv.path.entry; i != ENTRY_NONE && !t->names[i].was_queued; i = kv_index_describe(e->kv.index, i).up) {
        t->path[n++] = i;
    }
    write_queue *q = &t->to_write;
    for (; n > 0 && q->n < q->cap; q->n++) { /* what does not fit is demoted when it is evicted */
        q->entries[(q->first + q->n) % q->cap] = t->path[--n];
        t->names[t->path[n]].was_queued = true;
    }
}

/* Writes some of the queued pages through, the beginning of a prefix first. */
static void write_some(engine *e) {
    tiering *t = e->tiering;
    write_queue *q = &t->to_write;
    for (int k = 0; k < WRITES_A_STEP && q->n > 0 && kv_tiers_n_pending(t->tiers) < WRITES_AT_ONCE; k++) {
        int32_t entry = q->entries[q->first];
        q->first = (q->first + 1) % q->cap;
        q->n--;
        if (!t->names[entry].was_queued) {
            continue; /* it was removed meanwhile */
        }
        kv_index_entry d = kv_index_describe(e->kv.index, entry);
        for (int32_t g = 0; g < e->layout.n_groups; g++) {
            if (d.pages[g] != PAGE_NONE.v) {
                put_page(e, &d, g, KV_PUT_KEPT);
            }
        }
    }
}

void tiering_poll(engine *e) {
    tiering *t = e->tiering;
    if (!t) {
        return;
    }
    kv_tiers_poll(t->tiers);
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        if (t->promotions[i].s) {
            promotion_advance(e, &t->promotions[i]);
        }
    }
    write_some(e);
}

void tiering_stats(const engine *e, kv_tier_stats out[KV_N_TIERS]) {
    if (e->tiering) {
        kv_tiers_stats(e->tiering->tiers, out);
    }
}

/* ---- open and close ---- */

static quire_err open_arrays(engine *e, tiering *t, int32_t n_entries) {
    int32_t n_most = (int32_t)kv_pages_for(e->options.max_model_len, e->layout.page_tokens);
    t->names = mem_new((size_t)n_entries, sizeof *t->names);
    t->path = mem_new((size_t)n_most + 1, sizeof *t->path);
    if (!t->names || !t->path) {
        return QUIRE_NO_MEMORY;
    }
    if (e->options.tiers.write == TIER_WRITE_THROUGH) {
        t->to_write.cap = e->options.n_pages;
        t->to_write.entries = mem_new((size_t)t->to_write.cap, sizeof *t->to_write.entries);
        if (!t->to_write.entries) {
            return QUIRE_NO_MEMORY;
        }
    }
    TRY(kv_seq_init(&t->seq, e->layout.n_groups, n_most + 1));
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        TRY(promotion_open(e, &t->promotions[i]));
    }
    return QUIRE_OK;
}

/* Whether the layout allows tiers: state groups restore from snapshots, which are not pages of tokens. */
static bool can_tier(const engine *e) {
    for (int32_t g = 0; g < e->layout.n_groups; g++) {
        if (e->layout.groups[g].kind == LAYER_STATE) {
            return false;
        }
    }
    return e->options.prefix_cache != PREFIX_CACHE_NONE;
}

static bool are_kept(const engine_tiers *o) {
    return o->file_path || o->redis_url;
}

quire_err tiering_open(engine *e, int32_t n_entries, quire_error *err) {
    const engine_tiers *o = &e->options.tiers;
    if (o->host_bytes == 0 && !are_kept(o)) {
        return QUIRE_OK;
    }
    if (!can_tier(e)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "tiers keep pages of the prefix cache: they need --prefix-cache and a model without recurrent state");
    }
    tiering *t = e->tiering = mem_new(1, sizeof *t);
    if (!t || open_arrays(e, t, n_entries) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    t->watch = (kv_index_watch){.context = e, .on_remove = on_remove, .on_drop = on_drop};
    kv_tiers_options k = {.shape = {.version = o->version,
                                    .n_version = strlen(o->version),
                                    .page_tokens = e->layout.page_tokens,
                                    .n_groups = e->layout.n_groups,
                                    .page_bytes = e->layout.page_bytes},
                          .host_bytes = o->host_bytes,
                          .file_path = o->file_path,
                          .file_bytes = o->file_bytes,
                          .redis_url = o->redis_url,
                          .redis_bytes = o->redis_bytes,
                          .reader = &e->in_wake};
    return kv_tiers_open(&k, &t->tiers, err);
}

/* Writes cached pages to the tiers that outlive the process, as far as time allows. */
static void flush(engine *e) {
    int64_t end_us = clock_us() + FLUSH_US;
    while (e->kv.index && kv_pool_counts(e->kv.pool).n_cached > 0 && clock_us() < end_us) {
        (void)kv_index_evict(e->kv.index, kv_pool_counts(e->kv.pool).n_free + 1);
        while (kv_tiers_n_pending(e->tiering->tiers) >= FLUSH_PENDING && clock_us() < end_us) {
            wake_wait(&e->in_wake, SHORT_WAIT_US);
            kv_tiers_poll(e->tiering->tiers);
        }
    }
}

void tiering_close(engine *e) {
    tiering *t = e->tiering;
    if (!t) {
        return;
    }
    t->closes = true;
    if (t->tiers && are_kept(&e->options.tiers)) {
        flush(e);
    }
    kv_tiers_close(t->tiers);
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        promotion_close(&t->promotions[i]);
    }
    kv_seq_deinit(&t->seq);
    mem_free(t->to_write.entries);
    mem_free(t->path);
    mem_free(t->names);
    mem_free(t);
    e->tiering = NULL;
}
