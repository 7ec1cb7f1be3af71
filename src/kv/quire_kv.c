/* Implements quire_kv.h with kv_cache and kv_seq: sequences that keep their tokens,
 * snapshots and lists of copies, for users without an engine. */
#include "quire_kv.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "kv/kv_seq.h"
#include "kv/view.h"

struct quire_kv_seq {
    quire_kv *kv;
    quire_kv_seq *prev, *next; /* neighbours in the ring of open sequences */
    kv_seq s;                  /* s.n_computed: number of committed tokens */
    int32_t *tokens;
    size_t cap_tokens;
    int32_t n;
    int64_t id;
};

struct quire_kv {
    quire_kv_options o;
    kv_cache c;
    quire_kv_seq open; /* head of the ring; not a sequence */
    int32_t n_seqs;
    int64_t n_opened;
    kv_copies copies;
    /* the last result of quire_kv_copies; its capacity grows with copies, so that
     * returning them cannot fail */
    quire_kv_copy *taken;
    size_t cap_taken;
};

void quire_kv_options_init(quire_kv_options *o) {
    *o = (quire_kv_options){.page_tokens = 16, .n_groups = 1, .max_seqs = 256, .max_namespaces = 1024};
}

static bool options_are_valid(const quire_kv_options *o) {
    bool valid = o->page_tokens >= 1 && o->page_tokens <= KV_MAX_PAGE_TOKENS &&
                 (o->page_tokens & (o->page_tokens - 1)) == 0 && o->n_groups >= 1 &&
                 o->n_groups <= QUIRE_KV_MAX_GROUPS && o->max_seqs >= 1 && o->max_namespaces >= 1 &&
                 o->n_events >= 0 && o->policy >= QUIRE_KV_LRU && o->policy <= QUIRE_KV_LEARNED &&
                 (o->granularity == QUIRE_KV_TOKEN || o->granularity == QUIRE_KV_PAGE);
    for (int32_t g = 0; valid && g < o->n_groups; g++) {
        valid = o->windows[g] >= 0;
    }
    return valid;
}

/* Converts the options to those of kv_cache. QUIRE_INVALID: snapshots that no pool can
 * hold. */
static quire_err cache_options(const quire_kv_options *o, kv_cache_options *co) {
    int64_t n_state_pages = 0;
    *co = (kv_cache_options){.n_pages = o->n_pages,
                             .page_tokens = o->page_tokens,
                             .n_groups = o->n_groups,
                             .max_namespaces = o->max_namespaces,
                             .n_events = o->n_events,
                             .seed = o->seed,
                             .granularity = o->granularity == QUIRE_KV_TOKEN ? KV_GRANULARITY_TOKEN
                                                                             : KV_GRANULARITY_PAGE,
                             .policy = (kv_policy)o->policy};
    for (int32_t g = 0; g < o->n_groups; g++) {
        co->windows[g] = o->windows[g];
        co->state_pages[g] = o->state_pages[g];
        n_state_pages += o->state_pages[g] > 0 ? o->state_pages[g] : 0;
    }
    bool holds_none = o->snapshot_pages > 0 && o->snapshot_pages < n_state_pages;
    if (o->snapshot_tokens < 0 || o->snapshot_pages < 0 || holds_none) {
        return QUIRE_INVALID;
    }
    co->snapshot_tokens = o->snapshot_tokens;
    co->max_snapshots = n_state_pages > 0 ? (int32_t)(o->snapshot_pages / n_state_pages) : 0;
    return QUIRE_OK;
}

quire_err quire_kv_open(const quire_kv_options *o, quire_kv **out) {
    _Static_assert((int)QUIRE_KV_LRU == (int)KV_EVICT_LRU && (int)QUIRE_KV_LFU == (int)KV_EVICT_LFU &&
                       (int)QUIRE_KV_GDSF == (int)KV_EVICT_GDSF &&
                       (int)QUIRE_KV_LEARNED == (int)KV_EVICT_LEARNED,
                   "the public policies are the room's");
    _Static_assert(QUIRE_KV_MAX_GROUPS == KV_MAX_GROUPS, "the public limit is the room's");
    if (!options_are_valid(o)) {
        return QUIRE_INVALID;
    }
    quire_kv *kv = mem_new(1, sizeof *kv);
    TRY(mem_check(kv));
    kv->o = *o;
    kv->open.prev = kv->open.next = &kv->open;
    kv_cache_options co;
    quire_err e = cache_options(o, &co);
    TRY_DONE(e, kv_cache_open(&co, &kv->c));
done:
    if (e != QUIRE_OK) {
        quire_kv_close(kv);
        return e;
    }
    *out = kv;
    return QUIRE_OK;
}

