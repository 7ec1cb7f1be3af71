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
#include "json/json.h"

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
 * free text continues. With `begins_with_tag` none stands before the first one. A trigger
 * with which no tag begins occurs nowhere. A `pattern` begins a tag too, where it matches
 * for the first time: then `behind` follows as the
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
    const struct grammar_arguments *arguments; /* grammar_parts.h */
    const int32_t *ids;                        /* of MARKS */
    size_t n_ids;
    bool negated;
    const grammar_part *parts; /* of SEQUENCE, ONE_OF, REPEAT */
    size_t n_parts;
    uint32_t min, max; /* of REPEAT; max: GRAMMAR_NO_MAX */
    const str *texts;  /* of FREE, UNTIL, TAGS: valid UTF-8, not empty; of OTHER: valid UTF-8 */
    size_t n_texts;
    /* of TAGS, UNTIL: more texts that the free text must not contain; the text that ends
     * UNTIL may contain them */
    const str *never;
    size_t n_never;
    grammar_specials specials; /* of FREE, UNTIL, TAGS */
    const grammar_tag *tags;   /* of TAGS */
    size_t n_tags;
    bool begins_with_tag;               /* of TAGS without a pattern */
    bool stop_after_first;              /* of TAGS */
    str pattern;                        /* of TAGS: a regex; empty: none */
    const grammar_part *behind, *other; /* of TAGS with a pattern */
};

#define GRAMMAR_PARTS_DEPTH 100 /* parts within parts; deeper ones are refused */

/* Compiles parts; marks and options may be NULL. As grammar_compile, with its budgets for
 * all parts together; `keyword` is called for the schemas of all. QUIRE_INVALID also: a
 * tag that begins with no trigger, texts that are empty or no UTF-8. */
quire_err grammar_compile_parts(const grammar_part *root, const grammar_marks *marks,
                                const grammar_options *options, grammar **out, quire_error *err);

/* ---- arguments of calls ---- */

/* The arguments of a tool call, as a part of a grammar (grammar_parts.h): an object that
 * obeys a JSON Schema, in the syntax in which a model writes it.
 *
 * In syntaxes other than JSON the names of members are words, and names that the schema
 * does not mention are not allowed. */

typedef enum grammar_syntax {
    GRAMMAR_SYNTAX_JSON,
    /* `before` NAME `middle` VALUE `behind`, once for each member: strings without
     * quotes, other values as JSON */
    GRAMMAR_SYNTAX_TAGS,
    GRAMMAR_SYNTAX_GEMMA, /* {NAME:VALUE,..}: strings between two `quote`, nested objects in the same way */
    GRAMMAR_SYNTAX_PYTHON /* NAME=VALUE, ..: Python literals */
} grammar_syntax;

/* How the reader of the answer takes a value whose text has no type of its own. Without a
 * bit: JSON where it reads so, else a string. */
enum {
    GRAMMAR_READS_STRING = 1 << 0, /* as a string, whatever it looks like */
    GRAMMAR_READS_NULL = 1 << 1,   /* `null` as null, in any case and with white space around it */
    GRAMMAR_READS_JSON = 1 << 2,   /* as JSON only */
    GRAMMAR_READS_OBJECT = 1 << 3, /* elements inside as an object */
    GRAMMAR_READS_ARRAY = 1 << 4   /* elements inside as an array, where it is none that may be an object */
};

/* How the reader of the answer types values. NULL: it knows no schema of any. */
typedef struct grammar_reader {
    unsigned (*reads)(const void *user, const json_value *schema);
    /* The schema of a member, or of an array's items; NULL: the reader knows none. */
    const json_value *(*member)(const void *user, const json_value *schema, str name);
    const json_value *(*items)(const void *user, const json_value *schema);
    /* The members that it knows by name: an object; NULL: none. */
    const json_value *(*properties)(const void *user, const json_value *schema);
    const json_value *schema; /* of the arguments */
    const void *user;
} grammar_reader;

typedef struct grammar_arguments {
    grammar_syntax syntax;
    const json_value *schema; /* an object or true; NULL: no member is allowed */
    /* In place of a schema: one member, a string that the rule `rule` matches. */
    str member; /* empty: there is a schema */
    grammar_kind kind;
    str rule;
    /* TAGS. Texts may hold special tokens. */
    str before, middle, behind;
    /* in place of `middle` before strings; empty: the same, and then `reads` decides what
     * a value is */
    str string_middle;
    str between;
    bool between_may_miss;
    /* after `behind` come the member's name and >; objects and arrays inside are written
     * in the same way */
    bool has_elements;
    const str *never; /* what no value contains, valid UTF-8 */
    size_t n_never;
    str never_first; /* what no value begins with; empty: nothing */
    /* GEMMA */
    str quote;
    bool reads_quoted; /* `reads` decides what a quoted value of the outermost object is */
    grammar_reader reader;
    /* 0 before; keeps the rule's number, plus 1, for parts that have the same arguments.
     * NULL: none has */
    uint32_t *kept;
} grammar_arguments;

#endif
