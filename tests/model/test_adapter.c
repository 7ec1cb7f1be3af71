/* Adapters on models of every architecture have the effect of merging them into the
 * weights. test_adapter_refusals.c tests those that do not fit. */
#include "core/quant.h"
#include "made_adapter.h"
#include "model/arch.h"

#define BASE "tests/golden/lora/base"

/* ---- what it changes ---- */

/* Whether the name belongs to products that adapters change; is_conv: its weight is
 * stored as [n_in, n_out]. */
static bool is_product(const model *m, str module) {
    int32_t first;
    const int32_t n = weight_table_find(&m->weights, false, module, &first);
    const weight_entry *w =
        n > 0 ? &m->weights.entries[m->weights.refs[m->weights.by_name[0][first].i].entry] : NULL;
    return w != NULL && w->w != NULL && !w->exact;
}

/* Adds an adapter of the weight t, [n_out, n_in] of floats, and merges it in place. */
static void add_product(made_adapter *a, str module, const tensor_view *t, bool is_conv, uint64_t *state) {
    const int64_t n_out = t->dims[is_conv ? 1 : 0], n_in = t->dims[is_conv ? 0 : 1];
    float *values_a = random_values(RANK * n_in, 1.0f / sqrtf((float)n_in), state),
          *values_b = random_values(n_out * RANK, 0.3f, state), *w = (float *)(uintptr_t)t->data;
    assert_true(a->n + 2 <= MOST_TENSORS);
    a->values[a->n] = values_a;
    a->tensors[a->n++] = (new_tensor){name_in(a, module, ".lora_A.weight"), RANK, n_in, values_a, NULL, 0};
    a->values[a->n] = values_b;
    a->tensors[a->n++] = (new_tensor){name_in(a, module, ".lora_B.weight"), n_out, RANK, values_b, NULL, 0};
    for (int64_t r = 0; r < n_out; r++) {
        for (int64_t i = 0; i < n_in; i++) {
            float sum = 0.0f, *at = &w[is_conv ? i * n_out + r : r * n_in + i], was;
            for (int64_t k = 0; k < RANK; k++) {
                sum += values_b[r * RANK + k] * values_a[k * n_in + i];
            }
            memcpy(&was, at, sizeof was);
            was += sum;
            memcpy(at, &was, sizeof was);
        }
    }
}

/* Whether the vector is the bias of a product, or a norm's. */
static bool is_saved_vector(const model *m, const tensor_view *t) {
    const char *end = strrchr(t->name, '.');
    const str module = {t->name, end != NULL ? (size_t)(end - t->name) : 0};
    int32_t first;
    if (t->n_dims != 1 || t->type != DTYPE_F32 || end == NULL ||
        weight_table_find(&m->weights, false, module, &first) == 0) {
        return false;
    }
    const weight_entry *w = &m->weights.entries[m->weights.refs[m->weights.by_name[0][first].i].entry];
    return strcmp(end, ".bias") == 0 ? w->nm != NULL || (w->w != NULL && !w->exact)
                                     : strcmp(end, ".weight") == 0 && w->nm != NULL;
}

/* Adds another vector in its place. */
static void add_vector(made_adapter *a, const tensor_view *t, uint64_t *state) {
    const int64_t n = t->dims[0];
    float *values = random_values(n, 0.1f, state), was;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&was, (const float *)t->data + i, sizeof was);
        values[i] += was;
    }
    memcpy((float *)(uintptr_t)t->data, values, sizeof *values * (size_t)n);
    assert_true(a->n < MOST_TENSORS);
    a->values[a->n] = values;
    a->tensors[a->n++] = (new_tensor){name_in(a, str_of(t->name), ""), n, 0, values, NULL, 0};
}

/* Merges an adapter of every product, and `with_vectors` of every bias and norm, into the
 * bytes of model.safetensors. */
