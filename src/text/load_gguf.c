/* Loads a tokenizer from GGUF metadata. "gpt2" is byte-level BPE with listed merges,
 * "gemma4" the same over text with marks, "llama" SentencePiece's BPE with scores, "t5"
 * its Unigram, "bert" WordPiece. Unset flags have llama.cpp's defaults. */
#include "base/mem.h"
#include "text/chars.h"
#include "text/model_build.h"
#include "text/sp_model.h"
#include "text/tables.h"
#include "text/tokenizer_impl.h"

#define MARK     SP_MARK
#define MAX_WORD 100 /* characters of the longest BERT word */

static vocab_type type_at(const vocab *v, int32_t id) {
    return v->types == NULL ? VOCAB_NORMAL : (vocab_type)v->types[id];
}

static quire_err load_gguf_check(const vocab *v, quire_error *err) {
    if (v->n_tokens < 1 || (v->tokens == NULL && v->tables.n == 0)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml.tokens is missing or empty");
    }
    const int32_t ids[] = {v->bos, v->eos, v->unk, v->pad};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (ids[i] < -1 || ids[i] >= v->n_tokens) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "tokenizer.ggml: special token %d is outside the vocabulary of %d", ids[i],
                           v->n_tokens);
        }
    }
    return QUIRE_OK;
}

/* Whether plain text may become this token. In SentencePiece bytes and controls may not;
 * in byte-level BPE all may, since only merges decide. */
static bool load_gguf_is_findable(const vocab *v, int32_t id, bool sentencepiece) {
    vocab_type k = type_at(v, id);
    return sentencepiece ? k == VOCAB_NORMAL || k == VOCAB_USER_DEFINED || k == VOCAB_UNUSED : true;
}

static quire_err load_gguf_load_pieces(tokenizer *t, const vocab *v, bool sentencepiece, quire_error *err) {
    size_t n_bytes = 0;
    if (v->tables.n > 0) {
        TRY(tables_take(t, v->tables, err));
        return model_check_tables(t, v->n_tokens, err);
    }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        n_bytes += v->tokens[i].n;
    }
    TRY(piece_table_init(&t->vocab, v->n_tokens, (size_t)v->n_tokens, n_bytes));
    for (int32_t i = 0; i < v->n_tokens; i++) {
        bool again = type_at(v, i) == VOCAB_USER_DEFINED && piece_table_find(&t->vocab, v->tokens[i]) >= 0;
        TRY(load_gguf_is_findable(v, i, sentencepiece) && !again
                ? piece_table_add(&t->vocab, i, v->tokens[i])
                : piece_table_add_hidden(&t->vocab, i, v->tokens[i]));
    }
    return QUIRE_OK;
}

static quire_err load_gguf_load_added(tokenizer *t, const vocab *v) {
    for (int32_t i = 0; i < v->n_tokens; i++) {
        vocab_type k = type_at(v, i);
        bool special = k == VOCAB_CONTROL || k == VOCAB_UNKNOWN;
        str text = piece_table_get(&t->vocab, i);
        if ((special || k == VOCAB_USER_DEFINED) && utf8_is_valid(text)) {
            TRY(added_set_add(&t->added,
                              &(added_token){.id = i, .content = text, .pattern = text, .special = special}));
        }
    }
    return added_set_finish(&t->added, v->n_tokens);
}

/* Sets bos and eos and their texts. ends: default of add_eos. */
static quire_err load_special_texts(tokenizer *t, const vocab *v, pre_start start, bool ends) {
    t->bos = v->bos;
    t->eos = v->eos;
    str bos = tokenizer_piece(t, v->bos), eos = tokenizer_piece(t, v->eos);
    TRY(strbuf_add(&t->bos_text, bos.p, bos.n));
    TRY(strbuf_add(&t->eos_text, eos.p, eos.n));
    bool starts = start == PRE_ALWAYS_STARTS || (v->add_bos < 0 ? start == PRE_STARTS : v->add_bos == 1);
    bool add_bos = starts && v->bos >= 0;
    bool add_eos = (v->add_eos < 0 ? ends : v->add_eos == 1) && v->eos >= 0;
    return add_bos || add_eos ? tokenizer_surround(t, add_bos ? v->bos : -1, add_eos ? v->eos : -1)
                              : QUIRE_OK;
}

/* ---- byte-level BPE ---- */

