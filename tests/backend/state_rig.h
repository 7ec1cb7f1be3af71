/* A test rig for a backend with one recurrent op: runs tokens of several sequences in
 * steps of any size. Each sequence has its own state pages. */
#ifndef TESTS_BACKEND_STATE_RIG_H
#define TESTS_BACKEND_STATE_RIG_H

#include "backend/isas.h"
#include "core/half.h"
#include "core/recurrence.h"

#define RIG_INPUTS    6
#define RIG_ROWS      512 /* most rows of a step */
#define RIG_SEQS      8   /* most sequences and snapshots together */
#define RIG_SNAPSHOTS 4

/* The type of states in rigs opened from now on: F32 or BF16. */
static dtype rig_states = DTYPE_F32;

/* Returns x rounded to the type of states. */
static inline double rig_rounded(double x) {
    return rig_states == DTYPE_BF16 ? (double)bf16_to_f32(f32_to_bf16((float)x)) : x;
}

/* Returns the bound for differences from a naive model. BF16 needs a larger one: if the
 * last bits of two numbers differ, they may be rounded in opposite directions. */
static inline double rig_bound(double of_f32) {
    return rig_states == DTYPE_BF16 ? 0.03 : of_f32;
}

typedef struct state_rig {
    backend *b;
    kv_layout layout;
    int32_t group, n_inputs, widths[RIG_INPUTS], out_width;
    buffer in[RIG_INPUTS], out;
    int32_t pages[RIG_SEQS][256]; /* state pages of each sequence number, in random order */
    void (*run)(struct state_rig *g);
    void *use; /* parameters of run */
} state_rig;

/* The options of a rig. */
typedef struct rig_spec {
    const char *isa;
    int32_t n_threads, page_tokens;
    const cache_desc *caches; /* [n_caches] caches of states */
    int32_t n_caches;
    int32_t n_inputs, widths[RIG_INPUTS], out_width;
    int32_t in_place; /* index of the input that is also `out`; -1: out has its own buffer */
} rig_spec;

/* A sequence: inputs [n_tokens, width] and outputs [n_tokens, out_width]. */
typedef struct rig_seq {
    int32_t number; /* index in state_rig.pages */
    float *in[RIG_INPUTS], *out;
    int32_t n_done;
    int32_t n_snapshots; /* snapshots to take in the next step */
    batch_snapshot snapshots[RIG_SNAPSHOTS];
} rig_seq;

/* Opens a rig. False: this processor lacks the instruction set. */
static inline bool rig_open(state_rig *g, const rig_spec *spec) {
    quire_error err;
    model_desc d = desc_plain(1, 2, 1, 16, 0);
    memset(g, 0, sizeof *g);
    g->b = open_isa(spec->isa, spec->n_threads);
    if (g->b == NULL) {
        return false;
    }
    for (int32_t i = 0; i < spec->n_caches; i++) {
        d.caches[d.n_caches++] = spec->caches[i];
    }
    const kv_types types = {.key = DTYPE_F32, .value = DTYPE_F32, .state = rig_states};
    assert_int_equal(kv_layout_init(&d, types, spec->page_tokens, &g->layout, &err), QUIRE_OK);
    g->group = g->layout.caches[1].group;
    g->n_inputs = spec->n_inputs;
    g->out_width = spec->out_width;
    for (int32_t i = 0; i < spec->n_inputs; i++) {
        g->widths[i] = spec->widths[i];
        g->in[i] = g->b->ops->buffer_reserve(g->b, spec->widths[i]);
    }
    g->out = spec->in_place >= 0 ? g->in[spec->in_place] : g->b->ops->buffer_reserve(g->b, spec->out_width);
    step_limits limits = {.max_rows = RIG_ROWS, .max_seqs = RIG_SEQS};
    assert_int_equal(g->b->ops->step_open(g->b, &limits, &g->layout, 0, &err), QUIRE_OK);
    const int32_t each = g->layout.groups[g->group].state_pages, n_pages = each * RIG_SEQS;
    assert_true(each >= 1 && each <= 256);
    assert_int_equal(g->b->ops->kv_open(g->b, n_pages, &err), QUIRE_OK);
    uint8_t *noise = malloc((size_t)g->layout.page_bytes);
    memset(noise, 0xFF, (size_t)g->layout.page_bytes); /* NaNs, since the content of new pages is undefined */
    for (int32_t i = 0; i < n_pages; i++) {
        g->b->ops->kv_write_page(g->b, i, noise);
        g->pages[i % RIG_SEQS][each - 1 - i / RIG_SEQS] = i;
    }
    free(noise);
    return true;
}

