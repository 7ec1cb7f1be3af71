/* The pre-tokenizers of tokenizer.ggml.pre, as step tables. */
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
    bool nfc, ignore_merges;
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
#define O200K      LEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" LEAD UPPER "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}" CASED_TAIL
#define TEKKEN     LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}" CASED_TAIL

#define CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* The letters of alphabets with case, as DeepSeek LLM lists them. */
#define CASED_WORD                                                                                                                         \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"                  \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"                         \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"                           \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}"                   \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}"           \
    "\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"          \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}"           \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                     \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"            \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                   \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"               \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define FULL_PUNCTUATION "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"

static const pre_rules table[] = {
    {"gpt-2 gpt2 phi-2 jais roberta-bpe", false, false, {{RULE_WORDS_AND_BYTES, 0}}},
    {"mpt olmo gpt-neox", true, false, {{RULE_WORDS_AND_BYTES, 0}}},
    {"llama-bpe llama3 llama-v3 falcon3", false, true, {{RULE_SPLIT, LLAMA3}, {RULE_BYTES, 0}}},
    {"dbrx smaug-bpe", false, false, {{RULE_SPLIT, LLAMA3}, {RULE_BYTES, 0}}},
    {"qwen2 deepseek-r1-qwen stablelm2", true, false, {{RULE_SPLIT, QWEN2}, {RULE_BYTES, 0}}},
    {"gpt-4o llama4", false, false, {{RULE_SPLIT, O200K}, {RULE_BYTES, 0}}},
    {"tekken", false, true, {{RULE_SPLIT, TEKKEN}, {RULE_BYTES, 0}}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b", false, false, {{RULE_DIGITS, 0}, {RULE_WORDS_AND_BYTES, 0}}},
    {"falcon",
     false,
     false,
     {{RULE_PUNCTUATION_RUNS, 0}, {RULE_WORDS_AND_BYTES, 0}, {RULE_DIGIT_RUNS, 0}, {RULE_SPLIT, "[0-9][0-9][0-9]"}}},
    {"deepseek-coder",
     false,
     false,
     {{RULE_SPLIT, "[\\r\\n]"},
      {RULE_SPLIT, "\\s?\\p{L}+"},
      {RULE_SPLIT, "\\s?\\p{P}+"},
      {RULE_SPLIT, CJK},
      {RULE_DIGITS, 0},
      {RULE_BYTES, 0}}},
    {"deepseek-llm",
     false,
     false,
     {{RULE_SPLIT, "[\\r\\n]"},
      {RULE_SPLIT, CASED_WORD},
      {RULE_SPLIT, FULL_PUNCTUATION},
      {RULE_SPLIT, "\\s+$"},
      {RULE_SPLIT, CJK},
      {RULE_DIGITS, 0},
      {RULE_BYTES, 0}}},
    {"deepseek-v3",
     false,
     false,
     {{RULE_SPLIT, "\\p{N}{1,3}"},
      {RULE_SPLIT, "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"},
      {RULE_SPLIT, "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                   "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
      {RULE_BYTES, 0}}},
    /* Where the file names none: llama.cpp's choice. */
    {"default",
     false,
     false,
     {{RULE_SPLIT, "[\\p{P}\\$\\+<=>\\^~\\|]+"},
      {RULE_SPLIT, GPT2},
      {RULE_SPLIT, "\\p{N}+"},
      {RULE_SPLIT, "[0-9][0-9][0-9]"},
      {RULE_BYTES, 0}}},
};

static bool is_named(const char *names, str name) {
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

quire_err tokenizer_apply_pre(tokenizer *t, str pre, quire_error *err) {
    str name = pre.n > 0 ? pre : str_of("default");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const pre_rules *p = &table[i];
        if (!is_named(p->names, name)) {
            continue;
        }
        t->bpe.ignore_merges = p->ignore_merges;
        if (p->nfc) {
            t->normalizer.steps[t->normalizer.n++] = (norm_step){.kind = NORM_NFC};
        }
        for (const rule *r = p->rules; r->kind != RULE_END; r++) {
            TRY(apply_rule(&t->pretokenizer, r, err));
        }
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer.ggml.pre \"%.*s\" is not supported by this version",
                   (int)(name.n < 80 ? name.n : 80), name.p);
}
