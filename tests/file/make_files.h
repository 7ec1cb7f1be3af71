/* Small model files for tests, in memory or in a temporary directory, and checks. */
#ifndef TESTS_FILE_MAKE_FILES_H
#define TESTS_FILE_MAKE_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/str.h"
#include "file/gguf.h"
#include "file/model_file.h"
#include "test.h"

/* ---- bytes ---- */

static inline void put(strbuf *b, const void *p, size_t n) {
    assert_int_equal(strbuf_add(b, p, n), QUIRE_OK);
}
static inline void put_u32(strbuf *b, uint32_t v) {
    put(b, &v, sizeof v);
}
static inline void put_u64(strbuf *b, uint64_t v) {
    put(b, &v, sizeof v);
}
static inline void put_f32(strbuf *b, float v) {
    put(b, &v, sizeof v);
}
static inline void put_str(strbuf *b, const char *s) {
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

/* ---- GGUF ---- */

static inline void put_header(strbuf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    put(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_keys);
}
static inline void put_key(strbuf *b, const char *key, gguf_type type) {
    put_str(b, key);
    put_u32(b, type);
}
static inline void put_array(strbuf *b, const char *key, gguf_type item_type, uint64_t n) {
    put_key(b, key, GGUF_ARRAY);
    put_u32(b, item_type);
    put_u64(b, n);
}
static inline void put_key_str(strbuf *b, const char *key, const char *value) {
    put_key(b, key, GGUF_STRING);
    put_str(b, value);
}
static inline void put_key_u32(strbuf *b, const char *key, uint32_t value) {
    put_key(b, key, GGUF_U32);
    put_u32(b, value);
}
/* Appends a tensor's directory entry with two dimensions, the fastest one first. */
static inline void put_tensor(strbuf *b, const char *name, uint64_t dim0, uint64_t dim1, uint32_t type,
                              uint64_t offset) {
    put_str(b, name);
    put_u32(b, 2);
    put_u64(b, dim0);
    put_u64(b, dim1);
    put_u32(b, type);
    put_u64(b, offset);
}
static inline void pad_from(strbuf *b, size_t start, size_t align) {
    while ((b->n - start) % align != 0) {
        put(b, "", 1);
    }
}
static inline void put_floats(strbuf *b, int n) {
    for (int i = 0; i < n; i++) {
        put_f32(b, (float)i);
    }
}

/* Makes a GGUF file with every type of value. *n_header (may be NULL): offset of its
 * data. */
static inline void make_gguf(strbuf *b, uint32_t version, size_t *n_header) {
    put_header(b, version, 3, 14);
    put_key_str(b, "general.architecture", "llama");
    put_key_u32(b, "llama.block_count", 2);
    put_key(b, "llama.norm_eps", GGUF_F32);
    put_f32(b, 1e-5f);
    put_key(b, "a.bool", GGUF_BOOL);
    put(b, "\1", 1);
    put_key(b, "a.f64", GGUF_F64);
    put(b, &(double){7.0}, sizeof(double));
    put_key(b, "a.i64", GGUF_I64);
    put_u64(b, (uint64_t)-5);
    put_key(b, "a.u64", GGUF_U64);
    put_u64(b, UINT64_MAX);
    put_key_str(b, "tokenizer.ggml.model", "llama");
    put_array(b, "tokenizer.ggml.tokens", GGUF_STRING, 3);
    put_str(b, "<s>");
    put_str(b, "");
    put_str(b, "ab");
    put_array(b, "tokenizer.ggml.scores", GGUF_F32, 3);
    put_floats(b, 3);
    put_array(b, "tokenizer.ggml.token_type", GGUF_I32, 3);
    put_u32(b, 3);
    put_u32(b, 1);
    put_u32(b, 1);
    put_key_u32(b, "tokenizer.ggml.bos_token_id", 0);
    put_array(b, "a.nested", GGUF_ARRAY, 2);
    for (int i = 0; i < 2; i++) {
        put_u32(b, GGUF_U8);
        put_u64(b, 2);
        put(b, "xy", 2);
    }
    put_key_str(b, "tokenizer.chat_template", "{{ messages }}");
    put_tensor(b, "token_embd.weight", 4, 3, 0, 0);
    put_tensor(b, "blk.0.q.weight", 32, 2, 2, 64);
    put_tensor(b, "output.weight", 4, 2, 0, 128);
    pad_from(b, 0, 32);
    if (n_header != NULL) {
        *n_header = b->n;
    }
    size_t data = b->n;
    put_floats(b, 12);
    pad_from(b, data, 64);
    for (int i = 0; i < 36; i++) { /* two blocks of Q4_0 */
        put(b, "\x12", 1);
    }
    pad_from(b, data, 64);
    put_floats(b, 8);
}

/* ---- safetensors ---- */

static inline void make_safetensors(strbuf *b, const char *header, size_t n_data) {
    put_u64(b, strlen(header));
    put(b, header, strlen(header));
    for (size_t i = 0; i < n_data; i++) {
        put(b, "\x3f", 1);
    }
}

/* ---- files ---- */

typedef struct temp_dir {
    char path[64];
} temp_dir;

static inline temp_dir temp_new(void) {
    temp_dir d = {"/tmp/quire-file-XXXXXX"};
    assert_non_null(mkdtemp(d.path));
    return d;
}
static inline const char *temp_path(const temp_dir *d, const char *name) {
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", d->path, name);
    return path[next];
}
static inline void write_file(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(n == 0 || fwrite(p, 1, n, f) == n);
    assert_int_equal(fclose(f), 0);
}
static inline void write_text(const temp_dir *d, const char *name, const char *text) {
    write_file(temp_path(d, name), text, strlen(text));
}
/* Deletes the named files and the directory. names ends with NULL. */
static inline void temp_delete(const temp_dir *d, const char *const *names) {
    for (; *names != NULL; names++) {
        unlink(temp_path(d, *names));
    }
    assert_int_equal(rmdir(d->path), 0);
}
/* Returns the directory of the shared test data. NULL, which is printed: none. */
static inline const char *shared_dir(void) {
    const char *dir = getenv("QUIRE_SHARED");
    dir = dir != NULL ? dir : "../shared";
    if (access(dir, R_OK) != 0) {
        print_message("SKIP: no test data at %s\n", dir);
        return NULL;
    }
    return dir;
}

/* ---- checks ---- */

/* Reads everything that an open file returns, so that a sanitizer finds bad pointers. */
static inline uint64_t touch_all(const model_file *f) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const tensor_view *t = model_file_tensor(f, i);
        const uint8_t *p = t->data;
        sum += strlen(t->name) + (t->n_bytes > 0 ? p[0] + p[t->n_bytes - 1] : 0);
        assert_ptr_equal(model_file_find(f, t->name), t);
    }
    const vocab *v = model_file_vocab(f);
    for (int32_t i = 0; i < v->n_tokens; i++) {
        sum += v->tokens != NULL && v->tokens[i].n > 0 ? (uint8_t)v->tokens[i].p[v->tokens[i].n - 1] : 0;
        sum += v->types != NULL ? (uint64_t)v->types[i] : 0;
        sum += v->scores != NULL && v->scores[i] > 0;
    }
    for (int32_t i = 0; i < v->n_merges; i++) {
        sum += v->merges[i].n > 0 ? (uint8_t)v->merges[i].p[0] : 0;
    }
    sum += model_file_chat_template(f).n;
    str text = {0};
    int64_t ints[4];
    float number;
    bool flag;
    size_t n;
    static const char *const keys[] = {"a.i64",          "a.nested",
                                       "llama.norm_eps", "tokenizer.ggml.scores",
                                       "hidden_size",    "rope_scaling.factor",
                                       "architectures",  "eos_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        sum += model_file_i64s(f, keys[i], ints, 4, &n) == QUIRE_OK;
        sum += model_file_f32(f, keys[i], &number) == QUIRE_OK;
        sum += model_file_bool(f, keys[i], &flag) == QUIRE_OK;
        sum += model_file_str(f, keys[i], &text) == QUIRE_OK;
        sum += model_file_str_at(f, keys[i], 0, &text, &n) == QUIRE_OK;
    }
    return sum;
}

