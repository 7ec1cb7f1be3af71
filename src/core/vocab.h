/* A vocabulary as read from a file, from which src/text makes a tokenizer. The bytes
 * belong to the file and are valid while it is open. */
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

/* A special token that is not in the rank file. */
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

    /* VOCAB_GGUF: the file's tokenizer.ggml.* keys */
    str model; /* "llama" (SentencePiece BPE), "gpt2" (byte-level BPE) ... */
    str pre;   /* "llama-bpe", "qwen2", ...; empty when absent */
    int32_t n_tokens;
    const str *tokens;    /* [n_tokens] */
    const float *scores;  /* [n_tokens] or NULL: all are 0 */
    const int32_t *types; /* [n_tokens] or NULL: vocab_type */
    int32_t n_merges;
    const str *merges;               /* [n_merges] "left right" */
    int32_t bos, eos, unk, pad, sep; /* -1: not given */
    /* fill-in-the-middle tokens before the prefix, the suffix and the answer
     * (text/added.h); -1: not given */
    int32_t fim_pre, fim_suf, fim_mid;
    int32_t add_bos, add_eos, add_space_prefix;                 /* 0 or 1; -1: not given */
    int32_t remove_extra_whitespaces, lowercase, strip_accents; /* 0 or 1; -1: not given */
    str charsmap; /* a T5 tokenizer's normalisation rules; empty: none */

    /* Packed model: the tokenizer's tables, as src/text wrote them. Then tokens, scores
     * and merges, or those in tokenizer_json, are left out, and n_tokens counts types.
     * Empty: text builds the tables. Aligned to 64. */
    str tables;

    /* VOCAB_TOKENIZER_JSON: contents of these files; empty if absent */
    str tokenizer_json, tokenizer_config_json, special_tokens_map_json;

    /* VOCAB_SENTENCEPIECE, VOCAB_RANKS, VOCAB_TEKKEN: the contents of the file, with
     * tokenizer_config_json if there is one */
    str model_bytes;
    /* VOCAB_RANKS: the pattern that splits text, and special tokens. Empty: those
     * published with a vocabulary of this size */
    str pattern;
    const vocab_special *specials; /* [n_specials] */
    int32_t n_specials;
} vocab;

#endif
