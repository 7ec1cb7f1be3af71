#include "kv/kv_cache.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

kv_cache_options kv_cache_options_of(const kv_layout *l, int32_t n_pages) {
    kv_cache_options o = {.n_pages = n_pages, .page_tokens = l->page_tokens, .n_groups = l->n_groups};
    for (int32_t g = 0; g < l->n_groups; g++) {
        o.windows[g] = l->groups[g].kind == LAYER_WINDOW ? l->groups[g].window : 0;
        o.state_pages[g] = l->groups[g].kind == LAYER_STATE ? l->groups[g].state_pages : 0;
    }
    return o;
}

static int32_t layout_state_pages(const kv_layout *l) {
    int32_t n = 0;
    for (int32_t g = 0; g < l->n_groups; g++) {
        n += l->groups[g].kind == LAYER_STATE ? l->groups[g].state_pages : 0;
    }
    return n;
}

int64_t kv_snapshot_bytes(const kv_layout *l) {
    return layout_state_pages(l) * l->page_bytes;
}

int32_t kv_most_snapshots(const kv_layout *l, int32_t n_pages, int64_t bytes) {
    int32_t one = layout_state_pages(l), n_all = one > 0 ? n_pages / one : 0, n_half = n_all / 2;
    int64_t n_given = one > 0 ? bytes / kv_snapshot_bytes(l) : 0;
    if (bytes > 0 || n_all == 0) {
        return n_given < n_all ? (int32_t)n_given : n_all;
    }
    bool is_alone = l->groups[0].kind == LAYER_STATE;
    return is_alone ? n_all : n_half > 0 ? n_half : 1;
}

/* Converts the options to those of the index: groups of tokens, then state groups. */
static kv_index_options index_options(const kv_cache_options *o) {
    kv_index_options io = {.page_tokens = o->page_tokens,
                           .max_namespaces = o->max_namespaces,
                           .max_snapshots = o->max_snapshots,
                           .seed = o->seed,
                           .granularity = o->granularity,
                           .policy = o->policy};
    while (io.n_groups < o->n_groups && o->state_pages[io.n_groups] == 0) {
        io.windows[io.n_groups] = o->windows[io.n_groups];
        io.n_groups++;
    }
    io.n_state_groups = o->n_groups - io.n_groups;
    memcpy(io.state_pages, o->state_pages + io.n_groups, (size_t)io.n_state_groups * sizeof *io.state_pages);
    return io;
}

/* Copies the groups. QUIRE_INVALID: a group of tokens comes after a state group, or a
 * state group has a window or more pages than the pool. */
static quire_err take_groups(kv_cache *c, const kv_cache_options *o) {
    int64_t n_state_pages = 0;
    c->page_tokens = o->page_tokens;
    c->n_groups = o->n_groups;
    for (int32_t g = 0; g < o->n_groups; g++) {
        bool is_state = o->state_pages[g] > 0;
        if (o->windows[g] < 0 || o->state_pages[g] < 0 ||
            (is_state ? o->windows[g] > 0 : c->n_token_groups < g)) {
            return QUIRE_INVALID;
        }
        c->n_token_groups += !is_state;
        n_state_pages += o->state_pages[g];
    }
    if (n_state_pages > o->n_pages) {
        return QUIRE_INVALID;
    }
    c->n_state_pages = (int32_t)n_state_pages;
    c->snapshot_tokens = o->snapshot_tokens;
    memcpy(c->windows, o->windows, sizeof c->windows);
    memcpy(c->state_pages, o->state_pages, sizeof c->state_pages);
    return QUIRE_OK;
}

