/* Arrays in .npz files: what numpy.savez writes is read, all else is refused with the
 * member's name. */
#include "file/npz.h"

#include <math.h>
#include <string.h>

#include "make_files.h"

typedef struct made {
    strbuf bytes, directory;
    uint32_t n;
} made;

static void put_u16(strbuf *b, uint32_t v) {
    uint16_t low = (uint16_t)v;
    put(b, &low, sizeof low);
}

static void put_text(strbuf *b, const char *s) {
    put(b, s, strlen(s));
}

/* Adds a member whose bytes are a header of numpy's form and data. */
static void add(made *z, const char *name, const char *descr, const char *order, const char *shape,
                const void *data, size_t n) {
    char header[160];
    strbuf npy = {0};
    int length = snprintf(header, sizeof header, "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr,
                          order, shape);
    put(&npy, "\x93NUMPY\x01\x00", 8);
    put_u16(&npy, (uint32_t)length);
    put(&npy, header, (size_t)length);
    put(&npy, data, n);
    uint32_t at = (uint32_t)z->bytes.n, size = (uint32_t)npy.n, n_name = (uint32_t)strlen(name);
    put_text(&z->bytes, "PK\x03\x04");
    put(&z->bytes, (const char[22]){0}, 22);
    put_u16(&z->bytes, n_name);
    put_u16(&z->bytes, 0);
    put_text(&z->bytes, name);
    put(&z->bytes, npy.p, npy.n);
    put_text(&z->directory, "PK\x01\x02");
    put(&z->directory, (const char[16]){0}, 16);
    put_u32(&z->directory, size);
    put_u32(&z->directory, size);
    put_u16(&z->directory, n_name);
    put(&z->directory, (const char[12]){0}, 12);
    put_u32(&z->directory, at);
    put_text(&z->directory, name);
    z->n++;
    strbuf_deinit(&npy);
}

/* Ends the file. */
static void end(made *z) {
    uint32_t at = (uint32_t)z->bytes.n, n = (uint32_t)z->directory.n;
    put(&z->bytes, z->directory.p, z->directory.n);
    put_text(&z->bytes, "PK\x05\x06");
    put_u32(&z->bytes, 0);
    put_u16(&z->bytes, z->n);
    put_u16(&z->bytes, z->n);
    put_u32(&z->bytes, n);
    put_u32(&z->bytes, at);
    put_u16(&z->bytes, 0);
}

static void drop(made *z) {
    strbuf_deinit(&z->bytes);
    strbuf_deinit(&z->directory);
}

