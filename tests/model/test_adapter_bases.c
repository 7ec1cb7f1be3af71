/* Adapters on bases of every available format and architecture, with and without DoRA:
 * the effect equals adding the product of B and A to the weights read back. */
#include <dirent.h>

#include "core/quant.h"
#include "made_adapter.h"
#include "model/arch.h"
#include "pack_model.h"
#include "test.h"

#define BASE "tests/golden/lora/base"
#define DORA "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 3, \"use_dora\": true}"

/* A tensor of a checkpoint as it is computed: [n_out, n_in]. */
typedef struct read_weight {
    float *values;
    int64_t n_out, n_in;
} read_weight;

/* The rows of all entries of a name; values NULL: some entry is none that can be read
 * back by rows, or it is of the head's kind. */
static read_weight read_back(const model *m, backend *b, const name_ref *refs, int32_t n) {
    const weight_table *t = &m->weights;
    const weight_entry *first = &t->entries[t->refs[refs[0].i].entry];
    read_weight r = {.n_out = first->part.n_rows > 0 ? first->part.n_rows : first->n_out,
                     .n_in = first->n_in};
    for (int32_t i = 0; i < n; i++) {
        const weight_ref *ref = &t->refs[refs[i].i];
        const weight_entry *w = &t->entries[ref->entry];
        if (w->w == NULL || w->turned || w->part.n_slabs > 0 || w->part.transposed || ref->whole) {
            return (read_weight){0};
        }
    }
    r.values = mem_new((size_t)(r.n_out * r.n_in), sizeof *r.values);
    assert_non_null(r.values);
    for (int32_t i = 0; i < n; i++) {
        const weight_entry *w = &t->entries[t->refs[refs[i].i].entry];
        const weight_part *p = &w->part;
        for (int64_t k = 0; k < w->n_out; k++) {
            const int64_t row = p->n_rows > 0 ? p->first + k / p->block * p->step + k % p->block : k;
            b->ops->linear_row(b, w->w, (int32_t)k, r.values + row * r.n_in);
        }
    }
    return r;
}

/* Two adapters of the same effect. */
typedef struct twin_adapters {
    made_adapter *parts, *whole; /* A and B, with magnitudes; weights in place of the base's */
} twin_adapters;

static void add_tensor(made_adapter *a, const char *name, int64_t d0, int64_t d1, float *values) {
    assert_true(a->n < MOST_TENSORS);
    a->values[a->n] = values;
    a->tensors[a->n++] = (new_tensor){name, d0, d1, values, NULL, 0};
}

/* W + B A, each row times its factor where `magnitude` is set. */
static void merge(read_weight *w, const float *a, const float *b, const float *magnitude) {
    for (int64_t r = 0; r < w->n_out; r++) {
        float *row = w->values + r * w->n_in;
        double sum = 0.0;
        for (int64_t i = 0; i < w->n_in; i++) {
            for (int64_t k = 0; k < RANK; k++) {
                row[i] += b[r * RANK + k] * a[k * w->n_in + i];
            }
            sum += (double)row[i] * (double)row[i];
        }
        for (int64_t i = 0; i < w->n_in && magnitude != NULL; i++) {
            row[i] *= magnitude[r] / (float)sqrt(sum);
        }
    }
}

