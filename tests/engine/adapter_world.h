/* Adapters for an engine under test: their files, and references for requests. */
#ifndef TESTS_ENGINE_ADAPTER_WORLD_H
#define TESTS_ENGINE_ADAPTER_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"
#include "model/model_adapter.h"

enum { WORLD_ADAPTERS = 3, WORLD_RANK = 4 };

static char world_root[64];

/* The adapters of an open engine. */
typedef struct world_adapters {
    model_adapter own[WORLD_ADAPTERS];
    adapter_ref refs[WORLD_ADAPTERS];
} world_adapters;

/* ---- files ---- */

/* A linear of a layer, by its PEFT name. */
typedef struct world_linear {
    const char *name;
    size_t n_in, n_out;
} world_linear;

/* Writes a PEFT directory that changes n_linears linears of up to 8 layers. */
static inline void adapter_write(const char *dir, const model_desc *d, const world_linear *linears,
                                 int n_linears, uint64_t seed) {
    char path[128];
    static char header[32768];
    size_t n = 0, at = 0, rank = WORLD_RANK;
    n += (size_t)snprintf(header, sizeof header, "{");
    for (int32_t i = 0; i < d->n_layers && i < 8; i++) {
        for (int k = 0; k < 2 * n_linears; k++) {
            size_t rows = k % 2 == 0 ? rank : linears[k / 2].n_out,
                   columns = k % 2 == 0 ? linears[k / 2].n_in : rank;
            n += (size_t)snprintf(header + n, sizeof header - n,
                                  "%s\"base_model.model.model.layers.%d.%s.lora_%c.weight\":{\"dtype\":"
                                  "\"F32\",\"shape\":[%zu,%zu],\"data_offsets\":[%zu,%zu]}",
                                  n > 1 ? "," : "", (int)i, linears[k / 2].name, k % 2 == 0 ? 'A' : 'B', rows,
                                  columns, at, at + rows * columns * sizeof(float));
            at += rows * columns * sizeof(float);
        }
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    assert_true(n < sizeof header);
    assert_int_equal(mkdir(dir, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t n_header = n;
    assert_int_equal(fwrite(&n_header, sizeof n_header, 1, f), 1);
    assert_int_equal(fwrite(header, 1, n, f), n);
    for (size_t i = 0; i < at / sizeof(float); i++) {
        float x = (float)((double)(rng_next(&seed) % 2001) / 1000.0 - 1.0) * 0.3f;
        assert_int_equal(fwrite(&x, sizeof x, 1, f), 1);
    }
    (void)fclose(f);
    (void)snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(f, "{\"peft_type\":\"LORA\",\"r\":%d,\"lora_alpha\":%d}", WORLD_RANK, WORLD_RANK);
    (void)fclose(f);
}

static inline void adapter_path(int i, char out[80]) {
    (void)snprintf(out, 80, "%s/%d", world_root, i);
}

/* A group's set-up: writes adapters for MODEL. The first changes attention's query and
 * output linears, the second all linears, the third those of the feed-forward. */
static inline int adapters_write(void **state) {
    harness h = {0};
    char path[80];
    (void)state;
    harness_open(&harness_defaults, &h);
    (void)snprintf(world_root, sizeof world_root, "/tmp/quire-test-adapters-%ld", (long)getpid());
    assert_int_equal(mkdir(world_root, 0700), 0);
    const model_desc *d = model_description(h.m);
    const layer_desc *l = desc_attention_layer(d);
    const size_t width = (size_t)d->d_model, head = (size_t)d->caches[l->caches[0]].d_key,
                 heads = (size_t)l->n_heads * head, kv = (size_t)d->caches[l->caches[0]].n_kv_heads * head,
                 ff = (size_t)l->d_ff;
    const world_linear all[] = {{"self_attn.k_proj", width, kv},    {"self_attn.v_proj", width, kv},
                                {"self_attn.q_proj", width, heads}, {"self_attn.o_proj", heads, width},
                                {"mlp.gate_proj", width, ff},       {"mlp.up_proj", width, ff},
                                {"mlp.down_proj", ff, width}};
    const struct { int first, n; } changed[WORLD_ADAPTERS] = {{2, 2}, {0, 7}, {4, 3}};
    for (int i = 0; i < WORLD_ADAPTERS; i++) {
        adapter_path(i, path);
        adapter_write(path, d, all + changed[i].first, changed[i].n, 100 + (uint64_t)i);
    }
    harness_close(&h);
    return 0;
}

/* A group's tear-down: removes the adapters' files. */
static inline int adapters_remove(void **state) {
    char command[80];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", world_root);
    return system(command);
}

/* ---- handles ---- */

static inline void adapter_load_one(const harness *h, world_adapters *l, int i) {
    const adapter_limits limits = {.max_rank = 16, .max_bytes = 1 << 24};
    quire_error err = {0};
    char path[80];
    adapter_path(i, path);
    l->own[i] = (model_adapter){0};
    if (model_adapter_open(h->m, h->b, path, &limits, &l->own[i], &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    l->refs[i] = (adapter_ref){.weights = l->own[i].weights, .rank = l->own[i].rank};
    atomic_store(&l->refs[i].holders, 1);
}

static inline void adapter_drop_one(const harness *h, world_adapters *l, int i) {
    assert_int_equal(atomic_load(&l->refs[i].holders), 1); /* every request has dropped its reference */
    model_adapter_close(h->b, &l->own[i]);
}

static inline void adapters_load(const harness *h, world_adapters *l) {
    for (int i = 0; i < WORLD_ADAPTERS; i++) {
        adapter_load_one(h, l, i);
    }
}

/* Closes all adapters. All requests must have ended. */
static inline void adapters_drop(const harness *h, world_adapters *l) {
    for (int i = 0; i < WORLD_ADAPTERS; i++) {
        adapter_drop_one(h, l, i);
    }
}

/* Returns the namespace of requests with adapter i; -1: of those without one. */
static inline const char *adapter_namespace(int i) {
    static const char *const names[] = {"base", "adapter 0", "adapter 1", "adapter 2"};
    return names[i + 1];
}

#endif
