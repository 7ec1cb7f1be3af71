/* Integer sums of a tile (rows x column registers) over one group, and their addition to
 * the float sums. Part of linear_groups.inc.h. */

/* The start value of the sums of one part (16 or 32 of k) of a group: -zero, a power of
 * two, times the sum of x. */
#if N_WORDS
INLINE ni start_of(group_format f, const row_group *x, int part) {
    return f.zero == 0             ? n_set1(0)
           : f.group == PACK_GROUP ? n_word_sum(x->pairs_8, 8, f.zero)
                                   : n_word_sum(x->pairs_32[part], 32, f.zero);
}
#else
INLINE ni start_of(group_format f, const row_group *x, int part) {
    const bool is_whole = f.group == PACK_GROUP;
    const int has = is_whole ? 8 : 4, times = is_whole ? x->times_8 : x->times_4[part];
    if (f.zero == 0 || f.zero == 128) {
        return n_set1(f.zero == 0 ? 0 : x->times_128);
    }
    if (f.zero <= has) {
        return n_set1(times / (has / f.zero));
    }
    return n_shl(n_set1(times), __builtin_ctz((unsigned)(f.zero / has)));
}
#endif

/* The start value of the run of quads that begins at quad `first` of a group. */
INLINE ni group_run_start(group_format f, const row_group *x, int first, int run, bool large) {
#if N_WORDS
    if (has_words(f, large)) {
        return run == QUADS ? n_word_start(x->pairs_8, 8, f.zero)
                            : n_word_start(x->pairs_32[2 * first / QUADS], 32, f.zero);
    }
#endif
    (void)run, (void)large;
    return n_dot_open(start_of(f, x, first / part_quads(f)));
}

/* -8 times the sum of x. */
INLINE float times_minus_8(const row_group *x) {
#if N_WORDS
    return (float)(x->pairs_8[0] + x->pairs_8[1]);
#else
    return (float)x->times_8;
#endif
}

/* The numbers and scales of one group, packed or in a record (f.unpacked). */
typedef struct group_view {
    const uint8_t *planes[TILE_REGISTERS];
    uint8_t *record;
    group_scales scales[TILE_REGISTERS]; /* for packed groups */
    ni nibbles[TILE_REGISTERS][4];       /* for packed groups of a grid */
} group_view;

INLINE ni view_quad(group_format f, int n_regs, const group_view *v, int t, int c) {
    if (has_grid(f) && !f.unpacked) {
        return nibbles_quad(f, v->nibbles[c], t);
    }
    if (f.unpacks) {
        return unpack_quad(f, n_regs, group_quad(f, v->planes[c], t), v->record, t, c);
    }
    return f.unpacked ? n_load(record_quad(f, n_regs, v->record, t, c)) : group_quad(f, v->planes[c], t);
}

/* sums[r][c] = the products of a group of signed bytes, in int32. */
INLINE void tile_bytes(group_format f, int n_rows, int n_regs, const group_view *v, const row_group *const *x,
                       ni sums[N_GROUP_ROWS][TILE_REGISTERS]) {
    n_sum dots[N_GROUP_ROWS][TILE_REGISTERS];
    UNROLL
    for (int i = 0; i < n_rows * n_regs; i++) {
        int r = i / n_regs, c = i % n_regs;
        dots[r][c] = n_quad_start(x[r]->times_128);
        if (f.unpacked && has_lacks(f)) {
            dots[r][c] = (n_sum)n_add((ni)dots[r][c], n_load(record_end(f, n_regs, v->record, c)));
        }
    }
    UNROLL
    for (int t = 0; t < QUADS; t++) {
        n_quad w[TILE_REGISTERS];
        UNROLL
        for (int c = 0; c < n_regs; c++) {
            w[c] = f.unpacked    ? n_quad_kept(record_quad(f, n_regs, v->record, t, c))
                   : f.has_table ? n_quad_lookup(packed_quad(f.bits, v->planes[c], t), f.table)
                                 : n_quad_of(group_quad(f, v->planes[c], t));
        }
        UNROLL
        for (int i = 0; i < n_rows * n_regs; i++) {
            int r = i / n_regs, c = i % n_regs;
            ni quad = n_set1(quad_of(x[r]->q + 4 * t));
            dots[r][c] =
                f.unpacked ? n_quad_add_kept(dots[r][c], w[c], quad) : n_quad_add(dots[r][c], w[c], quad);
        }
    }
    UNROLL
    for (int i = 0; i < n_rows * n_regs; i++) {
        sums[i / n_regs][i % n_regs] = (ni)dots[i / n_regs][i % n_regs];
    }
}

