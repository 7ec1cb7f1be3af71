#include "engine/tiering.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/cache.h"
#include "engine/explain.h"
#include "kv/hash.h"
#include "kv/tier.h"

#define MAX_PROMOTIONS 8  /* requests that pages are fetched for at once */
#define WINDOW         16 /* pages of tokens that are fetched ahead for each */
#define ENTRY_NONE     (-1)
#define FLUSH_US       5000000 /* of closing */
#define FLUSH_PENDING  4       /* pages that are being written at once then */
#define SHORT_WAIT_US  1000

/* What the records of an index entry are called. */
typedef struct entry_name {
    kv_tier_id id;
    bool is_known;
} entry_name;

/* The pages of tokens n_done..n_total of a waiting request are being brought in; up to n_asked they have frames. */
typedef struct promotion {
    sequence *s; /* NULL: free */
    int32_t n_done, n_asked, n_total;
    kv_tier_id parent;       /* of page n_done */
    kv_tier_id asked_parent; /* of page n_asked, where known */
    bool asked_parent_known;
    uint64_t hash;           /* of the prefix before page n_asked */
    int32_t *frames;         /* [WINDOW, n_groups], page i at i % WINDOW */
} promotion;

struct tiering {
    kv_tiers *tiers;
    kv_index_watch watch;
    entry_name *names;     /* [n_pages] by index entry */
    int32_t *unnamed;      /* [max pages of a sequence] entries that get a name */
    kv_table *tables;      /* [n_groups] of the pages being published; empty between calls */
    promotion promotions[MAX_PROMOTIONS];
    uint32_t id_key[2], id_counter[4];
};

/* ---- names ---- */

/* 128 bits that no other record has: a key and half of the counter from the operating system, the rest counts. */
static kv_tier_id new_id(tiering *t) {
    uint32_t w[4];
    t->id_counter[0]++;
    t->id_counter[1] += t->id_counter[0] == 0;
    rng_philox(t->id_counter, t->id_key, w);
    return (kv_tier_id){(uint64_t)w[0] << 32 | w[1], (uint64_t)w[2] << 32 | w[3]};
}

/* What the first record of a space stands behind, which tells the space of a tenant from one of public prefixes that has the same name. */
static kv_tier_id root_of(const engine *e, int32_t space) {
    return (kv_tier_id){0, kv_index_describe_space(e->index, space).is_public};
}

static kv_tier_key key_of(const engine *e, const kv_index_entry *d, int32_t group) {
    return (kv_tier_key){.space = d->name,
                         .n_space = d->n_name,
                         .group = group,
                         .parent = d->up == ENTRY_NONE ? root_of(e, d->space) : e->tiering->names[d->up].id,
                         .tokens = d->tokens,
                         .hash = d->hash};
}

/* The id of a full entry's records: that of one which a tier holds already, else a new one. Names all entries before it. */
static kv_tier_id name_entry(engine *e, int32_t entry) {
    tiering *t = e->tiering;
    int32_t n = 0;
    for (int32_t i = entry; i != ENTRY_NONE && !t->names[i].is_known; i = kv_index_describe(e->index, i).up) {
        t->unnamed[n++] = i;
    }
    while (n > 0) {
        int32_t i = t->unnamed[--n];
        kv_index_entry d = kv_index_describe(e->index, i);
        kv_tier_key key = key_of(e, &d, 0);
        t->names[i].is_known = true;
        if (!kv_tiers_find(t->tiers, &key, &t->names[i].id)) {
            t->names[i].id = new_id(t);
        }
    }
    return t->names[entry].id;
}

/* ---- demotion ---- */

/* A page is about to go: its bytes go to the tiers. Part-filled pages are not worth it. */
static void on_remove(void *context, int32_t entry, int32_t group) {
    engine *e = context;
    tiering *t = e->tiering;
    kv_index_entry d = kv_index_describe(e->index, entry);
    if (d.n_tokens < e->layout.page_tokens) {
        return;
    }
    kv_tier_id id = name_entry(e, entry);
    kv_tier_key key = key_of(e, &d, group);
    void *body = kv_tiers_put_begin(t->tiers, &key);
    if (body) {
        e->b->ops->kv_read_page(e->b, d.pages[group], body);
        kv_tiers_put_end(t->tiers, &key, id);
    }
}

static void on_drop(void *context, int32_t entry) {
    const engine *e = context;
    e->tiering->names[entry].is_known = false;
}

