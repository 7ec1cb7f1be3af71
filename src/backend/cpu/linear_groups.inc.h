/* Products of grouped weights for AVX2, AVX-512 and NEON, written once.
 * linear_integers_*.c, linear_tables_*.c and linear_grids_*.c include it for the forms
 * whose codes are integers, for those with a table and for those of a grid, since all
 * together take a minute to compile. Such a file defines LINEAR_GROUPS, the name of its
 * product, and LINEAR_CODES: FORM_LIST's 0, 1 or 2. linear_amx.inc.h has all, 3, of
 * which LINEAR_HAS, and LINEAR_BY_TILES: all rows go through scratch, and
 * linear_group_tiles.inc.h multiplies them.
 *
 * A tile of rows x registers of columns keeps its float sums in registers while k runs, a
 * group at a time. Numbers of up to 7 bits are multiplied as stored, unsigned: the
 * group's sums start from the correction for the format's zero. Bytes are signed.
 *
 * Few rows unpack the numbers from their planes while they multiply: they are bound by
 * memory, so one row reads several blocks side by side. For more rows (chunked_from),
 * GROUP_CHUNK groups of a tile's columns are unpacked into scratch first, with their
 * scales as floats; with AVX2 by the first pass of rows. All rows are then multiplied
 * with them while they are in cache and the next planes are fetched. Between chunks the
 * sums are stored in y.
 *
 * Products a cycle, AVX-512: of 128 at best 102, as each 8 dpbusd of a row need a
 * multiplication and an fma on the same two pipes, 93 with mins; 93 and 85 where these
 * pipes convert too, as Intel's do. Half of all that with AVX-VNNI, and where each
 * multiplication takes two cycles, as on Zen 4. AVX2: of 64 at best 46 for numbers of up
 * to 4 bits, whose 8 maddubs need a maddwd, a multiplication and an fma on the same two
 * pipes, 42 with mins, 36 with a scale for each 16 of k; 28 for bytes, of 32. Zen 3,
 * whose integers and floats are multiplied on different pipes, has 51, 48 and 42, by
 * operations on four pipes; Intel 38, 36 and 32, and 22 for bytes, by those on three. */
#include "backend/cpu/linear.h"
#include "backend/cpu/simd_int.h"

#define LANES PACK_LANES

#ifndef LINEAR_BY_TILES
#define LINEAR_BY_TILES          0
#define LINEAR_HAS(group, scale) 1
#endif

#include "backend/cpu/linear_group_read.inc.h"

#include "backend/cpu/linear_grid_read.inc.h"

#define TILE_REGISTERS (N_HALVES > 2 ? N_HALVES : 2)
#define GROUP_BLOCKS   (TILE_REGISTERS / N_HALVES) /* blocks of columns per tile */
#define SIDE_BLOCKS    4                           /* blocks that one row reads side by side */
#define WIDE_BLOCKS    8                           /* the same if the blocks are short */
/* Blocks of up to this size are short: streams too short for the hardware prefetcher. */
#define SHORT_BYTES 12288
#define AHEAD_BYTES 12288 /* total prefetch distance of all streams */
/* SIDE_BLOCKS blocks of up to this total size are prefetched whole into the L2. */
#define LATER_BYTES 393216

/* The size of a chunk's records: quads, as bytes and as signs, scales, mins,
 * corrections. */
#define CHUNK_BYTES (GROUP_CHUNK * TILE_REGISTERS * (2 * QUADS + 4 + 1) * 4 * N_LANES)

_Static_assert(CHUNK_BYTES + N_WORDS * LINEAR_TILE_ROWS * GROUP_CHUNK / 2 * sizeof(row_group) <=
                   LINEAR_SCRATCH_BYTES,
               "they fit scratch, and rows copied for a grid");

#define N_SHARES         4 /* shares of the planes, one prefetched per pass, if the first one unpacks */
#define FEW_ROWS_CHUNKED 8 /* from here on, every pass has at least N_GROUP_ROWS - 2 rows */

#ifdef N_DPBUSD
#define HAS_DPBUSD 1
#else
#define HAS_DPBUSD 0
#endif
#define MANY_ROWS_UNPACKED 64 /* rows of a prompt */

/* Whether unpacking in every pass, on units that products leave idle, costs less than a
 * store and a load. */
INLINE bool is_cheap(group_format f) {
    return N_LANES == 16 ? !has_grid(f)
                         : (is_plain(f) && !unpacks_in_pass(f)) ||
                               (HAS_DPBUSD && f.has_table && f.bits == 4 && f.group == PACK_GROUP);
}
/* Whether numbers are bytes that take one operation per quad to convert. Such formats use
 * chunks from few rows on, to keep columns in a near cache, but unpack only for many
 * rows. */
