/* Fill-in-the-middle tokens, found by a file's keys and by their published spellings. */
#include "shared.h"

#include "file/open_file.h"
#include "text/added.h"

#define MAX_TOKENS 16

/* A GGUF vocabulary of "a" and control tokens. */
typedef struct fim_vocabulary {
    str texts[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    vocab v;
} fim_vocabulary;

static int32_t fim_add(fim_vocabulary *g, const char *text, vocab_type type) {
    g->texts[g->v.n_tokens] = str_of(text);
    g->types[g->v.n_tokens] = type;
    return g->v.n_tokens++;
}

static fim_vocabulary *fim_new(void) {
    fim_vocabulary *g = mem_new(1, sizeof *g);
    vocab_init(&g->v);
    g->v.source = VOCAB_GGUF;
    g->v.model = str_of("gpt2");
    g->v.pre = str_of("kimi-k2");
    g->v.n_tokens = 0;
    g->v.tokens = g->texts;
    g->v.types = g->types;
    fim_add(g, "a", VOCAB_NORMAL);
    return g;
}

static fim_marks fim_of(const fim_vocabulary *g) {
    tokenizer *t = NULL;
    quire_error err = {0};
    if (tokenizer_open(&g->v, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    fim_marks m = *tokenizer_fim(t);
    tokenizer_close(t);
    return m;
}

TEST(each_published_spelling_is_found) {
    static const char *const spellings[][3] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
        {"<\xEF\xBD\x9C"
         "fim\xE2\x96\x81"
         "begin\xEF\xBD\x9C>",
         "<\xEF\xBD\x9C"
         "fim\xE2\x96\x81"
         "hole\xEF\xBD\x9C>",
         "<\xEF\xBD\x9C"
         "fim\xE2\x96\x81"
         "end\xEF\xBD\x9C>"},
        {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>"},
        {"<PRE>", "<SUF>", "<MID>"},
        {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    };
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        fim_vocabulary *g = fim_new();
        int32_t mid = fim_add(g, spellings[i][2], VOCAB_CONTROL),
                pre = fim_add(g, spellings[i][0], VOCAB_CONTROL);
        assert_int_equal(fim_of(g).pre, -1); /* two of three are none */
        int32_t suf = fim_add(g, spellings[i][1], VOCAB_USER_DEFINED);
        fim_marks m = fim_of(g);
        assert_int_equal(m.pre, pre);
        assert_int_equal(m.suf, suf);
        assert_int_equal(m.mid, mid);
        assert_false(m.suffix_first);
        assert_int_equal(m.repo, -1);
        assert_int_equal(m.file, -1);
        mem_free(g);
    }
}

TEST(a_model_without_a_middle_has_the_suffix_first) {
    fim_vocabulary *g = fim_new();
    int32_t suf = fim_add(g, "[SUFFIX]", VOCAB_CONTROL), pre = fim_add(g, "[PREFIX]", VOCAB_CONTROL);
    fim_marks m = fim_of(g);
    assert_true(m.suffix_first);
    assert_int_equal(m.pre, pre);
    assert_int_equal(m.suf, suf);
    assert_int_equal(m.mid, -1);
    mem_free(g);
}

TEST(keys_go_before_spellings) {
    fim_vocabulary *g = fim_new();
    fim_add(g, "<fim_prefix>", VOCAB_CONTROL);
    fim_add(g, "<fim_suffix>", VOCAB_CONTROL);
    fim_add(g, "<fim_middle>", VOCAB_CONTROL);
    g->v.fim_pre = fim_add(g, "<x>", VOCAB_CONTROL);
    g->v.fim_suf = fim_add(g, "<y>", VOCAB_CONTROL);
    assert_int_equal(fim_of(g).pre, 1); /* a key is missing */
    g->v.fim_mid = fim_add(g, "<z>", VOCAB_CONTROL);
    fim_marks m = fim_of(g);
    assert_int_equal(m.pre, 4);
    assert_int_equal(m.suf, 5);
    assert_int_equal(m.mid, 6);
    g->v.fim_mid = g->v.fim_suf; /* two of one id are none */
    assert_int_equal(fim_of(g).pre, 1);
    mem_free(g);
}

TEST(repositories_and_files_have_marks_of_their_own) {
    fim_vocabulary *g = fim_new();
    int32_t file = fim_add(g, "<|file_sep|>", VOCAB_CONTROL),
            repo = fim_add(g, "<|repo_name|>", VOCAB_CONTROL);
    assert_int_equal(fim_of(g).file, -1); /* of no use without a gap */
    fim_add(g, "<|fim_prefix|>", VOCAB_CONTROL);
    fim_add(g, "<|fim_suffix|>", VOCAB_CONTROL);
    fim_add(g, "<|fim_middle|>", VOCAB_CONTROL);
    fim_marks m = fim_of(g);
    assert_int_equal(m.file, file);
    assert_int_equal(m.repo, repo);
    for (int32_t id = -1; id < g->v.n_tokens + 2; id++) {
        assert_int_equal(fim_is_mark(&m, id), id > 0 && id < g->v.n_tokens);
    }
    mem_free(g);
}

TEST(a_model_without_them_has_none) {
    fim_vocabulary *g = fim_new();
    fim_marks m = fim_of(g);
    assert_int_equal(m.pre, -1);
    assert_false(fim_is_mark(&m, -1));
    mem_free(g);
}

TEST_MAIN(NULL, NULL)
