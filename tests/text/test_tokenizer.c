/* Whole tokenizers through their public functions. */
#include "shared.h"

#include "base/rng.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

#define LLAMA3 "golden/tokenizers/llama3/tokenizer.json"
#define QWEN   "golden/tokenizers/qwen2.5/tokenizer.json"

static token_list encode(const tokenizer *t, const char *text, encode_special special, bool add) {
    token_list ids = {0};
    quire_error err = {0};
    if (tokenizer_encode(t, str_of(text), (encode_options){.special = special, .add_special = add}, &ids,
                         &err) != QUIRE_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    return ids;
}

static void expect_ids(token_list got, const int32_t *want, size_t n) {
    assert_int_equal(got.n, n);
    assert_memory_equal(got.ids, want, n * sizeof *want);
    token_list_deinit(&got);
}

#define EXPECT(list, ...)                                                                                    \
    expect_ids(list, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static tokenizer *open_json(const char *json, const char *config) {
    tokenizer *t = NULL;
    quire_error err = {0};
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = str_of(json),
               .tokenizer_config_json = str_of(config)};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return t;
}

static void expect_refused(const char *json, quire_err code, const char *word) {
    tokenizer *t = NULL;
    quire_error err = {0};
    vocab v = {.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = str_of(json)};
    assert_int_equal(tokenizer_open(&v, &t, &err), code);
    assert_null(t);
    if (strstr(err.message, word) == NULL) {
        fail_msg("\"%s\" does not name %s", err.message, word);
    }
}

/* A model of a few letters; the rest of the document is given. */
#define MODEL                                                                                                \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,"  \
    "\"bc\":5,\" \":6,\"<s>\":7},"                                                                           \
    "\"merges\":[\"b c\",[\"a\",\"b\"],\"a bc\"]}"
#define ADDED(flags) "\"added_tokens\":[{\"id\":8,\"content\":\"<x>\"," flags "}]"

TEST(the_lowest_rank_merges_first_and_the_leftmost_of_equals) {
    tokenizer *t = open_json("{" MODEL "}", "{}");
    EXPECT(encode(t, "abc", ENCODE_PLAIN, false), 4); /* b c, then a bc */
    EXPECT(encode(t, "ab", ENCODE_PLAIN, false), 3);
    EXPECT(encode(t, "aabcb", ENCODE_PLAIN, false), 0, 4, 1);
    EXPECT(encode(t, "ababc", ENCODE_PLAIN, false), 3, 4);
    assert_int_equal(encode(t, "", ENCODE_PLAIN, false).n, 0);
    tokenizer_close(t);
}

TEST(a_character_that_is_in_no_vocabulary_is_dropped) {
    tokenizer *t = open_json("{" MODEL "}", "{}");
    EXPECT(encode(t,
                  "a\xE6\xBC\xA2"
                  "bc",
                  ENCODE_PLAIN, false),
           4);
    tokenizer_close(t);
}

TEST(special_tokens_are_text_in_plain_mode_and_others_are_found_all_the_same) {
    tokenizer *t = open_json("{" ADDED("\"special\":true") "," MODEL "}", "{}");
    EXPECT(encode(t, "a<x>b", ENCODE_PARSE, false), 0, 8, 1);
    EXPECT(encode(t, "a<x>b", ENCODE_PLAIN, false), 3); /* < x > have no tokens */
    assert_true(tokenizer_is_special(t, 8));
    assert_int_equal(tokenizer_find(t, str_of("<x>")), 8);
    tokenizer_close(t);
    t = open_json("{" ADDED("\"special\":false") "," MODEL "}", "{}");
    EXPECT(encode(t, "a<x>b", ENCODE_PLAIN, false), 0, 8, 1);
    tokenizer_close(t);
}

TEST(added_tokens_take_space_and_want_word_ends_as_flagged) {
    tokenizer *t =
        open_json("{" ADDED("\"special\":true,\"lstrip\":true,\"rstrip\":true") "," MODEL "}", "{}");
    EXPECT(encode(t, "a \n<x>\xE3\x80\x80 b", ENCODE_PARSE, false), 0, 8, 1);
    tokenizer_close(t);
    t = open_json("{" ADDED("\"special\":true,\"single_word\":true") "," MODEL "}", "{}");
    EXPECT(encode(t, "a<x>b", ENCODE_PARSE, false), 3);
    EXPECT(encode(t, "a <x> b", ENCODE_PARSE, false), 0, 6, 8, 6, 1);
    tokenizer_close(t);
    t = open_json(
        "{\"added_tokens\":[{\"id\":8,\"content\":\"  \",\"lstrip\":true,\"rstrip\":true}]," MODEL "}", "{}");
    EXPECT(encode(t, "a      b", ENCODE_PARSE, false), 0, 8, 1); /* which takes the others that it finds */
    tokenizer_close(t);
}

/* What the step before withholds until the next token is no token of its own. */
TEST(decoder_steps_see_whole_tokens) {
    const int32_t ids[] = {0, 1, 2};
    strbuf text = {0};
    tokenizer *t = open_json(
        "{" MODEL
        ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"BPEDecoder\",\"suffix\":\"b\"},"
        "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}]}}",
        "{}");
    assert_int_equal(tokenizer_decode(t, ids, 3, false, &text), QUIRE_OK);
    assert_string_equal(text.p, "a   c");
    strbuf_clear(&text);
    assert_int_equal(tokenizer_decode(t, ids, 1, false, &text), QUIRE_OK);
    assert_string_equal(text.p, "a");
    tokenizer_close(t);
    /* the space that a suffix becomes is no character of the byte-level alphabet, so all
     * of its token is as it stands */
    strbuf_clear(&text);
    t = open_json("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\u0120z</"
                  "w>\":0,\"\u0120\":1},\"merges\":[]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                  "{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"},{\"type\":\"ByteLevel\"}]}}",
                  "{}");
    assert_int_equal(tokenizer_decode(t, (const int32_t[]){0, 1, 0}, 3, false, &text), QUIRE_OK);
    assert_string_equal(text.p, "\xc4\xa0z   z");
    strbuf_deinit(&text);
    tokenizer_close(t);
}

/* Only where a file has no decoder are there spaces between the tokens. */
TEST(a_sequence_of_no_decoders_joins_tokens) {
    static const char *const decoders[] = {
        "{\"type\":\"Sequence\",\"decoders\":[]}",
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Sequence\",\"decoders\":[]}]}", "null"};
    for (size_t i = 0; i < 3; i++) {
        strbuf text = {0}, json = {0};
        assert_int_equal(strbuf_addf(&json, "{%s,\"decoder\":%s}", MODEL, decoders[i]), QUIRE_OK);
        tokenizer *t = open_json(json.p, "{}");
        assert_int_equal(tokenizer_decode(t, (const int32_t[]){0, 1, 2}, 3, false, &text), QUIRE_OK);
        assert_string_equal(text.p, i < 2 ? "abc" : "a b c");
        strbuf_deinit(&json);
        strbuf_deinit(&text);
        tokenizer_close(t);
    }
}

#define POST                                                                                                 \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","     \
    "\"type_id\":0}},"                                                                                       \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\","  \
    "\"ids\":[7]}}}"
#define BOS "\"added_tokens\":[{\"id\":7,\"content\":\"<s>\",\"special\":true}]"

TEST(bos_comes_from_the_post_processor_else_from_the_config_else_not) {
    tokenizer *t =
        open_json("{" BOS "," POST "," MODEL "}", "{\"bos_token\":\"<s>\",\"add_bos_token\":true}");
    EXPECT(encode(t, "a", ENCODE_PARSE, true), 7, 0);
    EXPECT(encode(t, "a", ENCODE_PARSE, false), 0);
    assert_int_equal(t->bos, 7);
    assert_true(str_is(tokenizer_bos_text(t), "<s>"));
    tokenizer_close(t);
    t = open_json("{" BOS "," MODEL "}", "{\"bos_token\":{\"content\":\"<s>\"},\"add_bos_token\":true}");
    EXPECT(encode(t, "a", ENCODE_PARSE, true), 7, 0);
    tokenizer_close(t);
    t = open_json("{" BOS "," MODEL "}", "{\"bos_token\":\"<s>\"}");
    EXPECT(encode(t, "a", ENCODE_PARSE, true), 0);
    tokenizer_close(t);
}

TEST(a_template_that_wrote_bos_gets_no_second_one) {
    tokenizer *t = open_json("{" BOS "," POST "," MODEL "}", "{}");
    EXPECT(encode(t, "<s>a", ENCODE_PARSE, true), 7, 0);
    EXPECT(encode(t, "a<s>", ENCODE_PARSE, true), 7, 0, 7);
    tokenizer_close(t);
}

TEST(what_is_not_known_is_refused_by_name) {
    expect_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.0]],\"unk_id\":7}}", QUIRE_BAD_FILE,
                   "unk_id");
    expect_refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", QUIRE_BAD_FILE, "unk_token");
    expect_refused("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA?\"}," MODEL "}",
                   QUIRE_BAD_FILE, "Precompiled");
    expect_refused("{\"pre_tokenizer\":{\"type\":\"Telepathy\"}," MODEL "}", QUIRE_UNSUPPORTED, "Telepathy");
    expect_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a(?~b)\"},\"behavior\":"
                   "\"Isolated\"}," MODEL "}",
                   QUIRE_UNSUPPORTED, "byte");
    expect_refused("{\"decoder\":{\"type\":\"Strip\",\"start\":1,\"stop\":1}," MODEL "}", QUIRE_BAD_FILE,
                   "Strip");
    expect_refused("{\"decoder\":{\"type\":\"Morse\"}," MODEL "}", QUIRE_UNSUPPORTED, "Morse");
    expect_refused("{\"post_processor\":{\"type\":\"Mail\"}," MODEL "}", QUIRE_UNSUPPORTED, "Mail");
    static const char *const parts[] = {"", "\"id\":\"C\",\"type_id\":0", "\"id\":\"A\"",
                                        "\"id\":\"A\",\"type_id\":-1"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        strbuf json = {0};
        assert_int_equal(strbuf_addf(&json,
                                     "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                                     "\"Sequence\":{%s}}],\"pair\":[],"
                                     "\"special_tokens\":{}}," MODEL "}",
                                     parts[i]),
                         QUIRE_OK);
        expect_refused(json.p, QUIRE_BAD_FILE, "post-processor");
        strbuf_deinit(&json);
    }
    expect_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a z\"]}}", QUIRE_BAD_FILE,
                   "merges[0]");
    expect_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2000000000},\"merges\":[]}}",
                   QUIRE_BAD_FILE, "2000000000");
    tokenizer *t = NULL;
    quire_error err = {0};
    assert_int_equal(tokenizer_open(&(vocab){.source = VOCAB_NONE}, &t, &err), QUIRE_NOT_FOUND);
    str token = str_of("a");
    vocab g = {.source = VOCAB_GGUF,
               .model = str_of("rwkv"),
               .n_tokens = 1,
               .tokens = &token,
               .bos = -1,
               .eos = -1,
               .unk = -1,
               .pad = -1};
    assert_int_equal(tokenizer_open(&g, &t, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "rwkv"));
    g.model = str_of("gpt2");
    g.pre = str_of("of-next-year");
    g.merges = &token;
    g.n_merges = 1;
    assert_int_equal(tokenizer_open(&g, &t, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "of-next-year"));
}