INLINE bool has_near_bytes(group_format f) {
    return HAS_DPBUSD && !LINEAR_BY_TILES && f.bits == 8 && is_plain(f) && !has_zeros(f);
}
/* The number of rows from which groups are multiplied in chunks. */
INLINE int chunked_from(group_format f) {
    return !is_cheap(f) || has_near_bytes(f) ? FEW_ROWS_CHUNKED
           : f.bits < N_PLAIN_UNPACKED       ? MANY_ROWS_UNPACKED
           : N_WORDS                         ? 16
                                             : 32;
}

/* Whether all rows are multiplied directly from the planes: unpacking runs on units that
 * products leave idle (AMD has four pipes), and the blocks of a pass fit the L2. */
INLINE bool stays_packed(group_format f, const linear *w) {
#if N_LANES == 16 && !LINEAR_BY_TILES
    return f.bits == 4 && f.group == PACK_GROUP && !has_supers(f) &&
           SIDE_BLOCKS * w->layout.block_bytes <= LATER_BYTES && __builtin_cpu_is("amd");
#else
    (void)f, (void)w;
    return false;
#endif
}

/* Quads per part of a group; a part is 16 or 32 of k. */
INLINE int part_quads(group_format f) {
    return QUADS * f.group / PACK_GROUP;
}
/* Whether int16 sums can overflow when both factors are large: for IQ2, up to 43. */
INLINE bool can_be_large(group_format f) {
    return N_WORDS && !LINEAR_BY_TILES && f.dot_bits == 7;
}
/* Whether sums start from a row's words, in int16. large: such sums could overflow. */
INLINE bool has_words(group_format f, bool large) {
    return N_WORDS && f.zero > 0 && !(can_be_large(f) && large);
}
/* The number of quads whose products are summed at once. */
INLINE int dot_run(group_format f, bool large) {
    const int plain = n_run(f.dot_bits), run = !has_words(f, large) ? plain
                                               : f.zero <= 16       ? QUADS
                                                                    : QUADS / 2;
    return run < part_quads(f) ? run : part_quads(f);
}

/* One register of columns. */
typedef struct group_columns {
    const uint8_t *planes, *scales, *supers; /* of the block; planes start at the lane */
    int lane;
    float *y; /* sums of the first row */
} group_columns;

#include "backend/cpu/linear_group_unpack.inc.h"

#include "backend/cpu/linear_group_sums.inc.h"

/* ---- tiles ---- */

INLINE void prefetch_bytes(const uint8_t *p, size_t n) {
    UNROLL
    for (size_t i = 0; i < n; i += 64) {
        __builtin_prefetch(p + i);
    }
}
INLINE void prefetch_planes(group_format f, const uint8_t *planes) {
    prefetch_bytes(planes, group_bytes(f));
}

/* A range of unpacked groups of a tile's columns. */
typedef struct group_range {
    /* next: the columns whose packed groups are prefetched from next_g on, or NULL */
    const group_columns *columns, *next;
    uint8_t *records;
    int32_t g0, g1, next_g;
    int32_t share; /* which of the N_SHARES to prefetch; -1: all */
} group_range;

/* A view of a packed group of a format without supers. */
INLINE group_view packed_view(group_format f, int n_regs, const group_columns *columns, int32_t g) {
    group_view v = {.record = NULL};
    const group_supers none = {nf_set1(0.0f), nf_set1(0.0f)};
    UNROLL
    for (int c = 0; c < n_regs; c++) {
        v.planes[c] = columns[c].planes + (size_t)g * group_bytes(f);
        load_scales(f, columns[c].scales, columns[c].supers, &none, g, 0, columns[c].lane, &v.scales[c]);
    }
    return v;
}

/* Prefetches group g's share of the next blocks. */
INLINE void prefetch_next(group_format f, const group_range *range, int32_t g) {
    const size_t step = group_bytes(f) / N_SHARES, at = (size_t)(g - range->g0),
                 n = (size_t)(range->g1 - range->g0), next = (size_t)range->next_g;
    if (GROUP_BLOCKS == 1 && range->share >= 0) {
        prefetch_bytes(range->next->planes + next * group_bytes(f) + ((size_t)range->share * n + at) * step,
                       step);
    } else {
        prefetch_planes(f, range->next->planes + (next + at) * group_bytes(f));
    }
    if (GROUP_BLOCKS > 1 || range->share <= 0) {
        __builtin_prefetch(range->next->scales + group_scales_at(f, next + at));
    }
}

