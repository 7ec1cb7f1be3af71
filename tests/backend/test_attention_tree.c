/* Trees of drafts: a row that sees only its ancestors has the bits of the same tokens in
 * a sequence without branches. */
#include "backend/attention_case.h"

enum { MAX_NODES = 33, MAX_PREFIX = 520, HEADS = 6, KV_HEADS = 2, WIDTH = 24 };

/* A tree after `prefix` tokens: node i lies at place prefix + i. Node 0 is the first
 * row, of which the others descend. */
typedef struct tree_case {
    attention_case c;
    int32_t prefix, n, parents[MAX_NODES], depths[MAX_NODES];
    const char *mask; /* of c.mods */
} tree_case;

/* A tree to grow. */
typedef struct tree_shape {
    int32_t prefix, n;
    dtype type;
    attn_spec spec;
    const char *mask; /* NULL: none */
} tree_shape;

static void grow(tree_case *t, uint64_t *seed) {
    t->parents[0] = -1;
    t->depths[0] = 0;
    for (int32_t i = 1; i < t->n; i++) {
        bool goes_on = rng_next(seed) % 3 > 0;
        t->parents[i] = goes_on ? i - 1 : (int32_t)(rng_next(seed) % (uint64_t)i);
        t->depths[i] = t->depths[t->parents[i]] + 1;
    }
}

/* The row that node `node` gets when its ancestors stand in a line after the prefix. */
static void in_line(const tree_case *t, int32_t node, float *out) {
    static float q[(MAX_PREFIX + MAX_NODES) * HEADS * WIDTH], k[(MAX_PREFIX + MAX_NODES) * KV_HEADS * WIDTH],
        v[(MAX_PREFIX + MAX_NODES) * KV_HEADS * WIDTH];
    static float rows[(MAX_PREFIX + MAX_NODES) * HEADS * WIDTH];
    attention_case c = t->c;
    size_t q_row = (size_t)(c.n_heads * c.d_head), k_row = (size_t)(c.n_kv_heads * c.d_head);
    int32_t n = t->prefix + t->depths[node] + 1, place = t->prefix + node;
    c.lengths[0] = n;
    memcpy(q, c.q, (size_t)n * q_row * sizeof *q);
    memcpy(k, c.k, (size_t)n * k_row * sizeof *k);
    memcpy(v, c.v, (size_t)n * k_row * sizeof *v);
    for (int32_t p = n - 1, i = node; i >= 0; p--, i = t->parents[i], place = t->prefix + i) {
        memcpy(q + (size_t)p * q_row, c.q + (size_t)place * q_row, q_row * sizeof *q);
        memcpy(k + (size_t)p * k_row, c.k + (size_t)place * k_row, k_row * sizeof *k);
        memcpy(v + (size_t)p * k_row, c.v + (size_t)place * k_row, k_row * sizeof *v);
    }
    c.q = q;
    c.k = k;
    c.v = v;
    case_run_all(&c, rows);
    memcpy(out, rows + (size_t)(n - 1) * q_row, q_row * sizeof *out);
}

/* All nodes in one step, after a prefix that was computed before. */
static void as_tree(const tree_case *t, float *out) {
    static case_run r;
    static float rows[(MAX_PREFIX + MAX_NODES) * HEADS * WIDTH];
    attention_case c = t->c;
    size_t q_row = (size_t)(c.n_heads * c.d_head), k_row = (size_t)(c.n_kv_heads * c.d_head);
    int32_t positions[MAX_NODES];
    kv_slot slots[MAX_NODES];
    c.lengths[0] = t->prefix + t->n;
    case_open(&r, &c);
    case_step(&r, 0, 1, 0, t->prefix, rows);
    batch_seq seq = {.n_rows = t->n,
                     .n_tokens = t->prefix + t->n,
                     .parents = t->parents,
                     .mods = c.mods,
                     .pages = {r.pages[0]}};
    for (int32_t i = 0; i < t->n; i++) {
        int32_t place = t->prefix + i;
        positions[i] = t->prefix + t->depths[i];
        slots[i] =
            (kv_slot){(int64_t)r.pages[0][place / c.page_tokens] * c.page_tokens + place % c.page_tokens};
    }
    case_plan(&r, &seq, 1);
    batch step = {.n_rows = t->n,
                  .n_seqs = 1,
                  .positions = positions,
                  .n_axes = 1,
                  .slots = {slots},
                  .seqs = &seq,
                  .n_work = r.n_items,
                  .work = r.items,
                  .n_merges = r.n_merges,
                  .merges = r.merges,
                  .n_partials = r.n_partials};
    r.b->ops->step_begin(r.b, &step);
    r.b->ops->buffer_write(r.b, r.q, 0, t->n, c.q + (size_t)t->prefix * q_row);
    r.b->ops->buffer_write(r.b, r.k, 0, t->n, c.k + (size_t)t->prefix * k_row);
    r.b->ops->buffer_write(r.b, r.v, 0, t->n, c.v + (size_t)t->prefix * k_row);
    case_store(&r);
    r.b->ops->attention(r.b, CASE_LAYER, r.q, &c.spec, r.out);
    r.b->ops->step_wait(r.b);
    r.b->ops->buffer_read(r.b, r.out, 0, t->n, out);
    case_close(&r);
}

