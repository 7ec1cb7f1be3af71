/* Plans of models with random matrices of one block type, or of all types in turn. */
#ifndef TESTS_MODEL_MAKE_TYPES_H
#define TESTS_MODEL_MAKE_TYPES_H

#include "make_model.h"

#include "backend/linear_cases.h"
#include "core/quant.h"
#include "test.h"

enum { WIDTH = 256, N_VOCAB = 40, N_EXPERTS = 2, MIXED = -1 };

static inline uint32_t ggml_number(dtype type) {
    uint32_t i = 0;
    for (dtype t = N_DTYPES; !(dtype_from_ggml(i, &t) && t == type); i++) {
    }
    return i;
}

/* Plans a layer as wide as a block, and an untied head. */
static inline void plan_wide(model_plan *p, bool has_experts) {
    plan_llama(p);
    set_u32(p, "llama.block_count", 1);
    set_u32(p, "llama.embedding_length", WIDTH);
    set_u32(p, "llama.feed_forward_length", WIDTH);
    for (int i = p->n_tensors - 1; i >= 0; i--) {
        if (strncmp(p->tensors[i].name, "blk.1.", strlen("blk.1.")) == 0) {
            drop_tensor(p, p->tensors[i].name);
        }
    }
    for (int i = 0; i < p->n_tensors; i++) {
        tensor_entry *t = &p->tensors[i];
        const bool is_kv = strstr(t->name, "attn_k.") != NULL || strstr(t->name, "attn_v.") != NULL;
        t->dims[t->n_dims - 1] = WIDTH;
        t->dims[0] = strncmp(t->name, "token", 5) == 0 ? N_VOCAB : is_kv ? WIDTH / 2 : WIDTH;
    }
    set_tensor(p, "output.weight", N_VOCAB, WIDTH);
    for (int i = 0; i < 3 && has_experts; i++) {
        static const char *const parts[] = {"gate", "up", "down"};
        char name[64];
        snprintf(name, sizeof name, "blk.0.ffn_%s.weight", parts[i]);
        drop_tensor(p, name);
        snprintf(name, sizeof name, "blk.0.ffn_%s_exps.weight", parts[i]);
        set_tensor(p, name, WIDTH, WIDTH);
        tensor_of(p, name)->n_dims = 3;
        memcpy(tensor_of(p, name)->dims, (uint64_t[4]){N_EXPERTS, WIDTH, WIDTH}, sizeof p->tensors[0].dims);
    }
    if (has_experts) {
        set_u32(p, "llama.expert_count", N_EXPERTS);
        set_u32(p, "llama.expert_used_count", N_EXPERTS); /* use all: no choice may depend on rounding */
        set_tensor(p, "blk.0.ffn_gate_inp.weight", N_EXPERTS, WIDTH);
    }
}

/* Fills every matrix: in *blocks with a type's random blocks (or with each type's in
 * turn), in *floats with the same values as F32. */
static inline void fill_plans(int type, model_plan *blocks, model_plan *floats) {
    uint64_t seed = 7;
    for (int i = 0; i < blocks->n_tensors; i++) {
        tensor_entry *t = &blocks->tensors[i], *f = &floats->tensors[i];
        if (t->n_dims == 1 || strstr(t->name, "gate_inp") != NULL) {
            continue;
        }
        const dtype kind = type != MIXED ? (dtype)type : weight_types[1 + (7 * i) % (N_WEIGHT_TYPES - 1)];
        const size_t n = plan_elements(t);
        float *values = malloc(n * sizeof *values);
        t->data = random_weights(kind, n, &seed);
        t->type = ggml_number(kind);
        t->n_bytes = n / (size_t)dtype_block_elements(kind) * (size_t)dtype_block_bytes(kind);
        assert_int_equal(quant_dequantise(kind, t->data, n, values), QUIRE_OK);
        f->data = values;
        f->n_bytes = n * sizeof *values;
    }
}

static inline void free_plan(model_plan *p) {
    for (int i = 0; i < p->n_tensors; i++) {
        free((void *)(uintptr_t)p->tensors[i].data);
    }
}

#endif