/* Multiplies n_rows rows, which begin with the range's groups, with the range. Sums start
 * from 0 if the range starts at 0, else from y. Where registers are few, a compiler that
 * keeps some float sums in them reloads the weights for every row. */
INLINE void group_tile(group_format f, int n_rows, int n_regs, group_range range, row_view rows, int32_t row0,
                       int32_t y_stride) {
    const row_group *x[N_GROUP_ROWS];
    nf acc[N_GROUP_ROWS][TILE_REGISTERS];
    UNROLL
    for (int i = 0; i < n_rows * n_regs; i++) {
        int r = i / n_regs, c = i % n_regs;
        x[r] = (const row_group *)(const void *)(rows.data + (size_t)(row0 + r) * rows.stride);
        acc[r][c] = range.g0 == 0 ? nf_set1(0.0f) : nf_load(range.columns[c].y + (row0 + r) * y_stride);
    }
    for (int32_t g = range.g0; g < range.g1; g++) {
        group_view v =
            f.unpacked
                ? (group_view){.record = range.records + (size_t)(g - range.g0) * record_bytes(f, n_regs)}
                : packed_view(f, n_regs, range.columns, g);
        ni sums[N_GROUP_ROWS][TILE_REGISTERS];
        if (range.next != NULL) {
            prefetch_next(f, &range, g);
        }
        if (f.unpacks) {
            UNROLL
            for (int c = 0; c < n_regs; c++) {
                v.planes[c] = range.columns[c].planes + (size_t)g * group_bytes(f);
            }
            unpack_scales(f, n_regs, range.columns, g, v.record);
        }
        const int32_t large = large_halves(f, n_rows, n_regs, &v, x);
        UNROLL
        for (int part = 0; part < PACK_GROUP / f.group; part++) {
            UNROLL
            for (int i = 0; i < n_rows * n_regs * N_SUMS_STORED; i++) {
                __asm__("" : "+m"(acc[i / n_regs][i % n_regs]));
            }
            tile_group_sums(f, n_rows, n_regs, &v, x, part, large, sums);
            tile_add(f, n_rows, n_regs, &v, x, part, sums, acc);
        }
        UNROLL
        for (int r = 0; r < n_rows; r++) {
            x[r]++;
        }
    }
    UNROLL
    for (int i = 0; i < n_rows * n_regs; i++) {
        nf_store(range.columns[i % n_regs].y + (row0 + i / n_regs) * y_stride, acc[i / n_regs][i % n_regs]);
    }
}

/* ---- one task ---- */

/* Finds the columns of registers first..first+n_regs of n_blocks blocks of w. Registers
 * past the last repeat it. */
INLINE void find_columns(const linear *w, const uint8_t *blocks, int32_t n_blocks, int n_regs, int32_t first,
                         float *y, group_columns *columns) {
    UNROLL
    for (int c = 0; c < n_regs; c++) {
        int32_t at = first + c < n_blocks * N_HALVES ? first + c : n_blocks * N_HALVES - 1;
        const uint8_t *block = blocks + (size_t)(at / N_HALVES) * w->layout.block_bytes;
        int lane = at % N_HALVES * N_LANES;
        columns[c] = (group_columns){.planes = block + lane * 4,
                                     .scales = block + w->layout.scales_at,
                                     .supers = block + w->layout.supers_at,
                                     .lane = lane,
                                     .y = y + at * N_LANES};
    }
}

/* The number of blocks that n_rows rows read side by side: memory serves several streams
 * faster than one, but their sums take registers. */
INLINE int side_blocks(group_format f, int n_rows) {
    if (n_rows == 2 && f.bits == 8) {
        return 2; /* two streams are a tenth faster than one, although the sums spill to memory */
    }
    return n_rows > 1 ? GROUP_BLOCKS : is_plain(f) || N_LANES > 8 ? SIDE_BLOCKS : SIDE_BLOCKS / 2;
}

/* How far ahead each of n_side streams prefetches its planes. 0: not at all, because Zen
 * 3's hardware prefetcher follows four streams of bytes better by a tenth. (Emerald
 * Rapids with 512 bits loses 6% by it.) */
INLINE size_t ahead_bytes(group_format f, int n_side) {
    return f.bits == 8 && n_side >= SIDE_BLOCKS && N_LANES < 16 ? 0 : AHEAD_BYTES / (size_t)n_side;
}

