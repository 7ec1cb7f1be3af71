/* Attention to latents, which are the keys of all heads and whose first elements are the
 * values; also values of another width than the keys. Close to a reference in double, and
 * the same bits however the work is cut. */
#include "backend/attention_fixture.h"

static attention_case latent_case(int32_t n_heads, int32_t rank, int32_t d_rope, dtype type) {
    attention_case c = base_case();
    c.latent = true;
    c.n_heads = n_heads;
    c.n_kv_heads = 1;
    c.d_head = rank + d_rope;
    c.d_value = rank;
    c.type = type;
    c.spec.scale = 1.0f / sqrtf((float)(rank + d_rope));
    return c;
}

/* Near double, and the plain twin's bits on every instruction set. */
static void check_near(attention_case c, double most) {
    fixture f;
    const kv_types *types = c.types;
    fixture_fill(&f, c);
    case_run_all(&f.c, f.base);
    double worst = worst_difference(&f.c, f.base);
    if (!(worst < most)) {
        fail_msg("%s, %d heads of %d, values of %d: off by %g",
                 dtype_name(types != NULL ? types->key : c.type), c.n_heads, c.d_head, c.d_value, worst);
    }
    for (int j = 1; j < N_MATH_ISAS; j++) {
        if (isa_is_here(ISAS[j])) {
            c.isa = ISAS[j];
            check_same(&f, &c);
        }
    }
    fixture_free(&f);
}

TEST(latents_of_every_width_are_near_double_and_have_the_plain_twins_bits) {
    static const int32_t shapes[][3] = {{1, 16, 8},  {4, 16, 8}, {5, 10, 6},    {16, 48, 16},
                                        {33, 24, 8}, {7, 20, 0}, {16, 512, 64}, {3, 256, 32}};
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        attention_case c = latent_case(shapes[i][0], shapes[i][1], shapes[i][2], types[i % 3]);
        c.n_seqs = 2;
        c.lengths[0] = 23;
        c.lengths[1] = 290;
        c.page_tokens = i % 2 ? 16 : 4;
        c.tile_rows = 5;
        check_near(c, 1e-5);
    }
}

TEST(latents_with_scales_are_near_double) {
    static const struct {
        kv_types types;
        double most;
    } all[] = {{{DTYPE_I8, DTYPE_I8, DTYPE_F32}, 0.1},
               {{DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F32}, 0.3},
               {{DTYPE_I4, DTYPE_I4, DTYPE_F32}, 1.2}};
    for (int i = 0; i < 6; i++) {
        attention_case c = i < 3 ? latent_case(4, 16, 8, DTYPE_F32) : latent_case(6, 50, 18, DTYPE_F32);
        c.types = &all[i % 3].types;
        c.n_seqs = 2;
        c.lengths[0] = 23;
        c.lengths[1] = 290;
        check_near(c, all[i % 3].most);
    }
}

TEST(the_cut_of_the_work_shows_in_no_bit) {
    static const kv_types scaled[] = {{DTYPE_I8, DTYPE_I8, DTYPE_F32},
                                      {DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F32},
                                      {DTYPE_I4, DTYPE_I4, DTYPE_F32}};
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < 6; i++) {
        attention_case c = latent_case(i % 2 == 0 ? 8 : 40, 16, 8, i < 3 ? types[i] : DTYPE_F32);
        c.types = i < 3 ? NULL : &scaled[i - 3];
        c.spec.window = i == 1 ? 19 : 0;
        c.spec.soft_cap = i == 2 ? 3.0f : 0.0f;
        c.lengths[2] = i % 2 == 0 ? 530 : 300;
        check_every_way(&c);
    }
}

TEST(values_may_be_narrower_or_wider_than_keys) {
    static const int32_t widths[][2] = {{24, 16}, {16, 24}, {18, 10}, {64, 128}, {40, 32}};
    static const kv_types types[] = {{DTYPE_F32, DTYPE_F32, DTYPE_F32},
                                     {DTYPE_I8, DTYPE_I8, DTYPE_F32},
                                     {DTYPE_BF16, DTYPE_F16, DTYPE_F32},
                                     {DTYPE_I4, DTYPE_I4, DTYPE_F32},
                                     {DTYPE_F8_E4M3, DTYPE_I8, DTYPE_F32}};
    static const double most[] = {1e-5, 0.1, 0.05, 1.0, 0.25};
    for (int i = 0; i < 5; i++) {
        attention_case c = base_case();
        c.d_head = widths[i][0];
        c.d_value = widths[i][1];
        c.types = &types[i];
        c.lengths[2] = 290;
        check_near(c, most[i]);
        check_every_way(&c);
    }
}

/* A latent that is not finite shows in all rows that see it, and in no other: as key and as
 * value, and in its rotary part. */
TEST(what_is_not_finite_is_passed_on) {
    static const kv_types types[] = {{DTYPE_F32, DTYPE_F32, DTYPE_F32},
                                     {DTYPE_BF16, DTYPE_BF16, DTYPE_F32},
                                     {DTYPE_I8, DTYPE_I8, DTYPE_F32},
                                     {DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F32},
                                     {DTYPE_I4, DTYPE_I4, DTYPE_F32}};
    for (int i = 0; i < 10 * N_MATH_ISAS; i++) {
        attention_case c = latent_case(4, 16, 8, DTYPE_F32);
        fixture f;
        c.types = &types[i % 5];
        c.isa = ISAS[i / 10];
        c.n_seqs = 1;
        if (!isa_is_here(c.isa)) {
            continue;
        }
        fixture_fill(&f, c);
        f.k[20 * c.d_head + (i / 5 % 2 == 0 ? 3 : 20)] = NAN;
        case_run_all(&f.c, f.base);
        for (size_t p = 0, row = 4 * 16; p < (size_t)c.lengths[0]; p++) {
            if ((isfinite(f.base[p * row]) != 0) != (p < 20) ||
                (isfinite(f.base[p * row + row - 1]) != 0) != (p < 20)) {
                fail_msg("%s, %s: row %zu", c.isa, dtype_name(c.types->key), p);
            }
        }
        fixture_free(&f);
    }
}

/* The copies of values, over widths that end within a vector. */
TEST(values_are_taken_out_of_keys_alike_on_every_instruction_set) {
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8};
    static const int32_t widths[] = {2, 6, 10, 16, 18, 24, 32, 50, 64, 72, 130, 256, 512};
    static uint8_t keys[16 * 520 * 4], want[16 * 520 * 4 + 64], got[16 * 520 * 4 + 64];
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof keys; i++) {
        keys[i] = (uint8_t)rng_next(&seed);
    }
    for (int i = 0; i < 5 * 13 * N_MATH_ISAS; i++) {
        const dtype type = types[i % 5];
        const int32_t width = widths[i / 5 % 13];
        const char *isa = ISAS[i / 65];
        const size_t n = (size_t)(16 * width * (type == DTYPE_I8 ? 1 : dtype_block_bytes(type)));
        if (!isa_is_here(isa)) {
            continue;
        }
        backend *plain = open_isa("plain", 1), *other = open_isa(isa, 1);
        ((cpu_backend *)plain)->math->values_of_keys(type, keys, width, want);
        ((cpu_backend *)other)->math->values_of_keys(type, keys, width, got);
        if (memcmp(want, got, n) != 0) {
            fail_msg("%s, %s of width %d", isa, dtype_name(type), width);
        }
        plain->ops->close(plain);
        other->ops->close(other);
    }
}

TEST_MAIN_ISAS
