/* Added tokens: strings that are found in the raw text (or, `normalized`, in the
 * normalized text) before the other steps, and become their id. Immutable once built. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "core/vocab.h"
#include "text/piece_table.h"

/* ---- marks ---- */

/* Marks: the parts of a text that came from a client, which may contain no control token.
 *
 * A chat's text consists of what its template wrote and of a client's strings. The
 * template language distinguishes them byte by byte (jinja/jinja_value.c), through every
 * filter and method. A control token counts only where all of its bytes are the
 * template's own. */

/* Bytes [start, end) of a text. */
typedef struct mark_run {
    size_t start, end;
} mark_run;

/* The runs of a client's bytes in a text, ascending and apart. Zero-initialised: none. */
typedef struct text_marks {
    mark_run *runs;
    size_t n, cap;
} text_marks;

void text_marks_deinit(text_marks *m);
/* Adds a run, which begins at or after the end of the last one. QUIRE_NO_MEMORY:
 * unchanged. */
quire_err text_marks_add(text_marks *m, size_t start, size_t end);
/* Cuts the runs to a text that is `n` bytes long now. */
void text_marks_cut(text_marks *m, size_t n);
/* True when a control token is allowed at [start, end). O(log n). */
bool text_marks_allow(const text_marks *m, size_t start, size_t end);
/* The first run that ends after `at`: its index, or n. O(log n). */
size_t text_marks_find(const text_marks *m, size_t at);

/* ---- added ---- */

typedef struct added_token {
    int32_t id;
    str content;  /* as the vocabulary names it; in the set's text */
    str pattern;  /* the string to find: content, normalized if the token is; in the set's text */
    bool special; /* ordinary text when special tokens are not parsed */
    /* its pattern is a special token's content: skipped when decoding; set by
     * added_set_finish */
    bool hidden;
    bool control;    /* a control token: special, or spelled like <|this|>; set by added_set_add */
    bool normalized; /* found in the normalized text */
    /* so many of its pattern's first bytes are the normalizer's, and may be from
     * anywhere */
    size_t lead;
    bool single_word;    /* only where no word character touches it */
    bool lstrip, rstrip; /* takes the white space around it */
} added_token;

typedef struct trie_node {
    int32_t first_child, token; /* token -1: none ends here */
    uint16_t n_children;
    uint8_t byte;
} trie_node;

/* A byte trie. A node's children are contiguous, in ascending order of their bytes. The
 * root is node 0. */
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
    int32_t *by_id;     /* [n_ids]: a token's index plus 1, or 0 */
    int32_t n_ids;
    size_t longest; /* bytes of a pattern */
} added_set;

/* Adds a copy of *t and its texts. QUIRE_NO_MEMORY. An empty pattern is never found. */
quire_err added_set_add(added_set *a, const added_token *t);
/* Builds the tries; ids are below n_ids. */
quire_err added_set_finish(added_set *a, int32_t n_ids);
void added_set_deinit(added_set *a);
/* NULL for an id that is not an added token's. */
const added_token *added_set_get(const added_set *a, int32_t id);
/* The id of a content, or -1. */
int32_t added_set_find(const added_set *a, str content);

/* A walk over a text: stretches without tokens, and tokens, in order. */
typedef struct added_walk {
    const added_set *set;
    const added_trie *trie;
    str text;
    bool skip_special;            /* special tokens are ordinary text */
    const text_marks *marks;      /* where control tokens are ordinary text; NULL: nowhere */
    size_t offset;                /* offset of text in the text that the marks belong to */
    size_t done, from;            /* returned up to here; searched up to here */
    size_t stretch_at, stretch_n; /* result: the text before the token, perhaps empty */
    int32_t id;                   /* result: the token, or -1 at the end */
} added_walk;

/* The caller may set marks and offset before the first step. */
void added_walk_begin(added_walk *w, const added_set *set, const added_trie *trie, str text,
                      bool skip_special);
/* Finds the next stretch and token; *more is false at the end of the text. Leftmost and
 * longest first. Errors of turn_poll. */
quire_err added_walk_next(added_walk *w, bool *more);

/* ---- fill-in-the-middle ---- */

/* Fill-in-the-middle: the tokens by which a model is told what stands before and after a
 * gap, and generates what fills it. Found by the keys of a GGUF file or, where those do
 * not name them, by the spellings that are published. */

typedef struct fim_marks {
    int32_t pre, suf;   /* ids of the tokens before the prefix and before the suffix; -1: none */
    int32_t mid;        /* after both; -1: it has none, and the text before the gap comes last */
    bool suffix_first;  /* the text after the gap comes first */
    int32_t repo, file; /* before a repository's name, and a file's; -1: none */
} fim_marks;

/* Finds the marks of v among its tokenizer's added tokens and pieces. O(1) look-ups. */
fim_marks fim_find(const vocab *v, const added_set *added, const piece_table *pieces);
/* Whether an id is one of them. */
bool fim_is_mark(const fim_marks *m, int32_t id);

#endif
