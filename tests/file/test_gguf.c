/* GGUF: what is read, and how malformed files are refused. */
#include "base/log.h"
#include "file/model_file.h"
#include "make_files.h"

/* A file of which one place is wrong: refused with code, and a message that has the
 * words. */
static void assert_refused(const strbuf *b, quire_err code, const char *words) {
    model_file *f = NULL;
    quire_error err = {0};
    assert_int_equal(model_file_open_memory(b->p, b->n, "test.gguf", &f, &err), code);
    assert_null(f);
    if (strstr(err.message, words) == NULL) {
        fail_msg("\"%s\" is not in: %s", words, err.message);
    }
}

static model_file *open_good(const strbuf *b) {
    model_file *f = NULL;
    quire_error err = {0};
    if (model_file_open_memory(b->p, b->n, "test.gguf", &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

TEST(numbers_strings_and_arrays_are_read_by_key) {
    strbuf b = {0};
    make_gguf(&b, 3, NULL);
    model_file *f = open_good(&b);
    int64_t i = 99, many[2];
    float x;
    bool flag;
    str s;
    size_t n;
    assert_int_equal(model_file_format(f), MODEL_GGUF);
    assert_int_equal(model_file_i64(f, "llama.block_count", &i), QUIRE_OK);
    assert_int_equal(i, 2);
    assert_int_equal(model_file_i64(f, "a.i64", &i), QUIRE_OK);
    assert_int_equal(i, -5);
    assert_int_equal(model_file_i64(f, "a.f64", &i), QUIRE_OK); /* 7.0 is whole */
    assert_int_equal(i, 7);
    assert_int_equal(model_file_i64(f, "a.u64", &i), QUIRE_BAD_FILE); /* over int64_t */
    assert_int_equal(model_file_i64(f, "general.architecture", &i), QUIRE_BAD_FILE);
    assert_int_equal(model_file_i64(f, "not.there", &i), QUIRE_NOT_FOUND);
    assert_int_equal(i, 7);
    assert_int_equal(model_file_f32(f, "llama.norm_eps", &x), QUIRE_OK);
    assert_true(x == 1e-5f);
    assert_int_equal(model_file_i64(f, "llama.norm_eps", &i), QUIRE_BAD_FILE);
    assert_int_equal(model_file_f32(f, "a.i64", &x), QUIRE_OK);
    assert_true(x == -5.0f);
    assert_int_equal(model_file_bool(f, "a.bool", &flag), QUIRE_OK);
    assert_true(flag);
    assert_int_equal(model_file_str(f, "general.architecture", &s), QUIRE_OK);
    assert_true(str_is(s, "llama"));
    assert_int_equal(model_file_i64s(f, "tokenizer.ggml.token_type", many, 2, &n), QUIRE_OK);
    assert_int_equal(n, 3);
    assert_int_equal(many[0], 3);
    assert_int_equal(model_file_i64s(f, "a.nested", many, 2, &n), QUIRE_BAD_FILE);
    assert_int_equal(model_file_i64s(f, "a.i64", many, 2, &n), QUIRE_OK); /* one number is an array of one */
    assert_int_equal(n, 1);
    assert_int_equal(model_file_str_at(f, "tokenizer.ggml.tokens", 2, &s, &n), QUIRE_OK);
    assert_true(str_is(s, "ab") && n == 3);
    assert_int_equal(model_file_str_at(f, "tokenizer.ggml.tokens", 3, &s, &n), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_generation_i64s(f, "eos_token_id", many, 2, &n), QUIRE_NOT_FOUND);
    model_file_close(f);
    strbuf_deinit(&b);
}

TEST(dimensions_become_row_major_and_data_are_found) {
    for (uint32_t version = 2; version <= 3; version++) {
        strbuf b = {0};
        size_t n_header;
        make_gguf(&b, version, &n_header);
        model_file *f = open_good(&b);
        assert_int_equal(model_file_n_tensors(f), 3);
        const tensor_view *t = model_file_find(f, "blk.0.q.weight");
        assert_non_null(t);
        assert_ptr_equal(t, model_file_tensor(f, 1));
        assert_string_equal(t->name, "blk.0.q.weight");
        assert_int_equal(t->type, DTYPE_Q4_0);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->dims[0], 2);
        assert_int_equal(t->dims[1], 32);
        assert_int_equal(t->dims[2], 1);
        assert_int_equal(t->n_bytes, 36);
        assert_ptr_equal(t->data, b.p + n_header + 64);
        assert_null(model_file_find(f, "blk.0.q"));
        model_file_close(f);
        strbuf_deinit(&b);
    }
}

TEST(the_vocabulary_is_borrowed_from_the_file) {
    strbuf b = {0};
    make_gguf(&b, 3, NULL);
    model_file *f = open_good(&b);
    const vocab *v = model_file_vocab(f);
    assert_int_equal(v->source, VOCAB_GGUF);
    assert_true(str_is(v->model, "llama") && v->pre.n == 0);
    assert_int_equal(v->n_tokens, 3);
    assert_true(str_is(v->tokens[0], "<s>") && v->tokens[1].n == 0);
    assert_true(v->tokens[2].p > b.p && v->tokens[2].p < b.p + b.n);
    assert_true(v->scores[2] == 2.0f);
    assert_int_equal(v->types[0], VOCAB_CONTROL);
    assert_int_equal(v->bos, 0);
    assert_int_equal(v->eos, -1);
    assert_int_equal(v->add_bos, -1);
    assert_int_equal(v->n_merges, 0);
    assert_true(str_is(model_file_chat_template(f), "{{ messages }}"));
    model_file_close(f);
    strbuf_deinit(&b);
}

/* A file with a list of two templates, named or not; 0: a number in place of them. */
static void expect_template(int n_names, const char *want, size_t n_others) {
    static const char *const texts[] = {"first", "second"}, *const labels[] = {"rag", "default"};
    strbuf b = {0};
    put_header(&b, 3, 0, n_names > 0 ? 2 : 1);
    if (n_names == 0) {
        put_key_u32(&b, "tokenizer.chat_template", 7);
    } else {
        put_array(&b, "tokenizer.chat_template", GGUF_STRING, 2);
        put_str(&b, texts[0]);
        put_str(&b, texts[1]);
        put_array(&b, "tokenizer.chat_templates", GGUF_STRING, (uint64_t)n_names);
        for (int i = 0; i < n_names; i++) {
            put_str(&b, labels[i]);
        }
    }
    pad_from(&b, 0, 32);
    model_file *f;
    quire_error err = {0};
    if (model_file_open_memory(b.p, b.n, "list.gguf", &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(str_is(model_file_chat_template(f), want));
    assert_int_equal(model_file_n_templates(f), n_others);
    model_file_close(f);
    strbuf_deinit(&b);
}

TEST(a_list_of_chat_templates_has_its_default_or_its_first) {
    expect_template(2, "second", 1);
    expect_template(1, "first", 0); /* names that are not as many name nothing */
    expect_template(0, "", 0);      /* and what is no template is none */
}

TEST(further_chat_templates_are_keys_with_their_names) {
    strbuf b = {0};
    put_header(&b, 3, 0, 4);
    put_key_str(&b, "tokenizer.chat_template", "one");
    put_key_str(&b, "tokenizer.chat_template.tool_use", "two");
    put_key_str(&b, "tokenizer.chat_template.", "no name");
    put_key_str(&b, "tokenizer.chat_template.rag", "three");
    model_file *f = open_good(&b);
    str name, text;
    assert_true(str_is(model_file_chat_template(f), "one"));
    assert_int_equal(model_file_n_templates(f), 2);
    model_file_template(f, 0, &name, &text);
    assert_true(str_is(name, "tool_use") && str_is(text, "two"));
    model_file_template(f, 1, &name, &text);
    assert_true(str_is(name, "rag") && str_is(text, "three"));
    model_file_close(f);
    strbuf_deinit(&b);
}

TEST(a_file_without_keys_or_tensors_opens) {
    strbuf b = {0};
    put_header(&b, 3, 0, 0);
    model_file *f = open_good(&b);
    assert_int_equal(model_file_n_tensors(f), 0);
    assert_int_equal(model_file_vocab(f)->source, VOCAB_NONE);
    assert_null(model_file_find(f, "x"));
    model_file_close(f);
    strbuf_deinit(&b);
}

TEST(a_file_cut_at_any_byte_is_refused) {
    strbuf b = {0};
    make_gguf(&b, 3, NULL);
    for (size_t n = 0; n < b.n; n++) {
        assert_false(opens(b.p, n));
    }
    assert_true(opens(b.p, b.n));
    strbuf_deinit(&b);
}

TEST(random_damage_never_leads_outside_the_file) {
    strbuf b = {0};
    size_t n_header;
    make_gguf(&b, 3, &n_header);
    uint64_t seed = test_seed("gguf");
    uint8_t *copy = malloc(b.n);
    int n_refused = 0;
    for (int i = 0; i < 10000; i++) {
        memcpy(copy, b.p, b.n);
        mutate(copy, n_header, &seed);
        n_refused += !opens(copy, b.n);
    }
    print_message("refused: %d of 10000\n", n_refused);
    assert_true(n_refused > 1000);
    free(copy);
    strbuf_deinit(&b);
}

/* ---- one thing wrong ---- */

TEST(wrong_marks_and_versions_are_refused) {
    strbuf b = {0};
    make_gguf(&b, 1, NULL);
    assert_refused(&b, QUIRE_UNSUPPORTED, "GGUF version 1");
    b.p[4] = 4;
    assert_refused(&b, QUIRE_UNSUPPORTED, "GGUF version 4");
    memcpy(b.p + 4, "\0\0\0\3", 4);
    assert_refused(&b, QUIRE_UNSUPPORTED, "big-endian");
    b.p[0] = 'g';
    assert_refused(&b, QUIRE_BAD_FILE, "not a GGUF file");
    strbuf_deinit(&b);
}

TEST(absurd_counts_are_refused_before_anything_is_allocated) {
    strbuf b = {0};
    put_header(&b, 3, 0, UINT64_MAX / 16);
    assert_refused(&b, QUIRE_BAD_FILE, "1,152,921,504,606,846,975 keys");
    strbuf_clear(&b);
    put_header(&b, 3, 1u << 30, 0);
    assert_refused(&b, QUIRE_BAD_FILE, "1,073,741,824 tensors");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", GGUF_F64, UINT64_MAX / 4);
    assert_refused(&b, QUIRE_BAD_FILE, "impossibly long");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", GGUF_STRING, UINT64_MAX / 16);
    assert_refused(&b, QUIRE_BAD_FILE, "more strings");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_key(&b, "k", GGUF_STRING);
    put_u64(&b, UINT64_MAX - 3);
    assert_refused(&b, QUIRE_BAD_FILE, "cut short");
    strbuf_deinit(&b);
}

TEST(a_key_that_occurs_twice_is_refused) {
    strbuf b = {0};
    put_header(&b, 3, 0, 3);
    put_key_u32(&b, "k", 1);
    put_key_u32(&b, "other", 1);
    put_key_u32(&b, "k", 1);
    assert_refused(&b, QUIRE_BAD_FILE, "key k at byte 62: the key occurs twice");
    strbuf_deinit(&b);
}

TEST(values_of_no_known_type_are_refused) {
    strbuf b = {0};
    put_header(&b, 3, 0, 1);
    put_key(&b, "k", (gguf_type)13);
    assert_refused(&b, QUIRE_BAD_FILE, "a type that GGUF does not define");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", (gguf_type)77, 0);
    assert_refused(&b, QUIRE_BAD_FILE, "a type that GGUF does not define");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_key(&b, "k", GGUF_BOOL);
    put(&b, "\2", 1);
    assert_refused(&b, QUIRE_BAD_FILE, "neither 0 nor 1");
    strbuf_deinit(&b);
}

TEST(arrays_nested_too_deep_are_refused) {
    for (int depth = 4; depth <= 100000; depth = depth == 4 ? 5 : depth * 20) {
        strbuf b = {0};
        put_header(&b, 3, 0, 1);
        put_array(&b, "k", depth > 1 ? GGUF_ARRAY : GGUF_U8, 1);
        for (int i = 1; i < depth; i++) {
            put_u32(&b, i + 1 < depth ? GGUF_ARRAY : GGUF_U8);
            put_u64(&b, 1);
        }
        put(&b, "x", 1);
        if (depth == 4) {
            model_file_close(open_good(&b));
        } else {
            assert_refused(&b, QUIRE_BAD_FILE, "nested too deep");
        }
        strbuf_deinit(&b);
    }
}

TEST(an_alignment_that_is_no_power_of_two_is_refused) {
    static const uint32_t wrong[] = {0, 3, 48, UINT32_MAX};
    strbuf b = {0};
    for (size_t i = 0; i < 4; i++) {
        strbuf_clear(&b);
        put_header(&b, 3, 0, 1);
        put_key_u32(&b, "general.alignment", wrong[i]);
        assert_refused(&b, QUIRE_BAD_FILE, "a power of two");
    }
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_key_str(&b, "general.alignment", "32");
    assert_refused(&b, QUIRE_BAD_FILE, "a power of two");
    strbuf_deinit(&b);
}

TEST(the_alignment_of_the_file_places_its_data) {
    strbuf b = {0};
    put_header(&b, 3, 1, 1);
    put_key_u32(&b, "general.alignment", 256);
    put_tensor(&b, "t", 2, 1, 0, 0);
    pad_from(&b, 0, 256);
    put_f32(&b, 41.0f);
    put_f32(&b, 42.0f);
    model_file *f = open_good(&b);
    float x[2];
    memcpy(x, model_file_tensor(f, 0)->data, sizeof x);
    assert_true(x[0] == 41.0f && x[1] == 42.0f);
    model_file_close(f);
    strbuf_deinit(&b);
}

/* One F32 tensor of dim0 x dim1 at offset, with 64 bytes of data after. */
static void assert_tensor_refused(uint64_t dim0, uint64_t dim1, uint32_t type, uint64_t offset,
                                  quire_err code, const char *words) {
    strbuf b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "blk.3.ffn_up.weight", dim0, dim1, type, offset);
    pad_from(&b, 0, 32);
    put_floats(&b, 16);
    assert_refused(&b, code, words);
    strbuf_deinit(&b);
}

TEST(a_tensor_that_does_not_fit_is_refused_by_name) {
    const uint64_t huge = (uint64_t)1 << 62;
    assert_tensor_refused(16, 2, 0, 0, QUIRE_BAD_FILE,
                          "test.gguf: tensor blk.3.ffn_up.weight ends at byte 224, the file has 160: it is "
                          "cut short; download it again");
    assert_tensor_refused(0, 1, 0, 0, QUIRE_BAD_FILE, "a dimension is zero or too large");
    assert_tensor_refused(UINT64_MAX, 1, 0, 0, QUIRE_BAD_FILE, "a dimension is zero or too large");
    assert_tensor_refused(huge, 8, 0, 0, QUIRE_BAD_FILE, "its size is too large");
    /* elements fit size_t, bytes do not */
    assert_tensor_refused(huge, 1, 0, 0, QUIRE_BAD_FILE, "its size is too large");
    assert_tensor_refused(16, 1, 2, 0, QUIRE_BAD_FILE, "not whole blocks");
    assert_tensor_refused(4, 1, 0, 4, QUIRE_BAD_FILE, "not a multiple of the alignment 32");
    assert_tensor_refused(4, 1, 0, 64, QUIRE_BAD_FILE, "cut short");
    assert_tensor_refused(4, 1, 0, UINT64_MAX - 31, QUIRE_BAD_FILE, "its offset is too large");
    assert_tensor_refused(256, 1, 9, 0, QUIRE_UNSUPPORTED, "type 9 (Q8_1)");
    assert_tensor_refused(128, 1, 16, 0, QUIRE_BAD_FILE, "not whole blocks"); /* IQ2_XXS */
    assert_tensor_refused(32, 1, 999, 0, QUIRE_UNSUPPORTED, "type 999");
}

TEST(tensors_with_bad_names_or_ranks_are_refused) {
    strbuf b = {0};
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "t", 4, 1, 0, 0);
    put_tensor(&b, "t", 4, 1, 0, 0);
    pad_from(&b, 0, 32);
    put_floats(&b, 16);
    assert_refused(&b, QUIRE_BAD_FILE, "two tensors are named t");
    for (uint32_t rank = 0; rank <= 5; rank += 5) {
        strbuf_clear(&b);
        put_header(&b, 3, 1, 0);
        put_str(&b, "t");
        put_u32(&b, rank);
        put_floats(&b, 16);
        assert_refused(&b, QUIRE_BAD_FILE, "1 to 4 dimensions");
    }
    strbuf_clear(&b);
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "", 4, 1, 0, 0);
    assert_refused(&b, QUIRE_BAD_FILE, "1 to 255 bytes");
    strbuf_deinit(&b);
}

/* ---- vocabulary ---- */

TEST(vocabulary_arrays_that_contradict_are_refused) {
    strbuf b = {0};
    put_header(&b, 3, 0, 2);
    put_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    put_str(&b, "a");
    put_array(&b, "tokenizer.ggml.scores", GGUF_F32, 2);
    put_floats(&b, 2);
    assert_refused(&b, QUIRE_BAD_FILE, "does not have the length of tokenizer.ggml.tokens");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_array(&b, "tokenizer.ggml.tokens", GGUF_U32, 1);
    put_u32(&b, 1);
    assert_refused(&b, QUIRE_BAD_FILE, "tokenizer.ggml.tokens is not an array of string");
    strbuf_clear(&b);
    put_header(&b, 3, 0, 2);
    put_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    put_str(&b, "a");
    put_array(&b, "tokenizer.ggml.token_type", GGUF_I32, 1);
    put_u32(&b, 7);
    assert_refused(&b, QUIRE_BAD_FILE, "a value that GGUF does not define");
    strbuf_deinit(&b);
}

/* ---- split files ---- */

/* Part no of count, with one tensor. */
static void write_part(const temp_dir *d, const char *file, uint16_t no, uint16_t count, const char *tensor) {
    strbuf b = {0};
    put_header(&b, 3, 1, 3);
    put_key(&b, "split.no", GGUF_U16);
    put(&b, &no, 2);
    put_key(&b, "split.count", GGUF_U16);
    put(&b, &count, 2);
    put_key(&b, "split.tensors.count", GGUF_I32);
    put_u32(&b, count);
    put_tensor(&b, tensor, 4, 1, 0, 0);
    pad_from(&b, 0, 32);
    put_f32(&b, no);
    put_floats(&b, 3);
    write_file(temp_path(d, file), b.p, b.n);
    strbuf_deinit(&b);
}

static const char *const split_names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                          "m-00003-of-00003.gguf", NULL};

