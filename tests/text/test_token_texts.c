/* The text that each token adds, compared with decoding. */
#include "shared.h"

#include "text/token_texts.h"

static const char *const models[] = {"bpe-bytelevel", "bpe-llama", "bpe-metaspace-first", "bpe-prefix",
                                     "pt-cl100k"};

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

TEST(the_texts_of_tokens_make_up_what_they_decode_to) {
    static const char *const texts[] = {"The quick brown fox, 42 times!", "a  b\n\nc d  ", "x",
                                        "some words and  spaces\tand tabs"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        tokenizer *t = open_model(models[m]);
        token_texts *table;
        assert_int_equal(token_texts_open(t, &table), QUIRE_OK);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            token_list ids = {0};
            quire_error err = {0};
            strbuf whole = {0}, joined = {0};
            assert_int_equal(tokenizer_encode(t, str_of(texts[i]),
                                              (encode_options){.special = ENCODE_PLAIN, .add_special = false},
                                              &ids, &err),
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

/* Of a vocabulary of a few pieces that this decoder decodes: what it says, and whether
 * some tokens' text is another than their sum. */
static const char *obstacle_of(const char *decoder, bool *differs) {
    static const int32_t lists[][5] = {{0, 1, 1, 2}, {0, 3, 4, 0},  {0, 2, 2, 2}, {0, 5, 6, 7},
                                       {0, 8, 9, 0}, {0, 10, 2, 2}, {0, 0, 0, 0}, {2, 2, 2, 1}};
    strbuf json = {0};
    tokenizer *t;
    token_texts *table;
    quire_error err = {0};
    assert_int_equal(
        strbuf_addf(&json,
                    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0,\"a\":1,\" "
                    "\":2,\"<\":3,\"/w>\":4,\"<0xE2>\":5,\"<0x96>\":6,"
                    "\"<0x80>\":7,\"o\":8,\"k</w>\":9,\"##b\":10},\"merges\":[]},\"decoder\":%s}",
                    decoder),
        QUIRE_OK);
    vocab v = {.source = VOCAB_TOKENIZER_JSON, .tokenizer_json = {json.p, json.n}};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        fail_msg("%s: %s", decoder, err.message);
    }
    assert_int_equal(token_texts_open(t, &table), QUIRE_OK);
    *differs = false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        strbuf whole = {0}, sum = {0};
        assert_int_equal(tokenizer_decode(t, lists[i], 1, false, &sum), QUIRE_OK);
        for (size_t k = 1; k < 5; k++) {
            assert_int_equal(token_bytes_add(t, table, lists[i][k], &sum), QUIRE_OK);
        }
        assert_int_equal(tokenizer_decode(t, lists[i], 5, false, &whole), QUIRE_OK);
        *differs = *differs || !str_eq((str){whole.p, whole.n}, (str){sum.p, sum.n});
        strbuf_deinit(&whole);
        strbuf_deinit(&sum);
    }
    const char *obstacle = tokenizer_sum_obstacle(t);
    token_texts_close(table);
    tokenizer_close(t);
    strbuf_deinit(&json);
    return obstacle;
}

#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"decoders\":[" steps "]}"
#define FUSE            "{\"type\":\"Fuse\"}"
#define BYTES           "{\"type\":\"ByteFallback\"}"
#define REPLACE(a, b)   "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" a "\"},\"content\":\"" b "\"}"
#define STRIP(n, m)     "{\"type\":\"Strip\",\"content\":\" \",\"start\":" #n ",\"stop\":" #m "}"

TEST(decoders_whose_tokens_do_not_add_up_are_named) {
    static const struct {
        const char *decoder, *name; /* NULL: they add up */
    } table[] = {
        {FUSE, NULL},
        {SEQUENCE(REPLACE("a", "bb") "," BYTES "," FUSE "," STRIP(1, 0)), NULL},
        {SEQUENCE(FUSE "," REPLACE("\xE2\x96\x81", " ")), NULL},
        {SEQUENCE(REPLACE("</w>", " ") "," FUSE), NULL},
        {"{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}", NULL},
        {"{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}", NULL},
        {"{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"|\",\"cleanup\":false}",
         "CTC"},
        {"{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}", "BPEDecoder"},
        {SEQUENCE(FUSE "," REPLACE("</w>", " ")), "Replace"},
        /* as transformers writes GGUF files' */
        {SEQUENCE(BYTES "," FUSE "," REPLACE("\xE2\x96\x81", " ")), NULL},
        {SEQUENCE(
             BYTES
             ",{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"}," FUSE
             "," STRIP(1, 0)),
         NULL},
        {SEQUENCE(BYTES "," FUSE "," REPLACE("\xE2\x96\x80x", " ")), "Replace"},
        {SEQUENCE(FUSE "," STRIP(0, 1)), "Strip"},
        {SEQUENCE(FUSE "," STRIP(2, 0)), "Strip"},
        {SEQUENCE(FUSE ",{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}"), "BPEDecoder"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        bool differs;
        const char *obstacle = obstacle_of(table[i].decoder, &differs);
        if ((obstacle != NULL) != differs || (obstacle != NULL) != (table[i].name != NULL) ||
            (obstacle != NULL && strstr(obstacle, table[i].name) == NULL)) {
            fail_msg("%s: %s, %d", table[i].decoder, obstacle != NULL ? obstacle : "adds up", (int)differs);
        }
    }
}

TEST_MAIN(NULL, NULL)
