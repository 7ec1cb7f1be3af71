/* The merges of one word. Words of a few symbols, which most are, are searched for the
 * best pair again and again. A long word's best pairs come from a heap; but where the
 * same pair is everywhere, as in a megabyte of one letter, sweeps come before it, which
 * merge all of them at once. Each way makes the same merges in the same order: lowest
 * rank first, the leftmost of equal ones. */
#include "base/mem.h"
#include "base/turn.h"
#include "text/bpe.h"

enum { FEW_SYMBOLS = 48, HEAP_WAYS = 4 };
enum { SWEEP_PART = 8 }; /* a sweep that takes less than this part away was the last */
enum { GONE = -2 };

static const bpe_pair no_pair = {0, -1};

static bpe_pair find_pair(const bpe *b, int32_t left, int32_t right) {
    const pair_slot *p = left < 0 || right < 0 ? NULL : pair_table_find(&b->pairs, left, right);
    return p == NULL ? no_pair : (bpe_pair){p->rank, p->id};
}

static bool merges_before(bpe_pair a, bpe_pair b) {
    return a.id >= 0 && (b.id < 0 || a.rank < b.rank);
}

/* The first of the best pairs, or n_symbols. */
static size_t best_pair(const bpe_scratch *s) {
    size_t best = s->n_symbols;
    bpe_pair found = no_pair;
    for (size_t i = 0; i + 1 < s->n_symbols; i++) {
        if (merges_before(s->pairs[i], found)) {
            found = s->pairs[best = i];
        }
    }
    return best;
}

static quire_err find_pairs(const bpe *b, bpe_scratch *s) {
    size_t n = s->n_symbols;
    TRY(mem_grow(&s->pairs, &s->cap_pairs, n, sizeof *s->pairs));
    for (size_t i = 0; i + 1 < n; i++) {
        TRY(turn_poll(1));
        s->pairs[i] = find_pair(b, s->symbols[i].id, s->symbols[i + 1].id);
    }
    if (n > 0) {
        s->pairs[n - 1] = no_pair;
    }
    return QUIRE_OK;
}

/* ---- few symbols ---- */

static void merge_few(const bpe *b, bpe_scratch *s) {
    bpe_symbol *y = s->symbols;
    bpe_pair *p = s->pairs;
    for (size_t i = best_pair(s); i < s->n_symbols; i = best_pair(s)) {
        size_t n = --s->n_symbols;
        y[i] = (bpe_symbol){p[i].id, y[i].at, y[i].n + y[i + 1].n};
        memmove(y + i + 1, y + i + 2, (n - i - 1) * sizeof *y);
        memmove(p + i + 1, p + i + 2, (n - i - 1) * sizeof *p);
        p[i] = i + 1 < n ? find_pair(b, y[i].id, y[i + 1].id) : no_pair;
        if (i > 0) {
            p[i - 1] = find_pair(b, y[i - 1].id, y[i].id);
        }
    }
}

/* ---- sweeps ---- */

/* Merges the pairs of the lowest rank from left to right, as far as none of a rank as low
 * comes up: *all is false then. */
static quire_err bpe_merge_sweep(const bpe *b, bpe_scratch *s, uint32_t rank, bool *all) {
    bpe_symbol *y = s->symbols;
    bpe_pair *p = s->pairs, bound = {rank, 0};
    size_t n = s->n_symbols, to = 0;
    *all = true;
    for (size_t i = 0; i < n; to++) {
        TRY(turn_poll(1));
        if (!*all || p[i].id < 0 || p[i].rank != rank) {
            y[to] = y[i];
            p[to] = p[i++];
            continue;
        }
        bpe_symbol made = {p[i].id, y[i].at, y[i].n + y[i + 1].n};
        i += 2;
        bpe_pair after = i < n ? find_pair(b, made.id, y[i].id) : no_pair;
        bpe_pair before = to > 0 ? find_pair(b, y[to - 1].id, made.id) : no_pair;
        y[to] = made;
        p[to] = after;
        if (to > 0) {
            p[to - 1] = before;
        }
        *all =
            (after.id < 0 || merges_before(bound, after)) && (before.id < 0 || merges_before(bound, before));
    }
    s->n_symbols = to;
    return QUIRE_OK;
}

/* Sweeps as long as each takes a good part of the symbols away. */
static quire_err merge_by_sweeps(const bpe *b, bpe_scratch *s) {
    bool goes_on = true;
    while (goes_on && s->n_symbols > FEW_SYMBOLS) {
        size_t before = s->n_symbols, best = best_pair(s);
        if (best == before) {
            return QUIRE_OK;
        }
        TRY(bpe_merge_sweep(b, s, s->pairs[best].rank, &goes_on));
        goes_on = goes_on && s->n_symbols <= before - before / SWEEP_PART;
    }
    return QUIRE_OK;
}