const kv_index_watch *tiering_watch(engine *e) {
    return e->tiering ? &e->tiering->watch : NULL;
}

/* ---- a place in the index while pages are put into it ---- */

/* Where s's first n tokens are in the index, which must be told apart from s's own path: s waits and stands at its root. */
static kv_path stand(engine *e, const sequence *s, int32_t n) {
    kv_path path = kv_index_fork(e->index, &s->path);
    int32_t n_matched;
    (void)kv_index_match(e->index, &path, s->tokens, n, e->tiering->tables, &n_matched); /* the tables have room */
    for (int32_t g = 0; g < e->layout.n_groups; g++) {
        int32_t whole = path.n_pages * e->layout.page_tokens;
        if (e->tiering->tables[g].n_tokens > whole) {
            kv_table_truncate(e->pool, &e->tiering->tables[g], whole, e->layout.page_tokens);
        }
    }
    return path;
}

static void leave(engine *e, kv_path *path) {
    for (int32_t g = 0; g < e->layout.n_groups; g++) {
        kv_table_clear(e->pool, &e->tiering->tables[g]);
    }
    kv_index_leave(e->index, path);
}

/* ---- promotion ---- */

static int32_t *frame_at(const engine *e, const promotion *p, int32_t page, int32_t group) {
    return &p->frames[page % WINDOW * e->layout.n_groups + group];
}

/* Gives back the frames of pages from..to. */
static void release_frames(engine *e, const promotion *p, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++) {
        for (int32_t g = 0; g < e->layout.n_groups; g++) {
            kv_tiers_release(e->tiering->tiers, *frame_at(e, p, i, g));
        }
    }
}

static void finish(engine *e, promotion *p) {
    release_frames(e, p, p->n_done, p->n_asked);
    p->s->tier_wait = TIER_WAIT_OVER;
    p->s = NULL;
}

/* Fetches the next page of tokens in every group, or in none. */
static kv_fetch fetch_page(engine *e, promotion *p) {
    kv_tiers *tiers = e->tiering->tiers;
    const int32_t *tokens = p->s->tokens + p->n_asked * e->layout.page_tokens;
    const kv_path *path = &p->s->path;
    kv_index_space space = kv_index_describe_space(e->index, p->n_asked < path->n_public ? path->public_space : path->space);
    uint64_t before = p->n_asked == 0 || p->n_asked == path->n_public ? kv_hash_root(p->hash, space.name, space.n_name) : p->hash;
    uint64_t hash = kv_hash_page(before, tokens, e->layout.page_tokens);
    kv_tier_key key = {.space = space.name, .n_space = space.n_name, .tokens = tokens, .hash = hash};
    key.parent = p->asked_parent_known ? p->asked_parent : KV_TIER_ID_UNKNOWN;
    for (int32_t g = 0; g < e->layout.n_groups; g++) {
        key.group = g;
        kv_fetch f = kv_tiers_fetch(tiers, &key, frame_at(e, p, p->n_asked, g));
        if (f != KV_FETCH_STARTED) {
            while (g-- > 0) {
                kv_tiers_release(tiers, *frame_at(e, p, p->n_asked, g));
            }
            return f;
        }
    }
    key.group = 0;
    p->asked_parent_known = p->asked_parent_known && kv_tiers_find(tiers, &key, &p->asked_parent);
    p->hash = hash;
    p->n_asked++;
    return KV_FETCH_STARTED;
}

static void fetch_ahead(engine *e, promotion *p) {
    while (p->n_asked < p->n_total && p->n_asked - p->n_done < WINDOW) {
        kv_fetch f = fetch_page(e, p);
        if (f == KV_FETCH_NOWHERE) {
            p->n_total = p->n_asked;
        }
        if (f != KV_FETCH_STARTED) {
            return;
        }
    }
}

/* How many pages of tokens from n_done on have come, each behind the one before; ids[] are theirs. What was missed ends the promotion. */
static int32_t count_come(engine *e, promotion *p, kv_tier_id ids[WINDOW]) {
    kv_tiers *tiers = e->tiering->tiers;
    kv_tier_id parent = p->parent, id;
    for (int32_t i = p->n_done; i < p->n_asked; i++) {
        for (int32_t g = 0; g < e->layout.n_groups; g++) {
            int32_t f = *frame_at(e, p, i, g);
            if (!kv_tiers_is_ready(tiers, f)) {
                return i - p->n_done;
            }
            if (!kv_tiers_take(tiers, f, parent, &id) || (g > 0 && !kv_tier_id_equal(id, ids[i - p->n_done]))) {
                p->n_total = i;
                return i - p->n_done;
            }
            ids[i - p->n_done] = id;
        }
        parent = ids[i - p->n_done];
    }
    return p->n_asked - p->n_done;
}

