/* The stages of a sampler, and its scratch memory. One thread a sampler; nothing here allocates but sampler_open. */
#ifndef SAMPLE_SAMPLER_PARTS_H
#define SAMPLE_SAMPLER_PARTS_H

#include <string.h>

#include "sample/sampler.h"

#define N_BUCKETS    2048  /* of the upper bits of a 31-bit key */
#define FIRST_SHIFT  20    /* of a key to its bucket: exponent and three bits more */
#define GROUP        64    /* neighbouring tokens whose logits have a largest, or kept ones whose weights have a sum */
#define BLOCK        2048  /* neighbouring tokens whose weights have a sum */
#define PAST_END     GROUP /* places behind the last kept token that may be written */
#define LOG2_E       1.44269504f
#define LEAST_WEIGHT 1.1754944e-38f /* 2^-126 */

/* A kept token that a cut looks at: the key that it goes by, and its place among the kept ones. */
typedef struct candidate {
    uint32_t key;
    int32_t place;
} candidate;

/* ---- sampler_rows.inc.h: passes over whole rows, one set for each instruction set ----
 * The weight of a logit l is 2^((l - s->max) * scale), scale = log2(e) / temperature; 0 when it is less than 2^-126. */
typedef struct sampler_rows {
    /* Whether all logits are numbers or -inf; s->max becomes the largest, s->largest those of the groups. */
    bool (*scan)(sampler *s, const float *logits);
    /* The same, and s->sums and s->total: the weights of each BLOCK and of all, none of them stored. */
    bool (*scan_masses)(sampler *s, const float *logits, float scale);
    /* Tokens whose logits are at least `least`, in id order: ids to s->ids, logits to s->weights. Returns how many. After a scan. */
    int32_t (*gather)(sampler *s, const float *logits, float least);
    /* Logits x[0..n) into weights. */
    void (*weigh)(float *x, int32_t n, float max, float scale);
    /* The sum of w[0..n), and of each GROUP of it into sums; the last group is filled up with zeros. */
    double (*sum_blocks)(float *w, int32_t n, double *sums);
    /* Of the kept tokens' weights, those from `high` on added up; those below go into s->inside, in order. */
    double (*divide)(sampler *s, float high, int32_t *n_inside);
    /* Of weights w[0..n) those become 0 which come after the one at `place`, whose weight is `last`, in descending order. */
    void (*drop_after)(float *w, int32_t n, float last, int32_t place);
} sampler_rows;

extern const sampler_rows sampler_rows_plain, sampler_rows_avx2, sampler_rows_avx512;

/* Invariant, behind sampler_cut: what can be drawn is the n_kept tokens of ids and weights, in id order, a weight of 0 being one that was
 * cut; or, when is_whole, every token, by the sums of blocks. */
struct sampler {
    const sampler_rows *rows;
    int32_t n_vocab, max_tokens, n_kept;
    bool is_whole;
    size_t n_groups;
    float max;         /* the largest logit after the changes */
    float given_max;   /* the same before them */
    float scale;       /* log2(e) / temperature */
    float *largest;    /* [whole blocks' groups] the largest logit of each, behind a scan */
    float *bases;      /* [blocks] the logits that scan_masses takes weights against */
    double *sums;      /* [groups] the weights of blocks of all tokens, or of groups of the kept ones */
    double total;      /* the weight of all tokens, behind scan_masses */
    float *weights;    /* [max(n_vocab + PAST_END, BLOCK)] of the kept tokens */
    int32_t *ids;      /* [n_vocab + PAST_END] of the kept tokens */
    uint32_t *keys;    /* [n_vocab] what typical-p orders the kept tokens by */
    candidate *inside; /* [n_vocab + PAST_END] those of them that a cut looks at */
    int32_t n_equal;   /* of `inside`, behind a cut: those of the last kept token's key */
    int32_t *marks;    /* [n_vocab] when a token was last touched, against `mark` */
    int32_t mark;
    int32_t *counts;  /* [n_vocab] valid where marked */
    int32_t *repeats; /* [max_tokens + 1] lengths of common suffixes */
    double mass[N_BUCKETS];
};

