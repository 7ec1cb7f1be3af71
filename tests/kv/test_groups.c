/* Groups of every kind in one pool and one index: random sequences beside a naive model
 * that tries every prefix. Memory is played too: a slot holds a number made of the whole
 * prefix up to its token, and so does every page of a state; so a page that is reused or
 * overwritten wrongly is found out by its content. */
#include <stdbool.h>
#include <string.h>

#include "../core/layer_plan.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kv/audit.h"
#include "kv/index.h"
#include "kv/snapshot.h"
#include "test.h"

enum {
    N_SEQS = 6,
    MAX_TOKENS = 256,
    MAX_GROUPS = 8,
    MAX_PAGES = 512,
    N_NAMESPACES = 2,
    MAX_STATE_PAGES = 16
};

static const char *const namespaces[N_NAMESPACES] = {"a", "b"};

typedef struct seq {
    bool live;
    int32_t namespace;
    kv_path path;
    kv_table tables[MAX_GROUPS];
    kv_snapshot_plan plan;
    int32_t n; /* computed; tables may have slots for more */
    int32_t tokens[MAX_TOKENS];
} seq;

/* What a page held when it was indexed: a prefix, in a namespace, of a group; of a state
 * also which of its pages. Valid while it is indexed. */
typedef struct record {
    int32_t namespace, group, part, n;
    int32_t tokens[MAX_TOKENS];
} record;

typedef struct world {
    kv_index_options o;
    int32_t n_groups, n_state_pages; /* all groups; pages of one sequence's states */
    kv_pool *pool;
    kv_index *ix;
    uint64_t *slots;
    kv_copies copies;
    seq seqs[N_SEQS];
    record records[MAX_PAGES];
    int64_t n_matches, n_exact, n_reused, n_tail_matches;
    int32_t most_snapshots;
} world;

/* ---- a world ---- */

static bool is_state(const world *w, int32_t g) {
    return g >= w->o.n_groups;
}

static int32_t state_pages(const world *w, int32_t g) {
    return w->o.state_pages[g - w->o.n_groups];
}

static void open_world(world *w, int32_t n_pages, const kv_index_options *o) {
    memset(w, 0, sizeof *w);
    w->o = *o;
    w->o.max_namespaces = 4;
    w->o.seed = 1;
    w->o.max_entries = 16 * n_pages;
    w->n_groups = o->n_groups + o->n_state_groups;
    for (int32_t g = 0; g < o->n_state_groups; g++) {
        w->n_state_pages += o->state_pages[g];
    }
    assert_int_equal(kv_pool_open(n_pages, &w->pool), QUIRE_OK);
    assert_int_equal(kv_index_open(w->pool, &w->o, &w->ix), QUIRE_OK);
    w->slots = mem_new((size_t)n_pages * (size_t)o->page_tokens, sizeof *w->slots);
    w->copies.cap = w->n_groups + w->n_state_pages;
    w->copies.pairs = mem_new((size_t)w->copies.cap, sizeof *w->copies.pairs);
}

/* The options that a model's layout asks for. */
static kv_index_options options_of(const kv_layout *l) {
    kv_index_options o = {.page_tokens = l->page_tokens};
    for (int32_t g = 0; g < l->n_groups; g++) {
        if (l->groups[g].kind == LAYER_STATE) {
            o.state_pages[o.n_state_groups++] = l->groups[g].state_pages;
        } else {
            o.windows[o.n_groups++] = l->groups[g].window;
        }
    }
    return o;
}

static uint64_t next_hash(uint64_t h, int32_t token) {
    return (h + (uint64_t)token + 1) * 0x9E3779B97F4A7C15u;
}

static uint64_t hash_of(const int32_t *tokens, int32_t n) {
    uint64_t h = 0;
    for (int32_t p = 0; p < n; p++) {
        h = next_hash(h, tokens[p]);
    }
    return h;
}

