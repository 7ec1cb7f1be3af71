/* The swap functions of a kv_seq. A frame's tag is (entry of the table) * n_tables +
 * group. States are kept as a whole. */
#include <assert.h>

#include "base/clock.h"
#include "kv/kv_seq.h"

/* Leading whole pages that others hold in every group. */
static int32_t kv_seq_swap_shared_pages(const kv_cache *c, const kv_seq *s) {
    int32_t n = 0;
    for (; n < s->n_computed / c->page_tokens; n++) {
        for (int32_t g = 0; g < s->n_tables; g++) {
            if (kv_seq_holders(c, s, g, n) < 2) {
                return n;
            }
        }
    }
    return n;
}

/* The first entry of group g's table that a swap keeps, where `first` is that of
 * tokens. */
static int32_t kv_seq_swap_first_of(const kv_cache *c, int32_t g, int32_t first) {
    return g < c->n_token_groups ? first : 0;
}

/* Its pages from entry `first` of the tables on, without holes before windows, and its
 * states. */
static int32_t kv_seq_swap_count_pages(const kv_cache *c, const kv_seq *s, int32_t first) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        for (int32_t i = kv_seq_swap_first_of(c, g, first); i < s->tables[g].n_pages; i++) {
            n += s->tables[g].pages[i].v != PAGE_NONE.v;
        }
    }
    return n;
}

int32_t kv_seq_swap_pages(const kv_cache *c, const kv_seq *s, int32_t *from) {
    /* with states an admission finds no more than a snapshot's tokens, so all are kept */
    int32_t first = s->has_path && c->n_state_pages == 0 ? kv_seq_swap_shared_pages(c, s) : 0;
    *from = first * c->page_tokens;
    return kv_seq_swap_count_pages(c, s, first);
}

static int64_t us_since(const kv_cache *c, int64_t start_us) {
    return c->mover->done(c->mover->context, c->swap.last) ? clock_us() - start_us : -1;
}

kv_swapped kv_seq_swap_out(kv_cache *c, kv_seq *s, int32_t from) {
    int32_t first = from / c->page_tokens;
    kv_swapped did = {.n_pages = kv_seq_swap_count_pages(c, s, first)};
    if (did.n_pages > c->swap.n_free) {
        return (kv_swapped){0};
    }
    int64_t start_us = clock_us();
    for (int32_t g = 0; g < s->n_tables; g++) {
        for (int32_t i = kv_seq_swap_first_of(c, g, first); i < s->tables[g].n_pages; i++) {
            if (s->tables[g].pages[i].v != PAGE_NONE.v) {
                kv_swap_out(&c->swap, s->tables[g].pages[i], i * s->n_tables + g, &s->swap_frames);
            }
        }
    }
    did.us = us_since(c, start_us);
    s->swap_from = from;
    s->swap_tokens = s->n_computed;
    return did;
}

/* The start of the first page that group g sees after s's swapped tokens, but none before
 * those it has. */
static int32_t seen_from(const kv_cache *c, const kv_seq *s, int32_t g) {
    int32_t first = kv_cache_first_seen(c, g, s->swap_tokens);
    first -= first % c->page_tokens;
    return first > s->n_computed ? first : s->n_computed;
}

/* Pages that s takes up to swap_tokens, without those before windows. *n_given: those
 * without a holder once its windows have moved. */
static int32_t pages_to_take(const kv_cache *c, const kv_seq *s, int32_t *n_given) {
    int32_t n = c->n_state_pages;
    *n_given = 0;
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        int32_t from = seen_from(c, s, g),
                n_behind = kv_cache_first_seen(c, g, s->swap_tokens) / c->page_tokens;
        n += (int32_t)kv_pages_for(s->swap_tokens, c->page_tokens) - from / c->page_tokens;
        for (int32_t i = 0; i < n_behind && i < s->tables[g].n_pages; i++) {
            *n_given += kv_seq_holders(c, s, g, i) == 1;
        }
    }
    return n;
}

