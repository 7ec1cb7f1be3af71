#include "kv/index.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/index_impl.h"
#include "kv/namespace.h"

/* Returns the capacity in entries of an index over n_pages pages. */
static int32_t entries_for(const kv_index_options *o, int32_t n_pages) {
    if (o->max_entries > 0) {
        return o->max_entries;
    }
    for (int32_t g = 0; g < o->n_groups; g++) {
        if (o->windows[g] == 0) {
            return n_pages; /* a full group needs a page for every entry */
        }
    }
    /* in a window group the pages of the last window keep a whole chain of entries */
    return n_pages < INT32_MAX / 16 ? 16 * n_pages : INT32_MAX / 2;
}

static quire_err open_eviction(kv_index *ix) {
    bool full[KV_MAX_GROUPS] = {false};
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        full[g] = ix->o.windows[g] == 0;
    }
    return kv_evict_open(ix->pool, &ix->tree, ix->o.policy, full, ix->snapshots.shape.cap, &ix->evict);
}

static quire_err index_open_parts(kv_index *ix) {
    const kv_index_options *o = &ix->o;
    int32_t max_entries = entries_for(o, kv_pool_counts(ix->pool).n_pages);
    TRY(kv_tree_open(&ix->tree, o->page_tokens, o->n_groups, max_entries, o->max_namespaces));
    ix->tree.random = o->seed != 0 ? o->seed : rng_os_seed();
    TRY(kv_namespaces_open(&ix->namespaces, o->max_namespaces));
    ix->hashes = mem_new_huge((size_t)max_entries, sizeof *ix->hashes);
    TRY(mem_check(ix->hashes));
    TRY(kv_index_open_snapshots(ix));
    return open_eviction(ix);
}

static void index_free_parts(kv_index *ix) {
    kv_tree_close(&ix->tree);
    kv_namespaces_close(&ix->namespaces);
    kv_publics_close(&ix->publics);
    kv_snapshots_close(&ix->snapshots);
    mem_free(ix->hashes);
    mem_free(ix);
}

quire_err kv_index_open(kv_pool *pool, const kv_index_options *o, kv_index **out) {
    assert(o != NULL);
    if (o->page_tokens < 1 || o->n_groups < 0 || o->n_groups + o->n_state_groups < 1 ||
        o->n_groups > KV_MAX_GROUPS || o->max_namespaces < 1 || o->max_entries < 0 || o->n_state_groups < 0 ||
        o->n_state_groups > KV_MAX_GROUPS - o->n_groups || o->max_snapshots < 0 || o->hash_bits < 0 ||
        o->hash_bits > 64 || o->policy < KV_EVICT_LRU || o->policy > KV_EVICT_CALLER ||
        (o->granularity != KV_GRANULARITY_TOKEN && o->granularity != KV_GRANULARITY_PAGE)) {
        return QUIRE_INVALID;
    }
    kv_index *ix = mem_new(1, sizeof *ix);
    TRY(mem_check(ix));
    ix->pool = pool;
    ix->o = *o;
    ix->hash_mask = o->hash_bits == 0 || o->hash_bits == 64 ? UINT64_MAX : ((uint64_t)1 << o->hash_bits) - 1;
    quire_err e = index_open_parts(ix);
    if (e != QUIRE_OK) {
        index_free_parts(ix);
        return e;
    }
    *out = ix;
    return QUIRE_OK;
}

void kv_index_set_watch(kv_index *ix, const kv_index_watch *watch) {
    ix->watch = watch;
}

int32_t kv_index_cap_entries(const kv_index *ix) {
    return ix->tree.cap_entries;
}

