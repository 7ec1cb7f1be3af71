/* Packs the blocks of files: moves words of 16 columns to their planes and scales, all
 * columns at once, without decoding numbers. One packer per type; rare types, and those
 * whose codes must be computed, use pack_codes.c. */
#include "backend/cpu/pack_blocks.h"

#include "backend/cpu/pack_lanes.h"

/* The blocks of 16 columns at one k, and where to write next. */
typedef struct block_run {
    const uint8_t *columns[PACK_LANES];
    uint8_t *quants, *scales, *supers;
    const uint8_t *ahead, *ahead_out; /* what to prefetch: the next 16 columns, and their destination */
    const quant_format *format;
} block_run;

/* Packs one block of each column and advances the run's areas. */
typedef void block_packer(block_run *r);

/* ---- parts of packers ---- */

/* Prefetches the next 16 columns up to `end`, source and destination, a few cache lines
 * at a time because few fetches can be in flight. The hardware prefetcher does not follow
 * so many short rows. */
static void fetch_ahead(block_run *r, const uint8_t *end) {
    for (; r->ahead < end; r->ahead += PACK_PLANE_BYTES, r->ahead_out += PACK_PLANE_BYTES) {
        __builtin_prefetch(r->ahead);
        __builtin_prefetch(r->ahead_out, 1);
    }
}

static uint8_t *next_quants(block_run *r, size_t n_planes) {
    uint8_t *at = r->quants;
    fetch_ahead(r, r->ahead + n_planes * PACK_PLANE_BYTES);
    r->quants += n_planes * PACK_PLANE_BYTES;
    return at;
}

static uint8_t *next_scales(block_run *r, size_t n_rows) {
    uint8_t *at = r->scales;
    r->scales += n_rows * PACK_LANES;
    return at;
}

/* Copies planes that are words of the file unchanged. */
static void move_planes(block_run *r, size_t at, size_t n) {
    for (size_t i = 0; i < n; i += 4) {
        pack_load(r->columns, at + 4 * i, next_quants(r, 4));
    }
}

/* Copies n rows of bytes, n a multiple of 4, that are bytes of the file unchanged. */
static void put_byte_rows(pack_row *words, int n, uint8_t *out) {
    for (int i = 0; i < n; i++) {
        pack_put_bytes(words[i / 4], 8 * (i % 4), out + i * PACK_LANES);
    }
}

/* Copies an f16 of each block. */
static void move_halves(const block_run *r, size_t at, uint8_t *out) {
    PACK_EACH(c) {
        memcpy(out + 2 * c, r->columns[c] + at, 2);
    }
}

static void put_super(block_run *r, size_t at) {
    move_halves(r, at, r->supers);
    r->supers += 2 * PACK_LANES;
}

/* ---- blocks of 32 and 64 ---- */

/* Writes fifth bits: bit 4t + j of a column's word belongs to byte j of quad t, and goes
 * to bit t of byte j of its plane. */
static void put_fifth_bits(block_run *r, size_t at) {
    pack_row words;
    PACK_EACH(c) {
        memcpy(&words[c], r->columns[c] + at, sizeof words[c]);
    }
    PACK_EACH(c) {
        uint32_t x = pack_swap_places(words[c], 0, 2);
        x = pack_swap_places(x, 1, 3);
        x = pack_swap_places(x, 2, 4);
        words[c] = pack_swap_places(x, 3, 4);
    }
    memcpy(next_quants(r, 1), words, sizeof words);
}

/* Packs a block of an f16, another one if there is a min, fifth bits if any, and nibbles
 * of elements i and i + 16 or bytes, which already have the layout of planes. */
static void pack_halves_block(block_run *r) {
    const bool has_min = r->format->coding == SCALE_F16_MIN, is_five = r->format->bits == 5;
    const size_t bits_at = has_min ? 4 : 2;
    move_planes(r, bits_at + (is_five ? 4 : 0), r->format->bits == 8 ? 8 : 4);
    if (is_five) {
        put_fifth_bits(r, bits_at);
    }
    move_halves(r, 0, next_scales(r, 2));
    if (has_min) {
        move_halves(r, 2, next_scales(r, 2));
    }
}

