/* Grammars made of parts: texts, special tokens, rules of any kind, free text, and tags
 * that may begin anywhere in free text. All parts become one automaton, so masks, forks
 * and forced tokens work as in any grammar.
 *
 * A special token is a terminal of its own that no text spells. A vocabulary gives it the
 * text of grammar_mark_spell; other tokens with that spelling's first byte, which UTF-8
 * never has, are never allowed. In the texts of parts, grammar_marks are special tokens
 * (the longest one at each place): `<tool_call>` means the token if the tokenizer has
 * one, else the letters. */
#ifndef GRAMMAR_GRAMMAR_PARTS_H
#define GRAMMAR_GRAMMAR_PARTS_H

#include "grammar/grammar.h"
#include "json/json.h"

#define GRAMMAR_MARK_BYTES 5
#define GRAMMAR_MARK_IDS   (1 << 24) /* first id without a spelling */
/* Writes the spelling of a special token. */
void grammar_mark_spell(int32_t id, char out[GRAMMAR_MARK_BYTES]);

typedef struct grammar_mark {
    str text; /* spelling in the texts of parts; empty: it is in none */
    int32_t id;
    bool hidden; /* a control token, which is never part of a text */
} grammar_mark;

/* The special tokens of a tokenizer. */
typedef struct grammar_marks {
    const grammar_mark *list;
    size_t n;
} grammar_marks;

typedef struct grammar_part grammar_part;

typedef enum grammar_part_kind {
    GRAMMAR_PART_TEXT,      /* text; empty is allowed */
    GRAMMAR_PART_MARKS,     /* a special token out of ids[0 .. n_ids), or with `negated` any other one */
    GRAMMAR_PART_RULE,      /* a rule of `kind`, given as `text` */
    GRAMMAR_PART_OTHER,     /* texts that the regex `text` matches as a whole, except texts[0 .. n_texts) */
    GRAMMAR_PART_ARGUMENTS, /* `arguments` of a tool call */
    GRAMMAR_PART_SEQUENCE,  /* parts[0 .. n_parts) in sequence */
    GRAMMAR_PART_ONE_OF,    /* one of parts */
    GRAMMAR_PART_REPEAT,    /* parts[0], min to max times, separated by parts[1] if n_parts is 2 */
    GRAMMAR_PART_FREE,      /* any text, even empty, in which none of texts[0 .. n_texts) occurs */
    GRAMMAR_PART_UNTIL,     /* any text up to and including the first of texts */
    GRAMMAR_PART_TAGS       /* free text, in which triggers (texts) begin tags; see below */
} grammar_part_kind;

/* The special tokens that free text may contain, besides its texts and triggers. */
typedef enum grammar_specials {
    GRAMMAR_SPECIALS_SHOWN, /* all that are not hidden */
    GRAMMAR_SPECIALS_NONE,
    GRAMMAR_SPECIALS_ALL
} grammar_specials;

/* A tag: `begin`, which starts with a trigger, then `rest`, its body and end. */
typedef struct grammar_tag {
    str begin;
    const grammar_part *rest;
} grammar_tag;

#define GRAMMAR_NO_MAX UINT32_MAX

/* A part. Everything is borrowed until the call returns.
 *
 * GRAMMAR_PART_TAGS: once a trigger is complete in the text, a tag that begins with it
 * must follow. A trigger of letters is found by its letters; one with a special token by
 * the first such token, which then may not occur otherwise. After a tag, free text
 * continues. With `begins_with_tag` there is none before the first tag. A trigger with
 * which no tag begins may not occur at all. A `pattern` begins a tag too, where it first
 * matches: then comes `behind`, like the rest of a tag, or `other`, after which the same
 * free text continues. */
