/* Tokenizer: text to token ids and back, built once from a vocabulary (core/vocab.h).
 *
 * Immutable after open: any number of threads may encode and decode at once; each call
 * brings its own scratch. Input text is hostile: any bytes. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "core/vocab.h"
#include "text/added.h"
#include "text/token_list.h"

typedef struct tokenizer tokenizer;

/* Builds a tokenizer. QUIRE_NOT_FOUND for a vocabulary of VOCAB_NONE. QUIRE_UNSUPPORTED
 * for an unknown kind or pipeline step, which err names; nothing is guessed. Copies what
 * it needs: v may be freed. */
quire_err tokenizer_open(const vocab *v, tokenizer **out, quire_error *err);
void tokenizer_close(tokenizer *t);

typedef enum encode_special {
    ENCODE_PLAIN, /* special tokens' text is ordinary text */
    ENCODE_PARSE  /* special tokens in the text become their ids (templates, GGUF vectors, completions) */
} encode_special;

typedef struct encode_options {
    encode_special special;
    bool add_special; /* the post-processor's tokens, or BOS/EOS by add_bos/add_eos */
    /* without add_special: BOS alone, where texts of this vocabulary begin with one; for
     * what a chat template wrote */
    bool add_bos;
    /* of the text: control tokens in a client's part are ordinary text; NULL: allowed
     * everywhere */
    const text_marks *marks;
    size_t max_tokens;       /* of the text without special tokens: encoding stops past it; 0: no bound */
    encode_seams *seams;     /* gets the text's seams after `from`; NULL: they are not wanted */
    const token_list *known; /* the ids of text[0..from) from an earlier encoding; NULL: none */
    /* if known is not NULL: a seam, or any place; the text continues there without a
     * leading space, unless the last id is a token that cuts texts */
    size_t from;
} encode_options;

/* Appends the ids of text to *out. A BOS is not added when the ids already begin with one
 * (a template wrote it, with add_bos also after white space). O(n log n). Bytes that are
 * not UTF-8 count as U+FFFD, one for each maximal invalid part. A character for which the
 * vocabulary has neither a token, nor bytes, nor an unknown token is dropped, as in the
 * reference implementations. QUIRE_NO_MEMORY; QUIRE_NO_ROOM past max_tokens, detected
 * early; QUIRE_TOO_LARGE past 2 GiB; QUIRE_BAD_REQUEST when the tokenizer's own regular
 * expressions take too long on the text; QUIRE_UNSUPPORTED when the post-processor cannot
 * be applied, with its reason. On an error *out is unchanged. */
quire_err tokenizer_encode(const tokenizer *t, str text, encode_options options, token_list *out,
                           quire_error *err);

/* Encodes one text, or two when pair is given, with the post-processor's tokens, even if
 * the ids begin with them already. types (may be NULL) gets a segment number for each id.
 * Errors and state as tokenizer_encode. */
quire_err tokenizer_encode_pair(const tokenizer *t, str text, const str *pair, encode_special special,
                                token_list *out, token_list *types, quire_error *err);

/* A lower bound of the number of tokens of a text of n_bytes. 0 if there is none, because
 * the tokenizer may delete characters. O(1). */
size_t tokenizer_least_tokens(const tokenizer *t, size_t n_bytes);

/* Appends the text of all ids together (the tokenizer's own decoder: leading space rules,
 * byte runs, clean-up). */
quire_err tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, strbuf *out);

/* Names the part of the decoder because of which the text of ids is not the
 * concatenation of their texts (token_texts.h); NULL: it is, except for a leading
 * space of the first id. */
const char *tokenizer_sum_obstacle(const tokenizer *t);

int32_t tokenizer_n_tokens(const tokenizer *t);
/* The token's surface as the vocabulary spells it ("Ġthe"), borrowed; empty for an
 * unknown id. */
str tokenizer_piece(const tokenizer *t, int32_t id);
/* The id of a surface, or -1. */
int32_t tokenizer_find(const tokenizer *t, str piece);
bool tokenizer_is_special(const tokenizer *t, int32_t id);
/* Whether a text becomes the token as a whole: a control token, or one that a user
 * defined. */
bool tokenizer_is_added(const tokenizer *t, int32_t id);
/* The BOS that add_bos adds: a GGUF file's by tokenizer.ggml.add_bos_token, or by its
 * tokenizer's kind where that is absent; of Hugging Face files by tokenizer_config.json's
 * add_bos_token, or the post-processor's where that is absent. -1: none. */
int32_t tokenizer_start(const tokenizer *t);
/* The token that ends a text, as the tokenizer's own files name it; -1: none. */
int32_t tokenizer_eos(const tokenizer *t);
/* The tokens of fill-in-the-middle. */
const fim_marks *tokenizer_fim(const tokenizer *t);
/* Texts of bos, eos, unk and pad tokens for templates; empty when none. */
str tokenizer_bos_text(const tokenizer *t);
str tokenizer_eos_text(const tokenizer *t);

#endif