static inline void rig_close(state_rig *g) {
    g->b->ops->close(g->b);
}

/* Runs a step of the next n[i] tokens of each sequence i. */
static inline void rig_step(state_rig *g, rig_seq *const *seqs, const int32_t *n, int32_t n_seqs) {
    batch_seq batch_seqs[RIG_SEQS] = {{.row0 = 0}};
    int32_t positions[RIG_ROWS], n_rows = 0;
    for (int32_t i = 0; i < n_seqs; i++) {
        batch_seqs[i] = (batch_seq){.row0 = n_rows,
                                    .n_rows = n[i],
                                    .n_tokens = seqs[i]->n_done + n[i],
                                    .n_snapshots = seqs[i]->n_snapshots,
                                    .snapshots = seqs[i]->snapshots};
        batch_seqs[i].pages[g->group] = g->pages[seqs[i]->number];
        for (int32_t r = 0; r < n[i]; r++) {
            positions[n_rows++] = seqs[i]->n_done + r;
        }
    }
    assert_true(n_rows <= RIG_ROWS);
    batch step = {
        .n_rows = n_rows, .n_seqs = n_seqs, .positions = positions, .n_axes = 1, .seqs = batch_seqs};
    g->b->ops->step_begin(g->b, &step);
    for (int32_t i = 0; i < n_seqs; i++) {
        for (int32_t k = 0; k < g->n_inputs; k++) {
            g->b->ops->buffer_write(g->b, g->in[k], batch_seqs[i].row0, n[i],
                                    seqs[i]->in[k] + (int64_t)seqs[i]->n_done * g->widths[k]);
        }
    }
    g->run(g);
    g->b->ops->step_wait(g->b);
    for (int32_t i = 0; i < n_seqs; i++) {
        g->b->ops->buffer_read(g->b, g->out, batch_seqs[i].row0, n[i],
                               seqs[i]->out + (int64_t)seqs[i]->n_done * g->out_width);
        seqs[i]->n_done += n[i];
        seqs[i]->n_snapshots = 0;
    }
}

/* Runs the first n_tokens tokens of one sequence, `chunk` in each step. */
static inline void rig_run(state_rig *g, rig_seq *s, int32_t n_tokens, int32_t chunk) {
    for (s->n_done = 0; s->n_done < n_tokens;) {
        int32_t n = n_tokens - s->n_done < chunk ? n_tokens - s->n_done : chunk;
        rig_step(g, &s, &n, 1);
    }
}

/* Returns the number of elements in all units of a cache; 0: it has no states. */
static inline size_t rig_cache_floats(const state_rig *g, int32_t cache) {
    const kv_planes *p = &g->layout.caches[cache];
    return p->kind == LAYER_STATE ? (size_t)(p->state.n_units * p->state.unit_bytes / p->state.element_bytes)
                                  : 0;
}

/* Returns the number of elements in all states of a sequence. */
static inline size_t rig_state_floats(const state_rig *g) {
    size_t n = 0;
    for (int32_t i = 0; i < g->layout.n_caches; i++) {
        n += rig_cache_floats(g, i);
    }
    return n;
}

/* Converts n elements of the type of states to floats. */
static inline void rig_widen(const uint8_t *from, int32_t n, float *to) {
    for (int32_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        if (rig_states == DTYPE_BF16) {
            to[i] = bf16_to_f32(half);
        } else {
            memcpy(&to[i], from + 4 * i, sizeof *to);
        }
    }
}

