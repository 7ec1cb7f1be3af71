/* Mutates the supported models' config.json and GGUF metadata a thousand times: drops
 * keys, changes types, numbers, list lengths and texts. Each file is either refused with
 * a message that names the file, or computes. QUIRE_TEST_LONG: more rounds.
 * QUIRE_TEST_SEED=n repeats a run. */
#include <assert.h>

#include <dirent.h>

#include "golden_model.h"

enum { MAX_MODELS = 256, ROUNDS = 500, LONG_ROUNDS = 4000 };

static char models[MAX_MODELS][256];
static int n_models;

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Adds the names of the supported models of one set. */
static void list_set(const char *shared, const char *set) {
    char path[GOLDEN_PATH];
    snprintf(path, sizeof path, "%s/%s", shared, set);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && n_models < MAX_MODELS && (e = readdir(dir)) != NULL;) {
        char file[GOLDEN_PATH];
        if (e->d_name[0] != '.' && golden_path(e->d_name, "model.safetensors", file) != NULL &&
            golden_describes(e->d_name)) {
            snprintf(models[n_models++], sizeof models[0], "%s", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* The names of the supported golden models, in order; none where there are none here. */
static void list_models(void) {
    const char *shared = shared_dir();
    for (int i = 0; i < N_GOLDEN_SETS && shared != NULL; i++) {
        list_set(shared, golden_sets[i]);
    }
    assert(n_models < MAX_MODELS);
    qsort(models, (size_t)n_models, sizeof models[0], by_name);
}

static int rounds(void) {
    return getenv("QUIRE_TEST_LONG") != NULL ? LONG_ROUNDS : ROUNDS;
}

/* Opens and runs it in one of the modes. True: it computed. */
static bool survives(const char *path, const char *what, uint64_t *seed) {
    size_t n;
    quire_error err;
    float *logits = golden_run(path, (compute_mode)(COMPUTE_F32 + rng_next(seed) % 3), &n, &err);
    if (logits == NULL && (err.code == QUIRE_OK || err.message[0] == 0)) {
        fail_msg("%s: refused without a word", what);
    }
    if (logits == NULL && strstr(err.message, path) == NULL && strstr(err.message, "model.gguf") == NULL) {
        fail_msg("%s: the message does not name the file: %s", what, err.message);
    }
    if (logits == NULL && strchr(err.message, '|') != NULL) {
        fail_msg("%s: the message lists keys that the file does not have: %s", what, err.message);
    }
    mem_free(logits);
    return logits != NULL;
}

/* ---- config.json ---- */

static json_t *long_list(uint64_t *seed) {
    json_t *list = json_array();
    size_t n = rng_next(seed) % 2000;
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_integer((json_int_t)(rng_next(seed) % 3)));
    }
    return list;
}

static json_t *hostile_value(uint64_t *seed) {
    static const json_int_t integers[] = {0,
                                          1,
                                          2,
                                          3,
                                          4,
                                          5,
                                          7,
                                          8,
                                          16,
                                          63,
                                          100,
                                          256,
                                          257,
                                          513,
                                          4096,
                                          65536,
                                          1 << 20,
                                          1 << 30,
                                          INT32_MAX - 1,
                                          INT32_MAX,
                                          (json_int_t)INT32_MAX + 1,
                                          INT64_MAX,
                                          -1,
                                          -2,
                                          INT32_MIN,
                                          INT64_MIN};
    static const double reals[] = {0.0, 0.5,  1.0,  -1.0,  1.5,    1e-45,        1e-6,
                                   1e6, 1e38, 1e39, 1e300, -1e300, 2147483647.5, 0.999};
    static const char *const texts[] = {"",
                                        "silu",
                                        "gelu",
                                        "relu2",
                                        "yarn",
                                        "longrope",
                                        "llama3",
                                        "linear",
                                        "dynamic",
                                        "default",
                                        "sliding_attention",
                                        "full_attention",
                                        "linear_attention",
                                        "conv",
                                        "mamba",
                                        "moe",
                                        "sparse",
                                        "auto",
                                        "M*E-",
                                        "wrong",
                                        "%s%n",
                                        "2",
                                        "\xc3\xa9"};
    switch (rng_next(seed) % 11) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(rng_next(seed) % 2);
    case 2:
    case 3:
    case 4:
    case 5:
        return json_integer(integers[rng_next(seed) % (sizeof integers / sizeof *integers)]);
    case 6:
        return json_real(reals[rng_next(seed) % (sizeof reals / sizeof *reals)]);
    case 7:
        return json_string(texts[rng_next(seed) % (sizeof texts / sizeof *texts)]);
    case 8:
        return long_list(seed);
    case 9:
        return json_object();
    default:
        return json_pack("{s:s, s:o, s:o}", "rope_type", "longrope", "short_factor", long_list(seed),
                         "long_factor", long_list(seed));
    }
}

