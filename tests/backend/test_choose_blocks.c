/* Rows that select blocks of the keys they read: by each KV head's best key in the block,
 * or by a key that represents it. Compared with a naive selection in double, with ties by
 * position, for trees of drafts, and the same bits however the work is cut. */
#include "backend/isas.h"

#include <math.h>

enum { KV_HEADS = 3, HEADS = 6, WIDTH = 16, INDEX = 12, TOKENS = 290, MOST_BLOCK = 16 };

/* Rows of TOKENS tokens, and how they are computed. */
typedef struct block_case {
    float k[TOKENS][KV_HEADS * WIDTH], v[TOKENS][KV_HEADS * WIDTH], q[TOKENS][HEADS * WIDTH],
        keys[TOKENS][INDEX], queries[TOKENS][KV_HEADS * INDEX];
    const char *isa;
    dtype type;
    choose_kind kind;
    int32_t block, n_blocks, n_own; /* of n_blocks blocks rows read */
    int32_t n, page_tokens, n_threads, chunk;
    const int32_t *parents; /* of a last step of n_tree rows, or NULL */
    int32_t n_tree;
} block_case;

static void fill(block_case *c, choose_kind kind, int32_t block, int32_t n_blocks, uint64_t seed) {
    float *all = &c->k[0][0];
    for (size_t i = 0; i < offsetof(block_case, isa) / sizeof *all; i++) {
        all[i] = random_normal(&seed);
    }
    c->isa = "plain";
    c->type = DTYPE_F32;
    c->kind = kind;
    c->block = block;
    c->n_blocks = n_blocks;
    c->n_own = 1;
    c->n = TOKENS;
    c->page_tokens = 16;
    c->n_threads = 1;
    c->chunk = TOKENS;
    c->parents = NULL;
    c->n_tree = 0;
}

typedef struct stage {
    backend *b;
    kv_layout layout;
    buffer k, v, q, out, key, query;
    int32_t pages[2][TOKENS];
} stage;

static void stage_open(const block_case *c, stage *s) {
    quire_error err;
    model_desc d = desc_plain(1, HEADS, KV_HEADS, WIDTH, 0);
    d.caches[d.n_caches++] = (cache_desc){.kind = LAYER_LATENT, .d_latent = INDEX};
    *s = (stage){.b = open_isa(c->isa, c->n_threads)};
    assert_non_null(s->b);
    assert_int_equal(kv_layout_init(&d, kv_both(c->type), c->page_tokens, &s->layout, &err), QUIRE_OK);
    const backend_ops *op = s->b->ops;
    s->k = op->buffer_reserve(s->b, KV_HEADS * WIDTH);
    s->v = op->buffer_reserve(s->b, KV_HEADS * WIDTH);
    s->q = op->buffer_reserve(s->b, HEADS * WIDTH);
    s->out = op->buffer_reserve(s->b, HEADS * WIDTH);
    s->key = op->buffer_reserve(s->b, INDEX);
    s->query = op->buffer_reserve(s->b, KV_HEADS * INDEX);
    op->choose_reserve(s->b, choose_lists(c->kind, KV_HEADS),
                       choose_room(c->kind, c->n_blocks * c->block, c->block));
    int32_t n_pages = (int32_t)kv_pages_for(TOKENS, c->page_tokens), n_groups = s->layout.n_groups;
    const step_limits limits = {.max_rows = TOKENS, .max_seqs = 1};
    assert_int_equal(op->step_open(s->b, &limits, &s->layout, 0, &err), QUIRE_OK);
    assert_int_equal(op->kv_open(s->b, n_groups * n_pages, &err), QUIRE_OK);
    for (int32_t i = 0; i < n_groups * n_pages; i++) {
        s->pages[i % n_groups][n_pages - 1 - i / n_groups] = i;
    }
}

