/* bad_words and dry_sequence_breakers: their tokens, their limits, and cancellation while
 * they are tokenized. */

#include "request/request.h"
#include "test.h"

/* Every letter is a token, and so are "ab", " c", a blank, a colon and "a:". */
static tokenizer *letters;

static int open_letters(void **state) {
    (void)state;
    strbuf b = {0};
    quire_error err = {0};
    strbuf_add_str(
        &b, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\" \":0,\"ab\":1,\":\":2,\"a:\":3,\"\\n\":4,\" c\":5");
    for (int i = 0; i < 26; i++) {
        strbuf_addf(&b, ",\"%c\":%d", 'a' + i, 10 + i);
    }
    strbuf_add_str(&b, "},\"merges\":[\"a b\",\"a :\",[\" \",\"c\"]]}}");
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = {b.p, b.n},
               .bos = -1,
               .eos = -1,
               .unk = -1,
               .pad = -1};
    bool opened = tokenizer_open(&v, &letters, &err) == QUIRE_OK;
    if (!opened) {
        print_message("%s\n", err.message);
    }
    strbuf_deinit(&b);
    return opened ? 0 : -1;
}

static int close_letters(void **state) {
    (void)state;
    tokenizer_close(letters);
    return 0;
}

/* A request with n texts of n_letters each in a field; its error where it is refused when
 * it is read. */
static quire_err parse_texts(const char *field, size_t n, size_t n_letters, quire_request **r,
                             quire_error *err) {
    static const request_context context = {.n_vocab = 64, .max_model_len = 1024, .has_vocabulary = true};
    strbuf body = {0};
    assert_int_equal(
        strbuf_addf(&body, "{\"prompt\":\"x\",\"dry_multiplier\":%d,\"%s\":[", field[0] == 'd', field),
        QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(strbuf_add_str(&body, i > 0 ? ",\"" : "\""), QUIRE_OK);
        for (size_t k = 0; k < n_letters; k++) {
            assert_int_equal(strbuf_add_char(&body, (char)('c' + (i + k) % 20)), QUIRE_OK);
        }
        assert_int_equal(strbuf_add_char(&body, '"'), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&body, "]}"), QUIRE_OK);
    quire_err e = request_parse(&context, QUIRE_COMPLETIONS, body.p, body.n, r, err);
    strbuf_deinit(&body);
    return e;
}

TEST(bad_words_have_a_bound_in_bytes_and_in_tokens) {
    quire_request *r;
    quire_error err = {0};
    static const char *const fields[] = {"bad_words", "dry_sequence_breakers"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(parse_texts(fields[i], 20, 15000, &r, &err), QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, fields[i]);
        assert_non_null(strstr(err.message, "300000 bytes"));
    }
    /* the first begins with c, so it counts twice */
    assert_int_equal(parse_texts("bad_words", 15, 1024, &r, &err), QUIRE_OK);
    assert_int_equal(request_tokenize_lists(r, letters, NULL, &err), QUIRE_OK);
    assert_int_equal(r->g.sampling.lists->bad_words.n, 16);
    assert_int_equal(r->g.sampling.lists->bad_words.starts[16], 16384);
    quire_request_free(r);
    const size_t shapes[][2] = {{17, 1000}, {1, 8193}, {1, 16385}, {1024, 17}, {15, 1025}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        assert_int_equal(parse_texts("bad_words", shapes[i][0], shapes[i][1], &r, &err), QUIRE_OK);
        assert_int_equal(request_tokenize_lists(r, letters, NULL, &err), QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, "bad_words");
        assert_non_null(strstr(err.message, "more than 16384 tokens"));
        assert_true(r->g.sampling.lists->bad_words.n == 0 ||
                    r->g.sampling.lists->bad_words.starts[r->g.sampling.lists->bad_words.n] <= 16384);
        quire_request_free(r);
    }
}

TEST(a_cancelled_request_stops_between_two_texts) {
    atomic_bool stop = true;
    static const char *const fields[] = {"bad_words", "dry_sequence_breakers"};
    for (int i = 0; i < 2; i++) {
        quire_request *r;
        quire_error err = {0};
        assert_int_equal(parse_texts(fields[i], 10, 5, &r, &err), QUIRE_OK);
        assert_int_equal(request_tokenize_lists(r, letters, &stop, &err), QUIRE_CANCELLED);
        assert_int_equal(r->g.sampling.lists->bad_words.n, 0);
        assert_int_equal(r->g.sampling.lists->dry_breakers.n, 0);
        quire_request_free(r);
    }
}

