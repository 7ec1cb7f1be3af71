/* The pre-tokenizers of tokenizer.ggml.pre, as step tables: every name that llama.cpp
 * knows. */
#include "base/mem.h"
#include "text/tokenizer_impl.h"

typedef enum rule_kind {
    RULE_END,
    RULE_SPLIT,
    RULE_DIGITS,
    RULE_DIGIT_RUNS,
    RULE_PUNCTUATION_RUNS,
    RULE_BYTES,
    RULE_WORDS_AND_BYTES
} rule_kind;

typedef struct rule {
    rule_kind kind;
    const char *pattern; /* SPLIT: matches are pieces of their own */
} rule;

typedef struct pre_rules {
    const char *names; /* separated by spaces */
    bool nfc, ignore_merges, whole_newlines;
    pre_start start;
    /* tokens are plain text, not spelled in the byte-level alphabet; bytes are <0x00> and
     * so on */
    bool raw;
    bool marks; /* raw, and U+2581 is a space */
    rule rules[8];
} pre_rules;

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3       CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL
#define QWEN2        CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL
#define GPT2         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Words by case: capitals, then small letters, as in o200k and tekken. */
#define UPPER      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD       "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K                                                                                                \
    LEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" LEAD UPPER "+" LOWER "*" CONTRACTIONS                         \
               "?|\\p{N}{1,3}" CASED_TAIL
#define TEKKEN LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}" CASED_TAIL

#define CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* The letters of alphabets with case, as DeepSeek LLM lists them. */
#define CASED_WORD                                                                                           \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{" \
    "295}-\\x{2af}"                                                                                          \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-"   \
    "\\x{3a1}"                                                                                               \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{"  \
    "13f5}"                                                                                                  \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{"    \
    "1d79}-\\x{1d9a}"                                                                                        \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{"    \
    "1f59}\\x{1f5b}\\x{1f5d}"                                                                                \
    "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{"    \
    "1fcc}\\x{1fd0}-\\x{1fd3}"                                                                               \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{"     \
    "210a}-\\x{2113}\\x{2115}"                                                                               \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}" \
    "-\\x{213f}"                                                                                             \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{"     \
    "2cee}\\x{2cf2}\\x{2cf3}"                                                                                \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{"    \
    "ab70}-\\x{abbf}"                                                                                        \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{"  \
    "104b0}-\\x{104d3}"                                                                                      \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{"    \
    "1e943}]+"
#define FULL_PUNCTUATION                                                                                     \
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"

/* Words of letters with their marks; runs of words that single spaces join. */
#define MARKED_WORD CONTRACTIONS "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES
#define JOINED_WORDS                                                                                         \
    CONTRACTIONS                                                                                             \
    "|" LEAD                                                                                                 \
    "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]" BLANKS
#define BLANKS "|\\s+(?!\\S)|\\s+"
#define SPACES "|\\s*[\\r\\n]+" BLANKS
#define JAIS2                                                                                                \
    CONTRACTIONS                                                                                             \
    "|" LEAD "\\p{L}+|\\p{N}{1,3}| "                                                                         \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)"            \
    "|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
#define BAILING                                                                                              \
    "'(?i:[sdmt]|ll|ve|re)|" LEAD "+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]" BLANKS
#define SEED_CODER CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES
#define NO_ENGLISH LEAD "\\p{L}+|\\p{N}" TAIL
#define NOT_HAN(c) "[" c "&&[^\\p{Han}]]"
#define KIMI_UPPER NOT_HAN("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}")
#define KIMI_LOWER NOT_HAN("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}")
#define KIMI                                                                                                 \
    "\\p{Han}+|" LEAD KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTIONS "?|" LEAD KIMI_UPPER "+" KIMI_LOWER         \
    "*" CONTRACTIONS "?|\\p{N}{1,3}" TAIL