static void merge_all(const model *m, bool with_vectors, uint8_t *bytes, size_t n, made_adapter *a) {
    uint64_t seed = 48;
    tensor_dir dir = {0};
    quire_error err = {0};
    assert_int_equal(safetensors_parse(bytes, n, "model.safetensors", 0, &dir, &err), QUIRE_OK);
    assert_int_equal(tensor_dir_finish(&dir, "model.safetensors", &err), QUIRE_OK);
    assert_int_equal(strbuf_reserve(&a->names, 1 << 20), QUIRE_OK);
    for (int32_t i = 0; i < dir.n; i++) {
        const tensor_view *t = &dir.views[i];
        const str name = str_of(t->name);
        if (t->n_dims == 2 && t->type == DTYPE_F32 && str_ends(name, ".weight")) {
            const str module = {name.p, name.n - strlen(".weight")};
            if (is_product(m, module)) {
                add_product(a, module, t, m->desc.conv1d && !str_ends(module, "lm_head"), &seed);
            }
        } else if (with_vectors && is_saved_vector(m, t)) {
            add_vector(a, t, &seed);
        }
    }
    tensor_dir_deinit(&dir);
}

/* ---- experts as one parameter ---- */

/* What PEFT's A and B add to element [e, i, j] of a parameter [E, d1, d2]; by_inputs: A
 * is of d2, as in adapters of PEFT 0.20 and later where the parameter has the outputs
 * first. */
static float expert_delta(const float *a, const float *b, int64_t n_experts, int64_t d1, int64_t d2,
                          bool by_inputs, int64_t e, int64_t i, int64_t j) {
    float sum = 0.0f;
    if (by_inputs) {
        return expert_delta(a, b, n_experts, d2, d1, false, e, j, i);
    }
    for (int64_t k = 0; k < RANK; k++) {
        sum += a[(e * RANK + k) * d1 + i] * b[j * RANK * n_experts + k * n_experts + e];
    }
    return sum;
}

static void add_float(const tensor_view *t, int64_t at, float delta) {
    uint8_t *p = (uint8_t *)(uintptr_t)t->data + (size_t)at * sizeof(float);
    float was;
    memcpy(&was, p, sizeof was);
    was += delta;
    memcpy(p, &was, sizeof was);
}

static const tensor_view *expert_tensor(const tensor_dir *dir, const char *name) {
    const int32_t i = tensor_dir_find(dir, str_of(name));
    return i >= 0 ? &dir->views[i] : NULL;
}

/* A and B of the parameter [E, d1, d2] under a module's name. */
static void add_parameter(made_adapter *a, const char *module, int64_t n, int64_t d1, int64_t d2,
                          bool by_inputs, uint64_t *seed) {
    if (by_inputs) {
        add_parameter(a, module, n, d2, d1, false, seed);
        return;
    }
    a->values[a->n] = random_values(n * RANK * d1, 0.3f, seed);
    a->tensors[a->n] =
        (new_tensor){name_in(a, str_of(module), ".lora_A.weight"), n * RANK, d1, a->values[a->n], NULL, 0};
    a->n++;
    a->values[a->n] = random_values(d2 * RANK * n, 0.3f, seed);
    a->tensors[a->n] =
        (new_tensor){name_in(a, str_of(module), ".lora_B.weight"), d2, RANK * n, a->values[a->n], NULL, 0};
    a->n++;
}

/* Merges adapters of gate_up_proj [E, 2 F, D] and, unless `alone`, down_proj [E, D, F]
 * into a checkpoint that has a tensor for each expert, whose names may be older ones. */