void kv_index_close(kv_index *ix) {
    if (ix == NULL) {
        return;
    }
    kv_evict_close(ix->evict);
    for (page_id page = kv_pool_oldest(ix->pool); page.v != PAGE_NONE.v; page = kv_pool_oldest(ix->pool)) {
        kv_pool_unindex(ix->pool, page);
    }
    kv_counts c = kv_pool_counts(ix->pool);
    for (int32_t page = 0; c.n_held > 0 && page < c.n_pages; page++) {
        if (kv_pool_entry(ix->pool, (page_id){page}) >= 0) {
            kv_pool_unindex(ix->pool, (page_id){page});
        }
    }
    if (ix->o.events != NULL) {
        kv_events_cleared(ix->o.events);
    }
    index_free_parts(ix);
}

kv_index_counts kv_index_count(const kv_index *ix) {
    const kv_snapshots *s = &ix->snapshots;
    return (kv_index_counts){.n_entries = ix->tree.n_entries,
                             .n_nodes = ix->tree.n_nodes,
                             .n_namespaces = ix->namespaces.n,
                             .n_snapshots = s->n,
                             .max_snapshots = s->shape.cap,
                             .snapshots_taken = s->n_taken,
                             .snapshots_dropped = s->n_dropped,
                             .snapshots_restored = s->n_restored,
                             .tails_replaced = ix->n_tails_replaced};
}

int64_t kv_index_bytes(const kv_index *ix) {
    const kv_tree *t = &ix->tree;
    return (int64_t)sizeof *ix + kv_evict_bytes(ix->evict) + kv_snapshots_bytes(&ix->snapshots) +
           t->cap_entries * (t->entry_bytes + (int64_t)sizeof *ix->hashes) +
           t->cap_nodes * (int64_t)sizeof *t->nodes +
           ix->namespaces.cap * (int64_t)(sizeof *ix->namespaces.slots + sizeof *ix->namespaces.buckets);
}

/* ---- namespaces and paths ---- */

static kv_namespace *namespace_at(const kv_index *ix, int32_t namespace) {
    return &ix->namespaces.slots[namespace];
}

/* Removes a namespace if it has neither paths nor cached pages. */
static void drop_idle_namespace(kv_index *ix, int32_t namespace) {
    const kv_namespace *s = namespace_at(ix, namespace);
    if (s->n_paths == 0 && ix->tree.nodes[s->root].children == TREE_NONE) {
        if (ix->o.n_state_groups > 0) {
            kv_snapshots_drop_place(&ix->snapshots, ix->tree.cap_entries + namespace);
        }
        kv_tree_remove_root(&ix->tree, s->root);
        kv_namespaces_remove(&ix->namespaces, namespace);
    }
}

/* ---- pages of entries, and their events ---- */

uint64_t kv_index_hash_of(const kv_index *ix, int32_t e) {
    const kv_entry *entry = kv_tree_entry(&ix->tree, e);
    if (entry->n_tokens < ix->o.page_tokens) {
        return 0;
    }
    const kv_node *node = &ix->tree.nodes[entry->node], *parent_node = &ix->tree.nodes[node->parent];
    uint64_t parent = entry->up != TREE_NONE ? ix->hashes[entry->up] : 0;
    if (parent_node->parent == TREE_NONE && node->first == e) {
        const kv_namespace *s = namespace_at(ix, parent_node->last);
        parent = kv_hash_root(parent, s->name, s->n_name);
    }
    uint64_t h = kv_hash_page(parent, kv_tree_tokens(&ix->tree, e), entry->n_tokens) & ix->hash_mask;
    return h != 0 ? h : 1;
}

/* Adds a held page to entry e in group g. */
static void add_page(kv_index *ix, int32_t namespace, int32_t e, int32_t g, page_id page) {
    kv_pool_index(ix->pool, page, e);
    kv_tree_pages(&ix->tree, e)[g] = page.v;
    if (ix->o.events != NULL && ix->hashes[e] != 0) {
        const kv_namespace *s = namespace_at(ix, namespace);
        int32_t up = kv_tree_entry(&ix->tree, e)->up;
        kv_events_stored(ix->o.events, g, ix->hashes[e], up != TREE_NONE ? ix->hashes[up] : 0,
                         kv_tree_tokens(&ix->tree, e), s->name, s->n_name);
    }
}

