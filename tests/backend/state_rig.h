/* A backend with one recurrence: sequences whose tokens go through its op in steps of any
 * cut, with states in pages of their own. */
#ifndef TESTS_BACKEND_STATE_RIG_H
#define TESTS_BACKEND_STATE_RIG_H

#include "backend/isas.h"
#include "core/recurrence.h"

#define RIG_INPUTS    6
#define RIG_ROWS      512 /* of a step, at most */
#define RIG_SEQS      8   /* sequences and snapshots */
#define RIG_SNAPSHOTS 4

typedef struct state_rig {
    backend *b;
    kv_layout layout;
    int32_t group, n_inputs, widths[RIG_INPUTS], out_width;
    buffer in[RIG_INPUTS], out;
    int32_t pages[RIG_SEQS][256]; /* scattered over the pool */
    void (*run)(struct state_rig *g);
    void *use; /* run's */
} state_rig;

/* What a rig is made of. */
typedef struct rig_spec {
    const char *isa;
    int32_t n_threads, page_tokens;
    const cache_desc *caches; /* of states */
    int32_t n_caches;
    int32_t n_inputs, widths[RIG_INPUTS], out_width;
    int32_t in_place; /* out is this input; -1: it is a buffer of its own */
} rig_spec;

/* A sequence's tokens: inputs [n_tokens, width], outputs. */
typedef struct rig_seq {
    int32_t number; /* whose pages it has */
    const float *in[RIG_INPUTS];
    float *out;
    int32_t n_done;
    int32_t n_snapshots; /* in the step that runs */
    batch_snapshot snapshots[RIG_SNAPSHOTS];
} rig_seq;

/* False: this processor has no such instruction set. */
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
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_F32), spec->page_tokens, &g->layout, &err), QUIRE_OK);
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
    memset(noise, 0xFF, (size_t)g->layout.page_bytes); /* NaN: pages start undefined */
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

/* Takes the next n[i] tokens of each sequence through one step. */
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

/* Takes n_tokens tokens of one sequence from the first on, `chunk` in each step. */
static inline void rig_run(state_rig *g, rig_seq *s, int32_t n_tokens, int32_t chunk) {
    for (s->n_done = 0; s->n_done < n_tokens;) {
        int32_t n = n_tokens - s->n_done < chunk ? n_tokens - s->n_done : chunk;
        rig_step(g, &s, &n, 1);
    }
}

/* Floats of all units of all states. */
static inline size_t rig_state_floats(const state_rig *g) {
    size_t n = 0;
    for (int32_t i = 0; i < g->layout.n_caches; i++) {
        const kv_planes *p = &g->layout.caches[i];
        n += p->kind == LAYER_STATE ? (size_t)(p->state.n_units * p->state.unit_bytes) / sizeof(float) : 0;
    }
    return n;
}

/* The units of all states in the pages of number i, one after the other; freed by the
 * caller. */
static inline float *rig_state(const state_rig *g, int32_t number) {
    float *state = malloc(rig_state_floats(g) * sizeof *state), *to = state;
    uint8_t *page = malloc((size_t)g->layout.page_bytes);
    for (int32_t i = 0; i < g->layout.n_caches; i++) {
        const kv_planes *p = &g->layout.caches[i];
        for (int32_t unit = 0; p->kind == LAYER_STATE && unit < p->state.n_units; unit++) {
            int32_t at = 0;
            int64_t offset = kv_state_unit(p, unit, &at);
            g->b->ops->kv_read_page(g->b, g->pages[number][at], page);
            memcpy(to, page + offset, (size_t)p->state.unit_bytes);
            to += p->state.unit_bytes / (int64_t)sizeof *to;
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

/* Whether floats are within `bound` of numbers computed in double, relative to 1 or to the
 * number. */
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

#endif
