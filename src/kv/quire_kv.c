/* Implements quire_kv.h over pool, tables and index: sequences with their copies, for users without an engine. */
#include "quire_kv.h"

#include <string.h>

#include "base/mem.h"
#include "kv/check.h"
#include "kv/snapshot.h"
#include "kv/view.h"

struct quire_kv_seq {
    quire_kv *kv;
    quire_kv_seq *prev, *next; /* in the ring of open sequences */
    kv_path path;
    kv_table *tables; /* [n_groups] */
    int32_t *tokens;
    size_t cap_tokens;
    int32_t n, n_committed;
    kv_snapshot_plan plan; /* with state groups */
    int64_t id;
};

struct quire_kv {
    quire_kv_options o;
    kv_pool *pool;
    kv_events *events; /* NULL: none are kept */
    kv_index *ix;
    quire_kv_seq open; /* the head of the ring, which is no sequence */
    int32_t n_seqs;
    int64_t n_opened;
    int32_t n_token_groups; /* the first groups; the others are of states */
    int32_t n_state_pages;  /* of one sequence */
    kv_copies copies;
    quire_kv_copy *taken; /* what quire_kv_copies returned last; grown with copies, so that returning them cannot fail */
    size_t cap_taken;
    page_id *fresh; /* the pages of one append, for all groups */
    size_t cap_fresh;
};

void quire_kv_options_init(quire_kv_options *o) {
    *o = (quire_kv_options){.page_tokens = 16, .n_groups = 1, .max_seqs = 256, .max_namespaces = 1024};
}

static bool options_are_valid(const quire_kv_options *o) {
    bool valid = o->page_tokens >= 1 && o->page_tokens <= KV_MAX_PAGE_TOKENS && (o->page_tokens & (o->page_tokens - 1)) == 0 &&
                 o->n_groups >= 1 && o->n_groups <= QUIRE_KV_MAX_GROUPS && o->max_seqs >= 1 && o->max_namespaces >= 1 && o->n_events >= 0 &&
                 o->policy >= QUIRE_KV_LRU && o->policy <= QUIRE_KV_LEARNED &&
                 (o->granularity == QUIRE_KV_TOKEN || o->granularity == QUIRE_KV_PAGE);
    for (int32_t g = 0; valid && g < o->n_groups; g++) {
        valid = o->windows[g] >= 0;
    }
    return valid;
}

/* Finds the state groups. */
static quire_err count_states(quire_kv *kv, kv_index_options *io) {
    const quire_kv_options *o = &kv->o;
    int64_t n_state_pages = 0;
    for (int32_t g = 0; g < o->n_groups; g++) {
        if (o->state_pages[g] < 0 || (o->state_pages[g] > 0 ? o->windows[g] > 0 : kv->n_token_groups < g)) {
            return QUIRE_INVALID;
        }
        kv->n_token_groups += o->state_pages[g] == 0;
        n_state_pages += o->state_pages[g];
    }
    if (n_state_pages > o->n_pages || o->snapshot_tokens < 0 || o->snapshot_pages < 0 ||
        (o->snapshot_pages > 0 && o->snapshot_pages < n_state_pages)) {
        return QUIRE_INVALID;
    }
    kv->n_state_pages = (int32_t)n_state_pages;
    io->n_groups = kv->n_token_groups;
    io->n_state_groups = o->n_groups - kv->n_token_groups;
    memcpy(io->state_pages, o->state_pages + io->n_groups, (size_t)io->n_state_groups * sizeof *io->state_pages);
    io->max_snapshots = n_state_pages > 0 ? o->snapshot_pages / kv->n_state_pages : 0;
    return QUIRE_OK;
}

