/* Linear attention: every form compared with a naive model in double, and the same bits
 * for any instruction set, threads, steps, batches, page layouts and snapshots. */
#include "backend/state_rig.h"

#include <math.h>

enum { IN_Q, IN_K, IN_V, IN_DECAY, IN_BETA };

typedef struct form {
    const char *name;
    float qk_eps, q_scale;
    bool has_decay, per_channel, has_bias;
    decay_kind kind;
    float lower, t_min, t_max;
    bool values_by_time, has_beta, has_skip;
    float beta_scale;
} form;

static const form FORMS[] = {
    {"gated delta", 1e-6f, 0.125f, true, false, true, DECAY_SOFTPLUS, 0, 0, 0, false, true, false, 1.0f},
    {"delta", 1e-6f, 1.0f, false, false, false, DECAY_SOFTPLUS, 0, 0, 0, false, true, false, 2.0f},
    {"kimi", 1e-6f, 0.125f, true, true, true, DECAY_SOFTPLUS, 0, 0, 0, false, true, false, 1.0f},
    {"kimi bounded", 1e-6f, 0.125f, true, true, true, DECAY_BOUNDED, -5.0f, 0, 0, false, true, false, 1.0f},
    {"mamba2", 0, 1.0f, true, false, true, DECAY_SOFTPLUS, 0, 1e-3f, 2.0f, true, false, true, 0},
    {"lightning", 0, 0.5f, false, false, false, DECAY_SOFTPLUS, 0, 0, 0, false, false, false, 0},
    {"vector gates", 0, 1.0f, true, true, false, DECAY_SOFTPLUS, 0, 0, 0, false, false, false, 0},
};
#define N_FORMS ((int32_t)(sizeof FORMS / sizeof FORMS[0]))

typedef struct shape {
    int32_t n_heads, n_key_heads, d_key, d_value;
} shape;

static const shape SHAPES[] = {{4, 2, 64, 64}, {1, 1, 1, 1},    {3, 3, 20, 12}, {4, 1, 16, 40},
                               {6, 2, 33, 17}, {2, 1, 128, 80}, {8, 8, 8, 16},  {2, 2, 36, 48}};
#define N_SHAPES ((int32_t)(sizeof SHAPES / sizeof SHAPES[0]))

/* A form with weights and a rig for it. */
typedef struct attention_rig {
    state_rig rig;
    linear_attention_use use;
    float rate[8], skip[8], bias[8 * 128];
} attention_rig;

static void run_attention(state_rig *g) {
    g->b->ops->linear_attention(g->b, g->use);
}

static bool attention_open(attention_rig *g, const form *f, const shape *s, const char *isa,
                           int32_t n_threads, int32_t page_tokens, bool in_place) {
    uint64_t seed = 7;
    const int32_t n_decays = s->n_heads * (f->per_channel ? s->d_key : 1);
    const cache_desc caches[] = {linear_attention_cache(3, 5, 7), /* which no op writes */
                                 linear_attention_cache(s->n_heads, s->d_key, s->d_value)};
    const rig_spec spec = {.isa = isa,
                           .n_threads = n_threads,
                           .page_tokens = page_tokens,
                           .caches = caches,
                           .n_caches = 2,
                           .n_inputs = 5,
                           .widths = {s->n_key_heads * s->d_key, s->n_key_heads * s->d_key,
                                      s->n_heads * s->d_value, n_decays, s->n_heads},
                           .out_width = s->n_heads * s->d_value,
                           .in_place = in_place ? IN_V : -1};
    memset(g, 0, sizeof *g);
    for (int32_t h = 0; h < s->n_heads; h++) {
        g->rate[h] = expf(0.5f * random_normal(&seed));
        g->skip[h] = random_normal(&seed);
    }
    for (int32_t i = 0; i < n_decays; i++) {
        g->bias[i] = random_normal(&seed);
    }
    if (!rig_open(&g->rig, &spec)) {
        return false;
    }
    g->use = (linear_attention_use){.cache = 2,
                                    .n_heads = s->n_heads,
                                    .n_key_heads = s->n_key_heads,
                                    .d_key = s->d_key,
                                    .d_value = s->d_value,
                                    .q = g->rig.in[IN_Q],
                                    .k = g->rig.in[IN_K],
                                    .v = g->rig.in[IN_V],
                                    .qk_eps = f->qk_eps,
                                    .q_scale = f->q_scale,
                                    .decay_kind = f->kind,
                                    .per_channel = f->per_channel,
                                    .decay = f->has_decay ? g->rig.in[IN_DECAY] : BUFFER_NONE,
                                    .rate = g->rate,
                                    .decay_bias = f->has_bias ? g->bias : NULL,
                                    .lower = f->lower,
                                    .t_min = f->t_min,
                                    .t_max = f->t_max,
                                    .values_by_time = f->values_by_time,
                                    .beta = f->has_beta ? g->rig.in[IN_BETA] : BUFFER_NONE,
                                    .beta_scale = f->beta_scale,
                                    .skip = f->has_skip ? g->skip : NULL,
                                    .out = g->rig.out};
    g->rig.run = run_attention;
    g->rig.use = &g->use;
    return true;
}

