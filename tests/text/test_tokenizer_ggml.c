/* The .inp/.out vectors beside the GGUF vocabularies: texts separated by a line, and
 * their ids, with special tokens parsed and nothing added. */
#include "shared.h"

#define FOLDER "data/tokenizers/ggml-vocab/ggml-vocab-"

/* Cuts the next text off *rest. */
static str next_text(str *rest) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    size_t n = sizeof separator - 1;
    for (size_t i = 0; i + n <= rest->n; i++) {
        if (memcmp(rest->p + i, separator, n) == 0) {
            str text = {rest->p, i};
            *rest = (str){rest->p + i + n, rest->n - i - n};
            return text;
        }
    }
    str text = *rest;
    *rest = (str){rest->p + rest->n, 0};
    return text;
}

static void check_ids(const token_list *ids, char **line, const char *name, int number, str text) {
    for (size_t i = 0; i < ids->n; i++) {
        char *end;
        long want = strtol(*line, &end, 10);
        if (end == *line || want != ids->ids[i]) {
            fail_msg("%s, text %d \"%.*s\": id %zu is %d, not %ld", name, number, (int)text.n, text.p, i,
                     ids->ids[i], want);
        }
        *line = end;
    }
    while (**line == ' ') {
        (*line)++;
    }
    if (**line != '\n' && **line != '\0') {
        fail_msg("%s, text %d \"%.*s\": only %zu ids, more expected", name, number, (int)text.n, text.p,
                 ids->n);
    }
    *line += **line == '\n';
}

/* name: of the vectors; source: the tokenizer, when it is not the GGUF file beside
 * them. */
static void check_vocabulary(const char *name, const char *source) {
    char path[256];
    size_t n_inp = 0, n_out = 0;
    (void)snprintf(path, sizeof path, FOLDER "%s.gguf.inp", name);
    char *inp = shared_read(path, &n_inp);
    (void)snprintf(path, sizeof path, FOLDER "%s.gguf.out", name);
    char *out = shared_read(path, &n_out);
    (void)snprintf(path, sizeof path, FOLDER "%s.gguf", name);
    tokenizer *t = inp != NULL && out != NULL ? shared_tokenizer(source != NULL ? source : path) : NULL;
    if (t == NULL) {
        skip();
    }
    str rest = {inp, n_inp};
    char *line = out;
    int n_texts = 0;
    while (*line != '\0') {
        token_list ids = {0};
        quire_error err = {0};
        str text = next_text(&rest);
        assert_int_equal(tokenizer_encode(t, text, (encode_options){.special = ENCODE_PARSE}, &ids, &err),
                         QUIRE_OK);
        check_ids(&ids, &line, name, ++n_texts, text);
        token_list_deinit(&ids);
    }
    assert_int_equal(rest.n, 0);
    assert_true(n_texts > 40);
    tokenizer_close(t);
    mem_free(inp);
    mem_free(out);
}

#define VOCABULARY(function, name, source)                                                                   \
    TEST(function) {                                                                                         \
        check_vocabulary(name, source);                                                                      \
    }

VOCABULARY(gpt_2_texts_have_the_recorded_ids, "gpt-2", NULL)
VOCABULARY(llama_spm_texts_have_the_recorded_ids, "llama-spm", NULL)
VOCABULARY(phi_3_texts_have_the_recorded_ids, "phi-3", NULL)
VOCABULARY(starcoder_texts_have_the_recorded_ids, "starcoder", NULL)
VOCABULARY(refact_texts_have_the_recorded_ids, "refact", NULL)
VOCABULARY(falcon_texts_have_the_recorded_ids, "falcon", NULL)
VOCABULARY(mpt_texts_have_the_recorded_ids, "mpt", NULL)
VOCABULARY(deepseek_llm_texts_have_the_recorded_ids, "deepseek-llm", NULL)
VOCABULARY(deepseek_coder_texts_have_the_recorded_ids, "deepseek-coder", NULL)
VOCABULARY(bert_bge_texts_have_the_recorded_ids, "bert-bge", NULL)
VOCABULARY(llama_3_texts_have_the_recorded_ids, "llama-bpe", "golden/tokenizers/llama3/tokenizer.json")
VOCABULARY(qwen_2_texts_have_the_recorded_ids, "qwen2", "golden/tokenizers/qwen2.5/tokenizer.json")

/* A text that begins within a word shows that, as it does by the same vocabulary with
 * marked continuations. */
TEST(bert_ids_that_begin_within_a_word_show_it) {
    static const int32_t ids[] = {29859, 29874, 1327, 100, 29867};
    tokenizer *t = shared_tokenizer(FOLDER "bert-bge.gguf");
    if (t == NULL) {
        skip();
    }
    strbuf text = {0};
    assert_int_equal(tokenizer_decode(t, ids, 5, false, &text), QUIRE_OK);
    assert_string_equal(text.p, "##तस न [UNK]म");
    strbuf_clear(&text);
    assert_int_equal(tokenizer_decode(t, ids + 2, 3, false, &text), QUIRE_OK);
    assert_string_equal(text.p, "न [UNK]म");
    strbuf_deinit(&text);
    tokenizer_close(t);
}

TEST_MAIN(NULL, NULL)
