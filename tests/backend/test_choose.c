/* Rows that select the keys they read: compared with a naive selection in double, with
 * ties by position, for trees of drafts, and the same bits however the work is cut. */
#include "backend/isas.h"

#include <math.h>

enum { HEADS = 5, RANK = 16, LATENT = 24, INDEX_HEADS = 3, INDEX = 12, TOKENS = 300, BEST = 20 };

/* Rows of TOKENS tokens, and how they are computed. */
typedef struct choice_case {
    float latents[TOKENS][LATENT], q[TOKENS][HEADS * LATENT], keys[TOKENS][INDEX],
        queries[TOKENS][INDEX_HEADS * INDEX], weights[TOKENS][INDEX_HEADS];
    const char *isa;
    dtype type;
    int32_t n, n_best, page_tokens, n_threads, chunk;
    const int32_t *parents; /* of a last step of n_tree rows, or NULL */
    int32_t n_tree;
} choice_case;

static void fill(choice_case *c, uint64_t seed) {
    float *all = &c->latents[0][0];
    for (size_t i = 0; i < offsetof(choice_case, isa) / sizeof *all; i++) {
        all[i] = random_normal(&seed);
    }
    c->isa = "plain";
    c->type = DTYPE_F32;
    c->n = TOKENS;
    c->n_best = BEST;
    c->page_tokens = 16;
    c->n_threads = 1;
    c->chunk = TOKENS;
}

typedef struct stage {
    backend *b;
    kv_layout layout;
    buffer latent, q, out, key, query, weights;
    int32_t pages[TOKENS];
} stage;

static void stage_open(const choice_case *c, stage *s) {
    quire_error err;
    model_desc d = desc_plain(2, HEADS, 1, LATENT, 0);
    d.caches[0] = (cache_desc){.kind = LAYER_LATENT, .d_latent = LATENT};
    d.caches[1] = (cache_desc){.kind = LAYER_LATENT, .d_latent = INDEX};
    *s = (stage){.b = open_isa(c->isa, c->n_threads)};
    assert_non_null(s->b);
    assert_int_equal(kv_layout_init(&d, kv_both(c->type), c->page_tokens, &s->layout, &err), QUIRE_OK);
    assert_int_equal(s->layout.n_groups, 1);
    const backend_ops *op = s->b->ops;
    s->latent = op->buffer_reserve(s->b, LATENT);
    s->q = op->buffer_reserve(s->b, HEADS * LATENT);
    s->out = op->buffer_reserve(s->b, HEADS * RANK);
    s->key = op->buffer_reserve(s->b, INDEX);
    s->query = op->buffer_reserve(s->b, INDEX_HEADS * INDEX);
    s->weights = op->buffer_reserve(s->b, INDEX_HEADS);
    op->choose_reserve(s->b, 1, c->n_best);
    int32_t n_pages = (int32_t)kv_pages_for(TOKENS, c->page_tokens);
    assert_int_equal(
        op->step_open(s->b, &(step_limits){.max_rows = TOKENS, .max_seqs = 1}, &s->layout, 0, &err),
        QUIRE_OK);
    assert_int_equal(op->kv_open(s->b, n_pages, &err), QUIRE_OK);
    for (int32_t i = 0; i < n_pages; i++) {
        s->pages[i] = n_pages - 1 - i;
    }
}

/* Rows from..from + n in one step: out[from..]. */
static void step(const choice_case *c, stage *s, int32_t from, int32_t n, const int32_t *parents,
                 float (*out)[HEADS * RANK]) {
    static int32_t positions[TOKENS];
    static kv_slot slots[TOKENS];
    static attn_item work[TOKENS];
    const backend_ops *op = s->b->ops;
    batch_seq seq = {.n_rows = n, .n_tokens = from + n, .parents = parents, .pages = {s->pages}};
    for (int32_t i = 0; i < n; i++) {
        const int32_t at = from + i;
        positions[i] = parents == NULL ? at : i == 0 ? from : positions[parents[i]] + 1;
        slots[i] = (kv_slot){(int64_t)s->pages[at / c->page_tokens] * c->page_tokens + at % c->page_tokens};
    }
    batch step = {.n_rows = n,
                  .n_seqs = 1,
                  .positions = positions,
                  .n_axes = 1,
                  .slots = {slots},
                  .seqs = &seq,
                  .n_work = batch_plan_work(&seq, 1, 16, work, TOKENS),
                  .work = work};
    op->step_begin(s->b, &step);
    op->buffer_write(s->b, s->latent, 0, n, c->latents[from]);
    op->buffer_write(s->b, s->q, 0, n, c->q[from]);
    op->buffer_write(s->b, s->key, 0, n, c->keys[from]);
    op->buffer_write(s->b, s->query, 0, n, c->queries[from]);
    op->buffer_write(s->b, s->weights, 0, n, c->weights[from]);
    op->latent_store(
        s->b, &(latent_store_use){
                  .cache = 1, .latent = s->key, .q = s->query, .n_heads = INDEX_HEADS, .latent_scale = 1.0f});
    op->choose(s->b, &(choose_use){.cache = 1,
                                   .q = s->query,
                                   .weights = s->weights,
                                   .n_heads = INDEX_HEADS,
                                   .scale = 0.25f,
                                   .n_best = c->n_best});
    op->latent_store(
        s->b, &(latent_store_use){
                  .latent = s->latent, .rank = RANK, .q = s->q, .n_heads = HEADS, .latent_scale = 1.0f});
    op->attention(s->b, 0, s->q, &(attn_spec){.scale = 0.2f, .causal = true, .chosen = true}, s->out);
    op->step_wait(s->b);
    op->buffer_read(s->b, s->out, 0, n, out[from]);
}

