#include "lab/sim/belady.h"

#include <math.h>

#include "base/mem.h"

/* Pages by hash: the last place in next_use where each stood, 0 for empty, else place +
 * 1. Linear probing, at most half full. */
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

/* The slot of a page, which it takes if it is new. */
static int64_t *map_at(page_map *m, uint64_t hash) {
    size_t i = hash & (m->n_slots - 1);
    while (m->places[i] != 0 && m->hashes[i] != hash) {
        i = (i + 1) & (m->n_slots - 1);
    }
    m->hashes[i] = hash;
    return &m->places[i];
}

/* SplitMix64's last step (Steele et al. 2014): every bit of v moves every bit of the
 * result. */
static uint64_t mix(uint64_t v) {
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

/* The hash of a prefix and n more tokens. */
static uint64_t extend(uint64_t hash, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)tokens[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return mix(hash + (uint64_t)n);
}

/* The page at `place`, of request `number`, is asked for: that is the next use of where
 * it stood last. */
static void use(belady *b, page_map *m, uint64_t hash, int32_t number, int64_t place) {
    int64_t *last = map_at(m, hash);
    if (*last != 0) {
        b->next_use[*last - 1] = number;
    }
    *last = place + 1;
}

/* The same for the tail of a prompt; its place is the number of its request. */
static void use_tail(belady *b, page_map *m, uint64_t hash, int32_t number) {
    int64_t *last = map_at(m, hash);
    if (*last != 0) {
        b->tail_use[*last - 1] = number;
    }
    *last = number + 1;
}

static int32_t pages_of(const belady *b, const trace_request *q) {
    return (q->n_prompt + q->n_output + b->page_tokens - 1) / b->page_tokens;
}

typedef struct page_maps {
    page_map whole, tails;
} page_maps;

/* One request's pages. Those of the prompt are uses; an answer is computed whether it is
 * cached or not. */
static void add_request(belady *b, page_maps *m, int32_t number, const int32_t *tokens) {
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
    e = e == QUIRE_OK ? map_open(&m.tails, b->t->n_requests) : e;
    for (int32_t i = 0; e == QUIRE_OK && i < b->t->n_requests; i++) {
        if (pages_of(b, &b->t->requests[i]) <= n_pool_pages) {
            trace_tokens(b->t, &b->t->requests[i], tokens);
            add_request(b, &m, i, tokens);
        }
    }
    map_close(&m.whole);
    map_close(&m.tails);
    mem_free(tokens);
    return e;
}

static quire_err init(belady *b, int32_t n_pool_pages) {
    size_t n = (size_t)b->t->n_requests;
    int32_t **arrays[] = {&b->tail_use, &b->tail_page, &b->first_tail, &b->next_tail};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = mem_new(n, sizeof **arrays[i]);
        TRY(*arrays[i] != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
    }
    b->first_page = mem_new(n, sizeof *b->first_page);
    TRY(b->first_page != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
    for (int32_t i = 0; i < b->t->n_requests; i++) {
        b->tail_use[i] = BELADY_NEVER;
        b->first_page[i] = b->n_pages;
        b->n_pages += pages_of(b, &b->t->requests[i]);
    }
    b->said_by = mem_new_huge((size_t)n_pool_pages, sizeof *b->said_by);
    b->next_use = mem_new_huge((size_t)b->n_pages, sizeof *b->next_use);
    TRY(b->said_by != NULL && b->next_use != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
    for (int64_t i = 0; i < b->n_pages; i++) {
        b->next_use[i] = BELADY_NEVER;
    }
    return look_ahead(b, n_pool_pages);
}

quire_err belady_open(const trace *t, int32_t page_tokens, int32_t n_pages, belady *out) {
    belady b = {.t = t, .page_tokens = page_tokens};
    quire_err e = init(&b, n_pages);
    if (e != QUIRE_OK) {
        belady_close(&b);
        return e;
    }
    *out = b;
    return QUIRE_OK;
}

void belady_close(belady *b) {
    mem_free(b->first_page);
    mem_free(b->next_use);
    mem_free(b->tail_use);
    mem_free(b->tail_page);
    mem_free(b->first_tail);
    mem_free(b->next_tail);
    mem_free(b->said_by);
    *b = (belady){0};
}

static void say(const belady *b, kv_index *ix, int32_t number, page_id page, int32_t when) {
    b->said_by[page.v] = number + 1;
    kv_index_set_next_use(ix, page, when == BELADY_NEVER ? (double)INFINITY : when);
}

void belady_tell(belady *b, kv_index *ix, const kv_pool *pool, int32_t number, const kv_table *table) {
    const int32_t *next_use = b->next_use + b->first_page[number];
    int32_t tail = b->t->requests[number].n_prompt / b->page_tokens, tail_use = b->tail_use[number];
    for (int32_t i = 0; i < table->n_pages; i++) {
        bool sooner = i == tail && tail_use < next_use[i];
        say(b, ix, number, table->pages[i], sooner ? tail_use : next_use[i]);
        /* who comes then may take another page's tail, or a copy: then this one's time
         * has passed */
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
            say(b, ix, q - 1, page, b->next_use[b->first_page[q - 1] + place]);
        }
    }
}