static inline uint32_t sampler_bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float sampler_weight_of(uint32_t key) {
    float w;
    memcpy(&w, &key, sizeof w);
    return w;
}

/* A new set of marked tokens, empty. */
static inline void sampler_unmark(sampler *s) {
    if (s->mark == INT32_MAX) {
        memset(s->marks, 0, (size_t)s->n_vocab * sizeof *s->marks);
        s->mark = 0;
    }
    s->mark++;
}
/* Marks a token; true when it was not in the set. */
static inline bool sampler_mark(sampler *s, int32_t id) {
    bool is_new = s->marks[id] != s->mark;
    s->marks[id] = s->mark;
    return is_new;
}

/* ---- sampler_draw.c ---- */
/* The passes that this processor has, the fastest last; all give the same bits. Returns how many: 1 at least. */
#define SAMPLER_ROWS_MOST 3
int32_t sampler_rows_here(const sampler_rows *all[SAMPLER_ROWS_MOST]);
/* The token, in id order, in whose part of the whole `uniform` falls. Some weight is not 0. */
int32_t sampler_draw(sampler *s, const float *logits, float uniform);

/* ---- sampler_history.c: stages 1 to 9, which change logits by what the request says and what was written ---- */
/* Whether the request has a stage that may change the row behind n_output tokens of its answer. */
bool sampler_may_change(const sampling_params *p, int32_t n_output);
/* Whether it changed any. */
bool sampler_change(sampler *s, float *logits, const sample_context *c);

/* ---- sampler_cuts.c: stages 11 to 17, on weights ---- */
/* Whether the cuts of a request start from the weights of blocks (scan_masses), as the largest logits alone do not bound what is kept. */
bool sampler_wants_masses(const sampling_params *p);
/* The temperature of this row: the request's, or by the entropy of the live logits (dynatemp). */
float sampler_temperature(const sampler *s, const float *logits, const sampling_params *p);
/* Leaves the tokens that the request's cuts keep. After scan, or scan_masses where sampler_wants_masses. */
void sampler_cut(sampler *s, const float *logits, const sample_context *c);
/* A logit that is surely below any whose weight is this. */
float sampler_logit_below(const sampler *s, float weight);
/* Tokens of at least this logit become the kept ones, but those of less than this weight. */
void sampler_keep_from(sampler *s, const float *logits, float least, float least_weight);
/* All live tokens become the kept ones, whole or not. */
void sampler_keep_all(sampler *s, const float *logits);

/* ---- sampler_top_p.c ---- */
/* Keeps a token iff the mass before it (of larger logits, or equal ones with lower ids) is below top_p of all. After scan_masses. */
void sampler_cut_top_p(sampler *s, const float *logits, float top_p);

/* ---- sampler_order.c ---- */
/* What a cut adds up from the largest key on: tokens, or their weights. */
typedef enum measure { BY_COUNT, BY_WEIGHT } measure;

/* The kept tokens by keys (uint32 under 2^31, one a kept token), largest first, until their sum reaches `limit`: the last of them, at least
 * one. False when the sum of all does not reach the limit. */
bool sampler_find_cut(sampler *s, const void *keys, measure by, double limit, candidate *last);
/* The same among the n candidates in s->inside, which lie in order of their places; those of larger keys than theirs have the sum `above`.
 * False also when that reaches the limit, which is over 0, already. */
bool sampler_find_inside(sampler *s, int32_t n, measure by, double limit, double above, candidate *last);
/* Logits a last bit apart can have one weight: of the kept tokens with the weight of `last`, as many as were to stay do, but in the order
 * of their logits, lower ids first or, with ties_stay, all that equal the last of them. The others weigh 0 from now on, and `last` is the
 * last kept token. */
void sampler_order_equals(sampler *s, const float *logits, bool ties_stay, candidate *last);
/* Leaves out what comes after `last` by weight. */
void sampler_cut_after(sampler *s, candidate last);

/* ---- sampler_mirostat.c ---- */
/* Chooses by mirostat from the kept tokens and moves *mu. */
int32_t sampler_mirostat(sampler *s, const sampling_params *p, float uniform, float *mu);

#endif
