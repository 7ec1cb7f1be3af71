/* The form of a rule for an answer: the notation of its text, and how JSON that it
 * describes is written. */
#ifndef CORE_RULE_FORM_H
#define CORE_RULE_FORM_H

typedef enum grammar_kind {
    GRAMMAR_REGEX,       /* text: a regular expression that the whole answer matches */
    GRAMMAR_SCHEMA,      /* text: a JSON Schema, draft 2020-12 or 7 */
    GRAMMAR_JSON_OBJECT, /* any JSON object; text is unused */
    GRAMMAR_CHOICE,      /* text: a JSON array of strings, of which the answer is one */
    GRAMMAR_EBNF,        /* text: rules in GBNF; the answer matches the rule `root` */
    GRAMMAR_W3C,         /* text: rules in W3C's EBNF; the first rule is the answer's */
    GRAMMAR_LARK         /* text: rules in Lark's notation; the answer matches the rule `start` */
} grammar_kind;

/* White space between the tokens of JSON. */
typedef enum grammar_space {
    GRAMMAR_SPACE_COMPACT, /* none */
    /* none, a space, or one or two line ends with at most GRAMMAR_SPACE_MAX spaces and
     * tabs after them */
    GRAMMAR_SPACE_LINES,
    GRAMMAR_SPACE_ANY /* wherever JSON allows it, runs of at most GRAMMAR_SPACE_MAX bytes */
} grammar_space;
#define GRAMMAR_SPACE_MAX 20

/* Order of an object's members. */
typedef enum grammar_order {
    GRAMMAR_ORDER_SCHEMA, /* that of `properties`, names that it doesn't list last */
    GRAMMAR_ORDER_ANY
} grammar_order;

/* How integers and the numbers of enum and const are written. */
typedef enum grammar_numbers {
    GRAMMAR_NUMBERS_SHORT, /* 1 */
    GRAMMAR_NUMBERS_ANY    /* 1, 1.0, 1.000: without exponent */
} grammar_numbers;

/* What an object may hold beside the names that its schema lists. */
typedef enum grammar_additional {
    GRAMMAR_ADDITIONAL_SCHEMA, /* what the standard allows: any name that is not forbidden */
    /* nothing, if some `properties` lists names and nothing describes others: as with
     * unevaluatedProperties: false. Not within `not`, `if` and `contains` */
    GRAMMAR_ADDITIONAL_CLOSED
} grammar_additional;

#endif