quire_err quire_kv_open(const quire_kv_options *o, quire_kv **out) {
    _Static_assert((int)QUIRE_KV_LRU == (int)KV_EVICT_LRU && (int)QUIRE_KV_LFU == (int)KV_EVICT_LFU &&
                       (int)QUIRE_KV_GDSF == (int)KV_EVICT_GDSF && (int)QUIRE_KV_LEARNED == (int)KV_EVICT_LEARNED,
                   "the public policies are the room's");
    _Static_assert(QUIRE_KV_MAX_GROUPS == KV_MAX_GROUPS, "the public limit is the room's");
    if (!options_are_valid(o)) {
        return QUIRE_INVALID;
    }
    quire_kv *kv = mem_new(1, sizeof *kv);
    if (kv == NULL) {
        return QUIRE_NO_MEMORY;
    }
    kv->o = *o;
    kv->open.prev = kv->open.next = &kv->open;
    kv_index_options io = {
        .page_tokens = o->page_tokens, .max_namespaces = o->max_namespaces, .seed = o->seed, .policy = (kv_policy)o->policy};
    io.granularity = o->granularity == QUIRE_KV_TOKEN ? KV_GRANULARITY_TOKEN : KV_GRANULARITY_PAGE;
    memcpy(io.windows, o->windows, sizeof io.windows);
    quire_err e = count_states(kv, &io);
    if (e == QUIRE_OK) {
        e = kv_pool_open(o->n_pages, &kv->pool);
    }
    if (e == QUIRE_OK && o->n_events > 0) {
        e = kv_events_open(o->n_events, o->page_tokens, &kv->events);
        io.events = kv->events;
    }
    if (e == QUIRE_OK) {
        e = kv_index_open(kv->pool, &io, &kv->ix);
    }
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
    kv_index_close(kv->ix);
    kv_events_close(kv->events);
    kv_pool_close(kv->pool);
    mem_free(kv->copies.pairs);
    mem_free(kv->taken);
    mem_free(kv->fresh);
    mem_free(kv);
}

/* ---- sequences ---- */

/* Makes an empty sequence, in the ring, without a path in the tree. */
static quire_err make_seq(quire_kv *kv, quire_kv_seq **out) {
    if (kv->n_seqs == kv->o.max_seqs) {
        return QUIRE_NO_ROOM;
    }
    quire_kv_seq *seq = mem_new(1, sizeof *seq);
    kv_table *tables = mem_new((size_t)kv->o.n_groups, sizeof *tables);
    if (seq == NULL || tables == NULL) {
        mem_free(seq);
        mem_free(tables);
        return QUIRE_NO_MEMORY;
    }
    *seq = (quire_kv_seq){.kv = kv, .prev = kv->open.prev, .next = &kv->open, .tables = tables, .id = ++kv->n_opened};
    seq->prev->next = seq->next->prev = seq;
    kv->n_seqs++;
    *out = seq;
    return QUIRE_OK;
}

/* Frees it; its pages are released before. */
static void free_seq(quire_kv_seq *seq) {
    for (int32_t g = 0; g < seq->kv->o.n_groups; g++) {
        kv_table_deinit(seq->kv->pool, &seq->tables[g]);
    }
    seq->prev->next = seq->next;
    seq->next->prev = seq->prev;
    seq->kv->n_seqs--;
    mem_free(seq->tables);
    mem_free(seq->tokens);
    mem_free(seq);
}

