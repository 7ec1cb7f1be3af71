/* The lower bound on a text's tokens before it is tokenized, and tokenizing that stops
 * early. */
#include "shared.h"

#include "base/rng.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

static const char *const files[] = {"golden/tokenizers/llama3/tokenizer.json",
                                    "golden/tokenizers/qwen2.5/tokenizer.json",
                                    "golden/tokenizers/bpe-llama/tokenizer.json",
                                    "golden/tokenizers/pt-deepseek3/tokenizer.json",
                                    "data/tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf",
                                    "data/tokenizers/ggml-vocab/ggml-vocab-gpt-2.gguf"};

static size_t count(const tokenizer *t, str text) {
    token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, text, (encode_options){.special = ENCODE_PARSE}, &ids, NULL),
                     QUIRE_OK);
    size_t n = ids.n;
    token_list_deinit(&ids);
    return n;
}

/* A text of few tokens: long tokens' texts, blanks, and characters that normalizing
 * shrinks. */
static void add_dense(const tokenizer *t, uint64_t *rng, strbuf *text) {
    static const char *const shrinking[] = {"\xE1\xBE\xBE\xCC\x88\xCC\x81", "\xE2\x84\xAA\xCC\xA7",
                                            "\xF0\x9D\x90\x80", "        ", "\xE2\x84\xAA"};
    if (rng_next(rng) % 4 == 0) {
        assert_int_equal(strbuf_add_str(text, shrinking[rng_next(rng) % 5]), QUIRE_OK);
        return;
    }
    int32_t longest = (int32_t)(rng_next(rng) % (uint64_t)tokenizer_n_tokens(t));
    for (int i = 0; i < 20; i++) {
        int32_t id = (int32_t)(rng_next(rng) % (uint64_t)tokenizer_n_tokens(t));
        longest = tokenizer_piece(t, id).n > tokenizer_piece(t, longest).n ? id : longest;
    }
    assert_int_equal(tokenizer_decode(t, &longest, 1, false, text), QUIRE_OK);
}

TEST(a_text_has_at_least_so_many_tokens_as_its_length_says) {
    uint64_t seed = rng_os_seed(), rng = seed;
    int n_found = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tokenizer *t = shared_tokenizer(files[i]);
        if (t == NULL) {
            continue;
        }
        if (tokenizer_least_tokens(t, 1) != 1) {
            fail_msg("%s: nothing is known", files[i]);
        }
        for (int round = 0; round < 300; round++) {
            strbuf text = {0};
            for (uint64_t k = rng_next(&rng) % 40; k > 0; k--) {
                add_dense(t, &rng, &text);
            }
            str s = {text.n > 0 ? text.p : "", text.n};
            assert_true(count(t, s) >= tokenizer_least_tokens(t, s.n));
            strbuf_deinit(&text);
        }
        tokenizer_close(t);
        n_found++;
    }
    if (n_found == 0) {
        skip();
    }
}

/* A tokenizer of bytes whose longest token has 8; parts are put into its document, tokens
 * into its vocabulary. */
static tokenizer *open_bytes(const char *parts, const char *tokens, bool all_bytes) {
    strbuf b = {0};
    tokenizer *t = NULL;
    quire_error err = {0};
    assert_int_equal(
        strbuf_addf(&b, "{%s,\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{", parts),
        QUIRE_OK);
    for (int i = 0; i < (all_bytes ? 256 : 255); i++) {
        assert_int_equal(strbuf_addf(&b, "\"<0x%02X>\":%d,", (unsigned)i, i), QUIRE_OK);
    }
    assert_int_equal(strbuf_addf(&b, "%s\"aaaaaaaa\":300},\"merges\":[]}}", tokens), QUIRE_OK);
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = {b.p, b.n},
               .bos = -1,
               .eos = -1,
               .unk = -1,
               .pad = -1};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    strbuf_deinit(&b);
    return t;
}

