/* Tokenizer: text to token ids and back, built once from a vocabulary (core/vocab.h).
 *
 * Immutable after open: any number of threads may encode and decode at once; each call
 * brings its own scratch. Input text is untrusted: any bytes. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "core/vocab.h"
#include "text/added.h"
#include "text/token_list.h"

typedef struct tokenizer tokenizer;

/* Builds a tokenizer. QUIRE_NOT_FOUND for VOCAB_NONE; QUIRE_UNSUPPORTED for an unknown
 * kind or step, named in err: nothing is guessed. Copies what it needs, so v may be
 * freed. */
quire_err tokenizer_open(const vocab *v, tokenizer **out, quire_error *err);
void tokenizer_close(tokenizer *t);

typedef enum encode_special {
    ENCODE_PLAIN, /* special tokens in the text are plain text */
    ENCODE_PARSE  /* special tokens in the text become their ids (templates, GGUF vectors, completions) */
} encode_special;

typedef struct encode_options {
    encode_special special;
    bool add_special; /* adds the post-processor's tokens, or BOS and EOS by add_bos and add_eos */
    /* without add_special: adds BOS only, if texts of this vocabulary begin with one; for
     * text of a chat template */
    bool add_bos;
    /* marks of the text: control tokens in a client's parts are plain text; NULL: no
     * marks */
    const text_marks *marks;
    size_t max_tokens; /* encoding stops beyond this number of tokens, special ones excluded; 0: unlimited */
    encode_seams *seams;     /* gets the text's seams after `from`; NULL: not wanted */
    const token_list *known; /* the ids of text[0..from), from an earlier encoding; NULL: none */
    /* with known: a seam, or any position; the text continues there without a leading
     * space, unless the last id is an added token */
    size_t from;
} encode_options;

/* Appends the ids of text to *out. Adds no BOS if the ids begin with one (the template
 * wrote it; with add_bos, also after white space). Bytes that are not UTF-8 count as
 * U+FFFD, one for each maximal invalid part. A character without a token is dropped if
 * the vocabulary has neither byte fallback nor an unknown token, as in the reference
 * implementations. O(n log n). QUIRE_NO_MEMORY; QUIRE_NO_ROOM above max_tokens, detected
 * early; QUIRE_TOO_LARGE above 2 GiB; QUIRE_BAD_REQUEST if the tokenizer's own regular
 * expressions take too long on the text; QUIRE_UNSUPPORTED if the post-processor cannot
 * be applied, with the reason. Errors leave *out unchanged. */
quire_err tokenizer_encode(const tokenizer *t, str text, encode_options options, token_list *out,
                           quire_error *err);

/* Encodes a text, or two if pair is given, always with the post-processor's tokens. types
 * (may be NULL) gets a segment number for each id. Errors as tokenizer_encode, and *out
 * likewise. */
quire_err tokenizer_encode_pair(const tokenizer *t, str text, const str *pair, encode_special special,
                                token_list *out, token_list *types, quire_error *err);

/* A lower bound on the number of tokens of a text of n_bytes; 0 if there is none, since
 * the tokenizer may remove characters. O(1). */
size_t tokenizer_least_tokens(const tokenizer *t, size_t n_bytes);

/* Appends the text of all ids, by the tokenizer's own decoder: leading spaces, byte runs,
 * clean-up. Errors of decode_add leave *out unchanged. */
quire_err tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special, strbuf *out);

/* Names the part of the decoder because of which the text of several ids is not the
 * concatenation of their texts (token_texts.h). NULL: it is, except for a leading space
 * of the first. */
const char *tokenizer_sum_obstacle(const tokenizer *t);

int32_t tokenizer_n_tokens(const tokenizer *t);
/* The token as the vocabulary spells it ("Ġthe"); borrowed; empty for an unknown id. */
str tokenizer_piece(const tokenizer *t, int32_t id);
/* The id of a token with this spelling; -1: none. */
int32_t tokenizer_find(const tokenizer *t, str piece);
bool tokenizer_is_special(const tokenizer *t, int32_t id);
/* Whether the token is found in a text as a whole: a control token, or a user-defined
 * one. */
bool tokenizer_is_added(const tokenizer *t, int32_t id);
/* The BOS that add_bos adds; -1: none. GGUF: by tokenizer.ggml.add_bos_token; if absent,
 * by the kind of tokenizer. Hugging Face: by add_bos_token in tokenizer_config.json; if
 * absent, by the post-processor. */
int32_t tokenizer_start(const tokenizer *t);
/* The token that ends a text, by the tokenizer's own files; -1: none. */
int32_t tokenizer_eos(const tokenizer *t);
/* The fill-in-the-middle tokens. */
const fim_marks *tokenizer_fim(const tokenizer *t);
/* Texts of the bos, eos, unk and pad tokens, for templates; empty: none. */
str tokenizer_bos_text(const tokenizer *t);
str tokenizer_eos_text(const tokenizer *t);

#endif
