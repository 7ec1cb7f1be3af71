/* For tests of attention: a naive reference in double, a case with its data, and
 * different ways to divide the same work. */
#ifndef TESTS_BACKEND_ATTENTION_FIXTURE_H
#define TESTS_BACKEND_ATTENTION_FIXTURE_H

#include "backend/attention_case.h"
#include "test.h"

#include <math.h>

#define SEED 77u

/* Computes softmax(q k^T) v in double for head h at position i of sequence `seq`, whose
 * first row is `first`. */
static inline void reference_row(const attention_case *c, int32_t seq, int32_t first, int32_t i, int32_t h,
                                 double *out) {
    int32_t n_tokens = c->lengths[seq], d_value = case_value_width(c);
    const attn_spec *spec = &c->spec;
    int32_t kv_head = h / (c->n_heads / c->n_kv_heads);
    const float *q = c->q + ((size_t)(first + i) * (size_t)c->n_heads + (size_t)h) * (size_t)c->d_head;
    double *scores = malloc(sizeof *scores * (size_t)n_tokens), max = -INFINITY, sum = 0.0;
    for (int32_t j = 0; j < n_tokens; j++) {
        const float *k =
            c->k + ((size_t)(first + j) * (size_t)c->n_kv_heads + (size_t)kv_head) * (size_t)c->d_head;
        double s = 0.0;
        for (int32_t e = 0; e < c->d_head; e++) {
            s += (double)q[e] * (double)stored(c->type, k[e]);
        }
        s *= (double)spec->scale;
        s = spec->soft_cap > 0.0f ? (double)spec->soft_cap * tanh(s / (double)spec->soft_cap) : s;
        s += spec->alibi_slopes != NULL ? (double)spec->alibi_slopes[h] * (j - i) : 0.0;
        bool seen = (!spec->causal || j <= i) &&
                    (spec->window == 0 || (i - j < spec->window && j - i < spec->window)) &&
                    (spec->chunk == 0 || i / spec->chunk == j / spec->chunk) &&
                    (c->sees == NULL || c->sees(i, j, h, seq));
        scores[j] = seen ? s : -INFINITY;
        max = fmax(max, scores[j]);
    }
    max = spec->sinks != NULL ? fmax(max, (double)spec->sinks[h]) : max;
    sum = spec->sinks != NULL ? exp((double)spec->sinks[h] - max) : 0.0;
    for (int32_t e = 0; e < d_value; e++) {
        out[e] = 0.0;
    }
    for (int32_t j = 0; j < n_tokens && max > -INFINITY; j++) {
        const float *v = c->latent ? c->k + (size_t)(first + j) * (size_t)c->d_head
                                   : c->v + ((size_t)(first + j) * (size_t)c->n_kv_heads + (size_t)kv_head) *
                                                (size_t)d_value;
        double w = exp(scores[j] - max);
        sum += w;
        for (int32_t e = 0; e < d_value && w > 0.0; e++) {
            out[e] += w * (double)stored(c->type, v[e]);
        }
    }
    for (int32_t e = 0; e < d_value; e++) {
        out[e] = sum > 0.0 ? out[e] / sum : 0.0;
    }
    free(scores);
}

static inline double worst_difference(const attention_case *c, const float *got) {
    double want[512], worst = 0.0;
    int32_t first = 0, d_value = case_value_width(c);
    for (int32_t s = 0; s < c->n_seqs; s++) {
        for (int32_t i = 0; i < c->lengths[s]; i++) {
            for (int32_t h = 0; h < c->n_heads; h++) {
                reference_row(c, s, first, i, h, want);
                for (int32_t e = 0; e < d_value; e++) {
                    double d = fabs(
                        (double)got[((size_t)(first + i) * (size_t)c->n_heads + (size_t)h) * (size_t)d_value +
                                    (size_t)e] -
                        want[e]);
                    worst = d > worst || isnan(d) ? (isnan(d) ? INFINITY : d) : worst;
                }
            }
        }
        first += c->lengths[s];
    }
    return worst;
}

/* A case, its data, and buffers for two results. */
typedef struct fixture {
    attention_case c;
    float *q, *k, *v, *base, *other;
    size_t n_out;
} fixture;

static inline void fixture_fill(fixture *f, attention_case c) {
    f->c = c;
    size_t tokens = (size_t)case_tokens(&c);
    f->n_out = tokens * (size_t)(c.n_heads * case_value_width(&c));
    f->c.q = f->q = new_normals(tokens * (size_t)(c.n_heads * c.d_head), SEED);
    f->c.k = f->k = new_normals(tokens * (size_t)(c.n_kv_heads * c.d_head), SEED + 1);
    f->c.v = f->v = new_normals(tokens * (size_t)(c.n_kv_heads * case_value_width(&c)), SEED + 2);
    f->base = malloc(sizeof *f->base * f->n_out);
    f->other = malloc(sizeof *f->other * f->n_out);
}

static inline void fixture_free(fixture *f) {
    free(f->q);
    free(f->k);
    free(f->v);
    free(f->base);
    free(f->other);
}

