/* Byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909) of one piece: the pair of
 * lowest rank merges first, the leftmost of equal ones. The same code runs
 * SentencePiece's BPE (Kudo & Richardson 2018, arXiv:1808.06226): two neighbours merge if
 * they make a piece of the vocabulary, and the rank is the order of the pieces' scores.
 *
 * Immutable once built, except for `whole`, a cache that any thread may fill. Each call
 * brings its own scratch. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/piece_table.h"
#include "text/token_list.h"

#define BPE_DIRECT_CHARS 0x400
#define BPE_MAX_PIECE    1024 /* bytes */

/* Symbols are ids of the vocabulary, or numbers from n_tokens on for characters that only
 * occur inside longer pieces. */
typedef struct bpe {
    const piece_table *vocab;
    const piece_trie *symbols; /* user-defined symbols, longest first, which never merge; NULL: none */
    pair_table pairs;
    /* those characters; id i is symbol n_tokens + i. Empty for listed merges */
    piece_table inner;
    /* symbols of adjacent characters inside some piece; no slots: unknown */
    pair_table neighbours;
    int32_t direct[BPE_DIRECT_CHARS]; /* symbols of the first characters, -1: none */
    /* byte fallback: <0x00>..<0xFF>, -1: not there. For sentencepiece the builder sets
     * them */
    int32_t bytes[256];
    int32_t unk; /* -1: none; an unknown character then gives no token */
    bool fuse_unk, byte_fallback, sentencepiece;
    bool ignore_merges;  /* a word that is a token is that token */
    bool whole_newlines; /* one of newlines only is */
    /* owned, NULL: none. prefix of a word's characters but the first, suffix of its
     * last */
    char *prefix, *suffix;
    size_t n_prefix, n_suffix;
    /* [n_tokens]: what encoding a token's own text gives: 0 unknown, 1 that token, 2
     * others */
    _Atomic(uint8_t) *whole;
} bpe;

/* To build: set vocab, unk and the options; bpe_begin; then either bpe_add_merge for each
 * merge in order of rank, or bpe_derive_merges; then bpe_finish. With tables from a
 * packed model (tables.h) no merges are added, and existing tables are not built again.
 * After a failure only bpe_deinit may follow. */
quire_err bpe_begin(bpe *b, size_t n_merges);
/* QUIRE_NOT_FOUND when left, right or their concatenation is not in the vocabulary.
 * scratch is the caller's. */
quire_err bpe_add_merge(bpe *b, uint32_t rank, str left, str right, strbuf *scratch);
/* For SentencePiece: every split of a piece in two is a merge, ranked by scores[n_tokens]
 * (higher first; NULL: all are equal). QUIRE_UNSUPPORTED for a piece of more than
 * BPE_MAX_PIECE bytes. */
quire_err bpe_derive_merges(bpe *b, const float *scores);
/* long_words: words are whole texts, not cut by a pre-tokenizer. Then the table of
 * neighbours is built, which shows where no merge can cross. */
quire_err bpe_finish(bpe *b, bool long_words);
void bpe_deinit(bpe *b);

typedef struct bpe_symbol {
    int32_t id;
    uint32_t at, n; /* its text in the word */
} bpe_symbol;

/* What a symbol and the one after it make; id -1: nothing. */
typedef struct bpe_pair {
    uint32_t rank;
    int32_t id;
} bpe_pair;

/* The neighbours of a symbol, where those that have merged into others stay in place. */
typedef struct bpe_link {
    int32_t prev, next;
} bpe_link;

typedef struct bpe_scratch {
    bpe_symbol *symbols;
    size_t n_symbols, cap_symbols;
    bpe_pair *pairs;
    size_t cap_pairs;
    bpe_link *links; /* of words of many symbols */
    size_t cap_links;
    uint64_t *heap; /* rank, then position */
    size_t n_heap, cap_heap;
    strbuf affixed; /* a character with its prefix or suffix */
} bpe_scratch;

void bpe_scratch_deinit(bpe_scratch *s);

/* Appends the ids of word, which is valid UTF-8 and not empty. O(n log n). A character
 * outside the vocabulary gives no token when there is neither an unknown token nor byte
 * fallback. QUIRE_NO_MEMORY; QUIRE_TOO_LARGE past 2 GiB: *out may then hold a part. */
quire_err bpe_encode(const bpe *b, str word, bpe_scratch *s, token_list *out);
/* Merges the symbols of a word, in place, until no pair of neighbours merges:
 * bpe_encode's inner part. O(n log n). QUIRE_NO_MEMORY. */
quire_err bpe_merge(const bpe *b, bpe_scratch *s);

#endif
