#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "stream/prompt_cache.h"
#include "test.h"
#include "text/tokenizer.h"

/* Added tokens of every kind that can move a border: one the beginning of another, white
 * space taken on either side, whole words only, found in the normalized text. Merges
 * reach over their first byte. Spaces become marks, and the first one is prepended. */
static const char tokenizer_json[] =
    "{\"added_tokens\":["
    "{\"id\":20,\"content\":\"<x>\",\"special\":true,\"normalized\":false},"
    "{\"id\":21,\"content\":\"<x>ab\",\"special\":true,\"normalized\":false},"
    "{\"id\":22,\"content\":\"<l>\",\"special\":true,\"normalized\":false,\"lstrip\":true},"
    "{\"id\":23,\"content\":\"<r>\",\"special\":true,\"normalized\":false,\"rstrip\":true},"
    "{\"id\":24,\"content\":\"<w>\",\"special\":true,\"normalized\":false,\"single_word\":true},"
    "{\"id\":25,\"content\":\"nn\",\"special\":false,\"normalized\":true},"
    "{\"id\":26,\"content\":\" <s>\",\"special\":true,\"normalized\":false},"
    "{\"id\":27,\"content\":\"<x>abc<x>\",\"special\":true,\"normalized\":false}],"
    "\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"first\"},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":null,\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,"
    "\"bc\":5,\"\\u2581\":6,\"n\":7,"
    "\"\\u2581a\":8,\"<\":9,\">\":10,\"x\":11,\"l\":12,\"r\":13,\"w\":14,\"s\":15,\"\\n\":16,\"b<\":17,\"><"
    "\":18,\"\\n<\":19},"
    "\"merges\":[\"b c\",\"a b\",\"a bc\",\"\\u2581 a\",\"b <\",\"> <\",\"\\n <\"]}}";
static const char *const words[] = {"a",         "b",  "c",   "ab",    "abc",  "nn",   "n",    " ",
                                    "  ",        "\n", "<x>", "<x>ab", "<l>",  "<r>",  "<w>",  " <s>",
                                    "<x>abc<x>", "<x", "<",   ">",     "a<w>", "<w>b", " <l>", "<r> "};

static size_t below(uint64_t *r, size_t n) {
    return (size_t)(rng_next(r) % n);
}

static tokenizer *open_tokenizer(void) {
    tokenizer *t = NULL;
    quire_error err = {0};
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = str_of(tokenizer_json),
               .tokenizer_config_json = str_of("{}")};
    if (tokenizer_open(&v, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return t;
}

static void add_words(uint64_t *r, strbuf *text, int n) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(strbuf_add_str(text, words[below(r, sizeof words / sizeof *words)]), QUIRE_OK);
    }
}

/* Marks by which all bytes are the template's, or all but a tenth of the positions. */
static void mark(str text, bool all, text_marks *out) {
    for (size_t i = 0; i < text.n && !all; i++) {
        if (((uint64_t)i * 0x9E3779B97F4A7C15u >> 32) % 10 == 0) {
            assert_int_equal(text_marks_add(out, i, i + 1), QUIRE_OK);
        }
    }
}

