/* The names in tokenizer.ggml.pre: which are known, how they cut texts, and which options
 * they set. */
#include "shared.h"

#include "base/clock.h"
#include "base/turn.h"
#include "file/open_file.h"
#include "text/chars.h"
#include "text/tokenizer_impl.h"

/* Every name of llama.cpp's src/llama-vocab.cpp at commit 00ad355e. */
static const char names[] = "default minicpm5 llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 "
                            "lfm2 jina-v5-nano deepseek-llm "
                            "deepseek-coder deepseek-v3 spark2_5 youtu falcon mpt starcoder gpt-2 phi-2 "
                            "jina-es jina-de gigachat jina-v2-es "
                            "jina-v2-de a.x-4.0 mellum modern-bert jais-2 gemma4 granite-embed-multi-311m "
                            "sarvam-moe jina-v1-en jina-v2-code "
                            "roberta-bpe whitespace refact command-r qwen2 deepseek-r1-qwen kormo f2llmv2 "
                            "qwen35 stablelm2 olmo dbrx smaug-bpe "
                            "poro-chat glm4 chatglm-bpe viking jais tekken smollm codeshell bloom "
                            "gpt3-finnish exaone exaone4 exaone-moe chameleon "
                            "minerva-7b megrez gpt-4o llama4 kanana2 talkie granite-embed-multi-97m tiny_aya "
                            "cohere2moe superbpe trillion "
                            "granite-docling bailingmoe bailingmoe2 llada-moe seed-coder hunyuan "
                            "hunyuan-dense hy_v4 joyai-llm kimi-k2 ufakzeka "
                            "grok-2 afmoe laguna minimax-m2 solar-open mellum2";

/* A tokenizer with the rules of that name. */
static tokenizer *open_pre(const char *name) {
    tokenizer *t = mem_new(1, sizeof *t);
    pre_start start;
    quire_error err = {0};
    assert_non_null(t);
    if (tokenizer_apply_pre(t, str_of(name), &start, &err) != QUIRE_OK) {
        fail_msg("%s: %s", name, err.message);
    }
    return t;
}

/* The pieces of a text, each after a '|'. */
static strbuf cut(const char *name, const char *text) {
    tokenizer *t = open_pre(name);
    pre_scratch s = {0};
    regex_scratch rs = {0};
    const piece_list *pieces;
    strbuf out = {0};
    assert_int_equal(pretokenizer_run(&t->pretokenizer, str_of(text), 1, &s, &rs, &pieces), QUIRE_OK);
    for (size_t i = 0; i < pieces->n; i++) {
        assert_int_equal(strbuf_add_str(&out, "|"), QUIRE_OK);
        assert_int_equal(strbuf_add(&out, pieces->text.p + pieces->pieces[i].at, pieces->pieces[i].n),
                         QUIRE_OK);
    }
    pre_scratch_deinit(&s);
    regex_scratch_deinit(&rs);
    tokenizer_close(t);
    return out;
}

static void expect_cut(const char *name, const char *text, const char *want) {
    strbuf got = cut(name, text);
    if (!str_is((str){got.p, got.n}, want)) {
        fail_msg("%s cuts \"%s\" into %.*s, not %s", name, text, (int)got.n, got.p, want);
    }
    strbuf_deinit(&got);
}

/* ---- expressions that are searched in a quicker form ---- */

/* The pieces that the expression itself makes of a text, by a search at every start: each
 * match a piece. */
static void cut_plainly(const char *pattern, str text, strbuf *out) {
    char anchored[128];
    matcher m = {0};
    regex_scratch rs = {0};
    quire_error err = {0};
    size_t done = 0, last_end = SIZE_MAX;
    (void)snprintf(anchored, sizeof anchored, "(?:%s)", pattern); /* no other form is known of it */
    assert_int_equal(regex_open(str_of(anchored), &m.re, &err), QUIRE_OK);
    for (size_t from = 0; from <= text.n;) {
        match_iter it = {.subject = text, .from = from};
        bool found;
        assert_int_equal(matcher_next(&m, &rs, &it, &found), QUIRE_OK);
        if (!found) {
            break;
        }
        if (it.start == it.end && it.end == last_end) {
            for (from++; from < text.n && ((uint8_t)text.p[from] & 0xC0) == 0x80;) {
                from++;
            }
            continue;
        }
        if (it.start > done) {
            assert_int_equal(strbuf_addf(out, "|%.*s", (int)(it.start - done), text.p + done), QUIRE_OK);
        }
        if (it.end > it.start) {
            assert_int_equal(strbuf_addf(out, "|%.*s", (int)(it.end - it.start), text.p + it.start),
                             QUIRE_OK);
        }
        done = from = last_end = it.end;
    }
    assert_int_equal(
        done < text.n ? strbuf_addf(out, "|%.*s", (int)(text.n - done), text.p + done) : QUIRE_OK, QUIRE_OK);
    matcher_deinit(&m);
    regex_scratch_deinit(&rs);
}

/* A name's rules, but for byte level this expression alone, cut a text as the expression
 * does. */
