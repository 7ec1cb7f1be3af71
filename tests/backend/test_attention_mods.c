/* Programs that mask or change scores inside the paged kernel. They have the bits of the
 * layer's own masks for the same keys, the same bits on every instruction set however the
 * work is cut, and the values of their definition. */
#include "backend/attention_fixture.h"
#include "backend/cpu/attention_tile.h"

static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I8};

/* ---- the layer's own masks ---- */

/* The rows under `spec` alone, and under `with` and a mask, on every instruction set:
 * equal bits. A call takes two types and one cut, and the next call others; with
 * QUIRE_TEST_LONG each takes all. */
static void check_same_bits(attn_spec spec, attn_spec with, const char *mask) {
    static size_t n_calls;
    n_calls++;
    bool all = getenv("QUIRE_TEST_LONG") != NULL;
    attn_mods *mods = compile_mods(mask, "", NULL, 0);
    for (size_t t = all ? 0 : n_calls % 2; t < 4; t += all ? 1 : 2) {
        attention_case c = base_case();
        fixture f;
        c.type = types[t];
        c.spec = spec;
        fixture_fill(&f, c);
        case_run_all(&f.c, f.base);
        c.spec = with;
        c.mods = mods;
        for (int i = 0; i < N_MATH_ISAS; i++) {
            if (!isa_is_here(ISAS[i])) {
                continue;
            }
            /* page, tile, split, step */
            static const int32_t ways[][4] = {{16, 16, 0, 0}, {4, 5, 0, 100}, {32, 1000, 1, 0}};
            for (size_t w = all ? 0 : (n_calls + t + (size_t)i) % 3; w < 3; w += all ? 1 : 3) {
                attention_case o = c;
                o.isa = ISAS[i];
                o.n_threads = 2;
                o.page_tokens = ways[w][0];
                o.tile_rows = ways[w][1];
                o.split = with.causal ? ways[w][2] : 0;
                o.chunk = with.causal ? ways[w][3] : 0;
                check_same(&f, &o);
            }
        }
        fixture_free(&f);
    }
    attn_mods_drop(mods);
}

TEST(a_mask_has_the_bits_of_the_layers_own_for_the_same_keys) {
    const attn_spec full = {.scale = 0.3f}, causal = {.scale = 0.3f, .causal = true};
    attn_spec window = causal, chunks = causal, two_sided = full;
    window.window = 70;
    chunks.chunk = 100;
    two_sided.window = 40;
    check_same_bits(full, full, "1");
    check_same_bits(causal, full, "q_idx >= kv_idx");
    check_same_bits(causal, causal, "kv_idx >= 0");
    check_same_bits(window, full, "q_idx >= kv_idx && q_idx - kv_idx < 70");
    check_same_bits(window, causal, "q_idx - kv_idx < 70");
    check_same_bits(window, window, "q_idx - kv_idx < 300");
    check_same_bits(chunks, full, "q_idx >= kv_idx && q_idx / 100 == kv_idx / 100");
    check_same_bits(two_sided, full, "abs(q_idx - kv_idx) < 40");
}

/* Sinks, caps and slopes of the layer beside a mask. */
TEST(a_mask_goes_with_all_that_a_layer_does) {
    static const float sinks[4] = {0.5f, -1.0f, 2.0f, 0.0f}, slopes[4] = {0.5f, 0.25f, 0.125f, 0.0625f};
    const attn_spec with = {
        .scale = 0.3f, .causal = true, .soft_cap = 5.0f, .sinks = sinks, .alibi_slopes = slopes};
    attn_spec spec = with;
    spec.window = 33;
    check_same_bits(spec, with, "q_idx - kv_idx < 33");
}

/* ---- masks with gaps ---- */

static bool sees_every_third(int32_t row, int32_t key, int32_t head, int32_t seq) {
    (void)head;
    (void)seq;
    return key <= row && (row - key) % 3 == 0;
}
static bool sees_by_head(int32_t row, int32_t key, int32_t head, int32_t seq) {
    (void)seq;
    return key <= row && head != 1 && (key % 4 == head || row - key < 3);
}
static bool sees_by_sequence(int32_t row, int32_t key, int32_t head, int32_t seq) {
    (void)head;
    return key <= row && (key < 100 * seq || key % 5 == seq);
}
static bool sees_noise(int32_t row, int32_t key, int32_t head, int32_t seq) {
    (void)head;
    (void)seq;
    return ((uint32_t)row * 2654435761u ^ (uint32_t)key * 40503u) >> 7 & 1;
}