/* Changes one value somewhere in an object or a list. */
static void mutate_json(json_t *at, uint64_t *seed) {
    size_t n = json_is_array(at) ? json_array_size(at) : json_object_size(at);
    if (n == 0) {
        return;
    }
    size_t i = rng_next(seed) % n;
    const char *key = NULL;
    json_t *child = json_is_array(at) ? json_array_get(at, i) : NULL;
    if (json_is_object(at)) {
        void *it = json_object_iter(at);
        for (size_t k = 0; k < i; k++) {
            it = json_object_iter_next(at, it);
        }
        key = json_object_iter_key(it);
        child = json_object_iter_value(it);
    }
    uint64_t how = rng_next(seed) % 8;
    if ((json_is_object(child) || json_is_array(child)) && how < 5) {
        mutate_json(child, seed);
    } else if (how == 7 && key != NULL) {
        json_object_del(at, key);
    } else if (how == 7) {
        json_array_remove(at, i);
    } else if (how == 6 && key == NULL) {
        json_array_append_new(at, hostile_value(seed));
    } else if (key != NULL) {
        json_object_set_new(at, key, hostile_value(seed));
    } else {
        json_array_set_new(at, i, hostile_value(seed));
    }
}

/* Fields that some architecture reads, for files that lack them. */
static void add_field(json_t *config, uint64_t *seed) {
    static const char *const names[] = {"sliding_window",
                                        "layer_types",
                                        "num_local_experts",
                                        "num_experts",
                                        "head_dim",
                                        "rope_scaling",
                                        "rope_parameters",
                                        "partial_rotary_factor",
                                        "sliding_window_pattern",
                                        "text_config",
                                        "n_group",
                                        "topk_group",
                                        "first_k_dense_replace",
                                        "no_rope_layers",
                                        "mlp_only_layers",
                                        "moe_layer_interval",
                                        "rotary_dim",
                                        "global_head_dim",
                                        "is_causal",
                                        "use_qk_norm",
                                        "hidden_act",
                                        "query_pre_attn_scalar",
                                        "quantization_config",
                                        "num_key_value_heads",
                                        "decoder_sparse_step",
                                        "use_sliding_window",
                                        "max_window_layers",
                                        "conv_L_cache",
                                        "linear_num_value_heads",
                                        "linear_key_head_dim",
                                        "linear_attn_config",
                                        "mamba_d_state",
                                        "mamba_n_heads",
                                        "ssm_state_size",
                                        "time_step_limit",
                                        "hybrid_override_pattern",
                                        "kv_lora_rank",
                                        "q_lora_rank",
                                        "qk_rope_head_dim",
                                        "index_topk",
                                        "moe_latent_size",
                                        "num_nextn_predict_layers"};
    json_object_set_new(config, names[rng_next(seed) % (sizeof names / sizeof *names)], hostile_value(seed));
}

TEST(mutated_configs_are_refused_or_computed) {
    uint64_t seed = test_seed("mutated config.json");
    int n_computed = 0, n = rounds();
    if (n_models == 0) {
        skip();
    }
    for (int i = 0; i < n; i++) {
        const char *name = models[i % n_models];
        json_t *config = golden_config(name);
        assert_non_null(config);
        for (uint64_t k = rng_next(&seed) % 3 + 1; k > 0; k--) {
            if (rng_next(&seed) % 6 == 0) {
                add_field(config, &seed);
            } else {
                mutate_json(config, &seed);
            }
        }
        temp_dir d = golden_write(name, config, NULL);
        char *text = json_dumps(config, JSON_COMPACT | JSON_ENCODE_ANY);
        n_computed += survives(d.path, text, &seed);
        free(text);
        temp_delete(&d, golden_files);
        json_decref(config);
    }
    print_message("config.json of %d models: %d of %d computed, the others were refused\n", n_models,
                  n_computed, n);
    assert_true(n_computed > n / 20);
}

/* ---- GGUF ---- */

enum { MAX_ENTRIES = 256 };

/* Where a key and its value lie in the file. */
typedef struct gguf_place {
    size_t key, n_key, type, value, n_items;
    uint32_t kind, item;
} gguf_place;