/* ---- files of the shared data ---- */

static void round_trip(const char *path, const char *text) {
    tokenizer *t = shared_tokenizer(path);
    if (t == NULL) {
        skip();
    }
    token_list ids = encode(t, text, ENCODE_PLAIN, false);
    strbuf back = {0};
    assert_true(ids.n > 0);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, true, &back), QUIRE_OK);
    strbuf twice = {0};
    token_list again = encode(t, back.p, ENCODE_PLAIN, false);
    assert_int_equal(tokenizer_decode(t, again.ids, again.n, true, &twice), QUIRE_OK);
    const char *found = strstr(back.p, text);
    if (found == NULL || !str_eq((str){back.p, back.n}, (str){twice.p, twice.n})) {
        fail_msg("%s: \"%s\" comes back as \"%s\"", path, text, back.p);
    }
    strbuf_deinit(&back);
    strbuf_deinit(&twice);
    token_list_deinit(&ids);
    token_list_deinit(&again);
    tokenizer_close(t);
}

TEST(every_model_at_hand_opens_and_gives_text_back) {
    const char *text = "Once upon a time, there was 1 little girl named Lily!\nShe said: no.";
    round_trip("models/builtin.gguf", text);
    round_trip("models/builtin-hf", text);
    round_trip("data/models/tinystories-656k-hf", "Once upon a time, there was a girl.");
    round_trip("data/models/stories260K/stories260K.gguf", text);
    round_trip("golden/api/model", text);
    round_trip(LLAMA3, "na\xC3\xAFve \xF0\x9F\x98\x80 text");
    round_trip(QWEN, "na\xC3\xAFve \xF0\x9F\x98\x80 text");
}

