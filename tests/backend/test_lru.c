/* A gated linear recurrence: compared with a naive model in double, and the same bits for
 * any instruction set, threads, steps and snapshots. Also the op `place`. */
#include "backend/state_rig.h"

#include <math.h>

typedef struct shape {
    int32_t n_blocks, width;
} shape;

static const shape SHAPES[] = {{4, 8}, {1, 16}, {3, 20}, {2, 48}, {10, 1}};
#define N_SHAPES ((int32_t)(sizeof SHAPES / sizeof SHAPES[0]))

typedef struct lru_rig {
    state_rig rig;
    lru_use use;
    float *gates, *rate;
} lru_rig;

static void run_lru(state_rig *g) {
    g->b->ops->lru(g->b, g->use);
}

static bool lru_rig_open(lru_rig *g, const shape *s, const char *isa, int32_t n_threads,
                         int32_t page_tokens) {
    uint64_t seed = 11;
    const int32_t n = s->n_blocks * s->width, n_units = lru_units(n, s->n_blocks);
    const cache_desc cache = lru_cache(n, s->n_blocks);
    const rig_spec spec = {.isa = isa,
                           .n_threads = n_threads,
                           .page_tokens = page_tokens,
                           .caches = &cache,
                           .n_caches = 1,
                           .n_inputs = 1,
                           .widths = {n},
                           .out_width = n,
                           .in_place = -1};
    memset(g, 0, sizeof *g);
    if (!rig_open(&g->rig, &spec)) {
        return false;
    }
    g->gates = random_rows(&seed, (size_t)(n_units * (s->width + 1) * 2 * STATE_LANES),
                           1.0f / sqrtf((float)s->width));
    g->rate = random_rows(&seed, (size_t)(n_units * STATE_LANES), 1.0f);
    for (int32_t i = 0; i < n_units * STATE_LANES; i++) {
        g->rate[i] = fabsf(g->rate[i]);
    }
    g->use = (lru_use){.cache = 1,
                       .n_channels = n,
                       .n_blocks = s->n_blocks,
                       .x = g->rig.in[0],
                       .gates = g->gates,
                       .rate = g->rate,
                       .out = g->rig.out};
    g->rig.run = run_lru;
    g->rig.use = &g->use;
    return true;
}

static void lru_rig_close(lru_rig *g) {
    rig_close(&g->rig);
    free(g->gates);
    free(g->rate);
}

static rig_seq new_tokens(const state_rig *g, int32_t number, int32_t n_tokens, uint64_t seed) {
    return (rig_seq){.number = number,
                     .in = {random_rows(&seed, (size_t)(n_tokens * g->widths[0]), 1.0f)},
                     .out = calloc((size_t)(n_tokens * g->out_width), sizeof(float))};
}

static void free_tokens(rig_seq *s) {
    free((void *)(uintptr_t)s->in[0]);
    free(s->out);
}

