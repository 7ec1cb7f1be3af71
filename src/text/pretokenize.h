/* Pre-tokenizers: a sequence of steps that cut a text into pieces, which merges never
 * cross. Immutable once built; each call brings its own scratch. */
#ifndef TEXT_PRETOKENIZE_H
#define TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/regex.h"

typedef enum pre_kind {
    PRE_SPLIT, /* cuts at the matches of `match` */
    PRE_CHARS, /* cuts at single characters of `class` */
    PRE_FIXED, /* cuts after every `length` characters */
    /* cuts where the script changes; characters without a script stay with the text
     * before them, and are removed at the start */
    PRE_SCRIPTS,
    PRE_METASPACE, /* turns spaces into a mark, with `prepend` also puts one first; cuts before marks */
    /* puts a space first if asked; cuts by `match` if there is one; spells bytes as in
     * chars.h */
    PRE_BYTE_LEVEL
} pre_kind;

/* What becomes of a delimiter. */
typedef enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behavior;

typedef enum char_class { CLASS_SPACE, CLASS_NUMERIC, CLASS_PUNCTUATION, CLASS_DELIMITER } char_class;

typedef enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } prepend_scheme;

typedef struct pre_step {
    pre_kind kind;
    split_behavior behavior; /* SPLIT, CHARS */
    bool invert;             /* SPLIT: the text between matches is the delimiter */
    char_class class;        /* CHARS */
    int32_t delimiter;       /* CHARS with CLASS_DELIMITER; METASPACE: the mark */
    int32_t length;          /* FIXED */
    prepend_scheme prepend;  /* METASPACE; BYTE_LEVEL: NEVER or ALWAYS */
    bool split;              /* METASPACE, BYTE_LEVEL */
    matcher match;           /* SPLIT, BYTE_LEVEL */
} pre_step;

#define PRE_MAX_STEPS 32

typedef struct pretokenizer {
    pre_step steps[PRE_MAX_STEPS];
    int32_t n;
} pretokenizer;

void pretokenizer_deinit(pretokenizer *p);
/* Whether a step removes characters. */
bool pretokenizer_deletes(const pretokenizer *p);
/* Append a step. QUIRE_UNSUPPORTED above PRE_MAX_STEPS; errors of regex_open. */
quire_err pretokenizer_add_split(pretokenizer *p, str pattern, split_behavior behavior, bool invert,
                                 quire_error *err);
/* Appends a step that cuts by the matches of a pattern in this syntax; each is a
 * piece. */
quire_err pretokenizer_add_split_as(pretokenizer *p, str pattern, regex_syntax syntax, quire_error *err);
quire_err pretokenizer_add_chars(pretokenizer *p, char_class class, int32_t delimiter,
                                 split_behavior behavior, quire_error *err);
/* cut: by GPT-2's pattern. */
quire_err pretokenizer_add_byte_level(pretokenizer *p, bool prefix_space, bool cut, quire_error *err);

typedef struct text_span {
    size_t at, n; /* in the list's text; n > 0 */
} text_span;

/* The pieces of a text, in order. */
typedef struct piece_list {
    str text;     /* borrowed */
    size_t front; /* leading bytes of `text` that stand for the first character of the whole input */
    text_span *pieces;
    size_t n, cap;
} piece_list;

typedef struct pre_scratch {
    piece_list a, b;
    strbuf texts[2]; /* output of steps that rewrite, alternating: a step's input is in the other one */
    strbuf spaced;
    struct cut {
        size_t start, end;
        bool match;
    } * cuts;
    size_t n_cuts, cap_cuts;
    /* set by the caller if no step removes characters: cutting stops beyond it; 0:
     * unlimited */
    size_t max_pieces;
    size_t max_cuts; /* limit for the current step, if each of its cuts becomes a piece */
    size_t front;    /* leading bytes that stand for the first character, in the text being written */
    bool continues;  /* set by the caller: the text continues another one, so no space is added */
} pre_scratch;

void pre_scratch_deinit(pre_scratch *s);

/* Whether a step needs to know where the whole input starts. */
bool pretokenizer_asks_front(const pretokenizer *p);

/* Cuts text (valid UTF-8), whose first `front` bytes stand for the first character of the
 * whole input. *out is in the scratch until its next use and may borrow text.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE, QUIRE_BAD_REQUEST (matcher_next), QUIRE_NO_ROOM above
 * s->max_pieces. */
quire_err pretokenizer_run(const pretokenizer *p, str text, size_t front, pre_scratch *s, regex_scratch *rs,
                           const piece_list **out);

#endif