struct grammar_part {
    grammar_part_kind part;
    str text;          /* TEXT, RULE, OTHER */
    grammar_kind kind; /* RULE */
    /* RULE: as in grammar_options; `space` and `order` are common to all rules */
    str whitespace_pattern;
    /* RULE: prefix of its error messages, such as "tools[0].parameters"; may be NULL */
    const char *where;
    const struct grammar_arguments *arguments; /* ARGUMENTS */
    const int32_t *ids;                        /* MARKS */
    size_t n_ids;
    bool negated;
    const grammar_part *parts; /* SEQUENCE, ONE_OF, REPEAT */
    size_t n_parts;
    uint32_t min, max; /* REPEAT; max may be GRAMMAR_NO_MAX */
    const str *texts;  /* FREE, UNTIL, TAGS: valid UTF-8, not empty; OTHER: valid UTF-8 */
    size_t n_texts;
    /* TAGS, UNTIL: more texts that the free text may not contain; the text that ends
     * UNTIL may */
    const str *never;
    size_t n_never;
    grammar_specials specials; /* FREE, UNTIL, TAGS */
    const grammar_tag *tags;   /* TAGS */
    size_t n_tags;
    bool begins_with_tag;               /* TAGS without a pattern */
    bool stop_after_first;              /* TAGS */
    str pattern;                        /* TAGS: a regex; empty: none */
    const grammar_part *behind, *other; /* TAGS with a pattern */
};

#define GRAMMAR_PARTS_DEPTH 100 /* most nesting of parts; deeper ones are refused */

/* Compiles parts; marks and options may be NULL. Like grammar_compile, with one budget
 * for all parts and `keyword` called for all schemas. QUIRE_INVALID also if a tag begins
 * with no trigger, or a text is empty or no UTF-8. */
quire_err grammar_compile_parts(const grammar_part *root, const grammar_marks *marks,
                                const grammar_options *options, grammar **out, quire_error *err);

/* ---- arguments of tool calls ---- */

/* The arguments of a tool call, as a part of a grammar: an object that obeys a JSON
 * Schema, in the syntax that a model writes.
 *
 * In syntaxes other than JSON, member names are words, and names that the schema does not
 * mention are not allowed. */

typedef enum grammar_syntax {
    GRAMMAR_SYNTAX_JSON,
    /* `before` NAME `middle` VALUE `behind` for each member; strings without quotes,
     * other values as JSON */
    GRAMMAR_SYNTAX_TAGS,
    GRAMMAR_SYNTAX_GEMMA, /* {NAME:VALUE,..}: strings between two `quote`; nested objects likewise */
    GRAMMAR_SYNTAX_PYTHON /* NAME=VALUE, .. with Python literals */
} grammar_syntax;

/* How the reader of the answer interprets a value whose text does not show its type. No
 * bit: as JSON if that is possible, else as a string. */
enum {
    GRAMMAR_READS_STRING = 1 << 0, /* always as a string */
    GRAMMAR_READS_NULL = 1 << 1,   /* `null` as null, in any case and with white space around it */
    GRAMMAR_READS_JSON = 1 << 2,   /* always as JSON */
    GRAMMAR_READS_OBJECT = 1 << 3, /* elements inside as an object */
    GRAMMAR_READS_ARRAY = 1 << 4   /* elements inside as an array, if it cannot be an object */
};

/* How the reader of the answer finds the types of values. NULL: it has no schema. */
typedef struct grammar_reader {
    unsigned (*reads)(const void *user, const json_value *schema);
    /* the schema of a member, or of an array's items; NULL: unknown to the reader */
    const json_value *(*member)(const void *user, const json_value *schema, str name);
    const json_value *(*items)(const void *user, const json_value *schema);
    /* an object with the members that it knows by name; NULL: none */
    const json_value *(*properties)(const void *user, const json_value *schema);
    const json_value *schema; /* schema of the arguments */
    const void *user;
} grammar_reader;

typedef struct grammar_arguments {
    grammar_syntax syntax;
    const json_value *schema; /* an object, or true; NULL: no members are allowed */
    /* instead of a schema: the single member, a string that `rule` matches */
    str member; /* empty: there is a schema */
    grammar_kind kind;
    str rule;
    /* TAGS; they may contain special tokens */
    str before, middle, behind;
    /* TAGS: replaces `middle` before strings; empty: `middle`, and `reads` decides the
     * type */
    str string_middle;
    str between;
    bool between_may_miss;
    /* TAGS: `behind` is followed by the member's name and >; nested objects and arrays
     * are written in the same way */
    bool has_elements;
    const str *never; /* texts that no value contains; valid UTF-8 */
    size_t n_never;
    str never_first; /* text that no value begins with; empty: none */
    /* GEMMA: */
    str quote;
    bool reads_quoted; /* `reads` decides the types of quoted values in the outermost object */
    grammar_reader reader;
    /* NULL, or shared by parts with the same arguments: 0 at first, then the number of
     * their rule plus 1 */
    uint32_t *kept;
} grammar_arguments;

#endif
