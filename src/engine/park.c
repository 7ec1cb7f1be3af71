/* Parks. A park keeps the pages of one sequence after its end, so that a request that
 * continues it finds them in the prefix cache (quire.h has the interface).
 *
 *   empty --its sequence ends--> holds pages --another sequence ends there, or a limit--> ..
 *
 * A park holds a kv_seq that belongs to no task: its pages count as held, so the planner
 * does not use them and nothing evicts them. The engine counts the parks that hold each
 * page, so that a page counts once in the total and once for its tenant. Pages of public
 * prefixes belong to no tenant. The oldest parks are emptied when a limit is exceeded, or
 * when too few pages are left for anything to run.
 *
 * The owner of the handle and the sequences that will park in it have references.
 * Everything except the calls on handles runs on the engine thread. Invariant: counts[p]
 * is the number of parks whose tables name page p (parks_check). */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "engine/state.h"

#define ROW_BYTES (64 << 20) /* most bytes of logits that all parks keep */

/* ---- the handle ---- */

quire_err engine_park_open(engine *e, engine_park **out) {
    engine_park *p = mem_new(1, sizeof *p);
    *out = NULL;
    TRY(mem_check(p));
    p->tail = mem_new((size_t)e->layout.page_tokens, sizeof *p->tail);
    if (p->tail == NULL) {
        mem_free(p);
        return QUIRE_NO_MEMORY;
    }
    p->e = e;
    atomic_init(&p->holders, 1);
    *out = p;
    return QUIRE_OK;
}

engine_park *engine_park_hold(engine_park *p) {
    if (p != NULL) {
        atomic_fetch_add(&p->holders, 1);
    }
    return p;
}

void engine_park_drop(engine_park *p) {
    if (p != NULL && atomic_fetch_sub(&p->holders, 1) == 1) {
        kv_seq_deinit(&p->kv);
        mem_free(p->tail);
        mem_free(p->row);
        mem_free(p);
    }
}

const engine *engine_park_engine(const engine_park *p) {
    return p->e;
}

/* Pushes p to the stack of closed parks, with the owner's reference. */
void engine_park_close(engine_park *p) {
    if (p == NULL) {
        return;
    }
    engine *e = p->e;
    atomic_store(&p->is_closed, true);
    engine_park *top = atomic_load(&e->parks.closed);
    do {
        p->next_closed = top;
    } while (!atomic_compare_exchange_weak(&e->parks.closed, &top, p));
    wake_ring(e->in_wake);
}

engine_park_info engine_park_look(const engine_park *p) {
    return (engine_park_info){.n_tokens = atomic_load(&p->n_tokens),
                              .n_pages = atomic_load(&p->n_pages),
                              .n_parked = atomic_load(&p->n_parked),
                              .n_bounded = atomic_load(&p->n_bounded)};
}

/* ---- which pages are held ---- */

/* Adds one park to, or removes one from, the count of the page in entry i of p's table of
 * group g. */
static void park_count_page(engine_parks *all, const engine_park *p, int32_t g, int32_t i, int32_t by) {
    int32_t page = p->kv.tables[g].pages[i].v;
    if (page == PAGE_NONE.v) {
        return;
    }
    bool changes = all->counts[page] == (by > 0 ? 0 : 1), is_public = i < p->kv.path.n_public;
    all->counts[page] += by;
    all->n_pages += changes ? by : 0;
    all->tenants[p->tenant].n_pages += changes && !is_public ? by : 0;
}

static void park_count(engine *e, const engine_park *p, int32_t by) {
    for (int32_t g = 0; g < p->kv.n_tables; g++) {
        for (int32_t i = 0; i < p->kv.tables[g].n_pages; i++) {
            park_count_page(&e->parks, p, g, i, by);
        }
    }
}

/* Finds the tenant's entry or takes a free one; there is one entry more than parks. */
static int32_t find_tenant(engine_parks *all, uint64_t id) {
    int32_t found = -1;
    for (int32_t i = 0; i <= all->max; i++) {
        if (all->tenants[i].n_parks > 0 && all->tenants[i].id == id) {
            return i;
        }
        found = found < 0 && all->tenants[i].n_parks == 0 ? i : found;
    }
    all->tenants[found] = (park_tenant){.id = id};
    return found;
}

/* ---- emptying ---- */

static void park_unlink(engine_parks *all, engine_park *p) {
    *(p->older != NULL ? &p->older->younger : &all->oldest) = p->younger;
    *(p->younger != NULL ? &p->younger->older : &all->youngest) = p->older;
    p->older = p->younger = NULL;
    all->n--;
    all->tenants[p->tenant].n_parks--;
}

/* Frees the logits that p keeps. */
static void park_drop_row(engine_parks *all, engine_park *p) {
    all->n_rows -= p->row != NULL;
    mem_free(p->row);
    p->row = NULL;
}

