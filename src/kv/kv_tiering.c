#include "kv/kv_tiering.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"

#define MAX_PROMOTIONS 8   /* most sequences whose pages are fetched at the same time */
#define WINDOW         16  /* most pages of tokens in flight for each of them */
#define MAX_MOVES      256 /* most moves in progress on the device */
#define ENTRY_NONE     (-1)

/* The tier key of the prefix up to the end of an index entry, computed at first use. */
typedef struct entry_name {
    kv_tier_id id;
    bool is_known;
    bool was_queued; /* the entry's pages are in the queue for write-through, or were written */
} entry_name;

/* The promotion of pages [n_done, n_total) of tokens of a waiting sequence. Frames are
 * assigned to pages before n_asked. */
typedef struct promotion {
    kv_seq *s; /* NULL: the entry is free */
    const int32_t *tokens;
    int32_t n_done, n_asked, n_total;
    /* id of the prefix before page n_asked; at the start of a namespace see
     * tiering_root */
    kv_tier_id before;
    int32_t *frames; /* [WINDOW, n_token_groups], page i at i % WINDOW */
    /* after the pages, a snapshot: it is tried after n_state pages of tokens, and then
     * after fewer, but more than n_least, where s can begin already; n_state_asked of its
     * pages have frames */
    int32_t n_state, n_least, n_state_asked;
    int32_t *state_frames; /* [n_state_pages] */
    /* [most pages of a sequence] id of the prefix up to each page's end; NULL: no
     * states */
    kv_tier_id *ids;
} promotion;

/* A ring of full entries whose pages will be written through, oldest first. */
typedef struct write_queue {
    int32_t *entries; /* [cap]; NULL: write-through is off */
    int32_t cap, first, n;
} write_queue;

/* A move between a page and a frame of the tiers, in progress on the device. */
typedef struct frame_move {
    kv_fence fence;
    int32_t frame;
    bool is_put;   /* true: stores the page when the move is done; false: releases the frame */
    kv_tier_id id; /* id of the page being put */
    int32_t group;
} frame_move;

struct kv_tiering {
    kv_cache *c;
    kv_tiers *tiers;
    kv_index_watch watch;
    entry_name *names; /* [kv_index_cap_entries] name of each index entry */
    int32_t *path;     /* [max pages of a sequence] entries of a path, from its end to its root */
    kv_seq seq;        /* a position for publishing pages; its tables are empty between calls */
    promotion promotions[MAX_PROMOTIONS];
    write_queue to_write;
    frame_move moves[MAX_MOVES]; /* a ring, oldest first */
    int32_t first_move, n_moves;
    const wake *reader;
    void (*on_promoted)(void *context, kv_seq *s, int32_t n_tokens);
    void *context;
    bool are_kept; /* some tier outlives the process */
    bool closes;
};

#define FLUSH_US      5000000 /* longest time to flush when closing */
#define FLUSH_PENDING 4       /* most pages being written at a time during the flush */
#define SHORT_WAIT_US 1000
/* most pages of tokens that a step writes through; each costs the engine thread a copy
 * and a checksum */
#define WRITES_A_STEP 4
/* most queued pages that a step checks: tiers may have many of them */
#define LOOKS_A_STEP 16
/* write-through pauses at this many transfers, to leave frames to other moves */
#define WRITES_AT_ONCE 8

/* ---- keys ---- */

/* Id of the prefix before the first page of a namespace; before: id of the public
 * prefix. */
static kv_tier_id tiering_root(const kv_tiering *t, kv_tier_id before, int32_t namespace) {
    kv_index_namespace s = kv_index_describe_namespace(t->c->index, namespace);
    return kv_tier_id_root(before, s.name, s.n_name, s.is_public);
}

/* Id of the prefix before a full entry. All entries before it must have ids. */
static kv_tier_id parent_of(const kv_tiering *t, const kv_index_entry *d) {
    kv_tier_id before = d->up != ENTRY_NONE ? t->names[d->up].id : (kv_tier_id){0, 0};
    bool begins = d->up == ENTRY_NONE || kv_index_describe(t->c->index, d->up).namespace != d->namespace;
    return begins ? tiering_root(t, before, d->namespace) : before;
}

/* Id of the prefix up to the end of a full entry. Also computes the ids of all entries
 * before it. */
