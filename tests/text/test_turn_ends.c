/* Tokens that end a turn, by what a vocabulary tells. */
#include "shared.h"

#include "text/turn_ends.h"

#define MAX_TOKENS 64

/* A GGUF vocabulary of control tokens, ids in the order of their texts. */
typedef struct gguf_tokens {
    str texts[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    vocab v;
} gguf_tokens;

static void add(gguf_tokens *g, const char *text, vocab_type type) {
    g->v.source = VOCAB_GGUF;
    g->texts[g->v.n_tokens] = str_of(text);
    g->types[g->v.n_tokens++] = type;
    g->v.tokens = g->texts;
    g->v.types = g->types;
}

static bool ends(const gguf_tokens *g, const char *text) {
    turn_ends found = turn_ends_find(&g->v, NULL);
    for (int32_t i = 0; i < found.n; i++) {
        assert_int_equal(found.tokens[i].reason, TURN_END_BY_TEXT);
        if (str_is(g->texts[found.tokens[i].id], text)) {
            return true;
        }
    }
    return false;
}

TEST(each_published_text_of_a_control_or_user_defined_token_ends_a_turn) {
    static const char *const texts[] = {"<|im_end|>",
                                        "<|eot_id|>",
                                        "<end_of_turn>",
                                        "<|end|>",
                                        "<|endoftext|>",
                                        "<EOT>",
                                        "_<EOT>",
                                        "[EOT]",
                                        "<|end_of_text|>",
                                        "<|eom_id|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "[EOS]",
                                        "</s>",
                                        "<eos>",
                                        "<turn|>",
                                        "<|tool_response>",
                                        "<end_of_utterance>",
                                        "<|flush|>",
                                        "<|calls|>",
                                        "<|fim_pad|>",
                                        "<|file_sep|>",
                                        "<|repo_name|>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (vocab_type type = VOCAB_UNDEFINED; type <= VOCAB_BYTE; type++) {
            gguf_tokens g = {0};
            add(&g, "a", VOCAB_NORMAL);
            add(&g, texts[i], type);
            assert_int_equal(ends(&g, texts[i]), type == VOCAB_CONTROL || type == VOCAB_USER_DEFINED);
        }
    }
}

TEST(other_control_tokens_end_nothing) {
    static const char *const texts[] = {"<s>",   "<bos>",       "<|im_start|>", "<|start|>",  "<pad>",
                                        "<unk>", "<|im_end|> ", "im_end",       "<|channel|>"};
    gguf_tokens g = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        add(&g, texts[i], VOCAB_CONTROL);
    }
    assert_int_equal(turn_ends_find(&g.v, NULL).n, 0);
}

TEST(the_end_of_a_message_among_several_of_a_turn_ends_nothing) {
    static const char *const pairs[][2] = {
        {"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"}, {"<|call|>", "<|flush|>"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        gguf_tokens g = {0};
        add(&g, "<|end|>", VOCAB_CONTROL);
        add(&g, pairs[i][0], VOCAB_CONTROL);
        assert_true(ends(&g, "<|end|>"));
        add(&g, pairs[i][1], VOCAB_CONTROL);
        assert_false(ends(&g, "<|end|>"));
        assert_true(ends(&g, pairs[i][0]) && ends(&g, pairs[i][1]));
        assert_int_equal(turn_ends_find(&g.v, NULL).goes_on[0], 0);
    }
    gguf_tokens gemma = {0};
    add(&gemma, "</s>", VOCAB_USER_DEFINED);
    add(&gemma, "<turn|>", VOCAB_CONTROL);
    assert_true(ends(&gemma, "</s>"));
    add(&gemma, "<|tool_response>", VOCAB_CONTROL);
    assert_true(!ends(&gemma, "</s>") && ends(&gemma, "<turn|>"));
}

TEST(a_vocabulary_without_types_or_with_thousands_of_ends_is_taken) {
    gguf_tokens g = {0};
    for (int i = 0; i < MAX_TOKENS; i++) {
        add(&g, "</s>", VOCAB_CONTROL);
    }
    assert_int_equal(turn_ends_find(&g.v, NULL).n, TURN_ENDS_MAX);
    g.v.types = NULL;
    assert_int_equal(turn_ends_find(&g.v, NULL).n, 0);
}

#define JSON                                                                                                 \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"<e>\":1,\"<|im_end|>\":2},\"merges\":[]},"            \
    "\"added_tokens\":[{\"id\":2,\"content\":\"<|im_end|>\",\"special\":true}]}"

static int32_t end_of(const char *config, const char *map) {
    tokenizer *t = NULL;
    vocab v = {.source = VOCAB_TOKENIZER_JSON,
               .tokenizer_json = str_of(JSON),
               .tokenizer_config_json = str_of(config),
               .special_tokens_map_json = str_of(map)};
    assert_int_equal(tokenizer_open(&v, &t, NULL), QUIRE_OK);
    turn_ends found = turn_ends_find(&v, t);
    tokenizer_close(t);
    assert_true(found.n <= 1 && (found.n == 0 || found.tokens[0].reason == TURN_END_BY_NAME));
    return found.n == 1 ? found.tokens[0].id : -1;
}

TEST(the_tokenizers_eos_token_ends_a_turn_as_text_or_as_object) {
    assert_int_equal(end_of("{\"eos_token\":\"<e>\"}", ""), 1);
    assert_int_equal(end_of("{\"eos_token\":{\"content\":\"<|im_end|>\",\"lstrip\":false}}", ""), 2);
    assert_int_equal(end_of("", "{\"eos_token\":\"<|im_end|>\"}"), 2);
    assert_int_equal(end_of("", "{\"eos_token\":{\"content\":\"<e>\"}}"), 1);
    assert_int_equal(end_of("{\"eos_token\":\"<e>\"}", "{\"eos_token\":\"<|im_end|>\"}"), 1);
    assert_int_equal(end_of("{\"eos_token\":null}", "{}"), -1);
    assert_int_equal(end_of("{\"eos_token\":\"<none>\"}", ""), -1);
    assert_int_equal(end_of("", ""), -1); /* by its text alone none does: that is GGUF's way */
}

TEST_MAIN(NULL, NULL)
