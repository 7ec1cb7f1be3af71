/* What tokens add to a text, against decoding. */
#include "shared.h"

#include "text/token_texts.h"

static const char *const models[] = {"bpe-bytelevel", "bpe-llama", "bpe-metaspace-first", "bpe-prefix", "pt-cl100k"};

static char *read_all(const char *path, size_t *n) {
    static char bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail_msg("%s cannot be read", path);
    }
    *n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(*n < sizeof bytes);
    return bytes;
}

static tokenizer *open_model(const char *name) {
    char path[256];
    size_t n;
    tokenizer *t;
    quire_error err = {0};
    snprintf(path, sizeof path, "tests/golden/tokenizers/%s/tokenizer.json", name);
    char *json = read_all(path, &n);
    vocab v = {.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = {json, n}};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        fail_msg("%s: %s", name, err.message);
    }
    return t;
}

static void the_texts_of_tokens_make_up_what_they_decode_to(void **state) {
    (void)state;
    static const char *const texts[] = {"The quick brown fox, 42 times!", "a  b\n\nc d  ", "x", "some words and  spaces\tand tabs"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        tokenizer *t = open_model(models[m]);
        token_texts *table;
        assert_int_equal(token_texts_open(t, &table), QUIRE_OK);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            token_list ids = {0};
            quire_error err = {0};
            strbuf whole = {0}, joined = {0};
            assert_int_equal(
                tokenizer_encode(t, str_of(texts[i]), (encode_options){.special = ENCODE_PLAIN, .add_special = false}, &ids, &err),
                QUIRE_OK);
            assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &whole), QUIRE_OK);
            for (size_t k = 1; k < ids.n; k++) { /* the first one's leading space is another matter */
                str text = token_texts_of(table, ids.ids[k]);
                assert_true(text.n <= token_texts_longest(table));
                assert_int_equal(strbuf_add(&joined, text.p, text.n), QUIRE_OK);
            }
            assert_true(joined.n <= whole.n);
            if (joined.n > 0 && memcmp(whole.p + whole.n - joined.n, joined.p, joined.n) != 0) {
                fail_msg("%s: \"%s\" ends otherwise", models[m], texts[i]);
            }
            assert_true(joined.n + token_texts_of(table, ids.ids[0]).n >= whole.n);
            strbuf_deinit(&whole);
            strbuf_deinit(&joined);
            token_list_deinit(&ids);
        }
        assert_int_equal(token_texts_of(table, -1).n, 0);
        assert_int_equal(token_texts_of(table, tokenizer_n_tokens(t)).n, 0);
        token_texts_close(table);
        tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_texts_of_tokens_make_up_what_they_decode_to)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