static uint64_t *page_at(const world *w, page_id page) {
    return &w->slots[(int64_t)page.v * w->o.page_tokens];
}

/* ---- audits ---- */

static int32_t first_seen(const world *w, int32_t g, int32_t n) {
    int32_t window = is_state(w, g) ? 0 : w->o.windows[g];
    return window == 0 || n < window ? 0 : n - window + 1;
}

/* A sequence finds its own content; what lies behind a window was given back, and nothing
 * else. */
static void check_seq(const world *w, const seq *s) {
    const int32_t size = w->o.page_tokens;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        uint64_t h = 0;
        for (int32_t p = 0; p < s->n; p++) {
            h = next_hash(h, s->tokens[p]);
            bool is_gone = s->tables[g].pages[p / size].v == PAGE_NONE.v,
                 is_behind = (p / size + 1) * size <= first_seen(w, g, s->n);
            assert_int_equal(is_gone, is_behind);
            if (!is_gone && w->slots[kv_table_slot(&s->tables[g], p, size)] != h + (uint64_t)g) {
                fail_msg("position %d of group %d holds something else", p, g);
            }
        }
    }
    uint64_t h = hash_of(s->tokens, s->n);
    for (int32_t g = w->o.n_groups; g < w->n_groups; g++) {
        assert_int_equal(s->tables[g].n_pages, s->tables[g].n_tokens == 0 ? 0 : state_pages(w, g));
        for (int32_t i = 0; s->n > 0 && i < s->tables[g].n_pages; i++) {
            if (*page_at(w, s->tables[g].pages[i]) != h + (uint64_t)(g + i)) {
                fail_msg("page %d of the state of group %d is not that after %d tokens", i, g, s->n);
            }
        }
    }
}

