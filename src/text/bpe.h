/* Byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909) of one piece of text:
 * merges the pair of lowest rank first, of equal ones the leftmost. The same code runs
 * SentencePiece's BPE (Kudo & Richardson 2018, arXiv:1808.06226), where two neighbours
 * merge if together they are a piece of the vocabulary, ranked by the piece's score.
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
#define BPE_MAX_PIECE    1024 /* bytes of the longest piece */

/* Symbols are ids of the vocabulary; numbers from n_tokens on stand for characters that
 * only occur inside longer pieces. */
typedef struct bpe {
    const piece_table *vocab;
    const piece_trie *symbols; /* user-defined symbols, longest first, which never merge; NULL: none */
    pair_table pairs;
    /* characters that only occur inside pieces: id i is symbol n_tokens + i. Empty with
     * listed merges */
    piece_table inner;
    /* pairs of symbols whose characters are adjacent in some piece; no slots: unknown */
    pair_table neighbours;
    int32_t direct[BPE_DIRECT_CHARS]; /* symbols of the lowest code points; -1: none */
    /* byte fallback: ids of <0x00>..<0xFF>, -1: missing. For SentencePiece the builder
     * sets them */
    int32_t bytes[256];
    int32_t unk; /* the unknown token; -1: none, so an unknown character gives no token */
    bool fuse_unk, byte_fallback, sentencepiece;
    bool ignore_merges;  /* a word that is a token is not split */
    bool whole_newlines; /* a word of newlines only is not split */
    /* owned, NULL: none. prefix: of all characters of a word but the first; suffix: of
     * the last */
    char *prefix, *suffix;
    size_t n_prefix, n_suffix;
    /* [n_tokens] what encoding a token's own text gives: 0 not known yet, 1 the token, 2
     * other tokens */
    _Atomic(uint8_t) *whole;
} bpe;

/* How to build one: set vocab, unk and the options; bpe_begin; bpe_add_merge for each
 * merge in order of rank, or bpe_derive_merges; bpe_finish. With tables from a packed
 * model (tables.h), add no merges; tables that exist are not built again. After a
 * failure, only bpe_deinit. */
quire_err bpe_begin(bpe *b, size_t n_merges);
/* Adds a merge. QUIRE_NOT_FOUND if left, right or their concatenation is not in the
 * vocabulary. */
quire_err bpe_add_merge(bpe *b, uint32_t rank, str left, str right, strbuf *scratch);
/* SentencePiece: every split of a piece into two is a merge, ranked by scores[n_tokens],
 * higher first (NULL: all equal). QUIRE_UNSUPPORTED for a piece longer than
 * BPE_MAX_PIECE. */
quire_err bpe_derive_merges(bpe *b, const float *scores);
/* Finishes building. long_words: words are whole texts, since no pre-tokenizer cuts them;
 * then a table of neighbours is built, which shows where no merge can cross. */
quire_err bpe_finish(bpe *b, bool long_words);
void bpe_deinit(bpe *b);

typedef struct bpe_symbol {
    int32_t id;
    uint32_t at, n; /* its text in the word */
} bpe_symbol;

/* What a symbol and the next one merge into; id -1: nothing. */
typedef struct bpe_pair {
    uint32_t rank;
    int32_t id;
} bpe_pair;

/* The neighbours of a symbol; symbols that were merged into others stay in the array. */
typedef struct bpe_link {
    int32_t prev, next;
} bpe_link;

typedef struct bpe_scratch {
    bpe_symbol *symbols;
    size_t n_symbols, cap_symbols;
    bpe_pair *pairs;
    size_t cap_pairs;
    bpe_link *links; /* for words of many symbols */
    size_t cap_links;
    uint64_t *heap; /* keys: rank, then position */
    size_t n_heap, cap_heap;
    strbuf affixed; /* a character with its prefix and suffix */
} bpe_scratch;

void bpe_scratch_deinit(bpe_scratch *s);

/* Appends the ids of word, which is valid UTF-8 and not empty. A character outside the
 * vocabulary gives no token if there is neither an unknown token nor byte fallback. O(n
 * log n). QUIRE_NO_MEMORY; QUIRE_TOO_LARGE above 2 GiB; *out may then hold a part. */
quire_err bpe_encode(const bpe *b, str word, bpe_scratch *s, token_list *out);
/* Merges a word's symbols in place until no neighbours merge: the inner part of
 * bpe_encode. O(n log n). QUIRE_NO_MEMORY. */
quire_err bpe_merge(const bpe *b, bpe_scratch *s);

#endif