/* Packs a block of a byte of scale and nibbles. */
static void pack_mxfp4(block_run *r) {
    uint8_t *scales = next_scales(r, 1);
    move_planes(r, 1, 4);
    PACK_EACH(c) {
        scales[c] = r->columns[c][0];
    }
}

/* Packs a block of 64 elements: four bytes of scales, and for each 16 elements 8 bytes of
 * nibbles of elements i and i + 8. */
static void pack_nvfp4(block_run *r) {
    pack_row quants[8];
    for (int g = 0; g < 4; g++) {
        uint8_t *scales = next_scales(r, 1);
        PACK_EACH(c) {
            const uint8_t code = r->columns[c][g]; /* as quant_split reads it: 0x7f is NaN */
            scales[c] = pack_e5m3_of(code == 0x7f ? 0 : code & 0x7f);
        }
    }
    pack_load_rows(r->columns, 4, 8, quants);
    for (int half = 0; half < 2; half++) {
        for (int v = 0; v < 4; v++) {
            const uint32_t *first = quants[4 * half + v % 2], *second = quants[4 * half + 2 + v % 2];
            const int high = v / 2 * 4;
            pack_row plane;
            PACK_EACH(c) {
                plane[c] = (first[c] >> high & 0x0f0f0f0fu) | (second[c] >> high & 0x0f0f0f0fu) << 4;
            }
            memcpy(next_quants(r, 1), plane, sizeof plane);
        }
    }
}

/* ---- K types and IQ4_XS: their layouts are in core/quant.c ---- */

static void pack_q2_k(block_run *r) {
    pack_row words[8];
    pack_load_rows(r->columns, 0, 4, words);
    put_byte_rows(words, 16, next_scales(r, 16));
    for (int g = 0; g < 8; g++) {
        if (g % 4 == 0) {
            pack_load_rows(r->columns, 16 + 8 * (size_t)g, 8, words);
        }
        pack_put_pairs(words, 2 * (g % 4), next_quants(r, 2));
    }
    put_super(r, 80);
    put_super(r, 82);
}

/* Writes group g of the scales: four numbers of four low and two high bits. */
static void put_q3_scales(block_run *r) {
    pack_row words[4];
    pack_load_rows(r->columns, 92, 4, words);
    for (int g = 0; g < 4; g++) {
        const uint32_t *low = words[1 + g % 2];
        pack_row numbers;
        PACK_EACH(c) {
            numbers[c] = (low[c] >> (g / 2 * 4) & 0x0f0f0f0fu) | (words[3][c] >> (2 * g) & 0x03030303u) << 4;
        }
        pack_put_sixes(numbers, next_scales(r, 3));
    }
}

static void pack_q3_k(block_run *r) {
    pack_row high[8], low[8], codes[8];
    pack_load_rows(r->columns, 0, 8, high);
    for (int g = 0; g < 8; g++) {
        if (g % 4 == 0) {
            pack_load_rows(r->columns, 32 + 8 * (size_t)g, 8, low);
        }
        for (int t = 0; t < 8; t++) {
            PACK_EACH(c) {
                codes[t][c] = (low[t][c] >> (g % 4 * 2) & 0x03030303u) | (high[t][c] >> g & 0x01010101u) << 2;
            }
        }
        pack_put_threes(codes, next_quants(r, 3));
    }
    put_q3_scales(r);
    put_super(r, 108);
}

/* Writes the scales of a block of Q4_K or Q5_K, words 1 to 3. */
static void put_q45_scales(block_run *r) {
    pack_row words[4], s, m, numbers;
    pack_load_rows(r->columns, 0, 4, words);
    for (int g = 0; g < 4; g++) {
        PACK_EACH(c) {
            const uint32_t last = words[3][c], s_high = words[1][c], m_high = words[2][c];
            s[c] = g < 2 ? s_high & 0x3f3f3f3fu : (last & 0x0f0f0f0fu) | (s_high >> 2 & 0x30303030u);
            m[c] = g < 2 ? m_high & 0x3f3f3f3fu : (last >> 4 & 0x0f0f0f0fu) | (m_high >> 2 & 0x30303030u);
        }
        PACK_EACH(c) {
            numbers[c] = (s[c] >> (16 * (g % 2)) & 0xffffu) | (m[c] >> (16 * (g % 2)) & 0xffffu) << 16;
        }
        pack_put_sixes(numbers, next_scales(r, 3));
    }
    pack_put_halves(words[0], 0, r->supers);
    pack_put_halves(words[0], 16, r->supers + 2 * PACK_LANES);
    r->supers += 4 * PACK_LANES;
}

