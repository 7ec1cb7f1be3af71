/* Read access to the index (its audit, and a walk over its entries), and the recurrent
 * states in it. */
#include <assert.h>

#include "base/mem.h"
#include "kv/index_impl.h"

/* ---- audit ---- */

/* Checks entry e: each page that it names is indexed by it, and its hash is right. Adds
 * the number of pages to *n_pages. */
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

/* Checks the snapshots (kv_snapshots_check), and that every snapshot's prefix is in the
 * tree. Adds their number of pages to *n_pages. */
static quire_err kv_index_check_snapshots(const kv_index *ix, int32_t *n_pages, quire_error *err) {
    const kv_snapshots *s = &ix->snapshots;
    for (int32_t i = 0; i < s->shape.cap; i++) {
        int32_t place = s->list[i].place, namespace = place - ix->tree.cap_entries,
                n_tail = s->list[i].n_tail;
        if (place == SNAPSHOT_NONE) {
            continue;
        }
        if (namespace < 0 ? kv_tree_entry(&ix->tree, place)->n_tokens < ix->o.page_tokens : n_tail == 0) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "kv index: snapshot %d is at place %d, where nothing can end", i, place);
        }
        int32_t n_shared = 0, root = namespace < 0 ? TREE_NONE : ix->namespaces.slots[namespace].root,
                after = namespace < 0 ? place : TREE_NONE;
        if (n_tail > 0) {
            (void)kv_tree_best(&ix->tree, root, after, kv_snapshots_tail(s, i), n_tail, &n_shared);
        }
        if (n_shared < n_tail) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv index: no entry spells the tail of snapshot %d", i);
        }
    }
    return kv_snapshots_check(s, n_pages, err);
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

/* Pushes the nodes of a treap in such an order that the first sibling is popped first. */
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

/* Calls fn for the entries of node n. */
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

/* Recurrent states in the index: takes snapshots, and finds where a match can end on
 * one. */

static void index_view_drops(void *context, int32_t snapshot) {
    const kv_index *ix = context;
    const kv_snapshot *x = &ix->snapshots.list[snapshot];
    if (ix->watch != NULL && x->n_tail == 0 && x->place < ix->tree.cap_entries) {
        ix->watch->on_state(ix->watch->context, x->place, kv_snapshots_pages(&ix->snapshots, snapshot));
    }
}

const int32_t *kv_index_state_at(const kv_index *ix, int32_t entry) {
    int32_t i = ix->o.n_state_groups > 0 ? kv_snapshots_find(&ix->snapshots, entry, NULL, 0) : SNAPSHOT_NONE;
    return i != SNAPSHOT_NONE ? kv_snapshots_pages(&ix->snapshots, i) : NULL;
}

quire_err kv_index_open_snapshots(kv_index *ix) {
    const kv_index_options *o = &ix->o;
    int64_t n_pages = 0, cap = o->max_snapshots;
    for (int32_t g = 0; g < o->n_state_groups; g++) {
        n_pages += o->state_pages[g];
    }
    if (o->n_state_groups == 0) {
        return QUIRE_OK;
    }
    int64_t most = n_pages > 0 ? kv_pool_counts(ix->pool).n_pages / n_pages : 0;
    cap = cap == 0 || cap > most ? most : cap;
    if (cap < 1 || (int64_t)ix->tree.cap_entries + o->max_namespaces + cap > INT32_MAX) {
        return QUIRE_INVALID;
    }
    kv_snapshot_shape shape = {.page_tokens = o->page_tokens,
                               .n_groups = o->n_state_groups,
                               .cap = (int32_t)cap,
                               .n_places = ix->tree.cap_entries + o->max_namespaces,
                               .first_mark = ix->tree.cap_entries};
    for (int32_t g = 0; g < o->n_state_groups; g++) {
        shape.state_pages[g] = o->state_pages[g];
    }
    TRY(kv_snapshots_open(&ix->snapshots, ix->pool, &shape));
    ix->snapshots.on_drop = index_view_drops;
    ix->snapshots.context = ix;
    return QUIRE_OK;
}

/* ---- places ---- */

/* Returns the place of a namespace's start: the capacity of entries plus its number. The
 * place after an entry is the entry's number. */
static int32_t position_in_namespace(const kv_index *ix, int32_t namespace) {
    return ix->tree.cap_entries + namespace;
}

/* Returns the place (kv/snapshot.h) of snapshots with a tail in page i after entry e. */
static int32_t kv_index_tail_place(const kv_index *ix, const kv_path *path, int32_t i, int32_t e) {
    int32_t after = kv_index_before(path, i, e);
    return after != TREE_NONE ? after : position_in_namespace(ix, kv_index_namespace_of(path, i));
}

int32_t kv_index_restorable(const kv_index *ix, const kv_path *path, int32_t i, int32_t e, int32_t next,
                            const int32_t *tokens, int32_t n_shared, int32_t *snapshot) {
    if (n_shared == ix->o.page_tokens) {
        *snapshot = kv_snapshots_find(&ix->snapshots, next, NULL, 0);
        if (*snapshot != SNAPSHOT_NONE) {
            return n_shared;
        }
    }
    if (ix->o.granularity == KV_GRANULARITY_TOKEN) {
        *snapshot =
            kv_snapshots_deepest(&ix->snapshots, kv_index_tail_place(ix, path, i, e), tokens, n_shared);
    }
    return *snapshot != SNAPSHOT_NONE ? ix->snapshots.list[*snapshot].n_tail : 0;
}

int32_t kv_index_agreed(const kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n) {
    const int32_t size = ix->o.page_tokens;
    int32_t at = 0, n_shared = 0;
    for (int32_t e = TREE_NONE; at < n; at += n_shared) {
        e = kv_index_best(ix, path, at / size, e, tokens + at, n - at < size ? n - at : size, &n_shared);
        if (n_shared < size) {
            return at + n_shared;
        }
    }
    return at;
}