/* Splits "left right". Either side may begin with a space, but is not just a space. */
static bool split_merge(str line, str *left, str *right) {
    const char *space = line.n < 3 ? NULL : memchr(line.p + 1, ' ', line.n - 2);
    if (space == NULL) {
        return false;
    }
    *left = (str){line.p, (size_t)(space - line.p)};
    *right = (str){space + 1, line.n - left->n - 1};
    return true;
}

static quire_err load_gguf_load_merges(tokenizer *t, const vocab *v, quire_error *err) {
    strbuf scratch = {0};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < v->n_merges && e == QUIRE_OK; i++) {
        str left, right;
        e = split_merge(v->merges[i], &left, &right)
                ? bpe_add_merge(&t->model.bpe, (uint32_t)i, left, right, &scratch)
                : QUIRE_NOT_FOUND;
        if (e == QUIRE_NOT_FOUND) {
            e = err_set(err, QUIRE_BAD_FILE, -1,
                        "tokenizer.ggml.merges[%d] \"%.*s\" does not join two tokens into a third", i,
                        (int)(v->merges[i].n < 80 ? v->merges[i].n : 80), v->merges[i].p);
        }
    }
    strbuf_deinit(&scratch);
    return e;
}

static quire_err load_byte_level(tokenizer *t, const vocab *v, quire_error *err) {
    pre_start start = PRE_AS_SAID;
    str pre = str_is(v->model, "gemma4") ? v->model : v->pre;
    if ((v->n_merges < 1 || v->merges == NULL) && v->tables.n == 0 && !str_is(pre, "kimi-k2")) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.ggml.merges is missing; byte-level BPE needs it");
    }
    piece_model_init(&t->model, &piece_model_bpe, &t->vocab, -1);
    TRY(load_gguf_load_pieces(t, v, false, err));
    TRY(load_gguf_load_added(t, v));
    TRY(tokenizer_apply_pre(t, pre, &start, err));
    TRY(bpe_begin(&t->model.bpe, (size_t)v->n_merges));
    TRY(load_gguf_load_merges(t, v, err));
    TRY(bpe_finish(&t->model.bpe, t->decoder.n > 0));
    if (t->decoder.n == 0) { /* unless the pre-tokenizer has set one */
        t->decoder.steps[t->decoder.n++] = (decode_step){.kind = DECODE_BYTE_LEVEL};
    }
    return load_special_texts(t, v, start, false);
}

/* ---- SentencePiece ---- */

static quire_err load_gguf_load_classes(tokenizer *t, const vocab *v) {
    t->classes = mem_new((size_t)v->n_tokens, 1);
    TRY(mem_check(t->classes));
    for (int32_t i = 0; i < v->n_tokens; i++) {
        vocab_type k = type_at(v, i);
        t->classes[i] = k == VOCAB_BYTE      ? PIECE_BYTE
                        : k == VOCAB_CONTROL ? PIECE_CONTROL
                        : k == VOCAB_UNKNOWN ? PIECE_UNKNOWN
                                             : PIECE_NORMAL;
    }
    return QUIRE_OK;
}

static bool load_gguf_is_byte(const void *context, int32_t id) {
    return type_at(context, id) == VOCAB_BYTE;
}

static quire_err add_mark_steps(tokenizer *t, bool prefix) {
    normalizer *n = &t->normalizer;
    if (prefix) {
        norm_step *step = &n->steps[n->n++];
        *step = (norm_step){.kind = NORM_PREPEND, .content = mem_dup(MARK, 3), .n_content = 3};
        TRY(mem_check(step->content));
    }
    norm_step *step = &n->steps[n->n++];
    *step = (norm_step){.kind = NORM_REPLACE, .content = mem_dup(MARK, 3), .n_content = 3};
    decode_step *back = &t->decoder.steps[t->decoder.n++];
    *back = (decode_step){
        .kind = DECODE_SENTENCEPIECE, .content = mem_dup(MARK, 3), .n_content = 3, .strip_first = prefix};
    return step->content == NULL || back->content == NULL ? QUIRE_NO_MEMORY
                                                          : matcher_open_literal(str_of(" "), &step->match);
}