TEST(every_type_is_read) {
    made z = {0};
    add(&z, "i4.npy", "'<i4'", "False", "(2, 2)", (const int32_t[]){1, -2, INT32_MAX, INT32_MIN}, 16);
    add(&z, "i8.npy", "'<i8'", "False", "(2,)", (const int64_t[]){-7, INT32_MAX}, 16);
    add(&z, "u2.npy", "'<u2'", "False", "(1,)", (const uint16_t[]){65535}, 2);
    add(&z, "b.npy", "'|b1'", "False", "(3,)", (const uint8_t[]){1, 0, 1}, 3);
    add(&z, "i1.npy", "'|i1'", "False", "(1,)", (const int8_t[]){-1}, 1);
    add(&z, "f8.npy", "'<f8'", "False", "(1,)", (const double[]){0.1}, 8);
    add(&z, "f4", "'<f4'", "False", "()", (const float[]){1.5f}, 4);
    add(&z, "f2.npy", "'<f2'", "False", "(2,)", (const uint16_t[]){0x3c00, 0xfc00}, 4);
    add(&z, "none.npy", "'<f4'", "False", "(0, 5)", "", 0);
    end(&z);
    npz a;
    quire_error err = {0};
    if (npz_parse("a.npz", z.bytes.p, z.bytes.n, &a, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    const attn_array *i4 = npz_find(&a, "i4"), *f4 = npz_find(&a, "f4"), *none = npz_find(&a, "none");
    assert_int_equal(i4->n_dims, 2);
    assert_int_equal(i4->dims[1], 2);
    assert_memory_equal(i4->data, ((const int32_t[]){1, -2, INT32_MAX, INT32_MIN}), 16);
    assert_memory_equal(npz_find(&a, "i8")->data, ((const int32_t[]){-7, INT32_MAX}), 8);
    assert_memory_equal(npz_find(&a, "u2")->data, ((const int32_t[]){65535}), 4);
    assert_memory_equal(npz_find(&a, "b")->data, ((const int32_t[]){1, 0, 1}), 12);
    assert_memory_equal(npz_find(&a, "i1")->data, ((const int32_t[]){-1}), 4);
    assert_memory_equal(npz_find(&a, "f8")->data, ((const float[]){0.1f}), 4);
    assert_memory_equal(npz_find(&a, "f2")->data, ((const float[]){1.0f, -(float)INFINITY}), 8);
    assert_true(f4->is_float && f4->n_dims == 1 && f4->dims[0] == 1 && *(const float *)f4->data == 1.5f);
    assert_true(!i4->is_float && none->n_dims == 2 && none->dims[0] == 0);
    assert_null(npz_find(&a, "other"));
    npz_close(&a);
    drop(&z);
}

static void refused(made *z, const char *what) {
    npz a;
    quire_error err = {0};
    quire_err e = npz_parse("a.npz", z->bytes.p, z->bytes.n, &a, &err);
    if (e != QUIRE_BAD_FILE || strstr(err.message, what) == NULL || strncmp(err.message, "a.npz", 5) != 0) {
        fail_msg("expected a refusal about \"%s\": %s, \"%s\"", what, quire_err_name(e), err.message);
    }
    assert_int_equal(a.n, 0);
    drop(z);
}

static void refused_member(const char *descr, const char *order, const char *shape, const void *data,
                           size_t n, const char *what) {
    made z = {0};
    add(&z, "m.npy", descr, order, shape, data, n);
    end(&z);
    refused(&z, what);
}

TEST(what_is_not_read_is_named) {
    refused_member("'<c8'", "False", "(1,)", "12345678", 8, "'m' has elements");
    refused_member("'>i4'", "False", "(1,)", "1234", 4, "'m' has elements");
    refused_member("'<i4'", "True", "(1,)", "1234", 4, "Fortran order");
    refused_member("'<i4'", "False", "(1, 1, 1, 1, 1)", "1234", 4, "dimensions");
    refused_member("'<i4'", "False", "(2,)", "1234", 4, "a number of bytes that does not match");
    refused_member("'<i4'", "False", "(2147483647, 2147483647, 2147483647)", "1234", 4, "too many");
    refused_member("'<i8'", "False", "(1,)", (const int64_t[]){(int64_t)INT32_MAX + 1}, 8,
                   "does not fit in 32 bits");
    made z = {0};
    put_text(&z.bytes, "PK but no zip");
    refused(&z, "no zip directory");
    z = (made){0};
    add(&z, "m.npy", "'<i4'", "False", "(1,)", "1234", 4);
    end(&z);
    z.bytes.p[z.bytes.n - 22 - 5 - 46 + 10] = 8; /* the method of compression in the only entry */
    refused(&z, "savez_compressed");
    z = (made){0};
    add(&z, "a name that is far too long for an array, longer than any is allowed to be, as it has no end",
        "'<i4'", "False", "(1,)", "1234", 4);
    end(&z);
    refused(&z, "too long");
}

TEST(members_that_overlap_are_refused) {
    made z = {0};
    char data[2000] = {0}, entry[46 + 5];
    add(&z, "m.npy", "'|i1'", "False", "(2000,)", data, sizeof data);
    memcpy(entry, z.directory.p, sizeof entry);
    for (int i = 0; i < 9; i++) { /* the same entry again */
        put(&z.directory, entry, sizeof entry);
        z.n++;
    }
    end(&z);
    refused(&z, "overlap");
}

/* Any bytes are refused with a message or give arrays that can be read. */
TEST(changed_bytes_do_no_harm) {
    uint64_t seed = rng_os_seed(), draw = seed;
    made z = {0};
    add(&z, "a.npy", "'<f8'", "False", "(2, 3)", (const double[]){1, 2, 3, 4, 5, 6}, 48);
    add(&z, "b.npy", "'<i4'", "False", "(1,)", (const int32_t[]){9}, 4);
    end(&z);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 20000; i++) {
        strbuf copy = {0};
        npz a;
        quire_error err = {0};
        put(&copy, z.bytes.p, 1 + rng_next(&draw) % z.bytes.n);
        if (i % 2 == 0) {
            strbuf_clear(&copy);
            put(&copy, z.bytes.p, z.bytes.n);
        }
        for (uint64_t k = rng_next(&draw) % 4; k > 0; k--) {
            copy.p[rng_next(&draw) % copy.n] = (char)rng_next(&draw);
        }
        quire_err e = npz_parse("a.npz", copy.p, copy.n, &a, &err);
        assert_true(e == QUIRE_OK || err.message[0] != '\0');
        npz_close(&a);
        strbuf_deinit(&copy);
    }
    drop(&z);
}

TEST_MAIN(NULL, NULL)
