#include "lab/sim/replay.h"

#include <assert.h>
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/index.h"
#include "kv/kv_seq.h"
#include "lab/sim/trace_read.h"

/* Knowledge for offline optimal eviction (Belady 1966): for every page of every request
 * of a trace, which later request asks for it next. It is told to an index with policy
 * KV_EVICT_CALLER, which evicts the page used last.
 *
 * A page is identified by all tokens up to its end, and a later request asks for it if
 * its prompt begins with them. The page inside which a prompt ends is also asked for if a
 * later prompt ends inside it at the same token; other uses of part of a page are not
 * foreseen. A page's next use is never later than that of a page after it, so evicting
 * leaves first does not contradict the rule.
 *
 * With whole pages, no policy finds more (tests/lab/sim/test_belady.c searches
 * exhaustively). Otherwise it is only approximately a bound, and not one if pages are as
 * long as prompts. Concurrent requests also make it inexact.
 *
 * Owner: one replay. Invariant: between requests, the next use told for a cached page is
 * in the future or never. */

#define BELADY_NEVER INT32_MAX

typedef struct belady {
    const trace *t;
    int32_t page_tokens;
    int64_t *first_page; /* [n_requests] index in next_use of the request's first page, prompt and answer */
    int32_t *next_use;   /* [pages of all requests] whole pages: number of the request, or BELADY_NEVER */
    /* [n_requests] the same for the page inside which a prompt ends, by prompts that end
     * there too */
    int32_t *tail_use;
    int32_t *tail_page; /* [n_requests] that page */
    /* [n_requests] 1 + the first request whose tail the request is said to use */
    int32_t *first_tail;
    int32_t *next_tail; /* [n_requests] 1 + the next such request */
    int32_t *said_by;   /* [n_pages of the pool] 1 + the request that last told the next use of a page */
    int64_t n_pages;
} belady;

/* Pages by hash: the last place in next_use at which each occurred; 0: empty, else place
 * + 1. Linear probing, at most half full. */
typedef struct page_map {
    uint64_t *hashes;
    int64_t *places;
    size_t n_slots;
} page_map;