void quire_kv_close(quire_kv *kv) {
    if (kv == NULL) {
        return;
    }
    while (kv->open.next != &kv->open) {
        quire_kv_seq_close(kv->open.next);
    }
    kv_cache_close(&kv->c);
    mem_free(kv->copies.pairs);
    mem_free(kv->taken);
    mem_free(kv);
}

/* ---- sequences ---- */

/* Makes an empty sequence in the ring, without a path in the index. */
static quire_err make_seq(quire_kv *kv, quire_kv_seq **out) {
    if (kv->n_seqs == kv->o.max_seqs) {
        return QUIRE_NO_ROOM;
    }
    quire_kv_seq *seq = mem_new(1, sizeof *seq);
    if (seq == NULL || kv_seq_init(&seq->s, kv->o.n_groups, 0) != QUIRE_OK) {
        mem_free(seq);
        return QUIRE_NO_MEMORY;
    }
    seq->kv = kv;
    seq->prev = kv->open.prev;
    seq->next = &kv->open;
    seq->id = ++kv->n_opened;
    seq->prev->next = seq->next->prev = seq;
    kv->n_seqs++;
    *out = seq;
    return QUIRE_OK;
}

static quire_err reserve_tokens(quire_kv_seq *seq, int32_t n) {
    return mem_grow(&seq->tokens, &seq->cap_tokens, (size_t)n, sizeof *seq->tokens);
}

static bool is_state(const quire_kv *kv, int32_t g) {
    return g >= kv->c.n_token_groups;
}

/* Reserves memory for one more copy per group and for a copy of a whole state, in
 * kv->copies and in kv->taken. */
static quire_err reserve_copies(quire_kv *kv) {
    size_t n = (size_t)kv->copies.n + (size_t)kv->c.n_token_groups + (size_t)kv->c.n_state_pages,
           cap = (size_t)kv->copies.cap;
    TRY(mem_grow(&kv->copies.pairs, &cap, n, sizeof *kv->copies.pairs));
    kv->copies.cap = (int32_t)cap;
    return mem_grow(&kv->taken, &kv->cap_taken, n, sizeof *kv->taken);
}

/* Reserves pages for n more tokens. On failure nothing has changed but evictions. */
static quire_err quire_kv_grow(quire_kv_seq *seq, int32_t n) {
    quire_kv *kv = seq->kv;
    TRY(reserve_copies(kv));
    if (kv->c.n_state_pages > 0 && kv_seq_needs(&kv->c, &seq->s, n) > kv_cache_available(&kv->c)) {
        /* so that reuse never needs more pages than computing from scratch */
        (void)kv_index_take_over(kv->c.index, seq->s.tables + kv->c.n_token_groups);
    }
    int64_t needs = kv_seq_needs(&kv->c, &seq->s, n);
    if (needs > kv->o.n_pages) {
        return QUIRE_NO_ROOM;
    }
    TRY(kv_index_evict(kv->c.index, (int32_t)needs));
    return kv_seq_reserve(&kv->c, &seq->s, n, &kv->copies);
}

/* Fills an empty sequence with cached pages, then new pages for the rest. */
static quire_err fill_seq(quire_kv_seq *seq, const int32_t *tokens, int32_t n, int32_t *n_cached) {
    TRY(reserve_tokens(seq, n));
    TRY(kv_seq_admit(&seq->kv->c, &seq->s, tokens, n - 1));
    *n_cached = seq->s.n_computed;
    TRY(quire_kv_grow(seq, n - *n_cached));
    memcpy(seq->tokens, tokens, (size_t)n * sizeof *tokens);
    seq->n = n;
    return QUIRE_OK;
}

/* Opens a sequence at path and takes ownership of path, which is left after a failure. */
static quire_err open_at(quire_kv *kv, kv_path path, const int32_t *tokens, int32_t n, quire_kv_seq **out,
                         int32_t *n_cached) {
    quire_kv_seq *seq;
    int32_t n_found = 0;
    quire_err e = n < 1 ? QUIRE_INVALID : make_seq(kv, &seq);
    if (e != QUIRE_OK) {
        kv_index_leave(kv->c.index, &path);
        return e;
    }
    seq->s.path = path;
    seq->s.has_path = true;
    e = fill_seq(seq, tokens, n, &n_found);
    if (e != QUIRE_OK) {
        quire_kv_seq_close(seq);
        return e;
    }
    *out = seq;
    *n_cached = n_found;
    return QUIRE_OK;
}

