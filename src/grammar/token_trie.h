/* The trie of a vocabulary, and the tokens that are plain text in any JSON string.
 * Private to this room; immutable once open. */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include "base/err.h"
#include "base/str.h"
#include "grammar/grammar.h"
#include <stdatomic.h>

/* Tries over the bytes of tokens. Private to this room; immutable once built.
 *
 * Children of a node lie side by side, so that a walk which rejects most of them reads
 * few cache lines; each node knows which tokens are below it and of which groups of
 * characters these consist, so that a walk may take all of them at once. */

#define VOCAB_MAX_TOKEN 1024 /* bytes of a token; longer ones are never allowed */

typedef struct trie_node {
    uint32_t child; /* the first child */
    int32_t token;  /* that ends here, or -1; further ones with the same bytes: chained */
    uint16_t n;     /* children */
    uint8_t byte;
} trie_node;

/* What is at and below a node: tokens[first .. first + n), and if a character begins
 * after it, the groups of the characters below and how many of them a token has at
 * most. */
typedef struct trie_under {
    uint64_t groups : 48;
    uint64_t chars : 16;
    uint32_t first, n;
} trie_under;

typedef struct vocab_trie {
    trie_node *nodes; /* the root's children first */
    trie_under *under;
    int32_t *tokens; /* in the order of their bytes */
    uint32_t n, n_roots;
} vocab_trie;

typedef struct trie_key {
    str text;
    int32_t token;
} trie_key;

/* Characters in groups: control characters, then the others of ASCII in their order, sign
 * by sign but for digits and letters; all others together; and what is not UTF-8. */
#define TRIE_CONTROL 0u
#define TRIE_PRINTED 4u  /* the first one past control characters, tabs, newlines and returns */
#define TRIE_OTHER   43u /* group of characters past ASCII */
#define TRIE_WRONG   44u /* not UTF-8 */
typedef struct trie_groups {
    uint8_t of[128];    /* group of an ASCII character */
    uint8_t bytes[128]; /* ASCII characters by group: bytes[start[g] .. start[g + 1]) */
    uint8_t start[TRIE_OTHER + 1];
    uint64_t words; /* groups of letters and digits */
    uint64_t plain; /* those that a JSON string holds as they are */
} trie_groups;

void trie_groups_init(trie_groups *g);

/* Orders keys by bytes, then by token, for qsort. */
int trie_compare_keys(const void *x, const void *y);
/* Builds a trie of n sorted keys of 1 to VOCAB_MAX_TOKEN bytes; same[token]: the next
 * token with the same bytes. */
quire_err trie_build(const trie_groups *g, const trie_key *keys, size_t n, int32_t *same, vocab_trie *out);
void trie_free(vocab_trie *t);

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
