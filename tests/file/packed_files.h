/* Packed models in memory: reads their files, and updates their digests after changes. */
#ifndef TESTS_FILE_PACKED_FILES_H
#define TESTS_FILE_PACKED_FILES_H

#include "file/make_files.h"

#include "base/mem.h"
#include "file/packed_image.h"
#include "test.h"

/* Reads a file to an address that is a multiple of 64; mem_free frees it. */
static inline uint8_t *read_whole(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = mem_new(*n, 1);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

/* Sets the digests to those of the content, as a forger of a file would. */
static inline void sign(uint8_t *bytes, size_t n) {
    packed_header h;
    memcpy(&h, bytes, sizeof h);
    if (h.directory_at <= n && h.directory_bytes <= n - h.directory_at) {
        sha256(bytes + h.directory_at, (size_t)h.directory_bytes, h.directory_digest);
    }
    sha256(&h, offsetof(packed_header, header_digest), h.header_digest);
    memcpy(bytes, &h, sizeof h);
}

#endif