void kv_index_remove_page(kv_index *ix, int32_t e, int32_t g) {
    int32_t *pages = kv_tree_pages(&ix->tree, e);
    if (ix->watch != NULL) {
        ix->watch->on_remove(ix->watch->context, e, g);
    }
    kv_pool_unindex(ix->pool, (page_id){pages[g]});
    pages[g] = TREE_NONE;
    if (ix->o.events != NULL && ix->hashes[e] != 0 && !ix->is_clearing) {
        kv_events_removed(ix->o.events, g, ix->hashes[e]);
    }
}

/* Removes from the tree an entry that no other follows. Its cached pages become free. */
static void index_drop_entry(kv_index *ix, int32_t e) {
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        if (kv_tree_pages(&ix->tree, e)[g] != TREE_NONE) {
            kv_index_remove_page(ix, e, g);
        }
    }
    if (ix->o.n_state_groups > 0) {
        kv_snapshots_drop_place(&ix->snapshots, e);
    }
    if (ix->watch != NULL) {
        ix->watch->on_drop(ix->watch->context, e);
    }
    int32_t up = kv_tree_entry(&ix->tree, e)->up;
    kv_tree_remove(&ix->tree, e);
    if (up != TREE_NONE) {
        kv_evict_leaf_changed(ix->evict, up);
    }
}

bool kv_index_is_useless(const kv_index *ix, int32_t e) {
    if (!kv_tree_is_last(&ix->tree, e) || kv_tree_entry(&ix->tree, e)->n_pins > 0) {
        return false;
    }
    const int32_t *pages = kv_tree_pages(&ix->tree, e);
    bool lacks = false;
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        lacks = lacks || pages[g] == TREE_NONE;
        if (pages[g] != TREE_NONE && kv_pool_count(ix->pool, (page_id){pages[g]}) > 0) {
            return false;
        }
    }
    return lacks;
}

/* Whether e is the first entry of its namespace on its path. *parent: its node's. */
static bool is_start_of(const kv_index *ix, int32_t e, int32_t *parent) {
    const kv_node *node = &ix->tree.nodes[kv_tree_entry(&ix->tree, e)->node];
    *parent = node->parent;
    return ix->tree.nodes[*parent].parent == TREE_NONE && node->first == e;
}

/* Drops an entry that no other follows, and the namespace with its last entry. Returns
 * the entry before it. */
static int32_t index_cut(kv_index *ix, int32_t e) {
    int32_t up = kv_tree_entry(&ix->tree, e)->up, parent;
    bool is_start = is_start_of(ix, e, &parent);
    index_drop_entry(ix, e);
    if (ix->o.n_state_groups > 0) {
        kv_index_drop_bare_tails(ix, parent, is_start ? TREE_NONE : up);
    }
    if (ix->tree.nodes[parent].parent == TREE_NONE) {
        drop_idle_namespace(ix, ix->tree.nodes[parent].last);
    }
    return up;
}

void kv_index_prune(kv_index *ix, int32_t e) {
    while (e != TREE_NONE && kv_index_is_useless(ix, e)) {
        e = index_cut(ix, e);
    }
}

/* ---- trees of states alone: entries have no pages that would end with them ---- */

/* Whether a path ends at e, or there is a snapshot after its tokens or a part of them. */
static bool leads_to_state(const kv_index *ix, int32_t e) {
    const kv_snapshots *s = &ix->snapshots;
    const kv_entry *entry = kv_tree_entry(&ix->tree, e);
    int32_t parent;
    bool is_start = is_start_of(ix, e, &parent), leads = entry->n_pins > 0 || s->places[e] != SNAPSHOT_NONE;
    int32_t place = is_start ? ix->tree.cap_entries + ix->tree.nodes[parent].last : entry->up;
    for (int32_t i = s->places[place]; i != SNAPSHOT_NONE && !leads; i = s->list[i].next) {
        const int32_t n = s->list[i].n_tail;
        leads =
            n > 0 && n <= entry->n_tokens &&
            memcmp(kv_snapshots_tail(s, i), kv_tree_tokens(&ix->tree, e), (size_t)n * sizeof(int32_t)) == 0;
    }
    return leads;
}