static quire_err kv_cache_open_parts(const kv_cache_options *o, kv_cache *c) {
    TRY(take_groups(c, o));
    c->n_pages = o->n_pages;
    c->budget = o->budget;
    c->member = -1;
    c->mover = o->mover;
    bool is_plain = c->n_groups == 1 && c->n_token_groups == 1; /* plain: no scratch for kv_seq_reserve */
    c->ids = o->n_pages > 0 && !is_plain ? mem_new((size_t)o->n_pages, sizeof *c->ids) : NULL;
    if (o->n_pages > 0 && !is_plain && c->ids == NULL) {
        return QUIRE_NO_MEMORY;
    }
    if (c->n_state_pages > 0) {
        kv_state_copies *s = &c->state_copies;
        s->cap = o->n_pages / c->n_state_pages;
        s->list = mem_new((size_t)s->cap, sizeof *s->list);
        s->pages = mem_new((size_t)s->cap, (size_t)c->n_state_pages * sizeof *s->pages);
        if (s->list == NULL || s->pages == NULL) {
            return QUIRE_NO_MEMORY;
        }
    }
    TRY(o->budget != NULL ? kv_budget_open_pool(o->budget, o->n_pages, o->page_bytes, &c->pool)
                          : kv_pool_open(o->n_pages, &c->pool));
    if (!o->no_index) {
        kv_index_options io = index_options(o);
        if (o->n_events > 0) {
            TRY(kv_events_open(o->n_events, o->page_tokens, &c->events));
            io.events = c->events;
        }
        TRY(kv_index_open(c->pool, &io, &c->index));
    }
    c->as_member = (kv_budget_member){.pool = c->pool,
                                      .index = c->index,
                                      .mover = o->mover,
                                      .page_bytes = o->page_bytes,
                                      .floor_bytes = o->floor_pages * o->page_bytes,
                                      .fixed_bytes = o->fixed_bytes,
                                      .yield = o->yield,
                                      .context = o->yield_context};
    return QUIRE_OK;
}

quire_err kv_cache_open(const kv_cache_options *o, kv_cache *out) {
    *out = (kv_cache){0};
    quire_err e = kv_cache_open_parts(o, out);
    if (e != QUIRE_OK) {
        kv_cache_close(out);
    }
    return e;
}

static bool is_member(const kv_cache *c) {
    return c->budget != NULL && c->member >= 0;
}

quire_err kv_cache_join(kv_cache *c) {
    return c->budget != NULL ? kv_budget_join(c->budget, &c->as_member, &c->member) : QUIRE_OK;
}

void kv_cache_leave(kv_cache *c) {
    if (is_member(c)) {
        kv_budget_leave(c->budget, c->member);
        c->member = -1;
    }
}

quire_err kv_cache_add_swap(kv_cache *c, int64_t bytes) {
    return kv_swap_open(bytes, c->mover, &c->swap);
}

void kv_cache_close(kv_cache *c) {
    assert(c != NULL);
    kv_swap_close(&c->swap);
    kv_cache_leave(c);
    if (c->index != NULL) {
        kv_index_close(c->index);
    }
    kv_events_close(c->events);
    kv_pool_close(c->pool);
    mem_free(c->ids);
    mem_free(c->state_copies.list);
    mem_free(c->state_copies.pages);
    *c = (kv_cache){0};
}

int32_t kv_cache_available(const kv_cache *c) {
    if (is_member(c)) {
        return kv_budget_available(c->budget, c->member);
    }
    kv_counts n = kv_pool_counts(c->pool);
    return n.n_free + n.n_cached;
}

void kv_cache_make_free(kv_cache *c, int32_t n) {
    if (is_member(c)) {
        kv_budget_make_free(c->budget, c->member, n);
    } else if (c->index != NULL && kv_pool_counts(c->pool).n_free < n) {
        (void)kv_index_evict(c->index, n);
    }
}

typedef struct discarding {
    const kv_mover *mover;
    bool all_went;
} discarding;

static void discard_run(void *context, page_id first, int32_t n) {
    discarding *d = context;
    const kv_mover *m = d->mover;
    d->all_went = m != NULL && m->discard != NULL && m->discard(m->context, first, n) && d->all_went;
}

bool kv_cache_drop(kv_cache *c, int32_t *n_dropped) {
    discarding d = {.mover = c->mover, .all_went = true};
    *n_dropped = kv_pool_counts(c->pool).n_free;
    if (c->index != NULL) {
        kv_index_clear(c->index);
    }
    *n_dropped = kv_pool_counts(c->pool).n_free - *n_dropped;
    bool all_went = !is_member(c) || kv_budget_give_back(c->budget, c->member);
    kv_pool_tidy(c->pool, discard_run, &d);
    return d.all_went && all_went;
}

void kv_cache_drop_tenant(kv_cache *c, const void *tenant, size_t n, int32_t *n_dropped) {
    assert(c != NULL);
    *n_dropped = kv_pool_counts(c->pool).n_free;
    if (c->index != NULL) {
        (void)kv_index_clear_tenant(c->index, tenant, n);
    }
    *n_dropped = kv_pool_counts(c->pool).n_free - *n_dropped;
}

void kv_cache_set_time(kv_cache *c, int64_t now_us) {
    assert(c != NULL);
    if (c->index != NULL) {
        kv_index_set_time(c->index, now_us);
    }
}