static quire_err load_sentencepiece(tokenizer *t, const vocab *v, quire_error *err) {
    piece_model_init(&t->model, &piece_model_bpe, &t->vocab, v->unk);
    TRY(load_gguf_load_pieces(t, v, true, err));
    TRY(load_gguf_load_added(t, v));
    TRY(load_gguf_load_classes(t, v));
    t->model.bpe.sentencepiece = true;
    t->model.bpe.byte_fallback = model_find_bytes(&t->vocab, load_gguf_is_byte, v, t->model.bpe.bytes) > 0;
    TRY(add_mark_steps(t, v->add_space_prefix != 0));
    TRY(bpe_begin(&t->model.bpe, (size_t)v->n_tokens * 2));
    quire_err e = v->tables.n > 0 ? QUIRE_OK : bpe_derive_merges(&t->model.bpe, v->scores);
    if (e != QUIRE_OK) {
        return e == QUIRE_UNSUPPORTED
                   ? err_set(err, e, -1, "tokenizer.ggml.tokens: a token of more than %d bytes",
                             BPE_MAX_PIECE)
                   : e;
    }
    TRY(bpe_finish(&t->model.bpe, true));
    return load_special_texts(t, v, PRE_STARTS, false);
}

/* ---- "t5": SentencePiece's Unigram ---- */

static quire_err fill_t5(const vocab *v, sp_model *m) {
    m->pieces = mem_new((size_t)v->n_tokens, sizeof *m->pieces);
    TRY(mem_check(m->pieces));
    m->n = (size_t)v->n_tokens;
    m->kind = SP_UNIGRAM;
    m->byte_fallback = true; /* used if the file has bytes */
    m->dummy_prefix = v->add_space_prefix != 0;
    m->remove_extra = v->remove_extra_whitespaces == 1;
    m->charsmap = v->charsmap;
    m->unk = v->unk;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        m->pieces[i] = (sp_piece){.text = v->tokens != NULL ? v->tokens[i] : (str){"", 0},
                                  .score = v->scores != NULL ? v->scores[i] : 0,
                                  .type = type_at(v, i) == VOCAB_UNDEFINED ? VOCAB_UNUSED : type_at(v, i)};
        m->unk = m->unk < 0 && m->pieces[i].type == VOCAB_UNKNOWN ? i : m->unk;
    }
    return QUIRE_OK;
}

static quire_err load_t5(tokenizer *t, const vocab *v, quire_error *err) {
    sp_model m;
    sp_model_init(&m, "tokenizer.ggml");
    quire_err e = fill_t5(v, &m);
    TRY_DONE(e, sp_model_build(&m, v->tables, t, err));
done:
    sp_model_deinit(&m);
    TRY(e);
    return load_special_texts(t, v, PRE_AS_SAID, true);
}

/* ---- "bert": WordPiece with a mark before pieces that begin words ---- */

static quire_err load_gguf_add_step(normalizer *n, norm_kind kind) {
    n->steps[n->n++] = (norm_step){.kind = kind};
    return QUIRE_OK;
}

static quire_err add_bert_steps(tokenizer *t, const vocab *v, quire_error *err) {
    bool lower = v->lowercase != 0;
    TRY(load_gguf_add_step(&t->normalizer, NORM_BERT_CLEAN));
    TRY(load_gguf_add_step(&t->normalizer, NORM_BERT_CHINESE));
    if (v->strip_accents >= 0 ? v->strip_accents == 1 : lower) {
        TRY(load_gguf_add_step(&t->normalizer, NORM_NFD));
        TRY(load_gguf_add_step(&t->normalizer, NORM_DROP_NONSPACING));
    }
    if (lower) {
        TRY(load_gguf_add_step(&t->normalizer, NORM_LOWERCASE));
    }
    TRY(pretokenizer_add_chars(&t->pretokenizer, CLASS_SPACE, 0, SPLIT_REMOVED, err));
    TRY(pretokenizer_add_chars(&t->pretokenizer, CLASS_PUNCTUATION, 0, SPLIT_ISOLATED, err));
    decode_step *back = &t->decoder.steps[t->decoder.n++];
    *back = (decode_step){.kind = DECODE_WORDPIECE,
                          .cleanup = true,
                          .marks_words = true,
                          .content = mem_dup(MARK, 3),
                          .n_content = 3};
    return mem_check(back->content);
}

