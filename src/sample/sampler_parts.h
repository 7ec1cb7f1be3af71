/* Internals of a sampler: its stages and its scratch memory. One thread per sampler; only
 * sampler_open allocates. */
#ifndef SAMPLE_SAMPLER_PARTS_H
#define SAMPLE_SAMPLER_PARTS_H

#include <string.h>

#include "base/float_bits.h"
#include "sample/sampler.h"

#define N_BUCKETS   2048 /* buckets of the upper bits of a 31-bit key */
#define FIRST_SHIFT 20   /* shift from a key to its bucket, which is the exponent and three more bits */
/* adjacent tokens of which the largest logit is kept, or kept tokens with one sum */
#define GROUP        64
#define BLOCK        2048  /* adjacent tokens with one sum of weights */
#define PAST_END     GROUP /* array elements beyond the last kept token that may be written */
#define LOG2_E       1.44269504f
#define LEAST_WEIGHT 1.1754944e-38f /* 2^-126 */

/* A kept token that a cut considers: the key that orders it, and its index among the kept
 * ones. */
typedef struct candidate {
    uint32_t key;
    int32_t place;
} candidate;

/* ---- sampler_rows.inc.h: passes over whole rows, one set per instruction set ----
 * The weight of a logit l is 2^((l - s->max) * scale), scale = log2(e) / temperature; 0
 * if that is below 2^-126. */
typedef struct sampler_rows {
    /* Returns whether all logits are finite or -inf. Sets s->max to the largest, and
     * s->largest to the largest of each group. */
    bool (*scan)(sampler *s, const float *logits);
    /* Like scan, but first sets logits to -inf whose bit in s->bits is clear.
     * s->given_max is the largest before that. */
    bool (*scan_kept)(sampler *s, float *logits);
    /* Like scan, and sets s->sums to the weights of each BLOCK and s->total to their sum.
     * Stores no weight. */
    bool (*scan_masses)(sampler *s, const float *logits, float scale);
    /* Collects the tokens whose logit is at least `least`, in id order: ids in s->ids,
     * logits in s->weights. Returns how many. Only after a scan. */
    int32_t (*gather)(sampler *s, const float *logits, float least);
    /* Converts logits x[0..n) to weights. */
    void (*weigh)(float *x, int32_t n, float max, float scale);
    /* Returns the sum of w[0..n); `sums` gets the sum of each GROUP. Zero-fills the last
     * group. */
    double (*sum_blocks)(float *w, int32_t n, double *sums);
    /* Splits the kept tokens by weight: returns the sum of weights of at least `high`,
     * and collects the others in s->inside, in order. */
    double (*divide)(sampler *s, float high, int32_t *n_inside);
    /* Clears those of w[0..n) that come after index `place` in descending order; its
     * weight is `last`. */
    void (*drop_after)(float *w, int32_t n, float last, int32_t place);
} sampler_rows;

extern const sampler_rows sampler_rows_plain, sampler_rows_avx2, sampler_rows_avx512;

/* Invariant after sampler_cut: the token is drawn from the n_kept tokens in ids and
 * weights, in id order; weight 0 means the token was cut. If is_whole, it is drawn from
 * all tokens, by the sums of blocks. */
struct sampler {
    const sampler_rows *rows;
    int32_t n_vocab, n_kept;
    bool is_whole, is_greedy; /* is_greedy: the one token kept is chosen without a draw */
    size_t n_groups;
    float max;       /* the largest logit, after changes */
    float given_max; /* the largest logit, before changes */
    float scale;     /* log2(e) / temperature */
    float *largest;  /* [groups, in whole blocks] the largest logit of each, after a scan */
    float *bases; /* [blocks] the logit to which the weights of each block are relative, after scan_masses */
    double *sums; /* [groups] sums of weights: per block of all tokens, or per group of kept ones */
    double total; /* sum of the weights of all tokens, after scan_masses */
    float *weights;    /* [max(n_vocab + PAST_END, BLOCK)] weights of the kept tokens */
    int32_t *ids;      /* [n_vocab + PAST_END] ids of the kept tokens */
    uint32_t *keys;    /* [n_vocab] keys by which typical-p orders the kept tokens */
    candidate *inside; /* [n_vocab + PAST_END] the candidates of a cut */
    int32_t n_equal;   /* after a cut: number of `inside` with the key of the last kept token */
    int32_t *marks;    /* [n_vocab] a set of tokens: those with the value `mark` */
    int32_t mark;
    int32_t *counts;  /* [n_vocab] counts of the tokens in that set */
    int32_t *repeats; /* [max_tokens + 1] lengths of common suffixes (measure_repeats) */
    uint64_t *bits;   /* [groups] with a constraint: the tokens it allows, end tokens included */
    /* with a constraint: the output may end; some token other than an end token is
     * allowed */
    bool is_final, goes_on;
    double mass[N_BUCKETS];
};