static size_t read_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return (size_t)v;
}
static uint32_t read_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static size_t size_of(uint32_t type) {
    return type == GGUF_U32 || type == GGUF_I32 || type == GGUF_F32   ? 4
           : type == GGUF_U64 || type == GGUF_I64 || type == GGUF_F64 ? 8
           : type < GGUF_U32 && type > GGUF_I8                        ? 2
                                                                      : 1;
}

static size_t skip_value(const uint8_t *p, size_t at, uint32_t type) {
    return type == GGUF_STRING ? at + 8 + read_u64(p + at) : at + size_of(type);
}

/* The entries of a whole file. */
static int find_places(const uint8_t *p, gguf_place *places) {
    size_t n = read_u64(p + 16), at = 24;
    assert_true(n <= MAX_ENTRIES);
    for (size_t i = 0; i < n; i++) {
        gguf_place *e = &places[i];
        *e = (gguf_place){.key = at + 8, .n_key = read_u64(p + at)};
        e->type = e->key + e->n_key;
        e->kind = read_u32(p + e->type);
        e->value = at = e->type + 4;
        if (e->kind != GGUF_ARRAY) {
            at = skip_value(p, at, e->kind);
            continue;
        }
        e->item = read_u32(p + at);
        e->n_items = read_u64(p + at + 4);
        e->value = at = at + 12;
        for (size_t k = 0; k < e->n_items; k++) {
            at = skip_value(p, at, e->item);
        }
    }
    return (int)n;
}

static void set_number(uint8_t *p, uint64_t *seed) {
    static const uint32_t bits[] = {
        0,           1,           2,           3,           7,           8,          63,         256,
        513,         65536,       1u << 20,    1u << 30,    INT32_MAX,   1u << 31,   UINT32_MAX, 0x7f800000u,
        0x7fc00000u, 0xff800000u, 0x3f000000u, 0xbf800000u, 0x7f7fffffu, 0x3f800000u};
    memcpy(p, &bits[rng_next(seed) % (sizeof bits / sizeof *bits)], 4);
}

static void mutate_place(uint8_t *p, const gguf_place *e, uint64_t *seed) {
    static const uint32_t types[] = {GGUF_U32, GGUF_I32, GGUF_F32};
    uint64_t how = rng_next(seed) % 8;
    if (how == 0 && e->n_key > 0) { /* as if it were not there */
        p[e->key + e->n_key - 1] = 'Z';
    } else if (how == 1 && size_of(e->kind) == 4 && e->kind != GGUF_STRING && e->kind != GGUF_ARRAY) {
        memcpy(p + e->type, &types[rng_next(seed) % 3], 4);
    } else if (e->kind == GGUF_STRING) {
        size_t n = read_u64(p + e->value);
        if (n > 0) {
            p[e->value + 8 + rng_next(seed) % n] = (uint8_t)("aZ0\xff_"[rng_next(seed) % 5]);
        }
    } else if (e->kind == GGUF_ARRAY && e->n_items > 0 && size_of(e->item) == 4 && e->item != GGUF_STRING) {
        set_number(p + e->value + 4 * (rng_next(seed) % e->n_items), seed);
    } else if (e->kind != GGUF_ARRAY && size_of(e->kind) == 4) {
        set_number(p + e->value, seed);
    } else if (e->kind != GGUF_ARRAY) {
        p[e->value] = (uint8_t)(rng_next(seed) % 3);
    }
}

TEST(mutated_metadata_are_refused_or_computed) {
    uint64_t seed = test_seed("mutated GGUF metadata");
    int n_computed = 0, n = rounds(), n_tried = 0;
    if (n_models == 0) {
        skip();
    }
    temp_dir d = temp_new();
    for (int i = 0; n_tried < n; i++) {
        char path[GOLDEN_PATH];
        gguf_place places[MAX_ENTRIES];
        size_t size;
        if (golden_path(models[i % n_models], "model.gguf", path) == NULL) {
            continue;
        }
        uint8_t *bytes = read_whole(path, &size);
        int n_places = find_places(bytes, places);
        for (uint64_t k = rng_next(&seed) % 2 + 1; k > 0; k--) {
            mutate_place(bytes, &places[rng_next(&seed) % (uint64_t)n_places], &seed);
        }
        write_file(temp_path(&d, "model.gguf"), bytes, size);
        n_computed += survives(temp_path(&d, "model.gguf"), models[i % n_models], &seed);
        n_tried++;
        mem_free(bytes);
    }
    temp_delete(&d, (const char *[]){"model.gguf", NULL});
    print_message("GGUF metadata of %d models: %d of %d computed, the others were refused\n", n_models,
                  n_computed, n_tried);
    assert_true(n_computed > n_tried / 20);
}

int main(void) {
    list_models();
    return tests_run(NULL, NULL);
}
