/* memfd_create is Linux's own. */
#define _GNU_SOURCE
#include "lab/bench/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/size.h"
#include "base/str.h"
#include "core/half.h"
#include "setup/memory_limits.h"

enum { ALIGNMENT = 32, GGUF_VERSION = 3, GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8, MAX_NAME = 48, LAYER_TENSORS = 9 };
#define SPARE_BYTES ((int64_t)1 << 30) /* beside the model and the engine's copy: pages, buffers, other programs */

/* One tensor of the file. */
typedef struct tensor {
    char name[MAX_NAME];
    int64_t n_out, n_in; /* n_out 0: a norm of n_in ones */
    dtype type;
} tensor;

static int32_t n_tensors(const llama_shape *s) {
    return 3 + LAYER_TENSORS * s->n_layers;
}

static tensor named(const char *what, int32_t layer, int64_t n_out, int64_t n_in, dtype type) {
    tensor t = {.n_out = n_out, .n_in = n_in, .type = n_out > 0 ? type : DTYPE_F32};
    if (layer >= 0) {
        snprintf(t.name, sizeof t.name, "blk.%d.%s.weight", (int)layer, what);
    } else {
        snprintf(t.name, sizeof t.name, "%s.weight", what);
    }
    return t;
}

/* Tensor i of the file, in order. */
static tensor tensor_at(const llama_shape *s, dtype type, int32_t i) {
    int64_t q = (int64_t)s->n_heads * s->d_head, kv = (int64_t)s->n_kv_heads * s->d_head, d = s->d_model, f = s->d_ff;
    int32_t layer = i / LAYER_TENSORS;
    if (layer == s->n_layers) {
        static const char *const last[] = {"token_embd", "output_norm", "output"};
        int32_t k = i % LAYER_TENSORS;
        return named(last[k], -1, k == 1 ? 0 : s->n_vocab, d, type);
    }
    const tensor of_layer[LAYER_TENSORS] = {
        named("attn_norm", layer, 0, d, type), named("attn_q", layer, q, d, type),      named("attn_k", layer, kv, d, type),
        named("attn_v", layer, kv, d, type),   named("attn_output", layer, d, q, type), named("ffn_norm", layer, 0, d, type),
        named("ffn_gate", layer, f, d, type),  named("ffn_up", layer, f, d, type),      named("ffn_down", layer, d, f, type),
    };
    return of_layer[i % LAYER_TENSORS];
}

static size_t tensor_bytes(const tensor *t) {
    size_t n = (size_t)(t->n_out > 0 ? t->n_out : 1) * (size_t)t->n_in;
    return n / (size_t)dtype_block_elements(t->type) * (size_t)dtype_block_bytes(t->type);
}

/* ---- the head of the file ---- */

static uint32_t ggml_number(dtype type) {
    uint32_t i = 0;
    for (dtype t = N_DTYPES; !(dtype_from_ggml(i, &t) && t == type); i++) {
    }
    return i;
}