static void merge_list(const tensor_dir *dir, const char *module, bool by_inputs, bool alone, made_adapter *a,
                       uint64_t *seed) {
    static const char *const whats[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
    char name[256];
    int32_t n = 0;
    (void)snprintf(name, sizeof name, "%s.0.up_proj.weight", module);
    const bool is_old = expert_tensor(dir, name) == NULL;
    const char *const *what = whats[is_old],
                      *own = is_old ? "model.layers.1.block_sparse_moe.experts" : module;
    (void)snprintf(name, sizeof name, "%s.0.%s.weight", own, what[1]);
    const tensor_view *up = expert_tensor(dir, name);
    assert_non_null(up);
    const int64_t f = up->dims[0], d = up->dims[1];
    do {
        (void)snprintf(name, sizeof name, "%s.%d.%s.weight", own, (int)++n, what[1]);
    } while (expert_tensor(dir, name) != NULL);
    (void)snprintf(name, sizeof name, "%s.base_layer", module);
    add_parameter(a, name, n, 2 * f, d, by_inputs, seed);
    if (!alone) {
        add_parameter(a, module, n, d, f, by_inputs, seed);
    }
    for (int32_t e = 0; e < n; e++) {
        for (int k = 0; k < (alone ? 2 : 3); k++) {
            const bool is_down = k == 2;
            const float *const *v = (const float *const *)a->values + a->n - (is_down || alone ? 2 : 4);
            (void)snprintf(name, sizeof name, "%s.%d.%s.weight", own, (int)e, what[k]);
            const tensor_view *t = expert_tensor(dir, name);
            for (int64_t r = 0; r < t->dims[0]; r++) {
                for (int64_t i = 0; i < t->dims[1]; i++) {
                    add_float(t, r * t->dims[1] + i,
                              expert_delta(v[0], v[1], n, is_down ? d : 2 * f, is_down ? f : d, by_inputs, e,
                                           k == 1 ? f + r : r, i));
                }
            }
        }
    }
}

/* The same into parameters [E, d1, d2] that the checkpoint has whole. */
static void merge_stack(const tensor_dir *dir, const char *module, bool by_inputs, bool alone,
                        made_adapter *a, uint64_t *seed) {
    static const char *const what[] = {".gate_up_proj", ".down_proj"};
    char name[256];
    for (int k = 0; k < (alone ? 1 : 2); k++) {
        (void)snprintf(name, sizeof name, "%s%s", module, what[k]);
        const tensor_view *t = expert_tensor(dir, name);
        assert_non_null(t);
        (void)snprintf(name, sizeof name, "%s%s", module, k == 0 ? ".base_layer" : "");
        add_parameter(a, name, t->dims[0], t->dims[1], t->dims[2], by_inputs, seed);
        const float *const *v = (const float *const *)a->values + a->n - 2;
        for (int64_t at = 0; at < t->dims[0] * t->dims[1] * t->dims[2]; at++) {
            const int64_t j = at % t->dims[2], i = at / t->dims[2] % t->dims[1],
                          e = at / t->dims[2] / t->dims[1];
            add_float(t, at,
                      expert_delta(v[0], v[1], t->dims[0], t->dims[1], t->dims[2], by_inputs, e, i, j));
        }
    }
}

/* Compares the model with the adapter, and with it merged into these bytes, whose config
 * lies in config_dir. */
static void expect_merged(const char *base, const char *config_dir, const char *name, const made_adapter *a,
                          const uint8_t *bytes, size_t n_bytes, const char *adapter_config) {
    const temp_dir merged = temp_new(), fine_tune = temp_new();
    char config_path[GOLDEN_PATH + 32];
    size_t n_config, n;
    (void)snprintf(config_path, sizeof config_path, "%s/config.json", config_dir);
    uint8_t *text = read_whole(config_path, &n_config);
    write_file(temp_path(&merged, "config.json"), text, n_config);
    write_file(temp_path(&merged, "model.safetensors"), bytes, n_bytes);
    write_text(&fine_tune, "adapter_config.json", adapter_config);
    write_tensors(&fine_tune, "adapter_model.safetensors", a->tensors, a->n);
    float *plain = logits_with(base, NULL, &n), *with = logits_with(base, fine_tune.path, &n),
          *want = logits_with(merged.path, NULL, &n);
    const float off = largest_difference(with, want, n), changed = largest_difference(plain, want, n);
    print_message("%s: %d tensors, %g of %g\n", name, a->n, (double)off, (double)changed);
    assert_true(off <= 2e-3f && changed > 10.0f * off);
    mem_free(plain);
    mem_free(with);
    mem_free(want);
    mem_free(text);
    temp_delete(&merged, golden_files);
    temp_delete(&fine_tune, adapter_files);
}

/* The model with an adapter of all its products gives what it gives with them merged. */
static void an_adapter_is_what_it_merges_to(const char *set, const char *name, int *n_checked) {
    char base[GOLDEN_PATH], weights[GOLDEN_PATH + 32];
    size_t n_bytes;
    (void)snprintf(base, sizeof base, "%s/%s", set, name);
    (void)snprintf(weights, sizeof weights, "%s/model.safetensors", base);
    if (access(weights, R_OK) != 0) {
        return;
    }
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(base, b);
    made_adapter *a = mem_new(1, sizeof *a);
    uint8_t *bytes = read_whole(weights, &n_bytes);
    assert_non_null(a);
    merge_all(m, true, bytes, n_bytes, a);
    model_close(m);
    b->ops->close(b);
    assert_true(a->n > 0);
    expect_merged(base, base, name, a, bytes, n_bytes, CONFIG);
    (*n_checked)++;
    made_deinit(a);
    mem_free(bytes);
}

/* Models in f32, with fused products, latents, experts and recurrences among them. */
static const char *const architectures[] = {"bloom-6-heads",
                                            "cohere2",
                                            "deepseek_v2",
                                            "deepseek_v3",
                                            "falcon",
                                            "falcon_h1",
                                            "gemma",
                                            "gemma4",
                                            "glm4_moe",
                                            "gpt2",
                                            "gpt_neox",
                                            "gptj",
                                            "granite",
                                            "hunyuan_v1_dense",
                                            "lfm2_moe",
                                            "llama4",
                                            "llama-gqa-tied",
                                            "mamba2",
                                            "mistral",
                                            "mpt",
                                            "nemotron_h",
                                            "nemotron_h-moe",
                                            "olmo",
                                            "olmoe",
                                            "opt",
                                            "phi3",
                                            "qwen2-moe",
                                            "qwen3-moe",
                                            "qwen3_5",
                                            "qwen3_5-moe",
                                            "seed_oss",
                                            "stablelm",
                                            "starcoder2"};

/* A checkpoint's adapter on the same model as GGUF: as on the checkpoint, or refused. */
static void on_gguf(const char *base, const char *name, int *n_same, int *n_refused) {
    char in_gguf[GOLDEN_PATH + 32], weights[GOLDEN_PATH + 32];
    size_t n_bytes, n;
    (void)snprintf(in_gguf, sizeof in_gguf, "%s/model.gguf", base);
    (void)snprintf(weights, sizeof weights, "%s/model.safetensors", base);
    if (access(in_gguf, R_OK) != 0) {
        return;
    }
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(base, b), *of_gguf = open_base(in_gguf, b);
    made_adapter *a = mem_new(1, sizeof *a);
    uint8_t *bytes = read_whole(weights, &n_bytes);
    assert_non_null(a);
    merge_all(m, false, bytes, n_bytes, a);
    const temp_dir d = temp_new();
    write_text(&d, "adapter_config.json", CONFIG);
    write_tensors(&d, "adapter_model.safetensors", a->tensors, a->n);
    model_adapter opened = {0};
    quire_error err = {0};
    const adapter_limits limits = {.max_rank = 64, .max_bytes = 1 << 24};
    const quire_err e = model_adapter_open(of_gguf, b, d.path, &limits, &opened, &err);
    model_adapter_close(b, &opened);
    model_close(m);
    model_close(of_gguf);
    b->ops->close(b);
    if (e == QUIRE_OK) {
        float *plain = logits_with(base, NULL, &n), *plain_gguf = logits_with(in_gguf, NULL, &n),
              *want = logits_with(base, d.path, &n), *got = logits_with(in_gguf, d.path, &n);
        const float bases = largest_difference(plain, plain_gguf, n), off = largest_difference(want, got, n);
        print_message("%s: %g, bases %g\n", name, (double)off, (double)bases);
        assert_true(off <= 2e-3f + 20.0f * bases);
        mem_free(plain);
        mem_free(plain_gguf);
        mem_free(want);
        mem_free(got);
        (*n_same)++;
    } else {
        print_message("%s: %s\n", name, err.message);
        assert_int_equal(e, QUIRE_UNSUPPORTED);
        (*n_refused)++;
    }
    temp_delete(&d, adapter_files);
    made_deinit(a);
    mem_free(bytes);
}

TEST(an_adapter_of_a_checkpoint_fits_its_gguf_file_or_is_refused) {
    char base[GOLDEN_PATH];
    const char *shared = shared_dir();
    int n_same = 0, n_refused = 0;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures && shared != NULL; i++) {
        (void)snprintf(base, sizeof base, "%s/golden/models/%s", shared, architectures[i]);
        on_gguf(base, architectures[i], &n_same, &n_refused);
    }
    print_message("%d the same, %d refused\n", n_same, n_refused);
    assert_true(shared == NULL || n_same >= 20);
}