/* ---- taking and restoring ---- */

/* Returns the entry of the last page before page n_pages <= path->n_pages. */
static int32_t index_view_entry_back(const kv_index *ix, const kv_path *path, int32_t n_pages) {
    int32_t e = path->entry;
    for (int32_t i = path->n_pages; i > n_pages; i--) {
        e = kv_tree_entry(&ix->tree, e)->up;
    }
    return e;
}

/* Returns how many of the path's first `at` tokens lie after the last snapshot before
 * them. tail: tokens of its last page. */
static int32_t tokens_saved(const kv_index *ix, const kv_path *path, int32_t at, const int32_t *tail) {
    const kv_snapshots *s = &ix->snapshots;
    const int32_t size = ix->o.page_tokens, n_tail = at % size;
    int32_t i = at / size, e = index_view_entry_back(ix, path, i);
    int32_t found = kv_snapshots_deepest(s, kv_index_tail_place(ix, path, i, e), tail, n_tail - 1);
    int32_t from = found != SNAPSHOT_NONE ? i * size + s->list[found].n_tail : 0;
    for (; i > 0 && found == SNAPSHOT_NONE; i--, e = kv_tree_entry(&ix->tree, e)->up) {
        found = i * size < at ? kv_snapshots_find(s, e, NULL, 0) : SNAPSHOT_NONE;
        from = i * size;
        if (found == SNAPSHOT_NONE) {
            int32_t place = kv_index_tail_place(ix, path, i - 1, kv_tree_entry(&ix->tree, e)->up);
            found = kv_snapshots_deepest(s, place, kv_tree_tokens(&ix->tree, e), size - 1);
            from = found != SNAPSHOT_NONE ? (i - 1) * size + s->list[found].n_tail : 0;
        }
    }
    return at - from;
}

quire_err kv_index_snapshot(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, int32_t at,
                            kv_table *tables, const kv_table *states) {
    const int32_t size = ix->o.page_tokens, n_pages = at / size, n_tail = at % size,
                  *tail = tokens + at - n_tail;
    bool is_in_tail = n_tail > 0 && n_pages == n / size;
    assert(at >= 1 && at <= n);
    TRY(kv_index_publish(ix, path, tokens, n, tables, is_in_tail ? KV_PUBLISH_TAIL : KV_PUBLISH_PAGES));
    if (path->n_pages < n_pages) {
        return QUIRE_NO_ROOM;
    }
    int32_t n_shared = 0, place = index_view_entry_back(ix, path, n_pages);
    if (n_tail > 0) {
        (void)kv_index_best(ix, path, n_pages, place, tail, n_tail, &n_shared);
        if (n_shared < n_tail) {
            return QUIRE_NO_ROOM;
        }
        place = kv_index_tail_place(ix, path, n_pages, place);
    }
    int32_t saves = tokens_saved(ix, path, at, tail);
    int32_t number = kv_snapshots_add(&ix->snapshots, place, tail, n_tail, saves, states);
    int32_t mark = ix->tree.cap_entries + number;
    if (number != SNAPSHOT_NONE) {
        kv_evict_inserted(ix->evict, mark, n_pages, path->namespace, 0);
        kv_evict_used(ix->evict, mark);
        if (path->retains && n_pages >= path->n_public) {
            kv_evict_retain(ix->evict, mark, &path->retention);
        }
    }
    return QUIRE_OK;
}

quire_err kv_index_restore(kv_index *ix, const kv_path *path, const int32_t *tokens, int32_t n,
                           kv_table *states) {
    const int32_t size = ix->o.page_tokens, n_tail = n % size;
    if (n < 1 || path->n_pages < n / size) {
        return QUIRE_INVALID;
    }
    int32_t place = index_view_entry_back(ix, path, n / size);
    place = n_tail > 0 ? kv_index_tail_place(ix, path, n / size, place) : place;
    int32_t snapshot = kv_snapshots_find(&ix->snapshots, place, tokens + n - n_tail, n_tail);
    if (snapshot == SNAPSHOT_NONE) {
        return QUIRE_INVALID;
    }
    for (int32_t g = 0; g < ix->o.n_state_groups; g++) {
        kv_table_clear(ix->pool, &states[g]);
    }
    kv_snapshots_restore(&ix->snapshots, snapshot, n, states);
    return QUIRE_OK;
}

bool kv_index_take_over(kv_index *ix, const kv_table *states) {
    bool is_own = states[0].n_pages > 0 && kv_pool_count(ix->pool, states[0].pages[0]) == 1;
    int32_t mark = is_own ? kv_pool_entry(ix->pool, states[0].pages[0]) : -1;
    if (mark < ix->tree.cap_entries) {
        return false;
    }
    kv_snapshots_drop(&ix->snapshots, mark - ix->tree.cap_entries);
    return true;
}

/* ---- snapshots of removed entries ---- */

void kv_index_drop_bare_tails(kv_index *ix, int32_t root, int32_t after) {
    kv_snapshots *s = &ix->snapshots;
    int32_t place = after != TREE_NONE ? after : position_in_namespace(ix, ix->tree.nodes[root].last);
    for (int32_t i = s->places[place], next; i != SNAPSHOT_NONE; i = next) {
        int32_t n_tail = s->list[i].n_tail, n_shared = n_tail;
        next = s->list[i].next;
        if (n_tail > 0) {
            (void)kv_tree_best(&ix->tree, root, after, kv_snapshots_tail(s, i), n_tail, &n_shared);
        }
        if (n_shared < n_tail) {
            kv_snapshots_drop(s, i);
        }
    }
}