/* The ids of what a chat template wrote. mine: bytes [from, to) are a client's. */
static token_list encode_chat(const tokenizer *t, const char *text, size_t from, size_t to) {
    token_list ids = {0};
    text_marks marks = {0};
    assert_int_equal(to > from ? text_marks_add(&marks, from, to) : QUIRE_OK, QUIRE_OK);
    encode_options o = {.special = ENCODE_PARSE, .add_bos = true, .marks = &marks};
    assert_int_equal(tokenizer_encode(t, str_of(text), o, &ids, NULL), QUIRE_OK);
    text_marks_deinit(&marks);
    return ids;
}

#define SURROUND                                                                                             \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<x>\","     \
    "\"type_id\":0}},{\"Sequence\":{"                                                                        \
    "\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}],\"pair\":[{"            \
    "\"Sequence\":{\"id\":\"A\",\"type_id\":"                                                                \
    "0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<x>\":{\"id\":\"<x>\",\"ids\":[" \
    "8],\"tokens\":[\"<x>\"]},"                                                                              \
    "\"<s>\":{\"id\":\"<s>\",\"ids\":[7],\"tokens\":[\"<s>\"]}}}"

TEST(a_chat_gets_one_bos_where_the_template_writes_none) {
    tokenizer *t =
        open_json("{" MODEL "," ADDED("\"special\":true") "," SURROUND "}", "{\"bos_token\":\"<x>\"}");
    assert_int_equal(tokenizer_start(t), 8);
    EXPECT(encode_chat(t, "abc", 0, 0), 8, 4); /* BOS alone: what stands after a text would end the prompt */
    EXPECT(encode_chat(t, "<x>abc", 0, 0), 8, 4);
    EXPECT(encode_chat(t, "  <x>abc", 0, 0), 6, 6, 8, 4); /* never two */
    EXPECT(encode_chat(t, "a<x>", 0, 0), 8, 0, 8);        /* of a later turn */
    /* a client's is text, of characters that this vocabulary lacks */
    EXPECT(encode_chat(t, "<x>", 0, 3), 8);
    EXPECT(encode_chat(t, " <x>a", 1, 4), 8, 6, 0);
    EXPECT(encode_chat(t, "", 0, 0), 8);
    tokenizer_close(t);
}