static void add_twins(twin_adapters *t, str module, read_weight *w, bool is_dora, uint64_t *seed) {
    float *a = random_values(RANK * w->n_in, 1.0f / sqrtf((float)w->n_in), seed),
          *b = random_values(w->n_out * RANK, 0.3f, seed), *magnitude = NULL;
    if (is_dora) {
        magnitude = random_values(w->n_out, 0.2f, seed);
        for (int64_t r = 0; r < w->n_out; r++) {
            double sum = 0.0;
            for (int64_t i = 0; i < w->n_in; i++) {
                sum += pow((double)w->values[r * w->n_in + i], 2.0);
            }
            magnitude[r] = (float)sqrt(sum) * (1.0f + magnitude[r]);
        }
        add_tensor(t->parts, name_in(t->parts, module, ".lora_magnitude_vector"), w->n_out, 0, magnitude);
    }
    merge(w, a, b, magnitude);
    add_tensor(t->parts, name_in(t->parts, module, ".lora_A.weight"), RANK, w->n_in, a);
    add_tensor(t->parts, name_in(t->parts, module, ".lora_B.weight"), w->n_out, RANK, b);
    add_tensor(t->whole, name_in(t->whole, module, ".weight"), w->n_out, w->n_in, w->values);
}

/* Whether the file has a tensor of the module, under the root that it has instead of the
 * table's "model.". */
static bool has_tensor(const tensor_dir *dir, str module) {
    const str rest = str_begins(module, "model.") ? (str){module.p + 6, module.n - 6} : module;
    bool has = false;
    for (int32_t i = 0; i < dir->n && !has; i++) {
        const char *name = dir->views[i].name, *end = strrchr(name, '.');
        const size_t n = end != NULL ? (size_t)(end - name) : 0;
        has = n >= rest.n && memcmp(end - rest.n, rest.p, rest.n) == 0 &&
              (n == rest.n || end[-(ptrdiff_t)rest.n - 1] == '.');
    }
    return has;
}

/* Twins of all products of the layers. */
static twin_adapters make_twins(const char *base, bool is_dora) {
    char path[2 * GOLDEN_PATH];
    backend *b = open_backend(COMPUTE_F32);
    model *m = open_base(base, b);
    const weight_table *t = &m->weights;
    twin_adapters twins = {mem_new(1, sizeof(made_adapter)), mem_new(1, sizeof(made_adapter))};
    uint64_t seed = 21;
    bool *taken = mem_new(t->n, sizeof *taken);
    tensor_dir dir = {0};
    size_t n_bytes;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", base);
    uint8_t *bytes = read_whole(path, &n_bytes);
    assert_int_equal(safetensors_parse(bytes, n_bytes, path, 0, &dir, NULL), QUIRE_OK);
    assert_int_equal(tensor_dir_finish(&dir, path, NULL), QUIRE_OK);
    assert_int_equal(strbuf_reserve(&twins.parts->names, 1 << 20), QUIRE_OK);
    assert_int_equal(strbuf_reserve(&twins.whole->names, 1 << 20), QUIRE_OK);
    for (int32_t i = 0, n; i < t->n_names[0]; i += n) {
        const name_ref *refs = t->by_name[0] + i;
        for (n = 1; i + n < t->n_names[0] && str_eq(refs[n].name, refs[0].name); n++) {
        }
        bool *is_taken = &taken[t->refs[refs[0].i].entry]; /* under another of its names */
        read_weight w =
            has_tensor(&dir, refs[0].name) && !*is_taken ? read_back(m, b, refs, n) : (read_weight){0};
        if (w.values != NULL) {
            *is_taken = true;
            add_twins(&twins, refs[0].name, &w, is_dora, &seed);
        }
    }
    tensor_dir_deinit(&dir);
    mem_free(taken);
    mem_free(bytes);
    model_close(m);
    b->ops->close(b);
    return twins;
}

static float *logits_of_made(const char *base, const made_adapter *a, const char *text, size_t *n) {
    const temp_dir d = temp_new();
    write_text(&d, "adapter_config.json", text);
    write_tensors(&d, "adapter_model.safetensors", a->tensors, a->n);
    float *out = logits_with(base, d.path, n);
    temp_delete(&d, adapter_files);
    return out;
}