/* Moves the kept token at index i to index n <= i. Returns n, plus 1 if it stays. */
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
/* Adds a token to the set; true if it was not in it. */
static inline bool sampler_mark(sampler *s, int32_t id) {
    bool is_new = s->marks[id] != s->mark;
    s->marks[id] = s->mark;
    return is_new;
}

/* Sets s->bits to the tokens that c's constraint allows, end tokens included. Errors are
 * the constraint's. */
quire_err sampler_constrain(sampler *s, const sample_context *c);
/* Whether no token is left because the constraint's output is complete. Only after the
 * mask. */
bool sampler_is_over(const sampler *s, const sample_context *c);

/* ---- changes to single logits, by the request's options and the history ---- */
/* Whether the request may change logits after n_output generated tokens. */
bool sampler_may_change(const sampling_params *p, int32_t n_output);
/* Runs these stages. True if one changed a logit. */
bool sampler_change(sampler *s, float *logits, const sample_context *c);

/* ---- cuts ---- */
/* Whether the request's cuts need the sums of blocks (scan_masses), since the largest
 * logits do not bound what is kept. */
bool sampler_wants_masses(const sampling_params *p);
/* The temperature of this row: the request's, or with dynatemp one from the entropy of
 * the live logits. */
float sampler_temperature(const sampler *s, const float *logits, const sampling_params *p);
/* Keeps the tokens that the request's cuts leave. Only after scan, or scan_masses if
 * sampler_wants_masses. */
void sampler_cut(sampler *s, const float *logits, const sample_context *c);
/* Keeps all tokens with a weight, also after scan_masses. */
void sampler_keep_all(sampler *s, const float *logits);

/* Keeps a token if the mass before it (larger logits, or equal ones with lower ids) is
 * below top_p of the total. Only after scan_masses. */
void sampler_cut_top_p(sampler *s, const float *logits, float top_p);

/* What a cut adds up, from the largest key down: tokens, or their weights. */
typedef enum measure { BY_COUNT, BY_WEIGHT } measure;

/* Adds up the kept tokens by key (uint32 below 2^31, one per token), largest first, until
 * the sum reaches `limit`. *last is the last one added, at least the first. False if all
 * together do not reach the limit. */
bool sampler_find_cut(sampler *s, const void *keys, measure by, double limit, candidate *last);
/* Like sampler_find_cut, among the n candidates in s->inside, which are sorted by index;
 * tokens with larger keys have the sum `above`. Also false if `above` alone reaches the
 * limit. limit > 0. */
bool sampler_find_inside(sampler *s, int32_t n, measure by, double limit, double above, candidate *last);
/* Orders the kept tokens with the weight of `last` by their logits, since logits that
 * differ in the last bit can have equal weights. As many stay as counted: the largest
 * logits, lower ids first; with ties_stay, also all that equal the last one. The others
 * get weight 0. `last` becomes the last kept token. */
void sampler_order_equals(sampler *s, const float *logits, bool ties_stay, candidate *last);
/* Drops the tokens that come after `last` by weight. */
void sampler_cut_after(sampler *s, candidate last);

/* ---- drawing ---- */
/* The passes that this processor supports, the fastest last; all give the same bits.
 * Returns how many, at least 1. */
#define SAMPLER_ROWS_MOST 3
int32_t sampler_rows_here(const sampler_rows *all[SAMPLER_ROWS_MOST]);
/* Draws a token: the one at which the cumulative weight, in id order, passes `uniform`
 * times the total. Some weight is not 0. */
int32_t sampler_draw(sampler *s, const float *logits, float uniform);
/* Draws from the kept tokens by mirostat, and updates *mu. */
int32_t sampler_mirostat(sampler *s, const sampling_params *p, float uniform, float *mu);

#endif
