/* Makes small GGUF files in memory from a plan, a list of keys and tensors that a test
 * may change or corrupt first. */
#ifndef TESTS_MODEL_MAKE_MODEL_H
#define TESTS_MODEL_MAKE_MODEL_H

#include "file/make_files.h"
#include "test.h"

#define MAX_KEYS    40
#define MAX_TENSORS 64

typedef struct key_entry {
    char name[64];
    gguf_type type; /* U32, I64, F32, BOOL, STRING, or ARRAY of U32 */
    int64_t i;
    float f;
    const char *s;
    uint32_t list[8];
    uint64_t n_list;
} key_entry;

typedef struct tensor_entry {
    char name[64];
    uint32_t n_dims;
    uint64_t dims[4]; /* row-major, as in tensor_view */
    uint32_t type;    /* GGUF's number; 0: F32, 8: Q8_0 */
    float fill;       /* value of all elements; 0: random */
    float scale;      /* bound of random elements; 0: 0.1 */
    const void *data; /* [n_bytes] the data, of any type; NULL: made */
    size_t n_bytes;
} tensor_entry;

typedef struct model_plan {
    key_entry keys[MAX_KEYS];
    int n_keys;
    tensor_entry tensors[MAX_TENSORS];
    int n_tensors;
} model_plan;

static inline key_entry *key_of(model_plan *p, const char *name) {
    for (int i = 0; i < p->n_keys; i++) {
        if (strcmp(p->keys[i].name, name) == 0) {
            return &p->keys[i];
        }
    }
    assert_true(p->n_keys < MAX_KEYS);
    key_entry *k = &p->keys[p->n_keys++];
    *k = (key_entry){.type = GGUF_U32};
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}
static inline void set_u32(model_plan *p, const char *name, uint32_t v) {
    key_entry *k = key_of(p, name);
    k->type = GGUF_U32;
    k->i = v;
}
static inline void set_f32(model_plan *p, const char *name, float v) {
    key_entry *k = key_of(p, name);
    k->type = GGUF_F32;
    k->f = v;
}
static inline void set_list(model_plan *p, const char *name, uint64_t n, const uint32_t *v) {
    key_entry *k = key_of(p, name);
    k->type = GGUF_ARRAY;
    k->n_list = n;
    memcpy(k->list, v, n * sizeof *v);
}
static inline void set_str(model_plan *p, const char *name, const char *v) {
    key_entry *k = key_of(p, name);
    k->type = GGUF_STRING;
    k->s = v;
}
static inline void drop_key(model_plan *p, const char *name) {
    key_entry *k = key_of(p, name);
    *k = p->keys[--p->n_keys];
}

static inline tensor_entry *tensor_of(model_plan *p, const char *name) {
    for (int i = 0; i < p->n_tensors; i++) {
        if (strcmp(p->tensors[i].name, name) == 0) {
            return &p->tensors[i];
        }
    }
    assert_true(p->n_tensors < MAX_TENSORS);
    tensor_entry *t = &p->tensors[p->n_tensors++];
    *t = (tensor_entry){0};
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}
/* Sets a tensor of F32; d1 0: a vector. */
static inline void set_tensor(model_plan *p, const char *name, uint64_t d0, uint64_t d1) {
    tensor_entry *t = tensor_of(p, name);
    t->n_dims = d1 > 0 ? 2 : 1;
    t->dims[0] = d0;
    t->dims[1] = d1;
}
static inline void drop_tensor(model_plan *p, const char *name) {
    tensor_entry *t = tensor_of(p, name);
    *t = p->tensors[--p->n_tensors];
}

/* Plans a Llama: 2 layers, width 64, 4 heads of 16, 2 KV heads, feed-forward 96, 40
 * tokens, tied head. */
static inline void plan_llama(model_plan *p) {
    *p = (model_plan){0};
    set_str(p, "general.architecture", "llama");
    set_u32(p, "llama.block_count", 2);
    set_u32(p, "llama.embedding_length", 64);
    set_u32(p, "llama.feed_forward_length", 96);
    set_u32(p, "llama.attention.head_count", 4);
    set_u32(p, "llama.attention.head_count_kv", 2);
    set_u32(p, "llama.context_length", 128);
    set_f32(p, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    set_tensor(p, "token_embd.weight", 40, 64);
    set_tensor(p, "output_norm.weight", 64, 0);
    for (int i = 0; i < 2; i++) {
        static const struct {
            const char *name;
            uint64_t d0, d1;
        } parts[] = {{"attn_norm", 64, 0}, {"attn_q", 64, 64},      {"attn_k", 32, 64},
                     {"attn_v", 32, 64},   {"attn_output", 64, 64}, {"ffn_norm", 64, 0},
                     {"ffn_gate", 96, 64}, {"ffn_up", 96, 64},      {"ffn_down", 64, 96}};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, parts[k].name);
            set_tensor(p, name, parts[k].d0, parts[k].d1);
        }
    }
}

/* Renames the keys of a plan_llama for another architecture. */
static inline void plan_rename(model_plan *p, const char *architecture) {
    for (int i = 0; i < p->n_keys; i++) {
        char rest[64];
        if (strncmp(p->keys[i].name, "llama.", strlen("llama.")) == 0) {
            snprintf(rest, sizeof rest, "%s", p->keys[i].name + strlen("llama."));
            snprintf(p->keys[i].name, sizeof p->keys[i].name, "%.20s.%.40s", architecture, rest);
        }
    }
    set_str(p, "general.architecture", architecture);
}