static bool runs_here(const char *base) {
    model_file *f;
    model_desc d;
    quire_error err;
    if (model_file_open(base, &f, &err) != QUIRE_OK) {
        return false;
    }
    const bool runs = model_describe(f, &d, &err) == QUIRE_OK;
    model_file_close(f);
    return runs;
}

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median_difference(const float *a, const float *b, size_t n) {
    float *d = mem_new(n, sizeof *d);
    for (size_t i = 0; i < n; i++) {
        d[i] = fabsf(a[i] - b[i]);
    }
    qsort(d, n, sizeof *d, by_size);
    const float middle = d[n / 2];
    mem_free(d);
    return middle;
}

static void check_base(const char *base, const char *name, bool is_dora, int *n_checked) {
    twin_adapters t = make_twins(base, is_dora);
    if (t.parts->n > 0) {
        size_t n;
        float *plain = logits_with(base, NULL, &n),
              *with = logits_of_made(base, t.parts, is_dora ? DORA : CONFIG, &n),
              *want = logits_of_made(base, t.whole, CONFIG, &n);
        const float off = largest_difference(with, want, n), changed = largest_difference(plain, want, n);
        print_message("%s%s: %d products, %g of %g\n", name, is_dora ? ", DoRA" : "", t.whole->n, (double)off,
                      (double)changed);
        /* in int8 the weights in place of the base's are rounded by channels */
        const bool is_same = made_compute == COMPUTE_F32 ? off <= 2e-3f && changed > 10.0f * off
                                                         : median_difference(plain, want, n) >
                                                               4.0f * median_difference(with, want, n);
        if (!is_same) {
            fail_msg("%s", name);
        }
        mem_free(plain);
        mem_free(with);
        mem_free(want);
        (*n_checked)++;
    } else {
        print_message("%s: none\n", name);
    }
    made_deinit(t.parts);
    made_deinit(t.whole);
}

/* Of the models of a set that this build runs, one of `each`; with QUIRE_TEST_LONG of
 * all. How many. */
static int check_set(const char *set, bool is_dora, int each) {
    char root[GOLDEN_PATH], base[GOLDEN_PATH + 260], path[2 * GOLDEN_PATH];
    const char *shared = shared_dir();
    int n_checked = 0, n_seen = 0;
    each = getenv("QUIRE_TEST_LONG") != NULL ? 1 : each;
    if (shared == NULL) {
        return 0;
    }
    (void)snprintf(root, sizeof root, "%s/%s", shared, set);
    DIR *d = opendir(root);
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        (void)snprintf(base, sizeof base, "%s/%s", root, e->d_name);
        (void)snprintf(path, sizeof path, "%s/model.safetensors", base);
        if (e->d_name[0] != '.' && access(path, R_OK) == 0 && n_seen++ % each == 0 && runs_here(base)) {
            check_base(base, e->d_name, is_dora, &n_checked);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return n_checked;
}

TEST(an_adapter_adds_to_quantised_weights_what_it_adds_to_their_values) {
    assert_true(check_set("golden/quants/hf", false, 1) >= 30 || shared_dir() == NULL);
}

TEST(a_dora_of_quantised_weights_is_that_of_their_values) {
    assert_true(check_set("golden/quants/hf", true, 2) >= 15 || shared_dir() == NULL);
}

TEST(an_adapter_adds_to_quantised_weights_in_int8_too) {
    made_compute = COMPUTE_INT8;
    assert_true(check_set("golden/quants/hf", false, 1) >= 30 || shared_dir() == NULL);
    made_compute = COMPUTE_F32;
}

TEST(an_adapter_adds_to_weights_of_every_architecture) {
    assert_true(check_set("golden/models", false, 2) >= 30 || shared_dir() == NULL);
    assert_true(check_set("golden/models-2026", true, 3) >= 15 || shared_dir() == NULL);
}

/* Logits of the base in 8-bit blocks. */
static float *logits_of_blocks(const char *path, size_t *n) {
    backend *b = open_backend(COMPUTE_F32);
    model_file *f;
    model *m;
    model_adapter a = {0};
    const adapter_limits limits = {.max_rank = 64, .max_bytes = 1 << 24};
    quire_error err = {0};
    assert_int_equal(model_file_open_with(BASE, &(model_overrides){.quantise = "q8_0"}, &f, &err), QUIRE_OK);
    assert_int_equal(model_open(f, b, 64, &m, &err), QUIRE_OK);
    model_file_close(f);
    if (path != NULL) {
        assert_int_equal(model_adapter_open(m, b, path, &limits, &a, &err), QUIRE_OK);
    }
    float *out = run_prompt_with(m, b, a.weights, n, &err);
    assert_non_null(out);
    model_adapter_close(b, &a);
    model_close(m);
    b->ops->close(b);
    return out;
}

TEST(an_adapter_of_a_quantised_base_is_as_far_off_as_the_base) {
    static const char *const names[] = {"all-r6-rslora", "dora-r3", "embed-head"};
    size_t n;
    float *plain = logits_with(BASE, NULL, &n), *blocks = logits_of_blocks(NULL, &n);
    const float off = largest_difference(plain, blocks, n);
    assert_true(off > 1e-4f && off < 0.5f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "tests/golden/lora/%s", names[i]);
        float *want = logits_with(BASE, path, &n), *got = logits_of_blocks(path, &n);
        const float own = largest_difference(want, got, n), changed = largest_difference(plain, want, n);
        print_message("%s: %g, the base %g, changed %g\n", names[i], (double)own, (double)off,
                      (double)changed);
        assert_true(own < 8.0f * off && changed > 8.0f * own);
        mem_free(want);
        mem_free(got);
    }
    mem_free(plain);
    mem_free(blocks);
}