TEST(a_split_file_opens_with_the_tensors_of_all_parts) {
    temp_dir d = temp_new();
    model_file *f = NULL;
    quire_error err = {0};
    write_part(&d, split_names[0], 0, 3, "a");
    write_part(&d, split_names[1], 1, 3, "b");
    write_part(&d, split_names[2], 2, 3, "c");
    assert_int_equal(model_file_open(temp_path(&d, split_names[0]), &f, &err), QUIRE_OK);
    assert_int_equal(model_file_n_tensors(f), 3);
    float x;
    memcpy(&x, model_file_find(f, "c")->data, sizeof x);
    assert_true(x == 2.0f);
    model_file_close(f);
    f = NULL;
    assert_int_equal(model_file_open(temp_path(&d, split_names[1]), &f, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "name the first part"));
    temp_delete(&d, split_names);
}

TEST(a_split_file_with_wrong_parts_is_refused) {
    temp_dir d = temp_new();
    model_file *f = NULL;
    quire_error err = {0};
    write_part(&d, split_names[0], 0, 3, "a");
    write_part(&d, split_names[1], 1, 3, "b");
    assert_int_equal(model_file_open(temp_path(&d, split_names[0]), &f, &err), QUIRE_NOT_FOUND);
    assert_non_null(strstr(err.message, "part 3 of 3 is missing"));
    write_part(&d, split_names[2], 1, 3, "c");
    assert_int_equal(model_file_open(temp_path(&d, split_names[0]), &f, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "claims to be part 2 of 3"));
    write_part(&d, split_names[2], 2, 3, "a");
    assert_int_equal(model_file_open(temp_path(&d, split_names[0]), &f, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "two tensors a"));
    assert_null(f);
    temp_delete(&d, split_names);
}