static void pack_q4_k(block_run *r) {
    pack_row words[8];
    put_q45_scales(r);
    for (int g = 0; g < 8; g++) {
        if (g % 2 == 0) {
            pack_load_rows(r->columns, 16 + 16 * (size_t)g, 8, words);
        }
        pack_put_nibbles(words, g % 2 * 4, next_quants(r, 4));
    }
}

static void pack_q5_k(block_run *r) {
    pack_row words[8], high[8];
    put_q45_scales(r);
    pack_load_rows(r->columns, 16, 8, high);
    for (int g = 0; g < 8; g++) {
        if (g % 2 == 0) {
            pack_load_rows(r->columns, 48 + 16 * (size_t)g, 8, words);
        }
        pack_put_nibbles(words, g % 2 * 4, next_quants(r, 4));
        pack_put_bits(high, g, next_quants(r, 1));
    }
}

static void pack_q6_k(block_run *r) {
    pack_row low[16], high[8];
    for (size_t g = 0; g < 8; g++) {
        if (g % 4 == 0) {
            pack_load_rows(r->columns, 16 * g, 16, low);
            pack_load_rows(r->columns, 128 + 8 * g, 8, high);
        }
        const int at = (int)(g % 4);
        pack_put_nibbles(low + at % 2 * 8, at / 2 * 4, next_quants(r, 4));
        pack_put_pairs(high, 2 * at, next_quants(r, 2));
    }
    pack_load_rows(r->columns, 192, 4, low);
    put_byte_rows(low, 16, next_scales(r, 16));
    put_super(r, 208);
}

static void pack_iq4_xs(block_run *r) {
    pack_row words[4];
    pack_load_rows(r->columns, 0, 4, words);
    pack_put_halves(words[0], 0, r->supers);
    r->supers += 2 * PACK_LANES;
    for (int half = 0; half < 2; half++) {
        pack_row numbers;
        PACK_EACH(c) { /* four nibbles and four 2-bit pairs to four bytes */
            uint32_t low = words[1][c] >> (16 * half) & 0xffffu,
                     high = words[0][c] >> (16 + 8 * half) & 0xffu;
            low = (low | low << 8) & 0x00ff00ffu;
            high = (high | high << 12) & 0x000f000fu;
            numbers[c] = ((low | low << 4) & 0x0f0f0f0fu) | ((high | high << 6) & 0x03030303u) << 4;
        }
        pack_put_sixes(numbers, next_scales(r, 3));
    }
    for (size_t g = 0; g < 8; g++) {
        move_planes(r, 8 + 16 * g, 4);
    }
}

/* ---- grids: their layouts are in core/quant_grid.c ---- */

/* Writes the low eight bits of four row numbers. */
static void put_grid_rows(block_run *r, const pack_row x) {
    uint16_t plane[2 * PACK_LANES];
    for (int four = 0; four < PACK_LANES; four += 4) {
        for (int c = four; c < four + 4; c++) {
            plane[four + c] = (uint16_t)x[c];
            plane[four + c + 4] = (uint16_t)(x[c] >> 16);
        }
    }
    memcpy(next_quants(r, 1), plane, sizeof plane);
}

/* Writes a group's signs, sign i of eight j at bit 8j + i. */
static void put_signs(block_run *r, const pack_row x) {
    pack_row word;
    if (r->format->run == 8) {
        PACK_EACH(c) {
            word[c] = pack_swap_places(pack_swap_places(x[c], 0, 2), 1, 4);
        }
    } else {
        PACK_EACH(c) {
            word[c] = pack_swap_places(pack_swap_places(x[c], 0, 3), 1, 4);
        }
    }
    PACK_EACH(c) {
        word[c] = pack_swap_places(word[c], 2, 4);
    }
    if (r->format->run == 8) {
        PACK_EACH(c) {
            word[c] = pack_swap_places(word[c], 3, 4);
        }
    }
    memcpy(next_quants(r, 1), word, sizeof word);
}

