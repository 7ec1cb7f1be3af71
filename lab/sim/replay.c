#include "lab/sim/replay.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_seq.h"
#include "lab/sim/belady.h"

enum { PROGRESS_EVERY = 256, MAX_PAGE_TOKENS = 512 };

const char *replay_policy_name(kv_policy policy) {
    kv_policy same;
    const char *name = kv_policy_name(policy);
    return policy == KV_EVICT_CALLER ? "belady" : kv_policy_parse(name, &same) == QUIRE_OK ? name : NULL;
}

/* A request while it holds pages. They are used in turn, so the one that comes next is
 * free or holds the request open longest. */
typedef struct open_request {
    bool open;
    kv_seq kv;
    int32_t *tokens; /* its n tokens; [cap_tokens] */
    size_t cap_tokens;
    int32_t n, number; /* of tokens; of the request */
} open_request;

typedef struct replay {
    const trace *t;
    const replay_options *o;
    kv_cache cache;
    belady future;      /* known to KV_EVICT_CALLER only */
    open_request *open; /* [concurrency] */
    int32_t next;
    kv_copies copies; /* of one request; nobody does them, there is no memory behind the pages */
    replay_result result;
} replay;

static int64_t pages_for(int64_t n_tokens, int32_t page_tokens) {
    return (n_tokens + page_tokens - 1) / page_tokens;
}

/* Pages that no replay of t runs out of: as many as without any sharing, and a copy
 * each. */
static int64_t unlimited_pages(const trace *t, int32_t page_tokens) {
    int64_t n = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        n += pages_for(t->requests[i].n_prompt + t->requests[i].n_output, page_tokens) + 1;
    }
    return n < INT32_MAX ? n : INT32_MAX - 1;
}

static void deinit(replay *r) {
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

static quire_err init(replay *r) {
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
    TRY(r->open != NULL && r->copies.pairs != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
    for (int32_t i = 0; i < o->concurrency; i++) {
        TRY(kv_seq_init(&r->open[i].kv, 1, 0));
    }
    TRY(kv_cache_open(&k, &r->cache));
    r->result.n_pages = n_pages;
    return o->policy == KV_EVICT_CALLER ? belady_open(r->t, o->page_tokens, n_pages, &r->future) : QUIRE_OK;
}

/* Publishes the part-filled last page, and gives everything back. */
static void end_request(replay *r, open_request *s) {
    if (s->open) {
        /* the tree has an entry for every page of the pool */
        kv_seq_publish_tail(&r->cache, &s->kv, s->tokens);
        if (r->o->policy == KV_EVICT_CALLER) {
            belady_tell(&r->future, r->cache.index, r->cache.pool, s->number, s->kv.tables);
        }
        kv_seq_release(&r->cache, &s->kv, s->tokens, KV_DROP);
        kv_seq_close(&r->cache, &s->kv);
        s->open = false;
    }
}

/* Takes pages for what s has no slots for yet; QUIRE_NO_ROOM when the open requests hold
 * too many. */
static quire_err grow(replay *r, open_request *s) {
    int32_t n = s->n - s->kv.n_computed, cached = kv_pool_counts(r->cache.pool).n_cached;
    quire_err e = kv_index_evict(r->cache.index, (int32_t)kv_seq_needs(&r->cache, &s->kv, n));
    r->result.evictions += cached - kv_pool_counts(r->cache.pool).n_cached;
    r->copies.n = 0;
    TRY(e);
    TRY(kv_seq_reserve(&r->cache, &s->kv, n, &r->copies));
    kv_seq_advance(&s->kv, n);
    return QUIRE_OK;
}

/* Grows s; while there is no room the oldest other request ends. What s shares of a page
 * inside which it goes on needs that page and a copy: when even that is too much, it goes
 * on from the page's start, and *n_matched says so. */
static quire_err make_room(replay *r, open_request *s, int32_t *n_matched) {
    quire_err e = grow(r, s);
    for (int32_t i = 1; e == QUIRE_NO_ROOM && i < r->o->concurrency; i++) {
        end_request(r, &r->open[(r->next + i) % r->o->concurrency]);
        e = grow(r, s);
    }
    int32_t whole = s->kv.n_computed - s->kv.n_computed % r->o->page_tokens;
    if (e == QUIRE_NO_ROOM && whole < s->kv.n_computed) {
        kv_seq_truncate(&r->cache, &s->kv, whole);
        *n_matched = whole;
        e = grow(r, s);
    }
    return e;
}

static void note_peaks(replay *r) {
    kv_counts c = kv_pool_counts(r->cache.pool);
    int32_t used = c.n_held + c.n_cached;
    r->result.peak_pages = used > r->result.peak_pages ? used : r->result.peak_pages;
    r->result.peak_held = c.n_held > r->result.peak_held ? c.n_held : r->result.peak_held;
}

/* One request from arrival until its answer is complete, as s, which is free. */
static quire_err serve(replay *r, int32_t number, open_request *s) {
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
    quire_err e = make_room(r, s, &n_matched);
    assert(e != QUIRE_NO_ROOM); /* it fits into the empty pool, and all others are closed */
    TRY(e);
    r->result.hit_tokens += n_matched;
    note_peaks(r);
    kv_seq_publish(&r->cache, &s->kv, s->tokens);
    return QUIRE_OK;
}

static quire_err check(const replay *r, quire_error *err) {
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
    if (pages_for(q->n_prompt + q->n_output, r->o->page_tokens) > r->result.n_pages) {
        r->result.n_refused++;
        return QUIRE_OK;
    }
    open_request *s = &r->open[r->next];
    end_request(r, s);
    TRY(serve(r, number, s));
    r->next = (r->next + 1) % r->o->concurrency;
    return r->o->checks ? check(r, err) : QUIRE_OK;
}

static quire_err replay_all(replay *r, quire_error *err) {
    TRY(init(r));
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
        replay_policy_name(o->policy) == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "a replay with %d pages of %d tokens and %d requests at once",
                       o->n_pages, o->page_tokens, o->concurrency);
    }
    replay r = {.t = t, .o = o};
    quire_error inner = {.message = ""};
    quire_err e = replay_all(&r, &inner);
    deinit(&r);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "the replay of %d requests failed: %s", t->n_requests,
                       inner.message[0] != 0 ? inner.message : quire_err_text(e));
    }
    *out = r.result;
    return QUIRE_OK;
}