static kv_tier_id tiering_name(kv_tiering *t, int32_t entry) {
    int32_t n = 0;
    for (int32_t i = entry; i != ENTRY_NONE && !t->names[i].is_known;
         i = kv_index_describe(t->c->index, i).up) {
        t->path[n++] = i;
    }
    while (n > 0) {
        kv_index_entry d = kv_index_describe(t->c->index, t->path[--n]);
        t->names[d.entry].id = kv_tier_id_page(parent_of(t, &d), d.tokens, t->c->page_tokens);
        t->names[d.entry].is_known = true;
    }
    return t->names[entry].id;
}

/* ---- moves that the device has not done ---- */

static void land(kv_tiering *t, const frame_move *m) {
    if (m->is_put) {
        kv_tiers_put_end(t->tiers, m->frame);
    } else {
        kv_tiers_release(t->tiers, m->frame);
    }
}

static bool kv_tiering_is_done(const kv_tiering *t, kv_fence fence) {
    return t->c->mover->done(t->c->mover->context, fence);
}

/* Ends the moves that the device has finished. */
static void kv_tiering_settle(kv_tiering *t) {
    while (t->n_moves > 0 && kv_tiering_is_done(t, t->moves[t->first_move].fence)) {
        land(t, &t->moves[t->first_move]);
        t->first_move = (t->first_move + 1) % MAX_MOVES;
        t->n_moves--;
    }
}

/* Ends a move that was just given to the mover: now if it is done, otherwise in a later
 * poll. Waits for the device if too many are in progress. */
static void tiering_end_move(kv_tiering *t, const frame_move *m) {
    if (t->n_moves == 0 && kv_tiering_is_done(t, m->fence)) {
        land(t, m);
        return;
    }
    while (t->n_moves == MAX_MOVES) {
        kv_tiering_settle(t);
    }
    t->moves[(t->first_move + t->n_moves++) % MAX_MOVES] = *m;
}

/* ---- promotion: fetches the pages of a waiting sequence from the tiers into the pool
 * and the index ---- */

static quire_err promotion_open(const kv_tiering *t, promotion *p, size_t n_most) {
    size_t n_states = (size_t)t->c->n_state_pages;
    p->frames = mem_new(WINDOW * (size_t)t->c->n_token_groups, sizeof(int32_t));
    TRY(mem_check(p->frames));
    if (n_states > 0) {
        p->state_frames = mem_new(n_states, sizeof(int32_t));
        p->ids = mem_new(n_most + 1, sizeof *p->ids);
        TRY(mem_check(p->state_frames));
        TRY(mem_check(p->ids));
    }
    return QUIRE_OK;
}

static void promotion_close(promotion *p) {
    mem_free(p->frames);
    mem_free(p->state_frames);
    mem_free(p->ids);
}

/* ---- a path in the index while pages are published ---- */

/* Moves t->seq to the end of s's first n tokens in the index, or of as many as it has. s
 * itself waits at its root. t->seq has only groups of tokens. */
static void stand(kv_tiering *t, const kv_seq *s, const int32_t *tokens, int32_t n) {
    kv_seq *at = &t->seq;
    kv_seq_fork(t->c, s, 0, at);
    /* cannot fail: the tables have room */
    (void)kv_index_match_pages(t->c->index, &at->path, tokens, n, at->tables, &at->n_computed);
    kv_seq_truncate(t->c, at, at->path.n_pages * t->c->page_tokens);
}

static void kv_tiering_promotion_leave(kv_tiering *t, const int32_t *tokens) {
    kv_seq_release(t->c, &t->seq, tokens, KV_DROP);
    kv_seq_close(t->c, &t->seq);
}

/* Like stand, but stops after whole pages from which every window can continue. */
static void stand_to_go_on(kv_tiering *t, const kv_seq *s, const int32_t *tokens, int32_t n) {
    stand(t, s, tokens, n);
    /* t->seq could continue only from inside the next page */
    while (!kv_seq_sees_back(t->c, &t->seq, t->seq.n_computed)) {
        n = t->seq.n_computed;
        kv_tiering_promotion_leave(t, tokens);
        stand(t, s, tokens, n); /* t->seq now ends before n tokens, or its windows can continue */
    }
}