/* Writes the rows' ninth and tenth bits: a byte per group. */
static void put_high_bits(block_run *r, const pack_row x) {
    pack_put_bytes(x, 0, r->quants);
    r->quants += PACK_LANES;
}

/* Writes four times seven signs, with a bit of the scale above them in place of the
 * eighth. */
static void put_spare_signs(block_run *r, const pack_row x) {
    pack_row signs;
    PACK_EACH(c) {
        const uint32_t sevens = x[c], spare = sevens >> 28;
        signs[c] = (sevens & 127u) | (sevens << 1 & 127u << 8) | (sevens << 2 & 127u << 16) |
                   (sevens << 3 & 127u << 24) | (spare & 1u) << 7 | (spare & 2u) << 14 | (spare & 4u) << 21 |
                   (spare & 8u) << 28;
    }
    put_signs(r, signs);
}

static void pack_iq2_xxs(block_run *r) {
    pack_row words[4];
    for (int g = 0; g < 8; g++) {
        if (g % 2 == 0) {
            pack_load_rows(r->columns, 2 + 8 * (size_t)g, 4, words);
        }
        put_grid_rows(r, words[g % 2 * 2]);
        put_spare_signs(r, words[g % 2 * 2 + 1]);
    }
    put_super(r, 0);
}

static void pack_iq2_xs(block_run *r) {
    pack_row words[4], rows, signs;
    for (int g = 0; g < 8; g++) {
        if (g % 2 == 0) {
            pack_load_rows(r->columns, 2 + 8 * (size_t)g, 4, words);
        }
        const uint32_t *first = words[g % 2 * 2], *second = words[g % 2 * 2 + 1];
        PACK_EACH(c) {
            const uint32_t x = first[c], y = second[c];
            rows[c] = (x & 255u) | (x >> 8 & 255u << 8) | (y & 255u) << 16 | (y << 8 & 255u << 24);
            signs[c] = (x >> 9 & 127u) | (x >> 1 & 128u) | (x >> 17 & 127u << 8) | (x >> 9 & 128u << 8) |
                       (y << 7 & 127u << 16) | (y << 15 & 128u << 16) | (y >> 1 & 127u << 24) |
                       (y << 7 & 128u << 24);
        }
        put_grid_rows(r, rows);
        put_signs(r, signs);
    }
    put_super(r, 0);
    pack_load_rows(r->columns, 58, 4, words);
    put_byte_rows(words + 2, 8, next_scales(r, 8));
}

static void pack_iq2_s(block_run *r) {
    pack_row rows[8], signs[8], rest[4];
    pack_load_rows(r->columns, 2, 8, rows);
    pack_load_rows(r->columns, 34, 8, signs);
    pack_load_rows(r->columns, 66, 4, rest);
    for (int g = 0; g < 8; g++) {
        pack_row high;
        PACK_EACH(c) { /* pairs of bits: the first of each to the low nibble, the second to the high nibble */
            const uint32_t x = rest[g / 4][c] >> (g % 4 * 8) & 255u;
            high[c] = (x & 1u) | (x >> 1 & 2u) | (x >> 2 & 4u) | (x >> 3 & 8u) | (x << 3 & 16u) |
                      (x << 2 & 32u) | (x << 1 & 64u) | (x & 128u);
        }
        put_grid_rows(r, rows[g]);
        put_signs(r, signs[g]);
        put_high_bits(r, high);
    }
    put_super(r, 0);
    put_byte_rows(rest + 2, 8, next_scales(r, 8));
}

static void pack_iq3_xxs(block_run *r) {
    pack_row rows[4], signs[4];
    for (int g = 0; g < 8; g++) {
        if (g % 2 == 0) {
            pack_load_rows(r->columns, 2 + 8 * (size_t)g, 4, rows);
        }
        if (g % 4 == 0) {
            pack_load_rows(r->columns, 66 + 4 * (size_t)g, 4, signs);
        }
        put_grid_rows(r, rows[g % 2 * 2]);
        put_grid_rows(r, rows[g % 2 * 2 + 1]);
        put_spare_signs(r, signs[g % 4]);
    }
    put_super(r, 0);
}

