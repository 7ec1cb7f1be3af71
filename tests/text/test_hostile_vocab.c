/* Truncated, damaged and forged tokenizer files: refused with a message, or usable. */
#include "shared.h"

#include "base/rng.h"

static const char TEXT[] = "Hello \xE6\x97\xA5  world!\n\x01\xFF <s> 123";

static void try_file(vocab_source source, const char *bytes, size_t n) {
    vocab v = {
        .source = source, .model_bytes = {bytes, n}, .bos = -1, .eos = -1, .unk = -1, .pad = -1, .sep = -1};
    tokenizer *t;
    quire_error err = {0};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        assert_true(err.message[0] != '\0');
        return;
    }
    token_list ids = {0};
    strbuf text = {0};
    (void)tokenizer_encode(t, (str){TEXT, sizeof TEXT - 1},
                           (encode_options){.special = ENCODE_PARSE, .add_special = true}, &ids, NULL);
    for (size_t i = 0; i < ids.n; i++) {
        assert_in_range(ids.ids[i], 0, tokenizer_n_tokens(t) - 1);
    }
    (void)tokenizer_decode(t, ids.ids, ids.n, false, &text);
    token_list_deinit(&ids);
    strbuf_deinit(&text);
    tokenizer_close(t);
}

static void damage(vocab_source source, const char *relative) {
    size_t n;
    uint64_t seed = rng_os_seed();
    char *bytes = shared_read(relative, &n);
    if (bytes == NULL) {
        skip();
    }
    print_message("QUIRE_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < 300; i++) {
        char *forged = mem_dup(bytes, n);
        for (uint64_t k = rng_next(&seed) % 8; k > 0; k--) {
            forged[rng_next(&seed) % n] = (char)rng_next(&seed);
        }
        try_file(source, forged, rng_next(&seed) % 2 == 0 ? n : (size_t)(rng_next(&seed) % n));
        mem_free(forged);
    }
    mem_free(bytes);
}

TEST(damaged_sentencepiece_models_are_refused_or_usable) {
    damage(VOCAB_SENTENCEPIECE, "golden/tokenizers/sp-unigram-bf/tokenizer.model");
    damage(VOCAB_SENTENCEPIECE, "golden/tokenizers/sp-bpe-uds/tokenizer.model");
}

TEST(a_score_that_is_no_number_is_refused) {
    static const char file[] = "\n\x08\n\x01"
                               "a\x15\x00\x00\xC0\x7F"; /* one piece, "a", with NaN */
    vocab v = {.source = VOCAB_SENTENCEPIECE, .model_bytes = {file, sizeof file - 1}};
    tokenizer *t;
    quire_error err = {0};
    assert_int_equal(tokenizer_open(&v, &t, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "not a number"));
}

TEST(malformed_ranks_are_refused_by_their_line) {
    static const char *const files[] = {"IQ== 0\nIg==\n", "IQ== 0\nIg== x\n", "IQ== 0\n?? 1\n",
                                        "IQ== 0\nIg== 99999999999999999999\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        vocab v = {.source = VOCAB_RANKS, .model_bytes = str_of(files[i]), .pattern = str_of(".")};
        tokenizer *t;
        quire_error err = {0};
        assert_int_equal(tokenizer_open(&v, &t, &err), QUIRE_BAD_FILE);
        assert_non_null(strstr(err.message, "line 2"));
    }
}

TEST_MAIN(NULL, NULL)