quire_err quire_kv_seq_open(quire_kv *kv, const void *namespace, size_t n_namespace, const int32_t *tokens,
                            int32_t n, quire_kv_seq **out, int32_t *n_cached) {
    assert(kv != NULL);
    kv_path path;
    TRY(kv_index_enter(kv->c.index, namespace, n_namespace, &path));
    return open_at(kv, path, tokens, n, out, n_cached);
}

quire_err quire_kv_add_public(quire_kv *kv, const void *scope, size_t n_scope, const int32_t *tokens,
                              int32_t n) {
    return kv_index_add_public(kv->c.index, scope, n_scope, tokens, n);
}

quire_err quire_kv_seq_open_public(quire_kv *kv, const void *scope, size_t n_scope, const void *namespace,
                                   size_t n_namespace, const int32_t *tokens, int32_t n, quire_kv_seq **out,
                                   int32_t *n_cached) {
    assert(kv != NULL);
    kv_path path;
    TRY(kv_index_enter_public(kv->c.index, scope, n_scope, namespace, n_namespace, tokens, n, &path));
    return open_at(kv, path, tokens, n, out, n_cached);
}

void quire_kv_seq_close(quire_kv_seq *seq) {
    if (seq == NULL) {
        return;
    }
    kv_seq_release(&seq->kv->c, &seq->s, seq->tokens, KV_DROP);
    kv_seq_close(&seq->kv->c, &seq->s);
    kv_seq_deinit(&seq->s);
    seq->prev->next = seq->next;
    seq->next->prev = seq->prev;
    seq->kv->n_seqs--;
    mem_free(seq->tokens);
    mem_free(seq);
}

quire_err quire_kv_seq_append(quire_kv_seq *seq, const int32_t *tokens, int32_t n) {
    if (n < 0 || n > INT32_MAX - seq->n) {
        return QUIRE_INVALID;
    }
    if (n == 0) {
        return QUIRE_OK;
    }
    TRY(reserve_tokens(seq, seq->n + n));
    TRY(quire_kv_grow(seq, n));
    memcpy(seq->tokens + seq->n, tokens, (size_t)n * sizeof *tokens);
    seq->n += n;
    return QUIRE_OK;
}

int32_t quire_kv_seq_next_snapshot(const quire_kv_seq *seq) {
    return seq->kv->c.n_state_pages > 0 ? kv_snapshot_next(&seq->s.snapshots) : INT32_MAX;
}

quire_err quire_kv_seq_commit(quire_kv_seq *seq, int32_t n, quire_kv_commit what) {
    quire_kv *kv = seq->kv;
    if (n < 0 || n > seq->n) {
        return QUIRE_INVALID;
    }
    int32_t n_before = seq->s.n_computed;
    kv_seq_advance(&seq->s, n - n_before); /* may be negative: tokens after n are not published yet */
    if (what == QUIRE_KV_PAGES) {
        kv_seq_publish_pages(&kv->c, &seq->s, seq->tokens);
    } else {
        kv_seq_publish_tail(&kv->c, &seq->s, seq->tokens);
    }
    bool is_due = what == QUIRE_KV_PAGES_AND_TAIL || quire_kv_seq_next_snapshot(seq) <= n;
    if (kv->c.n_state_pages > 0 && n > 0 && n >= n_before && is_due) {
        bool goes_on = n < seq->n;
        if (!goes_on || reserve_copies(kv) == QUIRE_OK) {
            kv_seq_snapshot(&kv->c, &seq->s, seq->tokens, goes_on, &kv->copies);
        }
        seq->s.snapshots.last = n; /* without memory for copies this snapshot is skipped */
    }
    kv_seq_forget(&kv->c, &seq->s);
    kv_seq_advance(&seq->s, n_before > n ? n_before - n : 0);
    return QUIRE_OK;
}

quire_err quire_kv_seq_truncate(quire_kv_seq *seq, int32_t n) {
    quire_kv *kv = seq->kv;
    if (n < 0 || n > seq->n || !kv_seq_sees_back(&kv->c, &seq->s, n)) {
        return QUIRE_INVALID;
    }
    if (kv->c.n_state_pages > 0 && n > 0 && n < seq->n) {
        TRY(kv_index_restore(kv->c.index, &seq->s.path, seq->tokens, n,
                             seq->s.tables + kv->c.n_token_groups));
    }
    kv_seq_truncate(&kv->c, &seq->s, n);
    seq->n = n;
    return QUIRE_OK;
}