/* Room in the tables for n more pages of tokens, in every group. */
static quire_err reserve(engine *e, int32_t n) {
    tiering *t = e->tiering;
    kv_copies none = {0}; /* they end with whole pages: nothing is copied */
    cache_make_free(e, n * e->layout.n_groups);
    for (int32_t g = 0; g < e->layout.n_groups; g++) {
        TRY(kv_table_append(e->pool, &t->tables[g], n * e->layout.page_tokens, e->layout.page_tokens, &none));
    }
    return QUIRE_OK;
}

/* The last n entries up to `entry` are called ids[0..n). One that has a name keeps it. */
static void name_last(engine *e, int32_t entry, const kv_tier_id *ids, int32_t n) {
    for (; n > 0 && entry != ENTRY_NONE; entry = kv_index_describe(e->index, entry).up) {
        entry_name *name = &e->tiering->names[entry];
        n--;
        if (!name->is_known) {
            *name = (entry_name){ids[n], true};
        }
    }
}

/* Puts n fetched pages of tokens into the pool and the index. false: they have no place there. */
static bool publish(engine *e, promotion *p, const kv_tier_id *ids, int32_t n) {
    tiering *t = e->tiering;
    const int32_t size = e->layout.page_tokens;
    kv_path path = stand(e, p->s, p->n_done * size);
    bool fits = path.n_pages == p->n_done && reserve(e, n) == QUIRE_OK;
    for (int32_t i = 0; fits && i < n; i++) {
        for (int32_t g = 0; g < e->layout.n_groups; g++) {
            kv_tier_id id;
            const void *body = kv_tiers_take(t->tiers, *frame_at(e, p, p->n_done + i, g), i == 0 ? p->parent : ids[i - 1], &id);
            e->b->ops->kv_write_page(e->b, t->tables[g].pages[p->n_done + i].v, body);
        }
    }
    if (fits) {
        (void)kv_index_publish(e->index, &path, p->s->tokens, (p->n_done + n) * size, t->tables, KV_PUBLISH_PAGES);
        fits = path.n_pages == p->n_done + n;
        name_last(e, path.entry, ids, path.n_pages - p->n_done);
    }
    leave(e, &path);
    return fits;
}

static void advance(engine *e, promotion *p) {
    kv_tier_id ids[WINDOW];
    fetch_ahead(e, p);
    int32_t n = count_come(e, p, ids);
    if (n > 0) {
        bool fits = publish(e, p, ids, n);
        release_frames(e, p, p->n_done, p->n_done + n);
        p->n_done += n;
        p->parent = ids[n - 1];
        p->n_total = fits ? p->n_total : p->n_done;
        if (fits) {
            e->stats.promoted_tokens += (int64_t)n * e->layout.page_tokens;
            explain_promoted(p->s, n * e->layout.page_tokens);
        }
        fetch_ahead(e, p);
    }
    if (p->n_done >= p->n_total || clock_us() >= p->s->tier_deadline_us) {
        finish(e, p);
    }
}

void tiering_poll(engine *e) {
    if (!e->tiering) {
        return;
    }
    kv_tiers_poll(e->tiering->tiers);
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        if (e->tiering->promotions[i].s) {
            advance(e, &e->tiering->promotions[i]);
        }
    }
}

/* Begins behind what the pool holds of s, where that is not all it can use. */
static void begin(engine *e, promotion *p, sequence *s) {
    int32_t n_total = cache_reusable(s) / e->layout.page_tokens;
    kv_path path = stand(e, s, n_total * e->layout.page_tokens);
    int32_t *frames = p->frames;
    *p = (promotion){.s = s, .n_done = path.n_pages, .n_asked = path.n_pages, .n_total = n_total, .asked_parent_known = true, .frames = frames};
    p->parent = p->asked_parent = root_of(e, path.n_public > 0 ? path.public_space : path.space);
    if (path.n_pages > 0 && path.n_pages < n_total) {
        p->parent = p->asked_parent = name_entry(e, path.entry);
        p->hash = kv_index_describe(e->index, path.entry).hash;
    }
    leave(e, &path);
    s->tier_wait = TIER_WAITS;
    advance(e, p);
}

