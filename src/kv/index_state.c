/* Recurrent states in the index: where snapshots are taken, and where a match can end
 * because of them. */
#include <assert.h>

#include "kv/index_impl.h"

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
    return kv_snapshots_open(&ix->snapshots, ix->pool, &shape);
}

/* ---- places ---- */

/* A place is an entry's number, for what follows it; or the capacity of entries plus a
 * namespace's number, for what is first in it. */
static int32_t position_in_namespace(const kv_index *ix, int32_t namespace) {
    return ix->tree.cap_entries + namespace;
}

int32_t kv_index_tail_place(const kv_index *ix, const kv_path *path, int32_t i, int32_t e) {
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

quire_err kv_index_snapshot(kv_index *ix, kv_path *path, const int32_t *tokens, int32_t n, kv_table *tables) {
    const int32_t n_pages = n / ix->o.page_tokens, n_tail = n % ix->o.page_tokens,
                  *tail = tokens + n - n_tail;
    assert(n >= 1);
    TRY(kv_index_publish(ix, path, tokens, n, tables, KV_PUBLISH_TAIL));
    int32_t n_shared = 0, place = path->entry;
    if (path->n_pages != n_pages) {
        return QUIRE_NO_ROOM;
    }
    if (n_tail > 0) {
        (void)kv_index_best(ix, path, n_pages, path->entry, tail, n_tail, &n_shared);
        if (n_shared < n_tail) {
            return QUIRE_NO_ROOM;
        }
        place = kv_index_tail_place(ix, path, n_pages, path->entry);
    }
    int32_t number = kv_snapshots_add(&ix->snapshots, place, tail, n_tail, tables + ix->o.n_groups);
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
    int32_t e = path->entry, n_pages = path->n_pages;
    if (n < 1 || n_pages < n / size) {
        return QUIRE_INVALID;
    }
    for (; n_pages > n / size; n_pages--) {
        e = kv_tree_entry(&ix->tree, e)->up;
    }
    int32_t place = n_tail > 0 ? kv_index_tail_place(ix, path, n_pages, e) : e;
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

void kv_index_take_over(kv_index *ix, const kv_table *states) {
    int32_t mark = states[0].n_pages > 0 ? kv_pool_entry(ix->pool, states[0].pages[0]) : -1;
    if (mark >= ix->tree.cap_entries) {
        kv_snapshots_drop(&ix->snapshots, mark - ix->tree.cap_entries);
    }
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

quire_err kv_index_check_snapshots(const kv_index *ix, int32_t *n_pages, quire_error *err) {
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
