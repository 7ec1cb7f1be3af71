/* Runs attention over a pool of pages through the backend's op table. The work can be
 * divided in any way; the output rows always have the same order. */
#ifndef TESTS_BACKEND_ATTENTION_CASE_H
#define TESTS_BACKEND_ATTENTION_CASE_H

#include <stdlib.h>

#include "backend/isas.h"
#include "core/batch.h"
#include "core/half.h"
#include "expr/expr.h"
#include "test.h"

#define CASE_MAX_SEQS  8
#define CASE_MAX_ITEMS 4096

/* A case: what is computed, then how. Sequence s has lengths[s] tokens. q [tokens,
 * n_heads, d_head], k [tokens, n_kv_heads, d_head] and v [tokens, n_kv_heads,
 * case_value_width] hold the rows of all sequences, one after the other. */
typedef struct attention_case {
    int32_t n_heads, n_kv_heads, d_head, n_seqs, lengths[CASE_MAX_SEQS];
    int32_t d_value; /* width of a head's values; 0: d_head */
    /* the keys of the only KV head are latents, the first d_value elements of which are
     * the values; v is not read */
    bool latent;
    dtype type;            /* type of keys and values */
    const kv_types *types; /* types to use in place of `type`; NULL: none */
    attn_spec spec;
    /* mask and score change for all sequences; b is the sequence's number; NULL: none */
    const attn_mods *mods;
    /* the mask of mods for the reference; NULL: none */
    bool (*sees)(int32_t row, int32_t key, int32_t head, int32_t seq);
    atomic_uint *faults; /* [tokens] out: faults of each row; NULL: not wanted */
    const float *q, *k, *v;

    const char *isa;
    int32_t n_threads, page_tokens;
    int32_t chunk;     /* most rows of a sequence in a step; 0: all */
    bool alone;        /* each step has one sequence; false: all sequences */
    int32_t tile_rows; /* most rows of a work item */
    int32_t split;     /* most chunks of a partial item; 0: items are not split */
    /* cascade attention: the first shared[s] tokens of sequence s are in the pages of
     * sequence s - 1, and are read once for both */
    bool cascade;
    int32_t shared[CASE_MAX_SEQS];
} attention_case;

static inline int32_t case_value_width(const attention_case *c) {
    return c->d_value > 0 ? c->d_value : c->d_head;
}

typedef struct case_run {
    const attention_case *c;
    backend *b;
    kv_layout layout;
    buffer q, k, v, out;
    /* first: index of a sequence's first row in q, k, v */
    int32_t *pages[CASE_MAX_SEQS], max_rows, first[CASE_MAX_SEQS];
    attn_item items[CASE_MAX_ITEMS];
    attn_merge *merges;
    /* n_carried: items whose softmax states a later level continues */
    int32_t *partials, n_partials, n_items, n_merges, n_carried;
    cascade cascade;
} case_run;

/* Compiles a mask and a score expression (empty: none). The result has one reference. */
static inline attn_mods *compile_mods(const char *mask, const char *score, const attn_array *arrays,
                                      int32_t n_arrays) {
    attn_mods *mods;
    quire_error err = {0};
    const expr_mods from = {str_of(mask), str_of(score), arrays, n_arrays};
    if (expr_compile_mods(&from, &mods, &err) != QUIRE_OK) {
        fail_msg("%s | %s: %s", mask, score, err.message);
    }
    return mods;
}

#define CASE_LAYER        1
#define CASE_MAX_PARTIALS 4096

