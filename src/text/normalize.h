/* Normalizers: a sequence of steps over a whole text. Immutable once built; each call
 * brings its own scratch. */
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/piece_table.h"
#include "text/regex.h"

/* Precompiled normalization rules of SentencePiece: texts and what they become, as a
 * double-array trie of the library Darts-clone and the replacements, each with a zero
 * byte after it. The rules come from a file: hostile.
 *
 * Immutable once open. */

typedef struct charsmap {
    uint32_t *units;
    size_t n_units; /* 0: no rules */
    char *texts;    /* a zero byte at the end */
    size_t n_texts;
} charsmap;

/* Copies the rules out of a blob, which may be empty. QUIRE_NO_MEMORY; QUIRE_BAD_FILE:
 * malformed. */
quire_err charsmap_open(str blob, charsmap *out);
/* The same from base64, as tokenizer.json has it. */
quire_err charsmap_open_base64(str text, charsmap *out);

typedef enum charsmap_rule { CHARSMAP_SHORTEST, CHARSMAP_LONGEST } charsmap_rule;

/* Finds the shortest or longest rule that text begins with: its length in *n, its
 * replacement in *to, borrowed. */
bool charsmap_find(const charsmap *m, str text, charsmap_rule which, size_t *n, str *to);

/* SentencePiece's own normalization of a text: rules, white space, and the mark U+2581
 * for a space. Immutable once built. */

#define SP_MARK "\xE2\x96\x81" /* U+2581 */

typedef struct sp_rules {
    charsmap map;
    const piece_trie *symbols; /* borrowed: user-defined symbols, which no rule changes; NULL: none */
    bool dummy_prefix;         /* a space is added before the text, or after it */
    bool suffix;               /* a space belongs to the preceding word */
    bool remove_extra;         /* spaces at the ends are dropped, several become one */
    bool escape;               /* a space becomes the mark */
} sp_rules;

typedef enum norm_kind {
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_LOWERCASE,     /* each character by itself */
    NORM_STRIP_ACCENTS, /* drops marks that stand alone */
    NORM_STRIP,         /* white space at the ends */
    NORM_PREPEND,       /* content, before text that is not empty */
    NORM_REPLACE,       /* each match by content, taken literally */
    NORM_NMT,           /* SentencePiece's clean-up of controls and spaces */
    NORM_BERT_CLEAN,
    NORM_BERT_CHINESE,
    NORM_DROP_NONSPACING,
    NORM_PRECOMPILED,   /* the rules of map, grapheme by grapheme */
    NORM_SENTENCEPIECE, /* sentencepiece's own normalization */
    NORM_BYTE_LEVEL     /* bytes as the visible characters of chars.h */
} norm_kind;

typedef struct norm_step {
    norm_kind kind;
    bool left, right; /* STRIP */
    char *content;    /* owned: PREPEND, REPLACE */
    size_t n_content;
    matcher match;  /* REPLACE */
    charsmap map;   /* PRECOMPILED */
    sp_rules rules; /* SENTENCEPIECE */
} norm_step;

#define NORM_MAX_STEPS 32

typedef struct normalizer {
    norm_step steps[NORM_MAX_STEPS];
    int32_t n;
} normalizer;

void normalizer_deinit(normalizer *n);

typedef struct norm_scratch {
    strbuf a, b, head;
    int32_t *chars; /* decomposed text */
    size_t cap_chars;
    uint8_t *classes; /* their combining classes */
    size_t cap_classes;
    /* how many of the first bytes stand for the first character of the whole input: of
     * the text, set by the caller, then of the result. 0: none, or not needed */
    size_t front;
    bool continues; /* set by the caller: the text continues another, so no prefix is added */
} norm_scratch;

void norm_scratch_deinit(norm_scratch *s);

/* The largest number of bytes of a text that can become one byte of normalized text. 0:
 * no bound, since steps may delete characters. */
size_t normalizer_shrinks(const normalizer *n);
/* The prefix that is added to every text that is not empty; empty: none. */
str normalizer_lead(const normalizer *n);

/* Runs all steps over text (valid UTF-8). *out is text itself where nothing changes, or
 * is in the scratch until its next use. O(n). QUIRE_NO_MEMORY, QUIRE_TOO_LARGE,
 * QUIRE_BAD_REQUEST (matcher_next). */
quire_err normalizer_run(const normalizer *n, str text, norm_scratch *s, regex_scratch *rs, str *out);

#endif
