/* The arguments of a tool call, as a part of a grammar (grammar_parts.h): an object that
 * obeys a JSON Schema, in the syntax in which a model writes it.
 *
 * In syntaxes other than JSON the names of members are words, and names that the schema
 * does not mention are not allowed. */
#ifndef GRAMMAR_GRAMMAR_ARGUMENTS_H
#define GRAMMAR_GRAMMAR_ARGUMENTS_H

#include "grammar/grammar.h"
#include "json/json.h"

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