static double sigmoid_of(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static bool agrees_with_naive(const lru_rig *g, const shape *s, const rig_seq *tokens, int32_t n_tokens) {
    const int32_t n = s->n_blocks * s->width, per_block = (s->width + STATE_LANES - 1) / STATE_LANES;
    double state[512] = {0}, out[512];
    for (int32_t row = 0; row < n_tokens; row++) {
        const float *x = tokens->in[0] + (int64_t)row * n;
        for (int32_t c = 0; c < n; c++) {
            const int32_t block = c / s->width, at = c % s->width,
                          unit = block * per_block + at / STATE_LANES, lane = at % STATE_LANES;
            const float *gates = g->gates + unit * (s->width + 1) * 2 * STATE_LANES + lane;
            double input = (double)gates[s->width * 2 * STATE_LANES],
                   decay = (double)gates[s->width * 2 * STATE_LANES + STATE_LANES];
            for (int32_t j = 0; j < s->width; j++) {
                input += (double)x[block * s->width + j] * (double)gates[j * 2 * STATE_LANES];
                decay += (double)x[block * s->width + j] * (double)gates[j * 2 * STATE_LANES + STATE_LANES];
            }
            const double l = -(double)g->rate[unit * STATE_LANES + lane] * sigmoid_of(decay);
            const double kept = row == 0 ? 1.0 : sqrt(1.0 - exp(2.0 * l));
            state[c] = out[c] = rig_rounded(exp(l) * state[c] + kept * sigmoid_of(input) * (double)x[c]);
        }
        if (!are_close(tokens->out + (int64_t)row * n, out, (size_t)n, rig_bound(1e-4))) {
            return false;
        }
    }
    return true;
}

TEST(it_agrees_with_a_naive_model_in_double) {
    enum { TOKENS = 40 };
    for (int32_t i = 0; i < N_SHAPES; i++) {
        lru_rig g;
        assert_true(lru_rig_open(&g, &SHAPES[i], "auto", 2, 16));
        rig_seq s = new_tokens(&g.rig, 0, TOKENS, 100 + (uint64_t)i);
        rig_run(&g.rig, &s, TOKENS, TOKENS);
        assert_true(agrees_with_naive(&g, &SHAPES[i], &s, TOKENS));
        free_tokens(&s);
        lru_rig_close(&g);
    }
}

TEST(bits_are_the_same_over_instruction_sets_threads_and_cuts) {
    enum { TOKENS = 37 };
    static const int32_t chunks[] = {TOKENS, 1, 3, 16};
    for (int32_t i = 0; i < N_SHAPES; i++) {
        uint64_t expected = 0;
        for (int32_t isa = 0; isa < N_MATH_ISAS; isa++) {
            for (int32_t variant = 0; variant < 4; variant++) {
                lru_rig g;
                if (!lru_rig_open(&g, &SHAPES[i], ISAS[isa], 1 + variant, variant % 2 == 0 ? 1 : 256)) {
                    break;
                }
                rig_seq s = new_tokens(&g.rig, variant, TOKENS, 200 + (uint64_t)i);
                rig_run(&g.rig, &s, TOKENS, chunks[variant]);
                uint64_t hash =
                    hash_bytes(HASH_START, s.out, sizeof(float) * (size_t)(TOKENS * g.rig.out_width));
                expected = expected == 0 ? hash : expected;
                assert_true(hash == expected);
                free_tokens(&s);
                lru_rig_close(&g);
            }
        }
    }
}

/* A snapshot within a step is the state after its row; a sequence goes on from it as from
 * its own pages. */
TEST(a_snapshot_continues_as_the_sequence_does) {
    enum { TOKENS = 20, AT = 6 };
    lru_rig g;
    assert_true(lru_rig_open(&g, &SHAPES[2], "auto", 2, 16));
    rig_seq s = new_tokens(&g.rig, 0, TOKENS, 9), other = s, *one = &s, *two = &other;
    int32_t n = TOKENS, rest = TOKENS - AT - 1;
    other.number = 1;
    other.out = calloc((size_t)(TOKENS * g.rig.out_width), sizeof(float));
    s.n_snapshots = 1;
    s.snapshots[0] = (batch_snapshot){.row = AT, .pages = g.rig.pages[1]};
    rig_step(&g.rig, &one, &n, 1);
    other.n_done = AT + 1;
    rig_step(&g.rig, &two, &rest, 1);
    const size_t from = (size_t)((AT + 1) * g.rig.out_width);
    assert_memory_equal(s.out + from, other.out + from, sizeof(float) * (size_t)(rest * g.rig.out_width));
    free(other.out);
    free_tokens(&s);
    lru_rig_close(&g);
}

TEST(rows_lie_side_by_side) {
    enum { ROWS = 5, WIDTH = 7 };
    uint64_t seed = 3;
    quire_error err;
    kv_layout layout;
    const model_desc d = desc_plain(1, 2, 1, 16, 0);
    backend *b = open_isa("auto", 2);
    assert_non_null(b);
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_F32), 16, &layout, &err), QUIRE_OK);
    const buffer x = b->ops->buffer_reserve(b, WIDTH), wide = b->ops->buffer_reserve(b, 2 * WIDTH);
    const step_limits limits = {.max_rows = ROWS, .max_seqs = 1};
    assert_int_equal(b->ops->step_open(b, &limits, &layout, 0, &err), QUIRE_OK);
    batch_seq seq = {.n_rows = ROWS, .n_tokens = ROWS};
    int32_t positions[ROWS] = {0, 1, 2, 3, 4};
    const batch step = {.n_rows = ROWS, .n_seqs = 1, .positions = positions, .n_axes = 1, .seqs = &seq};
    float *rows = random_rows(&seed, ROWS * WIDTH, 1.0f), out[ROWS * 2 * WIDTH];
    b->ops->step_begin(b, &step);
    b->ops->buffer_write(b, x, 0, ROWS, rows);
    b->ops->place(b, x, WIDTH, wide);
    b->ops->place(b, x, 0, wide);
    b->ops->step_wait(b);
    b->ops->buffer_read(b, wide, 0, ROWS, out);
    for (int32_t row = 0; row < ROWS; row++) {
        assert_memory_equal(out + row * 2 * WIDTH, rows + row * WIDTH, WIDTH * sizeof *out);
        assert_memory_equal(out + row * 2 * WIDTH + WIDTH, rows + row * WIDTH, WIDTH * sizeof *out);
    }
    free(rows);
    b->ops->close(b);
}

int main(void) {
    note_isas();
    const int n_failed = tests_run(NULL, NULL);
    rig_states = DTYPE_BF16;
    return n_failed + tests_run(NULL, NULL);
}