TEST(a_packed_base_gives_the_bits_of_its_source) {
    static const char *const names[] = {"all-r6-rslora", "dora-r3", "embed-head", "save-norm-f16"};
    const temp_dir d = temp_new();
    model_file *f;
    quire_error err = {0};
    const char *packed = temp_path(&d, "base.packed");
    char own[512], path[256];
    (void)snprintf(own, sizeof own, "%s", packed);
    assert_int_equal(model_file_open(BASE, &f, &err), QUIRE_OK);
    pack_model(f, COMPUTE_F32, own);
    model_file_close(f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n, n_packed;
        (void)snprintf(path, sizeof path, "tests/golden/lora/%s", names[i]);
        float *want = logits_with(BASE, path, &n), *got = logits_with(own, path, &n_packed);
        assert_int_equal(n, n_packed);
        assert_memory_equal(want, got, n * sizeof *want);
        mem_free(want);
        mem_free(got);
    }
    unlink(own);
    rmdir(d.path);
}

/* ---- GLM-4V ---- */

enum { GLM_WIDTH = 32, GLM_HEADS = 4, GLM_HEAD = 8, GLM_ROTATES = 4 };

/* The row of a checkpoint that is row r of a GGUF file's queries and keys, where
 * positions have several axes: of those that rotate first each pair's first. */
static int64_t glm_row(int64_t r) {
    const int64_t at = r % GLM_HEAD, half = GLM_ROTATES / 2;
    return at < GLM_ROTATES ? r - at + at % half * 2 + at / half : r;
}

/* A tensor of the golden GLM-4 as floats, in the order of a GGUF file. */
static float *glm_values(const tensor_view *t, bool turns) {
    const int64_t n = (int64_t)t->n_bytes / 2, width = n / t->dims[0];
    float *values = random_values(n, 0.0f, &(uint64_t){0}), *out = random_values(n, 0.0f, &(uint64_t){0});
    assert_int_equal(quant_dequantise(t->type, t->data, (size_t)n, values), QUIRE_OK);
    for (int64_t r = 0; r < t->dims[0]; r++) {
        memcpy(out + r * width, values + (turns ? glm_row(r) : r) * width, sizeof *out * (size_t)width);
    }
    mem_free(values);
    return out;
}

