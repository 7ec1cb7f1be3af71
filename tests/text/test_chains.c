/* Combinations of steps in tokenizer.json, and SentencePiece's scores, compared with the
 * reference libraries. */
#include "shared.h"

#include "text/detok.h"
#include "text/sp_model.h"
#include "text/tokenizer.h"

#define MARK "\xE2\x96\x81"
/* Ids: mark 0, a 1, b 2, <0x41> 3, <s> 4, X 5. */
#define MODEL                                                                                                \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"" MARK                                                         \
    "\":0,\"a\":1,\"b\":2,\"<0x41>\":3,\"<s>\":4,\"X\":5},\"merges\":[]}"

static tokenizer *open_with(const char *members) {
    tokenizer *t = NULL;
    quire_error err = {0};
    strbuf json = {0};
    assert_int_equal(strbuf_addf(&json, "{" MODEL ",%s}", members), QUIRE_OK);
    vocab v = {.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = {json.p, json.n}};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        fail_msg("%s: %s", members, err.message);
    }
    strbuf_deinit(&json);
    return t;
}

static void expect_list(const char *what, const token_list *got, const char *want) {
    strbuf text = {0};
    for (size_t i = 0; i < got->n; i++) {
        assert_int_equal(strbuf_addf(&text, "%s%d", i > 0 ? " " : "", (int)got->ids[i]), QUIRE_OK);
    }
    if (!str_is((str){text.n > 0 ? text.p : "", text.n}, want)) {
        fail_msg("%s: %s, must be %s", what, text.n > 0 ? text.p : "nothing", want);
    }
    strbuf_deinit(&text);
}

static void expect_ids(const char *members, const char *text, const char *want) {
    tokenizer *t = open_with(members);
    token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, str_of(text), (encode_options){0}, &ids, NULL), QUIRE_OK);
    expect_list(members, &ids, want);
    token_list_deinit(&ids);
    tokenizer_close(t);
}

#define CHAIN(steps) "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}"
#define FIRST                                                                                                \
    "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\",\"split\":false}"
#define CUT(text) "{\"type\":\"Split\",\"pattern\":{\"String\":\"" text "\"},\"behavior\":\"Isolated\"}"

/* A piece is first when it begins with something that stands for the text's first
 * character. */
TEST(a_first_piece_is_one_where_the_text_begins) {
    expect_ids(CHAIN(FIRST), "ab", "0 1 2");
    expect_ids(CHAIN(FIRST "," CUT(MARK) "," FIRST), "ab", "0 0 1 2"); /* the mark has been put before it */
    expect_ids(CHAIN(CUT("a") "," FIRST), "ab", "0 1 2");
    expect_ids("\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true}," CHAIN(FIRST), " ab", "1 2");
    expect_ids("\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"ab\"}," CHAIN(CUT("a") "," FIRST), "b",
               "0 1 0 2 2");
    expect_ids(
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"X\"}," CHAIN(
            FIRST),
        "ab", "5");
    expect_ids(
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"X\"}," CHAIN(
            FIRST),
        "b", "0 5");
    expect_ids("\"normalizer\":{\"type\":\"NFKC\"}," CHAIN(CUT("a") "," FIRST),
               "\xC2\xAA"
               "b",
               "0 1 2");
}

/* Encodes "ab" after `known`, the ids of its first character. */
static void expect_rest(const char *members, int32_t known, const char *want) {
    tokenizer *t = open_with(members);
    token_list before = {0}, ids = {0};
    assert_int_equal(token_list_add(&before, known), QUIRE_OK);
    encode_options o = {.known = &before, .from = 1};
    assert_int_equal(tokenizer_encode(t, str_of("ab"), o, &ids, NULL), QUIRE_OK);
    expect_list(members, &ids, want);
    token_list_deinit(&before);
    token_list_deinit(&ids);
    tokenizer_close(t);
}

/* The prefix of a text is not that of what goes on from known ids, unless the last of
 * them cuts texts. */
TEST(a_text_that_goes_on_from_known_ids_gets_no_space_before_it) {
    static const char *const prefixes[] = {
        "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"}",
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
        "\",\"prepend_scheme\":\"always\",\"split\":false}",
        CHAIN(FIRST),
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        expect_ids(prefixes[i], "b", "0 2");
        expect_rest(prefixes[i], 1, "1 2");
    }
    for (size_t i = 0; i < 2; i++) {
        strbuf with_token = {0};
        assert_int_equal(strbuf_addf(&with_token,
                                     "%s,\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}]",
                                     prefixes[i]),
                         QUIRE_OK);
        expect_rest(with_token.p, 4, "4 0 2");
        expect_rest(with_token.p, 1, "1 2");
        strbuf_deinit(&with_token);
    }
}

