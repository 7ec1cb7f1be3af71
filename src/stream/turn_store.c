#include "stream/turn_store.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "chat/messages.h"
#include "kv/namespace.h"

/* A turn, in one block with its ids and text. */
typedef struct turn {
    uint64_t tenant;
    char id[CHAT_CALL_ID_BYTES];
    turn_place place;
    size_t n_ids, n_text, n_bytes; /* n_bytes: size of the block */
    int32_t ids[];                 /* [n_ids] followed by the text */
} turn;

struct turn_store {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes;
    int32_t n;
    turn *turns[TURN_STORE_TURNS];   /* oldest first */
    uint64_t keys[TURN_STORE_TURNS]; /* hash of tenant and id for each turn */
    turn_counts counts;
};

turn_place turn_place_after(str text) {
    return (turn_place){text.n, kv_hash_root(0, text.p, text.n)};
}

quire_err turn_store_open(size_t max_bytes, turn_store **out) {
    turn_store *s = mem_new(1, sizeof *s);
    *out = s;
    TRY(mem_check(s));
    pthread_mutex_init(&s->lock, NULL);
    s->max_bytes = max_bytes;
    return QUIRE_OK;
}

void turn_store_close(turn_store *s) {
    if (s == NULL) {
        return;
    }
    for (int32_t i = 0; i < s->n; i++) {
        mem_free(s->turns[i]);
    }
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static uint64_t turn_key(uint64_t tenant, const char *id) {
    return kv_hash_root(tenant, id, CHAT_CALL_ID_BYTES);
}

static str turn_text(const turn *t) {
    return (str){(const char *)(t->ids + t->n_ids), t->n_text};
}

/* ---- keeping ---- */

static turn *turn_new(uint64_t tenant, const char *id, turn_place place, str text, const int32_t *ids,
                      size_t n_ids) {
    size_t n_bytes = sizeof(turn) + n_ids * sizeof *ids + text.n;
    turn *t = mem_new(1, n_bytes);
    if (t != NULL) {
        *t = (turn){.tenant = tenant, .place = place, .n_ids = n_ids, .n_text = text.n, .n_bytes = n_bytes};
        memcpy(t->id, id, sizeof t->id);
        memcpy(t->ids, ids, n_ids * sizeof *ids);
        memcpy(t->ids + n_ids, text.p, text.n);
    }
    return t;
}

/* Index of the oldest turn, of the tenant (own) or of all; n if there is none. */
static int32_t turn_store_oldest(const turn_store *s, uint64_t tenant, bool own) {
    int32_t i = 0;
    while (own && i < s->n && s->turns[i]->tenant != tenant) {
        i++;
    }
    return i;
}

static void turn_store_drop(turn_store *s, int32_t i) {
    s->n_bytes -= s->turns[i]->n_bytes;
    mem_free(s->turns[i]);
    s->n--;
    memmove(s->turns + i, s->turns + i + 1, (size_t)(s->n - i) * sizeof(turn *));
    memmove(s->keys + i, s->keys + i + 1, (size_t)(s->n - i) * sizeof *s->keys);
}

/* Makes room for a tenant's turn: drops its own first, until they take at most half of
 * the store, then any. */
static void turn_store_make_room(turn_store *s, uint64_t tenant, size_t n_bytes) {
    size_t held = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        held += s->turns[i]->tenant == tenant ? s->turns[i]->n_bytes : 0;
        n += s->turns[i]->tenant == tenant;
    }
    for (; n > 0 && (n >= TURN_STORE_OF_ONE || held + n_bytes > s->max_bytes / 2); n--) {
        int32_t i = turn_store_oldest(s, tenant, true);
        held -= s->turns[i]->n_bytes;
        turn_store_drop(s, i);
    }
    while (s->n > 0 && (s->n == TURN_STORE_TURNS || s->n_bytes + n_bytes > s->max_bytes)) {
        turn_store_drop(s, turn_store_oldest(s, tenant, false));
    }
}

void turn_store_keep(turn_store *s, uint64_t tenant, const char *id, turn_place place, str text,
                     const int32_t *ids, size_t n_ids) {
    assert(place.n > 0);
    if (text.n == 0 || n_ids == 0 || text.n + n_ids * sizeof *ids > s->max_bytes / 16) {
        return;
    }
    turn *t = turn_new(tenant, id, place, text, ids, n_ids);
    if (t == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    turn_store_make_room(s, tenant, t->n_bytes);
    s->n_bytes += t->n_bytes;
    s->keys[s->n] = turn_key(tenant, id);
    s->turns[s->n++] = t;
    pthread_mutex_unlock(&s->lock);
}

/* ---- finding ---- */

/* A conversation that is searched for turns, and the last prefix of it that was
 * hashed. */
typedef struct turn_search {
    str text;
    size_t from;
    turn_place place;
    int32_t n_places; /* number of prefixes hashed */
} turn_search;

/* Whether the text before t is a prefix of the conversation. */
static bool turn_is_after(turn_search *w, const turn *t) {
    if (w->n_places == 0 || w->place.n != t->place.n) {
        if (w->n_places == TURN_STORE_PLACES) {
            return false;
        }
        w->place = turn_place_after((str){w->text.p, t->place.n});
        w->n_places++;
    }
    return w->place.hash == t->place.hash;
}

/* Whether the conversation has t's text after that prefix. */
static bool turn_stands_in(turn_search *w, const turn *t) {
    str own = turn_text(t);
    return t->place.n >= w->from && t->place.n <= w->text.n && own.n <= w->text.n - t->place.n &&
           memcmp(w->text.p + t->place.n, own.p, own.n) == 0 && turn_is_after(w, t);
}

/* The newest turn with this id whose text is in the conversation; NULL if none.
 * *is_known: whether any turn has the id. */
static const turn *turn_store_get(const turn_store *s, uint64_t tenant, const char *id, str text, size_t from,
                                  bool *is_known) {
    const uint64_t key = turn_key(tenant, id);
    turn_search w = {.text = text, .from = from};
    *is_known = false;
    for (int32_t i = s->n - 1; i >= 0; i--) {
        const turn *t = s->keys[i] == key ? s->turns[i] : NULL;
        if (t != NULL && t->tenant == tenant && memcmp(t->id, id, sizeof t->id) == 0) {
            *is_known = true;
            if (turn_stands_in(&w, t)) {
                return t;
            }
        }
    }
    return NULL;
}

static void turn_count(turn_counts *counts, bool found, bool is_gone) {
    counts->n_reused += found;
    counts->n_gone += is_gone;
    counts->n_differ += !found && !is_gone;
}

bool turn_store_find(turn_store *s, uint64_t tenant, const char *id, str text, size_t from, token_list *ids,
                     size_t *at, size_t *end, turn_counts *counts) {
    pthread_mutex_lock(&s->lock);
    bool is_known;
    const turn *t = turn_store_get(s, tenant, id, text, from, &is_known);
    bool found = t != NULL && token_list_add_all(ids, t->ids, t->n_ids) == QUIRE_OK;
    if (found) {
        *at = t->place.n;
        *end = t->place.n + t->n_text;
    }
    turn_count(&s->counts, found, !is_known);
    turn_count(counts, found, !is_known);
    pthread_mutex_unlock(&s->lock);
    return found;
}

turn_counts turn_store_count(turn_store *s) {
    assert(s != NULL);
    pthread_mutex_lock(&s->lock);
    turn_counts n = s->counts;
    pthread_mutex_unlock(&s->lock);
    return n;
}
