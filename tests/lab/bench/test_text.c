/* `quire bench text`: its texts are the same on every machine, and its tokenizers
 * work. */

#include "base/utf8.h"
#include "file/model_file.h"
#include "lab/bench/text_samples.h"
#include "setup/engine_config.h"
#include "test.h"

TEST(samples_are_text_of_their_size_and_always_the_same) {
    for (sample_kind kind = 0; kind < N_SAMPLES; kind++) {
        strbuf a = {0}, b = {0};
        assert_int_equal(sample_make(kind, 10000, &a), QUIRE_OK);
        assert_int_equal(sample_make(kind, 10000, &b), QUIRE_OK);
        assert_in_range(a.n, 10000, 10400);
        assert_true(utf8_is_valid((str){a.p, a.n}));
        assert_true(str_eq((str){a.p, a.n}, (str){b.p, b.n}));
        strbuf_deinit(&a);
        strbuf_deinit(&b);
    }
}

/* encode and decode. */
static void expect_back(const tokenizer *t, str text, bool exactly) {
    token_list ids = {0};
    strbuf back = {0};
    quire_error err;
    assert_int_equal(tokenizer_encode(t, text, (encode_options){.special = ENCODE_PARSE}, &ids, &err),
                     QUIRE_OK);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &back), QUIRE_OK);
    assert_true(ids.n > text.n / 40);
    if (exactly && !str_eq((str){back.p, back.n}, text)) {
        fail_msg("%.60s.. became %.60s..", text.p, back.p);
    }
    token_list_deinit(&ids);
    strbuf_deinit(&back);
}

TEST(a_tokenizer_of_each_kind_is_made_and_those_with_bytes_keep_texts) {
    size_t n;
    model_file *f;
    tokenizer *from, *t;
    quire_error err;
    const void *bytes = options_builtin_model("builtin", &n);
    assert_int_equal(model_file_open_memory(bytes, n, "builtin", &f, &err), QUIRE_OK);
    assert_int_equal(tokenizer_open(model_file_vocab(f), &from, &err), QUIRE_OK);
    for (made_kind kind = 0; kind < N_MADE; kind++) {
        if (made_open(kind, from, &t, &err) != QUIRE_OK) {
            fail_msg("%s: %s", made_name(kind), err.message);
        }
        for (sample_kind sample = SAMPLE_ENGLISH; sample <= SAMPLE_CHINESE; sample++) {
            strbuf text = {0};
            assert_int_equal(sample_make(sample, 5000, &text), QUIRE_OK);
            expect_back(t, (str){text.p, text.n}, kind <= MADE_UNIGRAM);
            strbuf_deinit(&text);
        }
        tokenizer_close(t);
    }
    tokenizer_close(from);
    model_file_close(f);
}

TEST_MAIN(NULL, NULL)
