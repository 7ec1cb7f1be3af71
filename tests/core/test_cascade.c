/* Cascade attention's work list: which rows share which chunks, on hand-made tables and
 * against a naive model on random trees. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/rng.h"
#include "core/batch.h"
#include "test.h"

enum {
    PAGE = 64,
    PAGES_A_CHUNK = ATTN_CHUNK / PAGE,
    MAX_SEQS = 40,
    MAX_ROWS = 400,
    MAX_CHUNKS = 12,
    TILE_ROWS = 16,
    TABLE_PAGES = 17 * PAGES_A_CHUNK
};

typedef struct world {
    kv_layout layout;
    cascade cascade;
    batch_seq seqs[MAX_SEQS];
    int32_t tables[2][MAX_SEQS][TABLE_PAGES];
    batch b;
} world;

static void world_open_for(world *w, int32_t n_groups, int32_t n_workers) {
    *w = (world){
        .layout = {.page_tokens = PAGE, .n_groups = n_groups, .n_caches = 1, .caches = {{.n_heads = 2}}}};
    assert_int_equal(
        cascade_open(&w->layout, &(cascade_limits){MAX_ROWS, MAX_SEQS, TILE_ROWS, n_workers}, &w->cascade),
        QUIRE_OK);
    w->b.seqs = w->seqs;
    for (int32_t g = 0; g < 2; g++) {
        for (int32_t s = 0; s < MAX_SEQS; s++) {
            for (int32_t p = 0; p < TABLE_PAGES; p++) {
                w->tables[g][s][p] = (s * 1000 + p) * 7919 % 100003; /* nobody else's, in no order */
            }
        }
    }
}

static void world_open(world *w, int32_t n_groups) {
    world_open_for(w, n_groups, 2);
}

/* One more sequence with n_rows rows after `before` tokens, the first `shared` of which
 * lie in the pages of sequence `with`. */
static void add(world *w, int32_t before, int32_t n_rows, int32_t with, int32_t shared) {
    assert_true(w->b.n_seqs < MAX_SEQS && before + n_rows <= TABLE_PAGES * PAGE &&
                shared <= TABLE_PAGES * PAGE);
    int32_t s = w->b.n_seqs++;
    w->seqs[s] = (batch_seq){.row0 = w->b.n_rows, .n_rows = n_rows, .n_tokens = before + n_rows};
    w->b.n_rows += n_rows;
    for (int32_t g = 0; g < w->layout.n_groups; g++) {
        memcpy(w->tables[g][s], w->tables[g][with], sizeof(int32_t) * (size_t)(shared / PAGE));
        w->seqs[s].pages[g] = w->tables[g][s];
    }
}

/* The rows of an item, as a mask of sequences. */
static uint64_t sequences_of(const world *w, const attn_item *item) {
    uint64_t mask = 0;
    for (int32_t i = item->row0; i < item->row0 + item->n_rows; i++) {
        int32_t s = 0;
        while (w->b.work_rows[i] >= w->seqs[s].row0 + w->seqs[s].n_rows) {
            s++;
        }
        mask |= (uint64_t)1 << s;
    }
    return mask;
}

TEST(a_shared_prefix_is_one_item) {
    static world w;
    world_open(&w, 1);
    for (int32_t s = 0; s < 32; s++) {
        add(&w, 4096 + 10 + s, 1, 0, s > 0 ? 4096 : 0);
    }
    cascade_plan(&w.cascade, &w.b);
    assert_int_equal(w.b.n_levels, 1);
    assert_int_equal(w.b.level_ends[0], 1);
    assert_int_equal(w.b.n_work, 33);
    assert_int_equal(sequences_of(&w, &w.b.work[0]), 0xffffffff);
    assert_int_equal(w.b.work[0].n_chunks, 16);
    assert_int_equal(w.b.work[0].partial, ATTN_CARRY);
    assert_int_equal(w.b.work[1].chunk0, 16);
    assert_int_equal(batch_read_tokens(&w.b), 4096 + 32 * 11 + 31 * 32 / 2);
    cascade_close(&w.cascade);
}

/* Two KV heads for eight threads: four pieces of the rows. */
TEST(every_thread_has_a_piece_of_a_shared_prefix) {
    static world w;
    world_open_for(&w, 1, 8);
    for (int32_t s = 0; s < 30; s++) {
        add(&w, 1000, 1, 0, s > 0 ? 768 : 0);
    }
    cascade_plan(&w.cascade, &w.b);
    assert_int_equal(w.b.level_ends[0], 4);
    assert_int_equal(w.b.work[0].n_rows, 8);
    assert_int_equal(w.b.work[3].n_rows, 6);
    cascade_close(&w.cascade);
}

