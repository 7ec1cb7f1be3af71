/* Unpacks grouped weights once for many rows: one record per group, registers in the
 * order in which a tile reads them. Part of linear_groups.inc.h. */

/* Floats per part of a group: its scale, and its min or zero. */
INLINE int n_factors(group_format f) {
    return has_mins(f) || has_zeros(f) ? 2 : 1;
}
/* Whether quads are kept as n_quad: true for bytes, except with tiles, which multiply all
 * numbers as signed bytes. */
INLINE bool has_quads(group_format f) {
    return !LINEAR_BY_TILES && f.dot_bits == 8;
}
/* Registers per quad in a record. The quads are followed by scales, mins, and either the
 * corrections of byte sums or the group's large halves. */
INLINE int quad_registers(group_format f) {
    return has_quads(f) ? (int)(sizeof(n_quad) / sizeof(ni)) : 1;
}
INLINE int scale_registers(group_format f) {
    return PACK_GROUP / f.group * n_factors(f);
}
INLINE bool has_lacks(group_format f) {
    return N_QUADS_LACK && has_quads(f);
}
INLINE size_t record_bytes(group_format f, int n_regs) {
    return (size_t)(n_regs *
                    (QUADS * quad_registers(f) + scale_registers(f) + (has_lacks(f) || can_be_large(f)))) *
           sizeof(ni);
}
INLINE const uint8_t *record_quad(group_format f, int n_regs, const uint8_t *record, int t, int c) {
    return record + (t * n_regs + c) * quad_registers(f) * (int)sizeof(ni);
}
INLINE const uint8_t *record_behind(group_format f, int n_regs, const uint8_t *record, int i, int c) {
    return record + ((QUADS * quad_registers(f) + i) * n_regs + c) * (int)sizeof(ni);
}
/* which: 0 for the scale, 1 for the min or zero. */
INLINE const float *record_scale(group_format f, int n_regs, const uint8_t *record, int part, int which,
                                 int c) {
    return (const float *)(const void *)record_behind(f, n_regs, record, part * n_factors(f) + which, c);
}
INLINE const uint8_t *record_end(group_format f, int n_regs, const uint8_t *record, int c) {
    return record_behind(f, n_regs, record, scale_registers(f), c);
}

/* The zero of unpacked numbers. Tiles multiply signed numbers; AVX2's zero is what the
 * rows' words assume. */
INLINE int unpacked_zero(group_format f) {
    const int least = f.group == PACK_GROUP ? 8 : 32;
    return LINEAR_BY_TILES ? 0 : N_WORDS && f.zero > 0 && f.zero < least ? least : f.zero;
}

/* Stores a quad in a record; returns it in the form that is multiplied. */
INLINE ni unpack_quad(group_format f, int n_regs, ni quad, uint8_t *record, int t, int c) {
    const ni lower = f.lower != 0 ? n_sub_bytes(quad, n_set1_bytes(f.lower)) : quad;
    n_store((uint8_t *)record_quad(f, n_regs, record, t, c), lower);
    return lower;
}

/* Unpacks the quads of a group for one register of columns. nibbles: of a grid format.
 * Returns the large halves (bits 1 and 2). */
INLINE int32_t unpack_quads(group_format f, int n_regs, const uint8_t *planes, const ni nibbles[4],
                            uint8_t *record, int c) {
    ni lack = n_set1(0), of_grid[QUADS], magnitudes[2] = {n_set1(0), n_set1(0)};
    if (has_grid(f)) {
        grid_quads(f, nibbles, of_grid);
    }
    UNROLL
    for (int t = 0; t < QUADS; t++) {
        const ni quad = has_grid(f) ? of_grid[t] : group_quad(f, planes, t);
        if (has_quads(f)) {
            n_quad_keep((uint8_t *)record_quad(f, n_regs, record, t, c), quad);
            lack = n_quad_lack(lack, quad);
        } else {
            unpack_quad(f, n_regs, quad, record, t, c);
        }
        if (can_be_large(f)) {
            magnitudes[2 * t / QUADS] = n_add_magnitudes(magnitudes[2 * t / QUADS],
                                                         n_sub_bytes(quad, n_set1_bytes(f.zero + f.lower)));
        }
    }
    if (has_lacks(f)) {
        n_store((uint8_t *)record_end(f, n_regs, record, c), n_lack_sum(lack));
    }
    return can_be_large(f) ? n_large_numbers(magnitudes) : 0;
}

/* Unpacks the scales of a group. */
INLINE void unpack_scales(group_format f, int n_regs, const group_columns *columns, int32_t g,
                          uint8_t *record) {
    UNROLL
    for (int c = 0; c < n_regs; c++) {
        group_scales s;
        group_supers d = load_supers(f, columns[c].supers, g, columns[c].lane);
        load_group_scales(f, columns[c].planes + (size_t)g * group_bytes(f), columns[c].scales,
                          columns[c].supers, &d, g, g % sharing_groups(f), columns[c].lane, &s);
        UNROLL
        for (int i = 0; i < PACK_GROUP / f.group; i++) {
            nf_store((float *)record_scale(f, n_regs, record, i, 0, c), s.scale[i]);
            if (n_factors(f) > 1) {
                nf_store((float *)record_scale(f, n_regs, record, i, 1, c), s.min[i]);
            }
        }
    }
}

INLINE void unpack_groups(group_format f, int n_regs, const group_columns *columns, int32_t g0, int32_t g1,
                          uint8_t *record) {
    for (int32_t g = g0; g < g1; g++, record += record_bytes(f, n_regs)) {
        const uint8_t *planes[TILE_REGISTERS];
        int lanes[TILE_REGISTERS];
        ni nibbles[TILE_REGISTERS][4];
        int32_t large = 0;
        UNROLL
        for (int c = 0; c < n_regs; c++) {
            planes[c] = columns[c].planes + (size_t)g * group_bytes(f);
            lanes[c] = columns[c].lane;
        }
        if (has_grid(f)) {
            /* Keeps gcc from holding the grid's tables in registers and spilling the
             * tile's. */
            __asm__ volatile("" : "+r"(f.grid));
            grid_nibbles(f, n_regs, planes, lanes, nibbles);
        }
        UNROLL
        for (int c = 0; c < n_regs; c++) {
            large |= unpack_quads(f, n_regs, planes[c], nibbles[c], record, c);
        }
        unpack_scales(f, n_regs, columns, g, record);
        if (can_be_large(f)) {
            *(int32_t *)(void *)record_end(f, n_regs, record, 0) = large;
        }
    }
}
