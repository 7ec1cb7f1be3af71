#include "sample/beam_select.h"

#include <assert.h>
#include <math.h>

static bool beam_select_is_before(const beam_choice *a, const beam_choice *b) {
    if (a->score != b->score) {
        return a->score > b->score;
    }
    return a->from != b->from ? a->from < b->from : a->token < b->token;
}

/* Restores the heap below entry i; its top comes before all others. */
static void beam_select_sift(beam_choice *heap, int32_t n, int32_t i) {
    beam_choice moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && beam_select_is_before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!beam_select_is_before(&heap[child], &moved)) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static bool ends(const beam_rules *r, int32_t length, const beam_choice *choice) {
    bool is_end = length >= r->max_new;
    for (int32_t i = 0; i < r->n_ends && !is_end; i++) {
        is_end = r->ends[i] == choice->token;
    }
    return is_end || (r->ends_too != NULL && r->ends_too(r->context, choice));
}

void beam_choose(const beam_rules *r, int32_t length, beam_choice *choices, int32_t n, beam_outcome *out) {
    assert(n >= 0 && length >= 0);
    out->n_next = out->n_ended = 0;
    for (int32_t i = n / 2 - 1; i >= 0; i--) {
        beam_select_sift(choices, n, i);
    }
    for (int32_t rank = 0; n > 0 && (rank < r->n || out->n_next < r->n); rank++) {
        beam_choice best = choices[0];
        choices[0] = choices[--n];
        beam_select_sift(choices, n, 0);
        if (!ends(r, length, &best)) {
            if (out->n_next < r->n) {
                out->next[out->n_next++] = best;
            }
        } else if (rank < r->n) {
            out->ended[out->n_ended++] = best;
        }
    }
}

double beam_score(const beam_rules *r, double sum, int32_t length) {
    return sum / pow((double)length, r->length_penalty);
}

beam_result *beam_keep(const beam_rules *r, beam_finished *f, double score) {
    assert(f->n_kept >= 0 && f->n_kept <= r->n);
    int32_t at = f->n_kept;
    while (at > 0 && f->list[at - 1]->score < score) {
        at--;
    }
    if (at == r->n) {
        return NULL;
    }
    f->n_kept += f->n_kept < r->n;
    beam_result *place = f->list[f->n_kept - 1];
    for (int32_t i = f->n_kept - 1; i > at; i--) {
        f->list[i] = f->list[i - 1];
    }
    f->list[at] = place;
    place->score = score;
    return place;
}

bool beam_is_full(const beam_rules *r, const beam_finished *f) {
    assert(f->n_kept <= r->n);
    return r->stopping == BEAM_STOPPING_EARLY && f->n_kept == r->n;
}

bool beam_is_over(const beam_rules *r, const beam_finished *f, int32_t length, const beam_outcome *step) {
    assert(length >= 0);
    if (step->n_next == 0 || beam_is_full(r, f)) {
        return true;
    }
    if (f->n_kept < r->n) {
        return false;
    }
    bool may_grow = r->stopping == BEAM_STOPPING_NEVER && r->length_penalty > 0.0;
    return !(beam_score(r, step->next[0].score, may_grow ? r->max_new : length) > f->list[r->n - 1]->score);
}
