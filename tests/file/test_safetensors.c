/* safetensors: the header's promises are checked against the file. */
#include "file/tensors.h"
#include "make_files.h"

static quire_err parse(const strbuf *b, tensor_dir *dir, quire_error *err) {
    quire_err e = safetensors_parse(b->p, b->n, "x.safetensors", 0, dir, err);
    return e == QUIRE_OK ? tensor_dir_finish(dir, "x.safetensors", err) : e;
}

/* A file with this header and n_data bytes is refused, and the message has the words. */
static void assert_refused(const char *header, size_t n_data, const char *words) {
    strbuf b = {0};
    tensor_dir dir = {0};
    quire_error err = {0};
    make_safetensors(&b, header, n_data);
    assert_int_equal(parse(&b, &dir, &err), QUIRE_BAD_FILE);
    if (strstr(err.message, words) == NULL) {
        fail_msg("\"%s\" is not in: %s", words, err.message);
    }
    tensor_dir_deinit(&dir);
    strbuf_deinit(&b);
}

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"fp8\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[16,20]},"
                           "\"five\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[20,24]},"
                           "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[24,24]}}   ";
#define GOOD_DATA 24

TEST(tensors_are_found_and_strange_ones_remembered) {
    strbuf b = {0};
    tensor_dir dir = {0};
    quire_error err = {0};
    make_safetensors(&b, good, GOOD_DATA);
    assert_int_equal(parse(&b, &dir, &err), QUIRE_OK);
    assert_int_equal(dir.n, 2);
    const tensor_view *t = &dir.views[tensor_dir_find(&dir, str_of("b"))];
    assert_int_equal(t->type, DTYPE_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->n_bytes, 12);
    assert_ptr_equal(t->data, b.p + 8 + strlen(good) + 4);
    t = &dir.views[tensor_dir_find(&dir, str_of("a"))];
    assert_int_equal(t->n_dims, 0); /* a scalar */
    assert_int_equal(t->n_bytes, 4);
    assert_int_equal(tensor_dir_find(&dir, str_of("fp8")), -1);
    assert_string_equal(tensor_dir_why_unread(&dir, str_of("fp8")), "F8_E5M2");
    assert_string_equal(tensor_dir_why_unread(&dir, str_of("five")), "more than 4 dimensions");
    assert_string_equal(tensor_dir_why_unread(&dir, str_of("none")), "no elements");
    assert_null(tensor_dir_why_unread(&dir, str_of("a")));
    tensor_dir_deinit(&dir);
    strbuf_deinit(&b);
}

#define ONE(dtype, shape, offsets)                                                                           \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

TEST(a_tensor_whose_numbers_contradict_is_refused_by_name) {
    assert_refused(ONE("\"F32\"", "[2]", "[0,8]"), 7,
                   "tensor t ends at byte 8 of the data, the file has 7: it is cut short");
    assert_refused(ONE("\"F32\"", "[2]", "[0,4]"), 8, "shape and dtype do not give the bytes");
    assert_refused(ONE("\"F32\"", "[2]", "[8,0]"), 8, "data_offsets");
    assert_refused(ONE("\"F32\"", "[2]", "[0]"), 8, "data_offsets");
    assert_refused(ONE("\"F32\"", "[2]", "[-8,0]"), 8, "data_offsets");
    assert_refused(ONE("\"F32\"", "[2]", "[0,8.0]"), 8, "data_offsets");
    assert_refused(ONE("\"F32\"", "[2]", "{}"), 8, "data_offsets");
    assert_refused(ONE("\"F32\"", "[2]", "[18446744073709551608,18446744073709551616]"), 8, "data_offsets");
    assert_refused(ONE("\"F32\"", "[-2]", "[0,8]"), 8, "too large");
    assert_refused(ONE("\"F32\"", "[4611686018427387904,8]", "[0,8]"), 8, "too large");
    assert_refused(ONE("\"F32\"", "[4611686018427387904]", "[0,0]"), 8, "shape and dtype");
    assert_refused(ONE("\"F32\"", "2", "[0,8]"), 8, "shape");
    assert_refused(ONE("7", "[2]", "[0,8]"), 8, "dtype");
    assert_refused("{\"t\":7}", 8, "dtype");
    assert_refused("{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "empty");
}

TEST(overlapping_and_repeated_tensors_are_refused) {
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\","
                   "\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "tensor b: its data overlap");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\","
                   "\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "duplicate name");
    /* the same name, spelled with an escape; and a name that would end early */
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"\\u0061\":{\"dtype\":"
                   "\"F32\",\"shape\":[1],\"data_"
                   "offsets\":[4,8]}}",
                   8, "duplicate name");
    assert_refused("{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8,
                   "NUL character");
}

