#include "kv/snapshot.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

static int32_t *snapshot_pages_of(const kv_snapshots *s, int32_t i) {
    return s->pages + (int64_t)i * s->n_pages;
}

const int32_t *kv_snapshots_pages(const kv_snapshots *s, int32_t snapshot) {
    return snapshot_pages_of(s, snapshot);
}

const int32_t *kv_snapshots_tail(const kv_snapshots *s, int32_t snapshot) {
    return s->tails + (int64_t)snapshot * s->shape.page_tokens;
}

quire_err kv_snapshots_open(kv_snapshots *s, kv_pool *pool, const kv_snapshot_shape *shape) {
    *s = (kv_snapshots){.pool = pool, .shape = *shape, .unused = SNAPSHOT_NONE};
    int32_t n_pool = kv_pool_counts(pool).n_pages;
    for (int32_t g = 0; g < shape->n_groups; g++) {
        if (shape->state_pages[g] < 1 || shape->state_pages[g] > n_pool - s->n_pages) {
            return QUIRE_INVALID; /* there is no room for one state */
        }
        s->n_pages += shape->state_pages[g];
    }
    s->list = mem_new((size_t)shape->cap, sizeof *s->list);
    s->pages = mem_new((size_t)shape->cap, (size_t)s->n_pages * sizeof *s->pages);
    s->tails = mem_new((size_t)shape->cap, (size_t)shape->page_tokens * sizeof *s->tails);
    s->places = mem_new((size_t)shape->n_places, sizeof *s->places);
    if (s->list == NULL || s->pages == NULL || s->tails == NULL || s->places == NULL) {
        kv_snapshots_close(s);
        return QUIRE_NO_MEMORY;
    }
    for (int32_t i = shape->cap - 1; i >= 0; i--) {
        s->list[i] = (kv_snapshot){.place = SNAPSHOT_NONE, .next = s->unused};
        s->unused = i;
    }
    for (int32_t i = 0; i < shape->n_places; i++) {
        s->places[i] = SNAPSHOT_NONE;
    }
    return QUIRE_OK;
}

void kv_snapshots_close(kv_snapshots *s) {
    mem_free(s->list);
    mem_free(s->pages);
    mem_free(s->tails);
    mem_free(s->places);
    *s = (kv_snapshots){0};
}

int64_t kv_snapshots_bytes(const kv_snapshots *s) {
    int64_t one = (int64_t)sizeof *s->list + (s->n_pages + s->shape.page_tokens) * (int64_t)sizeof(int32_t);
    return s->shape.cap * one + s->shape.n_places * (int64_t)sizeof *s->places;
}

/* ---- by value ---- */

static void snapshot_touch(kv_snapshots *s, int32_t i) {
    s->list[i].value = s->clock + s->list[i].saves;
}

static bool is_held(const kv_snapshots *s, int32_t i) {
    return kv_pool_count(s->pool, (page_id){snapshot_pages_of(s, i)[0]}) > 0;
}

int32_t kv_snapshots_least(const kv_snapshots *s) {
    int32_t least = SNAPSHOT_NONE;
    bool least_held = false;
    for (int32_t i = 0; i < s->shape.cap; i++) {
        if (s->list[i].place == SNAPSHOT_NONE) {
            continue;
        }
        bool held = is_held(s, i),
             is_less = least != SNAPSHOT_NONE && s->list[i].value < s->list[least].value;
        if (least == SNAPSHOT_NONE || held < least_held || (held == least_held && is_less)) {
            least = i;
            least_held = held;
        }
    }
    return least;
}

/* ---- by place ---- */

static bool starts_with(const kv_snapshots *s, int32_t i, const int32_t *tokens) {
    int32_t n_tail = s->list[i].n_tail;
    return n_tail == 0 || memcmp(kv_snapshots_tail(s, i), tokens, (size_t)n_tail * sizeof *tokens) == 0;
}

int32_t kv_snapshots_find(const kv_snapshots *s, int32_t place, const int32_t *tail, int32_t n_tail) {
    int32_t i = s->places[place];
    while (i != SNAPSHOT_NONE && (s->list[i].n_tail != n_tail || !starts_with(s, i, tail))) {
        i = s->list[i].next;
    }
    return i;
}

int32_t kv_snapshots_deepest(const kv_snapshots *s, int32_t place, const int32_t *tokens, int32_t n) {
    int32_t best = SNAPSHOT_NONE, n_best = 0;
    for (int32_t i = s->places[place]; i != SNAPSHOT_NONE; i = s->list[i].next) {
        int32_t n_tail = s->list[i].n_tail;
        if (n_tail > n_best && n_tail <= n && starts_with(s, i, tokens)) {
            best = i;
            n_best = n_tail;
        }
    }
    return best;
}

/* ---- adding and dropping ---- */

int32_t kv_snapshots_add(kv_snapshots *s, int32_t place, const int32_t *tail, int32_t n_tail, int32_t saves,
                         const kv_table *tables) {
    int32_t i = kv_snapshots_find(s, place, tail, n_tail);
    if (i != SNAPSHOT_NONE) {
        snapshot_touch(s, i);
        return SNAPSHOT_NONE;
    }
    if (s->unused == SNAPSHOT_NONE) {
        int32_t least = kv_snapshots_least(s);
        s->clock = s->list[least].value > s->clock ? s->list[least].value : s->clock;
        kv_snapshots_drop(s, least);
    }
    i = s->unused;
    s->unused = s->list[i].next;
    s->list[i] = (kv_snapshot){.place = place, .n_tail = n_tail, .next = s->places[place], .saves = saves};
    s->places[place] = i;
    snapshot_touch(s, i);
    mem_copy(s->tails + (int64_t)i * s->shape.page_tokens, tail, (size_t)n_tail * sizeof *tail);
    int32_t *pages = snapshot_pages_of(s, i);
    for (int32_t g = 0; g < s->shape.n_groups; g++) {
        assert(tables[g].n_pages == s->shape.state_pages[g]);
        for (int32_t p = 0; p < tables[g].n_pages; p++) {
            kv_pool_index(s->pool, tables[g].pages[p], s->shape.first_mark + i);
            *pages++ = tables[g].pages[p].v;
        }
    }
    s->n++;
    s->n_taken++;
    return i;
}

