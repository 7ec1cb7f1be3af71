/* SentencePiece's own normalization of a text: rules, white space, and the mark U+2581
 * for a space. Immutable once built. */
#ifndef TEXT_SP_RULES_H
#define TEXT_SP_RULES_H

#include <stdbool.h>

#include "base/str.h"
#include "text/charsmap.h"
#include "text/piece_trie.h"

#define SP_MARK "\xE2\x96\x81" /* U+2581 */

typedef struct sp_rules {
    charsmap map;
    const piece_trie *symbols; /* borrowed: user-defined symbols, which no rule changes; NULL: none */
    bool dummy_prefix;         /* a space is added before the text, or after it */
    bool suffix;               /* a space belongs to the word before it */
    bool remove_extra;         /* spaces at the ends are dropped, several become one */
    bool escape;               /* a space becomes the mark */
} sp_rules;

void sp_rules_deinit(sp_rules *r);
/* Appends the normalized text; empty text stays empty. QUIRE_NO_MEMORY, errors of
 * turn_poll. */
quire_err sp_rules_run(const sp_rules *r, str text, strbuf *out);

#endif