TEST(the_config_says_before_the_post_processor_whether_chats_begin_with_bos) {
    static const struct {
        const char *post, *config;
        int32_t start;
    } cases[] = {
        {"," SURROUND, "{\"bos_token\":\"<x>\"}", 8},
        {"," SURROUND, "{\"bos_token\":\"<x>\",\"add_bos_token\":false}", -1},
        {"," SURROUND, "{\"bos_token\":\"<s>\"}", -1}, /* what stands before texts is something else */
        {"," SURROUND, "", 8},
        {"", "{\"bos_token\":\"<x>\",\"add_bos_token\":true}", 8},
        {"", "{\"bos_token\":\"<x>\"}", -1},
        {"", "{\"add_bos_token\":true}", -1},
        {"", "", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[2048];
        (void)snprintf(json, sizeof json, "{%s,%s%s}", MODEL, ADDED("\"special\":true"), cases[i].post);
        tokenizer *t = open_json(json, cases[i].config);
        assert_int_equal(tokenizer_start(t), cases[i].start);
        tokenizer_close(t);
    }
}

TEST(add_special_of_real_models_gives_one_bos) {
    tokenizer *t = shared_tokenizer(LLAMA3);
    if (t == NULL) {
        skip();
    }
    EXPECT(encode(t, "Hello", ENCODE_PARSE, true), 128000, 9906);
    EXPECT(encode(t, "<|begin_of_text|>Hello", ENCODE_PARSE, true), 128000, 9906);
    tokenizer_close(t);
    t = shared_tokenizer("data/models/stories260K/stories260K.gguf");
    EXPECT(encode(t, "Once upon a time", ENCODE_PARSE, true), 1, 403, 407, 261, 378);
    tokenizer_close(t);
}

/* ---- hostile input ---- */

TEST(bytes_that_are_not_utf8_count_as_replacement_characters) {
    tokenizer *t = shared_tokenizer(QWEN);
    if (t == NULL) {
        skip();
    }
    token_list wrong = encode(t,
                              "a\xFF\xE6\xBC"
                              "b\xC0\x80",
                              ENCODE_PARSE, false);
    token_list right = encode(t,
                              "a\xEF\xBF\xBD\xEF\xBF\xBD"
                              "b\xEF\xBF\xBD\xEF\xBF\xBD",
                              ENCODE_PARSE, false);
    assert_int_equal(wrong.n, right.n);
    assert_memory_equal(wrong.ids, right.ids, wrong.n * sizeof *wrong.ids);
    token_list_deinit(&wrong);
    token_list_deinit(&right);
    tokenizer_close(t);
}

TEST(random_bytes_encode_to_ids_that_decode) {
    static const char *const paths[] = {QWEN, "data/tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf",
                                        "data/models/tinystories-656k-hf"};
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        tokenizer *t = shared_tokenizer(paths[k]);
        for (int round = 0; t != NULL && round < 300; round++) {
            char bytes[257];
            size_t n = rng_next(&seed) % 256;
            for (size_t i = 0; i < n; i++) {
                uint64_t r = rng_next(&seed);
                bytes[i] = (char)(r % 3 == 0 ? r >> 8 : (r >> 8) % 95 + 32);
            }
            bytes[n] = '\0';
            token_list ids = {0};
            strbuf back = {0};
            quire_error err = {0};
            encode_options options = {.special = ENCODE_PARSE, .add_special = round % 2 == 0};
            assert_int_equal(tokenizer_encode(t, (str){bytes, n}, options, &ids, &err), QUIRE_OK);
            for (size_t i = 0; i < ids.n; i++) {
                assert_in_range(ids.ids[i], 0, tokenizer_n_tokens(t) - 1);
            }
            assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &back), QUIRE_OK);
            strbuf_deinit(&back);
            token_list_deinit(&ids);
        }
        tokenizer_close(t);
    }
}