bool kv_index_drop_stateless(kv_index *ix) {
    assert(ix != NULL);
    const int32_t n_before = ix->tree.n_entries;
    for (int32_t e = 0; e < ix->tree.made_entries; e++) {
        for (int32_t at = e; at != TREE_NONE && kv_tree_entry(&ix->tree, at)->n_tokens > 0 &&
                             kv_tree_is_last(&ix->tree, at) && !leads_to_state(ix, at);) {
            at = index_cut(ix, at);
        }
    }
    return ix->tree.n_entries < n_before;
}

/* Makes room for an entry: drops entries that lead to no state, or else the least
 * valuable snapshot. False: there is neither. */
static bool make_entry_room(kv_index *ix) {
    if (kv_index_drop_stateless(ix)) {
        return true;
    }
    if (ix->snapshots.n == 0) {
        return false;
    }
    kv_snapshots_drop(&ix->snapshots, kv_snapshots_least(&ix->snapshots));
    return true;
}

void kv_index_move_pin(kv_index *ix, kv_path *path, int32_t e) {
    int32_t before = path->entry;
    path->entry = e;
    if (e != TREE_NONE) {
        kv_tree_entry(&ix->tree, e)->n_pins++;
    }
    if (before != TREE_NONE) {
        kv_tree_entry(&ix->tree, before)->n_pins--;
        kv_index_prune(ix, before);
    }
}

/* Adds a path to the namespace of that name and `behind`; creates it if needed. */
static quire_err index_enter_namespace(kv_index *ix, int32_t behind, const void *name, size_t n,
                                       int32_t *out) {
    if (n > KV_NAMESPACE_BYTES) {
        return QUIRE_INVALID;
    }
    int32_t namespace = kv_namespaces_find(&ix->namespaces, behind, name, n);
    if (namespace == NAMESPACE_NONE) {
        namespace = kv_namespaces_add(&ix->namespaces, behind, name, n);
        if (namespace == NAMESPACE_NONE && ix->o.n_groups == 0 && kv_index_drop_stateless(ix)) {
            namespace = kv_namespaces_add(&ix->namespaces, behind, name, n);
        }
        if (namespace == NAMESPACE_NONE) {
            return QUIRE_NO_ROOM;
        }
        namespace_at(ix, namespace)->root = kv_tree_add_root(&ix->tree, namespace);
    }
    namespace_at(ix, namespace)->n_paths++;
    *out = namespace;
    return QUIRE_OK;
}

static void index_leave_namespace(kv_index *ix, int32_t namespace) {
    namespace_at(ix, namespace)->n_paths--;
    drop_idle_namespace(ix, namespace);
}

quire_err kv_index_enter(kv_index *ix, const void *name, size_t n, kv_path *out) {
    int32_t namespace;
    TRY(index_enter_namespace(ix, NAMESPACE_PLAIN, name, n, &namespace));
    *out = (kv_path){.namespace = namespace, .entry = TREE_NONE, .public_namespace = NAMESPACE_NONE};
    return QUIRE_OK;
}

quire_err kv_index_add_public(kv_index *ix, const void *scope, size_t n_scope, const int32_t *tokens,
                              int32_t n) {
    return n_scope > KV_NAMESPACE_BYTES
               ? QUIRE_INVALID
               : kv_publics_add(&ix->publics, scope, n_scope, tokens, n, ix->o.page_tokens);
}

