/* Eviction from the index: pages in the policy's order, or one page with all that follow
 * it. */
#include <assert.h>
#include <string.h>

#include "kv/index_impl.h"

/* Evicts one cached page alone; of a snapshot, the whole snapshot. */
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

/* Returns an entry that follows e directly under another root; there must be one. */
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

/* Returns the last entry of a branch after e; e itself if no entry follows it. */
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

/* Removes the pages of entry e that no sequence holds. */
static void index_remove_unused(kv_index *ix, int32_t e) {
    const int32_t *pages = kv_tree_pages(&ix->tree, e);
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        if (pages[g] != TREE_NONE && kv_pool_count(ix->pool, (page_id){pages[g]}) == 0) {
            kv_index_remove_page(ix, e, g);
        }
    }
}

/* Evicts what follows the page of entry e, except pages that sequences hold and entries
 * with a path. With its last follower e may go too, if it lacks pages. */
static void evict_after(kv_index *ix, int32_t e, page_id page) {
    int32_t end = index_branch_end(ix, e), n_before = ix->tree.n_entries + 1;
    while (end != e && ix->tree.n_entries < n_before) {
        n_before = ix->tree.n_entries;
        index_remove_unused(ix, end);
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

static bool index_is_tenants(const kv_namespace *s, const void *tenant, size_t n) {
    return s->behind != NAMESPACE_PUBLIC && s->n_name >= n && memcmp(s->name, tenant, n) == 0 &&
           (s->n_name == n || s->name[n] == 0);
}

/* Drops the cached snapshots at a place. */
static void index_clear_states(kv_index *ix, int32_t place) {
    kv_snapshots *s = &ix->snapshots;
    for (int32_t i = ix->o.n_state_groups > 0 ? s->places[place] : SNAPSHOT_NONE, next; i != SNAPSHOT_NONE;
         i = next) {
        next = s->list[i].next;
        if (kv_pool_count(ix->pool, (page_id){kv_snapshots_pages(s, i)[0]}) == 0) {
            kv_snapshots_drop(s, i);
        }
    }
}

/* Evicts the cached pages of a namespace, each after those that follow it. walk: a path
 * that keeps its entry and the namespace alive. Returns the number of entries visited. */
static int32_t index_clear_namespace(kv_index *ix, kv_path *walk) {
    int32_t n = 0;
    kv_index_move_pin(ix, walk, kv_tree_last(&ix->tree, ix->namespaces.slots[walk->namespace].root));
    for (; walk->entry != TREE_NONE; n++) {
        const int32_t e = walk->entry;
        index_remove_unused(ix, e);
        index_clear_states(ix, e);
        kv_index_move_pin(ix, walk, kv_tree_previous(&ix->tree, e));
    }
    index_clear_states(ix, ix->tree.cap_entries + walk->namespace);
    return n;
}

int32_t kv_index_clear_tenant(kv_index *ix, const void *tenant, size_t n) {
    const kv_namespaces *all = &ix->namespaces;
    int32_t n_entries = 0;
    for (int32_t b = 0; b < all->cap; b++) {
        for (int32_t i = all->buckets[b], next; i != NAMESPACE_NONE; i = next) {
            const kv_path root = {.namespace = i, .entry = TREE_NONE, .public_namespace = NAMESPACE_NONE};
            const bool is_tenants = index_is_tenants(&all->slots[i], tenant, n);
            kv_path walk = is_tenants ? kv_index_fork(ix, &root) : root;
            n_entries += is_tenants ? index_clear_namespace(ix, &walk) : 0;
            /* read before the namespace is left: public namespaces before it may be
             * removed with it */
            next = all->slots[i].next;
            if (is_tenants) {
                kv_index_leave(ix, &walk);
            }
        }
    }
    return n_entries;
}
