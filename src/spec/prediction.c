#include "spec/prediction.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

enum { MARK_NONE, MARK_DRAFTED, MARK_TAKEN };

quire_err prediction_new(const int32_t *ids, int32_t n, prediction **out) {
    assert(n >= 0);
    prediction *p = *out = mem_new(1, sizeof *p + (size_t)n * sizeof *p->ids);
    TRY(mem_check(p));
    atomic_init(&p->holders, 1);
    p->n = n;
    mem_copy(p->ids, ids, (size_t)n * sizeof *ids);
    return QUIRE_OK;
}

prediction *prediction_hold(prediction *p) {
    if (p != NULL) {
        atomic_fetch_add(&p->holders, 1);
    }
    return p;
}

void prediction_drop(prediction *p) {
    if (p != NULL && atomic_fetch_sub(&p->holders, 1) == 1) {
        mem_free(p);
    }
}

quire_err prediction_walk_open(prediction *p, int32_t n_prompt, prediction_walk **out) {
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

/* Looks for the last of the generated tokens around the place where the prediction was
 * left. */
static void prediction_find(prediction_walk *w, const int32_t *generated, int32_t n) {
    const prediction *p = w->text;
    int32_t first = w->at > PREDICTION_REACH ? w->at - PREDICTION_REACH : 1,
            last = w->at < p->n - PREDICTION_REACH ? w->at + PREDICTION_REACH : p->n, longest = 0, found = 0;
    for (int32_t end = first; end <= last; end++) {
        int32_t length = draft_agreement(p->ids, end, generated, n, PREDICTION_LOOKUP_MAX);
        /* before the place the last one counts, from there on the first */
        bool is_nearer = length == longest && found < w->at;
        if (length >= PREDICTION_LOOKUP_MIN && (length > longest || is_nearer)) {
            longest = length;
            found = end;
        }
    }
    if (longest > 0) {
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
    assert(n <= DRAFT_MAX && n <= w->text->n - w->at);
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
