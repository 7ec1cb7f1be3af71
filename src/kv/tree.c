#include "kv/tree.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

quire_err kv_tree_open(kv_tree *t, int32_t page_tokens, int32_t n_groups, int32_t cap_entries,
                       int32_t cap_roots) {
    if (page_tokens < 1 || n_groups < 0 || cap_entries < 1 || cap_roots < 1 ||
        cap_entries > INT32_MAX - cap_roots) {
        return QUIRE_INVALID;
    }
    /* every node except a root has its own entry */
    size_t n_nodes = (size_t)cap_entries + (size_t)cap_roots;
    *t = (kv_tree){.page_tokens = page_tokens,
                   .n_groups = n_groups,
                   .entry_bytes = (int64_t)(sizeof(kv_entry) +
                                            ((size_t)n_groups + (size_t)page_tokens) * sizeof(int32_t)),
                   .cap_entries = cap_entries,
                   .cap_nodes = (int32_t)n_nodes,
                   .free_entry = TREE_NONE,
                   .free_node = TREE_NONE};
    t->entries = mem_new_huge((size_t)cap_entries, (size_t)t->entry_bytes);
    t->nodes = mem_new_huge(n_nodes, sizeof *t->nodes);
    if (t->entries == NULL || t->nodes == NULL) {
        kv_tree_close(t);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void kv_tree_close(kv_tree *t) {
    assert(t != NULL);
    mem_free(t->entries);
    mem_free(t->nodes);
    t->entries = NULL;
    t->nodes = NULL;
}

/* ---- slabs ---- */

static int32_t tree_take_entry(kv_tree *t) {
    int32_t e = t->free_entry;
    if (e != TREE_NONE) {
        t->free_entry = kv_tree_entry(t, e)->next;
    } else if (t->made_entries < t->cap_entries) {
        e = t->made_entries++;
    } else {
        return TREE_NONE;
    }
    t->n_entries++;
    return e;
}

static void give_entry(kv_tree *t, int32_t e) {
    kv_entry *entry = kv_tree_entry(t, e);
    entry->n_tokens = 0;
    entry->next = t->free_entry;
    t->free_entry = e;
    t->n_entries--;
}

static int32_t take_node(kv_tree *t, int32_t parent) {
    int32_t n = t->free_node;
    if (n != TREE_NONE) {
        t->free_node = t->nodes[n].left;
    } else {
        assert(t->made_nodes < t->cap_nodes);
        n = t->made_nodes++;
    }
    t->n_nodes++;
    t->nodes[n] = (kv_node){.parent = parent,
                            .first = TREE_NONE,
                            .last = TREE_NONE,
                            .children = TREE_NONE,
                            .left = TREE_NONE,
                            .right = TREE_NONE,
                            .priority = (uint32_t)rng_next(&t->random) | 1u};
    return n;
}

static void give_node(kv_tree *t, int32_t n) {
    t->nodes[n].priority = 0;
    t->nodes[n].left = t->free_node;
    t->free_node = n;
    t->n_nodes--;
}

/* ---- order among siblings ---- */

/* Returns how many tokens an entry shares with tokens[0..n), and sets *order to the
 * position of these tokens: < 0 before the entry, 0 equal, > 0 after it. A prefix comes
 * before its continuations. */
static int32_t tree_compare(const kv_tree *t, int32_t e, const int32_t *tokens, int32_t n, int32_t *order) {
    const int32_t *own = kv_tree_tokens(t, e);
    int32_t n_own = kv_tree_entry(t, e)->n_tokens, n_both = n < n_own ? n : n_own, i = 0;
    while (i < n_both && own[i] == tokens[i]) {
        i++;
    }
    if (i < n_both) {
        *order = tokens[i] < own[i] ? -1 : 1;
    } else {
        *order = (n > n_own) - (n < n_own);
    }
    return i;
}

/* Like tree_compare, with node's first entry; n > 0. */
static int32_t compare_first(const kv_tree *t, int32_t node, const int32_t *tokens, int32_t n,
                             int32_t *order) {
    int32_t key = t->nodes[node].key;
    if (key != tokens[0]) {
        *order = tokens[0] < key ? -1 : 1;
        return 0;
    }
    return tree_compare(t, t->nodes[node].first, tokens, n, order);
}

/* Compares node b's first entry with node a's: < 0 if b comes first. */
static int32_t compare_nodes(const kv_tree *t, int32_t a, int32_t b) {
    int32_t order, e = t->nodes[b].first;
    (void)compare_first(t, a, kv_tree_tokens(t, e), kv_tree_entry(t, e)->n_tokens, &order);
    return order;
}

/* Splits the treap under top into the nodes before and after node n. */
static void tree_cut(kv_tree *t, int32_t top, int32_t n, int32_t *before, int32_t *behind) {
    if (top == TREE_NONE) {
        *before = *behind = TREE_NONE;
    } else if (compare_nodes(t, top, n) > 0) {
        tree_cut(t, t->nodes[top].right, n, &t->nodes[top].right, behind);
        *before = top;
    } else {
        tree_cut(t, t->nodes[top].left, n, before, &t->nodes[top].left);
        *behind = top;
    }
}

/* Joins two treaps. All nodes of the first come before those of the second. */
static int32_t tree_join(kv_tree *t, int32_t before, int32_t behind) {
    if (before == TREE_NONE || behind == TREE_NONE) {
        return before == TREE_NONE ? behind : before;
    }
    if (t->nodes[before].priority > t->nodes[behind].priority) {
        t->nodes[before].right = tree_join(t, t->nodes[before].right, behind);
        return before;
    }
    t->nodes[behind].left = tree_join(t, before, t->nodes[behind].left);
    return behind;
}

/* Returns the link in parent's treap to node n, or the link at which n must be inserted
 * by its priority. */
static int32_t *find_link(kv_tree *t, int32_t parent, int32_t n) {
    int32_t *link = &t->nodes[parent].children;
    while (*link != TREE_NONE && *link != n && t->nodes[*link].priority >= t->nodes[n].priority) {
        link = compare_nodes(t, *link, n) > 0 ? &t->nodes[*link].right : &t->nodes[*link].left;
    }
    return link;
}

/* Makes node n a child of its parent. It must have its first entry. */
static void tree_add_child(kv_tree *t, int32_t n) {
    kv_node *node = &t->nodes[n];
    node->key = kv_tree_tokens(t, node->first)[0];
    int32_t *link = find_link(t, node->parent, n);
    tree_cut(t, *link, n, &node->left, &node->right);
    *link = n;
}

static void remove_child(kv_tree *t, int32_t n) {
    kv_node *node = &t->nodes[n];
    int32_t *link = find_link(t, node->parent, n);
    assert(*link == n);
    *link = tree_join(t, node->left, node->right);
}

/* ---- the tree ---- */

int32_t kv_tree_add_root(kv_tree *t, int32_t number) {
    int32_t root = take_node(t, TREE_NONE);
    t->nodes[root].last = number;
    return root;
}

void kv_tree_remove_root(kv_tree *t, int32_t root) {
    assert(t->nodes[root].children == TREE_NONE && t->nodes[root].parent == TREE_NONE);
    give_node(t, root);
}

int32_t kv_tree_best(const kv_tree *t, int32_t root, int32_t after, const int32_t *tokens, int32_t n,
                     int32_t *n_shared) {
    int32_t best = TREE_NONE, order;
    *n_shared = 0;
    if (after != TREE_NONE && kv_tree_entry(t, after)->next != TREE_NONE) {
        best = kv_tree_entry(t, after)->next;
        *n_shared = tree_compare(t, best, tokens, n, &order);
        return *n_shared > 0 ? best : TREE_NONE;
    }
    int32_t node = after == TREE_NONE ? root : kv_tree_entry(t, after)->node;
    for (int32_t at = t->nodes[node].children; at != TREE_NONE && *n_shared < n;) {
        int32_t shared = compare_first(t, at, tokens, n, &order);
        if (shared > *n_shared) {
            *n_shared = shared;
            best = t->nodes[at].first;
        }
        at = order > 0 ? t->nodes[at].right : t->nodes[at].left;
    }
    return best;
}

/* Returns the last entry of node n and the nodes below; TREE_NONE: an empty root. */
static int32_t last_under(const kv_tree *t, int32_t n) {
    while (t->nodes[n].children != TREE_NONE) {
        n = t->nodes[n].children;
        while (t->nodes[n].right != TREE_NONE) {
            n = t->nodes[n].right;
        }
    }
    return t->nodes[n].parent != TREE_NONE ? t->nodes[n].last : TREE_NONE;
}

int32_t kv_tree_last(const kv_tree *t, int32_t root) {
    return last_under(t, root);
}

int32_t kv_tree_previous(const kv_tree *t, int32_t e) {
    const int32_t n = kv_tree_entry(t, e)->node, parent = t->nodes[n].parent;
    if (t->nodes[n].first != e) {
        return kv_tree_entry(t, e)->up;
    }
    int32_t before = TREE_NONE;
    for (int32_t at = t->nodes[parent].children; at != TREE_NONE;) {
        const bool is_before = at != n && compare_nodes(t, at, n) > 0;
        before = is_before ? at : before;
        at = is_before ? t->nodes[at].right : t->nodes[at].left;
    }
    return before != TREE_NONE                    ? last_under(t, before)
           : t->nodes[parent].parent != TREE_NONE ? t->nodes[parent].last
                                                  : TREE_NONE;
}

/* Splits e's node after e: a new node takes the entries up to e and the place of the old
 * node, which becomes its only child and keeps its own children. */
static void split_behind(kv_tree *t, int32_t e) {
    int32_t lower = kv_tree_entry(t, e)->node;
    int32_t upper = take_node(t, t->nodes[lower].parent);
    remove_child(t, lower);
    t->nodes[upper].first = t->nodes[lower].first;
    t->nodes[upper].last = e;
    t->nodes[lower].first = kv_tree_entry(t, e)->next;
    kv_tree_entry(t, e)->next = TREE_NONE;
    for (int32_t i = t->nodes[upper].first; i != TREE_NONE; i = kv_tree_entry(t, i)->next) {
        kv_tree_entry(t, i)->node = upper;
    }
    tree_add_child(t, upper);
    t->nodes[lower].parent = upper;
    tree_add_child(t, lower);
}

/* Returns the node for a new entry after `after`: after's own node if `after` is its end
 * and it has no children, else a new child. */
static int32_t node_behind(kv_tree *t, int32_t root, int32_t after) {
    if (after == TREE_NONE) {
        return take_node(t, root);
    }
    if (kv_tree_entry(t, after)->next != TREE_NONE) {
        split_behind(t, after);
    } else if (t->nodes[kv_tree_entry(t, after)->node].children == TREE_NONE) {
        return kv_tree_entry(t, after)->node;
    }
    return take_node(t, kv_tree_entry(t, after)->node);
}

int32_t kv_tree_insert(kv_tree *t, int32_t root, int32_t after, int32_t up, const int32_t *tokens,
                       int32_t n) {
    assert(n > 0 && n <= t->page_tokens && (after == TREE_NONE || up == after));
    int32_t e = tree_take_entry(t);
    if (e == TREE_NONE) {
        return TREE_NONE;
    }
    kv_entry *entry = kv_tree_entry(t, e);
    entry->up = up;
    if (after == TREE_NONE && up != TREE_NONE) {
        kv_tree_entry(t, up)->n_hung++;
    }
    entry->next = TREE_NONE;
    entry->n_tokens = n;
    entry->n_pins = 0;
    entry->n_hung = 0;
    memset(kv_tree_pages(t, e), 0xff, (size_t)t->n_groups * sizeof(int32_t)); /* sets each to TREE_NONE */
    memcpy(kv_tree_tokens(t, e), tokens, (size_t)n * sizeof *tokens);
    entry->node = node_behind(t, root, after);
    kv_node *node = &t->nodes[entry->node];
    if (node->first == TREE_NONE) {
        node->first = e;
        tree_add_child(t, entry->node);
    } else {
        kv_tree_entry(t, after)->next = e;
    }
    node->last = e;
    return e;
}

/* Moves the entries of a node with one child to the child, which takes its place. */
static void merge_with_only_child(kv_tree *t, int32_t upper) {
    int32_t lower = t->nodes[upper].children;
    remove_child(t, upper);
    for (int32_t i = t->nodes[upper].first; i != TREE_NONE; i = kv_tree_entry(t, i)->next) {
        kv_tree_entry(t, i)->node = lower;
    }
    kv_tree_entry(t, t->nodes[upper].last)->next = t->nodes[lower].first;
    t->nodes[lower].first = t->nodes[upper].first;
    t->nodes[lower].parent = t->nodes[upper].parent;
    tree_add_child(t, lower);
    give_node(t, upper);
}

void kv_tree_remove(kv_tree *t, int32_t e) {
    assert(kv_tree_is_last(t, e));
    const kv_entry *entry = kv_tree_entry(t, e);
    int32_t n = entry->node, parent = t->nodes[n].parent;
    if (t->nodes[n].first != e) {
        t->nodes[n].last = entry->up;
        kv_tree_entry(t, entry->up)->next = TREE_NONE;
    } else {
        if (t->nodes[parent].parent == TREE_NONE && entry->up != TREE_NONE) {
            kv_tree_entry(t, entry->up)->n_hung--;
        }
        remove_child(t, n);
        give_node(t, n);
        if (kv_tree_has_only_child(t, parent) && t->nodes[parent].parent != TREE_NONE) {
            merge_with_only_child(t, parent);
        }
    }
    give_entry(t, e);
}

static quire_err broken(quire_error *err, const char *what, int32_t number) {
    return err_set(err, QUIRE_INTERNAL, -1, "kv index: %s (%d)", what, number);
}

/* Checks a node's run of entries: linked both ways, all of this node, full except for the
 * last of a leaf. Adds their number to *n_entries. */
static quire_err check_run(const kv_tree *t, int32_t n, int32_t *n_entries, quire_error *err) {
    const kv_node *node = &t->nodes[n];
    const kv_node *parent = &t->nodes[node->parent];
    int32_t e = node->first, up = parent->last;
    if (parent->parent == TREE_NONE) { /* `up` is the same for all children of a root */
        int32_t of_first = t->nodes[parent->children].first;
        up = of_first >= 0 && of_first < t->made_entries ? kv_tree_entry(t, of_first)->up : TREE_NONE;
    }
    for (; e != TREE_NONE; up = e, e = kv_tree_entry(t, e)->next) {
        const kv_entry *entry = kv_tree_entry(t, e);
        if (e < 0 || e >= t->made_entries || entry->n_tokens < 1 || entry->n_tokens > t->page_tokens ||
            ++*n_entries > t->n_entries) {
            return broken(err, "an entry outside the slab, unused or in a cycle", e);
        }
        if (entry->node != n || entry->up != up) {
            return broken(err, "an entry that names another node or another entry before it", e);
        }
        if (entry->n_tokens < t->page_tokens && !kv_tree_is_last(t, e)) {
            return broken(err, "a part-filled entry that something follows", e);
        }
    }
    return up == node->last && node->first != TREE_NONE
               ? QUIRE_OK
               : broken(err, "a node that does not end at its last entry", n);
}

/* Whether node a's first page is before node b's and is not a prefix of it. */
static bool stands_before(const kv_tree *t, int32_t a, int32_t b) {
    const int32_t *x = kv_tree_tokens(t, t->nodes[a].first), *y = kv_tree_tokens(t, t->nodes[b].first);
    int32_t nx = kv_tree_entry(t, t->nodes[a].first)->n_tokens,
            ny = kv_tree_entry(t, t->nodes[b].first)->n_tokens;
    for (int32_t i = 0; i < nx && i < ny; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i];
        }
    }
    return false;
}

