#include <math.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/rng.h"
#include "core/half.h"
#include "test.h"

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

TEST(every_f16_goes_to_f32_and_back) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;
        assert_int_equal(isnan(f) != 0, nan);
        assert_int_equal(f32_to_f16(f), nan ? h | 0x200 : h);
    }
    assert_true(f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(f16_to_f32(0x7bff) == 65504.0f);
    assert_int_equal(bits_of(f16_to_f32(0x8000)), 0x80000000u);
}

TEST(every_bf16_goes_to_f32_and_back) {
    for (uint32_t h = 0; h < 65536; h++) {
        bool nan = (h & 0x7f80) == 0x7f80 && (h & 0x7f) != 0;
        assert_int_equal(f32_to_bf16(bf16_to_f32((uint16_t)h)), nan ? h | 0x40 : h);
    }
}

TEST(rounding_to_16_bits_is_to_nearest_even) {
    assert_int_equal(f32_to_f16(1.0f + 0x1p-11f), 0x3c00); /* ties: down to even, up to even */
    assert_int_equal(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-0x1p-25f), 0x8000);
    assert_int_equal(f32_to_f16(0x1.000002p-25f), 0x0001);
    assert_int_equal(f32_to_f16(0x1p-149f), 0x0000);
    assert_int_equal(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
    assert_int_equal(f32_to_bf16(3.4e38f), 0x7f80);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t hardware_f16(float f) {
    return (uint16_t)_cvtss_sh(f, 0);
}

__attribute__((target("f16c"))) static float hardware_f32(uint16_t h) {
    return _cvtsh_ss(h);
}
#endif

TEST(conversions_have_the_bits_of_the_processors_instructions) {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) {
        skip();
    }
    for (uint32_t h = 0; h < 65536; h++) {
        assert_int_equal(bits_of(f16_to_f32((uint16_t)h)), bits_of(hardware_f32((uint16_t)h)));
    }
    uint64_t seed = rng_os_seed(), s = seed;
    for (int i = 0; i < 3000000; i++) {
        uint32_t u = (uint32_t)rng_next(&s);
        if (i % 2 == 0) { /* half of them where halves live */
            u = (u & 0x807fffffu) | (uint32_t)(100 + (u >> 23 & 0xff) % 46) << 23;
        }
        if (f32_to_f16(float_of(u)) != hardware_f16(float_of(u))) {
            fail_msg("float bits %08x give %04x, the processor says %04x (seed %llu)", u,
                     f32_to_f16(float_of(u)), hardware_f16(float_of(u)), (unsigned long long)seed);
        }
    }
#else
    skip();
#endif
}

TEST_MAIN(NULL, NULL)
