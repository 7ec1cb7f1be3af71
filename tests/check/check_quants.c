/* Block formats: DIR/TYPE.bin must dequantise to DIR/TYPE.npy, and DIR/quantize/TYPE.npy
 * quantise to DIR/quantize/TYPE.bin, to the bit. */
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "check/check.h"
#include "core/quant.h"
#include "core/quantise.h"

#define KIND "quants"

enum { MAX_PATH = 4096 };

static bool find_type(const char *name, dtype *out) {
    for (int t = 0; t < N_DTYPES; t++) {
        if (strcmp(dtype_name((dtype)t), name) == 0) {
            *out = (dtype)t;
            return true;
        }
    }
    return false;
}

static uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* Compares the values of n elements, bit by bit. */
static void compare_values(check_report *r, const char *where, const float *got, const float *want,
                           size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bits_of(got[i]) != bits_of(want[i])) {
            check_fail(r, KIND, where, "element %zu is %.9g (%08x), must be %.9g (%08x)", i, (double)got[i],
                       bits_of(got[i]), (double)want[i], bits_of(want[i]));
            return;
        }
    }
    check_pass(r, KIND, where);
}

/* n values of type t take this many bytes; false when they are no whole blocks. */
static bool blocks_fit(dtype t, int64_t n_values, size_t n_bytes) {
    int64_t elements = dtype_block_elements(t);
    return n_values % elements == 0 &&
           (size_t)(n_values / elements) * (size_t)dtype_block_bytes(t) == n_bytes;
}

static void check_dequantise(check_report *r, const char *where, dtype t, const char *blocks, size_t n_bytes,
                             const float *want, int64_t n) {
    float *got = mem_new((size_t)n, sizeof *got);
    if (!blocks_fit(t, n, n_bytes) || !got) {
        check_fail(r, KIND, where, "%zu bytes of %s do not hold %lld values", n_bytes, dtype_name(t),
                   (long long)n);
    } else if (quant_dequantise(t, blocks, (size_t)n, got) != QUIRE_OK) {
        check_unsupported(r, KIND, where, "nothing of this type is dequantised");
    } else {
        compare_values(r, where, got, want, (size_t)n);
    }
    mem_free(got);
}

static void check_quantise(check_report *r, const char *where, dtype t, const char *want, size_t n_bytes,
                           const float *values, int64_t n) {
    char *got = mem_new(n_bytes, 1);
    if (!blocks_fit(t, n, n_bytes) || !got) {
        check_fail(r, KIND, where, "%zu bytes of %s do not hold %lld values", n_bytes, dtype_name(t),
                   (long long)n);
    } else if (quant_quantise(t, values, (size_t)n, got) != QUIRE_OK) {
        check_unsupported(r, KIND, where, "nothing is quantised to this type");
    } else {
        size_t i = 0;
        while (i < n_bytes && got[i] == want[i]) {
            i++;
        }
        if (i < n_bytes) {
            check_fail(r, KIND, where, "byte %zu (block %zu) is %02x, must be %02x", i,
                       i / (size_t)dtype_block_bytes(t), (unsigned)(unsigned char)got[i],
                       (unsigned)(unsigned char)want[i]);
        } else {
            check_pass(r, KIND, where);
        }
    }
    mem_free(got);
}

/* One STEM.bin with its STEM.npy. where is the path below the directory. */
static void check_pair(check_report *r, const char *bin, const char *where, bool quantise) {
    char npy[MAX_PATH], name[64];
    const char *slash = strrchr(bin, '/');
    snprintf(npy, sizeof npy, "%.*s.npy", (int)(strlen(bin) - 4), bin);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(slash ? slash + 1 : bin, "."), slash ? slash + 1 : bin);
    dtype t;
    if (!find_type(name, &t)) {
        check_unsupported(r, KIND, where, "no such type in this build");
        return;
    }
    char *blocks = NULL;
    float *values = NULL;
    size_t n_bytes;
    int64_t dims[2];
    quire_error err;
    if (check_read(bin, &blocks, &n_bytes, &err) != QUIRE_OK ||
        check_read_npy(npy, &values, dims, &err) != QUIRE_OK) {
        check_fail(r, KIND, where, "%s", err.message);
    } else if (quantise) {
        check_quantise(r, where, t, blocks, n_bytes, values, dims[0] * dims[1]);
    } else {
        check_dequantise(r, where, t, blocks, n_bytes, values, dims[0] * dims[1]);
    }
    mem_free(values);
    mem_free(blocks);
}

static size_t check_pattern(const char *dir, const char *pattern, check_report *r, bool quantise) {
    char path[MAX_PATH];
    glob_t found = {0};
    snprintf(path, sizeof path, "%s/%s", dir, pattern);
    size_t n = glob(path, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    for (size_t i = 0; i < n; i++) {
        check_pair(r, found.gl_pathv[i], found.gl_pathv[i] + strlen(dir) + 1, quantise);
    }
    globfree(&found);
    return n;
}

int check_quants(const char *dir, const char *root, check_report *r) {
    (void)root;
    size_t n = check_pattern(dir, "*.bin", r, false);
    n += check_pattern(dir, "quantize/*.bin", r, true);
    if (n == 0) {
        fprintf(stderr, "quire-check: %s: holds no .bin files\n", dir);
        return 1;
    }
    check_quant_models(dir, r);
    return 0;
}