static void check_world(world *w) {
    const kv_table *tables[N_SEQS * MAX_GROUPS];
    int32_t n = 0;
    quire_error err = {.message = ""};
    for (int32_t i = 0; i < N_SEQS; i++) {
        for (int32_t g = 0; w->seqs[i].live && g < w->n_groups; g++) {
            tables[n++] = &w->seqs[i].tables[g];
        }
        if (w->seqs[i].live) {
            check_seq(w, &w->seqs[i]);
        }
    }
    if (kv_check(w->pool, tables, n, NULL, 0, &err) != QUIRE_OK || kv_index_check(w->ix, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    int32_t n_snapshots = kv_index_count(w->ix).n_snapshots;
    assert_true(w->o.max_snapshots == 0 || n_snapshots <= w->o.max_snapshots);
    w->most_snapshots = n_snapshots > w->most_snapshots ? n_snapshots : w->most_snapshots;
}

/* ---- the naive model ---- */

static void note(world *w, const seq *s, page_id page, int32_t g, int32_t part, int32_t n) {
    record *r = &w->records[page.v];
    *r = (record){.namespace = s->namespace, .group = g, .part = part, .n = n};
    memcpy(r->tokens, s->tokens, (size_t)n * sizeof *r->tokens);
}

static bool is_indexed(const world *w, page_id page) {
    return page.v != PAGE_NONE.v && kv_pool_entry(w->pool, page) >= 0;
}

/* What of a sequence's pages can be found now that could not before; fresh_tail: its
 * part-filled page of n tokens among them. */
static void note_published(world *w, const seq *s, int32_t n, const bool *fresh_tail) {
    const int32_t size = w->o.page_tokens;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        for (int32_t i = 0; i < s->path.n_pages; i++) {
            if (is_indexed(w, s->tables[g].pages[i])) {
                note(w, s, s->tables[g].pages[i], g, 0, (i + 1) * size);
            }
        }
        if (n % size != 0 && fresh_tail[g] && is_indexed(w, s->tables[g].pages[n / size])) {
            note(w, s, s->tables[g].pages[n / size], g, 0, n);
        }
    }
}

/* Whether publishing a tail of n tokens will say something new of the page it lies in: a
 * page that is shared with others holds more already. */
static void find_fresh(const world *w, const seq *s, int32_t n, bool *fresh_tail) {
    for (int32_t g = 0; g < w->o.n_groups && n % w->o.page_tokens != 0; g++) {
        page_id page = s->tables[g].pages[n / w->o.page_tokens];
        fresh_tail[g] = !is_indexed(w, page) || w->records[page.v].n < n;
    }
}

/* Whether an indexed page of group g is found by tokens[0..n): of a state exactly there,
 * else by whatever follows in the page. */
static bool holds(const world *w, int32_t namespace, int32_t g, int32_t part, const int32_t *tokens,
                  int32_t n) {
    int32_t size = w->o.page_tokens, last = (n - 1) / size;
    for (int32_t page = 0; page < kv_pool_counts(w->pool).n_pages; page++) {
        const record *r = &w->records[page];
        bool fits = is_state(w, g) ? r->n == n : r->n >= n && (r->n - 1) / size == last;
        if (fits && r->namespace == namespace && r->group == g && r->part == part &&
            is_indexed(w, (page_id){page}) && memcmp(r->tokens, tokens, (size_t)n * sizeof *tokens) == 0) {
            return true;
        }
    }
    return false;
}

static bool reaches(const world *w, int32_t namespace, const int32_t *tokens, int32_t n) {
    int32_t size = w->o.page_tokens;
    for (int32_t g = w->n_groups - 1; g >= 0; g--) {
        for (int32_t i = 0; is_state(w, g) && i < state_pages(w, g); i++) {
            if (!holds(w, namespace, g, i, tokens, n)) {
                return false;
            }
        }
        for (int32_t i = first_seen(w, g, n) / size; !is_state(w, g) && i * size < n; i++) {
            if (!holds(w, namespace, g, 0, tokens, (i + 1) * size < n ? (i + 1) * size : n)) {
                return false;
            }
        }
    }
    return true;
}

static int32_t longest(const world *w, int32_t namespace, const int32_t *tokens, int32_t n,
                       bool whole_pages) {
    while (n > 0 && ((whole_pages && n % w->o.page_tokens != 0) || !reaches(w, namespace, tokens, n))) {
        n--;
    }
    return n;
}

/* With windows the model knows better inside the last page: of siblings that agree
 * equally, the tree may take one that lacks a page. */
static void expect_match(world *w, const seq *s, int32_t n, int32_t found) {
    int32_t most = longest(w, s->namespace, s->tokens, n, false);
    bool has_windows = false;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        has_windows = has_windows || w->o.windows[g] > 0;
    }
    if (!has_windows || found == most) {
        assert_int_equal(found, most);
    } else {
        assert_in_range(found, longest(w, s->namespace, s->tokens, n, true), most);
    }
    w->n_matches++;
    w->n_exact += found == most;
    w->n_tail_matches += found % w->o.page_tokens != 0;
}

/* ---- what sequences do ---- */

static void copy_pages(world *w) {
    for (int32_t i = 0; i < w->copies.n; i++) {
        memcpy(page_at(w, w->copies.pairs[i].dst), page_at(w, w->copies.pairs[i].src),
               (size_t)w->o.page_tokens * sizeof *w->slots);
    }
    w->copies.n = 0;
}

/* n more tokens go into the state of group g; there are free pages. */
static void append_state(world *w, seq *s, int32_t g, int32_t n) {
    page_id ids[MAX_STATE_PAGES];
    int32_t needs = kv_table_state_needs(w->pool, &s->tables[g], state_pages(w, g));
    assert_int_equal(kv_pool_reserve(w->pool, needs, ids), QUIRE_OK);
    assert_int_equal(kv_table_reserve(&s->tables[g], state_pages(w, g)), QUIRE_OK);
    kv_table_state_append(w->pool, &s->tables[g], n, state_pages(w, g), &w->copies, ids);
}