/* ---- fetching ---- */

static int32_t *frame_at(const kv_tiering *t, const promotion *p, int32_t page, int32_t group) {
    return &p->frames[page % WINDOW * t->c->n_token_groups + group];
}

/* Releases the frames of pages [from, to). */
static void release_frames(kv_tiering *t, const promotion *p, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++) {
        for (int32_t g = 0; g < t->c->n_token_groups; g++) {
            kv_tiers_release(t->tiers, *frame_at(t, p, i, g));
        }
    }
}

static void release_state_frames(kv_tiering *t, promotion *p) {
    while (p->n_state_asked > 0) {
        kv_tiers_release(t->tiers, p->state_frames[--p->n_state_asked]);
    }
}

static void kv_tiering_promotion_finish(kv_tiering *t, promotion *p) {
    release_frames(t, p, p->n_done, p->n_asked);
    release_state_frames(t, p);
    p->s->tier_wait = KV_TIER_WAIT_OVER;
    p->s = NULL;
}

/* Key of page n_asked. */
static kv_tier_key next_key(const kv_tiering *t, const promotion *p) {
    const kv_path *path = &p->s->path;
    int32_t number = p->n_asked < path->n_public ? path->public_namespace : path->namespace;
    kv_index_namespace namespace = kv_index_describe_namespace(t->c->index, number);
    kv_tier_key key = {.namespace = namespace.name,
                       .n_namespace = namespace.n_name,
                       .tokens = p->tokens + p->n_asked * t->c->page_tokens};
    key.parent =
        p->n_asked == 0 || p->n_asked == path->n_public ? tiering_root(t, p->before, number) : p->before;
    key.id = kv_tier_id_page(key.parent, key.tokens, t->c->page_tokens);
    return key;
}

/* Records that page n_asked, with this id, was requested. */
static void pass_page(promotion *p, kv_tier_id id) {
    p->before = id;
    if (p->ids != NULL) {
        p->ids[p->n_asked] = id;
    }
    p->n_asked++;
}

