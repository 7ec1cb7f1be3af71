/* Eviction from the index: pages by the policy's order, or one page with all that follows
 * it. */
#include <assert.h>
#include <string.h>

#include "kv/index_impl.h"

/* Evicts one cached page, and nothing else but the snapshot that it is of. */
static void evict_alone(kv_index *ix, page_id page) {
    int32_t e = kv_pool_entry(ix->pool, page), g = 0;
    if (e >= ix->tree.cap_entries) {
        kv_snapshots_drop(&ix->snapshots, e - ix->tree.cap_entries);
        return;
    }
    while (kv_tree_pages(&ix->tree, e)[g] != page.v) {
        g++;
    }
    kv_index_remove_page(ix, e, g);
    kv_index_prune(ix, e);
}

/* An entry that follows e directly under another root, of which there is one. */
static int32_t index_hung(const kv_index *ix, int32_t e) {
    const kv_tree *t = &ix->tree;
    for (int32_t n = 0; n < t->made_nodes; n++) {
        const kv_node *root = &t->nodes[n];
        bool is_root = root->priority != 0 && root->parent == TREE_NONE && root->children != TREE_NONE;
        if (is_root && kv_tree_entry(t, t->nodes[root->children].first)->up == e) {
            return t->nodes[root->children].first;
        }
    }
    return TREE_NONE;
}

/* The end of a branch that follows e; e where nothing does. */
static int32_t index_branch_end(const kv_index *ix, int32_t e) {
    const kv_tree *t = &ix->tree;
    while (!kv_tree_is_last(t, e)) {
        const kv_node *node = &t->nodes[kv_tree_entry(t, e)->node];
        e = kv_tree_entry(t, e)->next != TREE_NONE ? node->last
            : node->children != TREE_NONE          ? t->nodes[node->children].first
                                                   : index_hung(ix, e);
    }
    return e;
}

/* Evicts what follows the page of entry e, as far as no sequence holds it and no path
 * stands there. With its last follower e may go too, where it lacks pages. */
static void evict_after(kv_index *ix, int32_t e, page_id page) {
    int32_t end = index_branch_end(ix, e), n_before = ix->tree.n_entries + 1;
    while (end != e && ix->tree.n_entries < n_before) {
        const int32_t *pages = kv_tree_pages(&ix->tree, end);
        n_before = ix->tree.n_entries;
        for (int32_t g = 0; g < ix->o.n_groups; g++) {
            if (pages[g] != TREE_NONE && kv_pool_count(ix->pool, (page_id){pages[g]}) == 0) {
                kv_index_remove_page(ix, end, g);
            }
        }
        kv_index_prune(ix, end);
        end = kv_pool_entry(ix->pool, page) == e ? index_branch_end(ix, e) : e;
    }
}

void kv_index_evict_page(kv_index *ix, page_id page) {
    int32_t e = kv_pool_entry(ix->pool, page), g = 0;
    assert(e >= 0 && kv_pool_count(ix->pool, page) == 0);
    while (e < ix->tree.cap_entries && kv_tree_pages(&ix->tree, e)[g] != page.v) {
        g++;
    }
    if (e < ix->tree.cap_entries && ix->o.windows[g] == 0) {
        evict_after(ix, e, page);
    }
    if (kv_pool_entry(ix->pool, page) >= 0) {
        evict_alone(ix, page);
    }
}

quire_err kv_index_evict(kv_index *ix, int32_t n) {
    while (kv_pool_counts(ix->pool).n_free < n) {
        page_id page = kv_evict_next(ix->evict);
        if (page.v == PAGE_NONE.v) {
            return QUIRE_NO_ROOM;
        }
        evict_alone(ix, page);
    }
    return QUIRE_OK;
}

page_id kv_index_victim(const kv_index *ix) {
    return kv_evict_peek(ix->evict);
}

int32_t kv_index_level(const kv_index *ix, page_id page) {
    return kv_evict_level(ix->evict, page);
}

bool kv_index_has_levels(const kv_index *ix) {
    return kv_evict_has_levels(ix->evict);
}

void kv_index_set_time(kv_index *ix, int64_t now_us) {
    kv_evict_set_time(ix->evict, now_us);
}

void kv_index_set_next_use(kv_index *ix, page_id page, double when) {
    kv_evict_set_next_use(ix->evict, page, when);
}

void kv_index_clear(kv_index *ix) {
    kv_counts c = kv_pool_counts(ix->pool);
    ix->is_clearing = c.n_held == 0;
    (void)kv_index_evict(ix, c.n_free + c.n_cached);
    if (ix->o.n_groups == 0) {
        (void)kv_index_drop_stateless(ix);
    }
    if (ix->is_clearing && ix->o.events != NULL) {
        kv_events_cleared(ix->o.events);
    }
    ix->is_clearing = false;
}

/* The namespace that a cached page is indexed in; of a snapshot's page that of its
 * place. */
static int32_t index_page_namespace(const kv_index *ix, int32_t e) {
    if (e >= ix->tree.cap_entries) {
        e = ix->snapshots.list[e - ix->tree.cap_entries].place;
    }
    return e >= ix->tree.cap_entries ? e - ix->tree.cap_entries : kv_index_describe(ix, e).namespace;
}

static bool index_is_tenants(const kv_namespace *s, const void *tenant, size_t n) {
    return s->behind != NAMESPACE_PUBLIC && s->n_name >= n && memcmp(s->name, tenant, n) == 0 &&
           (s->n_name == n || s->name[n] == 0);
}

/* Whether a tenant has namespaces: O(namespaces). */
static bool index_has_tenant(const kv_index *ix, const void *tenant, size_t n) {
    const kv_namespaces *all = &ix->namespaces;
    bool has = false;
    for (int32_t b = 0; b < all->cap && !has; b++) {
        for (int32_t i = all->buckets[b]; i != NAMESPACE_NONE && !has; i = all->slots[i].next) {
            has = index_is_tenants(&all->slots[i], tenant, n);
        }
    }
    return has;
}

void kv_index_clear_tenant(kv_index *ix, const void *tenant, size_t n) {
    if (!index_has_tenant(ix, tenant, n)) {
        return;
    }
    for (int32_t i = 0; i < kv_pool_counts(ix->pool).n_pages; i++) {
        const page_id page = {i};
        const int32_t e = kv_pool_entry(ix->pool, page);
        if (e < 0 || kv_pool_count(ix->pool, page) > 0) {
            continue;
        }
        if (index_is_tenants(&ix->namespaces.slots[index_page_namespace(ix, e)], tenant, n)) {
            kv_index_evict_page(ix, page);
        }
    }
}
