/* Grammars made of parts: texts, special tokens, rules of any kind, free text, and tags
 * that begin anywhere in free text. All parts are one automaton, so masks, forks and
 * forced tokens are those of every grammar.
 *
 * A special token is a terminal of its own: no text spells it. A vocabulary has it where
 * its text is that of grammar_mark_spell; other tokens that have that spelling's first
 * byte, which is in no UTF-8, are never allowed. In the texts of parts the special tokens
 * of grammar_marks are themselves (the longest at each place): `<tool_call>` means the
 * token where the tokenizer has one, else the letters. */
#ifndef GRAMMAR_GRAMMAR_PARTS_H
#define GRAMMAR_GRAMMAR_PARTS_H

#include "grammar/grammar.h"

#define GRAMMAR_MARK_BYTES 5
#define GRAMMAR_MARK_IDS   (1 << 24) /* ids from here on cannot be spelt */
/* Writes the spelling of special token id. */
void grammar_mark_spell(int32_t id, char out[GRAMMAR_MARK_BYTES]);

typedef struct grammar_mark {
    str text; /* as it is written in parts; empty: never met in a text */
    int32_t id;
    bool hidden; /* a control token, no part of any text */
} grammar_mark;

/* The special tokens of a tokenizer. */
typedef struct grammar_marks {
    const grammar_mark *list;
    size_t n;
} grammar_marks;

typedef struct grammar_part grammar_part;

typedef enum grammar_part_kind {
    GRAMMAR_PART_TEXT,      /* text; empty: nothing */
    GRAMMAR_PART_MARKS,     /* one special token, of ids[0 .. n_ids), or with `negated` any other */
    GRAMMAR_PART_RULE,      /* a rule of `kind` in `text` */
    GRAMMAR_PART_OTHER,     /* what the regex `text` matches as a whole, without texts[0 .. n_texts) */
    GRAMMAR_PART_ARGUMENTS, /* `arguments` of a tool call */
    GRAMMAR_PART_SEQUENCE,  /* parts[0 .. n_parts) one after the other */
    GRAMMAR_PART_ONE_OF,    /* one of parts */
    GRAMMAR_PART_REPEAT,    /* parts[0] min to max times, between two of them parts[1] if there is one */
    GRAMMAR_PART_FREE,      /* any text that contains none of texts[0 .. n_texts); may be empty */
    GRAMMAR_PART_UNTIL,     /* any text up to the first of texts, and that one: what follows is after it */
    GRAMMAR_PART_TAGS       /* free text, in which a trigger (texts) begins a tag; see below */
} grammar_part_kind;

/* The special tokens that free text may hold beside its texts and triggers. */
typedef enum grammar_specials {
    GRAMMAR_SPECIALS_SHOWN, /* those that are not hidden */
    GRAMMAR_SPECIALS_NONE,
    GRAMMAR_SPECIALS_ALL
} grammar_specials;

/* A tag: `begin`, which begins with a trigger, then `rest`: the body and the end. */
typedef struct grammar_tag {
    str begin;
    const grammar_part *rest;
} grammar_tag;

#define GRAMMAR_NO_MAX UINT32_MAX

/* All is borrowed until the call returns.
 *
 * Of GRAMMAR_PART_TAGS: where a trigger is complete in the text, the beginning of a tag
 * with that trigger continues. A text of triggers is such by its letters; one with a
 * special token is such by its first one, which occurs in no other way then. After a tag
 * free text continues. A trigger with which no tag begins occurs nowhere. A `pattern`
 * begins a tag too, where it matches for the first time: then `behind` follows as the
 * rest of a tag does, or `other`, after which the same free text continues. */
struct grammar_part {
    grammar_part_kind part;
    str text;          /* of TEXT, RULE, OTHER */
    grammar_kind kind; /* of RULE */
    /* of RULE: as in grammar_options; `space` and `order` are the same for all rules */
    str whitespace_pattern;
    /* of RULE, may be NULL: begins the messages of its errors, as
     * "tools[0].parameters" */
    const char *where;
    const struct grammar_arguments *arguments; /* grammar_arguments.h */
    const int32_t *ids;                        /* of MARKS */
    size_t n_ids;
    bool negated;
    const grammar_part *parts; /* of SEQUENCE, ONE_OF, REPEAT */
    size_t n_parts;
    uint32_t min, max; /* of REPEAT; max: GRAMMAR_NO_MAX */
    const str *texts;  /* of FREE, UNTIL, TAGS: valid UTF-8, not empty; of OTHER: valid UTF-8 */
    size_t n_texts;
    const str *never; /* of TAGS, UNTIL: texts that the free text does not contain either */
    size_t n_never;
    grammar_specials specials; /* of FREE, UNTIL, TAGS */
    const grammar_tag *tags;   /* of TAGS */
    size_t n_tags;
    bool at_least_one, stop_after_first; /* of TAGS */
    str pattern;                         /* of TAGS: a regex; empty: none */
    const grammar_part *behind, *other;  /* of TAGS with a pattern */
};

#define GRAMMAR_PARTS_DEPTH 100 /* parts within parts; deeper ones are refused */

/* Compiles parts; marks and options may be NULL. As grammar_compile, with its budgets for
 * all parts together; `keyword` is called for the schemas of all. QUIRE_INVALID also: a
 * tag that begins with no trigger, texts that are empty or no UTF-8. */
quire_err grammar_compile_parts(const grammar_part *root, const grammar_marks *marks,
                                const grammar_options *options, grammar **out, quire_error *err);

#endif
