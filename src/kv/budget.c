#include "kv/budget.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/mem.h"

#define LEAST_GRANULES 64
#define GRANULE_NONE   (-1)
#define MEMBER_NONE    (-1)
#define LEVEL_FREE     INT32_MIN /* level of a granule without cached pages, which has no value */

typedef struct member {
    kv_budget_member m; /* m.pool NULL: the entry is free */
    int32_t n_pages, granule_pages;
    int32_t lowest; /* all granules before this one are resident */
    bool claims;
} member;

struct kv_budget {
    int64_t bytes, granule_bytes;
    /* written by the owner; other threads may read them */
    _Atomic int64_t used_bytes, fixed_bytes, promised_bytes;
    _Atomic int32_t n_pools;
    int64_t clock; /* clock of the pools */
    uint64_t n_moves;
    member members[KV_BUDGET_MAX_POOLS];
};

/* A key that orders evictions: the lowest is evicted first. */
typedef struct worth {
    int32_t level;
    int64_t released;
} worth;

/* A granule of a member. */
typedef struct place {
    int32_t member, granule; /* granule GRANULE_NONE: none */
    worth worth;
} place;

static bool is_less(worth a, worth b) {
    return a.level != b.level ? a.level < b.level : a.released < b.released;
}

/* ---- opening and membership ---- */

quire_err kv_budget_open(int64_t bytes, kv_budget **out) {
    if (bytes < 1) {
        return QUIRE_INVALID;
    }
    kv_budget *b = mem_new(1, sizeof *b);
    TRY(mem_check(b));
    int64_t part = bytes / LEAST_GRANULES > 0 ? bytes / LEAST_GRANULES : 1;
    b->bytes = bytes;
    b->granule_bytes = part < KV_GRANULE_BYTES ? part : KV_GRANULE_BYTES;
    *out = b;
    return QUIRE_OK;
}

void kv_budget_close(kv_budget *b) {
    assert(b == NULL || b->n_pools == 0);
    mem_free(b);
}

kv_budget_counts kv_budget_count(const kv_budget *b) {
    return (kv_budget_counts){.bytes = b->bytes,
                              .used_bytes = b->used_bytes,
                              .fixed_bytes = b->fixed_bytes,
                              .promised_bytes = b->promised_bytes,
                              .n_pools = b->n_pools};
}

/* Number of pages of a granule. */
static int64_t budget_granule_pages(const kv_budget *b, int64_t page_bytes) {
    return (b->granule_bytes + page_bytes - 1) / page_bytes;
}

int32_t kv_budget_pages(const kv_budget *b, int64_t page_bytes, int64_t bytes) {
    int64_t each = budget_granule_pages(b, page_bytes), n = bytes / (each * page_bytes) * each;
    return n < INT32_MAX ? (int32_t)n : INT32_MAX - 1;
}

quire_err kv_budget_open_pool(kv_budget *b, int32_t n_pages, int64_t page_bytes, kv_pool **out) {
    if (n_pages < 1 || page_bytes < 1 || n_pages > b->bytes / page_bytes) {
        return QUIRE_INVALID;
    }
    int64_t n = budget_granule_pages(b, page_bytes);
    return kv_pool_open_absent(n_pages, n < n_pages ? (int32_t)n : n_pages, &b->clock, out);
}

static int64_t resident_bytes(const member *m) {
    return (m->n_pages - kv_pool_counts(m->m.pool).n_absent) * m->m.page_bytes;
}

/* Bytes of granules with held pages. */
static int64_t held_bytes(const member *m) {
    return resident_bytes(m) - kv_pool_idle_pages(m->m.pool) * m->m.page_bytes;
}

/* Whether the pool is spare: its pages can be taken at any time. */
static bool is_spare(const member *m) {
    return m->m.yield != NULL && m->m.floor_bytes == 0;
}

/* Adds (sign 1) or subtracts (-1) a member's floor and fixed part. */
static void budget_promise(kv_budget *b, const kv_budget_member *m, int sign) {
    b->used_bytes += sign * m->fixed_bytes;
    b->fixed_bytes += sign * m->fixed_bytes;
    b->promised_bytes += sign * (m->fixed_bytes + m->floor_bytes);
    b->n_pools += sign;
}

void kv_budget_leave(kv_budget *b, int32_t number) {
    assert(b != NULL);
    member *m = &b->members[number];
    b->used_bytes -= resident_bytes(m);
    budget_promise(b, &m->m, -1);
    kv_pool_leave_clock(m->m.pool);
    b->n_moves++;
    *m = (member){0};
}

void kv_budget_claim(kv_budget *b, int32_t number, bool claims) {
    b->members[number].claims = claims;
}

int64_t kv_budget_resident(const kv_budget *b, int32_t number) {
    return resident_bytes(&b->members[number]);
}