/* ---- the heap: keys of pairs, the smallest on top ---- */

static uint64_t bpe_merge_key_of(uint32_t rank, size_t at) {
    return (uint64_t)rank << 32 | (uint32_t)at;
}

/* Moves key down from place i, whose key is removed. */
static void sink(uint64_t *heap, size_t n, size_t i, uint64_t key) {
    for (size_t child = HEAP_WAYS * i + 1; child < n; child = HEAP_WAYS * i + 1) {
        size_t end = child + HEAP_WAYS < n ? child + HEAP_WAYS : n, least = child;
        for (size_t k = child + 1; k < end; k++) {
            least = heap[k] < heap[least] ? k : least;
        }
        if (heap[least] >= key) {
            break;
        }
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = key;
}

static quire_err bpe_merge_push(bpe_scratch *s, size_t at) {
    if (s->pairs[at].id < 0) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&s->heap, &s->cap_heap, s->n_heap + 1, sizeof *s->heap));
    uint64_t key = bpe_merge_key_of(s->pairs[at].rank, at);
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / HEAP_WAYS] > key; i = (i - 1) / HEAP_WAYS) {
        s->heap[i] = s->heap[(i - 1) / HEAP_WAYS];
    }
    s->heap[i] = key;
    return QUIRE_OK;
}

static uint64_t pop(bpe_scratch *s) {
    uint64_t top = s->heap[0];
    if (--s->n_heap > 0) {
        sink(s->heap, s->n_heap, 0, s->heap[s->n_heap]);
    }
    return top;
}

static quire_err fill_heap(bpe_scratch *s) {
    size_t n = s->n_symbols;
    TRY(mem_grow(&s->heap, &s->cap_heap, n, sizeof *s->heap));
    TRY(mem_grow(&s->links, &s->cap_links, n, sizeof *s->links));
    s->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        s->links[i] = (bpe_link){(int32_t)i - 1, (int32_t)i + 1};
        if (s->pairs[i].id >= 0) {
            s->heap[s->n_heap++] = bpe_merge_key_of(s->pairs[i].rank, i);
        }
    }
    for (size_t i = s->n_heap / HEAP_WAYS + 1; i-- > 0;) {
        if (i < s->n_heap) {
            sink(s->heap, s->n_heap, i, s->heap[i]);
        }
    }
    return QUIRE_OK;
}

/* Merges symbol i with the one after it. */
static quire_err merge_at(const bpe *b, bpe_scratch *s, int32_t i) {
    int32_t n = (int32_t)s->n_symbols, gone = s->links[i].next, before = s->links[i].prev,
            after = s->links[gone].next;
    bpe_symbol *y = s->symbols;
    y[i] = (bpe_symbol){s->pairs[i].id, y[i].at, y[i].n + y[gone].n};
    y[gone].id = GONE;
    s->pairs[gone] = no_pair;
    s->pairs[i] = no_pair;
    s->links[i].next = after;
    if (after < n) {
        s->links[after].prev = i;
        s->pairs[i] = find_pair(b, y[i].id, y[after].id);
        TRY(bpe_merge_push(s, (size_t)i));
    }
    if (before >= 0) {
        s->pairs[before] = find_pair(b, y[before].id, y[i].id);
        TRY(bpe_merge_push(s, (size_t)before));
    }
    return QUIRE_OK;
}

static quire_err merge_by_heap(const bpe *b, bpe_scratch *s) {
    TRY(fill_heap(s));
    while (s->n_heap > 0) {
        TRY(turn_poll(1));
        uint64_t key = pop(s);
        size_t at = (uint32_t)key;
        /* else one of the two has merged with another since */
        if (s->pairs[at].id >= 0 && s->pairs[at].rank == key >> 32) {
            TRY(merge_at(b, s, (int32_t)at));
        }
    }
    size_t to = 0;
    for (size_t i = 0; i < s->n_symbols; i = (size_t)s->links[i].next) {
        s->symbols[to++] = s->symbols[i];
    }
    s->n_symbols = to;
    return QUIRE_OK;
}

quire_err bpe_merge(const bpe *b, bpe_scratch *s) {
    TRY(find_pairs(b, s));
    if (s->n_symbols > FEW_SYMBOLS) {
        TRY(merge_by_sweeps(b, s));
    }
    if (s->n_symbols > FEW_SYMBOLS) {
        return merge_by_heap(b, s);
    }
    merge_few(b, s);
    return QUIRE_OK;
}
