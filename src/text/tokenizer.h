/* Tokenizer: text to token ids and back, built once from a vocabulary (core/vocab.h).
 *
 * Immutable after open: any number of threads may encode and decode at once; each call brings its own scratch. Input text is hostile: any
 * bytes. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "core/vocab.h"
#include "text/marks.h"

typedef struct tokenizer tokenizer;

/* Growing array of ids. Zero-initialised is empty; freed by token_list_deinit. */
typedef struct token_list {
    int32_t *ids;
    size_t n, cap;
} token_list;

void token_list_deinit(token_list *l);
quire_err token_list_add(token_list *l, int32_t id);

/* Builds a tokenizer; QUIRE_NOT_FOUND for a vocabulary of VOCAB_NONE, QUIRE_UNSUPPORTED (naming it) for a kind or a pipeline step that this
 * build does not know, never a guess. Copies what it needs: v may go away. */
quire_err tokenizer_open(const vocab *v, tokenizer **out, quire_error *err);
void tokenizer_close(tokenizer *t);

typedef enum encode_special {
    ENCODE_PLAIN, /* special tokens' text is ordinary text */
    ENCODE_PARSE  /* special tokens in the text become their ids (templates, GGUF vectors, completions) */
} encode_special;

typedef struct encode_options {
    encode_special special;
    bool add_special; /* the post-processor's tokens, or BOS/EOS by add_bos/add_eos */
    const text_marks *marks; /* of the text: control tokens elsewhere in it are ordinary text; NULL: wherever they stand */
    size_t max_tokens;       /* of the text by itself: past that encoding stops; 0: no bound */
} encode_options;

/* Appends the ids of text to *out. A BOS is not added when the ids already begin with one (a template wrote it). O(n log n).
 * Bytes that are not UTF-8 count as U+FFFD, one for each maximal wrong part. A character for which the vocabulary has neither token, bytes
 * nor an unknown token is dropped, as the references do. QUIRE_NO_MEMORY; QUIRE_NO_ROOM past max_tokens, found out early; QUIRE_TOO_LARGE
 * past 2 GiB; QUIRE_BAD_REQUEST when the tokenizer's own regular expressions take too long on the text; *out is then as it was. */
quire_err tokenizer_encode(const tokenizer *t, str text, encode_options options, token_list *out, quire_error *err);

/* The least number of tokens that a text of n_bytes can have; 0 where nothing is known, because the tokenizer may delete characters. O(1).
 */
size_t tokenizer_least_tokens(const tokenizer *t, size_t n_bytes);

/* Appends the text of ids as a whole (the tokenizer's own decoder: leading space rules, byte runs, clean-up). */
quire_err tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, strbuf *out);

int32_t tokenizer_n_tokens(const tokenizer *t);
/* The token's surface as the vocabulary spells it ("Ġthe"), borrowed; empty for an id that is not there. */
str tokenizer_piece(const tokenizer *t, int32_t id);
/* The id of a surface, or -1. */
int32_t tokenizer_find(const tokenizer *t, str piece);
bool tokenizer_is_special(const tokenizer *t, int32_t id);
/* Ids, -1 when there are none. */
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
/* Texts of bos, eos, unk and pad tokens for templates; empty when none. */
str tokenizer_bos_text(const tokenizer *t);
str tokenizer_eos_text(const tokenizer *t);

#endif