/* Prefetches what is read soon after a part into the L2: some lines per group. */
typedef struct soon_lines {
    const linear_run *run, *end; /* the next runs */
    const uint8_t *at;
    size_t left, step; /* bytes left of the current run; bytes per group */
} soon_lines;

/* Spreads part->soon over a product of n_groups groups. */
INLINE soon_lines soon_of(const linear_part *part, size_t n_groups) {
    size_t all = 0;
    for (int32_t i = 0; i < part->n_soon; i++) {
        all += part->soon[i].n_bytes;
    }
    const size_t n_lines = (all + n_groups * 64 - 1) / (n_groups * 64);
    return (soon_lines){.run = part->soon, .end = part->soon + part->n_soon, .step = n_lines * 64};
}

INLINE void prefetch_soon(soon_lines *s) {
    if (s->left == 0) {
        if (s->run == s->end) {
            return;
        }
        s->at = s->run->at;
        s->left = (s->run++)->n_bytes;
    }
    const size_t n = s->left < s->step ? s->left : s->step;
    for (size_t i = 0; i < n; i += 64) {
        __builtin_prefetch(s->at + i, 0, 2);
    }
    s->at += n;
    s->left -= n;
}

/* A pass of some rows over SIDE_BLOCKS blocks. The first pass reads them from memory, and
 * prefetches what is read soon. The others read them from the caches, and each prefetches
 * a share of the following blocks into the L2, so that memory is busy in every pass. */
typedef struct direct_pass {
    int32_t row0, index, n; /* its first row; its number, of n passes */
    /* bytes from a block to the one read in its place after the last pass; 0: unknown */
    ptrdiff_t after;
    bool fetches;     /* whether those blocks are prefetched */
    soon_lines *soon; /* may be NULL */
} direct_pass;

/* The first of a tile's n_side blocks that pass number `index` prefetches for later; its
 * share ends where that of the next pass starts. */
INLINE int32_t share_from(const direct_pass *pass, int n_side, int32_t index) {
    return pass->fetches && index > 0 ? (index - 1) * n_side / (pass->n - 1) : 0;
}

INLINE void prefetch_later(group_format f, const uint8_t *planes, const uint8_t *scales) {
    UNROLL
    for (size_t i = 0; i < group_bytes(f); i += 64) {
        __builtin_prefetch(planes + i, 0, 2);
    }
    __builtin_prefetch(scales, 0, 2);
}

/* Multiplies the n_rows rows of a pass with n_side blocks, directly from the planes.
 * next: bytes to the blocks that are read afterwards; their first groups are prefetched
 * at the end. The scales, too short for the hardware prefetcher, are prefetched
 * throughout. */