quire_err kv_index_enter_public(kv_index *ix, const void *scope, size_t n_scope, const void *name, size_t n,
                                const int32_t *tokens, int32_t n_tokens, kv_path *out) {
    int32_t number = kv_publics_find(&ix->publics, scope, n_scope, tokens, n_tokens);
    if (number == PUBLIC_NONE) {
        return kv_index_enter(ix, name, n, out);
    }
    int32_t namespace, public_namespace;
    TRY(index_enter_namespace(ix, NAMESPACE_PUBLIC, scope, n_scope, &public_namespace));
    quire_err e = index_enter_namespace(ix, number, name, n, &namespace);
    if (e != QUIRE_OK) {
        index_leave_namespace(ix, public_namespace);
        return e;
    }
    *out = (kv_path){.namespace = namespace,
                     .entry = TREE_NONE,
                     .public_namespace = public_namespace,
                     .n_public = ix->publics.list[number].n / ix->o.page_tokens};
    return QUIRE_OK;
}

kv_path kv_index_fork(kv_index *ix, const kv_path *path) {
    namespace_at(ix, path->namespace)->n_paths++;
    if (path->n_public > 0) {
        namespace_at(ix, path->public_namespace)->n_paths++;
    }
    if (path->entry != TREE_NONE) {
        kv_tree_entry(&ix->tree, path->entry)->n_pins++;
    }
    return *path;
}

void kv_index_leave(kv_index *ix, kv_path *path) {
    assert(path != NULL);
    kv_index_move_pin(ix, path, TREE_NONE);
    path->n_pages = 0;
    index_leave_namespace(ix, path->namespace);
    if (path->n_public > 0) {
        index_leave_namespace(ix, path->public_namespace);
    }
}

quire_err kv_index_retain(kv_index *ix, kv_path *path, const kv_retention *r) {
    if (!kv_retention_is_valid(r)) {
        return QUIRE_INVALID;
    }
    path->retains = true;
    path->retention = *r;
    int32_t e = path->entry;
    for (int32_t i = path->n_pages; i > path->n_public; i--, e = kv_tree_entry(&ix->tree, e)->up) {
        kv_evict_retain(ix->evict, e, r);
    }
    return QUIRE_OK;
}

void kv_index_truncate(kv_index *ix, kv_path *path, int32_t n_tokens) {
    int32_t e = path->entry;
    for (; path->n_pages > n_tokens / ix->o.page_tokens; path->n_pages--) {
        e = kv_tree_entry(&ix->tree, e)->up;
    }
    kv_index_move_pin(ix, path, e);
}

/* ---- matching ---- */

/* The result of a walk: a prefix of n_tokens. entry: its last whole page. source: the
 * entry with the tokens after that, if there are any. snapshot: the state after the
 * prefix, if there are state groups. */
typedef struct found {
    int32_t n_tokens, n_pages, entry, source, snapshot;
} found;

/* Index of the first page that a group needs to continue after n_tokens tokens. */
static int32_t first_needed(int32_t window, int32_t n_tokens, int32_t page_tokens) {
    int32_t first_token = window == 0 || n_tokens < window ? 0 : n_tokens - window + 1;
    return first_token / page_tokens;
}

/* Updates since[g], the number of entries in a row, up to e, with a page of group g. */
static void index_count_pages(const kv_index *ix, int32_t e, int32_t *since) {
    const int32_t *pages = kv_tree_pages(&ix->tree, e);
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        since[g] = pages[g] != TREE_NONE ? since[g] + 1 : 0;
    }
}

/* Whether every group can continue after n_tokens tokens in n_pages pages; since[] is
 * that of the last page. */
static bool can_continue(const kv_index *ix, int32_t n_tokens, int32_t n_pages, const int32_t *since) {
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        if (since[g] < n_pages - first_needed(ix->o.windows[g], n_tokens, ix->o.page_tokens)) {
            return false;
        }
    }
    return true;
}