/* sums[r][c] = the products of one part of a group. large: some could overflow int16. */
INLINE void tile_dots(group_format f, int n_rows, int n_regs, const group_view *v, const row_group *const *x,
                      int part, bool large, ni sums[N_GROUP_ROWS][TILE_REGISTERS]) {
    if (f.dot_bits == 8) {
        tile_bytes(f, n_rows, n_regs, v, x, sums);
        return;
    }
    const int n_quads = part_quads(f), run = dot_run(f, large);
    UNROLL
    for (int first = part * n_quads; first < (part + 1) * n_quads; first += run) {
        ni starts[N_GROUP_ROWS], dots[N_GROUP_ROWS][TILE_REGISTERS];
        UNROLL
        for (int r = 0; r < n_rows; r++) {
            starts[r] = group_run_start(f, x[r], first, run, large);
        }
        UNROLL
        for (int t = first; t < first + run; t++) {
            ni w[TILE_REGISTERS];
            UNROLL
            for (int c = 0; c < n_regs; c++) {
                w[c] = view_quad(f, n_regs, v, t, c);
            }
            UNROLL
            for (int j = 0; j < n_rows * n_regs; j++) {
                int r = j / n_regs, c = j % n_regs;
                const ni quad = n_set1(quad_of(x[r]->q + 4 * t));
                dots[r][c] = t == first ? n_dot_first(has_words(f, large), starts[r], w[c], quad)
                                        : n_dot_add(dots[r][c], w[c], quad);
            }
        }
        UNROLL
        for (int i = 0; i < n_rows * n_regs; i++) {
            int r = i / n_regs, c = i % n_regs;
            const ni start = has_words(f, large) ? n_set1(0) : start_of(f, x[r], part);
            sums[r][c] = n_dot_close(dots[r][c], first == part * n_quads ? start : sums[r][c]);
        }
    }
}

/* The halves of a group (bits 1 and 2) where a row of the tile and the numbers are
 * large. */
INLINE int32_t large_halves(group_format f, int n_rows, int n_regs, const group_view *v,
                            const row_group *const *x) {
    int32_t rows = 0, numbers = can_be_large(f) ? 3 : 0;
    if (can_be_large(f) && f.unpacked) {
        numbers = *(const int32_t *)(const void *)record_end(f, n_regs, v->record, 0);
    }
    UNROLL
    for (int r = 0; r < n_rows && numbers != 0; r++) {
        rows |= x[r]->large;
    }
    return rows & numbers;
}

/* tile_dots, with long runs where no sum can overflow. large: what large_halves
 * returned. */
INLINE void tile_group_sums(group_format f, int n_rows, int n_regs, const group_view *v,
                            const row_group *const *x, int part, int32_t large,
                            ni sums[N_GROUP_ROWS][TILE_REGISTERS]) {
    if (__builtin_expect((large & (f.group == PACK_GROUP ? 3 : 1 << part)) != 0, false)) {
        /* Keeps gcc from hoisting what both branches have in common above the test. */
        group_view other = *v;
        const row_group *others[N_GROUP_ROWS];
        UNROLL
        for (int r = 0; r < n_rows; r++) {
            others[r] = x[r];
            __asm__("" : "+r"(others[r]));
        }
        UNROLL
        for (int c = 0; c < n_regs; c++) {
            __asm__("" : "+r"(other.planes[c]));
        }
        __asm__("" : "+r"(other.record));
        tile_dots(f, n_rows, n_regs, &other, others, part, true, sums);
    } else {
        tile_dots(f, n_rows, n_regs, v, x, part, false, sums);
    }
}

/* A sum as a float. Where the format has zeros, zero times the sum of x, which is exact
 * in floats too, is subtracted here. */
INLINE nf float_sum(group_format f, ni sum, nf zero, const row_group *x) {
    return has_zeros(f) ? nf_fma(zero, nf_set1(times_minus_8(x)), nf_of(sum)) : nf_of(sum);
}

/* acc plus a part's scaled sum and its min. second: the record's min or zero. */
INLINE nf part_add(group_format f, nf acc, nf sum, nf scale, nf second, const row_group *x, int part) {
    acc = nf_fma(sum, nf_mul(scale, nf_set1(x->scale)), acc);
    return has_mins(f) ? nf_fma(second, nf_set1(f.group == PACK_GROUP ? x->sum : x->sums[part]), acc) : acc;
}

/* acc[r][c] += a part's scaled sums and its min. */
INLINE void tile_add(group_format f, int n_rows, int n_regs, const group_view *v, const row_group *const *x,
                     int part, ni sums[N_GROUP_ROWS][TILE_REGISTERS], nf acc[N_GROUP_ROWS][TILE_REGISTERS]) {
    const bool floats_first = N_FLOATS_FIRST && n_factors(f) == 1;
    nf floats[N_GROUP_ROWS][TILE_REGISTERS];
    UNROLL
    for (int i = 0; i < n_rows * n_regs; i++) {
        int r = i / n_regs, c = i % n_regs;
        if (floats_first) {
            floats[r][c] = nf_of(sums[r][c]);
        }
    }
    UNROLL
    for (int i = 0; i < n_rows * n_regs; i++) {
        int r = i / n_regs, c = i % n_regs;
        nf scale = f.unpacked ? nf_load(record_scale(f, n_regs, v->record, part, 0, c))
                              : v->scales[c].scale[part],
           second = scale;
        if (n_factors(f) > 1) {
            second =
                f.unpacked ? nf_load(record_scale(f, n_regs, v->record, part, 1, c)) : v->scales[c].min[part];
        }
        acc[r][c] =
            part_add(f, acc[r][c], floats_first ? floats[r][c] : float_sum(f, sums[r][c], second, x[r]),
                     scale, second, x[r], part);
    }
}