/* Walks the treap under n in order. *last: the node visited before; *count: their
 * number. */
static quire_err check_treap(const kv_tree *t, int32_t n, int32_t parent, int32_t *last, int32_t *count,
                             quire_error *err) {
    if (n == TREE_NONE) {
        return QUIRE_OK;
    }
    const kv_node *node = &t->nodes[n];
    if (node->priority == 0 || node->parent != parent || ++*count > t->n_nodes) {
        return broken(err, "a child that names another parent, or a treap in a cycle", n);
    }
    if (node->first < 0 || node->first >= t->made_entries || node->key != kv_tree_tokens(t, node->first)[0]) {
        return broken(err, "a node without a first entry, or a key that is not its first token", n);
    }
    for (int side = 0; side < 2; side++) {
        int32_t below = side == 0 ? node->left : node->right;
        if (below != TREE_NONE && t->nodes[below].priority > node->priority) {
            return broken(err, "a sibling over one of higher priority", n);
        }
    }
    TRY(check_treap(t, node->left, parent, last, count, err));
    if (*last != TREE_NONE && !stands_before(t, *last, n)) {
        return broken(err, "siblings out of order, or one a prefix of the next", n);
    }
    *last = n;
    return check_treap(t, node->right, parent, last, count, err);
}

/* Checks the entry under another root that a root's entries follow: it exists and is
 * full. If there is one, adds n_children, the number of those entries, to *n_hanging. */