INLINE void direct_tile(group_format f, int n_rows, int n_side, const linear *w, row_view rows,
                        const direct_pass *pass, int32_t block0, ptrdiff_t next, float *y, int32_t y_stride) {
    const int32_t row0 = pass->row0, later = share_from(pass, n_side, pass->index),
                  later_end = share_from(pass, n_side, pass->index + 1);
    const int n_regs = n_side * N_HALVES < TILE_REGISTERS ? n_side * N_HALVES : TILE_REGISTERS,
              n_tiles = n_side * N_HALVES / n_regs;
    /* Groups per step. Two groups read the bytes that their scales share once; four would
     * cost more than they save. */
    const int step = n_rows <= 2 && sharing_groups(f) == 2 ? 2 : 1;
    const uint8_t *block = linear_block(w, block0), *scales = block + w->layout.scales_at,
                  *supers = block + w->layout.supers_at;
    const size_t stride = w->layout.block_bytes, end = (size_t)(w->layout.n_in / PACK_GROUP) * group_bytes(f);
    const row_group *x[N_GROUP_ROWS];
    nf acc[WIDE_BLOCKS][N_GROUP_ROWS][TILE_REGISTERS];
    UNROLL
    for (int i = 0; i < n_tiles * n_rows * n_regs; i++) {
        int r = i / n_regs % n_rows;
        x[r] = (const row_group *)(const void *)(rows.data + (size_t)(row0 + r) * rows.stride);
        acc[i / n_regs / n_rows][r][i % n_regs] = nf_set1(0.0f);
    }
    group_supers d[WIDE_BLOCKS * N_HALVES]; /* for each register of columns */
    UNROLL
    for (int i = 0; i < n_tiles * n_regs; i++) {
        d[i] = load_supers(f, supers + (size_t)(i / N_HALVES) * stride, 0, i % N_HALVES * N_LANES);
    }
    int32_t g = 0;
    for (size_t at = 0; at < end; g += step) {
        if (has_supers(f) && g % GROUPS_A_SUPER == 0) {
            UNROLL
            for (int i = 0; i < n_tiles * n_regs; i++) {
                d[i] = load_supers(f, supers + (size_t)(i / N_HALVES) * stride, g, i % N_HALVES * N_LANES);
            }
        }
        UNROLL
        for (int odd = 0; odd < step; odd++, at += group_bytes(f)) {
            const size_t far = ahead_bytes(f, n_side) < end ? ahead_bytes(f, n_side) : end;
            const ptrdiff_t ahead =
                at + far < end ? (ptrdiff_t)(at + far) : next + (ptrdiff_t)(at + far - end);
            if (pass->soon != NULL) {
                prefetch_soon(pass->soon);
            }
            row_group reordered[N_GROUP_ROWS];
            const row_group *rows_here[N_GROUP_ROWS];
            UNROLL
            for (int r = 0; r < n_rows; r++) {
                rows_here[r] = x[r];
                if (has_grid(f)) {
                    reorder_row(&reordered[r], x[r], grid_order(f));
                    rows_here[r] = &reordered[r];
                }
            }
            UNROLL
            for (int t = 0; t < n_tiles; t++) {
                group_view v = {.record = NULL};
                ni sums[N_GROUP_ROWS][TILE_REGISTERS];
                int lanes[TILE_REGISTERS];
                UNROLL
                for (int c = 0; c < n_regs; c++) {
                    size_t from = (size_t)((t * n_regs + c) / N_HALVES) * stride;
                    int lane = (t * n_regs + c) % N_HALVES * N_LANES;
                    v.planes[c] = block + from + at + lane * 4;
                    if (lane == 0) {
                        if (far > 0) {
                            prefetch_planes(f, block + from + ahead);
                        }
                        __builtin_prefetch(scales + from + next + group_scales_at(f, (size_t)(g + odd)));
                        if ((t * n_regs + c) / N_HALVES >= later && (t * n_regs + c) / N_HALVES < later_end) {
                            prefetch_later(f, block + from + pass->after + at,
                                           scales + from + pass->after +
                                               group_scales_at(f, (size_t)(g + odd)));
                        }
                    }
                    lanes[c] = lane;
                }
                if (has_grid(f)) {
                    grid_nibbles(f, n_regs, v.planes, lanes, v.nibbles);
                }
                const int32_t large = large_halves(f, n_rows, n_regs, &v, rows_here);
                UNROLL
                for (int part = 0; part < PACK_GROUP / f.group; part++) {
                    tile_group_sums(f, n_rows, n_regs, &v, rows_here, part, large, sums);
                    UNROLL
                    for (int c = 0; part == 0 && c < n_regs; c++) {
                        size_t from = (size_t)((t * n_regs + c) / N_HALVES) * stride;
                        load_group_scales(f, v.planes[c], scales + from, supers + from, &d[t * n_regs + c],
                                          g + odd, step > 1 ? odd : g % sharing_groups(f), lanes[c],
                                          &v.scales[c]);
                    }
                    tile_add(f, n_rows, n_regs, &v, rows_here, part, sums, acc[t]);
                }
            }
            UNROLL
            for (int r = 0; r < n_rows; r++) {
                x[r]++;
            }
        }
    }
    UNROLL
    for (int i = 0; i < n_tiles * n_rows * n_regs; i++) {
        int t = i / n_regs / n_rows, r = i / n_regs % n_rows, c = i % n_regs;
        nf_store(y + (row0 + r) * y_stride + (t * n_regs + c) * N_LANES, acc[t][r][c]);
    }
}

/* Bytes from block b of a pass over n_blocks blocks to those read after n_side blocks. */
INLINE ptrdiff_t bytes_next(const linear *w, const direct_pass *pass, int n_side, int32_t b,
                            int32_t n_blocks) {
    const ptrdiff_t stride = (ptrdiff_t)w->layout.block_bytes,
                    restart = pass->index + 1 < pass->n ? 0 : pass->after;
    return b + n_side < n_blocks ? n_side * stride : restart - b * stride;
}

/* Multiplies n_rows rows with n_blocks blocks, n_side at a time, as long as so many are
 * left. Returns how many blocks were done. */
