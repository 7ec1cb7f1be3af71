/* Prompt lookup: guesses what followed the last time that the sequence ended as it ends
 * now. It searches for the longest suffix of lookup_min..lookup_max tokens that occurs
 * earlier in the sequence, and takes the latest of equally long ones. The guess is what
 * follows there; a repetition shorter than the guess is repeated. Where branches are
 * wanted, the next matches that continue with another token give one branch each: the
 * first branch takes half of the tokens, the next half of what is left, the last all.
 * Keeps no state. Source: Saxena 2023, "Prompt Lookup Decoding". */
#include "spec/draft.h"

#include "base/mem.h"

typedef struct ngram_drafter {
    drafter head;
    int32_t lookup_min, lookup_max;
} ngram_drafter;

/* A match: earlier tokens that equal the last ones. */
typedef struct place {
    int32_t length, from; /* tokens that agree, and the index of what follows them */
} place;

/* Inserts a match among the best, longest first, after equally long ones; not if a better
 * one continues with the same token. Returns how many there are. */
static int32_t draft_ngram_enter(const int32_t *tokens, place found, place *best, int32_t n, int32_t most) {
    int32_t at = 0;
    for (; at < n && best[at].length >= found.length; at++) {
        if (tokens[best[at].from] == tokens[found.from]) {
            return n;
        }
    }
    if (at == most) {
        return n;
    }
    /* what the new one replaces: a match that continues with the same token, or the worst
     * of too many */
    int32_t last = at;
    while (last < n && last < most - 1 && tokens[best[last].from] != tokens[found.from]) {
        last++;
    }
    n = last == n ? n + 1 : n;
    for (; last > at; last--) {
        best[last] = best[last - 1];
    }
    best[at] = found;
    return n;
}

void draft_ngram(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max,
                 const draft_bounds *wanted, draft_tree *out) {
    place best[DRAFT_MAX_WIDTH];
    int32_t n_best = 0;
    for (int32_t end = n - 1;
         end >= lookup_min && (n_best < wanted->width || best[n_best - 1].length < lookup_max); end--) {
        int32_t length = draft_agreement(tokens, end, tokens, n, lookup_max);
        if (length >= lookup_min) {
            n_best = draft_ngram_enter(tokens, (place){length, end}, best, n_best, wanted->width);
        }
    }
    for (int32_t k = 0; k < n_best; k++) {
        int32_t left = wanted->nodes - out->n, most = k + 1 < n_best ? (left + 1) / 2 : left,
                period = n - best[k].from, at = DRAFT_ROOT;
        for (int32_t i = 0; i < most && i < wanted->depth; i++) {
            at = draft_tree_add(out, at, tokens[best[k].from + i % period]);
        }
    }
}

static void draft_ngram_propose(drafter *head, draft_seq *const *seqs, int32_t n) {
    const ngram_drafter *d = (const ngram_drafter *)head;
    for (int32_t i = 0; i < n; i++) {
        draft_ngram(seqs[i]->tokens, seqs[i]->n_known, d->lookup_min, d->lookup_max, &seqs[i]->wanted,
                    &seqs[i]->tree);
    }
}

static void ngram_close(drafter *d) {
    mem_free(d);
}

quire_err draft_ngram_open(const draft_options *o, drafter **out) {
    static const draft_ops ops = {.propose = draft_ngram_propose, .close = ngram_close};
    ngram_drafter *d = mem_new(1, sizeof *d);
    TRY(mem_check(d));
    *d = (ngram_drafter){.head = {&ops}, .lookup_min = o->lookup_min, .lookup_max = o->lookup_max};
    *out = &d->head;
    return QUIRE_OK;
}
