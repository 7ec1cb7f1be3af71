/* Added tokens: strings that are found in the raw text (`normalized` ones in the
 * normalized text) before all other steps, and become their id. Immutable once built. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "core/vocab.h"
#include "text/piece_table.h"

/* ---- marks: where control tokens are ordinary text ---- */

/* Marks: the parts of a text that come from a client, where no control token is
 * recognised.
 *
 * A chat's text consists of what its template wrote and of strings from the client. The
 * template language tells them apart byte by byte (jinja/jinja_value.c), through every
 * filter and method. A control token counts only if all of its bytes are the template's
 * own. */

/* Bytes [start, end) of a text. */
typedef struct mark_run {
    size_t start, end;
} mark_run;

/* The runs of a client's bytes in a text: ascending, not touching. Zeroed: none. */
typedef struct text_marks {
    mark_run *runs;
    size_t n, cap;
} text_marks;

void text_marks_deinit(text_marks *m);
/* Adds a run that begins at or after the end of the last one. QUIRE_NO_MEMORY leaves them
 * unchanged. */
quire_err text_marks_add(text_marks *m, size_t start, size_t end);
/* Cuts the runs to a text of n bytes. */
void text_marks_cut(text_marks *m, size_t n);
/* Whether a control token is allowed at [start, end). O(log n). */
bool text_marks_allow(const text_marks *m, size_t start, size_t end);
/* Index of the first run that ends after `at`; n if there is none. O(log n). */
size_t text_marks_find(const text_marks *m, size_t at);

/* ---- sets of added tokens ---- */

typedef struct added_token {
    int32_t id;
    str content;  /* as the vocabulary spells it; in the set's text */
    str pattern;  /* the string to find: content, in normal form if `normalized`; in the set's text */
    bool special; /* plain text when special tokens are not parsed */
    /* its pattern is the content of a special token, so decoding skips it; set by
     * added_set_finish */
    bool hidden;
    bool control;    /* a control token: special, or spelled like <|this|>; set by added_set_add */
    bool normalized; /* found in the normalized text instead of the raw text */
    /* number of leading bytes of the pattern that the normalizer added; marks do not
     * apply to them */
    size_t lead;
    bool single_word;    /* found only where no word character touches it */
    bool lstrip, rstrip; /* also takes the white space on that side */
} added_token;

typedef struct trie_node {
    int32_t first_child, token; /* token: index of the one that ends here; -1: none */
    uint16_t n_children;
    uint8_t byte;
} trie_node;

/* A byte trie. The children of a node are adjacent, in ascending order of bytes. Node 0
 * is the root. */
typedef struct added_trie {
    trie_node *nodes;
    size_t n, cap;
    bool starts[256];
} added_trie;

typedef struct added_set {
    added_token *tokens;
    size_t n, cap;
    added_trie raw, normalized;
    bool finds_control; /* a control token is found in the normalized text */
    int32_t *by_id;     /* [n_ids] index of the id's token plus 1; 0: none */
    int32_t n_ids;
    size_t longest; /* length of the longest pattern in bytes */
} added_set;

/* Adds a copy of *t with its texts. An empty pattern is never found. QUIRE_NO_MEMORY. */
quire_err added_set_add(added_set *a, const added_token *t);
/* Builds the tries. All ids are below n_ids. QUIRE_NO_MEMORY. */
quire_err added_set_finish(added_set *a, int32_t n_ids);
void added_set_deinit(added_set *a);
/* The token with this id; NULL if it is no added token. */
const added_token *added_set_get(const added_set *a, int32_t id);
/* The id of the token with this content; -1: none. */
int32_t added_set_find(const added_set *a, str content);

/* A walk over a text: alternating stretches without tokens, and tokens. */
typedef struct added_walk {
    const added_set *set;
    const added_trie *trie;
    str text;
    bool skip_special;            /* special tokens are plain text */
    const text_marks *marks;      /* where control tokens are plain text; NULL: nowhere */
    size_t offset;                /* offset of `text` in the text that the marks refer to */
    size_t done, from;            /* end of what was returned; end of what was searched */
    size_t stretch_at, stretch_n; /* result: the text before the token; may be empty */
    int32_t id;                   /* result: the token; -1 at the end of the text */
} added_walk;

/* Starts a walk. The caller may set marks and offset before the first step. */
void added_walk_begin(added_walk *w, const added_set *set, const added_trie *trie, str text,
                      bool skip_special);
/* Finds the next stretch and token: the leftmost token, of several the longest. *more:
 * false at the end of the text. Errors of turn_poll. */
quire_err added_walk_next(added_walk *w, bool *more);

/* ---- fill-in-the-middle ---- */

/* Fill-in-the-middle: the tokens that tell a model what comes before and after a gap, so
 * that it generates the text in between. Found by the keys of a GGUF file or, if it does
 * not name them, by their published spellings. */

typedef struct fim_marks {
    int32_t pre, suf;   /* tokens before the prefix and before the suffix; -1: none */
    int32_t mid;        /* token after both; -1: none, and the text before the gap comes last */
    bool suffix_first;  /* the text after the gap comes first */
    int32_t repo, file; /* tokens before a repository's name and before a file's name; -1: none */
} fim_marks;

/* Finds the tokens for v among its tokenizer's added tokens and pieces. O(1) lookups. */
fim_marks fim_find(const vocab *v, const added_set *added, const piece_table *pieces);
/* Whether the id is one of them. */
bool fim_is_mark(const fim_marks *m, int32_t id);

#endif