static void expect_cut_as(const char *name, const char *pattern, str text) {
    strbuf want = {0}, spelt = {0};
    cut_plainly(pattern, text, &want);
    assert_int_equal(byte_level_add(&spelt, (str){want.p, want.n}), QUIRE_OK);
    expect_cut(name, text.p, spelt.p);
    strbuf_deinit(&want);
    strbuf_deinit(&spelt);
}

/* The matches of an expression in a text, each as its start and end. */
static strbuf matches(const char *pattern, str text) {
    matcher m = {0};
    regex_scratch rs = {0};
    quire_error err = {0};
    match_iter it = {.subject = text};
    strbuf out = {0};
    assert_int_equal(regex_open(str_of(pattern), &m.re, &err), QUIRE_OK);
    for (bool found = true; found;) {
        assert_int_equal(matcher_next(&m, &rs, &it, &found), QUIRE_OK);
        assert_int_equal(found ? strbuf_addf(&out, " %zu..%zu", it.start, it.end) : strbuf_add_str(&out, ""),
                         QUIRE_OK);
    }
    matcher_deinit(&m);
    regex_scratch_deinit(&rs);
    return out;
}

#define THREES_FROM_THE_RIGHT "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"

/* Every short text of the characters that make a difference. */
TEST(a_quicker_form_of_an_expression_finds_what_it_does) {
    static const struct {
        const char *pattern, *same, *chars[3];
    } forms[] = {{"\\s+$", "(?:\\s+$)", {" ", "\n", "1"}},
                 {THREES_FROM_THE_RIGHT, "(?:" THREES_FROM_THE_RIGHT ")", {"1", "a"}},
                 {"(?=(\\d{3})+(?!\\d))", NULL, {"1", "\xC2\xBD"}}};
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        size_t base = forms[k].chars[2] == NULL ? 2 : 3, longest = base == 2 ? 12 : 8;
        for (size_t n = 1, all = base; n <= longest; n++, all *= base) {
            for (size_t i = 0; i < all; i++) {
                char text[32] = "";
                for (size_t at = 0, rest = i; at < n; at++, rest /= base) {
                    strcat(text, forms[k].chars[rest % base]);
                }
                if (forms[k].same == NULL) {
                    expect_cut_as("superbpe", forms[k].pattern, str_of(text));
                    continue;
                }
                strbuf want = matches(forms[k].same, str_of(text)),
                       got = matches(forms[k].pattern, str_of(text));
                if (!str_eq((str){got.p, got.n}, (str){want.p, want.n})) {
                    fail_msg("%s finds %s in \"%s\", not %s", forms[k].pattern, got.p, text, want.p);
                }
                strbuf_deinit(&want);
                strbuf_deinit(&got);
            }
        }
    }
}

/* Ends what takes more than two seconds of processor time: a linear search takes some
 * hundredths. */
static quire_err end_of_slice(turn *t) {
    return clock_thread_us() - t->used_us > 2000000 ? QUIRE_CANCELLED : QUIRE_OK;
}

/* n times c and then end, cut by a name's rules: QUIRE_OK if it takes linear time. */
static quire_err cut_run(const char *name, size_t n, char c, const char *end) {
    tokenizer *t = open_pre(name);
    pre_scratch s = {0};
    regex_scratch rs = {0};
    const piece_list *pieces;
    strbuf text = {0};
    turn slices = {.over = end_of_slice, .used_us = clock_thread_us()};
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(strbuf_add_char(&text, c), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, end), QUIRE_OK);
    turn_begin(&slices);
    quire_err e = pretokenizer_run(&t->pretokenizer, (str){text.p, text.n}, 1, &s, &rs, &pieces);
    turn_begin(NULL);
    strbuf_deinit(&text);
    pre_scratch_deinit(&s);
    regex_scratch_deinit(&rs);
    tokenizer_close(t);
    return e;
}

TEST(long_runs_of_spaces_and_digits_are_cut_in_linear_time) {
    assert_int_equal(cut_run("deepseek-llm", 300000, ' ', "1"), QUIRE_OK);
    assert_int_equal(cut_run("tiny_aya", 300000, '7', ""), QUIRE_OK);
    assert_int_equal(cut_run("cohere2moe", 300001, '7', "x"), QUIRE_OK);
    assert_int_equal(cut_run("afmoe", 300002, '7', ""), QUIRE_OK);
    assert_int_equal(cut_run("superbpe", 300001, '7', "x"), QUIRE_OK);
}

TEST(every_name_is_known) {
    const char *at = names;
    int n = 0;
    while (*at != '\0') {
        char name[64];
        size_t length = strcspn(at, " ");
        assert_true(length < sizeof name);
        memcpy(name, at, length);
        name[length] = '\0';
        at += length + (at[length] == ' ');
        strbuf got = cut(name, "It's 1234567 \xe4\xb8\xad\xe6\x96\x87, foo_bar!!\n\n  x");
        assert_true(got.n > 0);
        strbuf_deinit(&got);
        n++;
    }
    assert_int_equal(n, 90);
}

