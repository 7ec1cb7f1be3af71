/* Promotion: fetches the pages of a waiting sequence from the tiers into the pool and the
 * index. */
#include "base/mem.h"
#include "kv/kv_tiering_parts.h"

quire_err promotion_open(const kv_tiering *t, promotion *p) {
    p->frames = mem_new(WINDOW * (size_t)t->c->n_groups, sizeof(int32_t));
    return p->frames != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void promotion_close(promotion *p) {
    mem_free(p->frames);
}

/* ---- a path in the index while pages are published ---- */

/* Moves t->seq to s's first n tokens in the index, or to fewer if it ends before. s
 * itself waits at its root. */
static void stand(kv_tiering *t, const kv_seq *s, const int32_t *tokens, int32_t n) {
    kv_seq *at = &t->seq;
    kv_seq_fork(t->c, s, 0, at);
    (void)kv_seq_admit(t->c, at, tokens, n); /* the tables have room */
    kv_seq_truncate(t->c, at, at->path.n_pages * t->c->page_tokens);
}

static void kv_tiering_promotion_leave(kv_tiering *t, const int32_t *tokens) {
    kv_seq_release(t->c, &t->seq, tokens, KV_DROP);
    kv_seq_close(t->c, &t->seq);
}

/* As stand, at the end of whole pages after which every window can go on. */
static void stand_to_go_on(kv_tiering *t, const kv_seq *s, const int32_t *tokens, int32_t n) {
    stand(t, s, tokens, n);
    /* it could from within the next page only */
    while (!kv_seq_sees_back(t->c, &t->seq, t->seq.n_computed)) {
        n = t->seq.n_computed;
        kv_tiering_promotion_leave(t, tokens);
        stand(t, s, tokens, n); /* it ends before them, or sees back now */
    }
}

/* ---- fetching ---- */

static int32_t *frame_at(const kv_tiering *t, const promotion *p, int32_t page, int32_t group) {
    return &p->frames[page % WINDOW * t->c->n_groups + group];
}

/* Releases the frames of pages from..to. */
static void release_frames(kv_tiering *t, const promotion *p, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++) {
        for (int32_t g = 0; g < t->c->n_groups; g++) {
            kv_tiers_release(t->tiers, *frame_at(t, p, i, g));
        }
    }
}

static void kv_tiering_promotion_finish(kv_tiering *t, promotion *p) {
    release_frames(t, p, p->n_done, p->n_asked);
    p->s->tier_wait = KV_TIER_WAIT_OVER;
    p->s = NULL;
}

/* Fetches the next page of tokens in every group, or in none. */
static kv_fetch fetch_page(kv_tiering *t, promotion *p) {
    kv_tiers *tiers = t->tiers;
    const kv_path *path = &p->s->path;
    int32_t number = p->n_asked < path->n_public ? path->public_namespace : path->namespace;
    kv_index_namespace namespace = kv_index_describe_namespace(t->c->index, number);
    kv_tier_key key = {.namespace = namespace.name,
                       .n_namespace = namespace.n_name,
                       .tokens = p->tokens + p->n_asked * t->c->page_tokens};
    key.parent =
        p->n_asked == 0 || p->n_asked == path->n_public ? tiering_root(t, p->before, number) : p->before;
    key.id = kv_tier_id_page(key.parent, key.tokens, t->c->page_tokens);
    for (; key.group < t->c->n_groups; key.group++) {
        kv_fetch f = kv_tiers_fetch(tiers, &key, frame_at(t, p, p->n_asked, key.group));
        if (f != KV_FETCH_STARTED) {
            while (key.group-- > 0) {
                kv_tiers_release(tiers, *frame_at(t, p, p->n_asked, key.group));
            }
            return f;
        }
    }
    p->before = key.id;
    p->n_asked++;
    return KV_FETCH_STARTED;
}

static void kv_tiering_promotion_fetch_ahead(kv_tiering *t, promotion *p) {
    while (p->n_asked < p->n_total && p->n_asked - p->n_done < WINDOW) {
        kv_fetch f = fetch_page(t, p);
        if (f == KV_FETCH_NOWHERE) {
            p->n_total = p->n_asked;
        }
        if (f != KV_FETCH_STARTED) {
            return;
        }
    }
}