static inline void case_open(case_run *r, const attention_case *c) {
    *r = (case_run){.c = c, .b = open_isa(c->isa, c->n_threads)};
    assert_non_null(r->b);
    quire_error err;
    model_desc d = desc_plain(2, c->n_heads, c->n_kv_heads, c->d_head, 0);
    for (int32_t i = 0; i < d.n_caches; i++) {
        d.caches[i].d_value = case_value_width(c);
        d.caches[i] = c->latent ? (cache_desc){.kind = LAYER_LATENT, .d_latent = c->d_head} : d.caches[i];
    }
    assert_int_equal(
        kv_layout_init(&d, c->types != NULL ? *c->types : kv_both(c->type), c->page_tokens, &r->layout, &err),
        QUIRE_OK);
    int32_t n_tokens = 0, n_pages = 0;
    for (int32_t s = 0; s < c->n_seqs; s++) {
        r->first[s] = n_tokens;
        n_tokens += c->lengths[s];
        n_pages += (int32_t)kv_pages_for(c->lengths[s], c->page_tokens);
    }
    r->max_rows = n_tokens;
    r->q = r->b->ops->buffer_reserve(r->b, c->n_heads * c->d_head);
    r->k = r->b->ops->buffer_reserve(r->b, c->n_kv_heads * c->d_head);
    r->v = r->b->ops->buffer_reserve(r->b, c->n_kv_heads * case_value_width(c));
    r->out = r->b->ops->buffer_reserve(r->b, c->n_heads * case_value_width(c));
    step_limits limits = {
        .max_rows = n_tokens, .max_seqs = c->n_seqs, .max_partials = c->split > 0 ? CASE_MAX_PARTIALS : 0};
    assert_int_equal(r->b->ops->step_open(r->b, &limits, &r->layout, 0, &err), QUIRE_OK);
    assert_int_equal(r->b->ops->kv_open(r->b, n_pages, &err), QUIRE_OK);

    /* every page starts full of NaNs, and sequences get pages in random order */
    uint8_t *poison = malloc((size_t)r->layout.page_bytes);
    memset(poison, 0xff, (size_t)r->layout.page_bytes);
    int32_t *ids = malloc(sizeof *ids * (size_t)n_pages);
    uint64_t state = (uint64_t)n_pages;
    for (int32_t i = 0; i < n_pages; i++) {
        r->b->ops->kv_write_page(r->b, i, poison);
        int32_t j = (int32_t)(rng_next(&state) % (uint64_t)(i + 1));
        ids[i] = ids[j];
        ids[j] = i;
    }
    int32_t used = 0;
    for (int32_t s = 0; s < c->n_seqs; s++) {
        size_t n = (size_t)kv_pages_for(c->lengths[s], c->page_tokens);
        r->pages[s] = malloc(sizeof *ids * n);
        memcpy(r->pages[s], ids + used, sizeof *ids * n);
        if (c->cascade && s > 0) {
            memcpy(r->pages[s], r->pages[s - 1], sizeof *ids * (size_t)(c->shared[s] / c->page_tokens));
        }
        used += (int32_t)n;
    }
    r->merges = malloc(sizeof *r->merges * (size_t)n_tokens);
    r->partials = malloc(sizeof *r->partials * CASE_MAX_PARTIALS);
    assert_int_equal(cascade_open(&r->layout,
                                  &(cascade_limits){n_tokens, c->n_seqs, c->tile_rows, c->n_threads},
                                  &r->cascade),
                     QUIRE_OK);
    free(ids);
    free(poison);
}

static inline void case_close(case_run *r) {
    for (int32_t s = 0; s < r->c->n_seqs; s++) {
        free(r->pages[s]);
    }
    free(r->merges);
    free(r->partials);
    cascade_close(&r->cascade);
    r->b->ops->close(r->b);
}

/* Plans the work list. Items of several chunks are split into partial items of c->split
 * chunks, unless that is 0. */
static inline void case_plan(case_run *r, const batch_seq *seqs, int32_t n_seqs) {
    static attn_item whole[CASE_MAX_ITEMS];
    int32_t n = batch_plan_work(seqs, n_seqs, r->c->tile_rows, whole, CASE_MAX_ITEMS), split = r->c->split;
    assert_true(n >= 0);
    r->n_items = r->n_merges = r->n_partials = 0;
    for (int32_t i = 0; i < n; i++) {
        if (split == 0 || whole[i].n_chunks == 1) {
            r->items[r->n_items++] = whole[i];
            continue;
        }
        int32_t base = r->n_partials, n_rows = whole[i].n_rows, n_chunks = whole[i].n_chunks;
        for (int32_t chunk = 0; chunk < n_chunks; chunk += split) {
            attn_item item = whole[i];
            item.chunk0 = chunk;
            item.n_chunks = n_chunks - chunk < split ? n_chunks - chunk : split;
            item.partial = base + chunk * n_rows; /* partial results in the order [row][chunk] */
            r->items[r->n_items++] = item;
        }
        for (int32_t row = 0; row < n_rows; row++) {
            r->merges[r->n_merges++] =
                (attn_merge){whole[i].row0 + row, n_chunks, r->partials + base + row * n_chunks};
            for (int32_t chunk = 0; chunk < n_chunks; chunk++) {
                int32_t item_first = chunk - chunk % split;
                int32_t item_chunks = n_chunks - item_first < split ? n_chunks - item_first : split;
                r->partials[base + row * n_chunks + chunk] =
                    base + item_first * n_rows + row * item_chunks + chunk % split;
            }
        }
        r->n_partials += n_rows * n_chunks;
        assert_true(r->n_partials <= CASE_MAX_PARTIALS);
    }
    assert_true(r->n_items <= CASE_MAX_ITEMS);
}

/* Stores keys and values of the step's rows. */
static inline void case_store(case_run *r) {
    const attention_case *c = r->c;
    if (c->latent) {
        r->b->ops->latent_store(r->b, &(latent_store_use){.cache = CASE_LAYER,
                                                          .latent = r->k,
                                                          .rank = case_value_width(c),
                                                          .q = r->q,
                                                          .n_heads = c->n_heads,
                                                          .latent_scale = 1.0f});
    } else {
        r->b->ops->kv_store(r->b, &(kv_store_use){.cache = CASE_LAYER, .q = r->q, .k = r->k, .v = r->v});
    }
}

