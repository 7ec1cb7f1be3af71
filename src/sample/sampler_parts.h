/* The internal parts of a sampler: its stages and its scratch memory. One thread per
 * sampler; nothing here allocates except sampler_open. */
#ifndef SAMPLE_SAMPLER_PARTS_H
#define SAMPLE_SAMPLER_PARTS_H

#include <string.h>

#include "base/float_bits.h"
#include "sample/sampler.h"

#define N_BUCKETS   2048 /* buckets of the upper bits of a 31-bit key */
#define FIRST_SHIFT 20   /* shift from a key to its bucket: exponent and three bits more */
/* neighbouring tokens with one largest logit, or kept tokens with one sum of weights */
#define GROUP        64
#define BLOCK        2048  /* neighbouring tokens with one sum of weights */
#define PAST_END     GROUP /* elements after the last kept token that may be written */
#define LOG2_E       1.44269504f
#define LEAST_WEIGHT 1.1754944e-38f /* 2^-126 */

/* A kept token that a cut considers: the key by which it is ordered, and its index among
 * the kept ones. */
typedef struct candidate {
    uint32_t key;
    int32_t place;
} candidate;

/* ---- sampler_rows.inc.h: passes over whole rows, one set for each instruction set ----
 * The weight of a logit l is 2^((l - s->max) * scale), scale = log2(e) / temperature; 0
 * when it is less than 2^-126. */
typedef struct sampler_rows {
    /* Whether all logits are finite or -inf. Sets s->max to the largest, and s->largest
     * to those of the groups. */
    bool (*scan)(sampler *s, const float *logits);
    /* The same check, then sets logits to -inf whose bit in s->bits is not set, and scans
     * the rest. Sets s->given_max to the largest before that. */
    bool (*scan_kept)(sampler *s, float *logits);
    /* The same, and sets s->sums and s->total to the weights of each BLOCK and of all.
     * Stores no weight. */
    bool (*scan_masses)(sampler *s, const float *logits, float scale);
    /* Collects the tokens whose logits are at least `least`, in id order: ids to s->ids,
     * logits to s->weights. Returns how many. Call it after a scan. */
    int32_t (*gather)(sampler *s, const float *logits, float least);
    /* Turns logits x[0..n) into weights. */
    void (*weigh)(float *x, int32_t n, float max, float scale);
    /* The sum of w[0..n), and the sums of its GROUPs in `sums`; fills the last group up
     * with zeros. */
    double (*sum_blocks)(float *w, int32_t n, double *sums);
    /* Splits the kept tokens' weights: returns the sum of those from `high` on, and puts
     * those below into s->inside, in order. */
    double (*divide)(sampler *s, float high, int32_t *n_inside);
    /* Sets to 0 those of w[0..n) that come after index `place`, whose weight is `last`,
     * in descending order. */
    void (*drop_after)(float *w, int32_t n, float last, int32_t place);
} sampler_rows;

extern const sampler_rows sampler_rows_plain, sampler_rows_avx2, sampler_rows_avx512;

/* Invariant after sampler_cut: the token is drawn from the n_kept tokens of ids and
 * weights, in id order, where a weight of 0 means that the token was cut; or, if
 * is_whole, from all tokens by the sums of blocks. */
struct sampler {
    const sampler_rows *rows;
    int32_t n_vocab, n_kept;
    bool is_whole, is_greedy; /* is_greedy: one token is kept, without a draw */
    size_t n_groups;
    float max;         /* the largest logit after the changes */
    float given_max;   /* the same before them */
    float scale;       /* log2(e) / temperature */
    float *largest;    /* [whole blocks' groups] the largest logit of each, after a scan */
    float *bases;      /* [blocks] the logits that are the bases of scan_masses' weights */
    double *sums;      /* [groups] the weights of blocks of all tokens, or of groups of the kept ones */
    double total;      /* the weight of all tokens, after scan_masses */
    float *weights;    /* [max(n_vocab + PAST_END, BLOCK)] of the kept tokens */
    int32_t *ids;      /* [n_vocab + PAST_END] of the kept tokens */
    uint32_t *keys;    /* [n_vocab] the keys by which typical-p orders the kept tokens */
    candidate *inside; /* [n_vocab + PAST_END] the kept tokens that a cut considers */
    int32_t n_equal;   /* after a cut: how many of `inside` have the last kept token's key */
    int32_t *marks;    /* [n_vocab] a set of tokens: those whose entry equals `mark` */
    int32_t mark;
    int32_t *counts;  /* [n_vocab] valid for tokens in that set */
    int32_t *repeats; /* [max_tokens + 1] lengths of common suffixes */
    uint64_t *bits;   /* [groups] with a constraint: the tokens that it allows, end tokens included */
    /* likewise: whether the output may end; whether tokens are left that are not end
     * tokens */
    bool is_final, goes_on;
    double mass[N_BUCKETS];
};

