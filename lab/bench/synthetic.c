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
#include "core/quant.h"
#include "setup/memory_limits.h"

enum { ALIGNMENT = 32, GGUF_VERSION = 3, GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8, MAX_NAME = 64 };
/* beside the model and the engine's copy: pages, buffers, other programs */
#define SPARE_BYTES ((int64_t)1 << 30)

/* One tensor of the file: n matrices [n_out, n_in]. */
typedef struct tensor {
    char name[MAX_NAME];
    int32_t n_dims;
    int64_t n, n_out, n_in; /* n, n_out: 1 if it has fewer dimensions */
    dtype type;
} tensor;

/* Called for every tensor of the file, in order. */
typedef quire_err (*tensor_fn)(void *context, const tensor *t);

static tensor make_tensor(const model_shape *s, const shape_tensor *from, int32_t layer, dtype type) {
    int64_t dims[3] = {1, 1, 1};
    tensor t = {.n_dims = 0};
    while (t.n_dims < 3 && from->dims[t.n_dims] != SIZE_NONE) {
        t.n_dims++;
    }
    for (int32_t i = 0; i < t.n_dims; i++) {
        dims[3 - t.n_dims + i] = model_shape_size(s, from->dims[i]);
    }
    t.n = dims[0];
    t.n_out = dims[1];
    t.n_in = dims[2];
    t.type = from->f32 || t.n_dims == 1 ? DTYPE_F32 : type;
    const char *rest = strstr(from->name, "%d");
    if (rest == NULL) {
        (void)snprintf(t.name, sizeof t.name, "%s", from->name);
    } else {
        (void)snprintf(t.name, sizeof t.name, "%.*s%d%s", (int)(rest - from->name), from->name, (int)layer,
                       rest + 2);
    }
    return t;
}

/* The whole model's tensors, then those of each layer. */
static quire_err for_tensors(const model_shape *s, dtype type, tensor_fn fn, void *context) {
    for (int32_t layer = -1; layer < s->sizes[SIZE_LAYERS]; layer++) {
        for (int l = 0; l < FORM_LISTS && s->form->tensors[l] != NULL; l++) {
            for (const shape_tensor *from = s->form->tensors[l]; from->name != NULL; from++) {
                if ((strstr(from->name, "%d") != NULL) == (layer >= 0)) {
                    tensor t = make_tensor(s, from, layer, type);
                    TRY(fn(context, &t));
                }
            }
        }
    }
    return QUIRE_OK;
}