/* The tensors of a checkpoint as floats, and stacks of experts in blocks as they are
 * computed: [E, n_in, n_rows]. */
static made_adapter *tensors_as_floats(const char *base) {
    char path[GOLDEN_PATH + 32];
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(base, b);
    const weight_table *t = &m->weights;
    made_adapter *a = mem_new(1, sizeof *a);
    tensor_dir dir = {0};
    size_t n_bytes;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", base);
    uint8_t *bytes = read_whole(path, &n_bytes);
    assert_int_equal(safetensors_parse(bytes, n_bytes, path, 0, &dir, NULL), QUIRE_OK);
    assert_int_equal(tensor_dir_finish(&dir, path, NULL), QUIRE_OK);
    assert_int_equal(strbuf_reserve(&a->names, 1 << 16), QUIRE_OK);
    for (int32_t i = 0; i < dir.n; i++) {
        const tensor_view *v = &dir.views[i];
        if (v->type != DTYPE_BF16) { /* blocks and their scales */
            continue;
        }
        const int64_t n = (int64_t)v->n_bytes / 2;
        a->values[a->n] = random_values(n, 0.0f, &(uint64_t){0});
        assert_int_equal(quant_dequantise(v->type, v->data, (size_t)n, a->values[a->n]), QUIRE_OK);
        a->tensors[a->n] = (new_tensor){
            tensor_name_in(a, v->name),    v->dims[0], v->n_dims > 1 ? v->dims[1] : 0, a->values[a->n], NULL,
            v->n_dims > 2 ? v->dims[2] : 0};
        a->n++;
    }
    for (int32_t i = 0; i < t->n_names[0]; i++) {
        const name_ref *ref = &t->by_name[0][i];
        const weight_entry *w = &t->entries[t->refs[ref->i].entry];
        if (w->part.n_slabs == 0) {
            continue;
        }
        const int64_t n_rows = w->part.n_rows, slab = n_rows * w->n_in;
        if (w->part.slab == 0 && w->part.first == 0) { /* the first of its tensor */
            char name[256];
            (void)snprintf(name, sizeof name, "%.*s", (int)ref->name.n, ref->name.p);
            a->values[a->n] = random_values(w->part.n_slabs * slab, 0.0f, &(uint64_t){0});
            a->tensors[a->n] = (new_tensor){
                tensor_name_in(a, name), w->part.n_slabs, w->n_in, a->values[a->n], NULL, n_rows};
            a->n++;
        }
        float *row = random_values(w->n_in, 0.0f, &(uint64_t){0}), *to = a->values[a->n - 1];
        for (int64_t r = 0; r < w->n_out; r++) {
            const int64_t at = w->part.first + r / w->part.block * w->part.step + r % w->part.block;
            b->ops->linear_row(b, w->w, (int32_t)r, row);
            for (int64_t k = 0; k < w->n_in; k++) {
                to[w->part.slab * slab + k * n_rows + at] = row[k];
            }
        }
        mem_free(row);
    }
    tensor_dir_deinit(&dir);
    mem_free(bytes);
    model_close(m);
    b->ops->close(b);
    return a;
}

