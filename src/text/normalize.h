/* Normalizers: a sequence of steps over a whole text. Immutable once built; each call
 * brings its own scratch. */
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/piece_table.h"
#include "text/regex.h"

/* SentencePiece's precompiled normalization rules: texts and their replacements. A blob
 * holds a double-array trie of the library Darts-clone, then the replacements, each with
 * a zero byte after it. It comes from a file and is untrusted.
 *
 * Immutable once open. */

typedef struct charsmap {
    uint32_t *units;
    size_t n_units; /* 0: no rules */
    char *texts;    /* ends with a zero byte */
    size_t n_texts;
} charsmap;

/* Copies the rules out of a blob, which may be empty. QUIRE_NO_MEMORY; QUIRE_BAD_FILE if
 * it is malformed. */
quire_err charsmap_open(str blob, charsmap *out);
/* Opens rules in base64, as tokenizer.json has them. Errors as charsmap_open. */
quire_err charsmap_open_base64(str text, charsmap *out);

typedef enum charsmap_rule { CHARSMAP_SHORTEST, CHARSMAP_LONGEST } charsmap_rule;

/* Finds the shortest or longest rule that matches a prefix of text: its length in *n, its
 * replacement in *to (borrowed). False if there is none. */
bool charsmap_find(const charsmap *m, str text, charsmap_rule which, size_t *n, str *to);

/* SentencePiece's own normalization: rules, white space, and the mark U+2581 for a space.
 * Immutable once built. */

#define SP_MARK "\xE2\x96\x81" /* U+2581 */

typedef struct sp_rules {
    charsmap map;
    const piece_trie *symbols; /* user-defined symbols, which no rule changes; borrowed; NULL: none */
    bool dummy_prefix;         /* a space is added before the text (after it with `suffix`) */
    bool suffix;               /* a space belongs to the word before it */
    bool remove_extra;         /* removes spaces at the ends, reduces others to one */
    bool escape;               /* a space becomes the mark */
} sp_rules;

typedef enum norm_kind {
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_LOWERCASE,     /* each character by itself, without context */
    NORM_STRIP_ACCENTS, /* removes characters of category M */
    NORM_STRIP,         /* removes white space at the ends */
    NORM_PREPEND,       /* puts content before text that is not empty */
    NORM_REPLACE,       /* replaces each match by content, literally */
    NORM_NMT,           /* SentencePiece's clean-up of control characters and spaces */
    NORM_BERT_CLEAN,
    NORM_BERT_CHINESE,
    NORM_DROP_NONSPACING,
    NORM_PRECOMPILED,   /* the rules in map, grapheme by grapheme */
    NORM_SENTENCEPIECE, /* SentencePiece's own normalization (sp_rules) */
    NORM_BYTE_LEVEL     /* bytes to the visible characters of chars.h */
} norm_kind;

typedef struct norm_step {
    norm_kind kind;
    bool left, right; /* STRIP */
    char *content;    /* PREPEND, REPLACE; owned */
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
    int32_t *chars; /* the decomposed text */
    size_t cap_chars;
    uint8_t *classes; /* combining classes of chars */
    size_t cap_classes;
    /* leading bytes that stand for the first character of the whole input: of the text
     * (set by the caller), then of the result. 0: none, or not needed */
    size_t front;
    bool continues; /* set by the caller: the text continues another one, so no prefix is added */
} norm_scratch;

void norm_scratch_deinit(norm_scratch *s);

/* The most bytes of a text that can become one byte of normalized text. 0: unlimited,
 * since steps may remove characters. */
size_t normalizer_shrinks(const normalizer *n);
/* The prefix that is added to every text that is not empty; empty: none. */
str normalizer_lead(const normalizer *n);

/* Runs all steps over text, which is valid UTF-8. *out is text itself if nothing changes,
 * else in the scratch until its next use. O(n). QUIRE_NO_MEMORY, QUIRE_TOO_LARGE,
 * QUIRE_BAD_REQUEST (matcher_next). */
quire_err normalizer_run(const normalizer *n, str text, norm_scratch *s, regex_scratch *rs, str *out);

#endif