/* In the byte-level alphabet, where a space is G with a dot and a newline C with one. */
#define SPACE "\xc4\xa0"
#define LINE  "\xc4\x8a"

TEST(names_cut_as_their_models_do) {
    expect_cut("deepseek-v3", "ab!!\n\ncd 12345\n", "|ab|!!" LINE LINE "|cd|" SPACE "|123|45|" LINE);
    expect_cut("hy_v4", "ab!!\n\ncd 12345\n", "|ab|!!" LINE LINE "|cd|" SPACE "|123|45|" LINE);
    expect_cut("spark2_5", "ab!!\n\ncd 12345\n", "|ab|!!|" LINE "|" LINE "|cd|" SPACE "|1|2|3|4|5|" LINE);
    expect_cut("qwen2", "It's 123", "|It|'s|" SPACE "|1|2|3");
    expect_cut("llama-bpe", "It's 12345", "|It|'s|" SPACE "|123|45");
    expect_cut("ufakzeka", "It's", "|It|'s");
    expect_cut("gemma4", "a b\n\nc", "|a b|\n\n|c");
    expect_cut("tiny_aya", "x 1234567", "|x|" SPACE "|1|234|567");
}

/* ---- whole tokenizers ---- */

static const str byte_tokens[] = {{"<s>", 3}, {"a", 1}, {"b", 1}, {"ab", 2}, {LINE, 2}, {LINE LINE, 4}};
static const str text_tokens[] = {{"<s>", 3}, {"a", 1},    {"b", 1}, {"ab", 2},
                                  {"\n", 1},  {"\n\n", 2}, {"ba", 2}};
static const int32_t types[] = {VOCAB_CONTROL, VOCAB_NORMAL, VOCAB_NORMAL, VOCAB_NORMAL,
                                VOCAB_NORMAL,  VOCAB_NORMAL, VOCAB_NORMAL};
static const str merge = {"a b", 3};

static vocab vocabulary(const char *model, const char *pre) {
    bool raw = strcmp(model, "gemma4") == 0;
    vocab v;
    vocab_init(&v);
    v.source = VOCAB_GGUF;
    v.model = str_of(model);
    v.pre = str_of(pre);
    v.tokens = raw ? text_tokens : byte_tokens;
    v.n_tokens = raw ? 7 : 6;
    v.types = types;
    v.merges = &merge;
    v.n_merges = 1;
    v.bos = 0;
    return v;
}

static void expect_ids(const vocab *v, const char *text, const int32_t *want, size_t n) {
    tokenizer *t = NULL;
    token_list ids = {0};
    quire_error err = {0};
    if (tokenizer_open(v, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(tokenizer_encode(t, str_of(text),
                                      (encode_options){.special = ENCODE_PARSE, .add_special = true}, &ids,
                                      &err),
                     QUIRE_OK);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.ids, want, n * sizeof *want);
    token_list_deinit(&ids);
    tokenizer_close(t);
}

#define EXPECT_IDS(v, text, ...)                                                                             \
    expect_ids(v, text, (const int32_t[]){__VA_ARGS__},                                                      \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static int32_t start_of(const vocab *v) {
    tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(v, &t, NULL), QUIRE_OK);
    int32_t start = tokenizer_start(t);
    tokenizer_close(t);
    return start;
}

TEST(chats_begin_with_the_bos_that_texts_begin_with) {
    vocab v = vocabulary("gpt2", "llama-bpe");
    assert_int_equal(start_of(&v), 0);
    v.add_bos = 0;
    assert_int_equal(start_of(&v), -1);
    v = vocabulary("gpt2", "qwen2");
    assert_int_equal(start_of(&v), -1);
    v.add_bos = 1;
    v.add_eos = 1;
    v.eos = 1;
    assert_int_equal(start_of(&v), 0);
    v.bos = -1;
    assert_int_equal(start_of(&v), -1);
}

TEST(an_unset_flag_adds_a_bos_where_llama_cpp_does) {
    vocab v = vocabulary("gpt2", "llama-bpe");
    EXPECT_IDS(&v, "ab", 0, 3);
    v.add_bos = 0;
    EXPECT_IDS(&v, "ab", 3);
    v = vocabulary("gpt2", "qwen2");
    EXPECT_IDS(&v, "ab", 3);
    v.add_bos = 1;
    EXPECT_IDS(&v, "ab", 0, 3);
}

/* Of Gemma 4: a BOS whatever the flag says, newlines are one token though no merge makes
 * it, other texts obey the merges. */
TEST(gemma4_is_a_model_by_itself) {
    vocab v = vocabulary("gemma4", "");
    v.add_bos = 0;
    EXPECT_IDS(&v, "ab\n\nba", 0, 3, 5, 2, 1);
}

TEST(kimi_k2_needs_no_merges) {
    vocab v = vocabulary("gpt2", "kimi-k2");
    v.merges = NULL;
    v.n_merges = 0;
    EXPECT_IDS(&v, "ab", 3);
    EXPECT_IDS(&v, "ba", 2, 1);
}

TEST_MAIN(NULL, NULL)
