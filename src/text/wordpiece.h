/* WordPiece (Schuster & Nakajima 2012; BERT, arXiv:1810.04805) of one word: the longest
 * piece that it begins with, then the longest continuation, and so on. A word that cannot
 * be written so to its end, or that is too long, is unknown as a whole.
 *
 * Immutable once built. */
#ifndef TEXT_WORDPIECE_H
#define TEXT_WORDPIECE_H

#include <stdint.h>

#include "base/str.h"
#include "text/piece_trie.h"
#include "text/token_list.h"

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

#endif