static bool append(world *w, seq *s, int32_t n) {
    int32_t needs = 0;
    for (int32_t g = 0; g < w->n_groups; g++) {
        needs += is_state(w, g) ? kv_table_state_needs(w->pool, &s->tables[g], state_pages(w, g))
                                : kv_table_needs(w->pool, &s->tables[g], n, w->o.page_tokens);
    }
    if (kv_index_evict(w->ix, needs) != QUIRE_OK) {
        return false;
    }
    for (int32_t g = 0; g < w->n_groups; g++) {
        if (is_state(w, g)) {
            append_state(w, s, g, n);
        } else {
            assert_int_equal(kv_table_append(w->pool, &s->tables[g], n, w->o.page_tokens, &w->copies),
                             QUIRE_OK);
        }
    }
    copy_pages(w);
    return true;
}

/* Keeps the state after s's n tokens. Where s has slots for more, it gets a state of its
 * own to go on with. */
static void take_snapshot(world *w, seq *s) {
    bool goes_on = s->n < s->tables[0].n_tokens, fresh[MAX_GROUPS] = {false};
    if (goes_on && kv_index_evict(w->ix, w->n_state_pages) != QUIRE_OK) {
        return;
    }
    find_fresh(w, s, s->n, fresh);
    quire_err e =
        kv_index_snapshot(w->ix, &s->path, s->tokens, s->n, s->n, s->tables, s->tables + w->o.n_groups);
    assert_true(e == QUIRE_OK || e == QUIRE_NO_ROOM);
    note_published(w, s, s->n, fresh);
    for (int32_t g = w->o.n_groups; g < w->n_groups; g++) {
        for (int32_t i = 0; i < state_pages(w, g); i++) {
            if (is_indexed(w, s->tables[g].pages[i])) {
                note(w, s, s->tables[g].pages[i], g, i, s->n);
            }
        }
        if (goes_on) {
            append_state(w, s, g, 0);
        }
    }
    copy_pages(w);
}

/* Writes what positions s->n..n make of the memory. No one else may see a page that is
 * written. */
static void write_chunk(world *w, seq *s, int32_t n) {
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        uint64_t h = hash_of(s->tokens, s->n);
        for (int32_t p = s->n; p < n; p++) {
            h = next_hash(h, s->tokens[p]);
            w->slots[kv_table_slot(&s->tables[g], p, w->o.page_tokens)] = h + (uint64_t)g;
        }
    }
    for (int32_t g = w->o.n_groups; g < w->n_groups; g++) {
        for (int32_t i = 0; i < s->tables[g].n_pages; i++) {
            assert_false(kv_pool_is_shared(w->pool, s->tables[g].pages[i]));
            *page_at(w, s->tables[g].pages[i]) = hash_of(s->tokens, n) + (uint64_t)(g + i);
        }
    }
}

/* Computes up to n, for which there are slots, stopping where snapshots are due. */
static void compute(world *w, seq *s, int32_t n) {
    static const bool none[MAX_GROUPS] = {false};
    while (s->n < n) {
        int32_t stop = w->n_state_pages > 0 ? kv_snapshot_next(&s->plan) : INT32_MAX;
        stop = stop < n ? stop : n;
        write_chunk(w, s, stop);
        s->n = stop;
        quire_err e = kv_index_publish(w->ix, &s->path, s->tokens, s->n, s->tables, KV_PUBLISH_PAGES);
        assert_true(e == QUIRE_OK || e == QUIRE_NO_ROOM);
        note_published(w, s, s->n, none);
        if (w->n_state_pages > 0 && kv_snapshot_next(&s->plan) <= s->n) {
            take_snapshot(w, s);
            s->plan.last = s->n;
        }
        for (int32_t g = 0; g < w->o.n_groups; g++) {
            kv_table_forget(w->pool, &s->tables[g], first_seen(w, g, s->n), w->o.page_tokens);
        }
        check_world(w);
    }
}