int32_t kv_index_best(const kv_index *ix, const kv_path *path, int32_t i, int32_t e, const int32_t *tokens,
                      int32_t n, int32_t *n_shared) {
    int32_t root = namespace_at(ix, kv_index_namespace_of(path, i))->root;
    return kv_tree_best(&ix->tree, root, kv_index_before(path, i, e), tokens, n, n_shared);
}

/* Finds the longest prefix of tokens[0..n) from which every group can continue, state
 * groups only if with_states. */
static found index_walk(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n,
                        bool with_states) {
    const int32_t size = ix->o.page_tokens;
    int32_t since[KV_MAX_GROUPS] = {0};
    found best = {.entry = TREE_NONE, .source = TREE_NONE, .snapshot = SNAPSHOT_NONE};
    n -= ix->o.granularity == KV_GRANULARITY_PAGE ? n % size : 0;
    for (int32_t e = TREE_NONE, n_pages = 0;;) {
        int32_t at = n_pages * size, rest = n - at < size ? n - at : size, n_shared = 0;
        int32_t next =
            rest > 0 ? kv_index_best(ix, path, n_pages, e, tokens + at, rest, &n_shared) : TREE_NONE;
        if (next == TREE_NONE) {
            return best;
        }
        index_count_pages(ix, next, since);
        bool whole = n_shared == size;
        if (!whole && ix->o.granularity == KV_GRANULARITY_PAGE) {
            return best;
        }
        int32_t snapshot = SNAPSHOT_NONE, n_end = n_shared;
        if (with_states) {
            n_end = kv_index_restorable(ix, path, n_pages, e, next, tokens + at, n_shared, &snapshot);
        }
        if (n_end > 0 && can_continue(ix, at + n_end, n_pages + 1, since)) {
            bool ends_page = n_end == size;
            best = (found){.n_tokens = at + n_end,
                           .n_pages = n_pages + ends_page,
                           .entry = ends_page ? next : e,
                           .source = ends_page ? TREE_NONE : next,
                           .snapshot = snapshot};
        }
        if (!whole) {
            return best;
        }
        e = next;
        n_pages++;
    }
}

int32_t kv_index_peek(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n) {
    return index_walk(ix, path, tokens, n, ix->o.n_state_groups > 0).n_tokens;
}

int32_t kv_index_peek_pages(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n) {
    return index_walk(ix, path, tokens, n, false).n_tokens;
}

int32_t kv_index_peek_held(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n,
                           kv_held *held) {
    found f = index_walk(ix, path, tokens, n, ix->o.n_state_groups > 0);
    *held = (kv_held){0};
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        int32_t first = first_needed(ix->o.windows[g], f.n_tokens, ix->o.page_tokens),
                n_group = first < f.n_pages ? first : f.n_pages;
        for (int32_t i = f.n_pages - 1, e = f.entry; i >= first; i--, e = kv_tree_entry(&ix->tree, e)->up) {
            n_group += kv_pool_count(ix->pool, (page_id){kv_tree_pages(&ix->tree, e)[g]}) > 0;
        }
        held->n_entries += n_group;
        held->n_full += ix->o.windows[g] == 0 ? n_group : 0;
    }
    return f.n_tokens;
}

/* Fills an empty table with group g's pages of the found prefix, and holes before the
 * first page it needs. */
static void share_group(const kv_index *ix, const found *f, int32_t g, kv_table *t) {
    int32_t first = first_needed(ix->o.windows[g], f->n_tokens, ix->o.page_tokens);
    t->n_tokens = f->n_tokens;
    t->n_pages = f->n_pages + (f->source != TREE_NONE);
    int32_t e = f->source != TREE_NONE ? f->source : f->entry;
    for (int32_t i = t->n_pages - 1; i >= first; i--, e = kv_tree_entry(&ix->tree, e)->up) {
        t->pages[i].v = kv_tree_pages(&ix->tree, e)[g];
    }
    for (int32_t i = 0; i < first; i++) {
        t->pages[i] = PAGE_NONE;
    }
    for (int32_t i = first; i < t->n_pages; i++) {
        kv_pool_share(ix->pool, t->pages[i]);
    }
}

