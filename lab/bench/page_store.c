#include "lab/bench/page_store.h"

#include <pthread.h>

#include "base/mem.h"
#include "base/rng.h"

enum { PAGE_TOKENS = 16 };

struct page_store {
    page_store_kind kind;
    int32_t n_pages; /* free at first; as many are held */
    kv_pool *pool;   /* ours */
    pthread_mutex_t lock;
    int32_t top, n_free;   /* mutex */
    int32_t *next, *count; /* [2 * n_pages] */
};

/* ---- the plain stack ---- */

static quire_err locked_reserve(page_store *s, int32_t n, page_id *ids) {
    pthread_mutex_lock(&s->lock);
    quire_err e = s->n_free < n ? QUIRE_NO_ROOM : QUIRE_OK;
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        ids[i].v = s->top;
        s->top = s->next[ids[i].v];
        s->count[ids[i].v] = 1;
    }
    s->n_free -= e == QUIRE_OK ? n : 0;
    pthread_mutex_unlock(&s->lock);
    return e;
}

static void locked_release(page_store *s, const page_id *ids, int32_t n) {
    pthread_mutex_lock(&s->lock);
    for (int32_t i = n - 1; i >= 0; i--) {
        if (--s->count[ids[i].v] == 0) {
            s->next[ids[i].v] = s->top;
            s->top = ids[i].v;
            s->n_free++;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static void locked_share(page_store *s, const page_id *ids, int32_t n) {
    pthread_mutex_lock(&s->lock);
    for (int32_t i = 0; i < n; i++) {
        s->count[ids[i].v]++;
    }
    pthread_mutex_unlock(&s->lock);
}

static quire_err open_locked(page_store *s) {
    s->next = mem_new_huge((size_t)s->n_pages * 2, sizeof *s->next);
    s->count = mem_new_huge((size_t)s->n_pages * 2, sizeof *s->count);
    if (s->next == NULL || s->count == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = 0; i < s->n_pages * 2; i++) {
        s->next[i] = i + 1;
    }
    s->n_free = s->n_pages * 2;
    return QUIRE_OK;
}

/* ---- both ---- */

/* Takes all pages and gives half of them, drawn at random, back one by one. */
static quire_err age(page_store *s, uint64_t seed) {
    int32_t n = s->n_pages * 2;
    page_id *ids = mem_new((size_t)n, sizeof *ids);
    if (ids == NULL) {
        return QUIRE_NO_MEMORY;
    }
    quire_err e = page_store_reserve(s, n, ids);
    for (int32_t i = n - 1; e == QUIRE_OK && i >= s->n_pages; i--) {
        int32_t other = (int32_t)(rng_next(&seed) % (uint64_t)(i + 1));
        page_id id = ids[other];
        ids[other] = ids[i];
        page_store_release(s, &id, 1);
    }
    mem_free(ids);
    return e;
}

quire_err page_store_open(page_store_kind kind, int32_t n_pages, uint64_t seed, page_store **out) {
    if (n_pages < 1 || n_pages > INT32_MAX / 4) {
        return QUIRE_INVALID;
    }
    page_store *s = mem_new(1, sizeof *s);
    if (s == NULL) {
        return QUIRE_NO_MEMORY;
    }
    *s = (page_store){.kind = kind, .n_pages = n_pages};
    pthread_mutex_init(&s->lock, NULL);
    quire_err e = kind == PAGE_STORE_POOL ? kv_pool_open(n_pages * 2, &s->pool) : open_locked(s);
    e = e == QUIRE_OK ? age(s, seed) : e;
    if (e != QUIRE_OK) {
        page_store_close(s);
        return e;
    }
    *out = s;
    return QUIRE_OK;
}

void page_store_close(page_store *s) {
    if (s != NULL) {
        kv_pool_close(s->pool);
        mem_free(s->next);
        mem_free(s->count);
        pthread_mutex_destroy(&s->lock);
        mem_free(s);
    }
}

quire_err page_store_reserve(page_store *s, int32_t n, page_id *ids) {
    return s->kind == PAGE_STORE_POOL ? kv_pool_reserve(s->pool, n, ids) : locked_reserve(s, n, ids);
}

void page_store_release(page_store *s, const page_id *ids, int32_t n) {
    if (s->kind == PAGE_STORE_POOL) {
        kv_pool_release_all(s->pool, ids, n);
    } else {
        locked_release(s, ids, n);
    }
}

quire_err page_store_append_page(page_store *s, kv_table *t) {
    if (s->kind == PAGE_STORE_POOL) {
        kv_copies none = {0};
        return kv_table_append(s->pool, t, PAGE_TOKENS, PAGE_TOKENS, &none);
    }
    TRY(locked_reserve(s, 1, t->pages + t->n_pages));
    t->n_pages++;
    t->n_tokens += PAGE_TOKENS;
    return QUIRE_OK;
}

quire_err page_store_fork(page_store *s, const kv_table *from, kv_table *to) {
    if (s->kind == PAGE_STORE_POOL) {
        return kv_table_fork(s->pool, from, to);
    }
    locked_share(s, from->pages, from->n_pages);
    for (int32_t i = 0; i < from->n_pages; i++) {
        to->pages[i] = from->pages[i];
    }
    to->n_pages = from->n_pages;
    to->n_tokens = from->n_tokens;
    return QUIRE_OK;
}

void page_store_clear(page_store *s, kv_table *t) {
    page_store_release(s, t->pages, t->n_pages);
    t->n_pages = 0;
    t->n_tokens = 0;
}

bool page_store_is_whole(const page_store *s) {
    return s->kind == PAGE_STORE_POOL
               ? kv_pool_counts(s->pool).n_free == s->n_pages && kv_pool_check(s->pool, NULL) == QUIRE_OK
               : s->n_free == s->n_pages;
}