#define KANA              "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define ASCII_PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define SYMBOLS                                                                                              \
    ASCII_PUNCTUATION                                                                                        \
    "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES
#define LONE_LINES                                                                                           \
    ASCII_PUNCTUATION                                                                                        \
    "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]" BLANKS
#define EAST_ASIA                                                                                            \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}\\x{"   \
    "ff65}-\\x{ff9f}"                                                                                        \
    "\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-"  \
    "\\x{aa7f}"                                                                                              \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"
#define YOUTU                                                                                                \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{"  \
    "2014}\\x{ff1a}\\x{ff1b}\\x{"                                                                            \
    "ff0c}"                                                                                                  \
    "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" KANA
#define O200K_DIGIT                                                                                          \
    LEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" LEAD UPPER "+" LOWER "*" CONTRACTIONS "?|\\p{N}" CASED_TAIL
#define THREES "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))" /* digits by threes from the right */
/* Cuts where threes are left to the right. Matches are threes before others, and if there
 * are none the last three's empty start: cuts are what counts. A match ends after three
 * digits, so one pass along the digits finds all. */
#define CUT_THREES "(?<!\\d{3})\\d{3}(?=(?:\\d{3})++(?!\\d))|(?<=\\d{3})\\d{3}(?=\\d{3})|(?=\\d{3}(?!\\d))"
#define NOT_POINTS " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define LINES      "[^\\n]+|[\\n]+"