TEST(a_long_run_of_one_character_takes_no_quadratic_time) {
    static const char *const paths[] = {QWEN, "data/tokenizers/ggml-vocab/ggml-vocab-deepseek-llm.gguf",
                                        "data/tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf"};
    static const char *const units[] = {"a", " ", "\n", "\xCC\x81\xCC\xA3", "\xFF", "<|", "1", "'"};
    size_t n = 200000;
    char *text = mem_new(n + 1, 1);
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        tokenizer *t = shared_tokenizer(paths[k]);
        for (size_t u = 0; t != NULL && u < sizeof units / sizeof *units; u++) {
            token_list ids = {0};
            quire_error err = {0};
            for (size_t i = 0; i < n; i++) {
                text[i] = units[u][i % strlen(units[u])];
            }
            text[n - 1] = 'x'; /* so that a run of spaces does not end the text */
            assert_int_equal(
                tokenizer_encode(t, (str){text, n}, (encode_options){.special = ENCODE_PARSE}, &ids, &err),
                QUIRE_OK);
            assert_true(ids.n > 0);
            token_list_deinit(&ids);
        }
        tokenizer_close(t);
    }
    mem_free(text);
}

TEST(an_expression_that_takes_too_long_ends_with_an_error) {
    tokenizer *t = open_json("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|aa)+$\"},"
                             "\"behavior\":\"Isolated\"}," MODEL "}",
                             "{}");
    token_list ids = {0};
    quire_error err = {0};
    assert_int_equal(token_list_add(&ids, 5), QUIRE_OK);
    quire_err e = tokenizer_encode(
        t, str_of("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"),
        (encode_options){0}, &ids, &err);
    assert_int_equal(e, QUIRE_BAD_REQUEST);
    assert_int_equal(ids.n, 1);
    token_list_deinit(&ids);
    tokenizer_close(t);
}