static const struct {
    const char *mask;
    bool (*sees)(int32_t row, int32_t key, int32_t head, int32_t seq);
    bool causal;
} gapped[] = {
    {"(q_idx - kv_idx) % 3 == 0", sees_every_third, true},
    {"h != 1 && (kv_idx % n_heads == h || q_idx - kv_idx < 3)", sees_by_head, true},
    {"kv_idx < from[b] || kv_idx % 5 == b", sees_by_sequence, true},
    {"((q_idx * 2654435761 & 4294967295 ^ kv_idx * 40503 & 4294967295) >> 7) & 1", sees_noise, false}};

TEST(masks_with_gaps_are_the_definition_and_the_same_bits_everywhere) {
    static const int32_t from[] = {0, 100, 200, 300};
    const attn_array array = {.name = "from", .n_dims = 1, .dims = {4}, .data = from};
    for (size_t g = 0; g < sizeof gapped / sizeof *gapped; g++) {
        attention_case c = base_case();
        c.spec.causal = gapped[g].causal;
        c.sees = gapped[g].sees;
        c.mods = compile_mods(gapped[g].mask, "", &array, 1);
        for (size_t t = 0; t < 4; t += 3) {
            fixture f;
            c.type = types[t];
            fixture_fill(&f, c);
            case_run_all(&f.c, f.base);
            double worst = worst_difference(&f.c, f.base);
            if (!(worst < (c.type == DTYPE_I8 ? 0.2 : 2e-5))) {
                fail_msg("%s: off by %g", gapped[g].mask, worst);
            }
            fixture_free(&f);
            check_every_way(&c);
        }
        attn_mods_drop((attn_mods *)(uintptr_t)c.mods);
    }
}

/* ---- the map ---- */

/* An array with a number for each head of a layer is read at these heads only, whatever
 * else buffers are wide enough for: the chunks behind the widest window are known. */
TEST(chunks_that_the_windows_of_all_heads_leave_out_are_skipped) {
    static const int32_t windows[4] = {64, 128, 32, 16};
    const attn_array array = {.name = "win", .n_dims = 1, .dims = {4}, .data = windows};
    attn_mods *mods = compile_mods("q_idx - kv_idx < win[h]", "", &array, 1);
    const int32_t last = 2000;
    const batch_seq seq = {.n_rows = 1, .n_tokens = last + 1, .mods = mods};
    const attn_item item = {.n_rows = 1, .n_chunks = 8, .partial = ATTN_WHOLE};
    const batch step = {
        .n_rows = 1, .n_seqs = 1, .positions = &last, .n_axes = 1, .seqs = &seq, .n_work = 1, .work = &item};
    model_desc d = desc_plain(1, 4, 2, 16, 0);
    step_limits limits = {.max_rows = 1, .max_seqs = 1};
    kv_layout layout;
    quire_error err;
    backend *b = open_isa("plain", 1);
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_F32), 16, &layout, &err), QUIRE_OK);
    (void)b->ops->buffer_reserve(b, 4 * 16);
    (void)b->ops->buffer_reserve(b, 32 * 16); /* a feed-forward part's */
    desc_heads(&d, &limits.fewest_heads, &limits.most_heads);
    assert_int_equal(b->ops->step_open(b, &limits, &layout, 0, &err), QUIRE_OK);
    b->ops->step_begin(b, &step);
    const attn_map *map = &((cpu_backend *)b)->attention_state->map;
    assert_int_equal(map->n_items, 1);
    assert_int_equal(map->items[0].first, 7);
    assert_int_equal(map->items[0].end, 8);
    b->ops->step_wait(b);
    b->ops->close(b);
    attn_mods_drop(mods);
}

/* ---- scores ---- */

TEST(changes_of_scores_are_the_definition_and_the_same_bits_everywhere) {
    static const float slopes[4] = {0.5f, 0.25f, 0.125f, 0.0625f};
    const attn_array array = {.name = "slope", .is_float = true, .n_dims = 1, .dims = {4}, .data = slopes};
    attention_case c = base_case();
    fixture f;
    c.mods = compile_mods("", "tanh(score / 5) * 5 + slope[h] * (kv_idx - q_idx)", &array, 1);
    fixture_fill(&f, c);
    case_run_all(&f.c, f.base);
    f.c.spec.soft_cap = 5.0f;
    f.c.spec.alibi_slopes = slopes;
    double worst = worst_difference(&f.c, f.base);
    if (!(worst < 2e-5)) {
        fail_msg("off by %g", worst);
    }
    fixture_free(&f);
    check_every_way(&c);
    c.type = DTYPE_I8;
    check_every_way(&c);
    attn_mods_drop((attn_mods *)(uintptr_t)c.mods);
}

