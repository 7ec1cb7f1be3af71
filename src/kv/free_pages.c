#include "kv/free_pages.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/thread_name.h"

#define SPAN_PAGES  64
#define MAX_REGIONS 8
#define N_HOMES     8 /* number of homes; further threads share them */

/* A region: consecutive spans. Zeroed memory is a region of free pages, so opening
 * touches no words. */
typedef struct region {
    /* number of returns so far << 32 | free pages that are not claimed */
    _Alignas(MEM_ALIGN) _Atomic uint64_t account;
    /* hint: words of `empty` before this one have no span with free pages */
    _Atomic int32_t lowest;
    int32_t first_span, n_spans;
    _Atomic uint64_t *taken; /* [n_spans] a word for each span: the bits of pages that are not free are set */
    /* [n_spans / 64, rounded up] bits of spans without a free page are set; may be
     * stale */
    _Atomic uint64_t *empty;
} region;

/* The home of a thread: where it takes pages. Region base ^ i is the i-th nearest. */
typedef struct home {
    /* region where it last took pages, or a nearer one to which it has returned some
     * since */
    _Alignas(MEM_ALIGN) _Atomic int32_t region;
    int32_t base; /* region at the start */
} home;

struct free_pages {
    int32_t n_pages, n_spans, n_regions; /* n_regions: a power of two */
    uint8_t *region_of;                  /* [n_spans] region of each span */
    /* [i]: the i-th thread that used this set; 0: none yet */
    _Atomic int32_t owners[N_HOMES];
    _Alignas(MEM_ALIGN) pthread_mutex_t gathering;
    home homes[N_HOMES];
    region regions[MAX_REGIONS];
};

static int32_t word_count(int32_t n_bits) {
    return n_bits / 64 + (n_bits % 64 != 0);
}

static int32_t lowest_bit(uint64_t word) {
    return __builtin_ctzll(word);
}

/* ---- opening ---- */

/* Region in which threads with this number begin: the number's bits reversed, so that the
 * first two threads have half of the regions each. */
static int32_t base_region(const free_pages *f, int32_t number) {
    int32_t base = 0;
    for (int32_t bit = 1; bit < f->n_regions; bit *= 2) {
        base = base * 2 + (number & 1);
        number /= 2;
    }
    return base;
}

/* Sets the bits from n on in the last word. */
static void close_tail(_Atomic uint64_t *words, int32_t n) {
    if (n % 64 != 0) {
        atomic_init(&words[n / 64], ~UINT64_C(0) << (n % 64));
    }
}

static quire_err open_region(free_pages *f, int32_t number) {
    region *r = &f->regions[number];
    int32_t end = (int32_t)((int64_t)f->n_spans * (number + 1) / f->n_regions);
    r->first_span = (int32_t)((int64_t)f->n_spans * number / f->n_regions);
    r->n_spans = end - r->first_span;
    r->taken = mem_new_huge((size_t)r->n_spans, sizeof *r->taken);
    r->empty = mem_new((size_t)word_count(r->n_spans), sizeof *r->empty);
    if (r->taken == NULL || r->empty == NULL) {
        return QUIRE_NO_MEMORY;
    }
    int64_t n_pages = (int64_t)r->n_spans * SPAN_PAGES;
    if (end == f->n_spans) {
        n_pages -= (int64_t)f->n_spans * SPAN_PAGES - f->n_pages;
        close_tail(r->taken + r->n_spans - 1, f->n_pages % SPAN_PAGES);
    }
    close_tail(r->empty, r->n_spans);
    atomic_init(&r->account, (uint64_t)n_pages);
    for (int32_t span = r->first_span; span < end; span++) {
        f->region_of[span] = (uint8_t)number;
    }
    return QUIRE_OK;
}

quire_err free_pages_open(int32_t n_pages, free_pages **out) {
    assert(n_pages > 0 && n_pages < INT32_MAX);
    free_pages *f = mem_new(1, sizeof *f);
    TRY(mem_check(f));
    f->n_pages = n_pages;
    f->n_spans = word_count(n_pages);
    f->n_regions = 1;
    while (f->n_regions < MAX_REGIONS && f->n_regions * 2 <= f->n_spans) {
        f->n_regions *= 2;
    }
    pthread_mutex_init(&f->gathering, NULL);
    f->region_of = mem_new((size_t)f->n_spans, sizeof *f->region_of);
    quire_err e = mem_check(f->region_of);
    for (int32_t i = 0; i < f->n_regions && e == QUIRE_OK; i++) {
        e = open_region(f, i);
    }
    if (e != QUIRE_OK) {
        free_pages_close(f);
        return e;
    }
    free_pages_rewind(f);
    *out = f;
    return QUIRE_OK;
}