/* Rows from..from + n, of which a tree's have parents. */
static void step(const block_case *c, stage *s, int32_t from, int32_t n, const int32_t *parents,
                 float (*out)[HEADS * WIDTH]) {
    static attn_item work[TOKENS];
    static kv_slot slots[2][TOKENS];
    static int32_t positions[TOKENS];
    const backend_ops *op = s->b->ops;
    batch_seq seq = {.n_rows = n, .n_tokens = from + n, .parents = parents};
    for (int32_t g = 0; g < s->layout.n_groups; g++) {
        seq.pages[g] = s->pages[g];
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t place = from + i;
        positions[i] = parents != NULL && i > 0 ? positions[parents[i]] + 1 : place;
        for (int32_t g = 0; g < s->layout.n_groups; g++) {
            slots[g][i] = (kv_slot){(int64_t)s->pages[g][place / c->page_tokens] * c->page_tokens +
                                    place % c->page_tokens};
        }
    }
    batch all = {.n_rows = n,
                 .n_seqs = 1,
                 .positions = positions,
                 .n_axes = 1,
                 .slots = {slots[0], slots[1]},
                 .seqs = &seq,
                 .n_work = batch_plan_work(&seq, 1, 16, work, TOKENS),
                 .work = work};
    op->step_begin(s->b, &all);
    op->buffer_write(s->b, s->k, 0, n, c->k[from]);
    op->buffer_write(s->b, s->v, 0, n, c->v[from]);
    op->buffer_write(s->b, s->q, 0, n, c->q[from]);
    op->buffer_write(s->b, s->key, 0, n, c->keys[from]);
    op->buffer_write(s->b, s->query, 0, n, c->queries[from]);
    op->latent_store(
        s->b, &(latent_store_use){
                  .cache = 1, .latent = s->key, .q = s->query, .n_heads = KV_HEADS, .latent_scale = 1.0f});
    op->choose(s->b, &(choose_use){.kind = c->kind,
                                   .cache = 1,
                                   .q = s->query,
                                   .weights = BUFFER_NONE,
                                   .n_heads = KV_HEADS,
                                   .scale = 0.5f,
                                   .n_best = c->n_blocks * c->block,
                                   .block = c->block,
                                   .n_own = c->n_own});
    op->kv_store(s->b, &(kv_store_use){.q = s->q, .k = s->k, .v = s->v});
    op->attention(s->b, 0, s->q, &(attn_spec){.scale = 0.2f, .causal = true, .chosen = true}, s->out);
    op->step_wait(s->b);
    op->buffer_read(s->b, s->out, 0, n, out[from]);
}

static void run(const block_case *c, float (*out)[HEADS * WIDTH]) {
    static stage s;
    const int32_t plain = c->n - c->n_tree;
    stage_open(c, &s);
    for (int32_t from = 0; from < plain; from += c->chunk) {
        step(c, &s, from, plain - from < c->chunk ? plain - from : c->chunk, NULL, out);
    }
    if (c->n_tree > 0) {
        step(c, &s, plain, c->n_tree, c->parents, out);
    }
    s.b->ops->close(s.b);
}

/* What index head h gives a key. */
static double score_of(const block_case *c, int32_t row, int32_t h, int32_t key) {
    double dot = 0.0;
    for (int32_t e = 0; e < INDEX; e++) {
        dot += (double)c->queries[row][h * INDEX + e] * (double)c->keys[key][e];
    }
    return dot;
}

/* The score of a block that row `row` may choose for a KV head. */
static double block_score(const block_case *c, int32_t row, int32_t head, int32_t block) {
    const int32_t first = block * c->block, last = first + c->block - 1;
    double score = -INFINITY;
    if (c->kind == CHOOSE_BLOCKS) {
        for (int32_t key = first; key <= last && key <= row; key++) {
            score = fmax(score, score_of(c, row, head, key));
        }
        return block > row / c->block - c->n_own ? INFINITY : score;
    }
    score = 0.0;
    for (int32_t h = 0; h < KV_HEADS; h++) {
        score += fmax(score_of(c, row, h, last), 0.0);
    }
    return score;
}

/* The keys of a row for a KV head by the definition. */
static void choose_naively(const block_case *c, int32_t row, int32_t head, bool *is_chosen) {
    const int32_t n_seen = row + 1,
                  n = c->kind == CHOOSE_BLOCKS ? (n_seen + c->block - 1) / c->block : n_seen / c->block;
    bool taken[TOKENS] = {false};
    for (int32_t i = 0; i < n && i < c->n_blocks; i++) {
        int32_t best = -1;
        for (int32_t k = 0; k < n; k++) {
            best = !taken[k] && (best < 0 || block_score(c, row, head, k) > block_score(c, row, head, best))
                       ? k
                       : best;
        }
        taken[best] = true;
    }
    for (int32_t key = 0; key <= row; key++) {
        is_chosen[key] = taken[key / c->block] || key / c->block >= n;
    }
}

static double worst_of(const block_case *c, float (*got)[HEADS * WIDTH]) {
    double worst = 0.0;
    for (int32_t row = 0; row < c->n; row += row < 40 ? 1 : 7) {
        for (int32_t h = 0; h < HEADS; h++) {
            const int32_t head = h / (HEADS / KV_HEADS);
            bool is_chosen[TOKENS];
            double sum = 0.0, out[WIDTH] = {0};
            choose_naively(c, row, head, is_chosen);
            for (int32_t j = 0; j <= row; j++) {
                double s = 0.0;
                for (int32_t e = 0; e < WIDTH; e++) {
                    s += (double)c->q[row][h * WIDTH + e] * (double)c->k[j][head * WIDTH + e];
                }
                const double w = is_chosen[j] ? exp(0.2 * s) : 0.0;
                sum += w;
                for (int32_t e = 0; e < WIDTH; e++) {
                    out[e] += w * (double)c->v[j][head * WIDTH + e];
                }
            }
            for (int32_t e = 0; e < WIDTH; e++) {
                worst = fmax(worst, fabs(out[e] / sum - (double)got[row][h * WIDTH + e]));
            }
        }
    }
    return worst;
}