/* Scores of -infinity hide a key, whole chunks of them too. */
TEST(a_key_whose_score_becomes_minus_infinity_is_not_seen) {
    attention_case c = base_case(), masked = c;
    fixture f;
    c.mods = compile_mods("", "kv_idx < 300 && kv_idx > 2 ? log(0.0) : score", NULL, 0);
    masked.mods = compile_mods("kv_idx >= 300 || kv_idx <= 2", "", NULL, 0);
    fixture_fill(&f, masked);
    case_run_all(&f.c, f.base);
    check_same(&f, &c);
    for (int i = 1; i < N_MATH_ISAS; i++) {
        c.isa = ISAS[i];
        if (isa_is_here(c.isa)) {
            check_same(&f, &c);
        }
    }
    fixture_free(&f);
    attn_mods_drop((attn_mods *)(uintptr_t)c.mods);
    attn_mods_drop((attn_mods *)(uintptr_t)masked.mods);
}

/* ---- nothing, NaN, faults ---- */

TEST(a_row_that_sees_nothing_gives_zeros_and_a_hidden_nan_is_not_touched) {
    for (int i = 0; i < N_MATH_ISAS; i++) {
        attention_case c = base_case();
        fixture f;
        if (!isa_is_here(ISAS[i])) {
            continue;
        }
        c.isa = ISAS[i];
        c.mods = compile_mods("kv_idx % 2 == 0 && q_idx != 30", "", NULL, 0);
        fixture_fill(&f, c);
        size_t k_row = (size_t)(c.n_kv_heads * c.d_head), row = (size_t)(c.n_heads * c.d_head);
        for (size_t e = 0; e < k_row; e++) {
            f.k[5 * k_row + e] = f.v[5 * k_row + e] = NAN; /* position 5 of the first sequence */
            f.v[7 * k_row + e] = INFINITY;
        }
        case_run_all(&f.c, f.base);
        for (size_t e = 0; e < 37 * row; e++) {
            assert_true(isfinite(f.base[e]));
            assert_true(e / row != 30 || f.base[e] == 0.0f);
        }
        assert_true(f.base[6 * row] != 0.0f);
        fixture_free(&f);
        attn_mods_drop((attn_mods *)(uintptr_t)c.mods);
    }
}

/* Faults are those of the rows at keys that they see, whatever they are computed with. */
TEST(a_fault_is_its_rows_alone) {
    static const int32_t doc[30] = {0};
    const attn_array array = {.name = "doc", .n_dims = 1, .dims = {30}, .data = doc};
    static const struct {
        const char *mask, *score;
        unsigned at_35, at_20, at_8;
    } cases[] = {
        {"doc[q_idx] == 0", "", ATTN_FAULT_INDEX, 0, 0},
        {"doc[kv_idx] == 0", "", ATTN_FAULT_INDEX, 0, 0},
        {"100 / (q_idx - 20) < 1000", "", 0, ATTN_FAULT_DIVISION, 0},
        {"", "score + 1 / (q_idx - kv_idx - 8)", ATTN_FAULT_DIVISION, ATTN_FAULT_DIVISION,
         ATTN_FAULT_DIVISION},
        {"q_idx - kv_idx < 5", "score + 1 / (q_idx - kv_idx - 8)", 0, 0, 0},
        {"q_idx != 8", "score + 1 / (q_idx - kv_idx - 8)", ATTN_FAULT_DIVISION, ATTN_FAULT_DIVISION, 0},
        {"", "kv_idx < 30 ? score + doc[kv_idx] : score", 0, 0, 0},
        {"", "q_idx == 35 ? 0.0 / 0.0 : score", ATTN_FAULT_SCORE, 0, 0},
        {"kv_idx > 5", "kv_idx < 5 ? log(-1.0) : kv_idx == 20 ? exp(1000.0) : score", ATTN_FAULT_SCORE,
         ATTN_FAULT_SCORE, 0},
        {"", "kv_idx % 2 ? log(0.0) : score", 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int isa = 0; isa < N_MATH_ISAS; isa++) {
            for (int32_t chunk = 0; chunk < 8 && isa_is_here(ISAS[isa]); chunk += 7) {
                attention_case c = base_case();
                fixture f;
                c.n_seqs = 1; /* of 37 tokens */
                c.isa = ISAS[isa];
                c.chunk = chunk;
                c.mods = compile_mods(cases[i].mask, cases[i].score, &array, 1);
                fixture_fill(&f, c);
                f.c.faults = calloc(37, sizeof *f.c.faults);
                case_run_all(&f.c, f.base);
                assert_int_equal(atomic_load(&f.c.faults[35]), cases[i].at_35);
                assert_int_equal(atomic_load(&f.c.faults[20]), cases[i].at_20);
                assert_int_equal(atomic_load(&f.c.faults[8]), cases[i].at_8);
                assert_int_equal(atomic_load(&f.c.faults[0]), 0);
                free(f.c.faults);
                fixture_free(&f);
                attn_mods_drop((attn_mods *)(uintptr_t)c.mods);
            }
        }
    }
}