/* Returns a case with sequences of several lengths, one of them of three chunks. */
static inline attention_case base_case(void) {
    return (attention_case){.n_heads = 4,
                            .n_kv_heads = 2,
                            .d_head = 24,
                            .n_seqs = 4,
                            .lengths = {37, 1, 600, 256},
                            .type = DTYPE_F32,
                            .spec = {.scale = 0.3f, .causal = true},
                            .isa = "plain",
                            .n_threads = 1,
                            .page_tokens = 16,
                            .tile_rows = 16};
}

static inline void check_same(fixture *f, const attention_case *c) {
    attention_case other = *c;
    other.q = f->q;
    other.k = f->k;
    other.v = f->v;
    memset(f->other, 0xff, sizeof *f->other * f->n_out);
    case_run_all(&other, f->other);
    if (!same_floats(f->other, f->base, f->n_out)) {
        fail_msg("%s, type %s/%s, pages of %d, %d threads, chunk %d, alone %d, tiles of %d rows, split %d",
                 c->isa, dtype_name(c->types != NULL ? c->types->key : c->type),
                 dtype_name(c->types != NULL ? c->types->value : c->type), c->page_tokens, c->n_threads,
                 c->chunk, c->alone, c->tile_rows, c->split);
    }
}

/* Runs c in many ways, and checks that all results have the same bits. */
static inline void check_every_way(const attention_case *c) {
    static int n_cases;
    n_cases++;
    fixture f;
    fixture_fill(&f, *c);
    case_run_all(&f.c, f.base);
    for (int i = 0; i < N_MATH_ISAS; i++) {
        if (!isa_is_here(ISAS[i])) {
            continue;
        }
        attention_case o = *c;
        o.isa = ISAS[i];
        check_same(&f, &o);
        static const int32_t page_tokens[] = {1, 2, 4, 8, 16, 64, 256};
        /* each case runs one in `every` ways, successive cases different ones; with
         * QUIRE_TEST_LONG every way on avx2, a third on others */
        bool few = getenv("QUIRE_TEST_EMULATED") != NULL || getenv("QUIRE_TEST_QUICK") != NULL,
             is_avx2 = strcmp(o.isa, "avx2") == 0;
        int every = few ? 9 : is_avx2 ? 5 : 7;
        if (!few && getenv("QUIRE_TEST_LONG") != NULL) {
            every = is_avx2 ? 1 : 3;
        }
        int turn = n_cases + i;
        for (int p = turn % (every < 7 ? every : 7); p < 7; p += every) {
            o.page_tokens = page_tokens[p];
            check_same(&f, &o);
        }
        o.page_tokens = 4;
        static const struct {
            int32_t n_threads, chunk, tile_rows, split;
            bool alone;
        } ways[] = {{2, 0, 16, 0, false}, {1, 0, 1, 0, false},   {1, 0, 1000, 0, false},
                    {1, 1, 16, 0, false}, {1, 3, 5, 0, true},    {2, 16, 7, 1, false},
                    {2, 100, 3, 1, true}, {1, 64, 16, 2, false}, {1, 300, 8, 4, true}};
        for (size_t w = (size_t)(turn % every); w < sizeof ways / sizeof ways[0]; w += (size_t)every) {
            if (!c->spec.causal && ways[w].chunk > 0) {
                continue; /* without causality a row depends on the chunks computed before */
            }
            o.n_threads = ways[w].n_threads;
            o.chunk = ways[w].chunk;
            o.tile_rows = ways[w].tile_rows;
            o.split = c->spec.causal ? ways[w].split : 0;
            o.alone = ways[w].alone;
            o.page_tokens = o.page_tokens == 4 ? 32 : 4;
            check_same(&f, &o);
        }
    }
    fixture_free(&f);
}

/* Checks heads of 8 to 256 elements, several ratios of heads to KV heads and each type in
 * turn, with sequences of 23 and n tokens in pages of `small` or 16 tokens: errors are
 * below `most`, and all instruction sets give the bits of plain. */
static inline void check_heads_of_every_size(const dtype *types, int n_types, int32_t n, int32_t small,
                                             double most) {
    static const int32_t sizes[] = {8, 10, 16, 20, 32, 48, 64, 80, 96, 128, 192, 256};
    static const int32_t ratios[][2] = {{1, 1}, {3, 3}, {4, 2}, {8, 1}, {6, 2}, {71, 1}, {9, 1}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++) {
        attention_case c = {.n_heads = ratios[i % 7][0],
                            .n_kv_heads = ratios[i % 7][1],
                            .d_head = sizes[i],
                            .n_seqs = 2,
                            .lengths = {23, n},
                            .type = types[i % n_types],
                            .spec = {.scale = 1.0f / sqrtf((float)sizes[i]), .causal = true},
                            .isa = "plain",
                            .n_threads = 1,
                            .page_tokens = i % 2 ? 16 : small,
                            .tile_rows = 5};
        fixture f;
        fixture_fill(&f, c);
        case_run_all(&f.c, f.base);
        double worst = worst_difference(&f.c, f.base);
        if (!(worst < most)) {
            fail_msg("heads of %d, %d over %d: off by %g", c.d_head, c.n_heads, c.n_kv_heads, worst);
        }
        for (int j = 1; j < N_MATH_ISAS; j++) {
            if (isa_is_here(ISAS[j])) {
                c.isa = ISAS[j];
                check_same(&f, &c);
            }
        }
        fixture_free(&f);
    }
}

#endif