static block_case c;
static float base[TOKENS][HEADS * WIDTH], other[TOKENS][HEADS * WIDTH];

static const struct {
    choose_kind kind;
    int32_t block, n_blocks, n_own;
} shapes[] = {{CHOOSE_BLOCKS, 8, 3, 1}, {CHOOSE_BLOCKS, 16, 2, 1}, {CHOOSE_BLOCKS, 1, 9, 1},
              {CHOOSE_BLOCKS, 5, 4, 2}, {CHOOSE_BLOCKS, 64, 2, 1}, {CHOOSE_BLOCKS, 8, 3, 0},
              {CHOOSE_POOLS, 4, 6, 0},  {CHOOSE_POOLS, 16, 3, 0},  {CHOOSE_POOLS, 2, 40, 0},
              {CHOOSE_POOLS, 4, 70, 0}};
#define N_SHAPES (int)(sizeof shapes / sizeof *shapes)

static void fill_shape(int i, uint64_t seed) {
    fill(&c, shapes[i].kind, shapes[i].block, shapes[i].n_blocks, seed);
    c.n_own = shapes[i].n_own;
}

TEST(rows_read_the_blocks_of_the_highest_scores) {
    for (int i = 0; i < N_SHAPES; i++) {
        fill_shape(i, 3);
        run(&c, base);
        if (worst_of(&c, base) >= 1e-5) {
            fail_msg("shape %d: %g", i, worst_of(&c, base));
        }
    }
}

TEST(of_equal_scores_the_earlier_blocks_are_read) {
    for (int i = 0; i < N_SHAPES; i++) {
        fill_shape(i, 4);
        memset(c.queries, 0, sizeof c.queries);
        run(&c, base);
        assert_true(worst_of(&c, base) < 1e-5);
    }
}

TEST(the_cut_of_the_work_shows_in_no_bit_of_blocks) {
    static const struct {
        int32_t page_tokens, n_threads, chunk;
    } ways[] = {{1, 1, TOKENS}, {4, 2, 7}, {16, 1, 1}, {64, 2, 100}, {256, 1, 64}};
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_I8, DTYPE_F8_E4M3, DTYPE_I4};
    for (int t = 0; t < 5 * N_SHAPES; t++) {
        fill_shape(t / 5, 5);
        c.type = types[t % 5];
        run(&c, base);
        for (int i = t % 3; i < N_MATH_ISAS * 5; i += 3) {
            c.isa = ISAS[i / 5];
            c.page_tokens = ways[i % 5].page_tokens;
            c.n_threads = ways[i % 5].n_threads;
            c.chunk = ways[i % 5].chunk;
            if (isa_is_here(c.isa)) {
                run(&c, other);
                if (!same_floats(&other[0][0], &base[0][0], TOKENS * HEADS * WIDTH)) {
                    fail_msg("shape %d, %s, %s, pages of %d, %d threads, chunks of %d", t / 5, c.isa,
                             dtype_name(c.type), c.page_tokens, c.n_threads, c.chunk);
                }
            }
        }
    }
}

/* A node of a draft tree reads the blocks that it would read if its ancestors stood in a
 * line. */
TEST(a_node_chooses_among_the_blocks_of_its_ancestors) {
    static const int32_t parents[] = {0, 0, 0, 1, 2, 3, 4};
    enum { PREFIX = 61, NODES = 7 };
    static block_case line;
    for (int i = 0; i < N_SHAPES; i++) {
        fill_shape(i, 6);
        c.n = PREFIX + NODES;
        c.n_tree = NODES;
        c.parents = parents;
        run(&c, base);
        for (int32_t node = 0; node < NODES; node++) {
            int32_t chain[NODES], n = 0;
            for (int32_t at = node; at > 0; at = parents[at]) {
                chain[n++] = at;
            }
            chain[n++] = 0;
            line = c;
            line.n = PREFIX + n;
            line.n_tree = 0;
            for (int32_t k = 0; k < n; k++) {
                const int32_t from = PREFIX + chain[n - 1 - k], to = PREFIX + k;
                memcpy(line.k[to], c.k[from], sizeof c.k[0]);
                memcpy(line.v[to], c.v[from], sizeof c.v[0]);
                memcpy(line.q[to], c.q[from], sizeof c.q[0]);
                memcpy(line.keys[to], c.keys[from], sizeof c.keys[0]);
                memcpy(line.queries[to], c.queries[from], sizeof c.queries[0]);
            }
            run(&line, other);
            if (!same_floats(other[PREFIX + n - 1], base[PREFIX + node], HEADS * WIDTH)) {
                fail_msg("shape %d, node %d", i, node);
            }
        }
    }
}

TEST_MAIN_ISAS
