/* Decoders turn tokens into text, one token at a time. A decoder is a chain of steps:
 * each receives tokens, or parts of one, and passes on the text that can no longer
 * change. So the same code decodes lists and streams.
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
    DECODE_BYTE_LEVEL,    /* characters to the bytes that they spell (chars.h), as UTF-8 */
    DECODE_BYTE_FALLBACK, /* <0xE2> to a byte; runs of bytes to UTF-8 */
    DECODE_REPLACE,       /* replaces each match in a token by content */
    DECODE_FUSE,          /* joins all tokens into one for later steps */
    DECODE_STRIP,         /* removes characters equal to content at a token's ends: up to start, up to stop */
    DECODE_METASPACE, /* the mark (content) to a space; in the first token to nothing, unless keep_first */
    DECODE_SUFFIX,    /* content, which ends a word, to a space; in the last token to nothing */
    /* removes content where it continues a word; puts a space before other tokens but the
     * first */
    DECODE_WORDPIECE,
    /* one of equal tokens in a row; content to nothing; with cleanup, delimiter to a
     * space */
    DECODE_CTC,
    DECODE_SPACED, /* puts a space between tokens: for files that name no decoder */
    /* the mark to a space, with strip_first except at the very start; byte tokens to
     * UTF-8 */
    DECODE_SENTENCEPIECE
} decode_kind;

typedef struct decode_step {
    decode_kind kind;
    char *content; /* owned */
    size_t n_content;
    int32_t start, stop; /* STRIP */
    bool keep_first;     /* METASPACE */
    bool cleanup;        /* WORDPIECE, CTC: tightens English punctuation */
    bool marks_words;    /* WORDPIECE: content begins a word, not a continuation, as in GGUF files */
    bool strip_first;    /* SENTENCEPIECE: removes the mark at the very start */
    bool strip_all;      /* SENTENCEPIECE: removes all marks before the first text */
    char *unknown;       /* SENTENCEPIECE, owned: text of an unknown token; NULL: " ⁇ " */
    size_t n_unknown;
    char *delimiter; /* owned: CTC */
    size_t n_delimiter;
    matcher match; /* REPLACE */
    bool late;     /* an earlier step joins all tokens into one; set by decoder_link */
} decode_step;

#define DECODE_MAX_STEPS 16

typedef struct decoder {
    decode_step steps[DECODE_MAX_STEPS];
    int32_t n;
} decoder;

void decoder_deinit(decoder *d);
/* Finds the late steps. Call it when all steps are added. */
void decoder_link(decoder *d);

/* A phrase that names the step because of which the text of several tokens is not the
 * concatenation of their texts. NULL: it is, except for a space at the start of the
 * first. */
const char *decoder_sum_obstacle(const decoder *d);

typedef struct decode_held {
    strbuf text;      /* text that the step withholds */
    int64_t n_tokens; /* tokens begun so far */
    int32_t n_cut;    /* STRIP: characters removed at this token's start */
    int32_t n_back;   /* STRIP: characters withheld at its end */
    bool leading;     /* STRIP: still at the token's start */
    /* part of the token that joins several was passed on; CTC: there was a token */
    bool begun;
} decode_held;

/* How byte runs that are not valid UTF-8 are decoded. */
typedef enum decode_mode {
    /* like the tokenizers library for a list: with byte fallback, an invalid run becomes
     * all U+FFFD */
    DECODE_WHOLE,
    DECODE_STREAM /* outputs complete characters as they arrive, so an invalid run keeps them */
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

/* Adds a token, and appends to *out the text that is final with it. QUIRE_NO_MEMORY,
 * QUIRE_TOO_LARGE (out->max): the state is unusable afterwards. */
quire_err decode_add(decode_state *s, str token, piece_class class, strbuf *out);
/* Appends the remaining text and resets the state. Errors as in decode_add. */
quire_err decode_finish(decode_state *s, strbuf *out);

#endif
