/* Blocks of every type that gguf-py reads, and their values, from
 * ../shared/golden/quants. */
#ifndef TESTS_GOLDEN_QUANTS_H
#define TESTS_GOLDEN_QUANTS_H

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/dtype.h"
#include "test.h"

/* Reads golden/quants/DIRECTORY followed by NAME.EXTENSION; the caller frees it with
 * mem_free. NULL, which is printed: there is no such file. */
static inline char *read_golden(const char *directory, const char *name, const char *extension, size_t *n) {
    const char *shared = getenv("QUIRE_SHARED");
    char path[4096];
    snprintf(path, sizeof path, "%s/golden/quants/%s%s.%s", shared != NULL ? shared : "../shared", directory,
             name, extension);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        print_message("SKIP: no %s\n", path);
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = mem_new(*n, 1);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

/* Returns the values in a .npy file (version 1) of float32. */
static inline const float *npy_values(const char *bytes, size_t n, size_t *n_values) {
    assert_memory_equal(bytes, "\x93NUMPY\x01", 7);
    size_t head = 10 + (size_t)(unsigned char)bytes[8] + 256 * (size_t)(unsigned char)bytes[9];
    *n_values = (n - head) / sizeof(float);
    return (const float *)(const void *)(bytes + head);
}

/* Blocks of a type and their values by gguf-py. blocks NULL: there is no such file. */
typedef struct golden_blocks {
    char *blocks, *file;
    const float *values; /* owned by `file` */
    size_t n;
} golden_blocks;

static inline golden_blocks golden_blocks_read(dtype t) {
    golden_blocks g = {0};
    size_t n_blocks, n_npy;
    g.file = read_golden("", dtype_name(t), "npy", &n_npy);
    g.blocks = g.file != NULL ? read_golden("", dtype_name(t), "bin", &n_blocks) : NULL;
    if (g.blocks != NULL) {
        g.values = npy_values(g.file, n_npy, &g.n);
        assert_int_equal(n_blocks, g.n / (size_t)dtype_block_elements(t) * (size_t)dtype_block_bytes(t));
    }
    return g;
}

static inline void golden_blocks_free(golden_blocks *g) {
    mem_free(g->blocks);
    mem_free(g->file);
}

#endif