void kv_snapshots_restore(kv_snapshots *s, int32_t snapshot, int32_t n_tokens, kv_table *tables) {
    const int32_t *pages = snapshot_pages_of(s, snapshot);
    snapshot_touch(s, snapshot);
    s->n_restored++;
    for (int32_t g = 0; g < s->shape.n_groups; g++) {
        kv_table *t = &tables[g];
        assert(t->n_pages == 0 && t->cap_pages >= s->shape.state_pages[g]);
        for (; t->n_pages < s->shape.state_pages[g]; t->n_pages++) {
            t->pages[t->n_pages].v = *pages++;
            kv_pool_share(s->pool, t->pages[t->n_pages]);
        }
        t->n_tokens = n_tokens;
    }
}

void kv_snapshots_drop(kv_snapshots *s, int32_t snapshot) {
    assert(s != NULL);
    kv_snapshot *x = &s->list[snapshot];
    int32_t *link = &s->places[x->place];
    if (s->on_drop != NULL) {
        s->on_drop(s->context, snapshot);
    }
    while (*link != snapshot) {
        link = &s->list[*link].next;
    }
    *link = x->next;
    for (int32_t p = 0; p < s->n_pages; p++) {
        kv_pool_unindex(s->pool, (page_id){snapshot_pages_of(s, snapshot)[p]});
    }
    *x = (kv_snapshot){.place = SNAPSHOT_NONE, .next = s->unused};
    s->unused = snapshot;
    s->n--;
    s->n_dropped++;
}

void kv_snapshots_drop_place(kv_snapshots *s, int32_t place) {
    assert(s != NULL);
    while (s->places[place] != SNAPSHOT_NONE) {
        kv_snapshots_drop(s, s->places[place]);
    }
}

/* ---- when a sequence takes snapshots ---- */

/* Returns the smaller of `next` and a position, if that is still to come; else `next`. */
static int32_t nearer_point(const kv_snapshot_plan *plan, int32_t point, int32_t next) {
    point -= plan->unit > 1 ? point % plan->unit : 0;
    return point > plan->last && point < next ? point : next;
}

int32_t kv_snapshot_next(const kv_snapshot_plan *plan) {
    int32_t next = INT32_MAX;
    int32_t interval = plan->interval;
    interval += interval > 0 && plan->unit > 1 ? (plan->unit - interval % plan->unit) % plan->unit : 0;
    if (interval > 0 && plan->last / interval < INT32_MAX / interval) {
        next = (plan->last / interval + 1) * interval;
    }
    next = nearer_point(plan, plan->branch, next);
    for (int32_t i = 0; i < plan->n_marks; i++) {
        next = nearer_point(plan, plan->marks[i], next);
    }
    return nearer_point(plan, plan->prompt_end, next);
}

bool kv_snapshot_mark(kv_snapshot_plan *plan, int32_t n_tokens) {
    int32_t at = plan->n_marks;
    for (int32_t i = 0; i < plan->n_marks; i++) {
        at = plan->marks[i] == n_tokens || (at == plan->n_marks && plan->marks[i] <= plan->last) ? i : at;
    }
    if (at == SNAPSHOT_MARKS) {
        return false;
    }
    plan->marks[at] = n_tokens;
    plan->n_marks += at == plan->n_marks;
    return true;
}

/* ---- audit ---- */

static quire_err check_one(const kv_snapshots *s, int32_t i, int32_t place, quire_error *err) {
    const kv_snapshot *x = &s->list[i];
    if (x->place != place || x->n_tail < 0 || x->n_tail >= s->shape.page_tokens ||
        kv_snapshots_find(s, place, kv_snapshots_tail(s, i), x->n_tail) != i) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv snapshots: %d is at place %d with a tail of %d, not at %d or not alone", i,
                       x->place, x->n_tail, place);
    }
    int32_t n_held = 0;
    for (int32_t p = 0; p < s->n_pages; p++) {
        page_id page = {snapshot_pages_of(s, i)[p]};
        if (kv_pool_entry(s->pool, page) != s->shape.first_mark + i) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv snapshots: page %d of snapshot %d is marked %d",
                           page.v, i, kv_pool_entry(s->pool, page));
        }
        n_held += kv_pool_count(s->pool, page) > 0;
    }
    if (n_held != 0 && n_held != s->n_pages) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv snapshots: of %d pages of snapshot %d, %d are held",
                       s->n_pages, i, n_held);
    }
    return QUIRE_OK;
}

quire_err kv_snapshots_check(const kv_snapshots *s, int32_t *n_marked, quire_error *err) {
    assert(s != NULL);
    int32_t n_placed = 0;
    for (int32_t place = 0; place < s->shape.n_places; place++) {
        for (int32_t i = s->places[place]; i != SNAPSHOT_NONE; i = s->list[i].next, n_placed++) {
            TRY(check_one(s, i, place, err));
        }
    }
    if (n_placed != s->n || s->n > s->shape.cap || s->n_taken - s->n_dropped != s->n) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv snapshots: %d are counted, %d stand at places, %lld were taken and %lld dropped",
                       s->n, n_placed, (long long)s->n_taken, (long long)s->n_dropped);
    }
    *n_marked += s->n * s->n_pages;
    return QUIRE_OK;
}