/* Whether the bytes can be opened as a file. An error must have a message. */
static inline bool opens(const void *bytes, size_t n) {
    model_file *f = NULL;
    quire_error err = {0};
    void *exact = malloc(n > 0 ? n : 1); /* no byte after the file's, so that a sanitizer finds overruns */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    quire_err e = model_file_open_memory(exact, n, "test.gguf", &f, &err);
    if (e == QUIRE_OK) {
        touch_all(f);
        model_file_close(f);
    } else {
        assert_null(f);
        assert_int_equal(err.code, e);
        assert_non_null(strstr(err.message, "test.gguf: "));
        assert_true(strlen(err.message) > strlen("test.gguf: "));
    }
    free(exact);
    return e == QUIRE_OK;
}

/* Makes 1 to 8 random changes in p: bytes, words of extreme values, copied runs. */
static inline void mutate(uint8_t *p, size_t n, uint64_t *state) {
    static const uint64_t extremes[] = {0,          1,          0x7f,       0xff,       0xffff,
                                        0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, (uint64_t)1 << 63,
                                        INT64_MAX,  33};
    for (uint64_t times = 1 + rng_next(state) % 8; times > 0 && n > 0; times--) {
        size_t at = rng_next(state) % n, from = rng_next(state) % n, left = n - (at > from ? at : from);
        size_t length = 1 + rng_next(state) % 16;
        switch (rng_next(state) % 4) {
        case 0:
            p[at] = (uint8_t)rng_next(state);
            break;
        case 1:
            p[at] ^= (uint8_t)(1u << rng_next(state) % 8);
            break;
        case 2:
            memcpy(p + at, &extremes[rng_next(state) % (sizeof extremes / sizeof *extremes)],
                   n - at < 8 ? n - at : 8);
            break;
        default:
            memmove(p + at, p + from, length < left ? length : left);
            break;
        }
    }
}

/* Returns a random seed, which it prints, or that of QUIRE_TEST_SEED, to repeat a run. */
static inline uint64_t test_seed(const char *what) {
    const char *given = getenv("QUIRE_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : rng_os_seed();
    print_message("%s: QUIRE_TEST_SEED=%llu\n", what, (unsigned long long)seed);
    return seed;
}

#endif