/* Fetches the next page of tokens in every group, or in none. */
static kv_fetch fetch_page(kv_tiering *t, promotion *p) {
    kv_tiers *tiers = t->tiers;
    kv_tier_key key = next_key(t, p);
    for (; key.group < t->c->n_token_groups; key.group++) {
        kv_fetch f = kv_tiers_fetch(tiers, &key, frame_at(t, p, p->n_asked, key.group));
        if (f != KV_FETCH_STARTED) {
            while (key.group-- > 0) {
                kv_tiers_release(tiers, *frame_at(t, p, p->n_asked, key.group));
            }
            return f;
        }
    }
    pass_page(p, key.id);
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

/* Number of pages of tokens from n_done on that have arrived. A miss ends the
 * promotion. */
static int32_t count_come(kv_tiering *t, promotion *p) {
    const kv_tiers *tiers = t->tiers;
    for (int32_t i = p->n_done; i < p->n_asked; i++) {
        for (int32_t g = 0; g < t->c->n_token_groups; g++) {
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
    kv_copies none = {0}; /* the sequence ends with a whole page, so nothing is copied */
    kv_cache_make_free(t->c, n * t->c->n_token_groups);
    return kv_seq_reserve(t->c, &t->seq, n * t->c->page_tokens, &none);
}

/* Puts n fetched pages of tokens into the pool and the index, and releases their frames.
 * False: there is no room. */
static bool publish(kv_tiering *t, promotion *p, int32_t n) {
    stand(t, p->s, p->tokens, p->n_done * t->c->page_tokens);
    const kv_mover *mover = t->c->mover;
    bool fits = t->seq.path.n_pages == p->n_done && kv_tiering_promotion_reserve(t, n) == QUIRE_OK;
    release_frames(t, p, p->n_done, fits ? p->n_done : p->n_done + n);
    for (int32_t i = p->n_done; fits && i < p->n_done + n; i++) {
        for (int32_t g = 0; g < t->c->n_token_groups; g++) {
            frame_move m = {.frame = *frame_at(t, p, i, g)};
            m.fence =
                mover->write(mover->context, t->seq.tables[g].pages[i], kv_tiers_take(t->tiers, m.frame));
            tiering_end_move(t, &m);
        }
    }
    if (fits) {
        kv_seq_advance(&t->seq, n * t->c->page_tokens);
        kv_seq_publish_pages(t->c, &t->seq, p->tokens);
        fits = t->seq.path.n_pages == p->n_done + n;
    }
    kv_tiering_promotion_leave(t, p->tokens);
    return fits;
}

/* ---- snapshots: after the pages of tokens, the deepest one whose pages the tiers have
 * ---- */

/* Key of the pages of a snapshot after a prefix of whole pages. tokens: those of the
 * prefix's last page. */
static kv_tier_key state_key(const kv_tiering *t, kv_index_namespace namespace, kv_tier_id prefix,
                             const int32_t *tokens) {
    return (kv_tier_key){.namespace = namespace.name,
                         .n_namespace = namespace.n_name,
                         .group = t->c->n_token_groups,
                         .parent = prefix,
                         .id = kv_tier_id_page(prefix, NULL, 0),
                         .tokens = tokens};
}

/* Requests the remaining pages of the snapshot after n_state pages of tokens. */
static kv_fetch ask_for_state(kv_tiering *t, promotion *p) {
    const kv_path *path = &p->s->path;
    int32_t last = p->n_state - 1;
    kv_index_namespace namespace = kv_index_describe_namespace(
        t->c->index, last < path->n_public ? path->public_namespace : path->namespace);
    kv_tier_key key = state_key(t, namespace, p->ids[last], p->tokens + last * t->c->page_tokens);
    key.group += p->n_state_asked;
    for (; p->n_state_asked < t->c->n_state_pages; key.group++) {
        kv_fetch f = kv_tiers_fetch(t->tiers, &key, &p->state_frames[p->n_state_asked]);
        if (f != KV_FETCH_STARTED) {
            return f;
        }
        p->n_state_asked++;
    }
    return KV_FETCH_STARTED;
}

/* Whether the model has no groups of tokens. */
static bool has_states_alone(const kv_tiering *t) {
    return t->c->n_token_groups == 0;
}

/* Puts the fetched snapshot into the pool and the index, if there is room. */
static void publish_state(kv_tiering *t, promotion *p) {
    kv_cache *c = t->c;
    const int32_t n = p->n_state * c->page_tokens;
    kv_table tables[KV_MAX_GROUPS];
    kv_cache_make_free(c, c->n_state_pages);
    stand(t, p->s, p->tokens, n);
    /* without groups of tokens, publishing the snapshot adds its tokens to the index */
    bool fits = (has_states_alone(t) || t->seq.path.n_pages == p->n_state) &&
                kv_pool_reserve(c->pool, c->n_state_pages, c->ids) == QUIRE_OK;
    for (int32_t i = 0; fits && i < c->n_state_pages; i++) {
        frame_move m = {.frame = p->state_frames[i]};
        m.fence = c->mover->write(c->mover->context, c->ids[i], kv_tiers_take(t->tiers, m.frame));
        tiering_end_move(t, &m);
    }
    if (fits) {
        p->n_state_asked = 0; /* the moves will release the frames */
        kv_state_views(c, c->ids, tables);
        (void)kv_index_snapshot(c->index, &t->seq.path, p->tokens, n, n, t->seq.tables, tables);
        kv_pool_release_all(c->pool, c->ids, c->n_state_pages);
        if (has_states_alone(t) && t->on_promoted != NULL) {
            t->on_promoted(t->context, p->s, (p->n_state - p->n_least) * c->page_tokens);
        }
    }
    kv_tiering_promotion_leave(t, p->tokens);
}

/* Returns 1 if all requested pages have arrived, 0 if not yet, -1 if one is missing. */
static int state_has_come(const kv_tiering *t, const promotion *p) {
    for (int32_t i = 0; i < p->n_state_asked; i++) {
        if (!kv_tiers_is_ready(t->tiers, p->state_frames[i])) {
            return 0;
        }
        if (kv_tiers_take(t->tiers, p->state_frames[i]) == NULL) {
            return -1;
        }
    }
    return p->n_state_asked == t->c->n_state_pages ? 1 : 0;
}

/* Continues to fetch a snapshot. True: it is done, or there is none. */
static bool advance_state(kv_tiering *t, promotion *p) {
    while (p->n_state > p->n_least) {
        kv_fetch f = ask_for_state(t, p);
        int come = f == KV_FETCH_NOWHERE ? -1 : state_has_come(t, p);
        if (come == 0) {
            return false;
        }
        if (come > 0) {
            publish_state(t, p);
        }
        release_state_frames(t, p);
        p->n_state = come > 0 ? p->n_least : p->n_state - 1;
    }
    return true;
}

/* Begins to fetch snapshots, once the pages of tokens have arrived. */
static void begin_state(const kv_tiering *t, promotion *p) {
    if (p->n_state < 0) {
        kv_held held;
        p->n_state = p->n_done;
        p->n_least =
            kv_seq_peek(t->c, p->s, p->tokens, p->n_done * t->c->page_tokens, &held) / t->c->page_tokens;
    }
}

/* Continues to fetch and publish. Ends when all pages have arrived or the time is up. */
static void promotion_advance(kv_tiering *t, promotion *p, int64_t now_us) {
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
    bool is_over = p->n_done >= p->n_total;
    if (is_over && p->ids != NULL) {
        begin_state(t, p);
        is_over = advance_state(t, p);
    }
    if (is_over || now_us >= p->s->tier_deadline_us) {
        kv_tiering_promotion_finish(t, p);
    }
}

/* Passes over all pages of tokens if there are no groups of tokens: nothing of them is
 * fetched, and each may end with a snapshot. */
static void pass_all_pages(const kv_tiering *t, promotion *p) {
    while (p->n_asked < p->n_total) {
        pass_page(p, next_key(t, p).id);
    }
    p->n_done = p->n_total;
}

/* Begins to promote the pages of tokens[0..n) after those in the pool, unless the pool
 * has all that s can use. */
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
                     .frames = p->frames,
                     .n_state = -1,
                     .state_frames = p->state_frames,
                     .ids = p->ids};
    if (path->n_pages > 0 && (path->n_pages < n_total || p->ids != NULL)) {
        p->before = tiering_name(t, path->entry);
    }
    for (int32_t i = path->n_pages, e = path->entry; p->ids != NULL && i > 0; i--) {
        p->ids[i - 1] = t->names[e].id;
        e = kv_index_describe(t->c->index, e).up;
    }
    kv_tiering_promotion_leave(t, tokens);
    if (has_states_alone(t)) {
        pass_all_pages(t, p);
    }
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

/* Whether the page is being stored; until that is done the tiers do not have it. */
static bool is_being_put(const kv_tiering *t, kv_tier_id id, int32_t group) {
    for (int32_t i = 0; i < t->n_moves; i++) {
        const frame_move *m = &t->moves[(t->first_move + i) % MAX_MOVES];
        if (m->is_put && m->group == group && kv_tier_id_equal(m->id, id)) {
            return true;
        }
    }
    return false;
}

/* ---- demotion ---- */

/* Stores a page in the tiers that lack it. False: nothing to store, or no room. */
static bool put_page(kv_tiering *t, const kv_tier_key *key, int32_t page, kv_put to) {
    frame_move m = {.is_put = true, .id = key->id, .group = key->group};
    void *body =
        is_being_put(t, key->id, key->group) ? NULL : kv_tiers_put_begin(t->tiers, key, to, &m.frame);
    if (body != NULL) {
        m.fence = t->c->mover->read(t->c->mover->context, (page_id){page}, body);
        tiering_end_move(t, &m);
    }
    return body != NULL;
}

/* Like put_page, for a full entry's page in one group. */
static bool put_entry(kv_tiering *t, const kv_index_entry *d, int32_t group, kv_put to) {
    kv_tier_id id = tiering_name(t, d->entry);
    kv_tier_key key = {.namespace = d->name,
                       .n_namespace = d->n_name,
                       .group = group,
                       .parent = parent_of(t, d),
                       .id = id,
                       .tokens = d->tokens};
    return put_page(t, &key, d->pages[group], to);
}

/* Like put_page, for the pages of the snapshot at a full entry's end. */
static bool put_state(kv_tiering *t, const kv_index_entry *d, const int32_t *pages, kv_put to) {
    kv_index_namespace namespace = {.name = d->name, .n_name = d->n_name};
    kv_tier_key key = state_key(t, namespace, tiering_name(t, d->entry), d->tokens);
    bool did = false;
    for (int32_t i = 0; i < t->c->n_state_pages; i++, key.group++) {
        did = put_page(t, &key, pages[i], to) || did;
    }
    return did;
}

/* Callback before a page is removed: stores its bytes in the tiers, unless it is
 * part-filled. */
static void on_remove(void *context, int32_t entry, int32_t group) {
    kv_tiering *t = context;
    kv_index_entry d = kv_index_describe(t->c->index, entry);
    if (d.n_tokens == t->c->page_tokens) {
        (void)put_entry(t, &d, group, t->closes ? KV_PUT_KEPT : KV_PUT_ALL);
    }
}

static void on_state(void *context, int32_t entry, const int32_t *pages) {
    kv_tiering *t = context;
    kv_index_entry d = kv_index_describe(t->c->index, entry);
    (void)put_state(t, &d, pages, t->closes ? KV_PUT_KEPT : KV_PUT_ALL);
}

static void on_drop(void *context, int32_t entry) {
    const kv_tiering *t = context;
    t->names[entry] = (entry_name){0};
}

/* ---- write-through ---- */

void kv_tiering_published(kv_tiering *t, const kv_seq *s) {
    if (t == NULL || t->to_write.entries == NULL) {
        return;
    }
    int32_t n = 0;
    for (int32_t i = s->path.entry; i != ENTRY_NONE && !t->names[i].was_queued;
         i = kv_index_describe(t->c->index, i).up) {
        t->path[n++] = i;
    }
    write_queue *q = &t->to_write;
    for (; n > 0 && q->n < q->cap; q->n++) { /* the other pages are stored when they are evicted */
        q->entries[(q->first + q->n) % q->cap] = t->path[--n];
        t->names[t->path[n]].was_queued = true;
    }
}

int32_t kv_tiering_n_pending(const kv_tiering *t) {
    return t != NULL ? t->n_moves + kv_tiers_n_pending(t->tiers) : 0;
}

/* Takes the oldest entry off the queue and writes its pages through. False: it was
 * removed meanwhile, or nothing was stored. */
static bool write_next(kv_tiering *t) {
    write_queue *q = &t->to_write;
    int32_t entry = q->entries[q->first];
    bool did = false;
    q->first = (q->first + 1) % q->cap;
    q->n--;
    if (!t->names[entry].was_queued) {
        return false;
    }
    kv_index_entry d = kv_index_describe(t->c->index, entry);
    for (int32_t g = 0; g < t->c->n_token_groups; g++) {
        did = (d.pages[g] != PAGE_NONE.v && put_entry(t, &d, g, KV_PUT_KEPT)) || did;
    }
    const int32_t *state = kv_index_state_at(t->c->index, entry);
    did = (state != NULL && put_state(t, &d, state, KV_PUT_KEPT)) || did;
    return did;
}

/* Writes some of the queued pages through, the beginning of a prefix first. A transfer
 * that ends wakes the reader, which polls again. If no transfer was begun because none of
 * the checked pages had to be stored, wakes the reader itself for the rest. */
static void kv_tiering_write_some(kv_tiering *t) {
    const write_queue *q = &t->to_write;
    int32_t n_written = 0;
    for (int32_t k = 0; k < LOOKS_A_STEP && n_written < WRITES_A_STEP && q->n > 0; k++) {
        if (kv_tiering_n_pending(t) >= WRITES_AT_ONCE || !kv_tiers_has_room(t->tiers)) {
            return; /* frames are needed for transfers, or for promotions of waiting sequences */
        }
        n_written += write_next(t);
    }
    if (q->n > 0 && n_written == 0 && t->reader != NULL) {
        wake_ring(t->reader);
    }
}

void kv_tiering_poll(kv_tiering *t, int64_t now_us) {
    if (t == NULL) {
        return;
    }
    kv_tiering_settle(t);
    kv_tiers_poll(t->tiers);
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        if (t->promotions[i].s != NULL) {
            promotion_advance(t, &t->promotions[i], now_us);
        }
    }
    kv_tiering_write_some(t);
}

void kv_tiering_stats(const kv_tiering *t, quire_tier_stats out[KV_N_TIERS]) {
    if (t != NULL) {
        kv_tiers_stats(t->tiers, out);
    }
}

quire_err kv_tiering_check(const kv_tiering *t, quire_error *err) {
    return t != NULL ? kv_tiers_check(t->tiers, err) : QUIRE_OK;
}

/* ---- open and close ---- */

static quire_err kv_tiering_open_arrays(kv_tiering *t, const kv_tiering_options *o) {
    int32_t n_most = (int32_t)kv_pages_for(o->max_tokens, t->c->page_tokens);
    t->names = mem_new((size_t)kv_index_cap_entries(t->c->index), sizeof *t->names);
    t->path = mem_new((size_t)n_most + 1, sizeof *t->path);
    TRY(mem_check(t->names));
    TRY(mem_check(t->path));
    if (o->writes_through) {
        t->to_write.cap = t->c->n_pages;
        t->to_write.entries = mem_new((size_t)t->to_write.cap, sizeof *t->to_write.entries);
        TRY(mem_check(t->to_write.entries));
    }
    TRY(kv_seq_init(&t->seq, t->c->n_token_groups, n_most + 1));
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        TRY(promotion_open(t, &t->promotions[i], (size_t)n_most));
    }
    return QUIRE_OK;
}