uint64_t kv_budget_moves(const kv_budget *b) {
    return b->n_moves;
}

/* ---- how much there is ---- */

static int64_t budget_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t budget_most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Bytes that a member could get: what others neither hold nor claim and, up to its own
 * floor, what they hold above theirs. Negative: it has more than it may hold. */
static int64_t obtainable_bytes(const kv_budget *b, int32_t number) {
    const member *own = &b->members[number];
    int64_t shared = b->bytes - b->fixed_bytes - resident_bytes(own), owed = shared;
    for (int32_t i = 0; i < KV_BUDGET_MAX_POOLS; i++) {
        const member *m = &b->members[i];
        if (m->m.pool == NULL || i == number) {
            continue;
        }
        int64_t held = held_bytes(m);
        if (is_spare(own)) { /* a spare pool gives memory back at once, so it may use what others claim */
            shared -= held;
        } else if (!is_spare(m)) {
            shared -= m->claims ? budget_most(held, m->m.floor_bytes) : held;
            owed -= m->m.yield != NULL ? budget_least(held, m->m.floor_bytes) : held;
        }
    }
    owed = budget_least(owed, own->m.floor_bytes - resident_bytes(own));
    return is_spare(own) ? shared : budget_most(shared, owed);
}

/* Number of pages of the pool's last granule if it is shorter than the others and absent;
 * else 0. */
static int32_t absent_rest(const member *m) {
    kv_granule last = kv_pool_granule(m->m.pool, kv_pool_n_granules(m->m.pool) - 1);
    return last.n_pages < m->granule_pages && !last.is_resident ? last.n_pages : 0;
}

int32_t kv_budget_available(const kv_budget *b, int32_t number) {
    const member *m = &b->members[number];
    kv_counts c = kv_pool_counts(m->m.pool);
    int32_t rest = absent_rest(m), n_absent = (c.n_absent - rest) / m->granule_pages;
    int64_t each = m->granule_pages * m->m.page_bytes, bytes = obtainable_bytes(b, number);
    if (bytes < 0) { /* granules that must be given back first */
        int64_t n_given = (-bytes + each - 1) / each * m->granule_pages;
        return c.n_free + c.n_cached - (int32_t)budget_least(n_given, kv_pool_idle_pages(m->m.pool));
    }
    int64_t n = budget_least(bytes / each, n_absent);
    bool fits_rest = bytes - n * each >= rest * m->m.page_bytes;
    return c.n_free + c.n_cached + (int32_t)n * m->granule_pages + (fits_rest ? rest : 0);
}

/* ---- moving granules ---- */

static int64_t granule_cost(const member *m, int32_t granule) {
    return kv_pool_granule(m->m.pool, granule).n_pages * m->m.page_bytes;
}

/* Returns the granule to bring next: the first absent one. A short last granule comes
 * last, since its memory could complete another granule. */
static int32_t next_granule(kv_budget *b, int32_t number) {
    member *m = &b->members[number];
    int32_t n = kv_pool_n_granules(m->m.pool), rest = absent_rest(m);
    int64_t bytes = obtainable_bytes(b, number);
    while (m->lowest < n && kv_pool_granule(m->m.pool, m->lowest).is_resident) {
        m->lowest++;
    }
    bool is_whole = m->lowest < n - (rest > 0);
    if (is_whole && bytes >= granule_cost(m, m->lowest)) {
        return m->lowest;
    }
    return rest > 0 && bytes >= rest * m->m.page_bytes ? n - 1 : GRANULE_NONE;
}

static void bring(kv_budget *b, int32_t number, int32_t granule) {
    member *m = &b->members[number];
    kv_pool_bring(m->m.pool, granule);
    b->used_bytes += granule_cost(m, granule);
    b->n_moves++;
}

/* Gives back a granule in which all pages are free. False: another thread has reserved
 * one of them. *went: whether the memory was returned to the system. */
static bool give_back(kv_budget *b, int32_t number, int32_t granule, bool *went) {
    member *m = &b->members[number];
    const kv_mover *mover = m->m.mover;
    kv_granule g = kv_pool_granule(m->m.pool, granule);
    if (!kv_pool_remove(m->m.pool, granule)) {
        return false;
    }
    b->used_bytes -= g.n_pages * m->m.page_bytes;
    b->n_moves++;
    m->lowest = granule < m->lowest ? granule : m->lowest;
    *went = mover == NULL || (mover->discard != NULL && mover->discard(mover->context, g.first, g.n_pages));
    return true;
}

/* Evicts the cached pages of a granule and gives it back. False: another thread has
 * reserved one of its pages. */
