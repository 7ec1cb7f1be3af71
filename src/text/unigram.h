/* The unigram language model (Kudo 2018, arXiv:1804.10959) of one piece: of all ways to
 * write it as pieces of the vocabulary, the one with the highest sum of scores (Viterbi).
 * A character that is no piece counts as unknown, at a score below all others.
 *
 * Immutable once built; each call brings its own scratch. */
#ifndef TEXT_UNIGRAM_H
#define TEXT_UNIGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/piece_table.h"
#include "text/piece_trie.h"
#include "text/token_list.h"

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

#endif