static size_t synthetic_tensor_bytes(const tensor *t) {
    size_t n = (size_t)t->n * (size_t)t->n_out * (size_t)t->n_in;
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

static quire_err put_key(strbuf *b, const model_shape *s, const shape_key *k) {
    char name[MAX_NAME];
    (void)snprintf(name, sizeof name, "%s.%s", s->form->architecture, k->name);
    TRY(put_text(b, name));
    if (k->text != NULL) {
        TRY(put_u32(b, GGUF_STRING));
        return put_text(b, k->text);
    }
    if (k->size != SIZE_NONE) {
        TRY(put_u32(b, GGUF_U32));
        return put_u32(b, (uint32_t)model_shape_size(s, k->size));
    }
    TRY(put_u32(b, GGUF_F32));
    return strbuf_add(b, &k->real, sizeof k->real);
}

static quire_err put_string(strbuf *b, const char *key, const char *v) {
    TRY(put_text(b, key));
    TRY(put_u32(b, GGUF_STRING));
    return put_text(b, v);
}

static quire_err put_keys(strbuf *b, const model_shape *s, dtype type) {
    uint64_t n = 2;
    for (int l = 0; l < FORM_LISTS && s->form->keys[l] != NULL; l++) {
        for (const shape_key *k = s->form->keys[l]; k->name != NULL; k++) {
            n++;
        }
    }
    char name[MAX_NAME];
    (void)snprintf(name, sizeof name, "random-%s-%s", s->name, dtype_name(type));
    TRY(put_u64(b, n));
    TRY(put_string(b, "general.architecture", s->form->architecture));
    TRY(put_string(b, "general.name", name));
    for (int l = 0; l < FORM_LISTS && s->form->keys[l] != NULL; l++) {
        for (const shape_key *k = s->form->keys[l]; k->name != NULL; k++) {
            TRY(put_key(b, s, k));
        }
    }
    return QUIRE_OK;
}

/* What the tensors' part of the head needs. */
typedef struct head_context {
    strbuf *b;
    uint64_t n;
    size_t n_data;
} head_context;

static quire_err count_tensor(void *context, const tensor *t) {
    head_context *c = context;
    (void)t;
    c->n++;
    return QUIRE_OK;
}

static quire_err put_tensor(void *context, const tensor *t) {
    head_context *c = context;
    const int64_t dims[3] = {t->n_in, t->n_out, t->n};
    TRY(put_text(c->b, t->name));
    TRY(put_u32(c->b, (uint32_t)t->n_dims));
    for (int32_t i = 0; i < t->n_dims; i++) {
        TRY(put_u64(c->b, (uint64_t)dims[i]));
    }
    TRY(put_u32(c->b, ggml_number(t->type)));
    TRY(put_u64(c->b, c->n_data));
    c->n_data += size_align(synthetic_tensor_bytes(t), ALIGNMENT);
    return QUIRE_OK;
}

/* Everything before the tensors' bytes, padded; *n_data is how many of those follow. */
static quire_err put_head(strbuf *b, const model_shape *s, dtype type, size_t *n_data) {
    head_context c = {.b = b};
    TRY(strbuf_add_str(b, "GGUF"));
    TRY(put_u32(b, GGUF_VERSION));
    TRY(for_tensors(s, type, count_tensor, &c));
    TRY(put_u64(b, c.n));
    TRY(put_keys(b, s, type));
    TRY(for_tensors(s, type, put_tensor, &c));
    *n_data = c.n_data;
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

/* The scales of one block of random bits. The divisors are the deviation of a weight
 * whose scale is 1, codes being uniform. */
static void set_scales(dtype type, uint8_t *block, float deviation) {
    switch (type) {
    case DTYPE_Q8_0:
        put_half(block, sign_of(block) * deviation / 73.9f);
        break;
    /* six-bit scales and minima alike, so that a minimum of 7.5 steps makes the mean
     * zero */
    case DTYPE_Q4_K: {
        float d = deviation / (4.61f * 36.4f);
        put_half(block, d);
        put_half(block + 2, 7.5f * d);
        memcpy(block + 8, block + 4, 4);
        for (int i = 12; i < 16; i++) {
            block[i] = (uint8_t)((block[i] & 15) * 17);
        }
        break;
    }
    case DTYPE_F32: { /* as BF16 */
        uint32_t v, exponent;
        float e = deviation / 1.53f;
        memcpy(&exponent, &e, sizeof exponent);
        memcpy(&v, block, sizeof v);
        v = (v & 0x807fffff) | (exponent & 0x7f800000);
        memcpy(block, &v, sizeof v);
        break;
    }
    /* BF16: any sign and fraction under one exponent, 1.53 being the root mean square of
     * a uniform number from 1 to 2 */
    default: {
        uint16_t v, exponent = (uint16_t)(f32_to_bf16(deviation / 1.53f) & 0x7f80);
        memcpy(&v, block, sizeof v);
        v = (uint16_t)((v & 0x807f) | exponent);
        memcpy(block, &v, sizeof v);
    }
    }
}

/* A block of Q4_0 or MXFP4. Equal seeds give both the same numbers, so that a model has
 * the same logits in both, and its routers choose the same experts: E2M1's 0 to 3 and
 * their negatives, times a power of two. */
static void fill_fours(dtype type, uint64_t *seed, uint8_t *block, float deviation) {
    const int8_t *doubled = quant_tables[TABLE_E2M1];
    const int exponent = (int)lroundf(log2f(deviation / 3.84f)); /* of what is doubled */
    uint64_t words[2] = {rng_next(seed), rng_next(seed)};
    uint8_t *codes = block + 1;
    block[0] = (uint8_t)(128 + exponent); /* of 2^(e - 128) */
    if (type == DTYPE_Q4_0) {
        put_half(block, ldexpf(1.0f, exponent));
        codes++;
    }
    memcpy(codes, words, sizeof words);
    for (size_t i = 0; i < sizeof words; i++) {
        const int q = codes[i] & ~(codes[i] >> 1 & 0x22); /* 4 becomes 2, 6 becomes 3 */
        codes[i] = (uint8_t)(type == DTYPE_MXFP4 ? q : (doubled[q & 15] + 8) | (doubled[q >> 4] + 8) << 4);
    }
}

static void fill_tensor(const tensor *t, uint64_t seed, uint8_t *to) {
    size_t n = synthetic_tensor_bytes(t), block = (size_t)dtype_block_bytes(t->type);
    if (t->n_dims == 1) {
        for (int64_t i = 0; i < t->n_in; i++) {
            memcpy(to + (size_t)i * sizeof(float), &(float){1.0f}, sizeof(float));
        }
        return;
    }
    const float deviation = 1.0f / sqrtf((float)t->n_in);
    const bool is_fours = t->type == DTYPE_Q4_0 || t->type == DTYPE_MXFP4;
    for (size_t i = 0; i < n && is_fours; i += block) {
        fill_fours(t->type, &seed, to + i, deviation);
    }
    for (size_t i = 0; i < n && !is_fours; i += sizeof(uint64_t)) {
        uint64_t word = rng_next(&seed);
        memcpy(to + i, &word, n - i < sizeof word ? n - i : sizeof word);
    }
    for (size_t i = 0; i < n && !is_fours; i += block) {
        set_scales(t->type, to + i, deviation);
    }
}

/* ---- the file ---- */

typedef struct fill_context {
    uint8_t *to;
    uint64_t seed;
} fill_context;

static quire_err fill_next(void *context, const tensor *t) {
    fill_context *c = context;
    fill_tensor(t, ++c->seed, c->to);
    c->to += size_align(synthetic_tensor_bytes(t), ALIGNMENT);
    return QUIRE_OK;
}

static quire_err write_file(const model_shape *shape, dtype type, const strbuf *head, synthetic *s,
                            quire_error *err) {
    if (ftruncate(s->fd, s->n_bytes) != 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for a model of %lld MB",
                       (long long)(s->n_bytes / 1000000));
    }
    uint8_t *p = mmap(NULL, (size_t)s->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (p == MAP_FAILED) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for a model of %lld MB",
                       (long long)(s->n_bytes / 1000000));
    }
    memcpy(p, head->p, head->n);
    quire_err e = for_tensors(shape, type, fill_next, &(fill_context){.to = p + head->n});
    munmap(p, (size_t)s->n_bytes);
    return e;
}