static bool empty(kv_budget *b, int32_t number, int32_t granule) {
    const kv_budget_member *m = &b->members[number].m;
    kv_granule g = kv_pool_granule(m->pool, granule);
    for (page_id page = g.first; page.v < g.first.v + g.n_pages; page.v++) {
        if (kv_pool_entry(m->pool, page) >= 0 && kv_pool_count(m->pool, page) == 0) {
            kv_index_evict_page(m->index, page);
        }
    }
    bool went;
    return give_back(b, number, granule, &went);
}

bool kv_budget_give_back(kv_budget *b, int32_t number) {
    const kv_pool *pool = b->members[number].m.pool;
    bool all_went = true;
    for (int32_t i = 0; i < kv_pool_n_granules(pool); i++) {
        kv_granule g = kv_pool_granule(pool, i);
        bool went = true;
        if (g.is_resident && g.n_held == 0 && g.n_cached == 0 && give_back(b, number, i, &went)) {
            all_went = all_went && went;
        }
    }
    return all_went;
}

/* ---- what goes next ---- */

static worth worth_of_page(const kv_budget_member *m, page_id page) {
    return (worth){kv_index_level(m->index, page), kv_pool_cached_at(m->pool, page)};
}

/* Returns the worth of a granule without held pages, which is that of its most valuable
 * page. */
static worth worth_of_granule(const kv_budget_member *m, const kv_granule *g) {
    worth w = {g->n_cached > 0 ? KV_PRIORITY_DEFAULT : LEVEL_FREE, g->last_use};
    if (g->n_cached == 0 || !kv_index_has_levels(m->index)) {
        return w;
    }
    w.level = LEVEL_FREE;
    for (page_id page = g->first; page.v < g->first.v + g->n_pages; page.v++) {
        bool is_cached = kv_pool_entry(m->pool, page) >= 0 && kv_pool_count(m->pool, page) == 0;
        int32_t level = is_cached ? kv_index_level(m->index, page) : LEVEL_FREE;
        w.level = level > w.level ? level : w.level;
    }
    return w;
}

/* Sets *best to the least valuable of *best and a member's granules without held pages;
 * of free granules the last. */
static void find_in(const kv_budget *b, int32_t number, place *best) {
    const kv_budget_member *m = &b->members[number].m;
    for (int32_t i = kv_pool_n_granules(m->pool) - 1; i >= 0; i--) {
        kv_granule g = kv_pool_granule(m->pool, i);
        if (!g.is_resident || g.n_held > 0) {
            continue;
        }
        worth w = worth_of_granule(m, &g);
        if (best->granule == GRANULE_NONE || is_less(w, best->worth)) {
            *best = (place){number, i, w};
        }
        if (w.level == LEVEL_FREE) {
            return;
        }
    }
}

/* Returns the least valuable granule of the other pools; free granules come first. */
static place find_granule(const kv_budget *b, int32_t number) {
    place best = {.granule = GRANULE_NONE};
    for (int32_t i = 0;
         i < KV_BUDGET_MAX_POOLS && (best.granule == GRANULE_NONE || best.worth.level > LEVEL_FREE); i++) {
        const kv_budget_member *m = &b->members[i].m;
        if (m->pool != NULL && i != number && kv_pool_idle_pages(m->pool) > 0) {
            find_in(b, i, &best);
        }
    }
    return best;
}

/* Asks the spare pools, one after another, to release held pages. False: they hold
 * none. */
static bool ask_spare(const kv_budget *b) {
    for (int32_t i = 0; i < KV_BUDGET_MAX_POOLS; i++) {
        const member *m = &b->members[i];
        if (m->m.pool != NULL && is_spare(m) && m->m.yield(m->m.context)) {
            return true;
        }
    }
    return false;
}

/* Asks the members above their floors, the furthest above first, to release held pages.
 * False: none does. */
static bool ask_above_floor(const kv_budget *b, int32_t number) {
    uint64_t asked = 0;
    _Static_assert(KV_BUDGET_MAX_POOLS <= 64, "a bit a pool");
    for (;;) {
        int32_t most = MEMBER_NONE;
        int64_t above = 0;
        for (int32_t i = 0; i < KV_BUDGET_MAX_POOLS; i++) {
            const member *m = &b->members[i];
            bool may = m->m.pool != NULL && i != number && m->m.yield != NULL && (asked >> i & 1) == 0;
            int64_t own = may ? held_bytes(m) - m->m.floor_bytes : 0;
            most = own > above ? i : most;
            above = budget_most(own, above);
        }
        if (most == MEMBER_NONE) {
            return false;
        }
        asked |= UINT64_C(1) << most;
        if (b->members[most].m.yield(b->members[most].m.context)) {
            return true;
        }
    }
}

/* Asks other members to release held pages so that a member can bring a granule of this
 * cost. */
static bool ask_to_yield(const kv_budget *b, int32_t number, int64_t cost) {
    const member *m = &b->members[number];
    return !is_spare(m) &&
           (ask_spare(b) || (resident_bytes(m) + cost <= m->m.floor_bytes && ask_above_floor(b, number)));
}

