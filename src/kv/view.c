#include "kv/view.h"

#include <string.h>

#include "base/mem.h"

#define MAX_CAP    (1 << 20)
#define MAX_WALKED (1 << 20)

quire_err quire_kv_view_open(int32_t cap_pages, int32_t cap_seqs, int32_t cap_entries, int32_t cap_events,
                             quire_kv_view **out) {
    const int32_t caps[] = {cap_pages, cap_seqs, cap_entries, cap_events};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        if (caps[i] < 1 || caps[i] > MAX_CAP) {
            return QUIRE_INVALID;
        }
    }
    quire_kv_view *v = mem_new(1, sizeof *v);
    TRY(mem_check(v));
    *v = (quire_kv_view){.page = -1,
                         .cap_pages = cap_pages,
                         .cap_seqs = cap_seqs,
                         .cap_entries = cap_entries,
                         .cap_events = cap_events};
    v->pages = mem_new((size_t)cap_pages, sizeof *v->pages);
    v->seqs = mem_new((size_t)cap_seqs, sizeof *v->seqs);
    v->entries = mem_new((size_t)cap_entries, sizeof *v->entries);
    v->events = mem_new((size_t)cap_events, sizeof *v->events);
    if (v->pages == NULL || v->seqs == NULL || v->entries == NULL || v->events == NULL) {
        quire_kv_view_close(v);
        return QUIRE_NO_MEMORY;
    }
    *out = v;
    return QUIRE_OK;
}

void quire_kv_view_close(quire_kv_view *v) {
    if (v != NULL) {
        mem_free(v->pages);
        mem_free(v->seqs);
        mem_free(v->entries);
        mem_free(v->events);
        mem_free(v);
    }
}

/* ---- pages and sequences ---- */

void kv_view_begin(quire_kv_view *v, const kv_pool *pool, int32_t page_tokens, int32_t n_groups) {
    kv_counts c = kv_pool_counts(pool);
    v->page_tokens = page_tokens;
    v->n_groups = n_groups;
    v->n_pages = c.n_pages;
    v->n_free = c.n_free;
    v->n_held = c.n_held;
    v->n_cached = c.n_cached;
    v->n_shared = v->n_seqs = v->n_page_tokens = 0;
    v->n_unshared = v->n_walked = 0;
    for (int32_t i = 0; i < c.n_pages; i++) {
        int32_t count = kv_pool_count(pool, (page_id){i});
        v->n_shared += count > 1;
        v->n_unshared += count;
        if (i < v->cap_pages) {
            v->pages[i].count = count;
            v->pages[i].entry = kv_pool_entry(pool, (page_id){i});
            memset(v->pages[i].holders, 0xff, sizeof v->pages[i].holders); /* sets all to -1 */
        }
    }
}

static void view_add_holder(quire_kv_view_page *p, int32_t seq) {
    for (int32_t k = 0; k < QUIRE_KV_VIEW_HOLDERS; k++) {
        if (p->holders[k] < 0) {
            p->holders[k] = seq;
            return;
        }
    }
}

/* Shows n tokens of the requested page; of its holders the one with most tokens in it is
 * used. */
static void show_tokens(quire_kv_view *v, const int32_t *tokens, int32_t n) {
    if (n > v->n_page_tokens) {
        memcpy(v->page_token, tokens, (size_t)n * sizeof *tokens);
        v->n_page_tokens = n;
    }
}

void kv_view_seq(quire_kv_view *v, int64_t id, str owner, quire_kv_view_state state, const int32_t *tokens,
                 const kv_table *tables, int32_t n_tables) {
    int32_t seq = v->n_seqs++, n_pages = 0;
    for (int32_t g = 0; g < n_tables; g++) {
        const kv_table *t = &tables[g];
        n_pages += t->n_pages;
        for (int32_t i = 0; i < t->n_pages && v->n_walked < MAX_WALKED; i++, v->n_walked++) {
            int32_t page = t->pages[i].v, from = i * v->page_tokens;
            if (page >= 0 && page < v->cap_pages && seq < v->cap_seqs) {
                view_add_holder(&v->pages[page], seq);
            }
            if (page >= 0 && page == v->page && g < v->n_groups && tokens != NULL) {
                show_tokens(v, tokens + from,
                            t->n_tokens - from < v->page_tokens ? t->n_tokens - from : v->page_tokens);
            }
        }
    }
    if (seq < v->cap_seqs) {
        quire_kv_view_seq *s = &v->seqs[seq];
        size_t n_owner = owner.n < sizeof s->owner - 1 ? owner.n : sizeof s->owner - 1;
        *s = (quire_kv_view_seq){
            .id = id, .n_tokens = n_tables > 0 ? tables[0].n_tokens : 0, .n_pages = n_pages, .state = state};
        memcpy(s->owner, owner.p, n_owner);
    }
}

/* ---- the tree ---- */

static void view_show_entry(const kv_index_entry *e, void *context) {
    quire_kv_view *v = context;
    if (v->n_entries_shown == v->cap_entries) {
        return;
    }
    quire_kv_view_entry *to = &v->entries[v->n_entries_shown++];
    *to = (quire_kv_view_entry){.entry = e->entry,
                                .up = e->up,
                                .node = e->node,
                                .above = e->parent,
                                .ns = e->namespace,
                                .page = e->pages[0],
                                .n_tokens = e->n_tokens,
                                .n_pins = e->n_pins,
                                .hash = e->hash};
    int32_t n = e->n_tokens < QUIRE_KV_VIEW_LABEL ? e->n_tokens : QUIRE_KV_VIEW_LABEL;
    memcpy(to->label, e->tokens, (size_t)n * sizeof *e->tokens);
    for (int32_t g = 0; g < v->n_groups; g++) {
        if (e->pages[g] >= 0 && e->pages[g] == v->page) {
            show_tokens(v, e->tokens, e->n_tokens);
        }
    }
}

static void show_events(quire_kv_view *v, const kv_events *events) {
    v->n_events = 0;
    v->n_events_lost = 0;
    v->last_event = kv_events_last(events);
    uint64_t first = v->after < v->last_event ? v->after + 1 : v->last_event + 1;
    if (v->last_event - first + 1 > (uint64_t)v->cap_events) {
        v->n_events_lost = v->last_event - first + 1 - (uint64_t)v->cap_events;
        first += v->n_events_lost;
    }
    for (uint64_t number = first; number <= v->last_event; number++) {
        kv_event e;
        if (kv_events_read(events, number, &e) != KV_EVENT_FOUND) {
            v->n_events_lost++;
            continue;
        }
        v->events[v->n_events++] = (quire_kv_view_event){.number = number,
                                                         .kind = (quire_kv_event_kind)e.kind,
                                                         .group = e.group,
                                                         .n_tokens = e.n_tokens,
                                                         .hash = e.hash,
                                                         .parent = e.parent};
    }
}

void kv_view_end(quire_kv_view *v, const kv_index *ix, const kv_events *events) {
    v->n_entries = v->n_nodes = v->n_namespaces = v->n_entries_shown = v->n_events = 0;
    v->last_event = v->n_events_lost = 0;
    if (ix != NULL) {
        kv_index_counts c = kv_index_count(ix);
        v->n_entries = c.n_entries;
        v->n_nodes = c.n_nodes - c.n_namespaces;
        v->n_namespaces = c.n_namespaces;
        if (c.n_entries <= v->cap_entries) {
            (void)kv_index_visit(ix, view_show_entry, v); /* if memory is short the tree is not shown */
        }
    }
    if (events != NULL) {
        show_events(v, events);
    }
}