static void drop(world *w, seq *s) {
    for (int32_t g = 0; g < w->n_groups; g++) {
        kv_table_deinit(w->pool, &s->tables[g]);
    }
    kv_index_leave(w->ix, &s->path);
    s->live = false;
    s->n = 0;
}

/* Starts a sequence with s->tokens[0..n) in its namespace; returns what it reused, or -1
 * for want of pages. */
static int32_t start(world *w, seq *s, int32_t n, int32_t interval) {
    int32_t found;
    assert_int_equal(kv_index_enter_public(w->ix, "", 0, namespaces[s->namespace], 1, s->tokens, n, &s->path),
                     QUIRE_OK);
    for (int32_t g = 0; g < w->n_groups; g++) {
        assert_int_equal(kv_table_init(&s->tables[g], 0), QUIRE_OK);
    }
    s->live = true;
    int32_t peeked = kv_index_peek(w->ix, &s->path, s->tokens, n - 1),
            agreed = kv_index_agreed(w->ix, &s->path, s->tokens, n - 1);
    assert_true(agreed >= peeked);
    assert_int_equal(kv_index_match(w->ix, &s->path, s->tokens, n - 1, s->tables, &found), QUIRE_OK);
    assert_int_equal(found, peeked);
    if (s->path.n_public == 0) { /* the naive model knows nothing of what is public */
        expect_match(w, s, n - 1, found);
    }
    s->n = found;
    s->plan = (kv_snapshot_plan){.branch = agreed, .prompt_end = n - 1, .interval = interval, .last = found};
    check_world(w);
    if (!append(w, s, n - found)) {
        drop(w, s);
        return -1;
    }
    w->n_reused += found;
    compute(w, s, n);
    return found;
}

static void finish(world *w, seq *s) {
    bool fresh[MAX_GROUPS] = {false};
    find_fresh(w, s, s->n, fresh);
    if (w->n_state_pages > 0) {
        take_snapshot(w, s);
    } else {
        assert_int_equal(kv_index_publish(w->ix, &s->path, s->tokens, s->n, s->tables, KV_PUBLISH_TAIL),
                         QUIRE_OK);
        note_published(w, s, s->n, fresh);
    }
    check_world(w);
    drop(w, s);
}

static void fork_seq(world *w, const seq *from, seq *to) {
    memcpy(to, from, sizeof *to);
    to->path = kv_index_fork(w->ix, &from->path);
    for (int32_t g = 0; g < w->n_groups; g++) {
        assert_int_equal(kv_table_init(&to->tables[g], 0), QUIRE_OK);
        assert_int_equal(kv_table_fork(w->pool, &from->tables[g], &to->tables[g]), QUIRE_OK);
    }
}

/* Back to n tokens, where a state of them is kept and no window misses what it sees. */
static void go_back(world *w, seq *s, int32_t n) {
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        int32_t first = first_seen(w, g, n);
        if (n < 1 || (first < n && s->tables[g].pages[first / w->o.page_tokens].v == PAGE_NONE.v)) {
            return;
        }
    }
    if (w->n_state_pages > 0 && n < s->n) {
        bool is_kept = true;
        for (int32_t g = w->o.n_groups; g < w->n_groups; g++) {
            is_kept = is_kept && holds(w, s->namespace, g, 0, s->tokens, n);
        }
        is_kept = is_kept && n <= s->path.n_pages * w->o.page_tokens + w->o.page_tokens - 1;
        assert_int_equal(kv_index_restore(w->ix, &s->path, s->tokens, n, s->tables + w->o.n_groups),
                         is_kept ? QUIRE_OK : QUIRE_INVALID);
        if (!is_kept) {
            return;
        }
    }
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        kv_table_truncate(w->pool, &s->tables[g], n, w->o.page_tokens);
    }
    kv_index_truncate(w->ix, &s->path, n);
    s->n = n;
    s->plan.last = n < s->plan.last ? n : s->plan.last;
}