static quire_err reserve_tokens(quire_kv_seq *seq, int32_t n) {
    void *p = seq->tokens;
    bool ok = mem_grow_(&p, &seq->cap_tokens, (size_t)n, sizeof *seq->tokens);
    seq->tokens = p;
    return ok ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static bool is_state(const quire_kv *kv, int32_t g) {
    return g >= kv->n_token_groups;
}

/* Reserves memory for one more copy a group, and of a whole state, here and in the list that is returned. */
static quire_err reserve_copies(quire_kv *kv) {
    size_t n = (size_t)kv->copies.n + (size_t)kv->n_token_groups + (size_t)kv->n_state_pages, cap = (size_t)kv->copies.cap;
    void *pairs = kv->copies.pairs, *taken = kv->taken;
    bool ok = mem_grow_(&pairs, &cap, n, sizeof *kv->copies.pairs);
    kv->copies.pairs = pairs;
    kv->copies.cap = (int32_t)cap;
    ok = ok && mem_grow_(&taken, &kv->cap_taken, n, sizeof *kv->taken);
    kv->taken = taken;
    return ok ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Pages that n more tokens of a sequence take in group g. */
static int32_t needs_of(const quire_kv_seq *seq, int32_t g, int32_t n) {
    const quire_kv *kv = seq->kv;
    return is_state(kv, g) ? kv_table_state_needs(kv->pool, &seq->tables[g], kv->o.state_pages[g])
                           : kv_table_needs(kv->pool, &seq->tables[g], n, kv->o.page_tokens);
}

static int64_t needs_of_all(const quire_kv_seq *seq, int32_t n) {
    int64_t needs = 0;
    for (int32_t g = 0; g < seq->kv->o.n_groups; g++) {
        needs += needs_of(seq, g, n);
    }
    return needs;
}

/* Reserves memory for n ids in kv->fresh. */
static quire_err reserve_fresh(quire_kv *kv, int32_t n) {
    void *fresh = kv->fresh;
    bool ok = mem_grow_(&fresh, &kv->cap_fresh, (size_t)n, sizeof *kv->fresh);
    kv->fresh = fresh;
    return ok ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Grows all tables by n tokens behind those that have pages. What may fail comes before what changes. */
static quire_err grow(quire_kv_seq *seq, int32_t n) {
    quire_kv *kv = seq->kv;
    kv_counts c = kv_pool_counts(kv->pool);
    TRY(reserve_copies(kv));
    if (kv->n_state_pages > 0 && needs_of_all(seq, n) > c.n_free + c.n_cached) {
        kv_index_take_over(kv->ix, seq->tables + kv->n_token_groups); /* so that reuse never needs more pages than a cold start */
    }
    int64_t needs = needs_of_all(seq, n);
    if (needs > kv->o.n_pages) {
        return QUIRE_NO_ROOM;
    }
    for (int32_t g = 0; g < kv->o.n_groups; g++) {
        TRY(kv_table_reserve(&seq->tables[g], seq->tables[g].n_pages + needs_of(seq, g, n)));
    }
    TRY(reserve_fresh(kv, (int32_t)needs));
    TRY(kv_index_evict(kv->ix, (int32_t)needs));
    needs = needs_of_all(seq, n); /* fewer, if a snapshot was dropped that shared its states */
    TRY(kv_pool_reserve(kv->pool, (int32_t)needs, kv->fresh));
    const page_id *ids = kv->fresh;
    for (int32_t g = 0; g < kv->o.n_groups; g++) {
        kv_table *t = &seq->tables[g];
        int32_t n_ids = needs_of(seq, g, n);
        if (is_state(kv, g)) {
            kv_table_state_append(kv->pool, t, n, kv->o.state_pages[g], &kv->copies, ids);
        } else {
            kv_table_append_reserved(kv->pool, t, n, kv->o.page_tokens, &kv->copies, ids);
        }
        ids += n_ids;
    }
    return QUIRE_OK;
}

/* Fills an empty sequence: cached pages first, then new pages for the rest. */
static quire_err fill_seq(quire_kv_seq *seq, const int32_t *tokens, int32_t n, int32_t *n_cached) {
    TRY(reserve_tokens(seq, n));
    TRY(kv_index_match(seq->kv->ix, &seq->path, tokens, n - 1, seq->tables, n_cached));
    TRY(grow(seq, n - *n_cached));
    if (seq->kv->n_state_pages > 0) {
        seq->plan = (kv_snapshot_plan){.branch = kv_index_agreed(seq->kv->ix, &seq->path, tokens, n - 1),
                                       .prompt_end = n - 1,
                                       .interval = seq->kv->o.snapshot_tokens,
                                       .last = *n_cached};
    }
    seq->n_committed = *n_cached;
    memcpy(seq->tokens, tokens, (size_t)n * sizeof *tokens);
    seq->n = n;
    return QUIRE_OK;
}

/* Opens the sequence at path, which it owns: the path is left when this fails. */
static quire_err open_at(quire_kv *kv, kv_path path, const int32_t *tokens, int32_t n, quire_kv_seq **out, int32_t *n_cached) {
    quire_kv_seq *seq;
    int32_t n_found = 0;
    quire_err e = n < 1 ? QUIRE_INVALID : make_seq(kv, &seq);
    if (e != QUIRE_OK) {
        kv_index_leave(kv->ix, &path);
        return e;
    }
    seq->path = path;
    e = fill_seq(seq, tokens, n, &n_found);
    if (e != QUIRE_OK) {
        quire_kv_seq_close(seq);
        return e;
    }
    *out = seq;
    *n_cached = n_found;
    return QUIRE_OK;
}

quire_err quire_kv_seq_open(quire_kv *kv, const void *namespace, size_t n_namespace, const int32_t *tokens, int32_t n, quire_kv_seq **out,
                            int32_t *n_cached) {
    kv_path path;
    TRY(kv_index_enter(kv->ix, namespace, n_namespace, &path));
    return open_at(kv, path, tokens, n, out, n_cached);
}

quire_err quire_kv_add_public(quire_kv *kv, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n) {
    return kv_index_add_public(kv->ix, scope, n_scope, tokens, n);
}

quire_err quire_kv_seq_open_public(quire_kv *kv, const void *scope, size_t n_scope, const void *namespace, size_t n_namespace,
                                   const int32_t *tokens, int32_t n, quire_kv_seq **out, int32_t *n_cached) {
    kv_path path;
    TRY(kv_index_enter_public(kv->ix, scope, n_scope, namespace, n_namespace, tokens, n, &path));
    return open_at(kv, path, tokens, n, out, n_cached);
}

void quire_kv_seq_close(quire_kv_seq *seq) {
    if (seq != NULL) {
        kv_index *ix = seq->kv->ix;
        kv_path path = seq->path;
        free_seq(seq);
        kv_index_leave(ix, &path);
    }
}

quire_err quire_kv_seq_append(quire_kv_seq *seq, const int32_t *tokens, int32_t n) {
    if (n < 0 || n > INT32_MAX - seq->n) {
        return QUIRE_INVALID;
    }
    if (n == 0) {
        return QUIRE_OK;
    }
    TRY(reserve_tokens(seq, seq->n + n));
    TRY(grow(seq, n));
    memcpy(seq->tokens + seq->n, tokens, (size_t)n * sizeof *tokens);
    seq->n += n;
    return QUIRE_OK;
}

/* The first position that group g attends to from position n. */
static int32_t first_seen(const quire_kv *kv, int32_t g, int32_t n) {
    int32_t window = kv->o.windows[g];
    return window == 0 || n < window ? 0 : n - window + 1;
}

int32_t quire_kv_seq_next_snapshot(const quire_kv_seq *seq) {
    return seq->kv->n_state_pages > 0 ? kv_snapshot_next(&seq->plan) : INT32_MAX;
}

/* Reserves pages for a whole state in kv->fresh, and room for their copies. Evicts nothing when that would not suffice. */
static quire_err reserve_states(quire_kv *kv) {
    kv_counts c = kv_pool_counts(kv->pool);
    TRY(reserve_copies(kv));
    TRY(reserve_fresh(kv, kv->n_state_pages));
    if (c.n_free + c.n_cached < kv->n_state_pages) {
        return QUIRE_NO_ROOM;
    }
    TRY(kv_index_evict(kv->ix, kv->n_state_pages));
    return kv_pool_reserve(kv->pool, kv->n_state_pages, kv->fresh);
}

/* Takes a snapshot of the states after n tokens, if there is room. Tokens that have slots already are computed without another append, so
 * the sequence gets states of its own for them here. */
static void keep_states(quire_kv_seq *seq, int32_t n) {
    quire_kv *kv = seq->kv;
    bool goes_on = n < seq->n;
    if (goes_on && reserve_states(kv) != QUIRE_OK) {
        return;
    }
    (void)kv_index_snapshot(kv->ix, &seq->path, seq->tokens, n, seq->tables); /* a full tree only means less reuse */
    int32_t n_used = 0;
    for (int32_t g = kv->n_token_groups; goes_on && g < kv->o.n_groups; g++) {
        int32_t n_ids = needs_of(seq, g, 0);
        kv_table_state_append(kv->pool, &seq->tables[g], 0, kv->o.state_pages[g], &kv->copies, kv->fresh + n_used);
        n_used += n_ids;
    }
    kv_pool_release_all(kv->pool, kv->fresh + n_used, goes_on ? kv->n_state_pages - n_used : 0);
}

quire_err quire_kv_seq_commit(quire_kv_seq *seq, int32_t n, quire_kv_commit what) {
    quire_kv *kv = seq->kv;
    if (n < 0 || n > seq->n) {
        return QUIRE_INVALID;
    }
    kv_publish_what publish = what == QUIRE_KV_PAGES ? KV_PUBLISH_PAGES : KV_PUBLISH_TAIL;
    (void)kv_index_publish(kv->ix, &seq->path, seq->tokens, n, seq->tables, publish); /* a full tree only means less reuse */
    bool is_due = what == QUIRE_KV_PAGES_AND_TAIL || quire_kv_seq_next_snapshot(seq) <= n;
    if (kv->n_state_pages > 0 && n > 0 && n >= seq->n_committed && is_due) {
        keep_states(seq, n);
        seq->plan.last = n;
    }
    for (int32_t g = 0; g < kv->n_token_groups; g++) {
        kv_table_forget(kv->pool, &seq->tables[g], first_seen(kv, g, n), kv->o.page_tokens);
    }
    seq->n_committed = n > seq->n_committed ? n : seq->n_committed;
    return QUIRE_OK;
}

quire_err quire_kv_seq_truncate(quire_kv_seq *seq, int32_t n) {
    const quire_kv *kv = seq->kv;
    if (n < 0 || n > seq->n) {
        return QUIRE_INVALID;
    }
    for (int32_t g = 0; g < kv->n_token_groups; g++) {
        int32_t first = first_seen(kv, g, n);
        if (first < n && seq->tables[g].pages[first / kv->o.page_tokens].v == PAGE_NONE.v) {
            return QUIRE_INVALID;
        }
    }
    if (kv->n_state_pages > 0 && n > 0 && n < seq->n) {
        TRY(kv_index_restore(kv->ix, &seq->path, seq->tokens, n, seq->tables + kv->n_token_groups));
    }
    for (int32_t g = kv->n_token_groups; n == 0 && g < kv->o.n_groups; g++) {
        kv_table_clear(kv->pool, &seq->tables[g]);
    }
    for (int32_t g = 0; g < kv->n_token_groups; g++) {
        kv_table_truncate(kv->pool, &seq->tables[g], n, kv->o.page_tokens);
    }
    kv_index_truncate(kv->ix, &seq->path, n);
    seq->n = n;
    seq->n_committed = n < seq->n_committed ? n : seq->n_committed;
    seq->plan.last = n < seq->plan.last ? n : seq->plan.last;
    return QUIRE_OK;
}

quire_err quire_kv_seq_fork(quire_kv_seq *seq, quire_kv_seq **out) {
    quire_kv *kv = seq->kv;
    quire_kv_seq *twin;
    if (kv->n_state_pages > 0 && seq->n_committed < seq->n) {
        return QUIRE_INVALID;
    }
    TRY(make_seq(kv, &twin));
    quire_err e = reserve_tokens(twin, seq->n);
    for (int32_t g = 0; e == QUIRE_OK && g < kv->o.n_groups; g++) {
        e = kv_table_fork(kv->pool, &seq->tables[g], &twin->tables[g]);
    }
    if (e != QUIRE_OK) {
        free_seq(twin);
        return e;
    }
    if (seq->n > 0) {
        memcpy(twin->tokens, seq->tokens, (size_t)seq->n * sizeof *seq->tokens);
    }
    twin->n = seq->n;
    twin->n_committed = seq->n_committed;
    twin->plan = seq->plan;
    twin->path = kv_index_fork(kv->ix, &seq->path);
    *out = twin;
    return QUIRE_OK;
}

quire_err quire_kv_seq_retain(quire_kv_seq *seq, const quire_kv_retention *retention) {
    kv_retention r = {retention->priority, retention->priority_us, retention->ttl_us};
    return kv_index_retain(seq->kv->ix, &seq->path, &r);
}

/* ---- reading a sequence ---- */

int32_t quire_kv_seq_length(const quire_kv_seq *seq) {
    return seq->n;
}

int64_t quire_kv_seq_slot(const quire_kv_seq *seq, int32_t group, int32_t position) {
    const kv_table *t = &seq->tables[group];
    int32_t size = seq->kv->o.page_tokens;
    return is_state(seq->kv, group) || t->pages[position / size].v == PAGE_NONE.v ? -1 : kv_table_slot(t, position, size);
}

const int32_t *quire_kv_seq_pages(const quire_kv_seq *seq, int32_t group, int32_t *n) {
    _Static_assert(sizeof(page_id) == sizeof(int32_t), "a table of pages is a table of numbers");
    *n = seq->tables[group].n_pages;
    return *n > 0 ? &seq->tables[group].pages[0].v : NULL;
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
    kv_counts c = kv_pool_counts(kv->pool);
    return (quire_kv_counts){.n_pages = c.n_pages,
                             .n_free = c.n_free,
                             .n_held = c.n_held,
                             .n_cached = c.n_cached,
                             .n_seqs = kv->n_seqs,
                             .n_namespaces = kv_index_count(kv->ix).n_namespaces,
                             .n_snapshots = kv_index_count(kv->ix).n_snapshots};
}

void quire_kv_set_time(quire_kv *kv, int64_t now_us) {
    kv_index_set_time(kv->ix, now_us);
}

void quire_kv_clear(quire_kv *kv) {
    kv_index_clear(kv->ix);
}

quire_err quire_kv_check(const quire_kv *kv, quire_error *err) {
    int32_t n = 0;
    const kv_table **tables = mem_new((size_t)kv->n_seqs * (size_t)kv->o.n_groups, sizeof *tables);
    if (tables == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the audit");
    }
    for (const quire_kv_seq *seq = kv->open.next; seq != &kv->open; seq = seq->next) {
        for (int32_t g = 0; g < kv->o.n_groups; g++) {
            tables[n++] = &seq->tables[g];
        }
    }
    quire_err e = kv_check(kv->pool, tables, n, NULL, 0, err);
    mem_free(tables);
    return e != QUIRE_OK ? e : kv_index_check(kv->ix, err);
}

/* ---- snapshots of the whole cache ---- */

int64_t quire_kv_seq_id(const quire_kv_seq *seq) {
    return seq->id;
}

void quire_kv_look(const quire_kv *kv, quire_kv_view *v) {
    kv_view_begin(v, kv->pool, kv->o.page_tokens, kv->n_token_groups);
    for (const quire_kv_seq *seq = kv->open.next; seq != &kv->open; seq = seq->next) {
        kv_view_seq(v, seq->id, (str){"", 0}, QUIRE_KV_OPEN, seq->tokens, seq->tables, kv->o.n_groups);
    }
    kv_view_end(v, kv->ix, kv->events);
}

quire_err quire_kv_evict(quire_kv *kv, int32_t n) {
    return kv_index_evict(kv->ix, n);
}