/* Records that path's request uses page i, entry e. Its retention does not apply to
 * public pages. */
static void use_entry(kv_index *ix, const kv_path *path, int32_t e, int32_t i) {
    kv_evict_used(ix->evict, e);
    if (path->retains && i >= path->n_public) {
        kv_evict_retain(ix->evict, e, &path->retention);
    }
}

static quire_err index_match(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                             bool with_states, int32_t *n_matched) {
    assert(path->n_pages == 0);
    found f = index_walk(ix, path, tokens, n, with_states);
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        assert(tables[g].n_pages == 0);
        TRY(kv_table_reserve(&tables[g], f.n_pages + 1));
    }
    kv_table *states = tables + ix->o.n_groups;
    for (int32_t g = 0; with_states && g < ix->o.n_state_groups; g++) {
        TRY(kv_table_reserve(&states[g], ix->o.state_pages[g]));
    }
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        share_group(ix, &f, g, &tables[g]);
    }
    int32_t i = f.source != TREE_NONE ? f.n_pages : f.n_pages - 1;
    if (f.snapshot != SNAPSHOT_NONE) {
        kv_snapshots_restore(&ix->snapshots, f.snapshot, f.n_tokens, states);
        use_entry(ix, path, ix->tree.cap_entries + f.snapshot, i);
    }
    for (int32_t e = f.source != TREE_NONE ? f.source : f.entry; e != TREE_NONE;
         e = kv_tree_entry(&ix->tree, e)->up) {
        use_entry(ix, path, e, i--);
    }
    kv_index_move_pin(ix, path, f.entry);
    path->n_pages = f.n_pages;
    *n_matched = f.n_tokens;
    return QUIRE_OK;
}

quire_err kv_index_match(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                         int32_t *n_matched) {
    return index_match(ix, path, tokens, n, tables, ix->o.n_state_groups > 0, n_matched);
}

quire_err kv_index_match_pages(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n,
                               kv_table *tables, int32_t *n_matched) {
    return index_match(ix, path, tokens, n, tables, false, n_matched);
}

/* ---- publishing ---- */

/* Dedup: the sequence's page i and entry e hold the same tokens after the same prefix, so
 * keeps one page for each group. */
static void dedup(kv_index *ix, int32_t namespace, int32_t e, kv_table *tables, int32_t i) {
    const int32_t *pages = kv_tree_pages(&ix->tree, e);
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        page_id *own = &tables[g].pages[i], indexed = {pages[g]};
        if (own->v == PAGE_NONE.v || own->v == indexed.v || kv_pool_entry(ix->pool, *own) >= 0) {
            continue;
        }
        if (indexed.v == TREE_NONE) {
            add_page(ix, namespace, e, g, *own);
        } else {
            kv_pool_share(ix->pool, indexed);
            kv_pool_release(ix->pool, *own);
            *own = indexed;
        }
    }
}

/* Publishes the sequence's next page after path, of n tokens. Replaces a part-filled
 * entry that is a prefix of it. Adds nothing if the page is a prefix of an entry. */