INLINE int32_t direct_blocks(group_format f, int n_rows, int n_side, const linear *w, row_view x,
                             const direct_pass *pass, int32_t block0, int32_t n_blocks, float *y,
                             int32_t y_stride) {
    int32_t b = 0;
    for (; b + n_side <= n_blocks; b += n_side) {
        direct_tile(f, n_rows, n_side, w, x, pass, block0 + b, bytes_next(w, pass, n_side, b, n_blocks),
                    y + b * LANES, y_stride);
    }
    return b;
}

/* Multiplies the blocks from `done` on, fewer than go side by side: only at the end of a
 * matrix. One row at a time, so that each format has one tile less per number of rows. */
INLINE void direct_rest(group_format f, const linear *w, row_view x, direct_pass pass, int32_t n_rows,
                        int32_t done, int32_t block0, int32_t n_blocks, float *y, int32_t y_stride) {
    for (int32_t b = done; b < n_blocks; b++) {
        const ptrdiff_t next = bytes_next(w, &pass, 1, b, n_blocks);
        for (int32_t r = 0; r < n_rows; r++) {
            direct_pass one = pass;
            one.row0 += r;
            direct_tile(f, 1, 1, w, x, &one, block0 + b, next, y + b * LANES, y_stride);
        }
    }
}

INLINE int32_t divide_up(int32_t n, int32_t by) {
    return (n + by - 1) / by;
}

#if LINEAR_BY_TILES
#include "backend/cpu/linear_group_tiles.inc.h"
#else
/* Multiplies all rows, FEW_ROWS_CHUNKED at least, with a chunk's groups, in passes of
 * nearly equal numbers of rows. Each of the first passes prefetches one of the next
 * blocks, or a share of it. */
INLINE void chunk_rows(group_format f, int n_regs, group_range range, row_view x, int32_t n_rows,
                       int32_t y_stride) {
    int32_t n_passes = divide_up(n_rows, N_GROUP_ROWS), n_next = n_regs / N_HALVES;
    range.share = GROUP_BLOCKS == 1 && n_passes >= N_SHARES ? 0 : -1;
    for (int32_t row = 0; n_passes > 0; n_passes--) {
        int32_t n = divide_up(n_rows - row, n_passes);
        if (row == 0 && unpacks_in_pass(f)) {
            group_format first = f;
            first.unpacks = true;
            if (n == N_GROUP_ROWS) {
                group_tile(first, N_GROUP_ROWS, n_regs, range, x, row, y_stride);
            } else {
                group_tile(first, N_GROUP_ROWS - 1, n_regs, range, x, row, y_stride);
            }
        } else if (n == N_GROUP_ROWS) {
            group_tile(f, N_GROUP_ROWS, n_regs, range, x, row, y_stride);
        } else if (n == N_GROUP_ROWS - 1) {
            group_tile(f, N_GROUP_ROWS - 1, n_regs, range, x, row, y_stride);
        } else {
            group_tile(f, N_GROUP_ROWS - 2, n_regs, range, x, row, y_stride);
        }
        if (GROUP_BLOCKS == 1 && range.share >= 0 && range.share < N_SHARES - 1) {
            range.share++;
        } else {
            range.next = --n_next > 0 ? range.next + N_HALVES : NULL;
        }
        row += n;
    }
}
#endif

#if N_WORDS
/* Copies the first n groups of the rows, with words, to scratch: AVX2's grid products
 * also get rows that were made for other tables. */
INLINE row_view word_rows(row_view x, int32_t n_rows, int32_t n, uint8_t *scratch) {
    const size_t stride = (size_t)n * sizeof(row_group);
    for (int32_t r = 0; r < n_rows; r++) {
        const row_group *from = (const row_group *)(const void *)(x.data + (size_t)r * x.stride);
        row_group *to = (row_group *)(void *)(scratch + (size_t)r * stride);
        for (int32_t g = 0; g < n; g++) {
            __builtin_prefetch((const uint8_t *)(from + g) + x.stride); /* the next row */
            to[g] = from[g];
            put_words(&to[g]);
        }
    }
    return (row_view){scratch, stride};
}
#endif

