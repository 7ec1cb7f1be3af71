/* A model quantised while it is loaded computes, describes itself and packs like a GGUF
 * file with the same blocks. */
#include "run_model.h"

#include <math.h>

#include "core/half.h"
#include "core/quant.h"
#include "core/quantise.h"
#include "file/packed_files.h"

enum { WIDTH = 256, FF = 320, NARROW = 48, N_VOCAB = 40, N_EXPERTS = 2 };

/* What a matrix gets: of rows of whole blocks of 256; of 320, which are blocks of 32
 * only; the head and the table of embeddings. */
typedef struct mix {
    const char *name;
    dtype to, rows_320, ends;
} mix;

static const mix mixes[] = {
    {"q8_0", DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0},   {"q6_k", DTYPE_Q6_K, DTYPE_Q8_0, DTYPE_Q8_0},
    {"q5_k", DTYPE_Q5_K, DTYPE_Q5_1, DTYPE_Q6_K},   {"q4_k", DTYPE_Q4_K, DTYPE_Q5_0, DTYPE_Q6_K},
    {"q4_0", DTYPE_Q4_0, DTYPE_Q4_0, DTYPE_Q6_K},   {"iq4_xs", DTYPE_IQ4_XS, DTYPE_IQ4_NL, DTYPE_Q6_K},
    {"mxfp4", DTYPE_MXFP4, DTYPE_MXFP4, DTYPE_Q6_K}};

#define N_MIXES (sizeof mixes / sizeof *mixes)

static uint32_t ggml_number(dtype type) {
    uint32_t i = 0;
    for (dtype t = N_DTYPES; !(dtype_from_ggml(i, &t) && t == type); i++) {
    }
    return i;
}

/* Two layers of width 256 with feed-forward rows of 320, or of 48. */
static void plan_wide(model_plan *p, uint64_t ff, bool is_tied) {
    plan_llama(p);
    set_u32(p, "llama.embedding_length", WIDTH);
    set_u32(p, "llama.feed_forward_length", (uint32_t)ff);
    for (int i = 0; i < p->n_tensors; i++) {
        tensor_entry *t = &p->tensors[i];
        const bool is_kv = strstr(t->name, "attn_k.") != NULL || strstr(t->name, "attn_v.") != NULL;
        t->dims[0] = strncmp(t->name, "token", 5) == 0 ? N_VOCAB : is_kv ? WIDTH / 2 : WIDTH;
        t->dims[0] =
            strstr(t->name, "ffn_up") != NULL || strstr(t->name, "ffn_gate") != NULL ? ff : t->dims[0];
        t->dims[1] = t->n_dims < 2 ? 0 : strstr(t->name, "ffn_down") != NULL ? ff : WIDTH;
    }
    if (!is_tied) {
        set_tensor(p, "output.weight", N_VOCAB, WIDTH);
    }
}

/* Makes the second layer's feed-forward a mixture of stacked experts. */
static void add_experts(model_plan *p) {
    static const char *const parts[] = {"gate", "up", "down"};
    set_u32(p, "llama.expert_count", N_EXPERTS);
    set_u32(p, "llama.expert_used_count", N_EXPERTS);
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.ffn_%s.weight", layer, parts[i]);
            drop_tensor(p, name);
            snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", layer, parts[i]);
            tensor_entry *t = tensor_of(p, name);
            t->n_dims = 3;
            memcpy(t->dims, (uint64_t[4]){N_EXPERTS, i == 2 ? WIDTH : FF, i == 2 ? FF : WIDTH},
                   sizeof t->dims);
        }
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
        set_tensor(p, name, N_EXPERTS, WIDTH);
    }
}

/* Random weights in the given type of floats: owned by the plan. */
static void fill_floats(model_plan *p, dtype type) {
    uint64_t seed = 44;
    for (int i = 0; i < p->n_tensors; i++) {
        tensor_entry *t = &p->tensors[i];
        const size_t n = plan_elements(t);
        float *x = malloc(n * sizeof *x);
        for (size_t k = 0; k < n; k++) {
            x[k] = t->n_dims == 1 ? 1.0f : ((float)(rng_next(&seed) % 2001) - 1000.0f) * 1e-4f;
        }
        const dtype own = t->n_dims == 1 ? DTYPE_F32 : type;
        t->type = ggml_number(own);
        t->n_bytes = n * (size_t)dtype_block_bytes(own);
        void *data = malloc(t->n_bytes);
        assert_int_equal(quant_quantise(own, x, n, data), QUIRE_OK);
        t->data = data;
        free(x);
    }
}