static quire_err publish_page(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                              int32_t i) {
    int32_t n_shared, namespace = kv_index_namespace_of(path, i), root = namespace_at(ix, namespace)->root,
                      after = kv_index_before(path, i, path->entry);
    int32_t e = kv_tree_best(&ix->tree, root, after, tokens, n, &n_shared);
    bool is_new = n_shared < n;
    if (is_new) {
        if (e != TREE_NONE && n_shared == kv_tree_entry(&ix->tree, e)->n_tokens) {
            index_drop_entry(ix, e);
            ix->n_tails_replaced++;
        }
        e = kv_tree_insert(&ix->tree, root, after, path->entry, tokens, n);
        while (e == TREE_NONE && ix->o.n_groups == 0 && make_entry_room(ix)) {
            e = kv_tree_insert(&ix->tree, root, after, path->entry, tokens, n);
        }
        if (e == TREE_NONE) {
            return QUIRE_NO_ROOM;
        }
        ix->hashes[e] = kv_index_hash_of(ix, e);
        kv_evict_inserted(ix->evict, e, i, namespace, ix->hashes[e]);
        if (path->entry != TREE_NONE) {
            kv_evict_leaf_changed(ix->evict, path->entry);
        }
    }
    if (is_new || n == ix->o.page_tokens) {
        use_entry(ix, path, e, i);
        dedup(ix, namespace, e, tables, i);
    }
    if (n == ix->o.page_tokens) {
        kv_index_move_pin(ix, path, e);
        path->n_pages++;
    }
    return QUIRE_OK;
}

/* Whether path may publish its next page. A public namespace takes only whole pages of
 * its prefixes, even if a sequence was truncated and has other tokens there. */
static bool may_publish(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n) {
    if (path->n_pages >= path->n_public) {
        return true;
    }
    const kv_public *p = &ix->publics.list[namespace_at(ix, path->namespace)->behind];
    const int32_t *own = p->tokens + path->n_pages * ix->o.page_tokens;
    return n == ix->o.page_tokens && memcmp(own, tokens, (size_t)n * sizeof *tokens) == 0;
}

quire_err kv_index_publish(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables,
                           kv_publish_what what) {
    const int32_t size = ix->o.page_tokens;
    while (path->n_pages < n / size && may_publish(ix, path, tokens + path->n_pages * size, size)) {
        int32_t i = path->n_pages;
        TRY(publish_page(ix, path, tokens + i * size, size, tables, i));
    }
    bool has_tail = what == KV_PUBLISH_TAIL && ix->o.granularity == KV_GRANULARITY_TOKEN;
    if (has_tail && path->n_pages == n / size && n % size != 0 &&
        may_publish(ix, path, tokens + n - n % size, n % size)) {
        TRY(publish_page(ix, path, tokens + n - n % size, n % size, tables, n / size));
    }
    return QUIRE_OK;
}

bool kv_index_take_over_tail(kv_index *ix, const kv_table *tables, int32_t n) {
    int32_t i = n / ix->o.page_tokens;
    bool changed = false;
    for (int32_t g = 0; g < ix->o.n_groups && n % ix->o.page_tokens != 0; g++) {
        page_id page = tables[g].pages[i];
        int32_t e =
            page.v != PAGE_NONE.v && kv_pool_count(ix->pool, page) == 1 ? kv_pool_entry(ix->pool, page) : -1;
        if (e >= 0 && e < ix->tree.cap_entries && kv_tree_is_last(&ix->tree, e) &&
            kv_tree_entry(&ix->tree, e)->n_pins == 0) {
            kv_index_remove_page(ix, e, g);
            kv_index_prune(ix, e);
            changed = true;
        }
    }
    return changed;
}

void kv_index_follow_tail(kv_index *ix, const kv_path *path, const int32_t *tail, int32_t n_tail,
                          kv_table *tables) {
    int32_t i = path->n_pages, n_shared, e = kv_index_best(ix, path, i, path->entry, tail, n_tail, &n_shared);
    for (int32_t g = 0; n_shared == n_tail && g < ix->o.n_groups; g++) {
        page_id *own = &tables[g].pages[i], page = {kv_tree_pages(&ix->tree, e)[g]};
        if (page.v != TREE_NONE && own->v != PAGE_NONE.v && own->v != page.v &&
            kv_pool_entry(ix->pool, *own) < 0) {
            kv_pool_share(ix->pool, page);
            kv_pool_release(ix->pool, *own);
            *own = page;
        }
    }
}