/* The name that a tensor of a GLM-4 has in a GGUF file. */
static void glm_name(const char *name, char out[64]) {
    static const struct {
        const char *hf, *gguf;
    } names[] = {
        {"self_attn.q_proj", "attn_q"},           {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},           {"self_attn.o_proj", "attn_output"},
        {"mlp.gate_up_proj", "ffn_up"},           {"mlp.down_proj", "ffn_down"},
        {"input_layernorm", "attn_norm"},         {"post_self_attn_layernorm", "post_attention_norm"},
        {"post_attention_layernorm", "ffn_norm"}, {"post_mlp_layernorm", "post_ffw_norm"}};
    int layer = 0;
    (void)snprintf(out, 64, "%s",
                   strncmp(name, "lm_head", 7) == 0 ? "output.weight"
                   : strstr(name, "embed") != NULL  ? "token_embd.weight"
                                                    : "output_norm.weight");
    for (size_t i = 0; sscanf(name, "model.layers.%d.", &layer) == 1 && i < sizeof names / sizeof *names;
         i++) {
        if (strstr(name, names[i].hf) != NULL) {
            (void)snprintf(out, 64, "blk.%d.%s%s", layer, names[i].gguf, strrchr(name, '.'));
        }
    }
}

/* The golden GLM-4 as a GGUF file whose positions have three axes. */
static void write_glm_gguf(const char *base, const char *path) {
    static const uint32_t sections[] = {1, 1, 0, 0};
    char weights[2 * GOLDEN_PATH];
    model_plan p = {0};
    strbuf b = {0};
    tensor_dir dir = {0};
    size_t n_bytes;
    set_str(&p, "general.architecture", "glm4");
    set_u32(&p, "glm4.block_count", 2);
    set_u32(&p, "glm4.context_length", 256);
    set_u32(&p, "glm4.embedding_length", GLM_WIDTH);
    set_u32(&p, "glm4.feed_forward_length", 56);
    set_u32(&p, "glm4.attention.head_count", GLM_HEADS);
    set_u32(&p, "glm4.attention.head_count_kv", 2);
    set_u32(&p, "glm4.attention.key_length", GLM_HEAD);
    set_u32(&p, "glm4.attention.value_length", GLM_HEAD);
    set_u32(&p, "glm4.rope.dimension_count", GLM_ROTATES);
    set_list(&p, "glm4.rope.dimension_sections", 4, sections);
    set_f32(&p, "glm4.rope.freq_base", 1e4f);
    set_f32(&p, "glm4.attention.layer_norm_rms_epsilon", 1e-5f);
    (void)snprintf(weights, sizeof weights, "%s/model.safetensors", base);
    uint8_t *bytes = read_whole(weights, &n_bytes);
    assert_int_equal(safetensors_parse(bytes, n_bytes, weights, 0, &dir, NULL), QUIRE_OK);
    assert_int_equal(tensor_dir_finish(&dir, weights, NULL), QUIRE_OK);
    for (int32_t i = 0; i < dir.n; i++) {
        const tensor_view *t = &dir.views[i];
        char name[64];
        glm_name(t->name, name);
        set_tensor(&p, name, (uint64_t)t->dims[0], t->n_dims > 1 ? (uint64_t)t->dims[1] : 0);
        tensor_of(&p, name)->data =
            glm_values(t, strstr(name, "attn_q.") != NULL || strstr(name, "attn_k.") != NULL);
        tensor_of(&p, name)->n_bytes = t->n_bytes * 2;
    }
    put_plan(&b, &p);
    write_file(path, b.p, b.n);
    for (int i = 0; i < p.n_tensors; i++) {
        mem_free((void *)(uintptr_t)p.tensors[i].data);
    }
    strbuf_deinit(&b);
    tensor_dir_deinit(&dir);
    mem_free(bytes);
}

/* A head's rows lie in another order in its GGUF files: an adapter of one format does on
 * a base of the other what it does on its own. */