/* Decodes as a whole and token by token. */
static void expect_text(const char *steps, const int32_t *ids, size_t n, const char *want) {
    strbuf members = {0}, whole = {0}, stream = {0};
    detok *d;
    assert_int_equal(strbuf_addf(&members, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[%s]}", steps),
                     QUIRE_OK);
    tokenizer *t = open_with(members.p);
    assert_int_equal(tokenizer_decode(t, ids, n, false, &whole), QUIRE_OK);
    assert_int_equal(detok_open(t, false, &d), QUIRE_OK);
    for (int round = 0; round < 2; round++) { /* a flushed stream is as new */
        strbuf_clear(&stream);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(detok_add(d, ids[i], &stream), QUIRE_OK);
        }
        assert_int_equal(detok_flush(d, &stream), QUIRE_OK);
        if (!str_is((str){whole.p, whole.n}, want) ||
            !str_eq((str){whole.p, whole.n}, (str){stream.p, stream.n})) {
            fail_msg("%s: \"%.*s\", streamed \"%.*s\", must be \"%s\"", steps, (int)whole.n, whole.p,
                     (int)stream.n, stream.p, want);
        }
    }
    detok_close(d);
    tokenizer_close(t);
    strbuf_deinit(&members);
    strbuf_deinit(&whole);
    strbuf_deinit(&stream);
}