static quire_err kv_tiering_open_parts(kv_tiering *t, const kv_tiering_options *o, quire_error *err) {
    if (kv_tiering_open_arrays(t, o) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    kv_tiers_options tiers = o->tiers;
    tiers.shape.page_tokens = t->c->page_tokens;
    /* pages of snapshots are records of further groups */
    tiers.shape.n_groups = t->c->n_token_groups + t->c->n_state_pages;
    tiers.shape.page_bytes = t->c->mover->page_bytes;
    TRY(kv_tiers_open(&tiers, &t->tiers, err));
    t->watch =
        (kv_index_watch){.context = t, .on_remove = on_remove, .on_drop = on_drop, .on_state = on_state};
    t->c->snapshot_unit = t->c->page_tokens;
    kv_index_set_watch(t->c->index, &t->watch);
    return QUIRE_OK;
}

quire_err kv_tiering_open(kv_cache *c, const kv_tiering_options *o, kv_tiering **out, quire_error *err) {
    assert(c != NULL);
    *out = NULL;
    if (c->index == NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "tiers keep pages of the prefix cache: they need --prefix-cache");
    }
    kv_tiering *t = mem_new(1, sizeof *t);
    TRY(mem_check_for(t, "tiers", err));
    t->c = c;
    t->reader = o->tiers.reader;
    t->on_promoted = o->on_promoted;
    t->context = o->context;
    t->are_kept = o->tiers.file_path != NULL || o->tiers.redis_url != NULL;
    quire_err e = kv_tiering_open_parts(t, o, err);
    if (e != QUIRE_OK) {
        kv_tiering_close(t);
        return e;
    }
    *out = t;
    return QUIRE_OK;
}