static bool has(const token_seqs *s, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < s->n; i++) {
        if (s->starts[i + 1] - s->starts[i] == n &&
            memcmp(s->tokens + s->starts[i], tokens, (size_t)n * sizeof *tokens) == 0) {
            return true;
        }
    }
    return false;
}

TEST(a_breaker_is_every_token_that_holds_it_once_and_what_spells_it) {
    static const request_context context = {.n_vocab = 64, .max_model_len = 1024, .has_vocabulary = true};
    const char *body =
        "{\"prompt\":\"x\",\"dry_multiplier\":1,\"dry_sequence_breakers\":[\":\",\"a\",\"xy\"]}";
    quire_request *r;
    quire_error err = {0};
    assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, body, strlen(body), &r, &err), QUIRE_OK);
    assert_int_equal(request_tokenize_lists(r, letters, NULL, &err), QUIRE_OK);
    const token_seqs *s = &r->g.sampling.lists->dry_breakers;
    assert_int_equal(s->n, 5);
    const int32_t xy[] = {10 + 'x' - 'a', 10 + 'y' - 'a'}, singles[] = {1, 2, 3, 10};
    assert_true(has(s, xy, 2));
    for (int i = 0; i < 4; i++) {
        assert_true(has(s, &singles[i], 1));
    }
    quire_request_free(r);
}

/* A tokenizer may know more tokens than its model has rows of logits for: such tokens are
 * never sampled, and no list has them. */
TEST(ids_that_the_model_lacks_are_left_out) {
    /* up to t */
    static const request_context context = {.n_vocab = 30, .max_model_len = 1024, .has_vocabulary = true};
    const char *body =
        "{\"prompt\":\"x\",\"dry_multiplier\":1,\"dry_sequence_breakers\":[\"xy\",\"d\",\"z\",\"de\"],"
        "\"bad_words\":[\"d\",\"dx\",\"z\"]}";
    quire_request *r;
    quire_error err = {0};
    assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, body, strlen(body), &r, &err), QUIRE_OK);
    assert_int_equal(request_tokenize_lists(r, letters, NULL, &err), QUIRE_OK);
    const sampling_lists *l = r->g.sampling.lists;
    const int32_t de[] = {13, 14};
    assert_int_equal(l->dry_breakers.n, 2);
    assert_true(has(&l->dry_breakers, de, 1) && has(&l->dry_breakers, de, 2));
    assert_int_equal(l->bad_words.n, 1);
    assert_true(has(&l->bad_words, de, 1));
    quire_request_free(r);
}

TEST(of_an_adapter_that_is_named_twice_the_last_scale_counts) {
    static const request_context context = {
        .n_vocab = 64, .max_model_len = 64, .n_loras = 3, .has_vocabulary = true};
    static const char body[] = "{\"prompt\":\"x\",\"lora\":[{\"id\":2,\"scale\":1},{\"id\":0,\"scale\":1},"
                               "{\"id\":2,\"scale\":0.5},{\"id\":2}]}";
    quire_request *r;
    quire_error err = {0};
    if (request_parse(&context, QUIRE_COMPLETIONS, body, sizeof body - 1, &r, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(r->g.n_loras, 2);
    assert_true(r->g.loras[0].number == 2 && r->g.loras[0].scale == 0.0f);
    assert_true(r->g.loras[1].number == 0 && r->g.loras[1].scale == 1.0f);
    quire_request_free(r);
}

TEST(breakers_of_many_tokens_are_refused) {
    quire_request *r;
    quire_error err = {0};
    assert_int_equal(parse_texts("dry_sequence_breakers", 4, 128, &r, &err), QUIRE_OK);
    assert_int_equal(request_tokenize_lists(r, letters, NULL, &err), QUIRE_OK);
    quire_request_free(r);
    assert_int_equal(parse_texts("dry_sequence_breakers", 4, 129, &r, &err), QUIRE_OK);
    assert_int_equal(request_tokenize_lists(r, letters, NULL, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "dry_sequence_breakers");
    quire_request_free(r);
}

TEST_MAIN(open_letters, close_letters)