static void encode_into(const tokenizer *t, str text, encode_options o, token_list *ids) {
    quire_error err;
    o.special = ENCODE_PARSE;
    if (tokenizer_encode(t, text, o, ids, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

/* Encodes with the cache, and compares with the encoding of the whole. Returns how many
 * bytes were not encoded again. */
static size_t encode_both(const tokenizer *t, prompt_cache *c, uint64_t tenant, str text,
                          const text_marks *marks) {
    token_list whole = {0}, ids = {0};
    prompt_start start = {0};
    encode_into(t, text, (encode_options){.marks = marks}, &whole);
    assert_int_equal(prompt_cache_find(c, tenant, text, marks, &start), QUIRE_OK);
    encode_into(t, text,
                (encode_options){.marks = marks,
                                 .seams = &start.seams,
                                 .known = start.at > 0 ? &start.ids : NULL,
                                 .from = start.at},
                &ids);
    if (ids.n != whole.n || (ids.n > 0 && memcmp(ids.ids, whole.ids, ids.n * sizeof *ids.ids) != 0)) {
        fail_msg("encoded from byte %zu of %zu, the ids are others", start.at, text.n);
    }
    prompt_cache_keep(c, tenant, text, marks, ids.ids + start.seams.first, ids.n - start.seams.first,
                      &start.seams);
    size_t at = start.at;
    prompt_start_deinit(&start);
    token_list_deinit(&whole);
    token_list_deinit(&ids);
    return at;
}

/* A text that is cut anywhere and goes on in another way has the ids of the whole
 * text. */
TEST(ids_are_those_of_the_whole_text_wherever_a_text_changes) {
    const char *given = getenv("QUIRE_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("QUIRE_TEST_SEED=%llu\n", (unsigned long long)seed);
    uint64_t r = seed;
    tokenizer *t = open_tokenizer();
    size_t reused = 0;
    for (int round = 0; round < 150; round++) {
        prompt_cache *c;
        strbuf text = {0};
        bool all_marked = below(&r, 2) == 0;
        assert_int_equal(prompt_cache_open((size_t)1 << 20, &c), QUIRE_OK);
        add_words(&r, &text, 900);
        for (int turn = 0; turn < 25; turn++) {
            text_marks marks = {0};
            text.n -= below(&r, turn % 3 == 0 || text.n < 40 ? text.n + 1 : 40); /* a cut, then more */
            add_words(&r, &text, (int)below(&r, 200));
            mark((str){text.p, text.n}, all_marked, &marks);
            reused += encode_both(t, c, 1, (str){text.p, text.n}, &marks);
            text_marks_deinit(&marks);
        }
        strbuf_deinit(&text);
        prompt_cache_close(c);
    }
    assert_true(reused > 100000); /* the comparison was of something */
    tokenizer_close(t);
}

TEST(a_conversation_that_goes_on_encodes_its_new_text_only) {
    tokenizer *t = open_tokenizer();
    prompt_cache *c;
    strbuf text = {0};
    size_t before = 0, bytes = 0;
    assert_int_equal(prompt_cache_open((size_t)16 << 20, &c), QUIRE_OK);
    for (int turn = 0; turn < 50; turn++) {
        text_marks marks = {0};
        for (int i = 0; i < 300; i++) {
            assert_int_equal(strbuf_add_str(&text, "abc ab a"), QUIRE_OK);
        }
        assert_int_equal(strbuf_add_str(&text, "<x>"), QUIRE_OK);
        mark((str){text.p, text.n}, true, &marks);
        size_t at = encode_both(t, c, 1, (str){text.p, text.n}, &marks);
        assert_true(turn < 2 || at + 3 * 2403 > before);
        before = text.n;
        bytes = prompt_cache_bytes(c);
        text_marks_deinit(&marks);
    }
    assert_true(bytes < 12 * text.n); /* one entry for the conversation */
    strbuf_deinit(&text);
    prompt_cache_close(c);
    tokenizer_close(t);
}

TEST(tenants_have_entries_of_their_own_and_drive_out_none_of_others) {
    tokenizer *t = open_tokenizer();
    prompt_cache *c;
    strbuf text = {0};
    text_marks marks = {0};
    uint64_t r = 5;
    assert_int_equal(prompt_cache_open((size_t)1 << 20, &c), QUIRE_OK);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(strbuf_add_str(&text, "<x>abc ab abc ab abc ab abc ab abc ab"), QUIRE_OK);
    }
    mark((str){text.p, text.n}, true, &marks);
    assert_int_equal(encode_both(t, c, 1, (str){text.p, text.n}, &marks), 0);
    assert_int_equal(encode_both(t, c, 2, (str){text.p, text.n}, &marks), 0);
    assert_true(encode_both(t, c, 1, (str){text.p, text.n}, &marks) > 0);
    for (int i = 0; i < 300; i++) { /* a third one fills the cache many times over */
        strbuf other = {0};
        text_marks none = {0};
        add_words(&r, &other, 900);
        (void)encode_both(t, c, 3, (str){other.p, other.n}, &none);
        strbuf_deinit(&other);
    }
    assert_true(prompt_cache_bytes(c) <= (size_t)1 << 20);
    assert_true(encode_both(t, c, 1, (str){text.p, text.n}, &marks) > 0);
    assert_true(encode_both(t, c, 2, (str){text.p, text.n}, &marks) > 0);
    text_marks_deinit(&marks);
    strbuf_deinit(&text);
    prompt_cache_close(c);
    tokenizer_close(t);
}

TEST(what_is_too_short_or_too_large_is_not_kept) {
    tokenizer *t = open_tokenizer();
    prompt_cache *c;
    text_marks marks = {0};
    strbuf text = {0};
    assert_int_equal(prompt_cache_open(16 << 10, &c), QUIRE_OK);
    (void)encode_both(t, c, 1, str_of("<x>abc<x>abc"), &marks);
    assert_int_equal(prompt_cache_bytes(c), 0);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(strbuf_add_str(&text, "<x>ab ab"), QUIRE_OK);
    }
    (void)encode_both(t, c, 1, (str){text.p, text.n}, &marks);
    assert_int_equal(prompt_cache_bytes(c), 0);
    strbuf_deinit(&text);
    prompt_cache_close(c);
    tokenizer_close(t);
}

/* ---- many threads ---- */

#define N_THREADS 4
#define SEAM      100 /* bytes between seams */

typedef struct talker {
    pthread_t thread;
    prompt_cache *c;
    uint64_t seed;
    size_t reused, wrong;
} talker;

/* Keeps a text whose ids are its bytes. */
static void keep_bytes(prompt_cache *c, uint64_t tenant, const strbuf *text) {
    text_marks none = {0};
    encode_seams seams = {0};
    int32_t *ids = malloc(text->n * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < text->n; i++) {
        ids[i] = text->p[i];
        if (i % SEAM == 0 && i > 0) {
            assert_int_equal(encode_seams_add(&seams, (encode_seam){.at = i, .needs = i + 1, .n_ids = i}),
                             QUIRE_OK);
        }
    }
    prompt_cache_keep(c, tenant, (str){text->p, text->n}, &none, ids, text->n, &seams);
    encode_seams_deinit(&seams);
    free(ids);
}

/* Finds and keeps the turns of conversations that all threads have, of two tenants, in a
 * cache that holds few of them. */
static void *talk(void *arg) {
    talker *k = arg;
    uint64_t r = k->seed;
    for (int round = 0; round < 300; round++) {
        uint64_t tenant = below(&r, 2), conversation = below(&r, 3);
        strbuf text = {0};
        text_marks none = {0};
        prompt_start start = {0};
        size_t n = 1024 + below(&r, 8000);
        for (size_t i = 0; i < n; i++) {
            char byte = (char)('a' + (i * i + 7 * conversation + 3 * tenant) % 26);
            assert_int_equal(strbuf_add(&text, &byte, 1), QUIRE_OK);
        }
        assert_int_equal(prompt_cache_find(k->c, tenant, (str){text.p, text.n}, &none, &start), QUIRE_OK);
        k->reused += start.at;
        k->wrong += start.at > text.n || start.ids.n != start.at;
        for (size_t i = 0; i < start.ids.n; i++) {
            k->wrong += start.ids.ids[i] != text.p[i];
        }
        keep_bytes(k->c, tenant, &text);
        prompt_start_deinit(&start);
        strbuf_deinit(&text);
    }
    return NULL;
}

TEST(threads_find_what_others_keep_and_drop) {
    prompt_cache *c;
    talker talkers[N_THREADS];
    assert_int_equal(prompt_cache_open((size_t)200 << 10, &c), QUIRE_OK);
    for (uint64_t i = 0; i < N_THREADS; i++) {
        talkers[i] = (talker){.c = c, .seed = i + 1};
        assert_int_equal(pthread_create(&talkers[i].thread, NULL, talk, &talkers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(talkers[i].thread, NULL);
        assert_int_equal(talkers[i].wrong, 0);
        assert_true(talkers[i].reused > 10000);
    }
    assert_true(prompt_cache_bytes(c) <= (size_t)200 << 10);
    prompt_cache_close(c);
}

/* The entries of a tenant are as many as there may be, and the oldest goes. */
TEST(more_texts_than_entries_are_kept_one_for_one) {
    prompt_cache *c;
    strbuf text = {0};
    text_marks none = {0};
    assert_int_equal(prompt_cache_open((size_t)64 << 20, &c), QUIRE_OK);
    for (int i = 0; i < PROMPT_CACHE_ENTRIES + 88; i++) {
        char name[16];
        strbuf_clear(&text);
        assert_int_equal(strbuf_add(&text, name, (size_t)snprintf(name, sizeof name, "%08d", i)), QUIRE_OK);
        for (int k = 0; k < 1100; k++) {
            assert_int_equal(strbuf_add_str(&text, "x"), QUIRE_OK);
        }
        keep_bytes(c, 1, &text);
    }
    for (int i = 0; i < PROMPT_CACHE_ENTRIES + 88; i++) {
        prompt_start start = {0};
        (void)snprintf(text.p, 9, "%08d", i);
        text.p[8] = 'x';
        assert_int_equal(prompt_cache_find(c, 1, (str){text.p, text.n}, &none, &start), QUIRE_OK);
        assert_int_equal(start.at > 0, i >= 88);
        prompt_start_deinit(&start);
    }
    strbuf_deinit(&text);
    prompt_cache_close(c);
}

TEST_MAIN(NULL, NULL)