void free_pages_close(free_pages *f) {
    if (f != NULL) {
        for (int32_t i = 0; i < MAX_REGIONS; i++) {
            mem_free(f->regions[i].taken);
            mem_free(f->regions[i].empty);
        }
        mem_free(f->region_of);
        pthread_mutex_destroy(&f->gathering);
        mem_free(f);
    }
}

/* ---- claims ---- */

/* Returns the number of the calling thread's home. Threads are counted when they first
 * use this set, so that the pages that a thread gets do not depend on other threads of
 * the process. A new thread may get the home of one that has ended. */
static int32_t thread_number(free_pages *f) {
    int32_t me = thread_name();
    for (int32_t i = 0; i < N_HOMES; i++) {
        int32_t owner = atomic_load_explicit(&f->owners[i], memory_order_relaxed);
        if (owner == 0) {
            atomic_compare_exchange_strong_explicit(&f->owners[i], &owner, me, memory_order_relaxed,
                                                    memory_order_relaxed);
        }
        if (owner == me || owner == 0) {
            return i;
        }
    }
    return me % N_HOMES;
}

static void move_home(free_pages *f, int32_t number, int32_t to) {
    _Atomic int32_t *at = &f->homes[number].region;
    if (atomic_load_explicit(at, memory_order_relaxed) != to) {
        atomic_store_explicit(at, to, memory_order_relaxed);
    }
}

/* Call it when pages came back to a region: the thread's next takes go there if it is
 * nearer. So a thread leaves the region of another as soon as a nearer one has pages. */
static void free_pages_come_back(free_pages *f, int32_t number, int32_t to) {
    const home *h = &f->homes[number];
    if ((to ^ h->base) < (atomic_load_explicit(&h->region, memory_order_relaxed) ^ h->base)) {
        move_home(f, number, to);
    }
}

/* Claims n pages of a region; if `all` is false, as many of them as are free. Returns how
 * many. */
static int32_t claim(region *r, int32_t n, bool all) {
    uint64_t account = atomic_load_explicit(&r->account, memory_order_relaxed);
    int32_t got;
    do {
        int32_t n_free = (int32_t)(uint32_t)account;
        got = n_free >= n ? n : all ? 0 : n_free;
        if (got == 0) {
            return 0;
        }
    } while (!atomic_compare_exchange_weak_explicit(&r->account, &account, account - (uint64_t)got,
                                                    memory_order_acquire, memory_order_relaxed));
    return got;
}

/* Number of returns to all regions so far, modulo 2^64. */
static uint64_t count_returns(const free_pages *f) {
    uint64_t n = 0;
    for (int32_t i = 0; i < f->n_regions; i++) {
        n += atomic_load_explicit(&f->regions[i].account, memory_order_acquire) >> 32;
    }
    return n;
}

/* Claims n pages of any regions, the nearest first, and adds them to
 * claimed[0..n_regions). False: too few. A pass may miss a page returned to a region that
 * it has passed, so this fails only after a pass without returns. */
static bool claim_anywhere(free_pages *f, int32_t base, int32_t n, int32_t *claimed) {
    int32_t n_claimed = 0;
    uint64_t before, after;
    /* unlocked, two gathering threads could each hold pages that the other lacks */
    pthread_mutex_lock(&f->gathering);
    do {
        before = count_returns(f);
        for (int32_t i = 0; i < f->n_regions && n_claimed < n; i++) {
            int32_t got = claim(&f->regions[base ^ i], n - n_claimed, false);
            claimed[base ^ i] += got;
            n_claimed += got;
        }
        after = count_returns(f);
    } while (n_claimed < n && after != before);
    for (int32_t i = 0; i < f->n_regions && n_claimed < n; i++) {
        atomic_fetch_add_explicit(&f->regions[i].account, (uint64_t)claimed[i], memory_order_relaxed);
    }
    pthread_mutex_unlock(&f->gathering);
    return n_claimed == n;
}

/* ---- bits ---- */

/* Marks a span as empty after all of its pages were taken. */
static void mark_empty(region *r, int32_t span) {
    uint64_t bit = UINT64_C(1) << (span % 64);
    atomic_fetch_or_explicit(&r->empty[span / 64], bit, memory_order_seq_cst);
    /* a page was returned meanwhile */
    if (atomic_load_explicit(&r->taken[span], memory_order_seq_cst) != ~UINT64_C(0)) {
        atomic_fetch_and_explicit(&r->empty[span / 64], ~bit, memory_order_relaxed);
    }
}

