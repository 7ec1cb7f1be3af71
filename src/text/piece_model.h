/* Piece model: what turns a piece of text into ids. There are four, behind one table of
 * functions: BPE, Unigram, WordPiece, WordLevel.
 *
 * Immutable once built, except for a cache in BPE: any thread may encode with its own
 * scratch. */
#ifndef TEXT_PIECE_MODEL_H
#define TEXT_PIECE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/bpe.h"
#include "text/piece_table.h"
#include "text/token_list.h"

/* The unigram language model (Kudo 2018, arXiv:1804.10959) of one piece: of all ways to
 * write it as pieces of the vocabulary, the one with the highest sum of scores (Viterbi).
 * A character that is not a piece counts as unknown, at a score below all others.
 *
 * Immutable once built; each call brings its own scratch. */

#define UNIGRAM_UNKNOWN_PENALTY 10.0 /* below the lowest score of a piece */

typedef struct unigram {
    const piece_table *vocab;
    piece_trie trie;   /* the pieces that text may become */
    double *scores;    /* [vocab->n] */
    bool borrowed;     /* scores belong to another */
    uint8_t *controls; /* [vocab->n]: 1 for a control token */
    double unknown_score;
    int32_t unk;        /* -1: an unknown character gives no token */
    int32_t bytes[256]; /* of byte fallback; -1: not there */
    bool byte_fallback;
    bool sums_float; /* sums are rounded to float, as sentencepiece has them */
    /* as in the tokenizers library: an unknown run that spells a piece is that piece; unk
     * is a part of such runs */
    bool names_runs;
} unigram;

void unigram_deinit(unigram *u);

/* The best way to write the text up to a position: its last piece is id, from `from`
 * on. */
typedef struct unigram_node {
    double score;
    size_t from;
    int32_t id;
} unigram_node;

typedef struct unigram_scratch {
    unigram_node *nodes; /* of the stretch in work */
    size_t cap_nodes;
    size_t *ends; /* where the pieces of the best way end, last first */
    size_t cap_ends;
    /* set by the caller: text does not become a control token, though its piece be in the
     * vocabulary */
    bool no_controls;
} unigram_scratch;

void unigram_scratch_deinit(unigram_scratch *s);

/* Appends the ids of text, valid UTF-8. O(n) times the longest piece, polled
 * (base/turn.h). QUIRE_NO_MEMORY, errors of turn_poll: *out may then hold a part. */
quire_err unigram_encode(const unigram *u, str text, unigram_scratch *s, token_list *out);

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
    /* The tokens of byte fallback, [256], -1: none for the byte; NULL: the model has
     * no such fallback. */
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
