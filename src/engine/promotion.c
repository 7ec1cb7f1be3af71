/* Promotion: fetches the pages of a waiting request from the tiers into the pool and the index. */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/explain.h"
#include "engine/tiering.h"
#include "engine/tiering_parts.h"

quire_err promotion_open(engine *e, promotion *p) {
    p->frames = mem_new(WINDOW * (size_t)e->layout.n_groups, sizeof(int32_t));
    return p->frames ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void promotion_close(promotion *p) {
    mem_free(p->frames);
}

/* ---- a path in the index while pages are published ---- */

/* Moves t->seq to s's first n tokens in the index, or to fewer if it ends before. s itself waits at its root. */
static void stand(engine *e, const sequence *s, int32_t n) {
    kv_seq *at = &e->tiering->seq;
    kv_seq_fork(&e->kv, &s->task.kv, 0, at);
    (void)kv_seq_admit(&e->kv, at, s->task.tokens, n); /* the tables have room */
    kv_seq_truncate(&e->kv, at, at->path.n_pages * e->layout.page_tokens);
}

static void leave(engine *e, const sequence *s) {
    kv_seq_release(&e->kv, &e->tiering->seq, s->task.tokens, KV_DROP);
    kv_seq_close(&e->kv, &e->tiering->seq);
}

/* ---- fetching ---- */

static int32_t *frame_at(const engine *e, const promotion *p, int32_t page, int32_t group) {
    return &p->frames[page % WINDOW * e->layout.n_groups + group];
}

/* Releases the frames of pages from..to. */
static void release_frames(engine *e, const promotion *p, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++) {
        for (int32_t g = 0; g < e->layout.n_groups; g++) {
            kv_tiers_release(e->tiering->tiers, *frame_at(e, p, i, g));
        }
    }
}

static void finish(engine *e, promotion *p) {
    release_frames(e, p, p->n_done, p->n_asked);
    p->s->tier_wait = TIER_WAIT_OVER;
    p->s = NULL;
}

/* Fetches the next page of tokens in every group, or in none. */
static kv_fetch fetch_page(engine *e, promotion *p) {
    kv_tiers *tiers = e->tiering->tiers;
    const kv_path *path = &p->s->task.kv.path;
    int32_t number = p->n_asked < path->n_public ? path->public_namespace : path->namespace;
    kv_index_namespace namespace = kv_index_describe_namespace(e->kv.index, number);
    kv_tier_key key = {
        .namespace = namespace.name, .n_namespace = namespace.n_name, .tokens = p->s->task.tokens + p->n_asked * e->layout.page_tokens};
    key.parent = p->n_asked == 0 || p->n_asked == path->n_public ? tiering_root(e, p->before, number) : p->before;
    key.id = kv_tier_id_page(key.parent, key.tokens, e->layout.page_tokens);
    for (; key.group < e->layout.n_groups; key.group++) {
        kv_fetch f = kv_tiers_fetch(tiers, &key, frame_at(e, p, p->n_asked, key.group));
        if (f != KV_FETCH_STARTED) {
            while (key.group-- > 0) {
                kv_tiers_release(tiers, *frame_at(e, p, p->n_asked, key.group));
            }
            return f;
        }
    }
    p->before = key.id;
    p->n_asked++;
    return KV_FETCH_STARTED;
}

static void fetch_ahead(engine *e, promotion *p) {
    while (p->n_asked < p->n_total && p->n_asked - p->n_done < WINDOW) {
        kv_fetch f = fetch_page(e, p);
        if (f == KV_FETCH_NOWHERE) {
            p->n_total = p->n_asked;
        }
        if (f != KV_FETCH_STARTED) {
            return;
        }
    }
}

/* How many pages of tokens from n_done on have come. A miss ends the promotion. */
static int32_t count_come(engine *e, promotion *p) {
    const kv_tiers *tiers = e->tiering->tiers;
    for (int32_t i = p->n_done; i < p->n_asked; i++) {
        for (int32_t g = 0; g < e->layout.n_groups; g++) {
            int32_t f = *frame_at(e, p, i, g);
            if (!kv_tiers_is_ready(tiers, f)) {
                return i - p->n_done;
            }
            if (!kv_tiers_take(tiers, f)) {
                p->n_total = i;
                return i - p->n_done;
            }
        }
    }
    return p->n_asked - p->n_done;
}