/* Takes up to n free pages of a span into ids. Returns how many. */
static int32_t take_from_span(region *r, int32_t span, int32_t n, page_id *ids) {
    _Atomic uint64_t *word = &r->taken[span];
    uint64_t taken = atomic_load_explicit(word, memory_order_relaxed), bits, rest;
    int32_t got;
    do {
        bits = 0;
        rest = ~taken;
        for (got = 0; got < n && rest != 0; got++) {
            bits |= rest & -rest;
            rest &= rest - 1;
        }
        if (got == 0) {
            return 0;
        }
    } while (!atomic_compare_exchange_weak_explicit(word, &taken, taken | bits, memory_order_acquire,
                                                    memory_order_relaxed));
    for (int32_t i = 0; i < got; i++, bits &= bits - 1) {
        ids[i].v = (r->first_span + span) * SPAN_PAGES + lowest_bit(bits);
    }
    if (rest == 0) {
        mark_empty(r, span);
    }
    return got;
}

/* Takes up to n pages of spans that are not marked empty, from word `from` of the marks
 * on. Returns how many. */
static int32_t take_marked(region *r, int32_t from, int32_t n, page_id *ids) {
    int32_t got = 0;
    for (int32_t w = from; w < word_count(r->n_spans) && got < n; w++) {
        uint64_t candidates = ~atomic_load_explicit(&r->empty[w], memory_order_relaxed);
        for (; candidates != 0 && got < n; candidates &= candidates - 1) {
            got += take_from_span(r, w * 64 + lowest_bit(candidates), n - got, ids + got);
            atomic_store_explicit(&r->lowest, w, memory_order_relaxed);
        }
    }
    return got;
}

/* Takes n claimed pages of a region. They exist, but a hint or a mark may hide them while
 * other threads run, so the last pass looks at every span. */
static void take_claimed(region *r, int32_t n, page_id *ids) {
    int32_t got = take_marked(r, atomic_load_explicit(&r->lowest, memory_order_relaxed), n, ids);
    while (got < n) {
        got += take_marked(r, 0, n - got, ids + got);
        for (int32_t span = 0; span < r->n_spans && got < n; span++) {
            got += take_from_span(r, span, n - got, ids + got);
        }
    }
}

/* Takes n pages of one region, preferably the thread's home. False: no region has n. */
static bool take_from_one(free_pages *f, int32_t number, int32_t n, page_id *ids) {
    int32_t at = atomic_load_explicit(&f->homes[number].region, memory_order_relaxed);
    int32_t got = claim(&f->regions[at], n, true);
    for (int32_t i = 0; i < f->n_regions && got == 0; i++) {
        at = f->homes[number].base ^ i;
        got = claim(&f->regions[at], n, true);
    }
    if (got > 0) {
        take_claimed(&f->regions[at], n, ids);
        move_home(f, number, at);
    }
    return got > 0;
}

bool free_pages_take(free_pages *f, int32_t n, page_id *ids) {
    int32_t number = thread_number(f);
    if (take_from_one(f, number, n, ids)) {
        return true;
    }
    int32_t base = f->homes[number].base, claimed[MAX_REGIONS] = {0};
    if (!claim_anywhere(f, base, n, claimed)) {
        return false;
    }
    for (int32_t i = 0; i < f->n_regions; i++) {
        int32_t from = base ^ i;
        if (claimed[from] > 0) {
            take_claimed(&f->regions[from], claimed[from], ids);
            ids += claimed[from];
            move_home(f, number, from);
        }
    }
    return true;
}

/* ---- runs ---- */