static quire_err map_open(page_map *m, int64_t n_pages) {
    *m = (page_map){.n_slots = 64};
    while (m->n_slots < 2 * (size_t)n_pages) {
        m->n_slots *= 2;
    }
    m->hashes = mem_new_huge(m->n_slots, sizeof *m->hashes);
    m->places = mem_new_huge(m->n_slots, sizeof *m->places);
    return m->hashes != NULL && m->places != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

static void map_close(page_map *m) {
    mem_free(m->hashes);
    mem_free(m->places);
}

/* The slot of a page, taken if the page is new. */
static int64_t *map_at(page_map *m, uint64_t hash) {
    size_t i = hash & (m->n_slots - 1);
    while (m->places[i] != 0 && m->hashes[i] != hash) {
        i = (i + 1) & (m->n_slots - 1);
    }
    m->hashes[i] = hash;
    return &m->places[i];
}

/* The last step of SplitMix64 (Steele et al. 2014): every bit of v affects every bit of
 * the result. */
static uint64_t mix(uint64_t v) {
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

/* The hash of a prefix extended by n tokens. */
static uint64_t extend(uint64_t hash, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)tokens[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return mix(hash + (uint64_t)n);
}

/* The page at `place` of request `number` is asked for: sets that as the next use at its
 * previous place. */
static void use(belady *b, page_map *m, uint64_t hash, int32_t number, int64_t place) {
    int64_t *last = map_at(m, hash);
    if (*last != 0) {
        b->next_use[*last - 1] = number;
    }
    *last = place + 1;
}

/* The same for the tail of a prompt; its place is its request's number. */
static void use_tail(belady *b, page_map *m, uint64_t hash, int32_t number) {
    int64_t *last = map_at(m, hash);
    if (*last != 0) {
        b->tail_use[*last - 1] = number;
    }
    *last = number + 1;
}

static int32_t replay_pages_of(const belady *b, const trace_request *q) {
    return (int32_t)kv_pages_for(q->n_prompt + q->n_output, b->page_tokens);
}

typedef struct page_maps {
    page_map whole, tails;
} page_maps;

/* Adds one request's pages. Those of the prompt are uses; an answer is computed whether
 * it is cached or not. */
static void replay_add_request(belady *b, page_maps *m, int32_t number, const int32_t *tokens) {
    const trace_request *q = &b->t->requests[number];
    int32_t size = b->page_tokens, n = q->n_prompt + q->n_output, n_tail = q->n_prompt % size;
    uint64_t hash = mix((uint64_t)q->tenant + 1);
    int64_t place = b->first_page[number];
    for (int32_t at = 0; at < n; at += size, place++) {
        if (n_tail != 0 && at == q->n_prompt - n_tail) {
            use_tail(b, &m->tails, extend(hash, tokens + at, n_tail), number);
        }
        hash = extend(hash, tokens + at, n - at < size ? n - at : size);
        if (at + size <= q->n_prompt) {
            use(b, &m->whole, hash, number, place);
        } else {
            *map_at(&m->whole, hash) = place + 1;
        }
    }
}

static quire_err look_ahead(belady *b, int32_t n_pool_pages) {
    page_maps m = {0};
    int32_t *tokens = mem_new((size_t)b->t->longest, sizeof *tokens);
    quire_err e = tokens != NULL ? map_open(&m.whole, b->n_pages) : QUIRE_NO_MEMORY;
    TRY_DONE(e, map_open(&m.tails, b->t->n_requests));
    for (int32_t i = 0; e == QUIRE_OK && i < b->t->n_requests; i++) {
        if (replay_pages_of(b, &b->t->requests[i]) <= n_pool_pages) {
            trace_tokens(b->t, &b->t->requests[i], tokens);
            replay_add_request(b, &m, i, tokens);
        }
    }
done:
    map_close(&m.whole);
    map_close(&m.tails);
    mem_free(tokens);
    return e;
}

static void belady_close(belady *b) {
    mem_free(b->first_page);
    mem_free(b->next_use);
    mem_free(b->tail_use);
    mem_free(b->tail_page);
    mem_free(b->first_tail);
    mem_free(b->next_tail);
    mem_free(b->said_by);
    *b = (belady){0};
}

static quire_err belady_init(belady *b, int32_t n_pool_pages) {
    size_t n = (size_t)b->t->n_requests;
    int32_t **arrays[] = {&b->tail_use, &b->tail_page, &b->first_tail, &b->next_tail};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = mem_new(n, sizeof **arrays[i]);
        if (*arrays[i] == NULL) {
            TRY(QUIRE_NO_MEMORY);
        }
    }
    b->first_page = mem_new(n, sizeof *b->first_page);
    if (b->first_page == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    for (int32_t i = 0; i < b->t->n_requests; i++) {
        b->tail_use[i] = BELADY_NEVER;
        b->first_page[i] = b->n_pages;
        b->n_pages += replay_pages_of(b, &b->t->requests[i]);
    }
    b->said_by = mem_new_huge((size_t)n_pool_pages, sizeof *b->said_by);
    b->next_use = mem_new_huge((size_t)b->n_pages, sizeof *b->next_use);
    if (b->said_by == NULL || b->next_use == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    for (int64_t i = 0; i < b->n_pages; i++) {
        b->next_use[i] = BELADY_NEVER;
    }
    return look_ahead(b, n_pool_pages);
}

/* Prepares replays of t on a pool of n_pages; requests that do not fit in it ask for
 * nothing. QUIRE_NO_MEMORY. O(tokens of the trace). Pages are identified by 64-bit
 * hashes; a collision would only affect the order. */
static quire_err belady_open(const trace *t, int32_t page_tokens, int32_t n_pages, belady *out) {
    belady b = {.t = t, .page_tokens = page_tokens};
    quire_err e = belady_init(&b, n_pages);
    if (e != QUIRE_OK) {
        belady_close(&b);
        return e;
    }
    *out = b;
    return QUIRE_OK;
}

static void replay_say(const belady *b, kv_index *ix, int32_t number, page_id page, int32_t when) {
    b->said_by[page.v] = number + 1;
    kv_index_set_next_use(ix, page, when == BELADY_NEVER ? (double)INFINITY : when);
}

/* Tells ix the next uses of the pages of request `number`, which are in the table, before
 * they are released. Requests end in order of arrival. O(pages x log pages). */
static void belady_tell(belady *b, kv_index *ix, const kv_pool *pool, int32_t number, const kv_table *table) {
    const int32_t *next_use = b->next_use + b->first_page[number];
    int32_t tail = b->t->requests[number].n_prompt / b->page_tokens, tail_use = b->tail_use[number];
    for (int32_t i = 0; i < table->n_pages; i++) {
        bool sooner = i == tail && tail_use < next_use[i];
        replay_say(b, ix, number, table->pages[i], sooner ? tail_use : next_use[i]);
        /* a later request may use another page's tail, or a copy, before this page's next
         * use */
        if (sooner) {
            b->tail_page[number] = table->pages[i].v;
            b->next_tail[number] = b->first_tail[tail_use];
            b->first_tail[tail_use] = number + 1;
        }
    }
    for (int32_t q = b->first_tail[number]; q != 0; q = b->next_tail[q - 1]) {
        page_id page = {b->tail_page[q - 1]};
        int32_t place = b->t->requests[q - 1].n_prompt / b->page_tokens;
        if (b->said_by[page.v] == q && kv_pool_entry(pool, page) >= 0) {
            replay_say(b, ix, q - 1, page, b->next_use[b->first_page[q - 1] + place]);
        }
    }
}

enum { PROGRESS_EVERY = 256, MAX_PAGE_TOKENS = 512 };

const char *const replay_policy_names[REPLAY_N_POLICIES] = {"lru", "lfu", "gdsf", "learned", "belady"};

/* A request while it holds pages. They are used cyclically, so the next one is free or
 * has been open longest. */
typedef struct open_request {
    bool open;
    kv_seq kv;
    int32_t *tokens; /* [cap_tokens] its n tokens */
    size_t cap_tokens;
    int32_t n, number; /* number of tokens; number of the request */
} open_request;

typedef struct replay {
    const trace *t;
    const replay_options *o;
    kv_cache cache;
    belady future;      /* for KV_EVICT_CALLER only */
    open_request *open; /* [concurrency] */
    int32_t next;
    kv_copies copies; /* of one request; not carried out, since pages have no memory here */
    replay_result result;
} replay;

/* Pages that suffice for any replay of t: those needed without any sharing, plus a copy
 * per request. */
static int64_t unlimited_pages(const trace *t, int32_t page_tokens) {
    int64_t n = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        n += kv_pages_for(t->requests[i].n_prompt + t->requests[i].n_output, page_tokens) + 1;
    }
    return n < INT32_MAX ? n : INT32_MAX - 1;
}

static void replay_deinit(replay *r) {
    for (int32_t i = 0; r->open != NULL && i < r->o->concurrency; i++) {
        open_request *s = &r->open[i];
        kv_seq_release(&r->cache, &s->kv, s->tokens, KV_DROP);
        kv_seq_close(&r->cache, &s->kv);
        kv_seq_deinit(&s->kv);
        mem_free(s->tokens);
    }
    kv_cache_close(&r->cache);
    belady_close(&r->future);
    mem_free(r->open);
    mem_free(r->copies.pairs);
}

static quire_err replay_init(replay *r) {
    const replay_options *o = r->o;
    int32_t n_pages = o->n_pages > 0 ? o->n_pages : (int32_t)unlimited_pages(r->t, o->page_tokens);
    kv_cache_options k = {.n_pages = n_pages,
                          .page_tokens = o->page_tokens,
                          .n_groups = 1,
                          .max_namespaces = r->t->n_tenants,
                          .policy = o->policy,
                          .seed = 1,
                          .granularity = o->granularity};
    r->copies.cap = 1;
    r->copies.pairs = mem_new(1, sizeof *r->copies.pairs);
    r->open = mem_new((size_t)o->concurrency, sizeof *r->open);
    if (r->open == NULL || r->copies.pairs == NULL) {
        TRY(QUIRE_NO_MEMORY);
    }
    for (int32_t i = 0; i < o->concurrency; i++) {
        TRY(kv_seq_init(&r->open[i].kv, 1, 0));
    }
    TRY(kv_cache_open(&k, &r->cache));
    r->result.n_pages = n_pages;
    return o->policy == KV_EVICT_CALLER ? belady_open(r->t, o->page_tokens, n_pages, &r->future) : QUIRE_OK;
}

/* Publishes the part-filled last page and releases everything. */
static void end_request(replay *r, open_request *s) {
    if (s->open) {
        /* cannot fail: the tree has an entry for every page of the pool */
        kv_seq_publish_tail(&r->cache, &s->kv, s->tokens);
        if (r->o->policy == KV_EVICT_CALLER) {
            belady_tell(&r->future, r->cache.index, r->cache.pool, s->number, s->kv.tables);
        }
        kv_seq_release(&r->cache, &s->kv, s->tokens, KV_DROP);
        kv_seq_close(&r->cache, &s->kv);
        s->open = false;
    }
}

/* Takes pages for the tokens of s that have no slots. QUIRE_NO_ROOM: open requests hold
 * too many. */
static quire_err replay_grow(replay *r, open_request *s) {
    int32_t n = s->n - s->kv.n_computed, cached = kv_pool_counts(r->cache.pool).n_cached;
    quire_err e = kv_index_evict(r->cache.index, (int32_t)kv_seq_needs(&r->cache, &s->kv, n));
    r->result.evictions += cached - kv_pool_counts(r->cache.pool).n_cached;
    r->copies.n = 0;
    TRY(e);
    TRY(kv_seq_reserve(&r->cache, &s->kv, n, &r->copies));
    kv_seq_advance(&s->kv, n);
    return QUIRE_OK;
}

/* Grows s, ending the oldest other request while there is no room. If s continues inside
 * a shared page, it needs that page and a copy; if even that is too much, it continues
 * from the page's start, and *n_matched is reduced. */
static quire_err replay_make_room(replay *r, open_request *s, int32_t *n_matched) {
    quire_err e = replay_grow(r, s);
    for (int32_t i = 1; e == QUIRE_NO_ROOM && i < r->o->concurrency; i++) {
        end_request(r, &r->open[(r->next + i) % r->o->concurrency]);
        e = replay_grow(r, s);
    }
    int32_t whole = s->kv.n_computed - s->kv.n_computed % r->o->page_tokens;
    if (e == QUIRE_NO_ROOM && whole < s->kv.n_computed) {
        kv_seq_truncate(&r->cache, &s->kv, whole);
        *n_matched = whole;
        e = replay_grow(r, s);
    }
    return e;
}

static void note_peaks(replay *r) {
    kv_counts c = kv_pool_counts(r->cache.pool);
    int32_t used = c.n_held + c.n_cached;
    r->result.peak_pages = used > r->result.peak_pages ? used : r->result.peak_pages;
    r->result.peak_held = c.n_held > r->result.peak_held ? c.n_held : r->result.peak_held;
}

/* Runs one request, as s, which is free, from arrival until its answer is complete. */
static quire_err replay_serve(replay *r, int32_t number, open_request *s) {
    const trace_request *q = &r->t->requests[number];
    TRY(mem_grow(&s->tokens, &s->cap_tokens, (size_t)(q->n_prompt + q->n_output), sizeof *s->tokens));
    trace_tokens(r->t, q, s->tokens);
    s->n = q->n_prompt + q->n_output;
    s->number = number;
    kv_cache_set_time(&r->cache, q->arrival_us - r->t->requests[0].arrival_us);
    TRY(kv_seq_open(&r->cache, &s->kv, NULL, 0, &q->tenant, sizeof q->tenant, s->tokens, q->n_prompt));
    s->open = true;
    TRY(kv_seq_admit(&r->cache, &s->kv, s->tokens, q->n_prompt - 1));
    int32_t n_matched = s->kv.n_computed;
    quire_err e = replay_make_room(r, s, &n_matched);
    assert(e != QUIRE_NO_ROOM); /* it fits in an empty pool, and all others are closed */
    TRY(e);
    r->result.hit_tokens += n_matched;
    note_peaks(r);
    kv_seq_publish(&r->cache, &s->kv, s->tokens);
    return QUIRE_OK;
}

static quire_err replay_check(const replay *r, quire_error *err) {
    const kv_table **tables = mem_new((size_t)r->o->concurrency, sizeof *tables);
    if (tables == NULL) {
        return QUIRE_NO_MEMORY;
    }
    int32_t n = 0;
    for (int32_t i = 0; i < r->o->concurrency; i++) {
        tables[n++] = r->open[i].kv.tables;
    }
    quire_err e = kv_cache_check(&r->cache, tables, n, err);
    mem_free(tables);
    return e;
}

static quire_err replay_one(replay *r, int32_t number, quire_error *err) {
    const trace_request *q = &r->t->requests[number];
    r->result.n_requests++;
    r->result.prompt_tokens += q->n_prompt;
    if (kv_pages_for(q->n_prompt + q->n_output, r->o->page_tokens) > r->result.n_pages) {
        r->result.n_refused++;
        return QUIRE_OK;
    }
    open_request *s = &r->open[r->next];
    end_request(r, s);
    TRY(replay_serve(r, number, s));
    r->next = (r->next + 1) % r->o->concurrency;
    return r->o->checks ? replay_check(r, err) : QUIRE_OK;
}

static quire_err replay_replay_all(replay *r, quire_error *err) {
    TRY(replay_init(r));
    int64_t start = clock_us();
    for (int32_t i = 0; i < r->t->n_requests; i++) {
        TRY(replay_one(r, i, err));
        if (r->o->progress != NULL && (i + 1) % PROGRESS_EVERY == 0) {
            r->o->progress(i + 1, r->t->n_requests, r->o->context);
        }
    }
    for (int32_t i = 0; i < r->o->concurrency; i++) {
        end_request(r, &r->open[i]);
    }
    r->result.seconds = (double)(clock_us() - start) * 1e-6;
    return QUIRE_OK;
}

quire_err replay_run(const trace *t, const replay_options *o, replay_result *out, quire_error *err) {
    if (o->n_pages < 0 || o->page_tokens < 1 || o->page_tokens > MAX_PAGE_TOKENS || o->concurrency < 1 ||
        o->policy > KV_EVICT_CALLER) {
        return err_set(err, QUIRE_INVALID, -1, "a replay with %d pages of %d tokens and %d requests at once",
                       o->n_pages, o->page_tokens, o->concurrency);
    }
    replay r = {.t = t, .o = o};
    quire_error inner = {.message = ""};
    quire_err e = replay_replay_all(&r, &inner);
    replay_deinit(&r);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "the replay of %d requests failed: %s", t->n_requests,
                       inner.message[0] != 0 ? inner.message : quire_err_text(e));
    }
    *out = r.result;
    return QUIRE_OK;
}