static quire_err put_u32(strbuf *b, uint32_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_u64(strbuf *b, uint64_t v) {
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_text(strbuf *b, const char *text) {
    TRY(put_u64(b, strlen(text)));
    return strbuf_add_str(b, text);
}

static quire_err put_number(strbuf *b, const char *key, int32_t v) {
    TRY(put_text(b, key));
    TRY(put_u32(b, GGUF_U32));
    return put_u32(b, (uint32_t)v);
}

static quire_err put_real(strbuf *b, const char *key, float v) {
    TRY(put_text(b, key));
    TRY(put_u32(b, GGUF_F32));
    return strbuf_add(b, &v, sizeof v);
}

static quire_err put_string(strbuf *b, const char *key, const char *v) {
    TRY(put_text(b, key));
    TRY(put_u32(b, GGUF_STRING));
    return put_text(b, v);
}

static quire_err put_keys(strbuf *b, const llama_shape *s, dtype type) {
    const struct {
        const char *key;
        int32_t value;
    } numbers[] = {{"llama.context_length", s->max_positions}, {"llama.embedding_length", s->d_model},
                   {"llama.block_count", s->n_layers},         {"llama.feed_forward_length", s->d_ff},
                   {"llama.attention.head_count", s->n_heads}, {"llama.attention.head_count_kv", s->n_kv_heads},
                   {"llama.attention.key_length", s->d_head},  {"llama.attention.value_length", s->d_head},
                   {"llama.rope.dimension_count", s->d_head},  {"llama.vocab_size", s->n_vocab}};
    enum { N_NUMBERS = (int)(sizeof numbers / sizeof *numbers) };
    char name[64];
    snprintf(name, sizeof name, "random-llama-%s-%s", s->name, dtype_name(type));
    TRY(put_u64(b, N_NUMBERS + 4));
    TRY(put_string(b, "general.architecture", "llama"));
    TRY(put_string(b, "general.name", name));
    TRY(put_real(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f));
    TRY(put_real(b, "llama.rope.freq_base", 10000.0f));
    for (int i = 0; i < N_NUMBERS; i++) {
        TRY(put_number(b, numbers[i].key, numbers[i].value));
    }
    return QUIRE_OK;
}

/* Everything before the tensors' bytes, padded; *n_data is how many of those follow. */
static quire_err put_head(strbuf *b, const llama_shape *s, dtype type, size_t *n_data) {
    TRY(strbuf_add_str(b, "GGUF"));
    TRY(put_u32(b, GGUF_VERSION));
    TRY(put_u64(b, (uint64_t)n_tensors(s)));
    TRY(put_keys(b, s, type));
    *n_data = 0;
    for (int32_t i = 0; i < n_tensors(s); i++) {
        tensor t = tensor_at(s, type, i);
        TRY(put_text(b, t.name));
        TRY(put_u32(b, t.n_out > 0 ? 2 : 1));
        TRY(put_u64(b, (uint64_t)t.n_in));
        if (t.n_out > 0) {
            TRY(put_u64(b, (uint64_t)t.n_out));
        }
        TRY(put_u32(b, ggml_number(t.type)));
        TRY(put_u64(b, *n_data));
        *n_data += size_align(tensor_bytes(&t), ALIGNMENT);
    }
    while (b->n % ALIGNMENT != 0) {
        TRY(strbuf_add_char(b, 0));
    }
    return QUIRE_OK;
}

/* ---- weights ---- */

static void put_half(uint8_t *at, float x) {
    uint16_t h = f32_to_f16(x);
    memcpy(at, &h, sizeof h);
}

/* Codes of a block are not centred on 0: its sign is. */
static float sign_of(const uint8_t *block) {
    return block[2] & 1 ? -1.0f : 1.0f;
}

/* The scales of one block of random bits. The divisors are the deviation of a weight whose scale is 1, codes being uniform. */
static void set_scales(dtype type, uint8_t *block, float deviation) {
    switch (type) {
    case DTYPE_Q4_0:
        put_half(block, sign_of(block) * deviation / 4.64f);
        break;
    case DTYPE_Q8_0:
        put_half(block, sign_of(block) * deviation / 73.9f);
        break;
    case DTYPE_Q4_K: { /* six-bit scales and minima alike, so that a minimum of 7.5 steps makes the mean zero */
        float d = deviation / (4.61f * 36.4f);
        put_half(block, d);
        put_half(block + 2, 7.5f * d);
        memcpy(block + 8, block + 4, 4);
        for (int i = 12; i < 16; i++) {
            block[i] = (uint8_t)((block[i] & 15) * 17);
        }
        break;
    }
    default: { /* BF16: any sign and fraction under one exponent, 1.53 being the root mean square of a uniform number from 1 to 2 */
        uint16_t v, exponent = (uint16_t)(f32_to_bf16(deviation / 1.53f) & 0x7f80);
        memcpy(&v, block, sizeof v);
        v = (uint16_t)((v & 0x807f) | exponent);
        memcpy(block, &v, sizeof v);
    }
    }
}

static void fill_tensor(const tensor *t, uint64_t seed, uint8_t *to) {
    size_t n = tensor_bytes(t), block = (size_t)dtype_block_bytes(t->type);
    if (t->n_out == 0) {
        for (int64_t i = 0; i < t->n_in; i++) {
            memcpy(to + (size_t)i * sizeof(float), &(float){1.0f}, sizeof(float));
        }
        return;
    }
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word = rng_next(&seed);
        memcpy(to + i, &word, n - i < sizeof word ? n - i : sizeof word);
    }
    float deviation = 1.0f / sqrtf((float)t->n_in);
    for (size_t i = 0; i < n; i += block) {
        set_scales(t->type, to + i, deviation);
    }
}

/* ---- the file ---- */

static quire_err write_file(const llama_shape *shape, dtype type, const strbuf *head, synthetic *s, quire_error *err) {
    if (ftruncate(s->fd, s->n_bytes) != 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for a model of %lld MB", (long long)(s->n_bytes / 1000000));
    }
    uint8_t *p = mmap(NULL, (size_t)s->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (p == MAP_FAILED) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for a model of %lld MB", (long long)(s->n_bytes / 1000000));
    }
    memcpy(p, head->p, head->n);
    size_t at = head->n;
    for (int32_t i = 0; i < n_tensors(shape); i++) {
        tensor t = tensor_at(shape, type, i);
        fill_tensor(&t, (uint64_t)i + 1, p + at);
        at += size_align(tensor_bytes(&t), ALIGNMENT);
    }
    munmap(p, (size_t)s->n_bytes);
    return QUIRE_OK;
}

static quire_err check_room(const llama_shape *shape, const synthetic *s, quire_error *err) {
    memory_room room;
    memory_room_read("", 0, &room);
    int64_t needed = 2 * s->n_bytes + SPARE_BYTES;
    return room.bytes < 0 || room.bytes >= needed
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1,
                         "a %s model of %lld MB and the engine's copy of it need %lld MB of memory, there are %lld", shape->name,
                         (long long)(s->n_bytes / 1000000), (long long)(needed / 1000000), (long long)(room.bytes / 1000000));
}

quire_err synthetic_open(const llama_shape *shape, dtype type, synthetic *out, quire_error *err) {
    strbuf head = {0};
    size_t n_data;
    *out = (synthetic){.fd = -1};
    quire_err e = put_head(&head, shape, type, &n_data);
    if (e != QUIRE_OK) {
        strbuf_deinit(&head);
        return err_set(err, e, -1, "out of memory for a model's head");
    }
    out->n_bytes = (int64_t)(head.n + n_data);
    e = check_room(shape, out, err);
    if (e == QUIRE_OK) {
        out->fd = memfd_create("quire-synthetic", MFD_CLOEXEC);
        e = out->fd >= 0 ? write_file(shape, type, &head, out, err) : err_set(err, QUIRE_NO_MEMORY, -1, "no file in memory for a model");
    }
    strbuf_deinit(&head);
    if (e != QUIRE_OK) {
        synthetic_close(out);
        return e;
    }
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", out->fd);
    return QUIRE_OK;
}

void synthetic_close(synthetic *s) {
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
}
