/* What the loaders share in building a piece model over a finished vocabulary. */
#ifndef TEXT_MODEL_BUILD_H
#define TEXT_MODEL_BUILD_H

#include "text/tokenizer_impl.h"

/* Builds the trie of all pieces that text may become: those that the vocabulary finds.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err model_build_trie(const tokenizer *t, piece_trie *out);
/* Notes which pieces are control tokens, other than the unknown one. The added tokens are
 * finished. */
quire_err model_note_controls(const tokenizer *t, unigram *u);
/* Finds the tokens <0x00>..<0xFF> among those that is_byte accepts (NULL: all); the
 * others are -1. Returns how many there are. */
int model_find_bytes(const piece_table *pieces, bool (*is_byte)(const void *context, int32_t id),
                     const void *context, int32_t bytes[256]);
/* Finds where words begin and continue in the trie of a WordPiece model. */
void model_find_word_starts(wordpiece *w, str begins, str continues);
/* QUIRE_BAD_FILE where a tokenizer with tables of another number of tokens would run into
 * their ends. */
quire_err model_check_tables(const tokenizer *t, int64_t n_tokens, quire_error *err);

#endif