/* ---- the naive model ---- */

static double norm_factor(const float *x, int32_t n, double eps) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return eps > 0 ? 1.0 / sqrt(sum + eps) : 1.0;
}

static double naive_decay(const attention_rig *g, const float *x, int32_t head, int32_t i, double *t) {
    const linear_attention_use *use = &g->use;
    const double rate = (double)use->rate[head];
    if (use->decay.id == BUFFER_NONE.id) {
        *t = 1.0;
        return exp(-rate);
    }
    const double y = (double)x[i] + (use->decay_bias != NULL ? (double)use->decay_bias[i] : 0.0);
    *t = log1p(exp(y));
    if (use->t_max > 0.0f) {
        *t = fmin(fmax(*t, (double)use->t_min), (double)use->t_max);
    }
    return use->decay_kind == DECAY_BOUNDED ? exp((double)use->lower / (1.0 + exp(-rate * y)))
                                            : exp(-rate * *t);
}

/* One row of one head; state [d_key][d_value]. */
static void naive_row(const attention_rig *g, const rig_seq *s, int32_t row, int32_t head, double *state,
                      double *out) {
    const linear_attention_use *use = &g->use;
    const int32_t dk = use->d_key, dv = use->d_value, key_head = head / (use->n_heads / use->n_key_heads);
    const float *q = s->in[IN_Q] + ((int64_t)row * use->n_key_heads + key_head) * dk,
                *k = s->in[IN_K] + ((int64_t)row * use->n_key_heads + key_head) * dk,
                *v = s->in[IN_V] + ((int64_t)row * use->n_heads + head) * dv,
                *decay = s->in[IN_DECAY] + (int64_t)row * g->rig.widths[IN_DECAY];
    const double q_factor = norm_factor(q, dk, (double)use->qk_eps) * (double)use->q_scale,
                 k_factor = norm_factor(k, dk, (double)use->qk_eps);
    double t = 1.0;
    for (int32_t i = 0; i < dk; i++) {
        double a = naive_decay(g, decay, head, use->per_channel ? head * dk + i : head, &t);
        for (int32_t j = 0; j < dv; j++) {
            state[i * dv + j] *= a;
        }
    }
    for (int32_t j = 0; j < dv; j++) {
        double u = use->values_by_time ? t * (double)v[j] : (double)v[j];
        if (use->beta.id != BUFFER_NONE.id) {
            double beta = (double)s->in[IN_BETA][(int64_t)row * use->n_heads + head], w = 0;
            for (int32_t i = 0; i < dk; i++) {
                w += state[i * dv + j] * (double)k[i] * k_factor;
            }
            u = (double)use->beta_scale / (1.0 + exp(-beta)) * (u - w);
        }
        out[j] = use->skip != NULL ? (double)use->skip[head] * (double)v[j] : 0.0;
        for (int32_t i = 0; i < dk; i++) {
            state[i * dv + j] = rig_rounded(state[i * dv + j] + (double)k[i] * k_factor * u);
            out[j] += state[i * dv + j] * (double)q[i] * q_factor;
        }
    }
}