static const pre_rules table[] = {
    {"gpt-2 gpt2 phi-2 jais roberta-bpe jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
     "gigachat a.x-4.0 mellum modern-bert "
     "exaone4 trillion granite-docling",
     .rules = {{RULE_WORDS_AND_BYTES, 0}}},
    {"mpt olmo gpt-neox", .nfc = true, .rules = {{RULE_WORDS_AND_BYTES, 0}}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", .ignore_merges = true,
     .start = PRE_STARTS, .rules = {{RULE_SPLIT, LLAMA3}, {RULE_BYTES, 0}}},
    {"dbrx smaug-bpe glm4 chatglm-bpe", .rules = {{RULE_SPLIT, LLAMA3}, {RULE_BYTES, 0}}},
    {"jais-2", .rules = {{RULE_SPLIT, JAIS2}, {RULE_BYTES, 0}}},
    {"qwen2 deepseek-r1-qwen stablelm2 kormo f2llmv2", .nfc = true,
     .rules = {{RULE_SPLIT, QWEN2}, {RULE_BYTES, 0}}},
    {"hunyuan solar-open grok-2 megrez", .rules = {{RULE_SPLIT, QWEN2}, {RULE_BYTES, 0}}},
    {"qwen35", .nfc = true, .rules = {{RULE_SPLIT, MARKED_WORD}, {RULE_BYTES, 0}}},
    {"ufakzeka", .rules = {{RULE_SPLIT, NO_ENGLISH}, {RULE_BYTES, 0}}},
    {"laguna", .rules = {{RULE_SPLIT, LINES}, {RULE_SPLIT, QWEN2}, {RULE_BYTES, 0}}},
    {"seed-coder", .rules = {{RULE_SPLIT, SEED_CODER}, {RULE_BYTES, 0}}},
    {"bailingmoe bailingmoe2 llada-moe", .rules = {{RULE_SPLIT, BAILING}, {RULE_BYTES, 0}}},
    {"exaone-moe", .rules = {{RULE_SPLIT, JOINED_WORDS}, {RULE_BYTES, 0}}},
    {"minicpm5", .ignore_merges = true,
     .rules = {{RULE_SPLIT, "\\p{N}{1,3}"},
               {RULE_SPLIT, CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}+" TAIL},
               {RULE_BYTES, 0}}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", .rules = {{RULE_SPLIT, O200K}, {RULE_BYTES, 0}}},
    {"granite-embed-multi-97m", .ignore_merges = true, .rules = {{RULE_SPLIT, O200K}, {RULE_BYTES, 0}}},
    {"tiny_aya cohere2moe", .rules = {{RULE_SPLIT, THREES}, {RULE_SPLIT, O200K}, {RULE_BYTES, 0}}},
    {"youtu", .ignore_merges = true,
     .rules = {{RULE_SPLIT, YOUTU}, {RULE_SPLIT, O200K_DIGIT}, {RULE_BYTES, 0}}},
    {"kimi-k2", .ignore_merges = true, .rules = {{RULE_SPLIT, KIMI}, {RULE_BYTES, 0}}},
    {"superbpe", .rules = {{RULE_SPLIT, "\\p{N}+"}, {RULE_SPLIT, CUT_THREES}, {RULE_BYTES, 0}}},
    {"poro-chat bloom gpt3-finnish", .rules = {{RULE_SPLIT, NOT_POINTS}, {RULE_BYTES, 0}}},
    {"viking", .rules = {{RULE_SPLIT, NOT_POINTS}, {RULE_DIGITS, 0}, {RULE_BYTES, 0}}},
    {"afmoe",
     .rules = {{RULE_SPLIT, THREES}, {RULE_SPLIT, EAST_ASIA}, {RULE_SPLIT, SYMBOLS}, {RULE_BYTES, 0}}},
    {"chameleon", .start = PRE_STARTS,
     .rules = {{RULE_SPLIT, "<sentinel:[0-9]+>"},
               {RULE_SPLIT, "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"},
               {RULE_SPLIT, "([\\t\\n]|    |  )"},
               {RULE_DIGITS, 0},
               {RULE_SPLIT, "[\\p{P}!-/:-@\\[-`{-~]"},
               {RULE_WORDS_AND_BYTES, 0}}},
    {"gemma4 granite-embed-multi-311m", .start = PRE_ALWAYS_STARTS, .raw = true, .marks = true,
     .whole_newlines = true, .rules = {{RULE_SPLIT, LINES}}},
    {"sarvam-moe", .raw = true, .marks = true, .rules = {{RULE_SPLIT, LINES}}},
    {"whitespace", .raw = true, .rules = {{RULE_SPLIT, "\\S+"}}},
    {"tekken", .ignore_merges = true, .start = PRE_STARTS, .rules = {{RULE_SPLIT, TEKKEN}, {RULE_BYTES, 0}}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     .rules = {{RULE_DIGITS, 0}, {RULE_WORDS_AND_BYTES, 0}}},
    {"falcon", .rules = {{RULE_PUNCTUATION_RUNS, 0},
                         {RULE_WORDS_AND_BYTES, 0},
                         {RULE_DIGIT_RUNS, 0},
                         {RULE_SPLIT, "[0-9][0-9][0-9]"}}},
    {"deepseek-coder", .rules = {{RULE_SPLIT, "[\\r\\n]"},
                                 {RULE_SPLIT, "\\s?\\p{L}+"},
                                 {RULE_SPLIT, "\\s?\\p{P}+"},
                                 {RULE_SPLIT, CJK},
                                 {RULE_DIGITS, 0},
                                 {RULE_BYTES, 0}}},
    {"deepseek-llm", .rules = {{RULE_SPLIT, "[\\r\\n]"},
                               {RULE_SPLIT, CASED_WORD},
                               {RULE_SPLIT, FULL_PUNCTUATION},
                               {RULE_SPLIT, "\\s+$"},
                               {RULE_SPLIT, CJK},
                               {RULE_DIGITS, 0},
                               {RULE_BYTES, 0}}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .rules = {{RULE_SPLIT, "\\p{N}{1,3}"}, {RULE_SPLIT, KANA}, {RULE_SPLIT, SYMBOLS}, {RULE_BYTES, 0}}},
    {"spark2_5", .rules = {{RULE_SPLIT, "\\p{N}{1,3}"},
                           {RULE_SPLIT, KANA},
                           {RULE_SPLIT, LONE_LINES},
                           {RULE_DIGITS, 0},
                           {RULE_BYTES, 0}}},
    /* Where the file names none: llama.cpp's choice. */
    {"default", .rules = {{RULE_SPLIT, "[\\p{P}\\$\\+<=>\\^~\\|]+"},
                          {RULE_SPLIT, GPT2},
                          {RULE_SPLIT, "\\p{N}+"},
                          {RULE_SPLIT, "[0-9][0-9][0-9]"},
                          {RULE_BYTES, 0}}},
};

static bool gguf_pre_is_named(const char *names, str name) {
    while (*names != '\0') {
        size_t n = strcspn(names, " ");
        if (str_eq((str){names, n}, name)) {
            return true;
        }
        names += n + (names[n] == ' ');
    }
    return false;
}

static quire_err apply_rule(pretokenizer *p, const rule *r, quire_error *err) {
    switch (r->kind) {
    case RULE_SPLIT:
        return pretokenizer_add_split(p, str_of(r->pattern), SPLIT_ISOLATED, false, err);
    case RULE_DIGITS:
        return pretokenizer_add_chars(p, CLASS_NUMERIC, 0, SPLIT_ISOLATED, err);
    case RULE_DIGIT_RUNS:
        return pretokenizer_add_chars(p, CLASS_NUMERIC, 0, SPLIT_CONTIGUOUS, err);
    case RULE_PUNCTUATION_RUNS:
        return pretokenizer_add_chars(p, CLASS_PUNCTUATION, 0, SPLIT_CONTIGUOUS, err);
    case RULE_BYTES:
        return pretokenizer_add_byte_level(p, false, false, err);
    default:
        return pretokenizer_add_byte_level(p, false, true, err);
    }
}

/* Bytes of characters without a token, and spaces, when texts are not spelled in the
 * byte-level alphabet. */
static quire_err apply_raw(tokenizer *t, bool marks) {
    decoder *d = &t->decoder;
    t->model.bpe.byte_fallback = true;
    if (marks) {
        norm_step *step = &t->normalizer.steps[t->normalizer.n++];
        *step = (norm_step){
            .kind = NORM_REPLACE, .content = mem_dup(SP_MARK, strlen(SP_MARK)), .n_content = strlen(SP_MARK)};
        TRY(mem_check(step->content));
        TRY(matcher_open_literal(str_of(" "), &step->match));
        decode_step *back = &d->steps[d->n++];
        *back = (decode_step){.kind = DECODE_REPLACE, .content = mem_dup(" ", 1), .n_content = 1};
        TRY(mem_check(back->content));
        TRY(matcher_open_literal(str_of(SP_MARK), &back->match));
    }
    d->steps[d->n++] = (decode_step){.kind = DECODE_BYTE_FALLBACK};
    d->steps[d->n++] = (decode_step){.kind = DECODE_FUSE};
    return QUIRE_OK;
}

quire_err tokenizer_apply_pre(tokenizer *t, str pre, pre_start *start, quire_error *err) {
    str name = pre.n > 0 ? pre : str_of("default");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const pre_rules *p = &table[i];
        if (!gguf_pre_is_named(p->names, name)) {
            continue;
        }
        *start = p->start;
        t->model.bpe.ignore_merges = p->ignore_merges;
        t->model.bpe.whole_newlines = p->whole_newlines;
        if (p->nfc) {
            t->normalizer.steps[t->normalizer.n++] = (norm_step){.kind = NORM_NFC};
        }
        if (p->raw) {
            TRY(apply_raw(t, p->marks));
        }
        for (const rule *r = p->rules; r->kind != RULE_END; r++) {
            TRY(apply_rule(&t->pretokenizer, r, err));
        }
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer.ggml.pre \"%.*s\" is not supported by this version",
                   (int)(name.n < 80 ? name.n : 80), name.p);
}
