/* A piece model turns a piece of text into ids. One table of functions covers all kinds:
 * BPE, Unigram, WordPiece, WordLevel, SentencePiece's words.
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

/* The unigram language model (Kudo 2018, arXiv:1804.10959): of all ways to write a text
 * as pieces of the vocabulary, chooses the one with the highest sum of scores (Viterbi).
 * A character without a piece counts as unknown, with a score below all others.
 *
 * Immutable once built; each call brings its own scratch. */

#define UNIGRAM_UNKNOWN_PENALTY 10.0 /* an unknown character scores this much below the lowest piece */

typedef struct unigram {
    const piece_table *vocab;
    piece_trie trie;   /* the pieces that text may become */
    double *scores;    /* [vocab->n] */
    bool borrowed;     /* scores is not owned */
    uint8_t *controls; /* [vocab->n] 1: a control token */
    double unknown_score;
    int32_t unk;        /* the unknown token; -1: an unknown character gives no token */
    int32_t bytes[256]; /* byte fallback: a token per byte; -1: missing */
    bool byte_fallback;
    bool sums_float; /* sums are rounded to float, as in sentencepiece */
    /* as in the tokenizers library: an unknown run whose text is a piece becomes that
     * piece; unk may be part of such runs */
    bool names_runs;
} unigram;

void unigram_deinit(unigram *u);

/* The best way to write the text up to a position; its last piece is id, which starts at
 * `from`. */
typedef struct unigram_node {
    double score;
    size_t from;
    int32_t id;
} unigram_node;

typedef struct unigram_scratch {
    unigram_node *nodes; /* for the stretch of text in progress */
    size_t cap_nodes;
    size_t *ends; /* ends of the pieces on the best way, last first */
    size_t cap_ends;
    /* set by the caller: text does not become control tokens, even if they are pieces */
    bool no_controls;
} unigram_scratch;

void unigram_scratch_deinit(unigram_scratch *s);

/* Appends the ids of text, which is valid UTF-8. O(n) times the longest piece, polled
 * (base/turn.h). QUIRE_NO_MEMORY, errors of turn_poll; *out may then hold a part. */
quire_err unigram_encode(const unigram *u, str text, unigram_scratch *s, token_list *out);

/* WordPiece (Schuster & Nakajima 2012; BERT, arXiv:1810.04805): writes a word as its
 * longest prefix that is a piece, then the longest continuation, and so on. A word that
 * this does not cover, or that is too long, is unknown as a whole.
 *
 * Immutable once built. */

typedef struct wordpiece {
    piece_trie trie;   /* pieces that begin words are under `begins`, continuations under `continues` */
    int32_t begins;    /* node; -1: no piece begins a word */
    str mark;          /* prefix of pieces that begin words, absent from continuations; empty: none. Static */
    int32_t continues; /* node; -1: no piece continues a word */
    int32_t unk;
    int32_t max_chars; /* characters of the longest word */
} wordpiece;

void wordpiece_deinit(wordpiece *w);
/* Appends the ids of word, which is valid UTF-8. O(n) times the longest piece.
 * QUIRE_NO_MEMORY. */
quire_err wordpiece_encode(const wordpiece *w, str word, token_list *out);

typedef struct piece_model piece_model;

/* Scratch of one encoding. */
typedef struct model_scratch {
    bpe_scratch bpe;
    unigram_scratch unigram;
    /* words: number of ids after the last unknown word's id; 0: none yet */
    size_t after_unknown;
} model_scratch;

void model_scratch_deinit(model_scratch *s);

typedef struct piece_model_ops {
    const char *name; /* as in tokenizer.json */
    /* Appends the ids of a piece, which is valid UTF-8 and not empty. QUIRE_NO_MEMORY;
     * QUIRE_TOO_LARGE above 2 GiB; errors of turn_poll. */
    quire_err (*encode)(const piece_model *m, str piece, model_scratch *s, token_list *out);
    /* The tokens of byte fallback, [256]; -1: no token for that byte. NULL: no byte
     * fallback. */
    const int32_t *(*bytes)(const piece_model *m);
    /* Longer texts always have more tokens: no word becomes a single unknown token. */
    bool spells;
    void (*deinit)(piece_model *m);
} piece_model_ops;

extern const piece_model_ops piece_model_bpe, piece_model_unigram, piece_model_wordpiece,
    piece_model_wordlevel, piece_model_words;

/* SentencePiece's words: a word becomes its token, else its bytes, else it is unknown
 * together with an unknown word before it. */
typedef struct words {
    bool byte_fallback;
    int32_t bytes[256];
} words;

/* All ids are below vocab->n. */
struct piece_model {
    const piece_model_ops *ops; /* NULL: not built */
    const piece_table *vocab;
    int32_t unk; /* the unknown token; -1: none */
    union {
        bpe bpe;
        unigram unigram;
        wordpiece wordpiece;
        words words;
    };
};

/* Resets *m to an empty model of one kind, whose own part is zeroed. */
void piece_model_init(piece_model *m, const piece_model_ops *ops, const piece_table *vocab, int32_t unk);
void piece_model_deinit(piece_model *m);

#endif
