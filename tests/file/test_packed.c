/* Packed models as files: what was written comes back; what was cut, changed or forged is
 * refused with a reason, or read inside its bounds. */
#include "packed_files.h"

static const char NAME[] = "model.quire";

/* make_gguf's model with a packed form of each matrix, as written by packed_writer: *n
 * bytes. */
static uint8_t *make_packed(bool with_tables, size_t *n) {
    strbuf source = {0};
    temp_dir d = temp_new();
    model_file *f;
    packed_writer *w;
    packed_image *image;
    quire_error err = {0};
    make_gguf(&source, 3, NULL);
    assert_int_equal(model_file_open_memory(source.p, source.n, "source.gguf", &f, &err), QUIRE_OK);
    assert_int_equal(packed_image_open(COMPUTE_INT8, &image), QUIRE_OK);
    assert_int_equal(packed_writer_open(temp_path(&d, NAME), &w, &err), QUIRE_OK);
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        tensor_view packed = *model_file_tensor(f, i);
        assert_int_equal(packed_image_add(image, &packed), QUIRE_OK);
        packed.data = "0123456789";
        packed.n_bytes = 10 - (size_t)i;
        packed.packing = 7;
        assert_int_equal(packed_image_add(image, &packed), QUIRE_OK);
    }
    assert_int_equal(packed_image_metadata(image, f, str_of(with_tables ? "tables" : ""), str_of("")),
                     QUIRE_OK);
    assert_int_not_equal(access(temp_path(&d, NAME), F_OK), 0); /* not before it is whole */
    assert_int_equal(packed_image_finish(image), QUIRE_OK);
    assert_int_equal(packed_writer_finish(w, image, &err), QUIRE_OK);
    uint8_t *bytes = read_whole(temp_path(&d, NAME), n);
    assert_int_equal(packed_image_bytes(image), *n);
    packed_image_close(image);
    model_file_close(f);
    temp_delete(&d, (const char *[]){NAME, NULL});
    strbuf_deinit(&source);
    return bytes;
}

static quire_err open_bytes(const uint8_t *bytes, size_t n, quire_error *err) {
    model_file *f = NULL;
    uint8_t *exact = malloc(n > 0 ? n : 1); /* its end is where the sanitizer looks */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    quire_err e = model_file_open_memory(exact, n, "test.quire", &f, err);
    if (e == QUIRE_OK) {
        touch_all(f);
        model_file_close(f);
    } else {
        assert_null(f);
        assert_non_null(strstr(err->message, "test.quire: "));
    }
    free(exact);
    return e;
}

TEST(what_was_packed_comes_back) {
    for (int with_tables = 0; with_tables < 2; with_tables++) {
        size_t n;
        uint8_t *bytes = make_packed(with_tables, &n);
        model_file *f;
        quire_error err = {0};
        compute_mode compute = COMPUTE_F32;
        assert_int_equal(model_file_open_memory(bytes, n, "test.quire", &f, &err), QUIRE_OK);
        assert_true(model_file_packed_for(f, &compute));
        assert_int_equal(compute, COMPUTE_INT8);
        assert_int_equal(model_file_format(f), MODEL_GGUF);
        assert_int_equal(model_file_n_tensors(f), 6);
        const tensor_view *plain = model_file_find(f, "token_embd.weight"),
                          *packed = model_file_find(f, "token_embd.weight.packed");
        assert_true(plain->stays && plain->packing == 0 && plain->dims[0] == 3 && plain->dims[1] == 4 &&
                    plain->type == DTYPE_F32);
        assert_float_equal(((const float *)plain->data)[11], 11, 0);
        assert_true(packed->stays && packed->packing == 7 && packed->n_bytes == 10 && packed->dims[1] == 4);
        assert_memory_equal(packed->data, "0123456789", 10);
        assert_int_equal((uintptr_t)packed->data % 64, 0);
        int64_t count;
        str text;
        assert_int_equal(model_file_i64(f, "a.i64", &count), QUIRE_OK);
        assert_int_equal(count, -5);
        assert_int_equal(model_file_str(f, "general.architecture", &text), QUIRE_OK);
        assert_true(str_is(text, "llama") && str_is(model_file_chat_template(f), "{{ messages }}"));
        const vocab *v = model_file_vocab(f);
        assert_int_equal(v->n_tokens, 3);
        assert_int_equal(v->types[0], 3);
        assert_int_equal(v->bos, 0);
        assert_true(with_tables ? v->tokens == NULL && v->scores == NULL && str_is(v->tables, "tables")
                                : str_is(v->tokens[2], "ab") && v->scores[2] == 2 && v->tables.n == 0);
        model_file_close(f);
        mem_free(bytes);
    }
}

TEST(a_shared_file_closes_with_its_last_user) {
    size_t n;
    uint8_t *bytes = make_packed(false, &n);
    model_file *f;
    assert_int_equal(model_file_open_memory(bytes, n, "test.quire", &f, NULL), QUIRE_OK);
    assert_ptr_equal(model_file_share(f), f);
    model_file_close(f);
    assert_non_null(model_file_find(f, "token_embd.weight"));
    model_file_close(f);
    mem_free(bytes);
}