/* Runs a step of those rows from..from + n - 1 that the sequences seq0..seq1 - 1 have. */
static inline void case_step(case_run *r, int32_t seq0, int32_t seq1, int32_t from, int32_t n, float *out) {
    const attention_case *c = r->c;
    batch_seq seqs[CASE_MAX_SEQS];
    atomic_uint *faults = c->faults != NULL ? calloc((size_t)r->max_rows, sizeof *faults) : NULL;
    int32_t n_seqs = 0, n_rows = 0, *positions = malloc(sizeof *positions * (size_t)r->max_rows),
            of_seq[CASE_MAX_SEQS];
    kv_slot *slots = malloc(sizeof *slots * (size_t)r->max_rows);
    size_t q_row = (size_t)(c->n_heads * c->d_head), k_row = (size_t)(c->n_kv_heads * c->d_head),
           v_row = (size_t)(c->n_kv_heads * case_value_width(c)),
           out_row = (size_t)(c->n_heads * case_value_width(c));
    for (int32_t s = seq0; s < seq1; s++) {
        int32_t end = from + n < c->lengths[s] ? from + n : c->lengths[s];
        if (from >= end) {
            continue;
        }
        of_seq[n_seqs] = s;
        seqs[n_seqs++] = (batch_seq){.row0 = n_rows,
                                     .n_rows = end - from,
                                     .n_tokens = end,
                                     .mods = c->mods,
                                     .b = s,
                                     .pages = {r->pages[s]}};
        for (int32_t p = from; p < end; p++) {
            positions[n_rows] = p;
            bool stored = c->cascade && p < c->shared[s]; /* the previous sequence has stored it */
            slots[n_rows++] = (kv_slot){
                stored ? -1 : (int64_t)r->pages[s][p / c->page_tokens] * c->page_tokens + p % c->page_tokens};
        }
    }
    if (n_seqs > 0) {
        case_plan(r, seqs, n_seqs);
        batch step = {.n_rows = n_rows,
                      .n_seqs = n_seqs,
                      .positions = positions,
                      .n_axes = 1,
                      .slots = {slots},
                      .seqs = seqs,
                      .faults = faults,
                      .n_work = r->n_items,
                      .work = r->items,
                      .n_merges = r->n_merges,
                      .merges = r->merges,
                      .n_partials = r->n_partials};
        if (c->cascade) {
            cascade_plan(&r->cascade, &step);
            r->n_carried += step.n_levels > 0 ? step.level_ends[step.n_levels - 1] : 0;
        }
        r->b->ops->step_begin(r->b, &step);
        for (int32_t i = 0; i < n_seqs; i++) {
            size_t first = (size_t)(r->first[of_seq[i]] + from);
            r->b->ops->buffer_write(r->b, r->q, seqs[i].row0, seqs[i].n_rows, c->q + first * q_row);
            r->b->ops->buffer_write(r->b, r->k, seqs[i].row0, seqs[i].n_rows, c->k + first * k_row);
            r->b->ops->buffer_write(r->b, r->v, seqs[i].row0, seqs[i].n_rows, c->v + first * v_row);
        }
        case_store(r);
        r->b->ops->attention(r->b, CASE_LAYER, r->q, &c->spec, r->out);
        r->b->ops->step_wait(r->b);
        for (int32_t i = 0; i < n_seqs; i++) {
            r->b->ops->buffer_read(r->b, r->out, seqs[i].row0, seqs[i].n_rows,
                                   out + (size_t)(r->first[of_seq[i]] + from) * out_row);
            for (int32_t row = 0; row < seqs[i].n_rows && faults != NULL; row++) {
                atomic_fetch_or(&c->faults[r->first[of_seq[i]] + from + row],
                                atomic_load(&faults[seqs[i].row0 + row]));
            }
        }
    }
    free(faults);
    free(positions);
    free(slots);
}

/* Runs all rows of all sequences; out is [tokens, n_heads, case_value_width]. Returns the
 * number of items whose softmax states a later level continued. */
static inline int32_t case_run_all(const attention_case *c, float *out) {
    static case_run r;
    case_open(&r, c);
    int32_t longest = 0;
    for (int32_t s = 0; s < c->n_seqs; s++) {
        longest = c->lengths[s] > longest ? c->lengths[s] : longest;
    }
    int32_t chunk = c->chunk > 0 ? c->chunk : longest;
    for (int32_t from = 0; from < longest; from += chunk) {
        for (int32_t s = 0; s < (c->alone ? c->n_seqs : 1); s++) {
            case_step(&r, c->alone ? s : 0, c->alone ? s + 1 : c->n_seqs, from, chunk, out);
        }
    }
    case_close(&r);
    return r.n_carried;
}

/* Returns x rounded to a page's type. Types with scales depend on a whole head: returns x
 * unchanged. */
static inline float stored(dtype type, float x) {
    bool stays = type == DTYPE_F32 || type == DTYPE_F8_E4M3 || type == DTYPE_I8 || type == DTYPE_I4;
    return stays ? x : type == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(x)) : f16_to_f32(f32_to_f16(x));
}

/* Returns n normally distributed floats, which the caller frees. */
static inline float *new_normals(size_t n, uint64_t seed) {
    float *x = malloc(sizeof *x * n);
    for (size_t i = 0; i < n; i++) {
        x[i] = random_normal(&seed);
    }
    return x;
}

static inline int32_t case_tokens(const attention_case *c) {
    int32_t n = 0;
    for (int32_t s = 0; s < c->n_seqs; s++) {
        n += c->lengths[s];
    }
    return n;
}

#endif