/* Opens what may be damaged: success or an error with words, nothing else. */
static void open_damaged(const char *json, size_t n) {
    tokenizer *t = NULL;
    quire_error err = {0};
    vocab v = {.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = {json, n}};
    quire_err e = tokenizer_open(&v, &t, &err);
    if (e == QUIRE_OK) {
        token_list ids = {0};
        (void)tokenizer_encode(t, str_of("abc <x> d\xC3\xA9 1 '"),
                               (encode_options){.special = ENCODE_PARSE, .add_special = true}, &ids, &err);
        token_list_deinit(&ids);
        tokenizer_close(t);
    } else {
        assert_null(t);
        assert_true(err.message[0] != '\0');
    }
}

#define WHOLE                                                                                                \
    "{" BOS "," POST ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":" \
    "\"Replace\",\"pattern\":"                                                                               \
    "{\"Regex\":\"[a-c&&[^b]]{2,}\"},\"content\":\"a\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\","         \
    "\"pretokenizers\":[{\"type\":"                                                                          \
    "\"Digits\"},"                                                                                           \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+(?!\\\\S)|\\\\p{L}+\"},\"behavior\":\"Contiguous\"}" \
    "]},\"decoder\":{\"type\":"                                                                              \
    "\"Sequence\","                                                                                          \
    "\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "      \
    "\",\"start\":1,\"stop\":0}]}," MODEL "}"

TEST(damaged_files_are_refused_or_opened_but_nothing_worse) {
    static const char whole[] = WHOLE;
    size_t n = sizeof whole - 1;
    open_damaged(whole, n);
    for (size_t cut = 0; cut < n; cut++) {
        char *part = mem_dup(whole, cut); /* exactly as long, so that a sanitizer sees a byte too far */
        open_damaged(part, cut);
        mem_free(part);
    }
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 5000; round++) {
        char *copy = mem_dup(whole, n);
        for (uint64_t k = 1 + rng_next(&seed) % 4; k > 0; k--) {
            static const char letters[] = "\"{}[]:,\\0179truefalsnl. (?*+|^$-\xFF";
            uint64_t r = rng_next(&seed);
            copy[r % n] = letters[(r >> 32) % (sizeof letters - 1)];
        }
        open_damaged(copy, n);
        mem_free(copy);
    }
}

TEST_MAIN(NULL, NULL)