TEST(decoder_steps_work_behind_one_that_joins_all_tokens) {
    const int32_t text[] = {1, 1, 2, 0, 2, 1}, byte[] = {3}, doubles[] = {5, 1, 2, 2, 5, 0, 0};
    static const struct {
        const char *steps, *want[3];
    } cases[] = {
        {"{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"-\"}",
         {"a-" MARK "ba", "<0x41>", "X-bX" MARK MARK}},
        {"{\"type\":\"Fuse\"},{\"type\":\"Metaspace\",\"replacement\":\"" MARK
         "\",\"prepend_scheme\":\"always\"}",
         {"aabba", "<0x41>", "XabbX"}},
        {"{\"type\":\"ByteLevel\"},{\"type\":\"WordPiece\",\"prefix\":\"a\",\"cleanup\":true}",
         {"aab" MARK "ba", "<0x41>", "XabbX" MARK MARK}},
        {"{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}", {"aab" MARK "ba", "A", "XabbX" MARK MARK}},
        {"{\"type\":\"Fuse\"},{\"type\":\"BPEDecoder\",\"suffix\":\"b\"}",
         {"aa" MARK "a", "<0x41>", "XaX" MARK MARK}},
        {"{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b+a\"},\"content\":\"-\"}",
         {"aab" MARK "-", "<0x41>", "XabbX" MARK MARK}},
        {"{\"type\":\"CTC\",\"pad_token\":\"X\",\"word_delimiter_token\":\"" MARK "\",\"cleanup\":true}",
         {"ab ba", "<0x41>", "ab "}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_text(cases[i].steps, text, 6, cases[i].want[0]);
        expect_text(cases[i].steps, byte, 1, cases[i].want[1]);
        expect_text(cases[i].steps, doubles, 7, cases[i].want[2]);
    }
}

#define TEMPLATE(type)                                                                                       \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":" type             \
    "}},{\"SpecialToken\":{\"id\":\"X\","                                                                    \
    "\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},{\"Sequence\":{\"id\":\"A\","    \
    "\"type_id\":0}}],"                                                                                      \
    "\"special_tokens\":{\"X\":{\"id\":\"X\",\"ids\":[5]}}}"
#define BERT    "{\"type\":\"BertProcessing\",\"sep\":[\"X\",5],\"cls\":[\"<s>\",4]}"
#define ROBERTA "{\"type\":\"RobertaProcessing\",\"sep\":[\"X\",5],\"cls\":[\"<s>\",4]}"

TEST(post_processors_wrap_what_others_have_wrapped) {
    static const char *const cases[][5] = {
        {TEMPLATE("2") "," BERT, "4 1 5 5 5", "0 2 0 0 1", "4 2 5 1 5", "0 1 0 0 1"},
        {BERT "," BERT, "4 4 1 5 5", "0 0 0 0 0", "4 4 1 5 5 2 5 5", "0 0 0 0 0 1 1 1"},
        {ROBERTA "," TEMPLATE("1"), "4 1 5 5", "1 1 1 0", "5 2 5 4 1 5", "1 1 1 0 0 0"},
        {ROBERTA "," BERT, "4 4 1 5 5", "0 0 0 0 0", "4 4 1 5 5 5 2 5 5", "0 0 0 0 0 0 0 0 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strbuf members = {0};
        assert_int_equal(strbuf_addf(&members,
                                     "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[%s]}",
                                     cases[i][0]),
                         QUIRE_OK);
        tokenizer *t = open_with(members.p);
        for (int pair = 0; pair < 2; pair++) {
            token_list ids = {0}, types = {0};
            const str b = str_of("b");
            assert_int_equal(
                tokenizer_encode_pair(t, str_of("a"), pair ? &b : NULL, ENCODE_PLAIN, &ids, &types, NULL),
                QUIRE_OK);
            expect_list(cases[i][0], &ids, cases[i][1 + 2 * pair]);
            expect_list(cases[i][0], &types, cases[i][2 + 2 * pair]);
            token_list_deinit(&ids);
            token_list_deinit(&types);
        }
        tokenizer_close(t);
        strbuf_deinit(&members);
    }
}

#define PART(name, id, type) "{\"" name "\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define A                    PART("Sequence", "A", "0")
#define B                    PART("Sequence", "B", "1")
#define TOKEN(name)          PART("SpecialToken", name, "0")
#define TWO_TEMPLATES(single, pair)                                                                          \
    "{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"pair\":[" pair "],\"special_tokens\":{"      \
    "\"X\":{\"id\":\"X\",\"ids\":[5]},\"far\":{\"id\":\"far\",\"ids\":[99]},\"none\":{\"id\":\"none\","      \
    "\"ids\":[]}}}"
#define FAILS "!"

/* What tokenizers 0.23.3 gives for "a", and for "a" and "b"; where it panics, a word of
 * the reason. */
TEST(a_template_that_cannot_be_applied_refuses_the_texts_that_it_is_for) {
    static const char *const cases[][3] = {
        {TWO_TEMPLATES(A, A "," TOKEN("X") "," B) "," TWO_TEMPLATES(A, A "," B), "1",
         FAILS "takes one or two"},
        {TWO_TEMPLATES(A, A "," TOKEN("X") "," B) "," TWO_TEMPLATES(A, A "," B) "," BERT, "4 1 5",
         FAILS "takes one or two"},
        {TWO_TEMPLATES(TOKEN("X") "," A "," TOKEN("X"), A "," B) "," TWO_TEMPLATES(A, A "," B),
         FAILS "takes one or two", "1 2"},
        {TWO_TEMPLATES(TOKEN("X") "," A "," TOKEN("X"), A "," B) ",{\"type\":\"ByteLevel\"}", "5 1 5", "1 2"},
        {TWO_TEMPLATES(TOKEN("X") "," A "," TOKEN("X"), A "," TOKEN("X") "," B) "," BERT, "4 5 5 1 5 5 5",
         "4 1 5 5 5 2 5"},
        {TWO_TEMPLATES(A "," B, A "," B), FAILS "second", "1 2"},
        {TWO_TEMPLATES(A, TOKEN("Y") "," A "," B), "1", FAILS "special_tokens"},
        {TWO_TEMPLATES(A, TOKEN("far") "," A "," B), "1", FAILS "vocabulary"},
        {TWO_TEMPLATES(TOKEN("none") "," A, B "," A), "1", "2 1"},
        {TWO_TEMPLATES("", ""), "", ""},
        {TWO_TEMPLATES(A, "") "," BERT, "4 1 5", ""},
        {TWO_TEMPLATES(A, "") "," TWO_TEMPLATES(A, A), "1", FAILS "takes one or two"},
        {"{\"type\":\"BertProcessing\",\"sep\":[\"Y\",99],\"cls\":[\"<s>\",4]}", FAILS "vocabulary",
         FAILS "vocabulary"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strbuf members = {0};
        assert_int_equal(strbuf_addf(&members,
                                     "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[%s]}",
                                     cases[i][0]),
                         QUIRE_OK);
        tokenizer *t = open_with(members.p);
        for (int pair = 0; pair < 2; pair++) {
            token_list ids = {0};
            quire_error err = {0};
            const str b = str_of("b");
            const char *want = cases[i][1 + pair];
            quire_err e =
                tokenizer_encode_pair(t, str_of("a"), pair ? &b : NULL, ENCODE_PLAIN, &ids, NULL, &err);
            if (want[0] == FAILS[0]) {
                assert_int_equal(e, QUIRE_UNSUPPORTED);
                if (strstr(err.message, want + 1) == NULL ||
                    strstr(err.message, pair ? "two texts" : "a text") == NULL) {
                    fail_msg("%s: \"%s\" does not name %s", cases[i][0], err.message, want + 1);
                }
            } else {
                assert_int_equal(e, QUIRE_OK);
            }
            expect_list(cases[i][0], &ids, want[0] == FAILS[0] ? "" : want);
            token_list_deinit(&ids);
        }
        token_list plain = {0};
        assert_int_equal(tokenizer_encode(t, str_of("a"), (encode_options){0}, &plain, NULL), QUIRE_OK);
        expect_list(cases[i][0], &plain, "1");
        token_list_deinit(&plain);
        tokenizer_close(t);
        strbuf_deinit(&members);
    }
}

/* A template without the text has no place where one could go on. */
TEST(a_text_that_its_template_leaves_out_has_no_seams) {
    static const char *const cases[] = {A "," TOKEN("X"), TOKEN("X")};
    for (size_t i = 0; i < 2; i++) {
        strbuf members = {0};
        assert_int_equal(
            strbuf_addf(
                &members,
                "\"added_tokens\":[{\"id\":1,\"content\":\"a\",\"special\":true}],\"post_processor\":{"
                "\"type\":\"TemplateProcessing\",\"single\":[%s],\"pair\":[],\"special_tokens\":{\"X\":{"
                "\"ids\":[5]}}}",
                cases[i]),
            QUIRE_OK);
        tokenizer *t = open_with(members.p);
        encode_seams seams = {0};
        token_list ids = {0};
        encode_options o = {.special = ENCODE_PARSE, .add_special = true, .seams = &seams};
        assert_int_equal(tokenizer_encode(t, str_of("aaaaaaaa"), o, &ids, NULL), QUIRE_OK);
        assert_int_equal(seams.n > 0, i == 0);
        token_list_deinit(&ids);
        encode_seams_deinit(&seams);
        tokenizer_close(t);
        strbuf_deinit(&members);
    }
}

/* The symbol of two marks is chosen, though a mark and "mark a" score more than "a" and a
 * symbol of score 0. */
TEST(a_symbol_that_a_user_defined_scores_more_than_its_parts) {
    sp_piece pieces[] = {{str_of("<unk>"), 0, VOCAB_UNKNOWN},
                         {str_of(MARK), -1.75F, VOCAB_NORMAL},
                         {str_of(MARK MARK), 0, VOCAB_USER_DEFINED},
                         {str_of("a"), -7.0F, VOCAB_NORMAL},
                         {str_of(MARK "a"), -4.83F, VOCAB_NORMAL}};
    sp_model m;
    sp_model_init(&m, "test");
    m.pieces = pieces;
    m.n = sizeof pieces / sizeof *pieces;
    m.kind = SP_UNIGRAM;
    m.unk = 0;
    m.dummy_prefix = m.remove_extra = false;
    tokenizer *t = mem_new(1, sizeof *t);
    assert_non_null(t);
    t->bos = t->eos = -1;
    quire_error err = {0};
    assert_int_equal(sp_model_build(&m, (str){"", 0}, t, &err), QUIRE_OK);
    token_list ids = {0};
    assert_int_equal(tokenizer_encode(t, str_of("    a"), (encode_options){0}, &ids, NULL), QUIRE_OK);
    expect_list("four blanks", &ids, "2 2 3");
    token_list_deinit(&ids);
    tokenizer_close(t);
}

#define SPECIAL "\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true,\"normalized\":%s}]"

static void expect_no_control_of(int32_t id, const char *members, str text, mark_run client) {
    tokenizer *t = open_with(members);
    token_list ids = {0};
    text_marks marks = {.runs = &client, .n = 1};
    assert_int_equal(
        tokenizer_encode(t, text, (encode_options){.special = ENCODE_PARSE, .marks = &marks}, &ids, NULL),
        QUIRE_OK);
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_not_equal(ids.ids[i], id);
    }
    token_list_deinit(&ids);
    tokenizer_close(t);
}

static void expect_no_control(const char *members, str text, mark_run client) {
    expect_no_control_of(4, members, text, client);
}

TEST(half_of_a_control_token_makes_none) {
    strbuf raw = {0}, normalized = {0};
    assert_int_equal(strbuf_addf(&raw, SPECIAL, "false"), QUIRE_OK);
    assert_int_equal(
        strbuf_addf(&normalized,
                    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                    "\"prepend\":\"ab\"},"
                    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"\"}]}," SPECIAL,
                    "true"),
        QUIRE_OK);
    expect_no_control(raw.p, str_of("<s>"), (mark_run){0, 2});
    expect_no_control(raw.p, str_of("\xff\xff\xff<s>"), (mark_run){3, 6}); /* not UTF-8: bytes move */
    /* the prefix is gone from the token's pattern */
    expect_no_control(normalized.p, str_of("<s>"), (mark_run){0, 2});
    expect_no_control_of(5, "\"added_tokens\":[{\"id\":5,\"content\":\"X\",\"special\":true}]", str_of("aXb"),
                         (mark_run){0, 3}); /* of one character */
    strbuf_deinit(&raw);
    strbuf_deinit(&normalized);
}

/* A piece of SentencePiece's file: field 1 with text (1) and type (3). */
static void add_piece(strbuf *file, const char *text, char type) {
    size_t n = strlen(text);
    const char head[] = {0x0A, (char)(n + 4), 0x0A, (char)n}, tail[] = {0x18, type};
    assert_int_equal(strbuf_add(file, head, sizeof head), QUIRE_OK);
    assert_int_equal(strbuf_add(file, text, n), QUIRE_OK);
    assert_int_equal(strbuf_add(file, tail, sizeof tail), QUIRE_OK);
}

/* A symbol of the file that tokenizer_config.json calls special comes from the template
 * alone. */
TEST(a_special_symbol_of_sentencepiece_is_a_control_token) {
    static const char config[] = "{\"added_tokens_decoder\":{\"3\":{\"content\":\"<x>\",\"special\":true}}}";
    strbuf file = {0};
    add_piece(&file, "<unk>", VOCAB_UNKNOWN);
    add_piece(&file, "<", VOCAB_NORMAL);
    add_piece(&file, "x", VOCAB_NORMAL);
    add_piece(&file, "<x>", VOCAB_USER_DEFINED);
    add_piece(&file, ">", VOCAB_NORMAL);
    assert_int_equal(strbuf_add(&file, "\x12\x02\x18\x02\x1A\x02\x18\x00", 8), QUIRE_OK); /* BPE, no prefix */
    for (int is_special = 0; is_special < 2; is_special++) {
        const vocab v = {.source = VOCAB_SENTENCEPIECE,
                         .bos = -1,
                         .eos = -1,
                         .unk = -1,
                         .model_bytes = {file.p, file.n},
                         .tokenizer_config_json = is_special ? str_of(config) : (str){"", 0}};
        quire_error err = {0};
        tokenizer *t = NULL;
        if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
            fail_msg("%s", err.message);
        }
        for (int is_client = 0; is_client < 2; is_client++) {
            token_list ids = {0};
            text_marks marks = {.runs = &(mark_run){0, 3}, .n = is_client ? 1 : 0};
            assert_int_equal(tokenizer_encode(t, str_of("<x>"),
                                              (encode_options){.special = ENCODE_PARSE, .marks = &marks},
                                              &ids, NULL),
                             QUIRE_OK);
            bool found = false;
            for (size_t i = 0; i < ids.n; i++) {
                found = found || ids.ids[i] == 3;
            }
            assert_int_equal(found, !(is_special && is_client));
            token_list_deinit(&ids);
        }
        tokenizer_close(t);
    }
    strbuf_deinit(&file);
}

/* A token is skipped for what it decodes to. */
TEST(a_token_that_normalizing_makes_a_special_one_is_skipped) {
    tokenizer *t = open_with("\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":4,"
                             "\"content\":\"<s>\",\"special\":true},"
                             "{\"id\":6,\"content\":\"<S>\",\"normalized\":true}]");
    strbuf text = {0};
    assert_int_equal(tokenizer_decode(t, (const int32_t[]){4, 1, 6}, 3, true, &text), QUIRE_OK);
    assert_string_equal(text.p, "a");
    strbuf_deinit(&text);
    tokenizer_close(t);
}

TEST_MAIN(NULL, NULL)
