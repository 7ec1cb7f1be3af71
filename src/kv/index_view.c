/* Read access to the index: its audit, and a walk over its entries. */
#include "base/mem.h"
#include "kv/index_impl.h"

/* ---- audit ---- */

/* Checks entry e: each page it names is indexed under it, and its hash is that of its
 * tokens. Adds the number of pages to *n_pages. */
static quire_err index_view_check_entry(const kv_index *ix, int32_t e, int32_t *n_pages, quire_error *err) {
    const int32_t *pages = kv_tree_pages(&ix->tree, e);
    int32_t n_before = *n_pages;
    for (int32_t g = 0; g < ix->o.n_groups; g++) {
        if (pages[g] == TREE_NONE) {
            continue;
        }
        if (kv_pool_entry(ix->pool, (page_id){pages[g]}) != e) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "kv index: entry %d names page %d, which is marked with entry %d", e, pages[g],
                           kv_pool_entry(ix->pool, (page_id){pages[g]}));
        }
        ++*n_pages;
    }
    if (ix->hashes[e] != kv_index_hash_of(ix, e)) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv index: the hash of entry %d is not that of its tokens",
                       e);
    }
    if (*n_pages == n_before && kv_index_is_useless(ix, e)) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv index: entry %d has no page, no path and nothing after it, and was not dropped",
                       e);
    }
    return QUIRE_OK;
}

quire_err kv_index_check(const kv_index *ix, quire_error *err) {
    TRY(kv_tree_check(&ix->tree, err));
    int32_t n_named = 0, n_marked = 0, n_pages = kv_pool_counts(ix->pool).n_pages;
    for (int32_t e = 0; e < ix->tree.made_entries; e++) {
        if (kv_tree_entry(&ix->tree, e)->n_tokens > 0) {
            TRY(index_view_check_entry(ix, e, &n_named, err));
        }
    }
    for (int32_t page = 0; page < n_pages; page++) {
        n_marked += kv_pool_entry(ix->pool, (page_id){page}) >= 0;
    }
    if (ix->o.n_state_groups > 0) {
        TRY(kv_index_check_snapshots(ix, &n_named, err));
    }
    if (n_named != n_marked) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv index: the tree names %d pages, %d are marked", n_named,
                       n_marked);
    }
    return kv_evict_check(ix->evict, err);
}

/* ---- a walk ---- */

/* Pushes the nodes of a treap so that the first in order is popped first. */
static void push_siblings(const kv_tree *t, int32_t n, int32_t *stack, int32_t *n_stack) {
    if (n != TREE_NONE) {
        push_siblings(t, t->nodes[n].right, stack, n_stack);
        stack[(*n_stack)++] = n;
        push_siblings(t, t->nodes[n].left, stack, n_stack);
    }
}

static kv_index_entry index_view_describe(const kv_index *ix, const kv_namespace *s, int32_t e) {
    const kv_entry *entry = kv_tree_entry(&ix->tree, e);
    int32_t parent = ix->tree.nodes[entry->node].parent;
    return (kv_index_entry){.namespace = (int32_t)(s - ix->namespaces.slots),
                            .name = s->name,
                            .n_name = s->n_name,
                            .node = entry->node,
                            .parent = ix->tree.nodes[parent].parent == TREE_NONE ? TREE_NONE : parent,
                            .entry = e,
                            .up = entry->up,
                            .n_tokens = entry->n_tokens,
                            .tokens = kv_tree_tokens(&ix->tree, e),
                            .pages = kv_tree_pages(&ix->tree, e),
                            .n_pins = entry->n_pins,
                            .hash = ix->hashes[e]};
}

kv_index_entry kv_index_describe(const kv_index *ix, int32_t e) {
    int32_t root = kv_tree_entry(&ix->tree, e)->node;
    while (ix->tree.nodes[root].parent != TREE_NONE) {
        root = ix->tree.nodes[root].parent;
    }
    return index_view_describe(ix, &ix->namespaces.slots[ix->tree.nodes[root].last], e);
}

kv_index_namespace kv_index_describe_namespace(const kv_index *ix, int32_t namespace) {
    const kv_namespace *s = &ix->namespaces.slots[namespace];
    return (kv_index_namespace){s->name, s->n_name, s->behind == NAMESPACE_PUBLIC};
}

/* Shows the entries of node n. */
static void visit_node(const kv_index *ix, const kv_namespace *s, int32_t n, kv_index_visit_fn *fn,
                       void *context) {
    for (int32_t e = ix->tree.nodes[n].first; e != TREE_NONE; e = kv_tree_entry(&ix->tree, e)->next) {
        kv_index_entry entry = index_view_describe(ix, s, e);
        fn(&entry, context);
    }
}

quire_err kv_index_visit(const kv_index *ix, kv_index_visit_fn *fn, void *context) {
    const kv_tree *t = &ix->tree;
    int32_t n_stack = 0, *stack = mem_new((size_t)t->n_nodes, sizeof *stack);
    TRY(mem_check(stack));
    for (int32_t root = 0; root < t->made_nodes; root++) {
        if (t->nodes[root].priority == 0 || t->nodes[root].parent != TREE_NONE) {
            continue;
        }
        push_siblings(t, t->nodes[root].children, stack, &n_stack);
        while (n_stack > 0) {
            int32_t n = stack[--n_stack];
            visit_node(ix, &ix->namespaces.slots[t->nodes[root].last], n, fn, context);
            push_siblings(t, t->nodes[n].children, stack, &n_stack);
        }
    }
    mem_free(stack);
    return QUIRE_OK;
}