/* Writes cached pages to the tiers that outlive the process, for at most FLUSH_US. */
static void kv_tiering_flush(kv_tiering *t) {
    int64_t end_us = clock_us() + FLUSH_US;
    while (kv_pool_counts(t->c->pool).n_cached > 0 && clock_us() < end_us) {
        (void)kv_index_evict(t->c->index, kv_pool_counts(t->c->pool).n_free + 1);
        while (kv_tiering_n_pending(t) >= FLUSH_PENDING && clock_us() < end_us) {
            if (t->reader != NULL && t->n_moves == 0) {
                wake_wait(t->reader, SHORT_WAIT_US);
            }
            kv_tiering_settle(t);
            kv_tiers_poll(t->tiers);
        }
    }
}

void kv_tiering_close(kv_tiering *t) {
    if (t == NULL) {
        return;
    }
    t->closes = true;
    if (t->tiers != NULL && t->are_kept) {
        kv_tiering_flush(t);
    }
    while (t->n_moves > 0) {
        kv_tiering_settle(t);
    }
    kv_index_set_watch(t->c->index, NULL);
    kv_tiers_close(t->tiers);
    for (int i = 0; i < MAX_PROMOTIONS; i++) {
        promotion_close(&t->promotions[i]);
    }
    kv_seq_deinit(&t->seq);
    mem_free(t->to_write.entries);
    mem_free(t->path);
    mem_free(t->names);
    mem_free(t);
}