/* Multiplies a task's rows, FEW_ROWS_CHUNKED at least, in chunks through scratch. */
INLINE void chunked_part(group_format f, const linear_part *part, row_view x, int32_t n_rows, float *y,
                         int32_t y_stride, uint8_t *scratch) {
    const linear *w = part->w;
    const uint8_t *blocks = linear_block(w, part->block0);
    const int n_regs = TILE_REGISTERS;
    const int32_t n_blocks = part->n_blocks;
    const int32_t n_groups = w->layout.n_in / PACK_GROUP,
                  most = N_WORDS && (has_grid(f) || has_quads(f)) ? GROUP_CHUNK / 2 : GROUP_CHUNK,
                  chunk = divide_up(n_groups, divide_up(n_groups, most));
    group_format unpacked = f;
    unpacked.unpacked = true;
    unpacked.zero = LINEAR_BY_TILES ? f.zero : unpacked_zero(f);
    unpacked.lower = f.zero - unpacked_zero(f);
    group_columns columns[TILE_REGISTERS], next[TILE_REGISTERS];
    find_columns(w, blocks, n_blocks, n_regs, 0, y, next);
    for (int32_t g0 = 0; g0 < n_groups; g0 += chunk) {
        const int32_t g1 = n_groups - g0 < chunk ? n_groups : g0 + chunk;
        row_view rows = {x.data + (size_t)g0 * sizeof(row_group), x.stride};
#if N_WORDS
        if (has_grid(f)) {
            rows = word_rows(rows, n_rows, g1 - g0, scratch + CHUNK_BYTES);
        }
#endif
        for (int32_t first = 0; first < n_blocks * N_HALVES; first += n_regs) {
            const bool last = first + n_regs >= n_blocks * N_HALVES, is_end = last && g0 + chunk >= n_groups;
            const int32_t next_g = is_end ? 0 : last ? g0 + chunk : g0;
            group_range range = {
                .columns = columns, .next = next, .records = scratch, .g0 = g0, .g1 = g1, .next_g = next_g};
            memcpy(columns, next, sizeof columns);
            find_columns(w, is_end && part->next != NULL ? part->next : blocks, n_blocks, n_regs,
                         last ? 0 : first + n_regs, y, next);
            if (has_near_bytes(f) && n_rows < MANY_ROWS_UNPACKED) {
                chunk_rows(f, n_regs, range, rows, n_rows, y_stride);
                continue;
            }
            if (!unpacks_in_pass(f)) {
                unpack_groups(unpacked, n_regs, columns, g0, g1, scratch);
            }
            chunk_rows(unpacked, n_regs, range, rows, n_rows, y_stride);
        }
    }
}

INLINE void direct_rows(group_format f, const linear *w, row_view x, const direct_pass *pass, int32_t n_rows,
                        int32_t block0, int32_t n_blocks, float *y, int32_t y_stride) {
    int32_t done = 0;
    switch (n_rows) {
#define DIRECT_ROWS(count)                                                                                   \
    case count:                                                                                              \
        done = direct_blocks(f, count, side_blocks(f, count), w, x, pass, block0, n_blocks, y, y_stride);    \
        break;
        DIRECT_ROWS(1)
        DIRECT_ROWS(2)
        DIRECT_ROWS(3)
        DIRECT_ROWS(4)
#if N_DIRECT_ROWS == 6
        DIRECT_ROWS(5)
        DIRECT_ROWS(6)
#endif
#undef DIRECT_ROWS
    default:
        break;
    }
    direct_rest(f, w, x, *pass, n_rows, done, block0, n_blocks, y, y_stride);
}

/* Bytes from block `from` of a part to what is read after its blocks up to `end`. */
INLINE ptrdiff_t bytes_to(const linear_part *part, int32_t from, int32_t end) {
    const uint8_t *at = linear_block(part->w, part->block0 + from);
    if (end < part->n_blocks) {
        return linear_block(part->w, part->block0 + end) - at;
    }
    return part->next != NULL ? (ptrdiff_t)((uintptr_t)part->next - (uintptr_t)at) : 0;
}

/* Multiplies a task's rows directly with the packed groups. */
INLINE void direct_part(group_format f, const linear_part *part, row_view x, int32_t n_rows, float *y,
                        int32_t y_stride) {
    const linear *w = part->w;
    int32_t b = 0;
    if (n_rows == 1 && N_LANES == 16 && f.bits == 4 && !has_supers(f) &&
        w->layout.block_bytes <= SHORT_BYTES) {
        b = part->n_blocks / WIDE_BLOCKS * WIDE_BLOCKS;
        const direct_pass only = {.n = 1, .after = bytes_to(part, 0, b)};
        direct_blocks(f, 1, WIDE_BLOCKS, w, x, &only, part->block0, b, y, y_stride);
    }
    soon_lines soon =
        soon_of(part, (size_t)(divide_up(part->n_blocks, GROUP_BLOCKS) * (w->layout.n_in / PACK_GROUP)));
    for (; b < part->n_blocks; b += SIDE_BLOCKS) {
        const int32_t n = part->n_blocks - b < SIDE_BLOCKS ? part->n_blocks - b : SIDE_BLOCKS;
        direct_pass pass = {.n = divide_up(n_rows, N_DIRECT_ROWS), .after = bytes_to(part, b, b + n)};
        pass.fetches = pass.n > 1 && pass.after != 0 && SIDE_BLOCKS * w->layout.block_bytes <= LATER_BYTES;
        for (; pass.index < pass.n; pass.index++) {
            const int32_t rows = divide_up(n_rows - pass.row0, pass.n - pass.index);
            pass.soon = part->n_soon > 0 && pass.n > 1 && pass.index == 0 ? &soon : NULL;
            direct_rows(f, w, x, &pass, rows, part->block0 + b, n, y + b * LANES, y_stride);
            pass.row0 += rows;
        }
    }
}