/* Returns a plan_llama with the keys of another architecture. */
static inline model_plan plan_llama_as(const char *architecture) {
    model_plan p;
    plan_llama(&p);
    plan_rename(&p, architecture);
    return p;
}

/* Plans a Qwen2 mixture of experts with one layer, whose shared expert has a gate: stored
 * as a vector or as a matrix with one row. */
static inline void plan_shared_gate(model_plan *p, bool is_vector) {
    static const char *const parts[] = {"gate", "up", "down"};
    plan_llama(p);
    plan_rename(p, "qwen2moe");
    set_u32(p, "qwen2moe.block_count", 1);
    set_u32(p, "qwen2moe.expert_count", 2);
    set_u32(p, "qwen2moe.expert_used_count", 1);
    set_u32(p, "qwen2moe.expert_feed_forward_length", 32);
    set_u32(p, "qwen2moe.expert_shared_feed_forward_length", 32);
    for (int i = p->n_tensors - 1; i >= 0; i--) {
        if (strncmp(p->tensors[i].name, "blk.1.", strlen("blk.1.")) == 0) {
            drop_tensor(p, p->tensors[i].name);
        }
    }
    drop_tensor(p, "blk.0.ffn_gate.weight");
    drop_tensor(p, "blk.0.ffn_up.weight");
    drop_tensor(p, "blk.0.ffn_down.weight");
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.ffn_%s_shexp.weight", parts[i]);
        set_tensor(p, name, i == 2 ? 64 : 32, i == 2 ? 32 : 64);
        snprintf(name, sizeof name, "blk.0.ffn_%s_exps.weight", parts[i]);
        *tensor_of(p, name) = (tensor_entry){.n_dims = 3, .dims = {2, i == 2 ? 64 : 32, i == 2 ? 32 : 64}};
        snprintf(p->tensors[p->n_tensors - 1].name, sizeof p->tensors[0].name, "%s", name);
    }
    set_tensor(p, "blk.0.ffn_gate_inp.weight", 2, 64);
    set_tensor(p, "blk.0.ffn_gate_inp_shexp.weight", is_vector ? 64 : 1, is_vector ? 0 : 64);
}

static inline void put_plan_key(strbuf *b, const key_entry *k) {
    put_key(b, k->name, k->type);
    switch (k->type) {
    case GGUF_ARRAY:
        put_u32(b, GGUF_U32);
        put_u64(b, k->n_list);
        put(b, k->list, k->n_list * sizeof *k->list);
        break;
    case GGUF_STRING:
        put_str(b, k->s);
        break;
    case GGUF_F32:
        put_f32(b, k->f);
        break;
    case GGUF_I64:
        put_u64(b, (uint64_t)k->i);
        break;
    case GGUF_BOOL:
        put(b, k->i ? "\1" : "\0", 1);
        break;
    default:
        put_u32(b, (uint32_t)k->i);
        break;
    }
}

static inline uint64_t plan_elements(const tensor_entry *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        n *= t->dims[d];
    }
    return n;
}
static inline uint64_t plan_bytes(const tensor_entry *t) {
    return t->data != NULL ? t->n_bytes : t->type == 8 ? plan_elements(t) / 32 * 34 : plan_elements(t) * 4;
}

static inline void put_plan(strbuf *b, const model_plan *p) {
    put_header(b, 3, (uint64_t)p->n_tensors, (uint64_t)p->n_keys);
    for (int i = 0; i < p->n_keys; i++) {
        put_plan_key(b, &p->keys[i]);
    }
    uint64_t at = 0;
    for (int i = 0; i < p->n_tensors; i++) {
        const tensor_entry *t = &p->tensors[i];
        put_str(b, t->name);
        put_u32(b, t->n_dims);
        for (uint32_t d = t->n_dims; d-- > 0;) {
            put_u64(b, t->dims[d]);
        }
        put_u32(b, t->type);
        put_u64(b, at);
        at += (plan_bytes(t) + 31) / 32 * 32;
    }
    pad_from(b, 0, 32);
    uint64_t state = 1;
    for (int i = 0; i < p->n_tensors; i++) {
        const tensor_entry *t = &p->tensors[i];
        if (t->data != NULL) {
            put(b, t->data, t->n_bytes);
        } else if (t->type == 8) {
            for (uint64_t k = 0; k < plan_elements(t) / 32; k++) {
                put(b, "\x00\x14", 2); /* an f16 scale of 2^-10 */
                for (int j = 0; j < 32; j++) {
                    put(b, &(char){(char)rng_next(&state)}, 1);
                }
            }
        } else {
            for (uint64_t k = 0; k < plan_elements(t); k++) {
                const float any = ((float)(rng_next(&state) % 2000) - 1000.0f) * 1e-4f;
                put_f32(b, t->fill != 0 ? t->fill : t->scale != 0 ? any * t->scale : any);
            }
        }
        pad_from(b, 0, 32);
    }
}

/* A plan's file in memory, in an allocation of exactly its size. */
typedef struct plan_file {
    void *bytes;
    model_file *f;
} plan_file;

static inline plan_file plan_open(const model_plan *p) {
    strbuf b = {0};
    plan_file out = {0};
    quire_error err = {0};
    put_plan(&b, p);
    out.bytes = malloc(b.n);
    assert_non_null(out.bytes);
    memcpy(out.bytes, b.p, b.n);
    if (model_file_open_memory(out.bytes, b.n, "test.gguf", &out.f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    strbuf_deinit(&b);
    return out;
}
static inline void plan_close(plan_file *f) {
    model_file_close(f->f);
    free(f->bytes);
}

#endif
