/* Added tokens from tokenizer.json together with those from added_tokens_decoder in
 * tokenizer_config.json. */
#include "shared.h"

#include "text/json_vocab.h"
#include "text/tables.h"
#include "text/tokenizer_impl.h"

#define MODEL                                                                                                \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" "                                             \
    "\":2,\"<v>\":3},\"merges\":[]},\"normalizer\":{\"type\":\"Lowercase\"}"
#define ADDED "\"added_tokens\":[{\"id\":4,\"content\":\"<x>\",\"special\":true}]"

static tokenizer *open_vocab(const vocab *v) {
    tokenizer *t = NULL;
    quire_error err = {0};
    if (tokenizer_open(v, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return t;
}

static vocab vocab_of(const char *json, const char *config) {
    return (vocab){.source = VOCAB_TOKENIZER_JSON,
                   .tokenizer_json = str_of(json),
                   .tokenizer_config_json = str_of(config)};
}

static void expect(const tokenizer *t, const char *text, const int32_t *want, size_t n) {
    token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, str_of(text), (encode_options){.special = ENCODE_PARSE}, &ids, NULL),
                     QUIRE_OK);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.ids, want, n * sizeof *want);
    token_list_deinit(&ids);
}
#define EXPECT(t, text, ...)                                                                                 \
    expect(t, text, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

TEST(tokens_that_only_the_decoder_names_get_the_next_ids_in_their_order) {
    vocab v = vocab_of(
        "{" MODEL "," ADDED "}",
        "{\"added_tokens_decoder\":{\"12\":{\"content\":\"<z>\"},\"11\":{\"content\":\"<y>\",\"special\":"
        "true},\"4\":{\"content\":\"<x>\",\"special\":true},\"3\":{\"content\":\"<v>\",\"special\":true}}}");
    tokenizer *t = open_vocab(&v);
    EXPECT(t, "a<y>b<z><x><v>", 0, 5, 1, 6, 4, 3);
    assert_int_equal(tokenizer_n_tokens(t), 7);
    assert_true(tokenizer_is_special(t, 5) && !tokenizer_is_special(t, 6) && tokenizer_is_special(t, 3));
    assert_true(str_is(tokenizer_piece(t, 5), "<y>") && tokenizer_find(t, str_of("<z>")) == 6);
    tokenizer_close(t);
    v.tokenizer_config_json = str_of("{}");
    t = open_vocab(&v);
    assert_int_equal(tokenizer_n_tokens(t), 5);
    tokenizer_close(t);
}

TEST(their_flags_count_also_over_those_of_the_other_file) {
    vocab v =
        vocab_of("{" MODEL "," ADDED "}", "{\"added_tokens_decoder\":{\"5\":{\"content\":\"<l>\",\"lstrip\":"
                                          "true,\"special\":true},\"6\":{\"content\":\"<r>\",\"rstrip\":"
                                          "true,\"special\":true},\"7\":{\"content\":\"ab\",\"single_word\":"
                                          "true},\"8\":{\"content\":\"<N>\",\"normalized\":true},"
                                          "\"9\":{\"content\":\"<K>\",\"normalized\":false},\"4\":{"
                                          "\"content\":\"<x>\",\"special\":true,\"lstrip\":true}}}");
    tokenizer *t = open_vocab(&v);
    EXPECT(t, "a <l> a", 0, 5, 2, 0);
    EXPECT(t, "a <r> a", 0, 2, 6, 0);
    EXPECT(t, "ab aba", 7, 2, 0, 1, 0);
    EXPECT(t, "<n><N><K>", 8, 8, 9); /* normalized: found in lower case, as its own text is there */
    EXPECT(t, "a <x>", 0, 4);
    tokenizer_close(t);
}

TEST(a_token_that_the_config_names_by_a_role_is_special) {
    vocab v = vocab_of("{" MODEL "}",
                       "{\"eos_token\":\"<e>\",\"additional_special_tokens\":[\"<f>\",{\"content\":\"<g>\"}],"
                       "\"added_tokens_decoder\":{\"4\":{\"content\":\"<e>\"},\"5\":{\"content\":\"<f>\"},"
                       "\"6\":{\"content\":\"<g>\"},\"7\":{"
                       "\"content\":\"<h>\"}}}");
    tokenizer *t = open_vocab(&v);
    assert_true(tokenizer_is_special(t, 4) && tokenizer_is_special(t, 5) && tokenizer_is_special(t, 6) &&
                !tokenizer_is_special(t, 7));
    assert_int_equal(tokenizer_eos(t), 4);
    tokenizer_close(t);
}

TEST(a_packed_tokenizer_has_them_too) {
    vocab v = vocab_of("{" MODEL "," ADDED "}", "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<y>\","
                                                "\"special\":true},\"8\":{\"content\":\"<w>\"}}}");
    tokenizer *t = open_vocab(&v);
    strbuf tables = {0}, json = {0};
    quire_error err;
    assert_int_equal(tables_write(t, &tables), QUIRE_OK);
    assert_int_equal(json_vocab_strip(v.tokenizer_json, &json, &err), QUIRE_OK);
    tokenizer_close(t);
    char *aligned = aligned_alloc(64, (tables.n + 63) / 64 * 64);
    assert_non_null(aligned);
    memcpy(aligned, tables.p, tables.n);
    vocab packed = v;
    packed.tables = (str){aligned, tables.n};
    packed.tokenizer_json = (str){json.p, json.n};
    t = open_vocab(&packed);
    EXPECT(t, "a<y><w><x>", 0, 6, 5, 4);
    tokenizer_close(t);
    free(aligned);
    strbuf_deinit(&tables);
    strbuf_deinit(&json);
}

TEST(what_is_no_token_is_left_out_and_hostile_lists_are_bounded) {
    vocab v = vocab_of("{" MODEL "}", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<x>\"},\"5\":null,"
                                      "\"6\":{\"content\":\"\"},\"7\":{},\"8\":7,"
                                      "\"-1\":{\"content\":\"<n>\"},\"99999999999\":{\"content\":\"<m>\"},"
                                      "\"9\":{\"content\":\"a\"},\"10\":{\"content\":\"a\"}}}");
    tokenizer *t = open_vocab(&v);
    assert_int_equal(tokenizer_n_tokens(t), 4);
    assert_true(tokenizer_is_added(t, 0));
    tokenizer_close(t);
    strbuf many = {0};
    assert_int_equal(strbuf_add_str(&many, "{\"added_tokens_decoder\":{\"0\":{\"content\":\"a\"}"), QUIRE_OK);
    for (int i = 1; i < 20000; i++) {
        assert_int_equal(
            strbuf_addf(&many, ",\"%d\":{\"content\":\"<%d>\",\"special\":true}", 40000 - i, i % 15000),
            QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&many, "},\"additional_special_tokens\":[\"a\""), QUIRE_OK);
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(strbuf_addf(&many, ",\"<%d>\"", i), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&many, "]}"), QUIRE_OK);
    v.tokenizer_config_json = (str){many.p, many.n};
    t = open_vocab(&v);
    assert_int_equal(tokenizer_n_tokens(t), 4 + 15000);
    tokenizer_close(t);
    strbuf_deinit(&many);
}

TEST_MAIN(NULL, NULL)