/* Ranks by the names of parameters. */
#define PARAMETER_CONFIG                                                                                     \
    "{\"peft_type\":\"LORA\",\"peft_version\":\"0.21.2\",\"r\":99,\"lora_alpha\":3,"                         \
    "\"rank_pattern\":{\".*\\\\.gate_up_proj\":3,\"experts.down_proj\":3}}"

/* PEFT's target_parameters, whether the checkpoint has them whole or a tensor for each
 * expert, as its versions write them. gate_up_proj has as many outputs as inputs here:
 * how its matrices lie is to be seen from down_proj's, or without these from the
 * version. */
TEST(an_adapter_of_experts_as_one_parameter_is_what_it_merges_to) {
    static const struct {
        const char *name, *experts;
        void (*merge)(const tensor_dir *dir, const char *module, bool by_inputs, bool alone, made_adapter *a,
                      uint64_t *seed);
        bool by_inputs, alone;
        const char *config;
    } cases[] = {
        {"qwen3-moe", "model.layers.1.mlp.experts", merge_list, false, false, CONFIG},
        {"qwen3-moe", "model.layers.1.mlp.experts", merge_list, true, false, CONFIG},
        {"qwen3-moe", "model.layers.1.mlp.experts", merge_list, false, false, PARAMETER_CONFIG},
        {"qwen3-moe", "model.layers.1.mlp.experts", merge_list, true, true, PARAMETER_CONFIG},
        {"qwen3-moe", "model.layers.1.mlp.experts", merge_list, false, true, CONFIG},
        {"mixtral", "model.layers.1.mlp.experts", merge_list, true, false, PARAMETER_CONFIG},
        {"llama4", "model.layers.1.feed_forward.experts", merge_stack, false, false, CONFIG},
        {"llama4", "model.layers.1.feed_forward.experts", merge_stack, true, false, PARAMETER_CONFIG}};
    const char *shared = shared_dir();
    for (size_t i = 0; i < sizeof cases / sizeof *cases && shared != NULL; i++) {
        char base[GOLDEN_PATH], weights[GOLDEN_PATH + 32];
        size_t n;
        tensor_dir dir = {0};
        uint64_t seed = 9;
        const temp_dir plain = temp_new();
        made_adapter *floats = NULL, *a = mem_new(1, sizeof *a);
        (void)snprintf(base, sizeof base, "%s/golden/models/%s", shared, cases[i].name);
        (void)snprintf(weights, sizeof weights, "%s/model.safetensors", base);
        if (strcmp(cases[i].name, "mixtral") == 0) { /* its file is of BF16 */
            floats = tensors_as_floats(base);
            write_tensors(&plain, "model.safetensors", floats->tensors, floats->n);
            (void)snprintf(weights, sizeof weights, "%s", temp_path(&plain, "model.safetensors"));
        }
        uint8_t *bytes = read_whole(weights, &n);
        assert_non_null(a);
        assert_int_equal(strbuf_reserve(&a->names, 1 << 16), QUIRE_OK);
        assert_int_equal(safetensors_parse(bytes, n, "model.safetensors", 0, &dir, NULL), QUIRE_OK);
        assert_int_equal(tensor_dir_finish(&dir, "model.safetensors", NULL), QUIRE_OK);
        cases[i].merge(&dir, cases[i].experts, cases[i].by_inputs, cases[i].alone, a, &seed);
        tensor_dir_deinit(&dir);
        expect_merged(base, base, cases[i].name, a, bytes, n, cases[i].config);
        made_deinit(a);
        if (floats != NULL) {
            made_deinit(floats);
        }
        mem_free(bytes);
        temp_delete(&plain, golden_files);
    }
}

