/* Precompiled normalization rules of SentencePiece: texts and what they become, as a
 * double-array trie of the library Darts-clone and the replacements, each with a zero
 * byte after it. The rules come from a file: hostile.
 *
 * Immutable once open. */
#ifndef TEXT_CHARSMAP_H
#define TEXT_CHARSMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct charsmap {
    uint32_t *units;
    size_t n_units; /* 0: no rules */
    char *texts;    /* a zero byte at the end */
    size_t n_texts;
} charsmap;

/* Copies the rules out of a blob; an empty one has none. QUIRE_NO_MEMORY; QUIRE_BAD_FILE
 * where it is malformed. */
quire_err charsmap_open(str blob, charsmap *out);
/* The same from base64, as tokenizer.json has it. */
quire_err charsmap_open_base64(str text, charsmap *out);
void charsmap_deinit(charsmap *m);

typedef enum charsmap_rule { CHARSMAP_SHORTEST, CHARSMAP_LONGEST } charsmap_rule;

/* Finds the shortest or longest rule that text begins with: its length in *n, its
 * replacement in *to, borrowed. */
bool charsmap_find(const charsmap *m, str text, charsmap_rule which, size_t *n, str *to);

#endif