/* ---- paging as a mask ---- */

enum { POOL_SEQS = 3, POOL_PAGE = 16, POOL_PAGES = 20 };

static int32_t owner[POOL_PAGES * POOL_PAGE], position[POOL_PAGES * POOL_PAGE], row_seq[POOL_SEQS],
    row_position[POOL_SEQS];

/* Says of each slot whose token it holds, and of each row which sequence's last it is.
 * Lists the pool's pages, and gives their number. */
static int32_t describe_pool(const attention_case *c, const case_run *r, int32_t *pool) {
    int32_t n_pages = 0;
    for (int32_t i = 0; i < POOL_PAGES * POOL_PAGE; i++) {
        owner[i] = -1;
        pool[i / POOL_PAGE] = i / POOL_PAGE;
    }
    for (int32_t s = 0; s < POOL_SEQS; s++) {
        for (int32_t p = 0; p < c->lengths[s]; p++) {
            int32_t slot = r->pages[s][p / POOL_PAGE] * POOL_PAGE + p % POOL_PAGE;
            owner[slot] = s;
            position[slot] = p;
        }
        n_pages += (int32_t)kv_pages_for(c->lengths[s], POOL_PAGE);
        row_seq[s] = s;
        row_position[s] = c->lengths[s] - 1;
    }
    return n_pages;
}

/* Several sequences' last rows against the whole pool in physical order: ids and
 * positions as arrays say which slots a row sees. The answers are those of block
 * tables. */
TEST(a_pool_in_physical_order_with_ids_as_arrays_is_block_tables) {
    attention_case c = base_case();
    fixture f;
    c.n_seqs = POOL_SEQS;
    memcpy(c.lengths, (int32_t[]){37, 140, 90}, sizeof(int32_t[3]));
    for (int isa = 0; isa < N_MATH_ISAS; isa++) {
        static case_run r;
        if (!isa_is_here(ISAS[isa])) {
            continue;
        }
        c.isa = ISAS[isa];
        fixture_fill(&f, c);
        case_open(&r, &f.c);
        case_step(&r, 0, POOL_SEQS, 0, 140, f.base); /* fills the pages, and gives what block tables give */
        int32_t pool[POOL_PAGES], at[POOL_SEQS] = {0, 1, 2}, n_pages = describe_pool(&c, &r, pool);
        const attn_array arrays[] = {
            {.name = "owner", .n_dims = 1, .dims = {n_pages * POOL_PAGE}, .data = owner},
            {.name = "position", .n_dims = 1, .dims = {n_pages * POOL_PAGE}, .data = position},
            {.name = "row_seq", .n_dims = 1, .dims = {POOL_SEQS}, .data = row_seq},
            {.name = "row_position", .n_dims = 1, .dims = {POOL_SEQS}, .data = row_position}};
        attn_mods *mods = compile_mods(
            "owner[kv_idx] == row_seq[q_idx] && position[kv_idx] <= row_position[q_idx]", "", arrays, 4);
        const batch_seq all = {
            .n_rows = POOL_SEQS, .n_tokens = n_pages * POOL_PAGE, .mods = mods, .pages = {pool}};
        const attn_item item = {.n_rows = POOL_SEQS,
                                .n_chunks = (all.n_tokens + ATTN_CHUNK - 1) / ATTN_CHUNK,
                                .partial = ATTN_WHOLE};
        batch step = {.n_rows = POOL_SEQS,
                      .n_seqs = 1,
                      .positions = at,
                      .n_axes = 1,
                      .seqs = &all,
                      .n_work = 1,
                      .work = &item};
        const attn_spec spec = {.scale = c.spec.scale};
        size_t row = (size_t)(c.n_heads * c.d_head);
        r.b->ops->step_begin(r.b, &step);
        for (int32_t s = 0; s < POOL_SEQS; s++) {
            r.b->ops->buffer_write(r.b, r.q, s, 1, f.q + (size_t)(r.first[s] + c.lengths[s] - 1) * row);
        }
        r.b->ops->attention(r.b, CASE_LAYER, r.q, &spec, r.out);
        r.b->ops->step_wait(r.b);
        r.b->ops->buffer_read(r.b, r.out, 0, POOL_SEQS, f.other);
        for (int32_t s = 0; s < POOL_SEQS; s++) {
            for (size_t e = 0; e < row; e++) {
                float want = f.base[(size_t)(r.first[s] + c.lengths[s] - 1) * row + e];
                assert_true(fabsf(f.other[(size_t)s * row + e] - want) < 2e-6f);
            }
        }
        attn_mods_drop(mods);
        case_close(&r);
        fixture_free(&f);
    }
}

TEST_MAIN_ISAS
