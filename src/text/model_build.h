/* What the loaders share in building a piece model over a finished vocabulary. */
#ifndef TEXT_MODEL_BUILD_H
#define TEXT_MODEL_BUILD_H

#include "text/tokenizer_impl.h"
#include "json/json.h"

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

/* The settings of tokenizer_config.json for the vocabulary beside it. Every call takes
 * NULL for no such file. */

/* The text of "bos_token": "<s>", or of {"content": "<s>", ...}; borrowed, empty if there
 * is none. */
str config_special(json_value *config, const char *key);
/* Reads a name of added_tokens_decoder, which is an id. */
bool config_token_id(const char *name, int64_t *id);
/* The value of add_bos_token: 0 or 1; -1: it is absent. */
int32_t config_says_bos(json_value *config);
/* Sets bos and eos of t (-1: none), and a post-processor with those that the file asks
 * for, else those of the flags. */
quire_err config_surround(tokenizer *t, json_value *config, int32_t bos, int32_t eos, bool add_bos,
                          bool add_eos);

#endif
