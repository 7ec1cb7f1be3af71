/* Adapters made by tests: tensors, files, and the logits of a base model with one. */
#ifndef TESTS_MODEL_MADE_ADAPTER_H
#define TESTS_MODEL_MADE_ADAPTER_H

#include <math.h>

#include "golden_model.h"
#include "model/model_adapter.h"
#include "run_model.h"

static const char *const adapter_files[] = {"adapter_config.json", "adapter_model.safetensors", NULL};

enum { RANK = 3, MOST_TENSORS = 4096 };

#define CONFIG "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 3}"

/* ---- adapters that are written ---- */

typedef struct new_tensor {
    const char *name;
    int64_t d0, d1;      /* shape; d1 0: a vector */
    const float *values; /* NULL: random values */
    const char *type;    /* NULL: F32 */
    int64_t d2;          /* third dimension; 0: none */
} new_tensor;

static inline void write_tensors(const temp_dir *d, const char *file, const new_tensor *t, int n) {
    strbuf header = {0}, b = {0}, data = {0};
    uint64_t state = 5;
    put(&header, "{", 1);
    for (int i = 0; i < n; i++) {
        const char *type = t[i].type != NULL ? t[i].type : "F32";
        const size_t at = data.n, size = strstr(type, "32") != NULL ? 4 : strstr(type, "16") != NULL ? 2 : 1;
        const int64_t count = t[i].d0 * (t[i].d1 > 0 ? t[i].d1 : 1) * (t[i].d2 > 0 ? t[i].d2 : 1);
        for (int64_t k = 0; k < count; k++) {
            const float v =
                t[i].values != NULL ? t[i].values[k] : ((float)(rng_next(&state) % 2000) - 1000.0f) * 2e-4f;
            put(&data, &v, size);
        }
        char dims[64];
        (void)snprintf(dims, sizeof dims,
                       t[i].d2 > 0   ? "%lld, %lld, %lld"
                       : t[i].d1 > 0 ? "%lld, %lld"
                                     : "%lld",
                       (long long)t[i].d0, (long long)t[i].d1, (long long)t[i].d2);
        assert_int_equal(
            strbuf_addf(&header,
                        "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
                        i > 0 ? ", " : "", t[i].name, type, dims, at, data.n),
            QUIRE_OK);
    }
    put(&header, "}", 1);
    put_u64(&b, header.n);
    put(&b, header.p, header.n);
    put(&b, data.p, data.n);
    write_file(temp_path(d, file), b.p, b.n);
    strbuf_deinit(&header);
    strbuf_deinit(&b);
    strbuf_deinit(&data);
}

static inline model *open_base(const char *path, backend *b) {
    model_file *f;
    model *m = NULL;
    quire_error err = {0};
    if (model_file_open(path, &f, &err) != QUIRE_OK || model_open(f, b, 64, &m, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    model_file_close(f);
    return m;
}

static inline quire_err open_written(const model *m, backend *b, const char *text, const new_tensor *t, int n,
                                     model_adapter *out, quire_error *err) {
    const temp_dir d = temp_new();
    const adapter_limits limits = {.max_rank = 64, .max_bytes = 1 << 20};
    write_text(&d, "adapter_config.json", text);
    write_tensors(&d, "adapter_model.safetensors", t, n);
    const quire_err e = model_adapter_open(m, b, d.path, &limits, out, err);
    temp_delete(&d, adapter_files);
    return e;
}

static inline size_t gguf_adapter_bytes(const int64_t dims[3]) {
    return (size_t)((dims[0] > 0 ? dims[0] : 1) * dims[1] * dims[2]) * sizeof(float);
}

/* Writes a GGUF adapter for one module. dims[..][0] 0: tensors have two dimensions. */
static inline void write_gguf_adapter(const char *path, const char *architecture, const char *name,
                                      const int64_t (*dims)[3], float *const *values) {
    static const char *const ends[] = {".weight.lora_a", ".weight.lora_b"};
    strbuf b = {0};
    size_t at = 0;
    put_header(&b, 3, 2, 4);
    put_key_str(&b, "general.architecture", architecture);
    put_key_str(&b, "general.type", "adapter");
    put_key_str(&b, "adapter.type", "lora");
    put_key(&b, "adapter.lora.alpha", GGUF_F32);
    put_f32(&b, RANK);
    for (int i = 0; i < 2; i++) {
        char full[128];
        (void)snprintf(full, sizeof full, "%s%s", name, ends[i]);
        put_str(&b, full);
        const bool is_stack = dims[i][0] > 0;
        put_u32(&b, is_stack ? 3 : 2);
        for (int k = 2; k >= (is_stack ? 0 : 1); k--) {
            put_u64(&b, (uint64_t)dims[i][k]);
        }
        put_u32(&b, 0);
        put_u64(&b, at);
        at += gguf_adapter_bytes(dims[i]);
        at = (at + 31) / 32 * 32;
    }
    for (int i = 0; i < 2; i++) {
        pad_from(&b, 0, 32);
        put(&b, values[i], gguf_adapter_bytes(dims[i]));
    }
    write_file(path, b.p, b.n);
    strbuf_deinit(&b);
}

static compute_mode made_compute = COMPUTE_F32; /* compute mode of logits_with */

/* Computes the logits of a base model with the adapter at path; NULL: without one. */
static inline float *logits_with(const char *base, const char *path, size_t *n) {
    backend *b = open_backend(made_compute);
    model *m = open_base(base, b);
    model_adapter a = {0};
    const adapter_limits limits = {.max_rank = 64, .max_bytes = 1 << 24};
    quire_error err = {0};
    if (path != NULL && model_adapter_open(m, b, path, &limits, &a, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    float *out = run_prompt_with(m, b, a.weights, n, &err);
    if (out == NULL) {
        fail_msg("%s", err.message);
    }
    model_adapter_close(b, &a);
    model_close(m);
    b->ops->close(b);
    return out;
}

static inline float largest_difference(const float *a, const float *b, size_t n) {
    float most = 0.0f;
    for (size_t i = 0; i < n; i++) {
        const float d = fabsf(a[i] - b[i]);
        most = d <= most ? most : d;
    }
    return most;
}

/* An adapter for every product of a model, and the model's weights with it merged. */
typedef struct made_adapter {
    new_tensor tensors[MOST_TENSORS];
    int n;
    strbuf names; /* reserved in advance, since pointers into it must stay valid */
    void *values[MOST_TENSORS];
} made_adapter;

static inline const char *tensor_name_in(made_adapter *a, const char *name) {
    const char *at = a->names.p + a->names.n;
    assert_int_equal(strbuf_add(&a->names, name, strlen(name) + 1), QUIRE_OK);
    return at;
}

static inline const char *name_in(made_adapter *a, str module, const char *end) {
    const char *at = a->names.p + a->names.n;
    assert_int_equal(strbuf_addf(&a->names, "base_model.model.%.*s%s", (int)module.n, module.p, end),
                     QUIRE_OK);
    assert_int_equal(strbuf_add(&a->names, "", 1), QUIRE_OK);
    return at;
}

static inline float *random_values(int64_t n, float size, uint64_t *state) {
    float *v = mem_new((size_t)n, sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) {
        v[i] = size * ((float)(rng_next(state) % 2000) - 1000.0f) * 1e-3f;
    }
    return v;
}

static inline void made_deinit(made_adapter *a) {
    for (int i = 0; i < a->n; i++) {
        mem_free(a->values[i]);
    }
    strbuf_deinit(&a->names);
    mem_free(a);
}

#endif