TEST(prefixes_that_continue_together_are_further_levels) {
    static world w;
    world_open(&w, 1);
    for (int32_t s = 0; s < 12; s++) {
        add(&w, 3000, 1, 0, s == 0 ? 0 : s % 3 == 0 ? 2600 : 2048);
    }
    cascade_plan(&w.cascade, &w.b);
    assert_int_equal(w.b.n_levels, 2);
    assert_int_equal(sequences_of(&w, &w.b.work[0]), 0xfff);
    assert_int_equal(w.b.work[0].n_chunks, 8);
    assert_int_equal(sequences_of(&w, &w.b.work[1]), 0x249); /* 0, 3, 6, 9 */
    assert_int_equal(w.b.work[1].chunk0, 8);
    assert_int_equal(w.b.work[1].n_chunks, 2); /* 2,600 tokens are ten chunks and some */
    assert_int_equal(batch_read_tokens(&w.b), 2048 + 512 + 8 * (3001 - 2048) + 4 * (3001 - 2560));
    cascade_close(&w.cascade);
}

TEST(nothing_is_shared_where_pages_differ) {
    static world w;
    world_open(&w, 2);
    add(&w, 1000, 1, 0, 0);
    add(&w, 1000, 4, 0, 192); /* less than a chunk */
    add(&w, 255, 1, 0, 192);  /* no whole chunk */
    add(&w, 1000, 1, 0, 512); /* in one group of layers, as the next line has it */
    w.tables[1][3][1]++;
    add(&w, 600, 300, 0, 0);
    cascade_plan(&w.cascade, &w.b);
    assert_int_equal(w.b.n_levels, 0);
    assert_int_equal(w.b.n_work, 4 + 19);
    cascade_close(&w.cascade);
}

TEST(a_chunk_that_this_step_writes_is_not_shared) {
    static world w;
    world_open(&w, 1);
    add(&w, 511, 2, 0, 0);
    add(&w, 512, 150, 0, 512);
    cascade_plan(&w.cascade, &w.b);
    assert_int_equal(w.b.n_levels, 1);
    assert_int_equal(w.b.level_ends[0], 2); /* 152 rows are two items */
    assert_int_equal(w.b.work[0].n_chunks, 1);
    assert_int_equal(w.b.work[1].n_chunks, 1);
    assert_int_equal(w.b.work[0].n_rows + w.b.work[1].n_rows, 152);
    cascade_close(&w.cascade);
}

/* ---- random trees ---- */

/* Of every row and chunk, how often it was computed, in ascending order; and by each
 * shared item only where all its sequences have the same pages. */
static void check_cover(const world *w) {
    static int32_t next[MAX_ROWS];
    memset(next, 0, sizeof next);
    int32_t level = 0;
    for (int32_t i = 0; i < w->b.n_work; i++) {
        const attn_item *item = &w->b.work[i];
        while (level < w->b.n_levels && i == w->b.level_ends[level]) {
            level++;
        }
        assert_int_equal(item->partial, level < w->b.n_levels ? ATTN_CARRY : ATTN_WHOLE);
        for (int32_t r = item->row0; r < item->row0 + item->n_rows; r++) {
            int32_t row = w->b.work_rows[r], s = 0;
            while (row >= w->seqs[s].row0 + w->seqs[s].n_rows) {
                s++;
            }
            int32_t position = w->seqs[s].n_tokens - w->seqs[s].n_rows + row - w->seqs[s].row0;
            assert_int_equal(next[row], item->chunk0);
            next[row] = item->partial == ATTN_CARRY ? item->chunk0 + item->n_chunks : INT32_MAX;
            assert_true(item->partial == ATTN_CARRY
                            ? (item->chunk0 + item->n_chunks) * ATTN_CHUNK <= position
                            : (item->chunk0 + item->n_chunks) * ATTN_CHUNK > position);
            for (int32_t p = item->chunk0 * PAGES_A_CHUNK;
                 item->partial == ATTN_CARRY && p < (item->chunk0 + item->n_chunks) * PAGES_A_CHUNK; p++) {
                assert_int_equal(w->seqs[s].pages[0][p], w->seqs[item->seq].pages[0][p]);
            }
        }
    }
    for (int32_t row = 0; row < w->b.n_rows; row++) {
        assert_int_equal(next[row], INT32_MAX);
    }
}

/* Tokens read when every distinct chunk is read once: a chunk is told by who is the first
 * sequence with the same pages up to it. */