/* The same plan with the blocks that the mix says. */
static model_plan as_blocks(const model_plan *floats, const mix *m) {
    model_plan p = *floats;
    for (int i = 0; i < p.n_tensors; i++) {
        tensor_entry *t = &p.tensors[i];
        const bool is_end =
            strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "output.weight") == 0;
        const uint64_t width = t->dims[t->n_dims - 1];
        const dtype to = is_end ? m->ends : width == FF ? m->rows_320 : m->to;
        const size_t n = plan_elements(t);
        dtype from = N_DTYPES;
        void *copy = malloc(n * 4);
        assert_true(dtype_from_ggml(t->type, &from));
        memcpy(copy, t->data, t->n_bytes);
        if (t->n_dims > 1 && width != NARROW && strstr(t->name, "gate_inp") == NULL) {
            float *x = malloc(n * sizeof *x);
            assert_int_equal(quant_dequantise(from, t->data, n, x), QUIRE_OK);
            assert_int_equal(quant_quantise(to, x, n, copy), QUIRE_OK);
            t->type = ggml_number(to);
            t->n_bytes = n / (size_t)dtype_block_elements(to) * (size_t)dtype_block_bytes(to);
            free(x);
        }
        t->data = copy;
    }
    return p;
}

static void free_plan(model_plan *p) {
    for (int i = 0; i < p->n_tensors; i++) {
        free((void *)(uintptr_t)p->tensors[i].data);
    }
}