/* The number added to a table's numbers: with dot instructions, which take any unsigned
 * bytes, the one whose correction the rows contain. */
INLINE int zero_of(int has_table, int group, int zero) {
#ifdef N_DPBUSD
    return has_table && zero > 0 && group == PACK_GROUP ? 128 : zero;
#else
    (void)has_table, (void)group;
    return zero;
#endif
}

#define GROUP_PRODUCT_HERE(name, group_, bits_, table_, zero_, dot_, scale_, run_)                           \
    static void product_##name(const linear_part *part, row_view x, int32_t n_rows, float *y,                \
                               int32_t y_stride, void *scratch) {                                            \
        const quant_rule *rule = &part->w->layout.rule;                                                      \
        const int zero = zero_of(table_, group_, zero_);                                                     \
        int8_t table[16];                                                                                    \
        for (int i = 0; i < 16; i++) {                                                                       \
            const int code =                                                                                 \
                run_ == 8 ? (i & 3) | i >> 3 << 2 : i; /* in rows of 8, bit 3 is the sign, bit 2 ignored */  \
            table[i] = (int8_t)(quant_tables[rule->table][code] + zero);                                     \
        }                                                                                                    \
        n_grid grid;                                                                                         \
        if (run_ > 1) {                                                                                      \
            open_grid(bits_, run_, quant_grid(rule->form), &grid);                                           \
        }                                                                                                    \
        const group_format f = {.group = group_,                                                             \
                                .bits = bits_,                                                               \
                                .has_table = table_,                                                         \
                                .zero = zero,                                                                \
                                .dot_bits = dot_,                                                            \
                                .coding = scale_,                                                            \
                                .run = run_,                                                                 \
                                .table = table,                                                              \
                                .grid = &grid,                                                               \
                                .unit = rule->unit,                                                          \
                                .shift = rule->shift,                                                        \
                                .least = rule->least};                                                       \
        if (LINEAR_BY_TILES || (n_rows >= chunked_from(f) && !stays_packed(f, part->w))) {                   \
            chunked_part(f, part, x, n_rows, y, y_stride, scratch);                                          \
        } else {                                                                                             \
            direct_part(f, part, x, n_rows, y, y_stride);                                                    \
        }                                                                                                    \
    }

/* X(name, ..) for the formats of this file. */
#define GROUP_OF_0(...)
#define GROUP_OF_1(...)
#define GROUP_OF_2(...)
#if LINEAR_CODES == 0 || LINEAR_CODES == 3
#undef GROUP_OF_0
#define GROUP_OF_0(...) __VA_ARGS__
#endif
#if LINEAR_CODES == 1 || LINEAR_CODES == 3
#undef GROUP_OF_1
#define GROUP_OF_1(...) __VA_ARGS__
#endif
#if LINEAR_CODES >= 2
#undef GROUP_OF_2
#define GROUP_OF_2(...) __VA_ARGS__
#endif

#define GROUP_PRODUCT(name, group, bits, table, zero, dot, scale, run)                                       \
    GROUP_OF_##table(GROUP_PRODUCT_HERE(name, group, bits, table, zero, dot, scale, run))
FORM_LIST(GROUP_PRODUCT)
#undef GROUP_PRODUCT

#define GROUP_ENTRY(name, group, bits, table, zero, dot, scale, run)                                         \
    GROUP_OF_##table([PACK_##name] = LINEAR_HAS(group, scale) ? product_##name : NULL, )
void LINEAR_GROUPS(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                   void *scratch) {
    static linear_product *const products[N_PACKS] = {FORM_LIST(GROUP_ENTRY)};
    products[part->w->layout.kind](part, x, n_rows, y, y_stride, scratch);
}
#undef GROUP_ENTRY