/* Bits of the pages of a span that lie in [first, end). */
static uint64_t run_bits(int32_t span, int32_t first, int32_t end) {
    int32_t from = first > span * SPAN_PAGES ? first % SPAN_PAGES : 0,
            n = (end - 1) / SPAN_PAGES == span ? (end - 1) % SPAN_PAGES + 1 - from : SPAN_PAGES - from;
    return (n == SPAN_PAGES ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << from;
}

/* Takes all of these pages of a span, which are claimed, or none (false). */
static bool take_bits(free_pages *f, int32_t span, uint64_t bits) {
    region *r = &f->regions[f->region_of[span]];
    _Atomic uint64_t *word = &r->taken[span - r->first_span];
    uint64_t taken = atomic_load_explicit(word, memory_order_relaxed);
    do {
        if ((taken & bits) != 0) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(word, &taken, taken | bits, memory_order_acquire,
                                                    memory_order_relaxed));
    if ((taken | bits) == ~UINT64_C(0)) {
        mark_empty(r, span - r->first_span);
    }
    return true;
}

/* Claims these pages of a span and takes all of them, or none (false). A claim that is
 * given back makes no other take fail, because others gather only after this. */
static bool take_in_span(free_pages *f, int32_t span, uint64_t bits) {
    region *r = &f->regions[f->region_of[span]];
    int32_t n = __builtin_popcountll(bits);
    if (claim(r, n, true) == 0) {
        return false;
    }
    if (!take_bits(f, span, bits)) {
        atomic_fetch_add_explicit(&r->account, (uint64_t)n, memory_order_relaxed);
        return false;
    }
    return true;
}

bool free_pages_take_run(free_pages *f, page_id first, int32_t n) {
    assert(first.v >= 0 && n >= 1 && n <= f->n_pages - first.v);
    int32_t end = first.v + n, from = first.v / SPAN_PAGES, to = (end - 1) / SPAN_PAGES, span = from;
    pthread_mutex_lock(&f->gathering);
    while (span <= to && take_in_span(f, span, run_bits(span, first.v, end))) {
        span++;
    }
    for (int32_t i = from; span <= to && i < span; i++) {
        free_batch back = {.span = i, .bits = run_bits(i, first.v, end)};
        free_pages_return(f, &back);
    }
    pthread_mutex_unlock(&f->gathering);
    return span > to;
}

/* ---- returns ---- */

void free_pages_add(free_pages *f, free_batch *batch, page_id id) {
    int32_t span = id.v / SPAN_PAGES;
    if (batch->bits != 0 && batch->span != span) {
        free_pages_return(f, batch);
    }
    batch->span = span;
    batch->bits |= UINT64_C(1) << (id.v % SPAN_PAGES);
}

void free_pages_return(free_pages *f, free_batch *batch) {
    if (batch->bits == 0) {
        return;
    }
    region *r = &f->regions[f->region_of[batch->span]];
    int32_t span = batch->span - r->first_span, word = span / 64, at = f->region_of[batch->span];
    uint64_t taken = atomic_fetch_and_explicit(&r->taken[span], ~batch->bits, memory_order_seq_cst);
    assert((taken & batch->bits) == batch->bits); /* none of them may be free */
    if (taken == ~UINT64_C(0)) {
        atomic_fetch_and_explicit(&r->empty[word], ~(UINT64_C(1) << (span % 64)), memory_order_seq_cst);
    }
    if (word < atomic_load_explicit(&r->lowest, memory_order_relaxed)) {
        atomic_store_explicit(&r->lowest, word, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&r->account, (UINT64_C(1) << 32) + (uint64_t)__builtin_popcountll(batch->bits),
                              memory_order_release);
    free_pages_come_back(f, thread_number(f), at);
    batch->bits = 0;
}

/* ---- views ---- */

static int32_t unclaimed(const region *r) {
    return (int32_t)(uint32_t)atomic_load_explicit(&r->account, memory_order_relaxed);
}

int32_t free_pages_count(const free_pages *f) {
    assert(f != NULL);
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_regions; i++) {
        n += unclaimed(&f->regions[i]);
    }
    return n;
}

bool free_pages_has(const free_pages *f, page_id id) {
    int32_t span = id.v / SPAN_PAGES;
    const region *r = &f->regions[f->region_of[span]];
    return (atomic_load_explicit(&r->taken[span - r->first_span], memory_order_relaxed) >>
                (id.v % SPAN_PAGES) &
            1) == 0;
}

int64_t free_pages_bytes(const free_pages *f) {
    int64_t n = (int64_t)sizeof *f + f->n_spans;
    for (int32_t i = 0; i < f->n_regions; i++) {
        n += ((int64_t)f->regions[i].n_spans + word_count(f->regions[i].n_spans)) * (int64_t)sizeof(uint64_t);
    }
    return n;
}

void free_pages_rewind(free_pages *f) {
    for (int32_t i = 0; i < f->n_regions; i++) {
        atomic_store_explicit(&f->regions[i].lowest, 0, memory_order_relaxed);
    }
    for (int32_t i = 0; i < N_HOMES; i++) {
        f->homes[i].base = base_region(f, i);
        atomic_store_explicit(&f->homes[i].region, f->homes[i].base, memory_order_relaxed);
    }
}

quire_err free_pages_check(const free_pages *f, quire_error *err) {
    assert(f != NULL);
    for (int32_t i = 0; i < f->n_regions; i++) {
        const region *r = &f->regions[i];
        int32_t n_free = 0;
        for (int32_t span = 0; span < r->n_spans; span++) {
            uint64_t taken = atomic_load_explicit(&r->taken[span], memory_order_relaxed);
            bool marked =
                (atomic_load_explicit(&r->empty[span / 64], memory_order_relaxed) >> (span % 64) & 1) != 0;
            if (marked && taken != ~UINT64_C(0)) {
                return err_set(err, QUIRE_INTERNAL, -1, "free pages: span %d is marked empty and has %016llx",
                               (int)(r->first_span + span), (unsigned long long)~taken);
            }
            n_free += __builtin_popcountll(~taken);
        }
        if (n_free != unclaimed(r)) {
            return err_set(err, QUIRE_INTERNAL, -1, "free pages: region %d has %d, %d are counted", (int)i,
                           (int)n_free, (int)unclaimed(r));
        }
    }
    return QUIRE_OK;
}