/* Moves the kept token at index i to index n <= i; returns how many are kept then. */
static inline int32_t sampler_keep(sampler *s, int32_t n, int32_t i, bool stays) {
    s->weights[n] = s->weights[i];
    s->ids[n] = s->ids[i];
    return n + stays;
}

/* Empties the set of marked tokens. */
static inline void sampler_unmark(sampler *s) {
    if (s->mark == INT32_MAX) {
        memset(s->marks, 0, (size_t)s->n_vocab * sizeof *s->marks);
        s->mark = 0;
    }
    s->mark++;
}
/* Adds a token to the set; true when it was not in it. */
static inline bool sampler_mark(sampler *s, int32_t id) {
    bool is_new = s->marks[id] != s->mark;
    s->marks[id] = s->mark;
    return is_new;
}

/* ---- sampler.c: the stage before all others ---- */
/* Sets s->bits to the tokens that c's constraint allows, end tokens included. Errors are
 * the constraint's. */
quire_err sampler_constrain(sampler *s, const sample_context *c);
/* Called after the mask: whether no token is left because the constraint's output is
 * complete. */
bool sampler_is_over(const sampler *s, const sample_context *c);

/* ---- sampler_cuts.c: stages 1 to 9, which change logits by the request's options and
 * the history ---- */
/* Whether the request has a stage that may change the row after n_output generated
 * tokens. */
bool sampler_may_change(const sampling_params *p, int32_t n_output);
/* Runs these stages; true when one changed a logit. */
bool sampler_change(sampler *s, float *logits, const sample_context *c);

/* ---- sampler_cuts.c: stages 11 to 17, on weights ---- */
/* Whether the request's cuts need the weights of blocks (scan_masses), since the largest
 * logits alone do not bound what is kept. */
bool sampler_wants_masses(const sampling_params *p);
/* The temperature of this row: the request's, or one from the entropy of the live logits
 * (dynatemp). */
float sampler_temperature(const sampler *s, const float *logits, const sampling_params *p);
/* Keeps the tokens that the request's cuts leave. After scan, or scan_masses where
 * sampler_wants_masses. */
void sampler_cut(sampler *s, const float *logits, const sample_context *c);
/* Keeps all live tokens, whole or not. */
void sampler_keep_all(sampler *s, const float *logits);

/* Keeps a token iff the mass before it (of larger logits, or equal ones with lower ids)
 * is below top_p of all. After scan_masses. */
void sampler_cut_top_p(sampler *s, const float *logits, float top_p);

/* ---- sampler_draw.c: searching for a cut ---- */
/* What a cut sums up from the largest key on: tokens, or their weights. */
typedef enum measure { BY_COUNT, BY_WEIGHT } measure;

/* Walks the kept tokens by keys (uint32 under 2^31, one a kept token), largest first,
 * until their sum reaches `limit`. *last is the last one walked; there is at least one.
 * False when the sum of all does not reach the limit. */
bool sampler_find_cut(sampler *s, const void *keys, measure by, double limit, candidate *last);
/* The same among the n candidates in s->inside, which are in order of their index; tokens
 * of larger keys than theirs have the sum `above`. False also when `above` alone reaches
 * the limit, which is over 0. */
bool sampler_find_inside(sampler *s, int32_t n, measure by, double limit, double above, candidate *last);
/* Orders the kept tokens with the weight of `last` by their logits, since logits a last
 * bit apart can have one weight. The intended number of them stays: those with the
 * largest logits, lower ids first or, with ties_stay, also all that equal the last one.
 * The others' weights become 0, and `last` becomes the last kept token. */
void sampler_order_equals(sampler *s, const float *logits, bool ties_stay, candidate *last);
/* Cuts the tokens that come after `last` by weight. */
void sampler_cut_after(sampler *s, candidate last);

/* ---- sampler_draw.c: drawing ---- */
/* The row passes that this processor supports, the fastest last; all give the same bits.
 * Returns how many, at least 1. */
#define SAMPLER_ROWS_MOST 3
int32_t sampler_rows_here(const sampler_rows *all[SAMPLER_ROWS_MOST]);
/* Draws a token: the one, in id order, at which the cumulated weight passes `uniform` of
 * the total. Some weight is not 0. */
int32_t sampler_draw(sampler *s, const float *logits, float uniform);
/* Samples by mirostat from the kept tokens and updates *mu. */
int32_t sampler_mirostat(sampler *s, const sampling_params *p, float uniform, float *mu);

#endif