static bool agrees_with_naive(const attention_rig *g, const rig_seq *s, int32_t n_tokens) {
    const int32_t dv = g->use.d_value, h = g->use.n_heads;
    double *state = calloc((size_t)(h * g->use.d_key * dv), sizeof *state),
           *out = calloc((size_t)(h * dv), sizeof *out);
    bool agrees = true;
    for (int32_t row = 0; row < n_tokens && agrees; row++) {
        for (int32_t head = 0; head < h; head++) {
            naive_row(g, s, row, head, state + (int64_t)head * g->use.d_key * dv, out + head * dv);
        }
        agrees = are_close(s->out + (int64_t)row * h * dv, out, (size_t)(h * dv), rig_bound(1e-4));
    }
    free(state);
    free(out);
    return agrees;
}

TEST(every_form_agrees_with_a_naive_model_in_double) {
    enum { TOKENS = 21 };
    for (int32_t i = 0; i < N_FORMS * N_SHAPES; i++) {
        attention_rig g;
        assert_true(attention_open(&g, &FORMS[i % N_FORMS], &SHAPES[i / N_FORMS], "auto", 2, 16, false));
        rig_seq s = rig_tokens(&g.rig, 0, TOKENS, 100 + (uint64_t)i);
        rig_run(&g.rig, &s, TOKENS, TOKENS);
        bool agrees = agrees_with_naive(&g, &s, TOKENS);
        if (!agrees) {
            printf("form %s, shape %d\n", FORMS[i % N_FORMS].name, i / N_FORMS);
        }
        assert_true(agrees);
        rig_free_tokens(&s);
        rig_close(&g.rig);
    }
}

TEST(bits_are_the_same_over_instruction_sets_threads_cuts_and_pages) {
    enum { TOKENS = 37 };
    static const int32_t chunks[] = {TOKENS, 1, 3, 16};
    for (int32_t i = 0; i < N_FORMS * N_SHAPES; i++) {
        const form *f = &FORMS[i % N_FORMS];
        const shape *sh = &SHAPES[i / N_FORMS];
        uint64_t expected = 0;
        for (int32_t isa = 0; isa < N_MATH_ISAS; isa++) {
            for (int32_t variant = 0; variant < 4; variant++) {
                attention_rig g;
                if (!attention_open(&g, f, sh, ISAS[isa], 1 + variant, variant % 2 == 0 ? 1 : 256,
                                    variant == 2)) {
                    break;
                }
                rig_seq s = rig_tokens(&g.rig, variant, TOKENS, 200 + (uint64_t)i);
                rig_run(&g.rig, &s, TOKENS, chunks[variant]);
                uint64_t hash = rig_hash(&g.rig, &s, rig_cache_floats(&g.rig, 1));
                expected = expected == 0 ? hash : expected;
                if (hash != expected) {
                    printf("form %s, shape %d, %s, variant %d\n", f->name, i / N_FORMS, ISAS[isa], variant);
                }
                assert_true(hash == expected);
                rig_free_tokens(&s);
                rig_close(&g.rig);
            }
        }
    }
}

TEST(snapshots_and_batches_change_no_bit) {
    for (int32_t i = 0; i < N_FORMS; i++) {
        attention_rig g;
        assert_true(attention_open(&g, &FORMS[i], &SHAPES[3 + i % 4], "auto", 3, 16, i % 2 == 0));
        rig_check_snapshots(&g.rig, 40);
        rig_check_batch(&g.rig);
        rig_close(&g.rig);
    }
}

TEST(a_token_that_is_not_finite_leaves_such_a_state) {
    for (int32_t isa = 0; isa < N_MATH_ISAS; isa++) {
        attention_rig g;
        if (!attention_open(&g, &FORMS[0], &SHAPES[0], ISAS[isa], 2, 16, false)) {
            continue;
        }
        rig_check_not_finite(&g.rig, IN_K, NAN);
        rig_check_not_finite(&g.rig, IN_K, INFINITY);
        rig_check_not_finite(&g.rig, IN_V, NAN);
        rig_check_not_finite(&g.rig, IN_V, INFINITY);
        rig_check_not_finite(&g.rig, IN_DECAY, NAN);
        rig_check_not_finite(&g.rig, IN_BETA, NAN);
        rig_close(&g.rig);
    }
}

int main(void) {
    note_isas();
    const int n_failed = tests_run(NULL, NULL);
    rig_states = DTYPE_BF16;
    return n_failed + tests_run(NULL, NULL);
}