/* A plan's file under --quantization NAME; NULL: without. */
static plan_file open_as(const model_plan *p, const char *name) {
    plan_file out = {0};
    const model_overrides set = {.quantise = name};
    quire_error err = {0};
    model_file *f;
    strbuf b = {0};
    put_plan(&b, p);
    out.bytes = malloc(b.n);
    assert_non_null(out.bytes);
    memcpy(out.bytes, b.p, b.n);
    if (model_file_open_memory_with(out.bytes, b.n, "test.gguf", &set, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    strbuf_deinit(&b);
    out.f = f;
    return out;
}

static float *plan_logits(const model_plan *p, const char *name, compute_mode compute, size_t *n) {
    plan_file file = open_as(p, name);
    float *out = logits_of(file.f, compute, n);
    free(file.bytes);
    return out;
}

static model_desc describe(const model_plan *p, const char *name) {
    plan_file file = open_as(p, name);
    model_desc d;
    quire_error err = {0};
    if (model_describe(file.f, &d, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    model_file_close(file.f);
    free(file.bytes);
    return d;
}

static void check_mix(const model_plan *floats, const mix *m) {
    model_plan blocks = as_blocks(floats, m);
    const model_desc planned = describe(floats, m->name), is = describe(&blocks, NULL);
    assert_int_equal(planned.n_params, is.n_params);
    assert_int_equal(planned.weight_bytes, is.weight_bytes);
    assert_memory_equal(planned.weight_bytes_of, is.weight_bytes_of, sizeof is.weight_bytes_of);
    assert_int_equal(planned.weight_type, is.weight_type);
    assert_int_equal(planned.auto_compute, COMPUTE_INT8);
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        size_t n, n_want;
        float *got = plan_logits(floats, m->name, mode, &n),
              *want = plan_logits(&blocks, NULL, mode, &n_want);
        assert_int_equal(n, n_want);
        if (memcmp(got, want, n * sizeof *got) != 0) {
            fail_msg("%s, compute %s: other logits than those of its blocks in a file", m->name,
                     compute_name(mode));
        }
        mem_free(got);
        mem_free(want);
    }
    free_plan(&blocks);
}

TEST(a_model_computes_what_a_file_of_its_blocks_does) {
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t i = 0; i < N_MIXES; i++) {
        model_plan p;
        plan_wide(&p, FF, i % 2 == 0);
        fill_floats(&p, types[i % 3]);
        check_mix(&p, &mixes[i]);
        free_plan(&p);
    }
}

TEST(experts_are_quantised_and_their_router_is_not) {
    model_plan p;
    plan_wide(&p, FF, true);
    add_experts(&p);
    fill_floats(&p, DTYPE_BF16);
    check_mix(&p, &mixes[3]);
    free_plan(&p);
}

TEST(rows_that_are_no_blocks_of_any_size_stay_as_they_are) {
    model_plan p;
    plan_wide(&p, NARROW, true);
    fill_floats(&p, DTYPE_F16);
    for (size_t i = 0; i < N_MIXES; i++) {
        check_mix(&p, &mixes[i]);
    }
    free_plan(&p);
}

/* The value that fp8 has for x in a row with this scale: the nearest number of E4M3, the
 * even code of two, times the scale. */
static float nearest_e4m3(float x, float scale) {
    const float q = fabsf(x / scale);
    int best = 0;
    for (int code = 1; code < 0x7f; code++) {
        const float off = fabsf(e4m3_to_f32((uint8_t)code) - q),
                    least = fabsf(e4m3_to_f32((uint8_t)best) - q);
        best = off < least || (off == least && code % 2 == 0) ? code : best;
    }
    return copysignf(e4m3_to_f32((uint8_t)best), x) * scale;
}

/* Makes of the F32 matrices that are products what fp8 makes of them. */
static void round_products(model_plan *p) {
    for (int i = 0; i < p->n_tensors; i++) {
        tensor_entry *t = &p->tensors[i];
        const size_t width = t->dims[t->n_dims - 1];
        float *x = (float *)(uintptr_t)t->data;
        const bool is_product =
            strncmp(t->name, "blk", 3) == 0 && t->n_dims > 1 && strstr(t->name, "gate_inp") == NULL;
        for (size_t r = 0; is_product && r < plan_elements(t) / width; r++, x += width) {
            float largest = 0.0f;
            for (size_t k = 0; k < width; k++) {
                largest = fmaxf(largest, fabsf(x[k]));
            }
            const float scale = largest / 448.0f > 0.0f ? largest / 448.0f : 1.0f;
            for (size_t k = 0; k < width; k++) {
                x[k] = nearest_e4m3(x[k], scale);
            }
        }
    }
}

/* Rows of zeros, of numbers too small for a scale, of subnormals, and of one large
 * number. */
static void put_odd_rows(model_plan *p) {
    static const float firsts[] = {0.0f, 0x1p-149f, 0x1p-130f, 65504.0f};
    for (size_t r = 0; r < sizeof firsts / sizeof *firsts; r++) {
        float *x = (float *)(uintptr_t)tensor_of(p, "blk.1.attn_v.weight")->data + r * WIDTH;
        for (size_t k = 0; k < WIDTH; k++) {
            x[k] = r < 3 ? firsts[r] * (k % 3 == 0 ? -1.0f : 1.0f) : k == 7 ? firsts[r] : x[k];
        }
    }
}

TEST(fp8_has_a_scale_for_each_row_and_leaves_embeddings_and_head) {
    for (int has_experts = 0; has_experts < 2; has_experts++) {
        model_plan p;
        size_t n, n_want;
        plan_wide(&p, FF, has_experts);
        if (has_experts) {
            add_experts(&p);
        }
        fill_floats(&p, DTYPE_F32);
        put_odd_rows(&p);
        const model_desc d = describe(&p, "fp8"), plain = describe(&p, NULL);
        const int64_t n_ffn = has_experts ? N_EXPERTS : 1,
                      n_weights = 2 * (3 * WIDTH * WIDTH + n_ffn * 3 * FF * WIDTH);
        const int64_t n_rows = 2 * (3 * WIDTH + n_ffn * (2 * FF + WIDTH));
        assert_int_equal(d.auto_compute, COMPUTE_BF16);
        assert_int_equal(d.n_params, plain.n_params);
        assert_int_equal(d.weight_bytes_of[DTYPE_F8_E4M3], n_weights + n_rows * 4);
        assert_int_equal(d.weight_bytes_of[DTYPE_F32], plain.weight_bytes - 4 * n_weights);
        float *got = plan_logits(&p, "fp8", COMPUTE_F32, &n);
        round_products(&p);
        float *want = plan_logits(&p, NULL, COMPUTE_F32, &n_want);
        assert_int_equal(n, n_want);
        assert_memory_equal(got, want, n * sizeof *got);
        mem_free(got);
        mem_free(want);
        free_plan(&p);
    }
}

TEST(int8_computes_products_in_int8_and_the_ends_in_q8_0) {
    static const mix m = {.name = "int8", .to = DTYPE_BF16, .rows_320 = DTYPE_BF16, .ends = DTYPE_Q8_0};
    for (int is_tied = 0; is_tied < 2; is_tied++) {
        model_plan p;
        size_t n, n_want;
        plan_wide(&p, FF, is_tied);
        fill_floats(&p, DTYPE_BF16);
        model_plan blocks = as_blocks(&p, &m);
        const model_desc d = describe(&p, "int8"), plain = describe(&p, NULL);
        assert_int_equal(d.auto_compute, COMPUTE_INT8);
        assert_int_equal(plain.auto_compute, COMPUTE_BF16);
        assert_int_equal(d.weight_bytes_of[DTYPE_BF16], 0);
        assert_int_equal(d.weight_bytes_of[DTYPE_Q8_0], (is_tied ? 1 : 2) * N_VOCAB * WIDTH / 32 * 34);
        float *got = plan_logits(&p, "int8", COMPUTE_INT8, &n),
              *want = plan_logits(&blocks, NULL, COMPUTE_INT8, &n_want);
        assert_memory_equal(got, want, n * sizeof *got);
        mem_free(got);
        mem_free(want);
        free_plan(&blocks);
        free_plan(&p);
    }
}

/* ---- packed, and threads ---- */

static backend *open_threads(int32_t n_threads) {
    backend *b;
    quire_error err = {0};
    assert_int_equal(
        backend_cpu_open(&(backend_options){.compute = COMPUTE_INT8, .isa = "auto", .n_threads = n_threads},
                         &b, &err),
        QUIRE_OK);
    return b;
}

/* Packs what the plan's file is under --quantization. The bytes are mem_free'd by the
 * caller. */
static uint8_t *pack_as(const model_plan *p, const char *name, int32_t n_threads, size_t *n) {
    temp_dir d = temp_new();
    plan_file file = open_as(p, name);
    backend *b = open_threads(n_threads);
    packed_writer *w;
    packed_image *image;
    model *m;
    quire_error err = {0};
    assert_int_equal(packed_writer_open(temp_path(&d, "m"), &w, &err), QUIRE_OK);
    assert_int_equal(packed_image_open(COMPUTE_INT8, &image), QUIRE_OK);
    if (model_open_image(file.f, b, 1, image, &m, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(packed_image_metadata(image, file.f, (str){0}, (str){0}), QUIRE_OK);
    assert_int_equal(packed_image_finish(image), QUIRE_OK);
    assert_int_equal(packed_writer_finish(w, image, &err), QUIRE_OK);
    packed_image_close(image);
    model_close(m);
    b->ops->close(b);
    model_file_close(file.f);
    free(file.bytes);
    uint8_t *bytes = read_whole(temp_path(&d, "m"), n);
    temp_delete(&d, (const char *[]){"m", NULL});
    return bytes;
}

static model_file *open_packed(const void *bytes, size_t n, const char *name) {
    const model_overrides set = {.quantise = name};
    quire_error err = {0};
    model_file *f;
    if (model_file_open_memory_with(bytes, n, "test.quire", &set, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

/* fp8 and int8, and the types of their head and table of embeddings. */
static const mix by_rows[] = {{"fp8", DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_BF16},
                              {"int8", DTYPE_I8, DTYPE_I8, DTYPE_Q8_0}};

#define N_ALL_MIXES (N_MIXES + sizeof by_rows / sizeof *by_rows)

static const mix *mix_at(size_t i) {
    return i < N_MIXES ? &mixes[i] : &by_rows[i - N_MIXES];
}

TEST(a_packed_model_is_the_quantised_one_whatever_packed_it) {
    for (size_t i = 0; i < N_ALL_MIXES; i++) {
        const mix *m = mix_at(i);
        model_plan p;
        model_desc d;
        quire_error err = {0};
        size_t n, n_other, n_got, n_want;
        plan_wide(&p, FF, i % 2 == 0);
        fill_floats(&p, DTYPE_BF16);
        uint8_t *bytes = pack_as(&p, m->name, 1, &n), *other = pack_as(&p, m->name, 3, &n_other);
        assert_int_equal(n, n_other);
        assert_memory_equal(bytes, other, n);
        model_file *f = open_packed(bytes, n, m->name); /* the flag says what it is already */
        assert_int_equal(model_describe(f, &d, &err), QUIRE_OK);
        assert_true(d.is_packed && d.weight_type == m->to && d.quantise_to == DTYPE_F32);
        float *got = logits_of(f, COMPUTE_INT8, &n_got),
              *want = plan_logits(&p, m->name, COMPUTE_INT8, &n_want);
        assert_memory_equal(got, want, n_got * sizeof *got);
        mem_free(got);
        mem_free(want);
        mem_free(bytes);
        mem_free(other);
        free_plan(&p);
    }
}

/* Closes the file and returns the bytes of its weights in memory. */
static int64_t bytes_loaded(model_file *f) {
    backend *b = open_threads(2);
    model *m;
    quire_error err = {0};
    if (model_open(f, b, 64, &m, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    model_file_close(f);
    const int64_t n = b->ops->weight_bytes(b);
    model_close(m);
    b->ops->close(b);
    return n;
}

TEST(a_table_that_is_also_the_head_is_in_memory_once) {
    for (size_t i = 0; i < N_ALL_MIXES; i++) {
        const mix *m = mix_at(i);
        const int64_t table =
            N_VOCAB * WIDTH / dtype_block_elements(m->ends) * (int64_t)dtype_block_bytes(m->ends);
        int64_t loaded[2], reopened[2];
        for (int is_tied = 0; is_tied < 2; is_tied++) {
            model_plan p;
            size_t n;
            plan_wide(&p, FF, is_tied);
            fill_floats(&p, DTYPE_BF16);
            plan_file file = open_as(&p, m->name);
            loaded[is_tied] = bytes_loaded(file.f);
            free(file.bytes);
            uint8_t *packed = pack_as(&p, m->name, 2, &n);
            reopened[is_tied] = bytes_loaded(open_packed(packed, n, NULL));
            mem_free(packed);
            free_plan(&p);
        }
        if (loaded[0] - loaded[1] != table || reopened[0] - reopened[1] != table) {
            fail_msg("%s: a head of its own adds %lld bytes, packed %lld, a table has %lld", m->name,
                     (long long)(loaded[0] - loaded[1]), (long long)(reopened[0] - reopened[1]),
                     (long long)table);
        }
    }
}

/* ---- refusals ---- */

/* The error of opening the plan under a flag names `what`. */
static void expect_refusal(const model_plan *p, const char *name, const char *what) {
    plan_file file = open_as(p, name);
    backend *b = open_threads(2);
    model *m = NULL;
    quire_error err = {0};
    assert_int_not_equal(model_open(file.f, b, 64, &m, &err), QUIRE_OK);
    if (strstr(err.message, what) == NULL) {
        fail_msg("--quantization %s: \"%s\" does not say \"%s\"", name, err.message, what);
    }
    b->ops->close(b);
    model_file_close(file.f);
    free(file.bytes);
}

TEST(flags_that_do_not_fit_the_file_are_refused) {
    model_plan p;
    plan_wide(&p, FF, true);
    fill_floats(&p, DTYPE_BF16);
    expect_refusal(&p, "q3_k", "no such type; it must be one of q8_0");
    expect_refusal(&p, "published:awq",
                   "--quantization awq: test.gguf is a GGUF file of bf16; leave the flag out");
    assert_int_equal(describe(&p, "published:gguf").quantise_to, DTYPE_F32);
    model_plan blocks = as_blocks(&p, &mixes[3]);
    expect_refusal(&blocks, "q4_0", "is a GGUF file of q4_k, and Quire does not quantise twice");
    expect_refusal(&blocks, "fp8", "is a GGUF file of q4_k, and Quire does not quantise twice");
    assert_int_equal(describe(&blocks, "q4_k").quantise_to, DTYPE_F32);
    free_plan(&blocks);
    size_t n;
    uint8_t *bytes = pack_as(&p, NULL, 2, &n);
    model_file *f = open_packed(bytes, n, "q4_k");
    model_desc d;
    quire_error err = {0};
    assert_int_equal(model_describe(f, &d, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "test.quire is packed; pack the original model again"));
    model_file_close(f);
    mem_free(bytes);
    free_plan(&p);
}

TEST(elements_without_a_scale_are_refused_by_tensor_and_row) {
    /* NaN, infinities, a million */
    static const uint32_t bad[] = {0x7fc00000u, 0x7f800000u, 0xff800000u, 0x49742400u};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model_plan p;
        plan_wide(&p, FF, true);
        fill_floats(&p, DTYPE_F32);
        const size_t rows[] = {3, 100, 201};
        for (size_t k = 0; k < 3; k++) {
            memcpy((uint8_t *)(uintptr_t)tensor_of(&p, "blk.1.ffn_up.weight")->data +
                       (rows[k] * WIDTH + 5) * 4,
                   &bad[i], 4);
        }
        expect_refusal(&p, "q4_k", "tensor blk.1.ffn_up.weight: row 3 has an element");
        expect_refusal(&p, "fp8", "tensor blk.1.ffn_up.weight: row 3 has an element");
        free_plan(&p);
    }
}

TEST_MAIN(NULL, NULL)
