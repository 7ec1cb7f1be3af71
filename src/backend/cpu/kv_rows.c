/* Rows of keys and values: rounds them to their type and back, and computes their
 * location. */
#include "backend/cpu/kv_rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/half.h"

#define E4M3_LARGEST 448.0f
#define INT4_LARGEST 119.0f /* makes an int8 of at most 127 with any multiplier of its group */
#define INT4_CODES   15.0f

/* ---- location ---- */

int32_t cpu_row_run(dtype type, kv_plane_kind kind, int32_t page_tokens) {
    const int32_t most = kind == KV_PLANE_K ? CPU_KV_BLOCK : cpu_kv_is_bytes(type) ? 4 : KV_MAX_PAGE_TOKENS;
    return page_tokens < most ? page_tokens : most;
}

cpu_row cpu_row_at(dtype type, kv_plane_kind kind, int64_t row_bytes, int32_t page_tokens, uint8_t *rows,
                   int32_t offset) {
    const int32_t run = cpu_row_run(type, kind, page_tokens), lane = offset % run;
    if (kind == KV_PLANE_V && !cpu_kv_is_bytes(type)) {
        return (cpu_row){rows + offset * row_bytes, (int32_t)row_bytes, 1, row_bytes};
    }
    const int32_t unit = kind == KV_PLANE_V ? 1 : cpu_kv_is_bytes(type) ? 4 : dtype_block_bytes(type);
    return (cpu_row){rows + (offset - lane) * row_bytes + lane * unit, unit, (int32_t)row_bytes / unit,
                     (int64_t)unit * run};
}

void cpu_row_copy(cpu_row from, cpu_row to, int32_t n) {
    assert(from.unit == to.unit && from.n == to.n);
    for (int32_t i = 0; i < from.n; i++) {
        memmove(to.at + i * to.stride, from.at + i * from.stride, (size_t)(from.unit * n));
    }
}

void cpu_row_put(cpu_row to, const uint8_t *bytes) {
    switch (to.unit) {
    case 1:
        for (int32_t i = 0; i < to.n; i++) {
            to.at[i * to.stride] = bytes[i];
        }
        break;
    case 2:
        for (int32_t i = 0; i < to.n; i++) {
            memcpy(to.at + i * to.stride, bytes + 2 * i, 2);
        }
        break;
    case 4:
        for (int32_t i = 0; i < to.n; i++) {
            memcpy(to.at + i * to.stride, bytes + 4 * i, 4);
        }
        break;
    default: /* a value is contiguous */
        memcpy(to.at, bytes, (size_t)to.unit);
    }
}

void cpu_row_get(cpu_row from, uint8_t *bytes) {
    for (int32_t i = 0; i < from.n; i++) {
        memcpy(bytes + i * from.unit, from.at + i * from.stride, (size_t)from.unit);
    }
}

/* ---- numbers ---- */

/* The largest |x|; NaN if any x is NaN. */
static float kv_rows_largest_of(const float *x, int32_t n) {
    float largest = 0.0f;
    for (int32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        largest = a > largest || isnan(a) ? a : largest;
        if (isnan(largest)) {
            break;
        }
    }
    return largest;
}

float cpu_fp8_encode(const float *x, int32_t n, float fixed, uint8_t *codes) {
    const float largest = kv_rows_largest_of(x, n), scale = fixed > 0.0f         ? fixed
                                                            : largest > KV_LEAST ? largest / E4M3_LARGEST
                                                                                 : 0.0f;
    if (!isfinite(largest) || scale == 0.0f) {
        memset(codes, 0, (size_t)n);
        return isfinite(largest) ? 0.0f : NAN;
    }
    for (int32_t i = 0; i < n; i++) {
        codes[i] = f32_to_e4m3(x[i] / scale);
    }
    return scale * 0x1p8f;
}

/* Writes the codes of a group's numbers u for a multiplier m. Returns the sum of squared
 * errors. */
static float round_group(const float *u, float low, int32_t m, uint8_t *codes, int32_t *zero) {
    const float inverse = 1.0f / (float)m, z = fminf(rintf(-low * inverse), INT4_CODES);
    float error = 0.0f;
    for (int32_t i = 0; i < INT4_GROUP; i++) {
        const float code = fminf(fmaxf(rintf(u[i] * inverse) + z, 0.0f), INT4_CODES),
                    off = fmaf((float)m, code - z, -u[i]);
        error = fmaf(off, off, error);
        codes[i] = (uint8_t)code;
    }
    *zero = (int32_t)z;
    return error;
}

/* Rounds one group. Uses the multiplier whose 15 steps span its numbers, or the next
 * smaller one, which clips the ends, if its error is lower. */
static uint8_t encode_group(const float *u, uint8_t *bytes) {
    uint8_t codes[2][INT4_GROUP];
    float low = 0.0f, high = 0.0f, errors[2];
    int32_t zeros[2];
    for (int32_t i = 0; i < INT4_GROUP; i++) {
        low = fminf(low, u[i]);
        high = fmaxf(high, u[i]);
    }
    const int32_t m = (int32_t)fmaxf(ceilf((high - low) / INT4_CODES), 1.0f), less = m > 1 ? m - 1 : 1;
    errors[0] = round_group(u, low, m, codes[0], &zeros[0]);
    errors[1] = round_group(u, low, less, codes[1], &zeros[1]);
    const int best = errors[1] < errors[0];
    for (int32_t i = 0; i < INT4_GROUP / 2; i++) {
        bytes[i] = (uint8_t)(codes[best][i] | codes[best][INT4_GROUP / 2 + i] << 4);
    }
    return (uint8_t)((best ? less : m) - 1 + 16 * zeros[best]);
}

float cpu_int4_encode(const kv_plane *plane, const float *x, uint8_t *bytes) {
    const float largest = kv_rows_largest_of(x, plane->width),
                scale = largest > KV_LEAST ? largest / INT4_LARGEST : 0.0f;
    const float inverse = isfinite(largest) && scale > 0.0f ? 1.0f / scale : 0.0f;
    const int32_t n_groups = (plane->width + INT4_GROUP - 1) / INT4_GROUP;
    memset(bytes, 0, (size_t)plane->row_bytes);
    for (int32_t g = 0; g < n_groups; g++) {
        float u[INT4_GROUP] = {0};
        for (int32_t i = 0; i < INT4_GROUP && g * INT4_GROUP + i < plane->width && inverse > 0.0f; i++) {
            u[i] = x[g * INT4_GROUP + i] * inverse;
        }
        bytes[n_groups * INT4_GROUP / 2 + g] = encode_group(u, bytes + g * INT4_GROUP / 2);
    }
    return isfinite(largest) ? scale : NAN;
}

void cpu_int4_decode(const uint8_t *bytes, int32_t width, int8_t *out) {
    const int32_t n_groups = (width + INT4_GROUP - 1) / INT4_GROUP;
    for (int32_t i = 0; i < n_groups * INT4_GROUP / 2; i++) {
        const int32_t group = i / (INT4_GROUP / 2), first = group * INT4_GROUP + i % (INT4_GROUP / 2);
        const int32_t form = bytes[n_groups * INT4_GROUP / 2 + group], m = form % 16 + 1, zero = form / 16;
        out[first] = (int8_t)(uint8_t)(m * (bytes[i] % 16 - zero));
        out[first + INT4_GROUP / 2] = (int8_t)(uint8_t)(m * (bytes[i] / 16 - zero));
    }
}