/* Blocks do not cross rows. */
static quire_err check_tensor(void *context, const tensor *t) {
    (void)context;
    return t->n_in % dtype_block_elements(t->type) == 0 ? QUIRE_OK : QUIRE_UNSUPPORTED;
}

static quire_err check_room(const model_shape *shape, const synthetic *s, quire_error *err) {
    memory_room room;
    memory_room_read("", 0, &room);
    int64_t needed = 2 * s->n_bytes + SPARE_BYTES;
    return room.bytes < 0 || room.bytes >= needed
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1,
                         "a %s model of %lld MB and the engine's copy of it need %lld MB of memory, there "
                         "are %lld",
                         shape->name, (long long)(s->n_bytes / 1000000), (long long)(needed / 1000000),
                         (long long)(room.bytes / 1000000));
}

quire_err synthetic_open(const model_shape *shape, dtype type, synthetic *out, quire_error *err) {
    strbuf head = {0};
    size_t n_data;
    *out = (synthetic){.fd = -1};
    if (for_tensors(shape, type, check_tensor, NULL) != QUIRE_OK) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s has matrices whose rows are no whole blocks of %d, as %s has them: take another type",
            shape->name, (int)dtype_block_elements(type), dtype_flag_name(type));
    }
    quire_err e = put_head(&head, shape, type, &n_data);
    if (e != QUIRE_OK) {
        strbuf_deinit(&head);
        return err_set(err, e, -1, "out of memory for a model's head");
    }
    out->n_bytes = (int64_t)(head.n + n_data);
    e = check_room(shape, out, err);
    if (e == QUIRE_OK) {
        out->fd = memfd_create("quire-synthetic", MFD_CLOEXEC);
        e = out->fd >= 0 ? write_file(shape, type, &head, out, err)
                         : err_set(err, QUIRE_NO_MEMORY, -1, "no file in memory for a model");
    }
    strbuf_deinit(&head);
    if (e != QUIRE_OK) {
        synthetic_close(out);
        return e;
    }
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", out->fd);
    return QUIRE_OK;
}

quire_err synthetic_open_named(const char *shape, const char *type, quire_options *e, synthetic *out,
                               quire_error *err) {
    const speed_type *t = speed_type_find(type, strlen(type));
    const model_shape *s;
    if (t == NULL) {
        TRY(err_set(err, QUIRE_INVALID, -1, "--type %s: must be q4_0, q8_0, q4_k, mxfp4, int8, bf16 or f32",
                    type));
    }
    TRY(model_shape_parse("--shape", shape, &s, err));
    if (s->form->no_tokens) {
        return err_set(err, QUIRE_INVALID, -1, "--shape %s: gives no tokens; take a decoder", shape);
    }
    TRY(synthetic_open(s, t->file, out, err));
    e->model = out->path;
    e->compute = speed_type_compute(t);
    return QUIRE_OK;
}

quire_err synthetic_open_builtin(quire_options *e, synthetic *out, quire_error *err) {
    *out = (synthetic){.fd = -1};
    if (strcmp(e->model, "builtin") == 0) {
        TRY(synthetic_open(&model_shape_builtin, DTYPE_Q8_0, out, err));
        e->model = out->path;
    }
    return QUIRE_OK;
}

void synthetic_close(synthetic *s) {
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
}