static void expect_least(const char *parts, bool all_bytes, size_t want_of_8000) {
    tokenizer *t = open_bytes(parts, "", all_bytes);
    if (tokenizer_least_tokens(t, 8000) != want_of_8000) {
        fail_msg("%s: %zu, must be %zu", parts, tokenizer_least_tokens(t, 8000), want_of_8000);
    }
    assert_int_equal(tokenizer_least_tokens(t, 0), 0);
    tokenizer_close(t);
}

TEST(nothing_is_known_where_characters_may_be_deleted) {
    expect_least("\"normalizer\":null", true, 1000);
    expect_least("\"normalizer\":{\"type\":\"NFC\"}", true, 250);
    expect_least("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"__\"}",
                 true, 1000);
    expect_least("\"added_tokens\":[{\"id\":400,\"content\":\"<0123456789abcd>\",\"special\":true}]", true,
                 500);
    expect_least("\"normalizer\":null", false, 0);
    expect_least("\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", true, 0);
    expect_least("\"normalizer\":{\"type\":\"StripAccents\"}", true, 0);
    expect_least("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"c\"}",
                 true, 0);
    expect_least("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"ccccc\"}",
                 true, 0);
    expect_least("\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}", true, 0);
    expect_least("\"added_tokens\":[{\"id\":400,\"content\":\"<x>\",\"special\":true,\"rstrip\":true}]", true,
                 0);
}

/* Merges into an id with two texts make it of any length. */
TEST(nothing_is_known_where_a_token_has_two_texts) {
    tokenizer *t = open_bytes("\"normalizer\":null", "\"aa\":301,\"aaaa\":301,", true);
    assert_int_equal(tokenizer_least_tokens(t, 8000), 0);
    tokenizer_close(t);
    t = open_bytes("\"normalizer\":null", "\"aa\":301,\"aaaa\":302,", true);
    assert_int_equal(tokenizer_least_tokens(t, 8000), 1000);
    tokenizer_close(t);
}

TEST(encoding_stops_past_the_tokens_that_are_wanted) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tokenizer *t = shared_tokenizer(files[i]);
        if (t == NULL) {
            continue;
        }
        const char *text =
            "Once upon a time, there were 12 princes; none of them\n\n slept. \xC3\xA9t\xC3\xA9 </s>";
        size_t n = count(t, str_of(text));
        token_list ids = {0};
        quire_error err;
        assert_int_equal(token_list_add(&ids, 7), QUIRE_OK);
        for (size_t max = 1; max < n; max++) {
            encode_options options = {.special = ENCODE_PARSE, .max_tokens = max};
            assert_int_equal(tokenizer_encode(t, str_of(text), options, &ids, &err), QUIRE_NO_ROOM);
            assert_int_equal(ids.n, 1);
        }
        assert_int_equal(tokenizer_encode(t, str_of(text),
                                          (encode_options){.special = ENCODE_PARSE, .max_tokens = n}, &ids,
                                          &err),
                         QUIRE_OK);
        assert_int_equal(ids.n, n + 1);
        token_list_deinit(&ids);
        tokenizer_close(t);
    }
}

/* Told by what is left in the scratch, not by time. */
TEST(cutting_stops_past_the_pieces_that_are_wanted) {
    tokenizer *t = shared_tokenizer(files[0]);
    if (t == NULL) {
        skip();
    }
    strbuf text = {0};
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(strbuf_add_str(&text, "word 12 "), QUIRE_OK);
    }
    pre_scratch s = {.max_pieces = 10};
    regex_scratch rs = {0};
    const piece_list *pieces;
    assert_int_equal(pretokenizer_run(&t->pretokenizer, (str){text.p, text.n}, 1, &s, &rs, &pieces),
                     QUIRE_NO_ROOM);
    assert_int_equal(s.n_cuts, 10);
    s.max_pieces = 0;
    assert_int_equal(pretokenizer_run(&t->pretokenizer, (str){text.p, text.n}, 1, &s, &rs, &pieces),
                     QUIRE_OK);
    assert_true(pieces->n > 10000);
    pre_scratch_deinit(&s);
    regex_scratch_deinit(&rs);
    strbuf_deinit(&text);
    tokenizer_close(t);
}

TEST_MAIN(NULL, NULL)
