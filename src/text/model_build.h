/* Functions that several loaders use to build a piece model over a finished
 * vocabulary. */
#ifndef TEXT_MODEL_BUILD_H
#define TEXT_MODEL_BUILD_H

#include "text/tokenizer_impl.h"
#include "json/json.h"

/* Builds the trie of all pieces that text may become: those that vocab finds.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err model_build_trie(const tokenizer *t, piece_trie *out);
/* Records which pieces are control tokens other than the unknown one. Requires finished
 * added tokens. QUIRE_NO_MEMORY. */
quire_err model_note_controls(const tokenizer *t, unigram *u);
/* Finds the tokens <0x00>..<0xFF> among those that is_byte accepts (NULL: all); -1:
 * missing. Returns how many there are. */
int model_find_bytes(const piece_table *pieces, bool (*is_byte)(const void *context, int32_t id),
                     const void *context, int32_t bytes[256]);
/* Finds the nodes at which pieces begin and continue words, in a WordPiece model's
 * trie. */
void model_find_word_starts(wordpiece *w, str begins, str continues);
/* QUIRE_BAD_FILE if the tokenizer's tables are for another number of tokens. */
quire_err model_check_tables(const tokenizer *t, int64_t n_tokens, quire_error *err);

/* Settings from tokenizer_config.json. In every call NULL means that there is no such
 * file. */

/* The text in "bos_token": "<s>", or in {"content": "<s>", ...}; borrowed; empty:
 * none. */
str config_special(json_value *config, const char *key);
/* Reads a name in added_tokens_decoder, which is a token id. */
bool config_token_id(const char *name, int64_t *id);
/* The value of add_bos_token: 0 or 1; -1: absent. */
int32_t config_says_bos(json_value *config);
/* Sets bos and eos of t (-1: none), and a post-processor that adds those that the file,
 * or else the flags, ask for. */
quire_err config_surround(tokenizer *t, json_value *config, int32_t bos, int32_t eos, bool add_bos,
                          bool add_eos);

#endif
