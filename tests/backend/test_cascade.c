/* Attention over shared pages: every row has the bits it gets when its sequence runs
 * alone. */
#include "backend/attention_case.h"

#define SEED 78u

/* Tokens that a sequence shares with the one before it have the same keys and values. */
static void repeat_shared(const attention_case *c, size_t width, float *x) {
    size_t first = 0;
    for (int32_t s = 1; s < c->n_seqs; s++) {
        size_t before = first;
        first += (size_t)c->lengths[s - 1];
        memcpy(x + first * width, x + before * width, sizeof *x * width * (size_t)c->shared[s]);
    }
}

/* Runs c sequence by sequence in plain C, then together over shared pages on every
 * instruction set, in steps of these numbers of rows. */
static void check_cascade(attention_case c, const int32_t *steps, int32_t n_steps) {
    size_t tokens = (size_t)case_tokens(&c), n_out = tokens * (size_t)(c.n_heads * c.d_head),
           width = (size_t)(c.n_kv_heads * c.d_head);
    float *q = new_normals(n_out, SEED), *k = new_normals(tokens * width, SEED + 1),
          *v = new_normals(tokens * width, SEED + 2);
    float *base = malloc(sizeof *base * n_out), *other = malloc(sizeof *other * n_out);
    repeat_shared(&c, width, k);
    repeat_shared(&c, width, v);
    c.q = q;
    c.k = k;
    c.v = v;
    c.isa = "plain";
    c.page_tokens = 16;
    c.tile_rows = 16;
    c.n_threads = 1;
    case_run_all(&c, base);
    c.cascade = true;
    for (int i = 0; i < N_MATH_ISAS; i++) {
        if (!isa_is_here(ISAS[i])) {
            continue;
        }
        c.isa = ISAS[i];
        for (int32_t w = 0; w < n_steps; w += ISAS[i][0] == 'p' ? 2 : 1) { /* the slow one takes fewer */
            c.chunk = steps[w];
            c.n_threads = 1 + w % 2;
            c.page_tokens = w % 3 == 0 ? 4 : w % 3 == 1 ? 32 : 256;
            memset(other, 0xff, sizeof *other * n_out);
            assert_in_range(case_run_all(&c, other), 1, INT32_MAX);
            if (!same_floats(other, base, n_out)) {
                fail_msg("%s, type %s, heads of %d, window %d, %d rows a step", c.isa, dtype_name(c.type),
                         c.d_head, c.spec.window, c.chunk);
            }
        }
    }
    free(q);
    free(k);
    free(v);
    free(base);
    free(other);
}

TEST(rows_get_the_same_bits_from_shared_pages) {
    static const int32_t steps[] = {300, 64, 513};
    check_cascade((attention_case){.n_heads = 2,
                                   .n_kv_heads = 1,
                                   .d_head = 24,
                                   .n_seqs = 5,
                                   .lengths = {1100, 1040, 520, 800, 40},
                                   .shared = {0, 1024, 256, 512},
                                   .type = DTYPE_BF16,
                                   .spec = {.scale = 0.3f, .causal = true}},
                  steps, 3);
    check_cascade((attention_case){.n_heads = 6,
                                   .n_kv_heads = 2,
                                   .d_head = 16,
                                   .n_seqs = 4,
                                   .lengths = {530, 540, 560, 515},
                                   .shared = {0, 512, 512, 256},
                                   .type = DTYPE_F32,
                                   .spec = {.scale = 0.25f, .causal = true}},
                  steps, 3);
}

TEST(rows_get_the_same_bits_with_masks_and_score_changes) {
    static const int32_t steps[] = {270, 100};
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f}, sinks[] = {0.5f, -1.0f, 3.0f, 0.0f};
    attention_case c = {.n_heads = 4,
                        .n_kv_heads = 4,
                        .d_head = 8,
                        .n_seqs = 3,
                        .lengths = {780, 790, 540},
                        .shared = {0, 768, 512},
                        .type = DTYPE_F16,
                        .spec = {.scale = 0.3f, .causal = true, .window = 300, .sinks = sinks}};
    check_cascade(c, steps, 2);
    c.spec = (attn_spec){.scale = 0.3f, .causal = true, .soft_cap = 3.0f, .alibi_slopes = slopes};
    check_cascade(c, steps, 2);
}

/* The sequence that comes first is the shorter one: the rows of both see more keys than
 * it has. */
TEST(rows_get_the_same_bits_with_masks_that_count_a_rows_keys) {
    static const int32_t steps[] = {1000, 400, 512};
    static const char *const masks[] = {"kv_idx < 4 || n_kv - kv_idx <= 512", "kv_idx < n_kv - 1000"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        attn_mods *mods = compile_mods(masks[i], "", NULL, 0);
        check_cascade((attention_case){.n_heads = 2,
                                       .n_kv_heads = 1,
                                       .d_head = 8,
                                       .n_seqs = 2,
                                       .lengths = {1020, 1700},
                                       .shared = {0, 768},
                                       .type = DTYPE_F32,
                                       .spec = {.scale = 0.3f, .causal = true},
                                       .mods = mods},
                      steps, 3);
        attn_mods_drop(mods);
    }
}

TEST_MAIN_ISAS
