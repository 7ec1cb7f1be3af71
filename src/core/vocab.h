/* A vocabulary as read from a file, from which src/text makes a tokenizer. The file owns
 * the bytes: they are valid while it is open. */
#ifndef CORE_VOCAB_H
#define CORE_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef enum vocab_source {
    VOCAB_NONE,
    VOCAB_GGUF,
    VOCAB_TOKENIZER_JSON,
    VOCAB_SENTENCEPIECE, /* a .model file */
    VOCAB_RANKS,         /* a rank file of tiktoken */
    VOCAB_TEKKEN         /* Mistral's tekken.json */
} vocab_source;

/* A special token that is not in the rank file itself. */
typedef struct vocab_special {
    str text;
    int32_t id;
} vocab_special;

/* GGUF token types (tokenizer.ggml.token_type). */
typedef enum vocab_type {
    VOCAB_UNDEFINED,
    VOCAB_NORMAL,
    VOCAB_UNKNOWN,
    VOCAB_CONTROL,
    VOCAB_USER_DEFINED,
    VOCAB_UNUSED,
    VOCAB_BYTE
} vocab_type;

typedef struct vocab {
    vocab_source source;

    /* VOCAB_GGUF: tokenizer.ggml.* */
    str model; /* "llama" (SentencePiece BPE), "gpt2" (byte-level BPE) ... */
    str pre;   /* "llama-bpe", "qwen2", ...; empty when absent */
    int32_t n_tokens;
    const str *tokens;    /* [n_tokens] */
    const float *scores;  /* [n_tokens] or NULL: all are 0 */
    const int32_t *types; /* [n_tokens] or NULL: vocab_type */
    int32_t n_merges;
    const str *merges;               /* [n_merges] "left right" */
    int32_t bos, eos, unk, pad, sep; /* -1: not given */
    /* tokens of fill-in-the-middle (text/added.h): before the prefix, the suffix and the
     * answer; -1: not given */
    int32_t fim_pre, fim_suf, fim_mid;
    int32_t add_bos, add_eos, add_space_prefix;                 /* -1: not given, else 0 or 1 */
    int32_t remove_extra_whitespaces, lowercase, strip_accents; /* the same */
    str charsmap; /* "t5": rules of the normalizer; empty: none */

    /* Of a packed model: the tokenizer's tables as src/text wrote them. Then tokens,
     * scores and merges, or those of tokenizer_json, are left out, and n_tokens counts
     * types. Empty: text builds the tables. Aligned to 64. */
    str tables;

    /* VOCAB_TOKENIZER_JSON: the files' bytes; empty when absent */
    str tokenizer_json, tokenizer_config_json, special_tokens_map_json;

    /* VOCAB_SENTENCEPIECE, VOCAB_RANKS, VOCAB_TEKKEN: the file's bytes. Beside them
     * tokenizer_config_json, if there is one */
    str model_bytes;
    /* VOCAB_RANKS: the expression that cuts a text, and special tokens. Empty: those
     * published with as many ranks */
    str pattern;
    const vocab_special *specials; /* [n_specials] */
    int32_t n_specials;
} vocab;

#endif
