/* Added tokens: strings that are found in the text before anything else is done to it (or, `normalized`, after normalizing), and become
 * their id. Immutable once built. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/marks.h"

typedef struct added_token {
    int32_t id;
    str content;         /* as the vocabulary names it; in the set's text */
    str pattern;         /* what is looked for: content, normalized if the token is; in the set's text */
    bool special;        /* skipped when decoding, ordinary text when special tokens are not parsed */
    bool control;        /* says who speaks: special, or spelled like <|this|>; added_set_add finds out */
    bool normalized;     /* looked for in the normalized text */
    bool single_word;    /* only where no word character touches it */
    bool lstrip, rstrip; /* takes the white space around it */
} added_token;

typedef struct trie_node {
    int32_t first_child, token; /* token -1: none ends here */
    uint16_t n_children;
    uint8_t byte;
} trie_node;

/* A byte trie; a node's children lie side by side, in ascending order of their bytes. Root 0. */
typedef struct added_trie {
    trie_node *nodes;
    size_t n, cap;
    bool starts[256];
} added_trie;

typedef struct added_set {
    added_token *tokens;
    size_t n, cap;
    added_trie raw, normalized;
    bool finds_control; /* in the normalized text */
    int32_t *by_id; /* [n_ids]: a token's index plus 1, or 0 */
    int32_t n_ids;
} added_set;

/* Copies *t with its texts. QUIRE_NO_MEMORY. An empty pattern is never found. */
quire_err added_set_add(added_set *a, const added_token *t);
/* Makes it searchable; ids are below n_ids. */
quire_err added_set_finish(added_set *a, int32_t n_ids);
void added_set_deinit(added_set *a);
/* NULL for an id that is not an added token's. */
const added_token *added_set_get(const added_set *a, int32_t id);
/* The id of a content, or -1. */
int32_t added_set_find(const added_set *a, str content);

/* The child of a node for a byte, or NULL. */
const trie_node *added_trie_child(const added_trie *t, const trie_node *node, uint8_t byte);

/* A walk over a text: stretches without tokens, and tokens, in order. */
typedef struct added_walk {
    const added_set *set;
    const added_trie *trie;
    str text;
    bool skip_special;            /* special tokens are ordinary text */
    const text_marks *marks;      /* where control tokens may stand, others are ordinary text; NULL: anywhere */
    size_t offset;                /* of text in what the marks are of */
    size_t done, from;            /* given out up to here; searched up to here */
    size_t stretch_at, stretch_n; /* found: what lies before the token, perhaps empty */
    int32_t id;                   /* found: the token, or -1 at the end */
} added_walk;

/* The caller may set marks and offset before the first step. */
void added_walk_begin(added_walk *w, const added_set *set, const added_trie *trie, str text, bool skip_special);
/* The next stretch and token; false when all was given out. Leftmost and longest first. */
bool added_walk_next(added_walk *w);

#endif