TEST(a_file_that_is_cut_anywhere_is_refused) {
    size_t n;
    uint8_t *bytes = make_packed(true, &n);
    for (size_t cut = strlen(PACKED_MAGIC); cut < n;
         cut += cut < 2 * sizeof(packed_header) || cut > n - 2000 ? 1 : 97) {
        quire_error err = {0};
        if (open_bytes(bytes, cut, &err) == QUIRE_OK || !strstr(err.message, "cut short")) {
            fail_msg("%zu of %zu bytes: %s", cut, n, err.message);
        }
    }
    mem_free(bytes);
}

TEST(another_version_is_named) {
    size_t n;
    quire_error err = {0};
    uint8_t *bytes = make_packed(true, &n);
    bytes[8]++;
    assert_int_equal(open_bytes(bytes, n, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "pack the model again"));
    mem_free(bytes);
}

/* Every byte of the header and of the directory counts. */
TEST(a_byte_that_changed_is_noticed) {
    size_t n;
    uint8_t *bytes = make_packed(true, &n);
    packed_header h;
    memcpy(&h, bytes, sizeof h);
    assert_true(h.directory_at + h.directory_bytes == n);
    for (size_t at = strlen(PACKED_MAGIC); at < n;
         at = at + 1 == sizeof h ? (size_t)h.directory_at : at + 1) {
        quire_error err = {0};
        bytes[at] ^= 1;
        if (open_bytes(bytes, n, &err) == QUIRE_OK) {
            fail_msg("byte %zu of %zu", at, n);
        }
        bytes[at] ^= 1;
    }
    mem_free(bytes);
}

/* Every byte that opening does not check has a checksum: the data, and the checksums
 * themselves. Only padding has none. */
TEST(a_byte_of_the_data_that_changed_is_found_by_its_checksum) {
    size_t n;
    uint8_t *bytes = make_packed(true, &n);
    packed_header h;
    int n_opened = 0;
    uint64_t end;
    memcpy(&h, bytes, sizeof h);
    size_t sums = (size_t)h.directory_at - PACKED_ALIGN; /* one page: the end, a block's, their own */
    memcpy(&end, bytes + sums, sizeof end);
    assert_in_range(end, PACKED_ALIGN + 1000, sums);
    for (size_t at = PACKED_ALIGN; at < sums + 3 * sizeof(uint64_t); at = at + 1 == end ? sums : at + 1) {
        model_file *f;
        quire_error err = {0};
        bytes[at] ^= 16;
        /* else its metadata made no sense */
        if (model_file_open_memory(bytes, n, "test.quire", &f, &err) == QUIRE_OK) {
            int32_t n_blocks = packed_n_blocks(f), n_whole = 0;
            for (int32_t i = 0; i < n_blocks; i++) {
                n_whole += packed_block_is_whole(f, i);
            }
            if (n_blocks > 0 && n_whole == n_blocks) {
                fail_msg("byte %zu of %zu", at, n);
            }
            n_opened++;
            model_file_close(f);
        }
        bytes[at] ^= 16;
    }
    assert_true(n_opened > 1000);
    mem_free(bytes);
}

/* Blocks end inside pieces and inside the zeros between them. */
TEST(checksums_are_of_the_bytes_that_are_written) {
    enum { N = 3 };
    static const size_t sizes[N] = {PACKED_BLOCK + 1, 3 * PACKED_BLOCK - 5000, 100};
    temp_dir d = temp_new();
    strbuf source = {0};
    model_file *f;
    packed_writer *w;
    packed_image *image;
    quire_error err = {0};
    uint8_t *data = mem_new(3 * PACKED_BLOCK, 1);
    make_gguf(&source, 3, NULL);
    assert_int_equal(model_file_open_memory(source.p, source.n, "source.gguf", &f, &err), QUIRE_OK);
    for (size_t i = 0; i < 3 * PACKED_BLOCK; i++) {
        data[i] = (uint8_t)(i * i >> 7);
    }
    assert_int_equal(packed_image_open(COMPUTE_INT8, &image), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        const tensor_view view = {.name = (const char *[]){"a", "b", "c"}[i],
                                  .type = DTYPE_F32,
                                  .n_dims = 2,
                                  .dims = {1, 1, 1, 1},
                                  .data = data + i,
                                  .n_bytes = sizes[i],
                                  .packing = 7};
        assert_int_equal(packed_image_add(image, &view), QUIRE_OK);
    }
    const tensor_view scalar = {
        .name = "s", .type = DTYPE_F32, .dims = {1, 1, 1, 1}, .data = data, .n_bytes = 4};
    assert_int_equal(packed_image_add(image, &scalar), QUIRE_OK);
    assert_int_equal(packed_image_metadata(image, f, str_of(""), str_of("")), QUIRE_OK);
    assert_int_equal(packed_image_finish(image), QUIRE_OK);
    assert_int_equal(packed_writer_open(temp_path(&d, NAME), &w, &err), QUIRE_OK);
    assert_int_equal(packed_writer_finish(w, image, &err), QUIRE_OK);
    packed_image_close(image);
    model_file_close(f);
    assert_int_equal(model_file_open(temp_path(&d, NAME), &f, &err), QUIRE_OK);
    assert_int_equal(packed_n_blocks(f), 5);
    for (int32_t i = 0; i < 5; i++) {
        assert_true(packed_block_is_whole(f, i));
    }
    assert_memory_equal(model_file_find(f, "b.packed")->data, data + 1, sizes[1]);
    assert_int_equal(model_file_find(f, "s")->n_dims, 0);
    model_file_close(f);
    temp_delete(&d, (const char *[]){NAME, NULL});
    mem_free(data);
    strbuf_deinit(&source);
}