TEST(a_header_that_is_no_json_object_is_refused) {
    assert_refused("", 0, "ends where a value is expected");
    assert_refused("[1]", 0, "JSON object");
    assert_refused("{} x", 0, "JSON");
    assert_refused("{}{}", 0, "JSON");
    assert_refused("{'a':1}", 0, "JSON");
    assert_refused("{\"a\":1,}", 0, "JSON");
    assert_refused("{\"\xff\":1}", 0, "JSON");
    strbuf b = {0};
    tensor_dir dir = {0};
    quire_error err = {0};
    put_u64(&b, 4);
    put(&b, "{}\0x", 4); /* the parser itself would stop at the 0 */
    assert_int_equal(parse(&b, &dir, &err), QUIRE_BAD_FILE);
    tensor_dir_deinit(&dir);
    strbuf_clear(&b);
    put_u64(&b, UINT64_MAX);
    put(&b, "{}", 2);
    assert_int_equal(parse(&b, &dir, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "over the limit"));
    tensor_dir_deinit(&dir);
    strbuf_deinit(&b);
}

TEST(json_nested_too_deep_is_refused) {
    static char deep[200001];
    memset(deep, '[', 200000);
    memcpy(deep, "{\"a\":", 5);
    assert_refused(deep, 0, "nested too deeply");
}

/* Parses n bytes in an allocation of their own; reads all that was accepted. */
static bool survives(const void *bytes, size_t n) {
    tensor_dir dir = {0};
    quire_error err = {0};
    void *exact = malloc(n > 0 ? n : 1);
    memcpy(exact, bytes, n);
    quire_err e = safetensors_parse(exact, n, "x.safetensors", 0, &dir, &err);
    if (e == QUIRE_OK) {
        e = tensor_dir_finish(&dir, "x.safetensors", &err);
    }
    for (int32_t i = 0; e == QUIRE_OK && i < dir.n; i++) {
        volatile uint8_t last = ((const uint8_t *)dir.views[i].data)[dir.views[i].n_bytes - 1];
        (void)last;
    }
    if (e != QUIRE_OK) {
        assert_true(strlen(err.message) > strlen("x.safetensors: "));
    }
    tensor_dir_deinit(&dir);
    free(exact);
    return e == QUIRE_OK;
}

TEST(a_file_cut_at_any_byte_is_refused) {
    strbuf b = {0};
    make_safetensors(&b, good, GOOD_DATA);
    for (size_t n = 0; n < b.n; n++) {
        assert_false(survives(b.p, n));
    }
    assert_true(survives(b.p, b.n));
    strbuf_deinit(&b);
}

TEST(random_damage_never_leads_outside_the_file) {
    strbuf b = {0};
    make_safetensors(&b, good, GOOD_DATA);
    uint64_t seed = test_seed("safetensors");
    uint8_t *copy = malloc(b.n);
    int n_refused = 0;
    for (int i = 0; i < 10000; i++) {
        memcpy(copy, b.p, b.n);
        mutate(copy + (i % 2) * 8, b.n - GOOD_DATA - (size_t)(i % 2) * 8, &seed);
        n_refused += !survives(copy, b.n);
    }
    print_message("refused: %d of 10000\n", n_refused);
    assert_true(n_refused > 1000 && n_refused < 10000);
    free(copy);
    strbuf_deinit(&b);
}

TEST_MAIN(NULL, NULL)
