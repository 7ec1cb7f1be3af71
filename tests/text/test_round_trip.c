/* Random Unicode strings through whole tokenizers: decoding returns the text if the
 * tokenizer is lossless, and streaming the ids gives the same bytes as decoding them at
 * once.
 *
 * 2,000 strings per tokenizer, a million with QUIRE_TEST_LONG. QUIRE_TEST_SEED=n repeats
 * a run. */
#include "shared.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/detok.h"

typedef struct path {
    const char *name;
    bool lossless;
} path;

static const path paths[] = {
    {"golden/tokenizers/llama3/tokenizer.json", true},
    {"golden/tokenizers/bpe-bytelevel/tokenizer.json", true},
    {"golden/tokenizers/bpe-ignore-merges/tokenizer.json", true},
    {"golden/tokenizers/pt-o200k/tokenizer.json", true},
    {"golden/tokenizers/qwen2.5/tokenizer.json", false}, /* NFC */
    {"golden/tokenizers/bpe-llama/tokenizer.json", true},
    {"golden/tokenizers/bpe-gemma/tokenizer.json", true},
    {"golden/tokenizers/bpe-clip/tokenizer.json", false},
    {"golden/tokenizers/bpe-suffix/tokenizer.json", false},
    {"golden/tokenizers/bpe-metaspace-fuse/tokenizer.json", false},
    {"golden/tokenizers/unigram-bytefallback/tokenizer.json", false}, /* its decoder strips */
    {"golden/tokenizers/unigram-t5/tokenizer.json", false},
    {"golden/tokenizers/unigram-xlmr/tokenizer.json", false},
    {"golden/tokenizers/wordpiece-uncased/tokenizer.json", false},
    {"golden/tokenizers/wordlevel/tokenizer.json", false},
    {"golden/tokenizers/sp-bpe-bf/tokenizer.model", false}, /* white space is put in order */
    {"golden/tokenizers/sp-bpe-bf-keepws/tokenizer.model", true},
    {"golden/tokenizers/sp-unigram-nfkc/tokenizer.model", false},
    {"golden/tokenizers/sp-unigram-suffix/tokenizer.model", false},
    {"data/tokenizers/llama2-spm/tokenizer.model", true},
    {"data/tokenizers/mistral/mistral_instruct_tokenizer_241114.model.v7", true},
    {"data/tokenizers/llama4/tokenizer.model", true},
    {"data/tokenizers/tiktoken/cl100k_base.tiktoken", true},
    {"data/tokenizers/ggml-vocab/ggml-vocab-falcon.gguf", false}, /* it has no token for some bytes */
    {"data/tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf", true},
    {"data/tokenizers/ggml-vocab/ggml-vocab-bert-bge.gguf", false},
};

static uint64_t seed_of_run(void) {
    const char *given = getenv("QUIRE_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : rng_os_seed();
    printf("QUIRE_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* A character of a kind that strings have runs of. U+2581 is left out: it is
 * SentencePiece's space. */
static int32_t draw_char(uint64_t *seed, uint64_t kind) {
    static const int32_t odd[] = {0,      0x7F,   0x85,   0xA0,   0xAD,     0x200B,  0x200D, 0x2028,
                                  0xFE0F, 0xFEFF, 0xFFFD, 0xFFFF, 0x10FFFF, 0x1F468, 0x1F3FD};
    static const int32_t firsts[] = {'a',   'A',   '0',   '!',    0xC0,   0x300,  0x391,  0x410,  0x5D0,
                                     0x627, 0x904, 0xE01, 0x1100, 0x3041, 0x4E00, 0xAC00, 0x1F300};
    uint64_t n_firsts = sizeof firsts / sizeof *firsts;
    if (kind < 2 * n_firsts) {
        return firsts[kind / 2] + (int32_t)(rng_next(seed) % 26);
    }
    if (kind < 2 * n_firsts + 6) {
        return " \n\t \r "[rng_next(seed) % 6];
    }
    if (kind < 2 * n_firsts + 9) {
        return odd[rng_next(seed) % (sizeof odd / sizeof *odd)];
    }
    int32_t c = (int32_t)(rng_next(seed) % 0x110000);
    return (c >= 0xD800 && c < 0xE000) || c == 0x2581 ? 'x' : c;
}

static void draw_text(uint64_t *seed, strbuf *out) {
    strbuf_clear(out);
    uint64_t n = rng_next(seed) % 24;
    while (n > 0) {
        uint64_t kind = rng_next(seed) % 45, run = rng_next(seed) % 5 == 0 ? 1 + rng_next(seed) % 8 : 1;
        int32_t c = draw_char(seed, kind);
        bool same = rng_next(seed) % 2 == 0;
        for (; run > 0 && n > 0; run--, n--) {
            assert_int_equal(utf8_add(out, c), QUIRE_OK);
            c = same ? c : draw_char(seed, kind);
        }
    }
}

static void fail_with(const char *name, const char *what, const strbuf *text, const strbuf *got) {
    for (size_t i = 0; i < text->n; i++) {
        printf("%02X ", (unsigned)(uint8_t)text->p[i]);
    }
    fail_msg("%s: \"%.*s\" %s \"%.*s\"", name, (int)text->n, text->p, what, (int)got->n, got->p);
}

/* Encodes text, and compares what its ids give at once and one by one. */
static void round_trip(const tokenizer *t, const path *p, const strbuf *text, detok *d) {
    token_list ids = {0};
    strbuf whole = {0}, streamed = {0};
    quire_error err;
    assert_int_equal(
        tokenizer_encode(t, (str){text->p, text->n}, (encode_options){.special = ENCODE_PLAIN}, &ids, &err),
        QUIRE_OK);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &whole), QUIRE_OK);
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_equal(detok_add(d, ids.ids[i], &streamed), QUIRE_OK);
    }
    assert_int_equal(detok_flush(d, &streamed), QUIRE_OK);
    if (!str_eq((str){whole.p, whole.n}, (str){streamed.p, streamed.n})) {
        fail_with(p->name, "is streamed as", &whole, &streamed);
    }
    if (p->lossless && !str_eq((str){whole.p, whole.n}, (str){text->p, text->n})) {
        fail_with(p->name, "comes back as", text, &whole);
    }
    token_list_deinit(&ids);
    strbuf_deinit(&whole);
    strbuf_deinit(&streamed);
}

TEST(texts_come_back_whole_and_streamed) {
    uint64_t seed = seed_of_run();
    int n = getenv("QUIRE_TEST_LONG") != NULL ? 1000000 : 2000;
    strbuf text = {0};
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        tokenizer *t = shared_tokenizer(paths[k].name);
        detok *d = NULL;
        if (t != NULL) {
            assert_int_equal(detok_open(t, false, &d), QUIRE_OK);
        }
        for (int i = 0; t != NULL && i < n; i++) {
            draw_text(&seed, &text);
            round_trip(t, &paths[k], &text, d);
        }
        detok_close(d);
        tokenizer_close(t);
    }
    strbuf_deinit(&text);
}

TEST_MAIN(NULL, NULL)