static void pack_iq3_s(block_run *r) {
    pack_row rows[4], signs[8], rest[4];
    pack_load_rows(r->columns, 66, 4, rest); /* two words of ninth bits */
    pack_load_rows(r->columns, 74, 8, signs);
    for (int g = 0; g < 8; g++) {
        pack_row high;
        if (g % 2 == 0) {
            pack_load_rows(r->columns, 2 + 8 * (size_t)g, 4, rows);
        }
        PACK_EACH(c) {
            high[c] = rest[g / 4][c] >> (g % 4 * 8);
        }
        put_grid_rows(r, rows[g % 2 * 2]);
        put_grid_rows(r, rows[g % 2 * 2 + 1]);
        put_signs(r, signs[g]);
        put_high_bits(r, high);
    }
    put_super(r, 0);
    pack_load_rows(r->columns, 94, 4, rest);
    put_byte_rows(rest + 3, 4, next_scales(r, 4));
}

/* ---- all of them ---- */

static block_packer *packer_of(const pack_layout *plan, dtype t) {
    static block_packer *const packers[N_DTYPES] = {
        [DTYPE_Q4_0] = pack_halves_block, [DTYPE_Q4_1] = pack_halves_block,
        [DTYPE_Q5_0] = pack_halves_block, [DTYPE_Q5_1] = pack_halves_block,
        [DTYPE_Q8_0] = pack_halves_block, [DTYPE_IQ4_NL] = pack_halves_block,
        [DTYPE_MXFP4] = pack_mxfp4,       [DTYPE_NVFP4] = pack_nvfp4,
        [DTYPE_Q2_K] = pack_q2_k,         [DTYPE_Q3_K] = pack_q3_k,
        [DTYPE_Q4_K] = pack_q4_k,         [DTYPE_Q5_K] = pack_q5_k,
        [DTYPE_Q6_K] = pack_q6_k,         [DTYPE_IQ4_XS] = pack_iq4_xs,
        [DTYPE_IQ2_XXS] = pack_iq2_xxs,   [DTYPE_IQ2_XS] = pack_iq2_xs,
        [DTYPE_IQ2_S] = pack_iq2_s,       [DTYPE_IQ3_XXS] = pack_iq3_xxs,
        [DTYPE_IQ3_S] = pack_iq3_s,
    };
    const quant_rule *rule = quant_rule_of(t);
    return rule != NULL && pack_kind_of(rule->form) == plan->kind ? packers[t] : NULL;
}

bool pack_file_blocks(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out) {
    static const uint8_t zeros[256]; /* more than the largest block */
    block_packer *packer = packer_of(plan, w->type);
    if (packer == NULL) {
        return false;
    }
    const int32_t next = (block + 2) * PACK_LANES <= plan->n_out ? block + 1 : block;
    block_run r = {.quants = out,
                   .scales = out + plan->scales_at,
                   .supers = out + plan->supers_at,
                   .ahead = pack_column(w, plan->n_in, next * PACK_LANES, 0),
                   .ahead_out = out + (size_t)(next - block) * plan->block_bytes,
                   .format = pack_format(plan->kind)};
    const size_t bytes = (size_t)dtype_block_bytes(w->type);
    size_t steps[PACK_LANES];
    PACK_EACH(c) {
        const int32_t column = block * PACK_LANES + c;
        const bool is_there = column < plan->n_out;
        r.columns[c] = is_there ? pack_column(w, plan->n_in, column, 0) : zeros;
        steps[c] = is_there ? bytes : 0;
    }
    const uint8_t *fetched = r.ahead;
    for (int32_t k = 0; k < plan->n_in; k += dtype_block_elements(w->type)) {
        packer(&r);
        fetched += PACK_LANES * bytes;
        fetch_ahead(&r, fetched);
        PACK_EACH(c) {
            r.columns[c] += steps[c];
        }
    }
    return true;
}