/* One of two parts, with a tensor of a type that nothing computes with; no: which part it
 * says it is. */
static void make_part_with_vocabulary(strbuf *b, uint32_t no) {
    put_header(b, 3, 1, 5);
    put_key_str(b, "general.architecture", "llama");
    put_key(b, "split.no", GGUF_U16);
    put(b, &(uint16_t){(uint16_t)no}, 2);
    put_key(b, "split.count", GGUF_U16);
    put(b, &(uint16_t){2}, 2);
    put_key_str(b, "tokenizer.ggml.model", "llama");
    put_array(b, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    put_str(b, "ab");
    put_tensor(b, "token_embd.weight", 32, 1, 999, 0);
}

/* For a tokenizer the keys are enough: tensors that are cut off, other parts and types
 * that nothing computes with do not matter. */
TEST(a_vocabulary_needs_no_tensors) {
    temp_dir d = temp_new();
    strbuf b = {0};
    size_t n_header;
    model_file *f = NULL;
    quire_error err = {0};
    static const char *const names[] = {"cut.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", NULL};
    make_gguf(&b, 3, &n_header);
    write_file(temp_path(&d, names[0]), b.p, n_header - 100);
    for (uint32_t no = 0; no < 2; no++) {
        strbuf_clear(&b);
        make_part_with_vocabulary(&b, no);
        write_file(temp_path(&d, names[1 + no]), b.p, b.n);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(model_file_open(temp_path(&d, names[i]), &f, &err), QUIRE_OK);
        assert_int_equal(model_file_open_vocabulary(temp_path(&d, names[i]), &f, &err), QUIRE_OK);
        assert_int_equal(model_file_vocab(f)->n_tokens, i == 0 ? 3 : 1);
        model_file_close(f);
    }
    assert_int_equal(model_file_open_vocabulary(temp_path(&d, names[2]), &f, &err), QUIRE_INVALID);
    temp_delete(&d, names);
    strbuf_deinit(&b);
}

int main(void) {
    log_set_level(LOG_ERROR); /* damaged files make warnings */
    return tests_run(NULL, NULL);
}
