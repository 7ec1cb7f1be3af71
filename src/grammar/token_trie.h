/* The trie of a vocabulary, and the tokens that are plain text in any JSON string.
 * Private to this room; immutable once open. */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include <stdatomic.h>

#include "grammar/byte_trie.h"
#include "grammar/grammar.h"

#define VOCAB_PLAIN 16 /* characters up to which plain tokens are sorted by length */

typedef struct vocab_long {
    uint32_t chars;
    int32_t token;
} vocab_long;

struct grammar_vocab {
    _Atomic int32_t refs;
    int32_t n_tokens, n_ends;
    uint32_t longest; /* bytes of a token */
    int32_t *ends;
    int32_t *same;    /* [n_tokens] the next token with the same bytes, or -1 */
    uint32_t *starts; /* [n_tokens + 1] in bytes */
    uint8_t *bytes;
    trie_groups groups;
    vocab_trie all, rest; /* rest: without plain[VOCAB_PLAIN] */
    /* Of tokens inside a JSON string: body, those that stay inside whatever they begin
     * with; quoted, those that may leave it; tails, what these have from the closing
     * quote on, with the tokens of equal tails chained in same_tail; before, how many
     * characters stand before that quote, at most most_before. An escape is one
     * character. */
    uint64_t *body;
    vocab_trie quoted, odd, tails; /* odd: the part of quoted that only a walk can tell */
    int32_t *same_tail;
    uint8_t *before;
    uint32_t most_before;
    uint64_t *within[VOCAB_PLAIN + 1]; /* the part of body that has at most so many characters; */
    vocab_long *longer;                /* the others, shortest first */
    uint32_t n_longer;
    /* Tokens of JSON's white space alone, and a trie of the others. */
    int32_t *spaces, n_spaces;
    vocab_trie others;
    /* Tokens that may have a name in them: two quotes or more, three or more; a quote
     * with something after; a word between other characters. */
    vocab_trie quotes, thrice, begins, words;
    size_t n_words;
    /* masks: whole characters only, none of which JSON escapes, at most so many */
    uint64_t *plain[VOCAB_PLAIN + 1];
};

static inline str vocab_text(const grammar_vocab *v, int32_t token) {
    return (str){(const char *)v->bytes + v->starts[token], v->starts[token + 1] - v->starts[token]};
}

#endif
