/* Streaming detokenization compared with decoding at once. */
#include "shared.h"

#include "base/rng.h"
#include "text/chars.h"
#include "text/detok.h"

static const char *const paths[] = {"golden/tokenizers/bpe-bytelevel/tokenizer.json",
                                    "golden/tokenizers/bpe-llama/tokenizer.json",
                                    "golden/tokenizers/bpe-gemma/tokenizer.json",
                                    "golden/tokenizers/bpe-metaspace-first/tokenizer.json",
                                    "golden/tokenizers/bpe-suffix/tokenizer.json",
                                    "golden/tokenizers/bpe-prefix/tokenizer.json",
                                    "golden/tokenizers/bpe-metaspace-unk/tokenizer.json",
                                    "data/models/stories260K/stories260K.gguf",
                                    "data/models/tinystories-656k-hf"};

/* True when ids hold a run of fallback bytes that is not UTF-8: there a whole decoding
 * says less than a stream. */
static bool has_wrong_run(const tokenizer *t, const int32_t *ids, size_t n) {
    char run[256];
    size_t n_run = 0;
    for (size_t i = 0; i <= n; i++) {
        str p = i < n ? tokenizer_piece(t, ids[i]) : (str){"", 0};
        if (p.n == 6 && memcmp(p.p, "<0x", 3) == 0) {
            run[n_run++] = (char)strtol(p.p + 3, NULL, 16);
        } else {
            if (!utf8_is_valid((str){run, n_run})) {
                return true;
            }
            n_run = 0;
        }
    }
    return false;
}

static void expect_same(const char *path, const strbuf *stream, const strbuf *whole) {
    if (!str_eq((str){stream->p, stream->n}, (str){whole->p, whole->n})) {
        fail_msg("%s: streamed \"%.*s\", decoded \"%.*s\"", path, (int)stream->n, stream->p, (int)whole->n,
                 whole->p);
    }
}

TEST(a_stream_gives_in_whole_characters_what_decoding_gives) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        tokenizer *t = shared_tokenizer(paths[k]);
        for (int round = 0; t != NULL && round < 400; round++) {
            int32_t ids[40];
            size_t n = rng_next(&seed) % 40;
            /* the first ones are mostly bytes */
            uint64_t range = round % 2 == 0 ? (uint64_t)tokenizer_n_tokens(t) : 270;
            for (size_t i = 0; i < n; i++) {
                ids[i] = (int32_t)(rng_next(&seed) % range);
            }
            detok *d;
            strbuf stream = {0}, whole = {0};
            assert_int_equal(detok_open(t, round % 3 == 0, &d), QUIRE_OK);
            if (round % 4 == 0) {
                detok_hold_replacements(d);
            }
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(detok_add(d, ids[i], &stream), QUIRE_OK);
                assert_true(utf8_is_valid((str){stream.p, stream.n}));
            }
            assert_int_equal(detok_flush(d, &stream), QUIRE_OK);
            assert_int_equal(tokenizer_decode(t, ids, n, round % 3 == 0, &whole), QUIRE_OK);
            if (!has_wrong_run(t, ids, n)) {
                expect_same(paths[k], &stream, &whole);
            }
            detok_close(d);
            strbuf_deinit(&stream);
            strbuf_deinit(&whole);
        }
        tokenizer_close(t);
    }
}

TEST(a_primed_stream_goes_on_where_the_ids_end) {
    tokenizer *t = shared_tokenizer("golden/tokenizers/bpe-llama/tokenizer.json");
    if (t == NULL) {
        skip();
    }
    token_list ids = {0};
    quire_error err = {0};
    assert_int_equal(
        tokenizer_encode(t, str_of("one two \xF0\x9F\x98\x80 three"), (encode_options){0}, &ids, &err),
        QUIRE_OK);
    strbuf whole = {0};
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &whole), QUIRE_OK);
    for (size_t cut = 0; cut <= ids.n; cut++) {
        detok *d;
        strbuf head = {0}, tail = {0};
        assert_int_equal(detok_open(t, false, &d), QUIRE_OK);
        for (size_t i = 0; i < cut; i++) {
            assert_int_equal(detok_add(d, ids.ids[i], &head), QUIRE_OK);
        }
        detok_close(d);
        assert_int_equal(detok_open(t, false, &d), QUIRE_OK);
        assert_int_equal(detok_prime(d, ids.ids, cut), QUIRE_OK);
        for (size_t i = cut; i < ids.n; i++) {
            assert_int_equal(detok_add(d, ids.ids[i], &tail), QUIRE_OK);
        }
        assert_int_equal(detok_flush(d, &tail), QUIRE_OK);
        assert_int_equal(strbuf_add(&head, tail.p, tail.n), QUIRE_OK);
        expect_same("bpe-llama", &head, &whole);
        detok_close(d);
        strbuf_deinit(&head);
        strbuf_deinit(&tail);
    }
    strbuf_deinit(&whole);
    token_list_deinit(&ids);
    tokenizer_close(t);
}

TEST(an_unfinished_character_comes_out_by_flush_only) {
    tokenizer *t = shared_tokenizer("golden/tokenizers/bpe-bytelevel/tokenizer.json");
    if (t == NULL) {
        skip();
    }
    detok *d;
    strbuf out = {0};
    assert_int_equal(detok_open(t, false, &d), QUIRE_OK);
    /* the byte F0, as the vocabulary spells it */
    assert_int_equal(detok_add(d, tokenizer_find(t, str_of("\xC3\xB0")), &out), QUIRE_OK);
    assert_int_equal(out.n, 0);
    assert_int_equal(detok_flush(d, &out), QUIRE_OK);
    assert_true(str_is((str){out.p, out.n}, UTF8_REPLACEMENT));
    strbuf_clear(&out);
    assert_int_equal(detok_add(d, tokenizer_find(t, str_of("a")), &out), QUIRE_OK); /* as opened */
    assert_true(str_is((str){out.p, out.n}, "a"));
    detok_close(d);
    strbuf_deinit(&out);
    tokenizer_close(t);
}

TEST(held_replacements_wait_for_the_next_character) {
    tokenizer *t = shared_tokenizer("golden/tokenizers/bpe-bytelevel/tokenizer.json");
    if (t == NULL) {
        skip();
    }
    int32_t lone = tokenizer_find(t, str_of("\xC4\xA2")); /* the byte 80 */
    for (int hold = 0; hold < 2; hold++) {
        detok *d;
        strbuf out = {0};
        assert_int_equal(detok_open(t, false, &d), QUIRE_OK);
        if (hold) {
            detok_hold_replacements(d);
        }
        assert_int_equal(detok_add(d, lone, &out), QUIRE_OK);
        assert_int_equal(out.n, hold ? 0 : 3);
        assert_int_equal(detok_add(d, tokenizer_find(t, str_of("a")), &out), QUIRE_OK);
        assert_true(str_is((str){out.p, out.n}, UTF8_REPLACEMENT "a"));
        detok_close(d);
        strbuf_deinit(&out);
    }
    tokenizer_close(t);
}

TEST_MAIN(NULL, NULL)