/* Returns all states of sequence `number` as floats, which the caller frees. */
static inline float *rig_state(const state_rig *g, int32_t number) {
    float *state = malloc(rig_state_floats(g) * sizeof *state), *to = state;
    uint8_t *page = malloc((size_t)g->layout.page_bytes);
    for (int32_t i = 0; i < g->layout.n_caches; i++) {
        const kv_planes *p = &g->layout.caches[i];
        for (int32_t unit = 0; p->kind == LAYER_STATE && unit < p->state.n_units; unit++) {
            int32_t at = 0;
            int64_t offset = kv_state_unit(p, unit, &at);
            g->b->ops->kv_read_page(g->b, g->pages[number][at], page);
            const int32_t n = (int32_t)(p->state.unit_bytes / p->state.element_bytes);
            rig_widen(page + offset, n, to);
            to += n;
        }
    }
    free(page);
    return state;
}

static inline float *random_rows(uint64_t *seed, size_t n, float scale) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = scale * random_normal(seed);
    }
    return x;
}

/* Whether all floats are within `bound` of the expected numbers, relative to the larger
 * of 1 and the number. */
static inline bool are_close(const float *x, const double *expected, size_t n, double bound) {
    for (size_t i = 0; i < n; i++) {
        double size = expected[i] < 0 ? -expected[i] : expected[i],
               error = (double)x[i] > expected[i] ? (double)x[i] - expected[i] : expected[i] - (double)x[i];
        if (!(error <= bound * (size > 1.0 ? size : 1.0))) {
            printf("element %zu: %g, not %g\n", i, (double)x[i], expected[i]);
            return false;
        }
    }
    return true;
}

/* Makes a sequence of random tokens with pages[number]; rig_free_tokens frees it. */
static inline rig_seq rig_tokens(const state_rig *g, int32_t number, int32_t n_tokens, uint64_t seed) {
    rig_seq s = {.number = number, .out = calloc((size_t)n_tokens * (size_t)g->out_width, sizeof(float))};
    for (int32_t k = 0; k < g->n_inputs; k++) {
        s.in[k] = random_rows(&seed, (size_t)n_tokens * (size_t)g->widths[k], 1.0f);
    }
    return s;
}

static inline void rig_free_tokens(rig_seq *s) {
    for (int32_t k = 0; k < RIG_INPUTS; k++) {
        free(s->in[k]);
    }
    free(s->out);
}

/* Hashes a sequence's outputs and its states, skipping the first n_skipped elements. */
static inline uint64_t rig_hash(const state_rig *g, const rig_seq *s, size_t n_skipped) {
    float *state = rig_state(g, s->number);
    uint64_t hash = hash_bytes(HASH_START, s->out, sizeof(float) * (size_t)s->n_done * (size_t)g->out_width);
    hash = hash_bytes(hash, state + n_skipped, sizeof *state * (rig_state_floats(g) - n_skipped));
    free(state);
    return hash;
}

static inline void rig_check_same_state(const state_rig *g, int32_t number, int32_t expected) {
    float *a = rig_state(g, number), *b = rig_state(g, expected);
    assert_true(same_floats(a, b, rig_state_floats(g)));
    free(a);
    free(b);
}

/* Checks that snapshots after rows in the middle of two steps equal the states after
 * steps of one token, and that they change neither outputs nor the final state. */