static int64_t least_read(const world *w) {
    int64_t n = 0;
    for (int32_t s = 0; s < w->b.n_seqs; s++) {
        int32_t whole = (w->seqs[s].n_tokens - w->seqs[s].n_rows) / ATTN_CHUNK, most = 0;
        for (int32_t t = 0; t < s; t++) {
            int32_t theirs = (w->seqs[t].n_tokens - w->seqs[t].n_rows) / ATTN_CHUNK, common = 0;
            while (common < whole && common < theirs &&
                   memcmp(w->tables[0][s] + common * PAGES_A_CHUNK, w->tables[0][t] + common * PAGES_A_CHUNK,
                          sizeof(int32_t) * PAGES_A_CHUNK) == 0) {
                common++;
            }
            most = common > most ? common : most;
        }
        n += w->seqs[s].n_tokens - (int64_t)most * ATTN_CHUNK;
    }
    return n;
}

/* What lies before the rows of two sequences changes places. */
static void swap_sequences(world *w, int32_t s, int32_t t) {
    static int32_t pages[TABLE_PAGES];
    int32_t tokens = w->seqs[s].n_tokens - w->seqs[s].n_rows;
    w->seqs[s].n_tokens = w->seqs[t].n_tokens - w->seqs[t].n_rows + w->seqs[s].n_rows;
    w->seqs[t].n_tokens = tokens + w->seqs[t].n_rows;
    memcpy(pages, w->tables[0][s], sizeof pages);
    memcpy(w->tables[0][s], w->tables[0][t], sizeof pages);
    memcpy(w->tables[0][t], pages, sizeof pages);
}

TEST(random_trees_read_every_chunk_once) {
    uint64_t seed = rng_os_seed(), draw = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    static world w;
    int32_t n_shared = 0;
    for (int32_t round = 0; round < 300; round++) {
        world_open_for(&w, 1, 1 + round % 20);
        int32_t n = 1 + (int32_t)(rng_next(&draw) % MAX_SEQS);
        for (int32_t s = 0; s < n; s++) {
            int32_t before = (int32_t)(rng_next(&draw) % (MAX_CHUNKS * ATTN_CHUNK)),
                    with = s > 0 ? (int32_t)(rng_next(&draw) % (uint64_t)s) : 0;
            int32_t least = with < s && w.seqs[with].n_tokens < before ? w.seqs[with].n_tokens : before;
            int32_t shared =
                rng_next(&draw) % 4 == 0 ? 0 : (int32_t)(rng_next(&draw) % (uint64_t)(least + 1));
            add(&w, before, 1 + (int32_t)(rng_next(&draw) % 5), with, shared);
        }
        /* from the order of the plan before: the same sequences, others, one less */
        for (int32_t step = 0; step < 4; step++) {
            cascade_plan(&w.cascade, &w.b);
            check_cover(&w);
            n_shared += step == 0 && w.b.n_levels > 0;
            if (w.b.n_levels < BATCH_MAX_LEVELS) {
                assert_int_equal(batch_read_tokens(&w.b), least_read(&w));
            }
            if (step == 1) {
                swap_sequences(&w, (int32_t)(rng_next(&draw) % (uint64_t)n),
                               (int32_t)(rng_next(&draw) % (uint64_t)n));
            } else if (step == 2 && n > 1) {
                w.b.n_rows -= w.seqs[--w.b.n_seqs].n_rows;
            }
        }
        cascade_close(&w.cascade);
    }
    assert_true(n_shared > 100);
}

/* Each of 12 sequences shares one chunk more with the next than with the one before: more
 * levels than there are levels. */
TEST(a_path_of_more_levels_than_there_are_ends_in_separate_rows) {
    static world w;
    world_open(&w, 1);
    for (int32_t s = 0; s < MAX_CHUNKS; s++) {
        add(&w, MAX_CHUNKS * ATTN_CHUNK, 1, s > 0 ? s - 1 : 0, s * ATTN_CHUNK);
    }
    cascade_plan(&w.cascade, &w.b);
    assert_int_equal(w.b.n_levels, BATCH_MAX_LEVELS);
    check_cover(&w);
    assert_true(batch_read_tokens(&w.b) > least_read(&w));
    cascade_close(&w.cascade);
}

#ifdef QUIRE_DEBUG
TEST(without_memory_nothing_stays_open) {
    static const kv_layout layout = {
        .page_tokens = PAGE, .n_groups = 1, .n_caches = 1, .caches = {{.n_heads = 2}}};
    for (int64_t point = 1; point <= 5; point++) {
        cascade c;
        fault_at(point);
        assert_int_equal(cascade_open(&layout, &(cascade_limits){MAX_ROWS, MAX_SEQS, TILE_ROWS, 2}, &c),
                         QUIRE_NO_MEMORY);
        assert_true(fault_happened());
        assert_null(c.items);
    }
    fault_at(0);
}
#endif

TEST_MAIN(NULL, NULL)
