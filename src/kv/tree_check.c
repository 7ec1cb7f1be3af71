/* Checks the prefix tree's invariants. */
#include "kv/tree.h"

static quire_err broken(quire_error *err, const char *what, int32_t number) {
    return err_set(err, QUIRE_INTERNAL, -1, "kv index: %s (%d)", what, number);
}

/* Checks a node's run of entries: linked both ways, all its own, full but for the last of
 * a leaf. Adds their number to *n_entries. */
static quire_err check_run(const kv_tree *t, int32_t n, int32_t *n_entries, quire_error *err) {
    const kv_node *node = &t->nodes[n];
    const kv_node *parent = &t->nodes[node->parent];
    int32_t e = node->first, up = parent->last;
    if (parent->parent == TREE_NONE) { /* the same for all children of a root */
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

/* Whether node a's first page is before node b's and is no prefix of it. */
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

/* Walks the treap under n in order; *last is the node visited before, *count how many. */
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

/* Checks that the entry which a root's entries follow under another root exists and is
 * full. If there is one, adds the number of those entries, n_children, to *n_hanging. */
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