quire_err quire_kv_seq_fork(quire_kv_seq *seq, quire_kv_seq **out) {
    quire_kv *kv = seq->kv;
    quire_kv_seq *twin;
    if (kv->c.n_state_pages > 0 && seq->s.n_computed < seq->n) {
        return QUIRE_INVALID;
    }
    TRY(make_seq(kv, &twin));
    quire_err e = reserve_tokens(twin, seq->n);
    for (int32_t g = 0; e == QUIRE_OK && g < kv->o.n_groups; g++) {
        e = kv_table_reserve(&twin->s.tables[g], seq->s.tables[g].n_pages);
    }
    if (e != QUIRE_OK) {
        quire_kv_seq_close(twin);
        return e;
    }
    mem_copy(twin->tokens, seq->tokens, (size_t)seq->n * sizeof *seq->tokens);
    twin->n = seq->n;
    kv_seq_fork(&kv->c, &seq->s, seq->n, &twin->s);
    *out = twin;
    return QUIRE_OK;
}

quire_err quire_kv_seq_retain(quire_kv_seq *seq, const quire_kv_retention *retention) {
    kv_retention r = {retention->priority, retention->priority_us, retention->ttl_us};
    return kv_index_retain(seq->kv->c.index, &seq->s.path, &r);
}

/* ---- reading a sequence ---- */

int32_t quire_kv_seq_length(const quire_kv_seq *seq) {
    return seq->n;
}

int64_t quire_kv_seq_slot(const quire_kv_seq *seq, int32_t group, int32_t position) {
    const kv_table *t = &seq->s.tables[group];
    int32_t size = seq->kv->o.page_tokens;
    return is_state(seq->kv, group) || t->pages[position / size].v == PAGE_NONE.v
               ? -1
               : kv_table_slot(t, position, size);
}

const int32_t *quire_kv_seq_pages(const quire_kv_seq *seq, int32_t group, int32_t *n) {
    _Static_assert(sizeof(page_id) == sizeof(int32_t), "a table of pages is a table of numbers");
    *n = seq->s.tables[group].n_pages;
    return *n > 0 ? &seq->s.tables[group].pages[0].v : NULL;
}

int32_t quire_kv_copies(quire_kv *kv, const quire_kv_copy **out) {
    int32_t n = kv->copies.n;
    for (int32_t i = 0; i < n; i++) {
        kv->taken[i] = (quire_kv_copy){kv->copies.pairs[i].src.v, kv->copies.pairs[i].dst.v};
    }
    kv->copies.n = 0;
    *out = kv->taken;
    return n;
}

/* ---- the whole cache ---- */

quire_kv_counts quire_kv_count(const quire_kv *kv) {
    assert(kv != NULL);
    kv_counts c = kv_pool_counts(kv->c.pool);
    return (quire_kv_counts){.n_pages = c.n_pages,
                             .n_free = c.n_free,
                             .n_held = c.n_held,
                             .n_cached = c.n_cached,
                             .n_seqs = kv->n_seqs,
                             .n_namespaces = kv_index_count(kv->c.index).n_namespaces,
                             .n_snapshots = kv_index_count(kv->c.index).n_snapshots};
}

void quire_kv_set_time(quire_kv *kv, int64_t now_us) {
    kv_index_set_time(kv->c.index, now_us);
}

void quire_kv_clear(quire_kv *kv) {
    kv_index_clear(kv->c.index);
}

quire_err quire_kv_check(const quire_kv *kv, quire_error *err) {
    assert(kv != NULL);
    int32_t n = 0;
    const kv_table **tables = mem_new((size_t)kv->n_seqs * (size_t)kv->o.n_groups, sizeof *tables);
    TRY(mem_check_for(tables, "the audit", err));
    for (const quire_kv_seq *seq = kv->open.next; seq != &kv->open; seq = seq->next) {
        n += kv_seq_list_tables(&seq->s, tables + n);
    }
    quire_err e = kv_cache_check(&kv->c, tables, n, err);
    mem_free(tables);
    return e;
}

/* ---- snapshots of the whole cache ---- */

int64_t quire_kv_seq_id(const quire_kv_seq *seq) {
    return seq->id;
}

void quire_kv_look(const quire_kv *kv, quire_kv_view *v) {
    kv_view_begin(v, kv->c.pool, kv->o.page_tokens, kv->c.n_token_groups);
    for (const quire_kv_seq *seq = kv->open.next; seq != &kv->open; seq = seq->next) {
        kv_view_seq(v, seq->id, (str){"", 0}, QUIRE_KV_OPEN, seq->tokens, seq->s.tables, kv->o.n_groups);
    }
    kv_view_end(v, kv->c.index, kv->c.events);
}

quire_err quire_kv_evict(quire_kv *kv, int32_t n) {
    return kv_index_evict(kv->c.index, n);
}
