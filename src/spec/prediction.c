#include "spec/prediction.h"

#include <assert.h>

#include "base/mem.h"
#include "base/size.h"

enum { MARK_NONE, MARK_DRAFTED, MARK_TAKEN };

/* ---- the index ---- */

/* Bucket of the places that follow the ids `before` and `last`. */
static int32_t prediction_bucket(const prediction *p, int32_t before, int32_t last) {
    uint32_t hash = (uint32_t)before * 0x9e3779b1u + (uint32_t)last * 0x85ebca77u;
    return (int32_t)((hash ^ hash >> 15) & (uint32_t)(p->n_buckets - 1));
}

/* Index of the first of places [low, high) that is at least `least`. */
static int32_t prediction_seek(const prediction *p, int32_t low, int32_t high, int32_t least) {
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (p->places[middle] < least) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Sorts every place with at least two ids before it into its bucket. */
static void prediction_index(prediction *p) {
    for (int32_t i = 2; i <= p->n; i++) {
        p->begins[prediction_bucket(p, p->ids[i - 2], p->ids[i - 1]) + 1]++;
    }
    for (int32_t b = 0; b < p->n_buckets; b++) {
        p->begins[b + 1] += p->begins[b];
    }
    /* fills each bucket from its end; begins[] moves down to its beginning */
    for (int32_t i = p->n; i >= 2; i--) {
        p->places[--p->begins[prediction_bucket(p, p->ids[i - 2], p->ids[i - 1]) + 1]] = i;
    }
    for (int32_t b = 0; b < p->n_buckets; b++) {
        p->begins[b] = p->begins[b + 1];
    }
    p->begins[p->n_buckets] = p->n > 1 ? p->n - 1 : 0;
}

quire_err prediction_new(const int32_t *ids, int32_t n, prediction **out) {
    assert(n >= 0);
    prediction *p = *out = mem_new(1, sizeof *p + (size_t)n * sizeof *p->ids);
    TRY(mem_check(p));
    size_t n_buckets = size_power_of_two((size_t)n);
    p->places = mem_new((size_t)n + 1, sizeof *p->places);
    p->begins = mem_new(n_buckets + 1, sizeof *p->begins);
    if (p->places == NULL || p->begins == NULL) {
        mem_free(p->places);
        mem_free(p->begins);
        mem_free(p);
        *out = NULL;
        return QUIRE_NO_MEMORY;
    }
    atomic_init(&p->holders, 1);
    p->n = n;
    p->n_buckets = (int32_t)n_buckets;
    mem_copy(p->ids, ids, (size_t)n * sizeof *ids);
    prediction_index(p);
    return QUIRE_OK;
}

/* ---- holders and walks ---- */

/* Adds a reference and returns p; NULL is allowed. Any thread. */
static prediction *prediction_hold(prediction *p) {
    if (p != NULL) {
        atomic_fetch_add(&p->holders, 1);
    }
    return p;
}

void prediction_drop(prediction *p) {
    if (p != NULL && atomic_fetch_sub(&p->holders, 1) == 1) {
        mem_free(p->places);
        mem_free(p->begins);
        mem_free(p);
    }
}

quire_err prediction_walk_open(prediction *p, int32_t n_prompt, prediction_walk **out) {
    assert(p != NULL);
    prediction_walk *w = *out = mem_new(1, sizeof *w + (size_t)p->n);
    TRY(mem_check(w));
    w->text = prediction_hold(p);
    w->n_followed = n_prompt;
    return QUIRE_OK;
}

void prediction_walk_close(prediction_walk *w) {
    if (w != NULL) {
        prediction_drop(w->text);
        mem_free(w);
    }
}

/* ---- where the sequence is ---- */

/* Records a place if the match before it is longer than *longest. False: the search in
 * this direction is over. */
static bool prediction_try(prediction_walk *w, int32_t place, const int32_t *generated, int32_t n,
                           int32_t *longest, int32_t *found) {
    const prediction *p = w->text;
    if (place < w->at - PREDICTION_REACH || place > w->at + PREDICTION_REACH) {
        return false;
    }
    int32_t length = draft_agreement(p->ids, place, generated, n, PREDICTION_LOOKUP_MAX);
    if (length > *longest) {
        *longest = length;
        *found = place;
    }
    return *longest < PREDICTION_LOOKUP_MAX;
}

/* Searches for the last generated tokens from the place where the walk was lost, first
 * forwards, then backwards. */
static void prediction_find(prediction_walk *w, const int32_t *generated, int32_t n) {
    _Static_assert(PREDICTION_LOOKUP_MIN == 2, "a place is found by the two ids before it");
    const prediction *p = w->text;
    if (n < PREDICTION_LOOKUP_MIN) {
        return;
    }
    int32_t bucket = prediction_bucket(p, generated[n - 2], generated[n - 1]);
    int32_t first = p->begins[bucket], end = p->begins[bucket + 1],
            middle = prediction_seek(p, first, end, w->at), longest = PREDICTION_LOOKUP_MIN - 1, found = -1;
    end = end - middle < PREDICTION_PLACES ? end : middle + PREDICTION_PLACES;
    first = middle - first < PREDICTION_PLACES ? first : middle - PREDICTION_PLACES;
    for (int32_t k = middle; k < end; k++) {
        if (!prediction_try(w, p->places[k], generated, n, &longest, &found)) {
            break;
        }
    }
    for (int32_t k = middle; k > first && longest < PREDICTION_LOOKUP_MAX; k--) {
        if (!prediction_try(w, p->places[k - 1], generated, n, &longest, &found)) {
            break;
        }
    }
    if (found >= 0) {
        w->at = found;
        w->is_lost = false;
    }
}

int32_t prediction_expects(prediction_walk *w, const int32_t *tokens, int32_t n_prompt, int32_t n_known) {
    const prediction *p = w->text;
    bool has_new = w->n_followed < n_known;
    for (; w->n_followed < n_known && !w->is_lost; w->n_followed++) {
        if (w->at < p->n && p->ids[w->at] == tokens[w->n_followed]) {
            w->at++;
        } else {
            w->is_lost = true;
        }
    }
    w->n_followed = n_known;
    if (w->is_lost && has_new) {
        prediction_find(w, tokens + n_prompt, n_known - n_prompt);
    }
    return w->is_lost ? 0 : p->n - w->at;
}

void prediction_draft(prediction_walk *w, int32_t n, draft_tree *out) {
    assert(n >= 0 && n <= DRAFT_MAX && n <= w->text->n - w->at);
    w->drafted = w->at;
    for (int32_t i = 0; i < n; i++) {
        draft_tree_add(out, i - 1, w->text->ids[w->at + i]);
    }
}

/* ---- what came of it ---- */

void prediction_count(prediction_walk *w, int32_t n_drafted, int32_t n_accepted, int32_t n,
                      prediction_token *out) {
    assert(n_drafted <= w->text->n - w->drafted && n_accepted <= n_drafted);
    uint8_t *marks = w->marks + w->drafted;
    for (int32_t i = 0; i < n_drafted; i++) {
        w->counts.n_rejected += marks[i] == MARK_NONE;
        marks[i] = marks[i] == MARK_NONE ? MARK_DRAFTED : marks[i];
    }
    for (int32_t i = 0; i < n; i++) {
        if (i < n_accepted && marks[i] == MARK_DRAFTED) {
            marks[i] = MARK_TAKEN;
            w->counts.n_accepted++;
            w->counts.n_rejected--;
        }
        out[i] = (prediction_token){w->counts, i < n_accepted ? w->drafted + i + 1 : 0};
    }
}

void prediction_take_over(prediction_walk *w, const prediction_walk *from, const prediction_token *kept,
                          int32_t n_kept) {
    assert(n_kept >= 0);
    assert(w->text == from->text);
    for (int32_t i = 0; i < w->text->n; i++) {
        w->marks[i] = from->marks[i] == MARK_NONE ? MARK_NONE : MARK_DRAFTED;
        w->counts.n_rejected += w->marks[i] == MARK_DRAFTED;
    }
    for (int32_t i = 0; i < n_kept; i++) {
        uint8_t *mark = kept[i].n_taken > 0 ? &w->marks[kept[i].n_taken - 1] : NULL;
        if (mark != NULL && *mark == MARK_DRAFTED) {
            *mark = MARK_TAKEN;
            w->counts.n_accepted++;
            w->counts.n_rejected--;
        }
    }
}