TEST(queries_of_glm_4v_rotate_alike_in_both_formats) {
    static const char q[] = "base_model.model.model.layers.1.self_attn.q_proj";
    char base[GOLDEN_PATH], path[2 * GOLDEN_PATH], names[3][96], adapter_path[256];
    const char *shared = shared_dir();
    uint64_t seed = 33;
    size_t n;
    if (shared == NULL) {
        return;
    }
    (void)snprintf(base, sizeof base, "%s/golden/models/glm4", shared);
    const temp_dir own = temp_new(), d = temp_new();
    json_t *json = golden_config("glm4");
    assert_int_equal(
        json_object_set_new(json, "rope_scaling",
                            json_pack("{s:s,s:[i,i,i]}", "rope_type", "default", "mrope_section", 1, 1, 0)),
        0);
    assert_int_equal(json_dump_file(json, temp_path(&own, "config.json"), 0), 0);
    json_decref(json);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", base);
    uint8_t *bytes = read_whole(path, &n);
    write_file(temp_path(&own, "model.safetensors"), bytes, n);
    mem_free(bytes);
    (void)snprintf(path, sizeof path, "%s/base.gguf", d.path);
    (void)snprintf(adapter_path, sizeof adapter_path, "%s/adapter.gguf", d.path);
    write_glm_gguf(base, path);
    float *a = random_values(RANK * GLM_WIDTH, 0.3f, &seed),
          *b = random_values(GLM_WIDTH * RANK, 0.5f, &seed),
          *turned = random_values(GLM_WIDTH * RANK, 0.0f, &seed),
          *bias = random_values(GLM_WIDTH, 1.0f, &seed);
    for (int64_t r = 0; r < GLM_WIDTH; r++) {
        memcpy(turned + r * RANK, b + glm_row(r) * RANK, sizeof *b * RANK);
    }
    (void)snprintf(names[0], sizeof names[0], "%s.lora_A.weight", q);
    (void)snprintf(names[1], sizeof names[1], "%s.lora_B.weight", q);
    (void)snprintf(names[2], sizeof names[2], "%s.bias", q);
    const new_tensor tensors[] = {{names[0], RANK, GLM_WIDTH, a, NULL, 0},
                                  {names[1], GLM_WIDTH, RANK, b, NULL, 0},
                                  {names[2], GLM_WIDTH, 0, bias, NULL, 0}};
    write_text(&d, "adapter_config.json", CONFIG);
    write_tensors(&d, "adapter_model.safetensors", tensors, 3);
    write_gguf_adapter(adapter_path, "glm4", "blk.1.attn_q",
                       (const int64_t[2][3]){{0, RANK, GLM_WIDTH}, {0, GLM_WIDTH, RANK}},
                       (float *[]){a, turned});
    float *plain = logits_with(own.path, NULL, &n), *plain_gguf = logits_with(path, NULL, &n),
          *biased = logits_with(own.path, d.path, &n), *biased_gguf = logits_with(path, d.path, &n),
          *of_gguf = logits_with(own.path, adapter_path, &n), *own_gguf = logits_with(path, adapter_path, &n);
    assert_true(largest_difference(plain, plain_gguf, n) < 1e-4f);
    assert_true(largest_difference(biased, biased_gguf, n) < 1e-4f);
    assert_true(largest_difference(of_gguf, own_gguf, n) < 1e-4f);
    assert_true(largest_difference(plain, biased, n) > 1e-2f &&
                largest_difference(plain, of_gguf, n) > 1e-2f);
    float *all[] = {a, b, turned, bias, plain, plain_gguf, biased, biased_gguf, of_gguf, own_gguf};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mem_free(all[i]);
    }
    unlink(path);
    unlink(adapter_path);
    temp_delete(&own, golden_files);
    temp_delete(&d, adapter_files);
}

TEST_MAIN(NULL, NULL)