/* Sets [CLS] A [SEP], and [CLS] A [SEP] B [SEP]. */
static quire_err surround_bert(tokenizer *t, const vocab *v) {
    int32_t cls = v->bos >= 0 ? v->bos : tokenizer_find(t, str_of("[CLS]"));
    int32_t sep = v->sep >= 0 ? v->sep : v->eos >= 0 ? v->eos : tokenizer_find(t, str_of("[SEP]"));
    for (int two = 0; two < 2; two++) {
        post_template *p = two ? &t->post.pair : &t->post.single;
        if (cls >= 0 && v->add_bos != 0) {
            TRY(post_template_add(p, POST_TOKENS, 0, &cls, 1));
        }
        for (int i = 0; i <= two; i++) {
            TRY(post_template_add(p, i == 0 ? POST_A : POST_B, i, NULL, 0));
            if (sep >= 0 && v->add_eos != 0) {
                TRY(post_template_add(p, POST_TOKENS, i, &sep, 1));
            }
        }
    }
    return QUIRE_OK;
}

static quire_err load_bert(tokenizer *t, const vocab *v, quire_error *err) {
    wordpiece *w = &t->model.wordpiece;
    piece_model_init(&t->model, &piece_model_wordpiece, &t->vocab, v->unk);
    TRY(load_gguf_load_pieces(t, v, true, err));
    for (int32_t i = 0; i < t->vocab.n && t->model.unk < 0; i++) {
        t->model.unk = str_is(piece_table_get(&t->vocab, i), "[UNK]") ? i : -1;
    }
    if (t->model.unk < 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tokenizer.ggml.tokens: a \"bert\" tokenizer without an unknown token");
    }
    TRY(load_gguf_load_added(t, v));
    TRY(add_bert_steps(t, v, err));
    w->unk = t->model.unk;
    w->max_chars = MAX_WORD;
    if (w->trie.units == NULL) {
        TRY(model_build_trie(t, &w->trie));
    }
    model_find_word_starts(w, str_of(MARK), (str){"", 0});
    w->mark = str_of(MARK);
    TRY(load_special_texts(t, v, PRE_AS_SAID, false));
    postprocessor_deinit(&t->post);
    return surround_bert(t, v);
}

quire_err tokenizer_load_gguf(tokenizer *t, const vocab *v, quire_error *err) {
    TRY(load_gguf_check(v, err));
    if (str_is(v->model, "gpt2") || str_is(v->model, "gemma4")) {
        return load_byte_level(t, v, err);
    }
    if (str_is(v->model, "llama")) {
        return load_sentencepiece(t, v, err);
    }
    if (str_is(v->model, "t5")) {
        return load_t5(t, v, err);
    }
    if (str_is(v->model, "bert")) {
        return load_bert(t, v, err);
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "tokenizer.ggml.model \"%.*s\" is not supported by this version",
                   (int)(v->model.n < 80 ? v->model.n : 80), v->model.p);
}

/* The pre-tokenizers of tokenizer.ggml.pre as tables of steps, for every name that
 * llama.cpp knows. */

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
    const char *pattern; /* SPLIT: each match is a piece */
} rule;

typedef struct pre_rules {
    const char *names; /* separated by spaces */
    bool nfc, ignore_merges, whole_newlines;
    pre_start start;
    /* tokens are plain text, not in the byte-level alphabet; bytes are <0x00> etc. */
    bool raw;
    bool marks; /* with raw: U+2581 is a space */
    rule rules[8];
} pre_rules;

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3       CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL
#define QWEN2        CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL
#define GPT2         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Words by case, capitals before small letters, as in o200k and tekken. */
#define UPPER      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD       "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K                                                                                                \
    LEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" LEAD UPPER "+" LOWER "*" CONTRACTIONS                         \
               "?|\\p{N}{1,3}" CASED_TAIL
#define TEKKEN LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}" CASED_TAIL

#define CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* Letters of alphabets with upper and lower case, as DeepSeek LLM lists them. */
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

/* Words of letters with their marks, where single spaces join words. */
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
#define THREES "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))" /* groups of three digits from the right */
/* Cuts digits into groups of three from the right. Only the cuts matter: matches are
 * groups of three before another one, or the empty start of the last group. A match ends
 * after three digits, so one pass finds all. */
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
    /* If the file names none: llama.cpp's default. */
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

/* Finds byte tokens for characters without a token, and turns spaces into marks, for
 * texts that are not in the byte-level alphabet. */
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