/* The experts of gpt-oss in 4-bit blocks, as they are published, are those of the floats
 * that PEFT saw: also where inputs and outputs are as many, so that the shape does not
 * tell which is which. */
TEST(an_adapter_of_experts_in_blocks_is_that_of_their_values) {
    const char *shared = shared_dir();
    char base[GOLDEN_PATH];
    size_t n;
    tensor_dir dir = {0};
    uint64_t seed = 9;
    if (shared == NULL) {
        return;
    }
    (void)snprintf(base, sizeof base, "%s/golden/quants/hf/mxfp4-gpt-oss", shared);
    const temp_dir plain = temp_new();
    made_adapter *floats = tensors_as_floats(base), *a = mem_new(1, sizeof *a);
    char path[GOLDEN_PATH + 32];
    (void)snprintf(path, sizeof path, "%s/config.json", base);
    json_t *json = json_load_file(path, 0, NULL);
    assert_true(json != NULL && json_object_del(json, "quantization_config") == 0);
    assert_int_equal(json_dump_file(json, temp_path(&plain, "config.json"), 0), 0);
    json_decref(json);
    write_tensors(&plain, "model.safetensors", floats->tensors, floats->n);
    float *blocks = logits_with(base, NULL, &n), *values = logits_with(plain.path, NULL, &n);
    assert_true(largest_difference(blocks, values, n) < 1e-3f);
    uint8_t *bytes = read_whole(temp_path(&plain, "model.safetensors"), &n);
    assert_int_equal(strbuf_reserve(&a->names, 1 << 16), QUIRE_OK);
    assert_int_equal(safetensors_parse(bytes, n, "model.safetensors", 0, &dir, NULL), QUIRE_OK);
    assert_int_equal(tensor_dir_finish(&dir, "model.safetensors", NULL), QUIRE_OK);
    merge_stack(&dir, "model.layers.1.mlp.experts", false, false, a, &seed);
    tensor_dir_deinit(&dir);
    expect_merged(plain.path, plain.path, "gpt-oss in floats", a, bytes, n, CONFIG);
    expect_merged(base, plain.path, "gpt-oss in blocks", a, bytes, n, CONFIG);
    made_deinit(a);
    made_deinit(floats);
    mem_free(blocks);
    mem_free(values);
    mem_free(bytes);
    temp_delete(&plain, golden_files);
}