static void park_empty(engine *e, engine_park *p) {
    if (p->kv.n_computed == 0) {
        return;
    }
    park_drop_row(&e->parks, p);
    park_count(e, p, -1);
    park_unlink(&e->parks, p);
    kv_seq_release(&e->kv, &p->kv, NULL, KV_DROP); /* the index already has the pages */
    kv_seq_close(&e->kv, &p->kv);
    kv_seq_deinit(&p->kv);
    atomic_store(&p->n_tokens, 0);
    atomic_store(&p->n_pages, 0);
}

/* Empties p, and counts that a limit did so or kept a sequence out of it. */
static void park_bounded(engine *e, engine_park *p) {
    park_empty(e, p);
    atomic_fetch_add(&p->n_bounded, 1);
    e->parks.n_bounded++;
}

/* The oldest park of a tenant that has one; tenant -1: of all tenants. */
static engine_park *oldest_of(const engine_parks *all, int32_t tenant) {
    engine_park *p = all->oldest;
    while (tenant >= 0 && p->tenant != tenant) {
        p = p->younger;
    }
    return p;
}

/* The tenant whose parks hold the most pages. */
static int32_t largest_tenant(const engine_parks *all) {
    int32_t largest = oldest_of(all, -1)->tenant;
    for (int32_t i = 0; i <= all->max; i++) {
        bool is_larger = all->tenants[i].n_pages > all->tenants[largest].n_pages;
        largest = all->tenants[i].n_parks > 0 && is_larger ? i : largest;
    }
    return largest;
}

bool parks_yield_oldest(engine *e) {
    assert(e != NULL);
    bool is_there = e->parks.oldest != NULL;
    if (is_there) {
        park_bounded(e, e->parks.oldest);
    }
    return is_there;
}

void parks_yield(engine *e, int64_t n_pages) {
    int64_t wanted = kv_cache_available(&e->kv) + n_pages;
    while (kv_cache_available(&e->kv) < wanted && parks_yield_oldest(e)) {
    }
}

/* Empties parks until the tenant's limit, then the total limit, hold. */
static void keep_bounds(engine *e, int32_t tenant) {
    engine_parks *all = &e->parks;
    while (all->tenants[tenant].n_pages > all->max_tenant_pages && all->tenants[tenant].n_parks > 0) {
        park_bounded(e, oldest_of(all, tenant));
    }
    while (all->n_pages > all->max_pages || all->n > all->max) {
        park_bounded(e, oldest_of(all, largest_tenant(all)));
    }
}

void parks_collect_closed(engine *e) {
    engine_park *p = atomic_exchange(&e->parks.closed, NULL);
    while (p != NULL) {
        engine_park *next = p->next_closed;
        park_empty(e, p);
        engine_park_drop(p);
        p = next;
    }
}

/* ---- taking ---- */

/* Keeps the logits after s's last token, if p holds all of its tokens. If too many parks
 * keep logits, the oldest drops its own. */
static void park_keep_row(engine_parks *all, engine_park *p, sequence *s) {
    if (!s->has_last_row || p->kv.n_computed != s->task.n_known || all->max_rows == 0) {
        return;
    }
    for (engine_park *old = all->oldest; all->n_rows >= all->max_rows; old = old->younger) {
        park_drop_row(all, old);
    }
    p->row = s->last_row;
    s->last_row = NULL;
    all->n_rows++;
}

/* Adds p, which has taken s's pages, to the counts and the list of parks. */
static void park_enter(engine *e, engine_park *p, sequence *s) {
    engine_parks *all = &e->parks;
    const uint8_t *end = s->n_namespace > 0 ? memchr(s->namespace, 0, s->n_namespace) : NULL;
    p->n_owner = end != NULL ? (size_t)(end - s->namespace) : s->n_namespace;
    mem_copy(p->owner, s->namespace, p->n_owner);
    p->number = s->task.arrival;
    p->n_tail = p->kv.n_computed % e->layout.page_tokens;
    mem_copy(p->tail, s->task.tokens + p->kv.n_computed - p->n_tail, (size_t)p->n_tail * sizeof *p->tail);
    p->tenant = find_tenant(all, str_hash(STR_HASH_START, (str){(const char *)p->owner, p->n_owner}));
    all->tenants[p->tenant].n_parks++;
    all->n++;
    p->older = all->youngest;
    *(p->older != NULL ? &p->older->younger : &all->oldest) = p;
    all->youngest = p;
    park_count(e, p, 1);
    park_keep_row(all, p, s);
    atomic_store(&p->n_tokens, p->kv.n_computed);
    atomic_store(&p->n_pages, kv_seq_pages(&p->kv));
    atomic_fetch_add(&p->n_parked, 1);
    all->n_parked++;
}

bool parks_take(engine *e, sequence *s) {
    assert(s != NULL);
    engine_park *p = s->park;
    if (p == NULL || atomic_load(&p->is_closed) || s->task.kv.n_computed == 0 || !s->task.kv.has_path) {
        return false;
    }
    if (kv_seq_park(&e->kv, &s->task.kv, s->task.tokens) != QUIRE_OK || s->task.kv.n_computed == 0) {
        return false;
    }
    int64_t n_pages = kv_seq_pages(&s->task.kv);
    if (n_pages > e->parks.max_pages || n_pages > e->parks.max_tenant_pages || e->parks.max == 0) {
        park_bounded(e, p);
        return false;
    }
    park_empty(e, p);
    p->kv = s->task.kv;
    s->task.kv = (kv_seq){0};
    park_enter(e, p, s);
    keep_bounds(e, p->tenant);
    return true;
}

