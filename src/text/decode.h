/* Decoders: tokens to text, one token at a time. A decoder is a chain of steps. Each step
 * receives tokens, or parts of one, and passes on the text that can no longer change. So
 * one code decodes whole lists and streams.
 *
 * A decoder is immutable once built; a decode_state belongs to one stream and one
 * thread. */
#ifndef TEXT_DECODE_H
#define TEXT_DECODE_H

#include "base/str.h"
#include "text/regex.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum decode_kind {
    DECODE_BYTE_LEVEL,    /* the bytes that the characters spell (chars.h), as UTF-8 */
    DECODE_BYTE_FALLBACK, /* <0xE2> is a byte; runs of them are UTF-8 */
    DECODE_REPLACE,       /* each match in a token by content */
    DECODE_FUSE,          /* all tokens are one from here on */
    DECODE_STRIP,         /* up to start and stop characters equal to content at a token's ends */
    DECODE_METASPACE,     /* the mark (content) is a space; in the first token nothing, unless keep_first */
    DECODE_SUFFIX,        /* content ends a word: a space, but nothing in the last token */
    /* content begins what continues a word; all else but the first token gets a space */
    DECODE_WORDPIECE,
    /* of equal tokens in a row one; content is nothing, and delimiter a space with
     * cleanup */
    DECODE_CTC,
    DECODE_SPACED, /* a space between tokens: where a file names no decoder */
    /* the mark is a space, except for one at the very start with strip_first; byte tokens
     * are UTF-8 */
    DECODE_SENTENCEPIECE
} decode_kind;

typedef struct decode_step {
    decode_kind kind;
    char *content; /* owned */
    size_t n_content;
    int32_t start, stop; /* STRIP */
    bool keep_first;     /* METASPACE */
    bool cleanup;        /* WORDPIECE, CTC: tightens English punctuation */
    bool marks_words;    /* WORDPIECE: content begins a word instead of a continuation, as in GGUF files */
    bool strip_first;    /* SENTENCEPIECE: the mark at the very start is nothing */
    bool strip_all;      /* SENTENCEPIECE: so are all marks before the first text */
    char *unknown;       /* owned: SENTENCEPIECE: the text of an unknown token; NULL: " ⁇ " */
    size_t n_unknown;
    char *delimiter; /* owned: CTC */
    size_t n_delimiter;
    matcher match; /* REPLACE */
    bool late;     /* a step before makes one token of all; set by decoder_link */
} decode_step;

#define DECODE_MAX_STEPS 16

typedef struct decoder {
    decode_step steps[DECODE_MAX_STEPS];
    int32_t n;
} decoder;

void decoder_deinit(decoder *d);
/* Call when all steps are added: finds the late ones. */
void decoder_link(decoder *d);

/* Why the text of several tokens is not the concatenation of their texts (decode.c),
 * as a phrase that names the step; NULL: it is, except for the space with which the
 * first may begin. */
const char *decoder_sum_obstacle(const decoder *d);

typedef struct decode_held {
    strbuf text;      /* text that a step withholds */
    int64_t n_tokens; /* begun so far */
    int32_t n_cut;    /* STRIP: cut from this token's start */
    int32_t n_back;   /* STRIP: withheld at its end */
    bool leading;     /* STRIP: still at its start. */
    /* a part of the token that a step makes of several has been passed on; CTC: there was
     * a token */
    bool begun;
} decode_held;

/* The text for a byte run that is not valid UTF-8. */
typedef enum decode_mode {
    /* as the tokenizers library decodes a list: with fallback bytes, an invalid run is
     * all U+FFFD */
    DECODE_WHOLE,
    DECODE_STREAM /* complete characters are output as they arrive, so that run keeps them */
} decode_mode;

typedef struct decode_state {
    const decoder *decoder;
    decode_mode mode;
    decode_held held[DECODE_MAX_STEPS];
    strbuf work[DECODE_MAX_STEPS];
    strbuf spare;
    regex_scratch scratch;
    strbuf *out;
} decode_state;

void decode_begin(decode_state *s, const decoder *d, decode_mode mode);
void decode_deinit(decode_state *s);

/* A token's class in SentencePiece. */
typedef enum piece_class { PIECE_NORMAL, PIECE_BYTE, PIECE_CONTROL, PIECE_UNKNOWN } piece_class;

/* Adds a token and appends the text that is final after it to *out. QUIRE_NO_MEMORY,
 * QUIRE_TOO_LARGE (out->max): the state is then unusable. */
quire_err decode_add(decode_state *s, str token, piece_class class, strbuf *out);
/* Appends the remaining text. The state is then as new. */
quire_err decode_finish(decode_state *s, strbuf *out);

#endif