TEST(a_forged_file_is_refused_or_read_inside_its_bounds) {
    uint64_t seed = test_seed("forged packed models");
    size_t n;
    uint8_t *bytes = make_packed(true, &n), *changed = mem_new(n, 1);
    packed_header h;
    int n_opened = 0;
    memcpy(&h, bytes, sizeof h);
    for (int i = 0; i < 20000; i++) {
        quire_error err = {0};
        memcpy(changed, bytes, n);
        if (i % 4 == 0) {
            mutate(changed + 8, sizeof h - 2 * SHA256_BYTES - 8, &seed);
        } else {
            mutate(changed + h.directory_at, (size_t)h.directory_bytes, &seed);
        }
        sign(changed, n);
        n_opened += open_bytes(changed, n, &err) == QUIRE_OK;
    }
    print_message("%d of 20000 opened\n", n_opened);
    assert_true(n_opened > 0);
    mem_free(changed);
    mem_free(bytes);
}

TEST(a_model_that_cannot_be_written_leaves_nothing) {
    packed_writer *w;
    quire_error err = {0};
    temp_dir d = temp_new();
    assert_int_equal(packed_writer_open(temp_path(&d, "no/where"), &w, &err), QUIRE_IO);
    assert_non_null(strstr(err.message, "no/where"));
    assert_int_equal(packed_writer_open(temp_path(&d, NAME), &w, &err), QUIRE_OK);
    packed_writer_discard(w);
    temp_delete(&d, (const char *[]){NULL}); /* fails where something is left */
}

TEST(writers_of_one_file_do_not_meet) {
    packed_writer *w[2];
    packed_image *image[2];
    quire_error err = {0};
    temp_dir d = temp_new();
    strbuf source = {0};
    model_file *f;
    size_t n;
    make_gguf(&source, 3, NULL);
    assert_int_equal(model_file_open_memory(source.p, source.n, "source.gguf", &f, &err), QUIRE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(packed_writer_open(temp_path(&d, NAME), &w[i], &err), QUIRE_OK);
        assert_int_equal(packed_image_open(COMPUTE_F32, &image[i]), QUIRE_OK);
    }
    for (int i = 0; i < 2; i++) {
        tensor_view packed = *model_file_tensor(f, 0);
        packed.packing = 7;
        assert_int_equal(packed_image_add(image[i], &packed), QUIRE_OK);
        assert_int_equal(packed_image_metadata(image[i], f, str_of(i == 0 ? "tables" : ""), str_of("")),
                         QUIRE_OK);
        assert_int_equal(packed_image_finish(image[i]), QUIRE_OK);
        assert_int_equal(packed_writer_finish(w[i], image[i], &err), QUIRE_OK);
        uint8_t *bytes = read_whole(temp_path(&d, NAME), &n);
        assert_int_equal(n, packed_image_bytes(image[i]));
        assert_int_equal(open_bytes(bytes, n, &err), QUIRE_OK);
        mem_free(bytes);
    }
    assert_int_not_equal(packed_image_bytes(image[0]), packed_image_bytes(image[1]));
    packed_image_close(image[0]);
    packed_image_close(image[1]);
    model_file_close(f);
    temp_delete(&d, (const char *[]){NAME, NULL});
    strbuf_deinit(&source);
}

TEST(what_is_no_packed_model_is_not_replaced) {
    packed_writer *w;
    quire_error err = {0};
    temp_dir d = temp_new();
    write_file(temp_path(&d, NAME), "GGUF and so on", 14);
    assert_int_equal(packed_writer_open(temp_path(&d, NAME), &w, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "give another name"));
    assert_int_not_equal(packed_writer_open(temp_path(&d, ""), &w, &err), QUIRE_OK);
    assert_int_not_equal(packed_writer_open("/dev/null", &w, &err), QUIRE_OK);
    write_file(temp_path(&d, NAME), "", 0);
    assert_int_equal(packed_writer_open(temp_path(&d, NAME), &w, &err), QUIRE_OK);
    packed_writer_discard(w);
    temp_delete(&d, (const char *[]){NAME, NULL});
}

TEST_MAIN(NULL, NULL)
