/* Piece model: what turns a piece of text into ids. There are four, behind one table of
 * functions: BPE, Unigram, WordPiece, WordLevel.
 *
 * Immutable once built, except for a cache in BPE: any thread may encode with its own
 * scratch. */
#ifndef TEXT_PIECE_MODEL_H
#define TEXT_PIECE_MODEL_H

#include "base/str.h"
#include "text/bpe.h"
#include "text/piece_trie.h"
#include "text/token_list.h"
#include "text/unigram.h"
#include <stdint.h>

/* WordPiece (Schuster & Nakajima 2012; BERT, arXiv:1810.04805) of one word: the longest
 * piece that it begins with, then the longest continuation, and so on. A word that cannot
 * be written so to its end, or that is too long, is unknown as a whole.
 *
 * Immutable once built. */

typedef struct wordpiece {
    piece_trie trie;   /* beginnings from `begins` on, continuations from `continues` on */
    int32_t begins;    /* -1: no piece begins a word */
    str mark;          /* begins the pieces that begin words, and so no continuation; empty: none. Static */
    int32_t continues; /* -1: none continues one */
    int32_t unk;
    int32_t max_chars; /* of a word */
} wordpiece;

void wordpiece_deinit(wordpiece *w);
/* Appends the ids of word, valid UTF-8. O(n) times the longest piece. QUIRE_NO_MEMORY. */
quire_err wordpiece_encode(const wordpiece *w, str word, token_list *out);

typedef struct piece_model piece_model;

/* Of one encoding. */
typedef struct model_scratch {
    bpe_scratch bpe;
    unigram_scratch unigram;
    /* of words: how many ids there were when the last unknown word had its own; 0: none
     * yet */
    size_t after_unknown;
} model_scratch;

void model_scratch_deinit(model_scratch *s);

typedef struct piece_model_ops {
    const char *name; /* as tokenizer.json has it */
    /* Appends the ids of a piece, which is valid UTF-8 and not empty. QUIRE_NO_MEMORY;
     * QUIRE_TOO_LARGE past 2 GiB; errors of turn_poll. */
    quire_err (*encode)(const piece_model *m, str piece, model_scratch *s, token_list *out);
    /* The tokens of byte fallback, [256] with -1 if there is none; NULL where the model
     * has no such fallback. */
    const int32_t *(*bytes)(const piece_model *m);
    /* Whether a longer text always has more tokens: no word becomes one unknown token. */
    bool spells;
    void (*deinit)(piece_model *m);
} piece_model_ops;

extern const piece_model_ops piece_model_bpe, piece_model_unigram, piece_model_wordpiece,
    piece_model_wordlevel, piece_model_words;

/* SentencePiece's words: a word is a token, else its bytes are, or it is unknown together
 * with the unknown word before it. */
typedef struct words {
    bool byte_fallback;
    int32_t bytes[256];
} words;

/* The ids lie below vocab's n. */
struct piece_model {
    const piece_model_ops *ops; /* NULL: not built */
    const piece_table *vocab;
    int32_t unk; /* -1: none */
    union {
        bpe bpe;
        unigram unigram;
        wordpiece wordpiece;
        words words;
    };
};

/* Empties *m and makes it one of a kind; the parts of that kind are zero. */
void piece_model_init(piece_model *m, const piece_model_ops *ops, const piece_table *vocab, int32_t unk);
void piece_model_deinit(piece_model *m);

#endif