static inline void rig_check_snapshots(state_rig *g, int32_t n_tokens) {
    static const int32_t rows[2][RIG_SNAPSHOTS] = {{0, 6, 7, 15}, {3, 8, 9, 10}};
    const int32_t steps[2] = {18, n_tokens - 18};
    rig_seq s = rig_tokens(g, 0, n_tokens, 5), apart = s;
    apart.out = calloc((size_t)n_tokens * (size_t)g->out_width, sizeof *apart.out);
    apart.number = RIG_SNAPSHOTS + 1;
    for (int32_t step = 0, one = 1; step < 2; step++) {
        const int32_t before = s.n_done;
        rig_seq *both[] = {&s, &apart};
        s.n_snapshots = RIG_SNAPSHOTS;
        for (int32_t i = 0; i < RIG_SNAPSHOTS; i++) {
            s.snapshots[i] = (batch_snapshot){.row = rows[step][i], .pages = g->pages[1 + i]};
        }
        rig_step(g, &both[0], &steps[step], 1);
        for (int32_t i = 0; i < RIG_SNAPSHOTS; i++) {
            while (apart.n_done <= before + rows[step][i]) {
                rig_step(g, &both[1], &one, 1);
            }
            rig_check_same_state(g, 1 + i, apart.number);
        }
        while (apart.n_done < s.n_done) {
            rig_step(g, &both[1], &one, 1);
        }
        rig_check_same_state(g, s.number, apart.number);
    }
    assert_memory_equal(s.out, apart.out, sizeof(float) * (size_t)n_tokens * (size_t)g->out_width);
    free(apart.out);
    rig_free_tokens(&s);
}

/* Checks that sequences batched in various steps have the same bits as each one alone. */
static inline void rig_check_batch(state_rig *g) {
    enum { STEPS = 3 };
    static const int32_t rows[STEPS][RIG_SEQS] = {
        {1, 17, 5, 1, 40, 8, 0, 0}, {1, 1, 9, 3, 1, 1, 2, 0}, {1, 30, 1, 1, 7, 16, 1, 33}};
    rig_seq seqs[RIG_SEQS];
    uint64_t hashes[RIG_SEQS];
    for (int32_t i = 0; i < RIG_SEQS; i++) {
        seqs[i] = rig_tokens(g, i, 100, 50 + (uint64_t)i);
    }
    for (int32_t step = 0; step < STEPS; step++) {
        rig_seq *in_step[RIG_SEQS];
        int32_t n_rows[RIG_SEQS], n = 0;
        for (int32_t i = 0; i < RIG_SEQS; i++) {
            if (rows[step][i] > 0) {
                n_rows[n] = rows[step][i];
                in_step[n++] = &seqs[i];
            }
        }
        rig_step(g, in_step, n_rows, n);
    }
    for (int32_t i = 0; i < RIG_SEQS; i++) {
        const int32_t n_tokens = seqs[i].n_done;
        hashes[i] = rig_hash(g, &seqs[i], 0);
        rig_run(g, &seqs[i], n_tokens, n_tokens);
        assert_true(rig_hash(g, &seqs[i], 0) == hashes[i]);
        rig_free_tokens(&seqs[i]);
    }
}

/* Returns how many elements of a sequence's states are NaN or infinite. */
static inline size_t rig_count_not_finite(const state_rig *g, int32_t number) {
    float *state = rig_state(g, number);
    size_t n = 0;
    for (size_t i = 0; i < rig_state_floats(g); i++) {
        const float rest = state[i] - state[i];
        n += rest != 0.0f;
    }
    free(state);
    return n;
}

/* Checks that a token whose input k is not finite makes the state not finite, and leaves
 * the outputs before it unchanged. */
static inline void rig_check_not_finite(state_rig *g, int32_t k, float value) {
    enum { TOKENS = 12, AT = 5 };
    rig_seq s = rig_tokens(g, 0, TOKENS, 9);
    const size_t n_before = (size_t)AT * (size_t)g->out_width;
    float *expected = malloc(sizeof *expected * n_before);
    rig_run(g, &s, TOKENS, TOKENS);
    const size_t n_bad = rig_count_not_finite(g, 0); /* elements that no token writes */
    memcpy(expected, s.out, sizeof *expected * n_before);
    for (int32_t i = 0; i < g->widths[k]; i++) {
        s.in[k][AT * g->widths[k] + i] = value;
    }
    rig_run(g, &s, TOKENS, TOKENS);
    assert_memory_equal(s.out, expected, sizeof *expected * n_before);
    assert_true(rig_count_not_finite(g, 0) > n_bad);
    free(expected);
    rig_free_tokens(&s);
}

#endif