/* ---- random work ---- */

static void random_tokens(uint64_t *r, int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = rng_next(r) % 12 == 0; /* long common prefixes, and many branches */
    }
}

static void random_operation(world *w, uint64_t *r, int32_t interval) {
    seq *s = &w->seqs[rng_next(r) % N_SEQS], *other = &w->seqs[rng_next(r) % N_SEQS];
    int32_t n = 1 + (int32_t)(rng_next(r) % 60);
    if (!s->live) {
        if (other->live && rng_next(r) % 3 == 0) {
            fork_seq(w, other, s);
            return;
        }
        s->namespace = (int32_t)(rng_next(r) % N_NAMESPACES);
        random_tokens(r, s->tokens, n);
        (void)start(w, s, n, interval);
        return;
    }
    switch (rng_next(r) % 8) {
    case 0:
    case 1:
        finish(w, s);
        return;
    case 2:
        go_back(w, s, (int32_t)(rng_next(r) % (uint64_t)(s->n + 1)));
        return;
    case 3:
        (void)kv_index_evict(w->ix, kv_pool_counts(w->pool).n_free + (int32_t)(rng_next(r) % 6));
        return;
    default:
        n = 1 + n / 6;
        if (s->n + n <= MAX_TOKENS) {
            random_tokens(r, s->tokens + s->n, n);
            if (append(w, s, n)) {
                compute(w, s, s->n + n);
            }
        }
        return;
    }
}

static void close_world(world *w) {
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (w->seqs[i].live) {
            finish(w, &w->seqs[i]);
        }
    }
    check_world(w);
    kv_index_clear(w->ix);
    check_world(w);
    kv_index_counts c = kv_index_count(w->ix);
    assert_int_equal(c.n_entries + c.n_nodes + c.n_namespaces + c.n_snapshots, 0);
    assert_int_equal(kv_pool_counts(w->pool).n_free, kv_pool_counts(w->pool).n_pages);
    kv_index_close(w->ix);
    kv_pool_close(w->pool);
    mem_free(w->slots);
    mem_free(w->copies.pairs);
}

#if defined(__SANITIZE_THREAD__) /* one thread, ten times as slow */
enum { FEWER = 4 };
#else
enum { FEWER = 1 };
#endif

/* Whether the work has met all that it is to meet, by chance. */
static bool has_met_all(const world *w, const kv_index_options *o) {
    return w->n_reused > 0 && w->n_tail_matches > 0 &&
           (o->max_snapshots == 0 || w->most_snapshots == o->max_snapshots);
}

static void run_random(int32_t n_pages, const kv_index_options *o, int32_t interval, int n_steps) {
    static world w;
    uint64_t seed = rng_os_seed(), r = seed;
    open_world(&w, n_pages, o);
    for (int step = 0; step < n_steps / FEWER || (step < 10 * n_steps && !has_met_all(&w, o)); step++) {
        random_operation(&w, &r, interval);
        check_world(&w);
    }
    print_message("seed %llu: %d + %d groups, page %d, policy %d: %lld of %lld matches exact, %lld inside a "
                  "page, %lld tokens reused, at most "
                  "%d snapshots\n",
                  (unsigned long long)seed, o->n_groups, o->n_state_groups, o->page_tokens, o->policy,
                  (long long)w.n_exact, (long long)w.n_matches, (long long)w.n_tail_matches,
                  (long long)w.n_reused, w.most_snapshots);
    assert_true(has_met_all(&w, o));
    assert_true(w.n_exact * 4 >= w.n_matches * 3);
    close_world(&w);
}

