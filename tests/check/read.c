#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "check/check.h"

quire_err check_read(const char *path, char **bytes, size_t *n, quire_error *err) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        return err_set(err, errno == ENOENT ? QUIRE_NOT_FOUND : QUIRE_IO, -1, "%s: %s", path,
                       strerror(errno));
    }
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *p = size >= 0 && fseek(f, 0, SEEK_SET) == 0 ? mem_new((size_t)size + 1, 1) : NULL;
    if (!p || fread(p, 1, (size_t)size, f) != (size_t)size) {
        mem_free(p);
        fclose(f);
        return err_set(err, QUIRE_IO, -1, "%s: could not be read", path);
    }
    fclose(f);
    *bytes = p;
    *n = (size_t)size;
    return QUIRE_OK;
}

/* The dimensions in a header such as {'descr': '<f4', 'fortran_order': False, 'shape':
 * (80, 256), }; false for anything else. */
static bool parse_header(const char *header, int64_t dims[2]) {
    const char *shape = strstr(header, "'shape': (");
    if (!strstr(header, "'descr': '<f4'") || !strstr(header, "'fortran_order': False") || !shape) {
        return false;
    }
    dims[0] = dims[1] = 1;
    const char *p = shape + strlen("'shape': (");
    for (int i = 0; *p != ')'; i++) {
        char *end;
        long long v = strtoll(p, &end, 10);
        if (end == p || v < 0 || i == 2) {
            return false;
        }
        dims[i] = v;
        p = end + strspn(end, ", ");
    }
    return true;
}

quire_err check_read_npy(const char *path, float **values, int64_t dims[2], quire_error *err) {
    char *bytes;
    size_t n;
    TRY(check_read(path, &bytes, &n, err));
    quire_err e = QUIRE_BAD_FILE;
    size_t start = n >= 10 ? 10 + (size_t)(unsigned char)bytes[8] + 256 * (size_t)(unsigned char)bytes[9] : 0,
           n_values, n_bytes;
    if (n >= 10 && memcmp(bytes, "\x93NUMPY\x01", 7) == 0 && start <= n) {
        char *header = mem_dup(bytes + 10, start - 10);
        if (header && parse_header(header, dims) && size_mul((size_t)dims[0], (size_t)dims[1], &n_values) &&
            size_mul(n_values, sizeof(float), &n_bytes) && n_bytes == n - start) {
            *values = mem_new(n_values, sizeof(float));
            e = *values ? QUIRE_OK : QUIRE_NO_MEMORY;
        }
        mem_free(header);
    }
    if (e == QUIRE_OK) {
        memcpy(*values, bytes + start, n - start);
    } else {
        err_set(err, e, -1, "%s: must be a .npy of float32 in C order with one or two dimensions", path);
    }
    mem_free(bytes);
    return e;
}