static quire_err check_root(const kv_tree *t, int32_t root, int32_t n_children, int32_t *n_hanging,
                            quire_error *err) {
    int32_t top = t->nodes[root].children, first = top != TREE_NONE ? t->nodes[top].first : TREE_NONE;
    if (first < 0 || first >= t->made_entries || kv_tree_entry(t, first)->up == TREE_NONE) {
        return QUIRE_OK;
    }
    int32_t up = kv_tree_entry(t, first)->up;
    if (up < 0 || up >= t->made_entries || kv_tree_entry(t, up)->n_tokens != t->page_tokens) {
        return broken(err, "a root that follows an entry which is not there or not full", root);
    }
    *n_hanging += n_children;
    return QUIRE_OK;
}

quire_err kv_tree_check(const kv_tree *t, quire_error *err) {
    assert(t != NULL);
    int32_t n_entries = 0, n_nodes = 0, n_children = 0, n_roots = 0, n_hanging = 0, n_hung = 0;
    for (int32_t n = 0; n < t->made_nodes; n++) {
        const kv_node *node = &t->nodes[n];
        if (node->priority == 0) {
            continue;
        }
        int32_t last = TREE_NONE, count = 0;
        TRY(check_treap(t, node->children, n, &last, &count, err));
        n_nodes++;
        n_children += count;
        if (node->parent == TREE_NONE) {
            n_roots++;
            TRY(check_root(t, n, count, &n_hanging, err));
        } else {
            TRY(check_run(t, n, &n_entries, err));
            if (count == 1) {
                return broken(err, "a node with one child, which should be one with it", n);
            }
        }
    }
    for (int32_t e = 0; e < t->made_entries; e++) {
        n_hung += kv_tree_entry(t, e)->n_tokens > 0 ? kv_tree_entry(t, e)->n_hung : 0;
    }
    if (n_hung != n_hanging) {
        return broken(err, "entries that count wrong what follows them under other roots",
                      n_hung - n_hanging);
    }
    if (n_nodes != t->n_nodes || n_entries != t->n_entries || n_children != n_nodes - n_roots) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv index: %d nodes and %d entries found, %d and %d counted",
                       n_nodes, n_entries, t->n_nodes, t->n_entries);
    }
    return QUIRE_OK;
}
