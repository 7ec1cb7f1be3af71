/* The stages of a sampler, and its scratch memory. One thread a sampler; nothing here allocates but sampler_open. */
#ifndef ENGINE_SAMPLER_PARTS_H
#define ENGINE_SAMPLER_PARTS_H

#include <string.h>

#include "engine/sampler.h"

#define N_BUCKETS 4096 /* of the upper bits of a 31-bit key */
#define GROUP     64   /* neighbouring tokens whose weights have a largest and a sum */

typedef struct candidate {
    uint32_t key;
    int32_t id;
} candidate;

/* ---- sampler_rows.inc.h: passes over whole rows, one set for each instruction set ---- */
typedef struct sampler_rows {
    /* Whether all logits are numbers or -inf; s->max becomes the largest, s->largest those of the groups. */
    bool (*scan)(sampler *s, const float *logits);
    /* Fills s->weights and s->largest. */
    void (*weigh)(sampler *s, const float *logits);
    /* The sum of all weights, and of each group. */
    double (*sum)(sampler *s);
    /* Leaves out weights below `least`. */
    void (*drop_below)(sampler *s, float least);
} sampler_rows;

extern const sampler_rows sampler_rows_plain, sampler_rows_avx2;

struct sampler {
    const sampler_rows *rows;
    int32_t n_vocab, max_tokens;
    size_t n_groups;
    float max;           /* the largest logit after the changes */
    float given_max;     /* the same before them */
    float temperature;   /* what the logits are divided by */
    float *weights;      /* [n_vocab] exp((l - max) / temperature); 0: not kept */
    float *largest;      /* [groups] at least the largest weight of a group; 0: it has none */
    double *sums;        /* [groups] of the weights, as sampler_sum found them */
    candidate *inside;   /* [n_vocab + 1] tokens that a cut looks at */
    int32_t *marks;      /* [n_vocab] when a token was last touched, against `mark` */
    int32_t mark;
    int32_t *counts;     /* [n_vocab] valid where marked */
    int32_t *repeats;    /* [max_tokens + 1] lengths of common suffixes */
    double mass[N_BUCKETS];
    int32_t count[N_BUCKETS];
};

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
/* The fastest passes that this processor has; all give the same bits. */
const sampler_rows *sampler_rows_best(void);
/* The token, in id order, in whose part of the whole `uniform` falls. Some weight is not 0. */
int32_t sampler_draw(sampler *s, float uniform);

/* ---- sampler_history.c: stages 1 to 9, which change logits by what the request says and what was written ---- */
/* Whether it changed any. */
bool sampler_change(sampler *s, float *logits, const sample_context *c);

/* ---- sampler_cuts.c: stages 11 to 17, on weights ---- */
/* The temperature of this row: the request's, or by the entropy of the live logits (dynatemp). */
float sampler_temperature(const sampler *s, const float *logits, const sampling_params *p);
/* Weighs the tokens and leaves out what the request's cuts leave out. */
void sampler_cut(sampler *s, const float *logits, const sample_context *c);
/* Kept tokens, likeliest first, the lowest id first among equals, into s->inside; returns how many. */
int32_t sampler_sort(sampler *s);

/* ---- sampler_mirostat.c ---- */
/* Chooses by mirostat from s->weights and moves *mu. */
int32_t sampler_mirostat(sampler *s, const sampling_params *p, float uniform, float *mu);

#endif