/* ---- publishing ---- */

/* Reserves room for n more pages of tokens, in every group. */
static quire_err reserve(engine *e, int32_t n) {
    kv_copies none = {0}; /* they end with whole pages: nothing is copied */
    kv_cache_make_free(&e->kv, n * e->layout.n_groups);
    return kv_seq_reserve(&e->kv, &e->tiering->seq, n * e->layout.page_tokens, &none);
}

/* Puts n fetched pages of tokens into the pool and the index. False: there is no room. */
static bool publish(engine *e, promotion *p, int32_t n) {
    tiering *t = e->tiering;
    stand(e, p->s, p->n_done * e->layout.page_tokens);
    bool fits = t->seq.path.n_pages == p->n_done && reserve(e, n) == QUIRE_OK;
    for (int32_t i = p->n_done; fits && i < p->n_done + n; i++) {
        for (int32_t g = 0; g < e->layout.n_groups; g++) {
            e->b->ops->kv_write_page(e->b, t->seq.tables[g].pages[i].v, kv_tiers_take(t->tiers, *frame_at(e, p, i, g)));
        }
    }
    if (fits) {
        kv_seq_advance(&t->seq, n * e->layout.page_tokens);
        kv_seq_publish(&e->kv, &t->seq, p->s->task.tokens);
        fits = t->seq.path.n_pages == p->n_done + n;
    }
    leave(e, p->s);
    return fits;
}

void promotion_advance(engine *e, promotion *p) {
    fetch_ahead(e, p);
    int32_t n = count_come(e, p);
    if (n > 0) {
        bool fits = publish(e, p, n);
        release_frames(e, p, p->n_done, p->n_done + n);
        p->n_done += n;
        p->n_total = fits ? p->n_total : p->n_done;
        if (fits) {
            e->stats.promoted_tokens += (int64_t)n * e->layout.page_tokens;
            explain_promoted(p->s, n * e->layout.page_tokens);
        }
        fetch_ahead(e, p);
    }
    if (p->n_done >= p->n_total || clock_us() >= p->s->tier_deadline_us) {
        finish(e, p);
    }
}

/* Begins to promote s's pages behind those in the pool, if these are not all that it can use. */
static void begin(engine *e, promotion *p, sequence *s) {
    int32_t n_total = task_reusable(&s->task) / e->layout.page_tokens;
    stand(e, s, n_total * e->layout.page_tokens);
    const kv_path *path = &e->tiering->seq.path;
    *p = (promotion){.s = s, .n_done = path->n_pages, .n_asked = path->n_pages, .n_total = n_total, .frames = p->frames};
    if (path->n_pages > 0 && path->n_pages < n_total) {
        p->before = tiering_name(e, path->entry);
    }
    leave(e, s);
    s->tier_wait = TIER_WAITS;
    promotion_advance(e, p);
}

/* ---- a waiting sequence's side ---- */

bool tiering_waits(engine *e, sequence *s) {
    if (!e->tiering || !s->task.kv.has_path || s->tier_wait == TIER_WAIT_OVER) {
        return false;
    }
    if (s->tier_wait == TIER_WAIT_NONE) {
        if (s->tier_deadline_us == 0) {
            s->tier_deadline_us = clock_us() + e->options.tiers.wait_us;
        }
        promotion *p = e->tiering->promotions;
        while (p < e->tiering->promotions + MAX_PROMOTIONS && p->s) {
            p++;
        }
        if (p < e->tiering->promotions + MAX_PROMOTIONS) {
            begin(e, p, s);
        } else if (clock_us() >= s->tier_deadline_us) {
            s->tier_wait = TIER_WAIT_OVER;
        }
    }
    return s->tier_wait != TIER_WAIT_OVER;
}

void tiering_forget(engine *e, sequence *s) {
    for (int i = 0; e->tiering && i < MAX_PROMOTIONS; i++) {
        if (e->tiering->promotions[i].s == s) {
            finish(e, &e->tiering->promotions[i]);
        }
    }
    s->tier_wait = TIER_WAIT_NONE;
    s->tier_deadline_us = 0;
}