TEST(an_adapter_of_a_small_model_is_what_it_merges_to) {
    static const char *const names[] = {"llama-rope-llama3", "llama-rope-yarn"};
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        an_adapter_is_what_it_merges_to("tests/golden/models", names[i], &n);
    }
    assert_int_equal(n, 2);
}

/* Fused products, latents, experts, recurrences. */
TEST(an_adapter_of_every_architecture_is_what_it_merges_to) {
    char set[GOLDEN_PATH];
    const char *shared = shared_dir();
    int n = 0;
    for (int k = 0; k < N_GOLDEN_SETS && shared != NULL; k++) {
        (void)snprintf(set, sizeof set, "%s/%s", shared, golden_sets[k]);
        for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
            an_adapter_is_what_it_merges_to(set, architectures[i], &n);
        }
    }
    assert_true(shared == NULL || n >= 30);
}

/* A stack of experts' adapters in a GGUF file, and PEFT's for each expert. */
TEST(stacked_adapters_of_experts_are_those_of_each) {
    enum { N_EXPERTS = 8, F = 16, D = 32 };
    char path[GOLDEN_PATH], names[2 * N_EXPERTS][96];
    new_tensor t[2 * N_EXPERTS];
    uint64_t seed = 3;
    size_t n;
    if (golden_path("qwen3-moe", "model.gguf", path) == NULL) {
        return;
    }
    float *a = random_values(N_EXPERTS * RANK * D, 0.3f, &seed),
          *b = random_values(N_EXPERTS * F * RANK, 0.3f, &seed);
    const temp_dir d = temp_new();
    for (int e = 0; e < N_EXPERTS; e++) {
        for (int k = 0; k < 2; k++) {
            (void)snprintf(names[2 * e + k], sizeof names[0],
                           "base_model.model.model.layers.1.mlp.experts.%d.gate_proj.%s", e,
                           k == 0 ? "lora_A.weight" : "lora_B.weight");
        }
        t[2 * e] = (new_tensor){names[2 * e], RANK, D, a + e * RANK * D, NULL, 0};
        t[2 * e + 1] = (new_tensor){names[2 * e + 1], F, RANK, b + e * F * RANK, NULL, 0};
    }
    write_text(&d, "adapter_config.json", CONFIG);
    write_tensors(&d, "adapter_model.safetensors", t, 2 * N_EXPERTS);
    char gguf_path[128];
    (void)snprintf(gguf_path, sizeof gguf_path, "%s/adapter.gguf", d.path);
    write_gguf_adapter(gguf_path, "qwen3moe", "blk.1.ffn_gate_exps",
                       (const int64_t[2][3]){{N_EXPERTS, RANK, D}, {N_EXPERTS, F, RANK}}, (float *[]){a, b});
    float *plain = logits_with(path, NULL, &n), *want = logits_with(path, d.path, &n),
          *got = logits_with(path, gguf_path, &n);
    assert_memory_equal(want, got, n * sizeof *want);
    assert_true(largest_difference(plain, want, n) > 1e-3f);
    unlink(gguf_path);
    temp_delete(&d, adapter_files);
    mem_free(plain);
    mem_free(want);
    mem_free(got);
    mem_free(a);
    mem_free(b);
}