void parks_follow(engine *e) {
    engine_parks *all = &e->parks;
    if (all->oldest == NULL) {
        return;
    }
    int64_t n = kv_index_count(e->kv.index).tails_replaced;
    for (engine_park *p = all->oldest; p != NULL && n > all->tails_seen; p = p->younger) {
        int32_t last = p->kv.path.n_pages;
        if (p->n_tail > 0) {
            for (int32_t g = 0; g < e->kv.n_token_groups; g++) {
                park_count_page(all, p, g, last, -1);
            }
            kv_index_follow_tail(e->kv.index, &p->kv.path, p->tail, p->n_tail, p->kv.tables);
            for (int32_t g = 0; g < e->kv.n_token_groups; g++) {
                park_count_page(all, p, g, last, 1);
            }
        }
    }
    all->tails_seen = n;
}

const float *parks_find_row(const engine *e, const sequence *s) {
    assert(e != NULL && s != NULL);
    int32_t n = s->task.n_known, n_tail = n % e->layout.page_tokens;
    const kv_path *path = &s->task.kv.path;
    const engine_park *p = s->task.kv.n_computed == n ? e->parks.oldest : NULL;
    /* paths that end at the same entry have the same tokens up to there */
    while (p != NULL &&
           (p->row == NULL || p->kv.n_computed != n || p->kv.path.namespace != path->namespace ||
            p->kv.path.n_public != path->n_public || p->kv.path.entry != path->entry ||
            memcmp(p->tail, s->task.tokens + n - n_tail, (size_t)n_tail * sizeof *p->tail) != 0)) {
        p = p->younger;
    }
    return p != NULL ? p->row : NULL;
}

/* ---- open, close, check ---- */

quire_err parks_open(engine *e) {
    assert(e != NULL);
    engine_parks *all = &e->parks;
    int64_t half = e->options.n_pages / 2, n = e->options.parked_bytes / e->layout.page_bytes;
    int32_t max_snapshots = e->kv.index != NULL ? kv_index_count(e->kv.index).max_snapshots : 0;
    all->max_pages = e->options.parked_bytes > 0 ? n : half;
    n = e->options.parked_tenant_bytes / e->layout.page_bytes;
    all->max_tenant_pages = e->options.parked_tenant_bytes > 0 && n < all->max_pages ? n : all->max_pages;
    all->max = e->options.max_requests;
    if (e->kv.n_state_pages > 0 && all->max > max_snapshots / 2) {
        all->max = max_snapshots / 2; /* the other half is for running sequences */
    }
    all->max_rows = ROW_BYTES / (e->desc->n_vocab * (int32_t)sizeof(float));
    all->counts = mem_new((size_t)e->options.n_pages, sizeof *all->counts);
    all->tenants = mem_new((size_t)all->max + 1, sizeof *all->tenants);
    return all->counts != NULL && all->tenants != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void parks_close(engine *e) {
    assert(e != NULL);
    if (e->parks.counts != NULL && e->parks.tenants != NULL) {
        parks_collect_closed(e);
        while (e->parks.oldest != NULL) {
            park_empty(e, e->parks.oldest);
        }
    }
    mem_free(e->parks.counts);
    mem_free(e->parks.tenants);
}

quire_err parks_check(const engine *e, quire_error *err) {
    const engine_parks *all = &e->parks;
    int64_t n_named = 0, n_counted = 0, n_pages = 0, n_parks = 0, n_of_tenants = 0, n_rows = 0;
    for (const engine_park *p = all->oldest; p != NULL; p = p->younger, n_parks++) {
        n_rows += p->row != NULL;
        TRY(kv_seq_check(&e->kv, &p->kv, err));
        for (int32_t g = 0; g < p->kv.n_tables; g++) {
            for (int32_t i = 0; i < p->kv.tables[g].n_pages; i++) {
                n_named += p->kv.tables[g].pages[i].v != PAGE_NONE.v;
            }
        }
    }
    for (int32_t i = 0; i < e->options.n_pages; i++) {
        n_counted += all->counts[i];
        n_pages += all->counts[i] > 0;
    }
    for (int32_t i = 0; i <= all->max; i++) {
        n_of_tenants += all->tenants[i].n_pages;
    }
    return n_named == n_counted && n_pages == all->n_pages && n_parks == all->n && n_of_tenants <= n_pages &&
                   n_rows == all->n_rows && n_rows <= all->max_rows
               ? QUIRE_OK
               : err_set(err, QUIRE_INTERNAL, -1,
                         "parks name %lld pages and count %lld; %lld are held of %lld, %lld by tenants, in "
                         "%lld parks of %d",
                         (long long)n_named, (long long)n_counted, (long long)n_pages,
                         (long long)all->n_pages, (long long)n_of_tenants, (long long)n_parks, (int)all->n);
}
