/* A prediction is the answer that a client expects, as token ids. They are drafts for its
 * request alone.
 *
 * A sequence walks through its prediction from the beginning. While it generates the
 * tokens of the prediction, the ids that follow are its drafts. At the first different
 * token the walk is lost. It then drafts nothing until the last PREDICTION_LOOKUP_MIN or
 * more generated tokens are found within PREDICTION_REACH ids of the place where it was
 * lost. The longest match wins; among equally long ones the first after that place, or
 * else the last before it. Only the nearest PREDICTION_PLACES places of the index's
 * bucket in each direction are compared, so that a step's search is bounded. The walk
 * depends on the tokens and on how many of them each step added.
 *
 * Each id of the prediction counts once: as accepted if it was drafted and the sequence
 * took it, as rejected if it was drafted and never taken. Owner of a walk: the engine
 * thread. A prediction is immutable and counts its references. */
#ifndef SPEC_PREDICTION_H
#define SPEC_PREDICTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "spec/draft_tree.h"

#define PREDICTION_LOOKUP_MIN 2
#define PREDICTION_LOOKUP_MAX 8
#define PREDICTION_REACH      4096
#define PREDICTION_PLACES     64

typedef struct prediction {
    atomic_int holders;
    int32_t n, n_buckets;
    /* places with at least two ids before them, in buckets by these two: bucket b has
     * places[begins[b] .. begins[b + 1]), ascending */
    int32_t *places, *begins;
    int32_t ids[];
} prediction;

typedef struct prediction_counts {
    int32_t n_accepted, n_rejected;
} prediction_counts;

/* A generated token: the counts if the answer ends with it, and where it is in the
 * prediction. */
typedef struct prediction_token {
    prediction_counts counts;
    int32_t n_taken; /* for an accepted draft, the number of ids up to and including it; otherwise 0 */
} prediction_token;

typedef struct prediction_walk {
    prediction *text;   /* holds a reference */
    int32_t n_followed; /* number of the sequence's tokens that were compared */
    int32_t at;         /* index of the id expected next, or at which the walk was lost */
    bool is_lost;
    int32_t drafted; /* index of the first id of the current draft */
    prediction_counts counts;
    uint8_t marks[]; /* [text->n] whether each id was drafted, and taken */
} prediction_walk;

/* Returns how many tokens at the ends of a[0..n_a) and b[0..n_b) are equal, at most
 * `most`. */
static inline int32_t draft_agreement(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b,
                                      int32_t most) {
    int32_t n = 0;
    while (n < most && n < n_a && n < n_b && a[n_a - 1 - n] == b[n_b - 1 - n]) {
        n++;
    }
    return n;
}

/* Makes a prediction from a copy of ids[0..n), n >= 0, with one reference. O(n).
 * QUIRE_NO_MEMORY. Any thread. */
quire_err prediction_new(const int32_t *ids, int32_t n, prediction **out);
/* Drops a reference; the last one frees p. NULL does nothing. Any thread. */
void prediction_drop(prediction *p);

/* Opens the walk of a sequence whose first n_prompt tokens are not generated. Takes a
 * reference to p. QUIRE_NO_MEMORY. */
quire_err prediction_walk_open(prediction *p, int32_t n_prompt, prediction_walk **out);
/* NULL does nothing. */
void prediction_walk_close(prediction_walk *w);

/* Follows the sequence up to n_known tokens, of which the first n_prompt are not
 * generated. Returns how many ids of the prediction are expected next; 0 if the walk is
 * lost or over. O(new tokens), and O(log ids + PREDICTION_PLACES) if it is lost. */
int32_t prediction_expects(prediction_walk *w, const int32_t *tokens, int32_t n_prompt, int32_t n_known);
/* Fills an empty tree with the next n expected ids, as a line; n <= DRAFT_MAX, and at
 * most what prediction_expects returned. */
void prediction_draft(prediction_walk *w, int32_t n, draft_tree *out);
/* Counts a step that gave the sequence n tokens. n_drafted ids of the current draft were
 * verified (0: none were drafted), and the first n_accepted of them taken. out: [n], one
 * for each token. */
void prediction_count(prediction_walk *w, int32_t n_drafted, int32_t n_accepted, int32_t n,
                      prediction_token *out);
/* Sets the counts of w, a fresh walk, from `from`, a walk of the same prediction of which
 * only the generated tokens kept[0..n_kept) remain. Ids that only the dropped tokens
 * accepted count as rejected. O(ids). */
void prediction_take_over(prediction_walk *w, const prediction_walk *from, const prediction_token *kept,
                          int32_t n_kept);

#endif