/* Gives back what windows do not see after s's swapped tokens, and leaves holes up to
 * what they see. */
static void move_windows(kv_cache *c, kv_seq *s) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        int32_t first = kv_cache_first_seen(c, g, s->swap_tokens);
        kv_table_forget(c->pool, &s->tables[g], first < s->n_computed ? first : s->n_computed,
                        c->page_tokens);
        kv_table_skip(&s->tables[g], seen_from(c, s, g), c->page_tokens);
    }
}

/* Reserves pages of group g for s up to swap_tokens: they are free, and the table has
 * room. */
static void kv_seq_swap_append(kv_cache *c, kv_seq *s, int32_t g) {
    kv_copies none = {0}; /* its tokens end with a page: nothing is copied */
    kv_table *t = &s->tables[g];
    quire_err e = QUIRE_OK;
    if (g < c->n_token_groups) {
        e = kv_table_append(c->pool, t, s->swap_tokens - t->n_tokens, c->page_tokens, &none);
    } else {
        e = kv_pool_reserve(c->pool, c->state_pages[g], c->ids);
        kv_table_state_append(c->pool, t, s->swap_tokens, c->state_pages[g], &none, c->ids);
    }
    assert(e == QUIRE_OK);
    (void)e;
}

/* Reserves pages for s up to swap_tokens where windows see them, in all groups or in
 * none. */
static quire_err kv_seq_swap_reserve(kv_cache *c, kv_seq *s) {
    for (int32_t g = c->n_token_groups; g < s->n_tables; g++) {
        kv_table_clear(c->pool, &s->tables[g]); /* its frames take their place as a whole */
    }
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        TRY(kv_table_reserve(&s->tables[g], (int32_t)kv_pages_for(s->swap_tokens, c->page_tokens)));
    }
    int32_t n_given, n_pages = pages_to_take(c, s, &n_given);
    if (n_pages > kv_cache_available(c) + n_given) {
        return QUIRE_NO_ROOM;
    }
    move_windows(c, s);
    kv_cache_make_free(c, n_pages);
    for (int32_t g = 0; g < s->n_tables; g++) {
        kv_seq_swap_append(c, s, g);
    }
    return QUIRE_OK;
}

/* Copies the frames in from entry `first` of the tables on. */
static void kv_seq_swap_copy_in(kv_cache *c, const kv_seq *s, int32_t first, kv_swapped *did) {
    int64_t start_us = clock_us();
    for (int32_t f = s->swap_frames; f != 0; f = c->swap.next[f]) {
        int32_t i = c->swap.tags[f] / s->n_tables, g = c->swap.tags[f] % s->n_tables;
        if (i >= kv_seq_swap_first_of(c, g, first) && s->tables[g].pages[i].v != PAGE_NONE.v) {
            kv_swap_in(&c->swap, f, s->tables[g].pages[i]);
            did->n_pages++;
        }
    }
    did->us = us_since(c, start_us);
}

kv_swapped kv_seq_swap_in(kv_cache *c, kv_seq *s) {
    kv_swapped did = {.n_found = s->n_computed};
    if (kv_seq_swap_peek(c, s, s->n_computed) > s->n_computed) {
        did.n_found -= did.n_found % c->page_tokens;
        kv_seq_truncate(c, s, did.n_found);
        if (kv_seq_swap_reserve(c, s) == QUIRE_OK) {
            kv_seq_swap_copy_in(c, s, did.n_found / c->page_tokens, &did);
            kv_seq_advance(s, s->swap_tokens - did.n_found);
            s->snapshots.last = s->n_computed;
        } else if (c->n_state_pages > 0 || !kv_seq_sees_back(c, s, did.n_found)) {
            did.n_found = 0; /* its state is lost, or a window has a hole before the end of its whole pages */
            kv_seq_truncate(c, s, 0);
        }
    }
    kv_seq_swap_drop(c, s);
    return did;
}