/* Whatever is damaged is refused with a message, or runs. QUIRE_TEST_LONG: 10,000. */
TEST(damaged_adapters_are_refused_or_read) {
    static const char *const names[] = {"patterns", "dora-r3", "embed-head", "save-norm-f16"};
    const int rounds = getenv("QUIRE_TEST_LONG") != NULL ? 10000 : 200;
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(BASE, b);
    const adapter_limits limits = {.max_rank = 64, .max_bytes = 1 << 20};
    uint64_t seed = (uint64_t)getpid();
    int n_opened = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < rounds; i++) {
        const temp_dir d = temp_new();
        for (int k = 0; k < 2; k++) {
            char path[256];
            size_t n;
            (void)snprintf(path, sizeof path, "tests/golden/lora/%s/%s", names[i % 4], adapter_files[k]);
            uint8_t *bytes = read_whole(path, &n);
            if (rng_next(&seed) % 2 == 0) {
                mutate(bytes, k == 0 || rng_next(&seed) % 4 == 0 ? n : n / 16, &seed);
            }
            write_file(temp_path(&d, adapter_files[k]), bytes,
                       rng_next(&seed) % 8 == 0 ? n - rng_next(&seed) % n : n);
            mem_free(bytes);
        }
        model_adapter a = {0};
        quire_error err = {0};
        if (model_adapter_open(m, b, d.path, &limits, &a, &err) == QUIRE_OK) {
            n_opened++;
            model_adapter_close(b, &a);
        } else {
            assert_null(a.weights);
            assert_true(err.message[0] != 0);
        }
        temp_delete(&d, adapter_files);
    }
    print_message("%d of %d opened\n", n_opened, rounds);
    assert_true(n_opened > 0 && n_opened < rounds);
    model_close(m);
    b->ops->close(b);
}

TEST_MAIN(NULL, NULL)