static void run(const choice_case *c, float (*out)[HEADS * RANK]) {
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

/* The keys of a row by the definition. */
static int32_t choose_naively(const choice_case *c, int32_t row, bool *is_chosen) {
    double scores[TOKENS];
    for (int32_t j = 0; j <= row; j++) {
        scores[j] = 0.0;
        for (int32_t h = 0; h < INDEX_HEADS; h++) {
            double dot = 0.0;
            for (int32_t e = 0; e < INDEX; e++) {
                dot += (double)c->queries[row][h * INDEX + e] * (double)c->keys[j][e];
            }
            scores[j] += (double)c->weights[row][h] * fmax(dot, 0.0);
        }
        is_chosen[j] = false;
    }
    int32_t n = 0;
    for (; n < c->n_best && n <= row; n++) {
        int32_t best = -1;
        for (int32_t j = 0; j <= row; j++) {
            best = !is_chosen[j] && (best < 0 || scores[j] > scores[best]) ? j : best;
        }
        is_chosen[best] = true;
    }
    return n;
}

static double worst_of(const choice_case *c, float (*got)[HEADS * RANK]) {
    double worst = 0.0;
    for (int32_t row = 0; row < c->n; row++) {
        bool is_chosen[TOKENS];
        choose_naively(c, row, is_chosen);
        for (int32_t h = 0; h < HEADS; h++) {
            double sum = 0.0, out[RANK] = {0};
            for (int32_t j = 0; j <= row; j++) {
                double s = 0.0;
                for (int32_t e = 0; e < LATENT; e++) {
                    s += (double)c->q[row][h * LATENT + e] * (double)c->latents[j][e];
                }
                const double w = is_chosen[j] ? exp(0.2 * s) : 0.0;
                sum += w;
                for (int32_t e = 0; e < RANK; e++) {
                    out[e] += w * (double)c->latents[j][e];
                }
            }
            for (int32_t e = 0; e < RANK; e++) {
                worst = fmax(worst, fabs(out[e] / sum - (double)got[row][h * RANK + e]));
            }
        }
    }
    return worst;
}

static choice_case c;
static float base[TOKENS][HEADS * RANK], other[TOKENS][HEADS * RANK];

TEST(rows_read_the_keys_of_the_highest_scores) {
    fill(&c, 3);
    run(&c, base);
    assert_true(worst_of(&c, base) < 1e-5);
    c.n_best = 280; /* more than a chunk, and than most rows see */
    run(&c, base);
    assert_true(worst_of(&c, base) < 1e-5);
}

TEST(of_equal_scores_the_earlier_keys_are_read) {
    fill(&c, 4);
    memset(c.weights, 0, sizeof c.weights);
    run(&c, base);
    assert_true(worst_of(&c, base) < 1e-5);
}

TEST(the_cut_of_the_work_shows_in_no_bit) {
    static const struct {
        int32_t page_tokens, n_threads, chunk;
    } ways[] = {{1, 1, TOKENS}, {4, 2, 7}, {16, 1, 1}, {64, 2, 100}, {256, 1, 64}};
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I8, DTYPE_F8_E4M3, DTYPE_I4};
    for (int t = 0; t < 6; t++) {
        fill(&c, 5);
        c.type = types[t];
        run(&c, base);
        for (int i = 0; i < N_MATH_ISAS * 5; i++) {
            c.isa = ISAS[i / 5];
            c.page_tokens = ways[i % 5].page_tokens;
            c.n_threads = ways[i % 5].n_threads;
            c.chunk = ways[i % 5].chunk;
            if (isa_is_here(c.isa)) {
                run(&c, other);
                if (!same_floats(&other[0][0], &base[0][0], TOKENS * HEADS * RANK)) {
                    fail_msg("%s, %s, pages of %d, %d threads, chunks of %d", c.isa, dtype_name(c.type),
                             c.page_tokens, c.n_threads, c.chunk);
                }
            }
        }
    }
}

/* A node of a draft tree reads what it would read if its ancestors stood in a line. */
TEST(a_node_chooses_among_its_ancestors) {
    static const int32_t parents[] = {0, 0, 0, 1, 2};
    enum { PREFIX = 50, NODES = 5 };
    static choice_case line;
    fill(&c, 6);
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
        for (int32_t i = 0; i < n; i++) {
            const int32_t from = PREFIX + chain[n - 1 - i], to = PREFIX + i;
            memcpy(line.latents[to], c.latents[from], sizeof c.latents[0]);
            memcpy(line.q[to], c.q[from], sizeof c.q[0]);
            memcpy(line.keys[to], c.keys[from], sizeof c.keys[0]);
            memcpy(line.queries[to], c.queries[from], sizeof c.queries[0]);
            memcpy(line.weights[to], c.weights[from], sizeof c.weights[0]);
        }
        run(&line, other);
        assert_true(same_floats(other[PREFIX + n - 1], base[PREFIX + node], HEADS * RANK));
    }
    c.n_tree = 0;
}

TEST_MAIN_ISAS