/* One tree with every instruction set, page size, tile and cut. */
static void check(tree_case *t) {
    static float wanted[MAX_NODES * HEADS * WIDTH], got[MAX_NODES * HEADS * WIDTH];
    size_t q_row = (size_t)(t->c.n_heads * t->c.d_head);
    for (int32_t i = 0; i < t->n; i++) {
        in_line(t, i, wanted + (size_t)i * q_row);
    }
    static const int32_t page_tokens[] = {1, 4, 8, 16, 64, 256}, tiles[] = {16, 3, 1000};
    for (int i = 0; i < N_MATH_ISAS; i++) {
        if (!isa_is_here(ISAS[i])) {
            continue;
        }
        for (int way = 0; way < 6; way++) {
            tree_case o = *t;
            o.c.isa = ISAS[i];
            o.c.page_tokens = page_tokens[way];
            o.c.tile_rows = tiles[way % 3];
            o.c.split = way % 2;
            o.c.n_threads = 1 + way % 2;
            memset(got, 0xff, sizeof got);
            as_tree(&o, got);
            for (int32_t node = 0; node < t->n; node++) {
                if (!same_floats(got + (size_t)node * q_row, wanted + (size_t)node * q_row, q_row)) {
                    fail_msg("%s, type %s, mask '%s', pages of %d, tiles of %d rows, split %d, behind %d "
                             "tokens: node %d of %d, depth %d",
                             ISAS[i], dtype_name(t->c.type), t->mask, o.c.page_tokens, o.c.tile_rows,
                             o.c.split, t->prefix, node, t->n, t->depths[node]);
                }
            }
        }
    }
}

static void check_shapes(const tree_shape *shapes, size_t n_shapes) {
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < n_shapes; i++) {
        size_t n = (size_t)(shapes[i].prefix + shapes[i].n);
        float *q = new_normals(n * HEADS * WIDTH, seed + 1), *k = new_normals(n * KV_HEADS * WIDTH, seed + 2),
              *v = new_normals(n * KV_HEADS * WIDTH, seed + 3);
        const char *mask = shapes[i].mask != NULL ? shapes[i].mask : "";
        attn_mods *mods = compile_mods(mask, "", NULL, 0);
        tree_case t = {.c = {.n_heads = HEADS,
                             .n_kv_heads = KV_HEADS,
                             .d_head = WIDTH,
                             .n_seqs = 1,
                             .type = shapes[i].type,
                             .spec = shapes[i].spec,
                             .mods = mods,
                             .q = q,
                             .k = k,
                             .v = v,
                             .isa = "plain",
                             .n_threads = 1,
                             .page_tokens = 16,
                             .tile_rows = 16},
                       .prefix = shapes[i].prefix,
                       .n = shapes[i].n,
                       .mask = mask};
        grow(&t, &seed);
        check(&t);
        attn_mods_drop(mods);
        free(q);
        free(k);
        free(v);
    }
}

TEST(a_row_in_a_tree_has_the_bits_of_its_branch_in_a_line) {
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f, 0.3f, 0.2f},
                       sinks[] = {0.5f, -1.0f, 3.0f, 0.0f, 0.1f, 0.2f};
    static const tree_shape shapes[] = {
        {1, 6, DTYPE_F32, {.scale = 0.3f, .causal = true}, NULL},
        {13, 33, DTYPE_F32, {.scale = 0.3f, .causal = true}, NULL},
        /* the tree lies on both sides of a chunk's end */
        {250, 20, DTYPE_F16, {.scale = 0.3f, .causal = true}, NULL},
        {256, 9, DTYPE_BF16, {.scale = 0.3f, .causal = true, .soft_cap = 2.0f, .alibi_slopes = slopes}, NULL},
        /* ancestors fall behind the window */
        {505, 33, DTYPE_BF16, {.scale = 0.3f, .causal = true, .window = 5, .sinks = sinks}, NULL},
        {30, 33, DTYPE_I8, {.scale = 0.3f, .causal = true}, NULL},
        {247, 33, DTYPE_I8, {.scale = 0.3f, .causal = true, .sinks = sinks}, NULL},
        {508, 20, DTYPE_I8, {.scale = 0.3f, .causal = true, .window = 6, .alibi_slopes = slopes}, NULL},
    };
    check_shapes(shapes, sizeof shapes / sizeof *shapes);
}

/* Nobody reads the blocks between the keys that a mask leaves and the tree: none were
 * found for them. */
TEST(a_row_in_a_tree_under_a_mask_has_the_bits_of_its_branch_in_a_line) {
    static const tree_shape shapes[] = {
        {40, 33, DTYPE_F32, {.scale = 0.3f, .causal = true}, "kv_idx < 8"},
        {44, 20, DTYPE_I8, {.scale = 0.3f, .causal = true}, "kv_idx < 8"},
        {40, 33, DTYPE_F16, {.scale = 0.3f, .causal = true}, "q_idx - kv_idx > 20"},
        {250, 33, DTYPE_BF16, {.scale = 0.3f, .causal = true}, "kv_idx < 8 || q_idx - kv_idx < 3"},
        {45, 33, DTYPE_I8, {.scale = 0.3f, .causal = true}, "(q_idx - kv_idx) % 3 == 0"}};
    check_shapes(shapes, sizeof shapes / sizeof *shapes);
}

TEST_MAIN_ISAS