/* A model's layers, its window and pages made small: groups are those of the real one. */
static kv_index_options options_of_model(int32_t n_layers, int32_t period, layer_kind others,
                                         layer_kind every, int32_t page_tokens) {
    layer_kind kinds[64];
    for (int32_t i = 0; i < n_layers; i++) {
        kinds[i] = i % period == period - 1 ? every : others;
    }
    layer_plan d = {.n_layers = n_layers,
                    .n_kv_heads = 1,
                    .d_head = 64,
                    .window = 11,
                    .d_latent = 32,
                    .n_units = 5,
                    .unit_bytes = 1000,
                    .kinds = kinds};
    kv_layout l;
    assert_int_equal(lay_out(&d, DTYPE_BF16, page_tokens, &l, NULL), QUIRE_OK);
    return options_of(&l);
}

TEST(gemma_3s_six_groups_find_what_a_naive_model_finds) {
    kv_index_options o = options_of_model(18, 6, LAYER_WINDOW, LAYER_FULL, 4);
    assert_int_equal(o.n_groups, 6);
    run_random(200, &o, 0, 3000);
    run_random(420, &o, 0, 3000);
}

TEST(a_latent_group_finds_what_a_naive_model_finds) {
    kv_index_options o = options_of_model(27, 1, LAYER_LATENT, LAYER_LATENT, 8);
    assert_int_equal(o.n_groups, 1);
    run_random(40, &o, 0, 4000);
}

TEST(full_and_state_groups_find_what_a_naive_model_finds) {
    kv_index_options o = options_of_model(48, 4, LAYER_STATE, LAYER_FULL, 4); /* Qwen3-Next's layers */
    assert_int_equal(o.n_groups, 1);
    assert_int_equal(o.n_state_groups, 1);
    assert_int_equal(o.state_pages[0], 15); /* 36 x 5,056 bytes in pages of 12,288 */
    run_random(350, &o, 16, 4000);
    o.max_snapshots = 5;
    run_random(350, &o, 16, 4000);
    for (kv_policy p = KV_EVICT_LFU; p <= KV_EVICT_GDSF; p++) {
        o.policy = p;
        run_random(220, &o, 7, 3000);
    }
}

TEST(groups_of_every_kind_find_what_a_naive_model_finds) {
    kv_index_options o = {
        .page_tokens = 4, .n_groups = 3, .windows = {0, 6, 20}, .n_state_groups = 2, .state_pages = {1, 3}};
    run_random(256, &o, 10, 4000);
    o.policy = KV_EVICT_GDSF;
    run_random(128, &o, 0, 4000);
    o = (kv_index_options){.page_tokens = 1,
                           .n_groups = 1,
                           .windows = {9},
                           .n_state_groups = 1,
                           .state_pages = {2},
                           .max_snapshots = 7};
    o.page_tokens = 2;
    run_random(128, &o, 5, 4000);
}

/* ---- Gemma 3 270M as it is: 15 layers of a window of 512, 3 full ones; pages of 16
 * ---- */

static void fill(int32_t *tokens, int32_t from, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = from + i;
    }
}