/* How many pages of tokens from n_done on have come. A miss ends the promotion. */
static int32_t count_come(kv_tiering *t, promotion *p) {
    const kv_tiers *tiers = t->tiers;
    for (int32_t i = p->n_done; i < p->n_asked; i++) {
        for (int32_t g = 0; g < t->c->n_groups; g++) {
            int32_t f = *frame_at(t, p, i, g);
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
static quire_err kv_tiering_promotion_reserve(kv_tiering *t, int32_t n) {
    kv_copies none = {0}; /* they end with whole pages: nothing is copied */
    kv_cache_make_free(t->c, n * t->c->n_groups);
    return kv_seq_reserve(t->c, &t->seq, n * t->c->page_tokens, &none);
}

/* Puts n fetched pages of tokens into the pool and the index, and gives their frames
 * back. False: there is no room. */
static bool publish(kv_tiering *t, promotion *p, int32_t n) {
    stand(t, p->s, p->tokens, p->n_done * t->c->page_tokens);
    const kv_mover *mover = t->c->mover;
    bool fits = t->seq.path.n_pages == p->n_done && kv_tiering_promotion_reserve(t, n) == QUIRE_OK;
    release_frames(t, p, p->n_done, fits ? p->n_done : p->n_done + n);
    for (int32_t i = p->n_done; fits && i < p->n_done + n; i++) {
        for (int32_t g = 0; g < t->c->n_groups; g++) {
            frame_move m = {.frame = *frame_at(t, p, i, g)};
            m.fence =
                mover->write(mover->context, t->seq.tables[g].pages[i], kv_tiers_take(t->tiers, m.frame));
            tiering_end_move(t, &m);
        }
    }
    if (fits) {
        kv_seq_advance(&t->seq, n * t->c->page_tokens);
        kv_seq_publish(t->c, &t->seq, p->tokens);
        fits = t->seq.path.n_pages == p->n_done + n;
    }
    kv_tiering_promotion_leave(t, p->tokens);
    return fits;
}

void promotion_advance(kv_tiering *t, promotion *p, int64_t now_us) {
    kv_tiering_promotion_fetch_ahead(t, p);
    int32_t n = count_come(t, p);
    if (n > 0) {
        bool fits = publish(t, p, n);
        p->n_done += n;
        p->n_total = fits ? p->n_total : p->n_done;
        if (fits && t->on_promoted != NULL) {
            t->on_promoted(t->context, p->s, n * t->c->page_tokens);
        }
        kv_tiering_promotion_fetch_ahead(t, p);
    }
    if (p->n_done >= p->n_total || now_us >= p->s->tier_deadline_us) {
        kv_tiering_promotion_finish(t, p);
    }
}

/* Begins to promote the pages of tokens[0..n) after those in the pool, if these are not
 * all that s can use. */
static void kv_tiering_promotion_begin(kv_tiering *t, promotion *p, kv_seq *s, const int32_t *tokens,
                                       int32_t n, int64_t now_us) {
    int32_t n_total = n / t->c->page_tokens;
    stand_to_go_on(t, s, tokens, n_total * t->c->page_tokens);
    const kv_path *path = &t->seq.path;
    *p = (promotion){.s = s,
                     .tokens = tokens,
                     .n_done = path->n_pages,
                     .n_asked = path->n_pages,
                     .n_total = n_total,
                     .frames = p->frames};
    if (path->n_pages > 0 && path->n_pages < n_total) {
        p->before = tiering_name(t, path->entry);
    }
    kv_tiering_promotion_leave(t, tokens);
    s->tier_wait = KV_TIER_WAITS;
    promotion_advance(t, p, now_us);
}

/* ---- a waiting sequence's side ---- */

bool kv_tiering_waits(kv_tiering *t, kv_seq *s, const int32_t *tokens, int32_t n, int64_t now_us,
                      int64_t wait_us) {
    if (t == NULL || !s->has_path || s->tier_wait == KV_TIER_WAIT_OVER) {
        return false;
    }
    if (s->tier_wait == KV_TIER_WAIT_NONE) {
        if (s->tier_deadline_us == 0) {
            s->tier_deadline_us = now_us + wait_us;
        }
        promotion *p = t->promotions;
        while (p < t->promotions + MAX_PROMOTIONS && p->s != NULL) {
            p++;
        }
        if (p < t->promotions + MAX_PROMOTIONS) {
            kv_tiering_promotion_begin(t, p, s, tokens, n, now_us);
        } else if (now_us >= s->tier_deadline_us) {
            s->tier_wait = KV_TIER_WAIT_OVER;
        }
    }
    return s->tier_wait != KV_TIER_WAIT_OVER;
}

void kv_tiering_forget(kv_tiering *t, kv_seq *s) {
    for (int i = 0; t != NULL && i < MAX_PROMOTIONS; i++) {
        if (t->promotions[i].s == s) {
            kv_tiering_promotion_finish(t, &t->promotions[i]);
        }
    }
    s->tier_wait = KV_TIER_WAIT_NONE;
    s->tier_deadline_us = 0;
}