bool tiering_waits(engine *e, sequence *s) {
    if (!e->tiering || !s->cached || s->tier_wait == TIER_WAIT_OVER) {
        return false;
    }
    if (s->tier_wait == TIER_WAIT_NONE) {
        if (s->tier_deadline_us == 0) {
            s->tier_deadline_us = clock_us() + e->options.tiers.wait_us;
        }
        promotion *p = e->tiering->promotions;
        while (p < e->tiering->promotions + MAX_PROMOTIONS && p->s) {
            p++;
        }
        if (p < e->tiering->promotions + MAX_PROMOTIONS) {
            begin(e, p, s);
        } else if (clock_us() >= s->tier_deadline_us) {
            s->tier_wait = TIER_WAIT_OVER;
        }
    }
    return s->tier_wait != TIER_WAIT_OVER;
}

void tiering_forget(engine *e, sequence *s) {
    for (int i = 0; e->tiering && i < MAX_PROMOTIONS; i++) {
        if (e->tiering->promotions[i].s == s) {
            finish(e, &e->tiering->promotions[i]);
        }
    }
    s->tier_wait = TIER_WAIT_NONE;
    s->tier_deadline_us = 0;
}

void tiering_stats(const engine *e, kv_tier_stats out[KV_N_TIERS]) {
    if (e->tiering) {
        kv_tiers_stats(e->tiering->tiers, out);
    }
}

/* ---- open and close ---- */

static quire_err open_arrays(engine *e, tiering *t) {
    int32_t n_groups = e->layout.n_groups, n_most = (int32_t)kv_pages_for(e->options.max_model_len, e->layout.page_tokens);
    t->names = mem_new((size_t)e->options.n_pages, sizeof *t->names);
    t->unnamed = mem_new((size_t)n_most + 1, sizeof *t->unnamed);
    t->tables = mem_new((size_t)n_groups, sizeof *t->tables);
    if (!t->names || !t->unnamed || !t->tables) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t g = 0; g < n_groups; g++) {
        TRY(kv_table_init(&t->tables[g], n_most + 1));
    }
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        t->promotions[i].frames = mem_new(WINDOW * (size_t)n_groups, sizeof(int32_t));
        if (!t->promotions[i].frames) {
            return QUIRE_NO_MEMORY;
        }
    }
    return QUIRE_OK;
}

/* State groups restore from snapshots, which are not pages of tokens. */
static bool can_tier(const engine *e) {
    for (int32_t g = 0; g < e->layout.n_groups; g++) {
        if (e->layout.groups[g].kind == LAYER_STATE) {
            return false;
        }
    }
    return e->options.prefix_cache != PREFIX_CACHE_NONE;
}

quire_err tiering_open(engine *e, quire_error *err) {
    const engine_tiers *o = &e->options.tiers;
    if (o->host_bytes == 0 && !o->file_path && !o->redis_url) {
        return QUIRE_OK;
    }
    if (!can_tier(e)) {
        return err_set(err, QUIRE_INVALID, -1, "tiers keep pages of the prefix cache: they need --prefix-cache and a model without recurrent state");
    }
    tiering *t = e->tiering = mem_new(1, sizeof *t);
    if (!t || open_arrays(e, t) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    uint64_t key = rng_os_seed(), counter = rng_os_seed();
    memcpy(t->id_key, &key, sizeof key);
    memcpy(t->id_counter + 2, &counter, sizeof counter);
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

/* What is cached goes to the tiers that outlive the process, as far as time allows. */
static void flush(engine *e) {
    int64_t end_us = clock_us() + FLUSH_US;
    while (e->index && kv_pool_counts(e->pool).n_cached > 0 && clock_us() < end_us) {
        (void)kv_index_evict(e->index, kv_pool_counts(e->pool).n_free + 1);
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
    if (t->tiers && (e->options.tiers.file_path || e->options.tiers.redis_url)) {
        flush(e);
    }
    kv_tiers_close(t->tiers);
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        mem_free(t->promotions[i].frames);
    }
    for (int32_t g = 0; t->tables && g < e->layout.n_groups; g++) {
        kv_table_deinit(e->pool, &t->tables[g]);
    }
    mem_free(t->tables);
    mem_free(t->unnamed);
    mem_free(t->names);
    mem_free(t);
    e->tiering = NULL;
}