TEST(a_prefix_is_reused_when_its_last_window_is_cached) {
    enum { W = 512, N = 2000, SIZE = 16 };
    kv_index_options o = {.page_tokens = SIZE,
                          .n_groups = 6,
                          .windows = {0, W, W, W, W, W},
                          .max_namespaces = 1,
                          .max_entries = 1000};
    static int32_t tokens[N + 1];
    kv_pool *pool;
    kv_index *ix;
    kv_path path;
    kv_table a[6], b[6];
    kv_copies copies = {0};
    quire_error err;
    int32_t n_found;
    fill(tokens, 0, N + 1);
    assert_int_equal(kv_pool_open(1200, &pool), QUIRE_OK);
    assert_int_equal(kv_index_open(pool, &o, &ix), QUIRE_OK);
    assert_int_equal(kv_index_enter(ix, "", 0, &path), QUIRE_OK);
    for (int g = 0; g < 6; g++) {
        assert_int_equal(kv_table_init(&a[g], 0), QUIRE_OK);
        assert_int_equal(kv_table_init(&b[g], 0), QUIRE_OK);
    }
    for (int32_t n = 0; n < N; n += 100) { /* chunks of 100 */
        for (int g = 0; g < 6; g++) {
            assert_int_equal(kv_table_append(pool, &a[g], 100, SIZE, &copies), QUIRE_OK);
        }
        assert_int_equal(kv_index_publish(ix, &path, tokens, n + 100, a, KV_PUBLISH_PAGES), QUIRE_OK);
        for (int g = 1; g < 6; g++) {
            kv_table_forget(pool, &a[g], n + 100 < W ? 0 : n + 100 - W + 1, SIZE);
        }
        assert_int_equal(kv_index_check(ix, &err), QUIRE_OK);
    }
    /* 125 pages of the full group; 2000 sees 1489..1999, in pages 93..124 */
    assert_int_equal(kv_pool_counts(pool).n_held, 125 + 5 * 32);
    assert_int_equal(kv_pool_counts(pool).n_cached, 5 * 93);
    assert_int_equal(kv_index_peek(ix, &path, tokens, N), N);
    /* the window pages that nobody holds go: what the last window needs is still there,
     * an earlier end is not */
    assert_int_equal(kv_index_evict(ix, kv_pool_counts(pool).n_free + 5 * 93), QUIRE_OK);
    assert_int_equal(kv_pool_counts(pool).n_cached, 0);
    assert_int_equal(kv_index_peek(ix, &path, tokens, N), N);
    assert_int_equal(kv_index_peek(ix, &path, tokens, N - 1), N - 1); /* sees 1488 on, the first of page 93 */
    assert_int_equal(kv_index_peek(ix, &path, tokens, N - 2), 0);     /* would need page 92 */
    kv_path second;
    assert_int_equal(kv_index_enter(ix, "", 0, &second), QUIRE_OK);
    assert_int_equal(kv_index_match(ix, &second, tokens, N, b, &n_found), QUIRE_OK);
    assert_int_equal(n_found, N);
    for (int g = 1; g < 6; g++) {
        assert_int_equal(b[g].pages[92].v, PAGE_NONE.v);
        assert_int_equal(b[g].pages[93].v, a[g].pages[93].v);
    }
    const kv_table *all[12];
    for (int g = 0; g < 6; g++) {
        all[g] = &a[g];
        all[6 + g] = &b[g];
    }
    assert_int_equal(kv_check(pool, all, 12, NULL, 0, &err), QUIRE_OK);
    for (int g = 0; g < 6; g++) {
        kv_table_deinit(pool, &a[g]);
        kv_table_deinit(pool, &b[g]);
    }
    kv_index_leave(ix, &path);
    kv_index_leave(ix, &second);
    kv_index_close(ix);
    kv_pool_close(pool);
}

/* A public prefix of two pages: a state right after it serves all tenants, one token
 * further it is one tenant's own. */
TEST(a_state_behind_a_public_prefix_is_shared_and_no_other) {
    static world w;
    static const int32_t prefix[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    kv_index_options o = {.page_tokens = 4, .n_groups = 1, .n_state_groups = 1, .state_pages = {2}};
    open_world(&w, 100, &o);
    assert_int_equal(kv_index_add_public(w.ix, "", 0, prefix, 8), QUIRE_OK);
    for (int32_t i = 0; i < 3; i++) {
        fill(w.seqs[i].tokens, 1, 12);
        w.seqs[i].namespace = i == 1;
    }
    assert_int_equal(start(&w, &w.seqs[0], 12, 2), 0); /* leaves states at 2, 4, 6, 8, 10, 11 */
    assert_int_equal(start(&w, &w.seqs[1], 12, 0), 8);
    assert_int_equal(start(&w, &w.seqs[2], 12, 0), 11);
    for (int32_t i = 0; i < 3; i++) {
        drop(&w, &w.seqs[i]);
    }
    close_world(&w);
}

TEST_MAIN(NULL, NULL)
