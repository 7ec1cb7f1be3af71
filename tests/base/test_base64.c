#include <string.h>

#include "base/str.h"
#include "test.h"

TEST(texts_of_the_standard_are_read_and_written) {
    static const char *const cases[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strbuf text = {0}, bytes = {0};
        assert_int_equal(base64_encode(str_of(cases[i][0]), &text), QUIRE_OK);
        assert_int_equal(text.n, strlen(cases[i][1]));
        assert_memory_equal(text.n > 0 ? text.p : "", cases[i][1], text.n);
        assert_int_equal(base64_decode(str_of(cases[i][1]), &bytes), QUIRE_OK);
        assert_int_equal(bytes.n, strlen(cases[i][0]));
        assert_memory_equal(bytes.n > 0 ? bytes.p : "", cases[i][0], bytes.n);
        strbuf_deinit(&text);
        strbuf_deinit(&bytes);
    }
}

TEST(every_byte_survives_and_texts_are_appended) {
    char all[256];
    strbuf text = {0}, bytes = {0};
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
    }
    assert_int_equal(strbuf_add_str(&text, "\""), QUIRE_OK);
    assert_int_equal(base64_encode((str){all, sizeof all}, &text), QUIRE_OK);
    assert_int_equal(text.n, 1 + (sizeof all + 2) / 3 * 4);
    assert_int_equal(base64_decode((str){text.p + 1, text.n - 1}, &bytes), QUIRE_OK);
    assert_int_equal(bytes.n, sizeof all);
    assert_memory_equal(bytes.p, all, sizeof all);
    strbuf_deinit(&text);
    strbuf_deinit(&bytes);
}

TEST(other_characters_and_lengths_are_refused) {
    strbuf bytes = {0};
    assert_int_equal(base64_decode(str_of("Zg=a"), &bytes), QUIRE_BAD_FILE);
    assert_int_equal(base64_decode(str_of("Zm9 "), &bytes), QUIRE_BAD_FILE);
    assert_int_equal(base64_decode(str_of("Z"), &bytes), QUIRE_BAD_FILE);
    strbuf_deinit(&bytes);
}

TEST_MAIN(NULL, NULL)