/* Makes one step towards a free page: brings a granule, evicts a page, makes memory
 * unused, or asks for a release of pages. False: nothing more can be done. */
static bool step_towards_free(kv_budget *b, int32_t number) {
    const kv_budget_member *m = &b->members[number].m;
    int32_t next = next_granule(b, number);
    int64_t cost = next != GRANULE_NONE ? granule_cost(&b->members[number], next) : 0;
    if (next != GRANULE_NONE && cost <= b->bytes - b->used_bytes) {
        bring(b, number, next);
        return true;
    }
    place other = next != GRANULE_NONE ? find_granule(b, number) : (place){.granule = GRANULE_NONE};
    page_id own = m->index != NULL ? kv_index_victim(m->index) : PAGE_NONE;
    if (own.v != PAGE_NONE.v &&
        (other.granule == GRANULE_NONE || is_less(worth_of_page(m, own), other.worth))) {
        return kv_index_evict(m->index, kv_pool_counts(m->pool).n_free + 1) == QUIRE_OK;
    }
    if (other.granule != GRANULE_NONE) {
        (void)empty(b, other.member, other.granule);
        return true;
    }
    return next != GRANULE_NONE && ask_to_yield(b, number, cost);
}

/* Gives back what the member holds above its limit. */
static void shed(kv_budget *b, int32_t number) {
    bool goes_on = true;
    while (goes_on && obtainable_bytes(b, number) < 0) {
        place least = {.granule = GRANULE_NONE};
        find_in(b, number, &least);
        goes_on = least.granule != GRANULE_NONE && empty(b, number, least.granule);
    }
}

void kv_budget_make_free(kv_budget *b, int32_t number, int32_t n) {
    shed(b, number);
    while (kv_pool_counts(b->members[number].m.pool).n_free < n && step_towards_free(b, number)) {
    }
}

/* ---- joining ---- */

/* Makes this much memory unused. False: pages within floors prevent it. */
static bool make_unused(kv_budget *b, int64_t bytes) {
    bool goes_on = true;
    while (goes_on && b->bytes - b->used_bytes < bytes) {
        place least = find_granule(b, MEMBER_NONE);
        goes_on = least.granule != GRANULE_NONE ? empty(b, least.member, least.granule)
                                                : ask_spare(b) || ask_above_floor(b, MEMBER_NONE);
    }
    return goes_on;
}

/* Returns the floor, rounded up to whole granules. */
static int64_t round_floor(const member *m) {
    int64_t each = m->granule_pages * m->m.page_bytes, all = m->n_pages * m->m.page_bytes;
    return m->m.floor_bytes >= all ? all : budget_least((m->m.floor_bytes + each - 1) / each * each, all);
}

quire_err kv_budget_join(kv_budget *b, const kv_budget_member *m, int32_t *number) {
    int32_t i = 0;
    while (i < KV_BUDGET_MAX_POOLS && b->members[i].m.pool != NULL) {
        i++;
    }
    kv_counts c = kv_pool_counts(m->pool);
    assert(c.n_absent == c.n_pages && m->floor_bytes >= 0 && m->fixed_bytes >= 0);
    member new = {
        .m = *m, .n_pages = c.n_pages, .granule_pages = kv_pool_granule(m->pool, 0).n_pages, .claims = true};
    new.m.floor_bytes = round_floor(&new);
    int64_t left = b->bytes - b->promised_bytes;
    if (i == KV_BUDGET_MAX_POOLS || m->fixed_bytes > left || new.m.floor_bytes > left - m->fixed_bytes ||
        !make_unused(b, m->fixed_bytes)) {
        return QUIRE_NO_ROOM;
    }
    b->members[i] = new;
    budget_promise(b, &new.m, 1);
    *number = i;
    return QUIRE_OK;
}

/* ---- audit ---- */

quire_err kv_budget_check(const kv_budget *b, quire_error *err) {
    int64_t used = 0, promised = 0;
    for (int32_t i = 0; i < KV_BUDGET_MAX_POOLS; i++) {
        const member *m = &b->members[i];
        if (m->m.pool != NULL) {
            TRY(kv_pool_check(m->m.pool, err));
            used += resident_bytes(m) + m->m.fixed_bytes;
            promised += m->m.floor_bytes + m->m.fixed_bytes;
        }
    }
    if (used != b->used_bytes || used > b->bytes) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv budget: resident pages and fixed parts take %lld bytes, %lld of %lld are counted",
                       (long long)used, (long long)b->used_bytes, (long long)b->bytes);
    }
    if (promised != b->promised_bytes || promised > b->bytes) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv budget: floors and fixed parts are %lld bytes, %lld of %lld are counted",
                       (long long)promised, (long long)b->promised_bytes, (long long)b->bytes);
    }
    return QUIRE_OK;
}
