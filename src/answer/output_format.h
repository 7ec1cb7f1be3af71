/* The formats in which models write tool calls and reasoning, as data. */
#ifndef ANSWER_OUTPUT_FORMAT_H
#define ANSWER_OUTPUT_FORMAT_H

#include "base/str.h"

/* What a mark does. */
typedef enum mark_role {
    ROLE_NONE,
    ROLE_OPEN,    /* begins a call, or a list of calls */
    ROLE_CLOSE,   /* ends it; dropped behind a call */
    ROLE_SECTION, /* stands before the calls; dropped where one follows */
    ROLE_SECTION_END,
    ROLE_HEAD,      /* json: between the name and the arguments */
    ROLE_END,       /* tags, elements: the end of a call */
    ROLE_NAME_END,  /* tags: the end of the name */
    ROLE_PARAMETER, /* tags: before a parameter's name */
    ROLE_VALUE,     /* tags: between a parameter's name and its value */
    ROLE_VALUE_END,
    ROLE_NEXT,    /* tags: the next parameter, where a value has no end of its own */
    ROLE_QUOTE,   /* gemma: both ends of a string */
    ROLE_TAG,     /* elements: stands before every tag */
    ROLE_MESSAGE, /* harmony: ends a message's header */
    ROLE_MESSAGE_END,
    ROLE_START,     /* harmony: begins a header */
    ROLE_CHANNEL,   /* harmony: before the channel's name in a header */
    ROLE_CONSTRAIN, /* harmony: before the content type in a header */
    ROLE_DROP,      /* never content */
    ROLE_THINK,     /* begins the reasoning */
    ROLE_THINK_END
} mark_role;

typedef enum call_syntax {
    SYNTAX_NONE,
    SYNTAX_JSON,
    SYNTAX_TAGS,
    SYNTAX_ELEMENTS,
    SYNTAX_GEMMA,
    SYNTAX_PYTHON,
    SYNTAX_HARMONY
} call_syntax;

enum {
    FORMAT_HEAD = 1 << 0,          /* json: the name stands before the arguments */
    FORMAT_HEAD_OR_JSON = 1 << 1,  /* json: so it does, or a list of calls follows */
    FORMAT_KEYED = 1 << 2,         /* json: {name: arguments} */
    FORMAT_BARE = 1 << 3,          /* a bracket anywhere, or in a section, may begin a call */
    FORMAT_BARE_FIRST = 1 << 4,    /* so may one that the answer begins with */
    FORMAT_SEMICOLON = 1 << 5,     /* may stand between calls */
    FORMAT_IN_SECTION = 1 << 6,    /* calls count only behind ROLE_SECTION */
    FORMAT_LINES = 1 << 7,         /* python: calls without brackets around them */
    FORMAT_VALUE_LINES = 1 << 8,   /* tags: a newline on each side of a value is not part of it */
    FORMAT_NAME_TO_TAG = 1 << 9,   /* tags: the name ends where the next mark begins */
    FORMAT_TYPED_QUOTES = 1 << 10, /* gemma: a quoted text is what the schema says */
    FORMAT_HEAD_FIRST = 1 << 11,   /* json: the answer begins in a head; the head "all" is that of content */
    FORMAT_FORCED_JSON = 1 << 12   /* with a forced choice the answer may be plain JSON */
};

#define FORMAT_MARKS 14

typedef struct format_mark {
    mark_role role;
    const char *text;
} format_mark;

typedef struct call_format {
    const char *name;
    call_syntax syntax;
    unsigned flags;
    format_mark marks[FORMAT_MARKS]; /* up to the first without a text */
} call_format;

typedef enum reasoning_rule {
    REASONING_FIRST,  /* an answer begins inside it, with or without a mark */
    REASONING_MARKED, /* only the mark begins it */
    REASONING_KEPT,   /* it stays content, behind its opening mark */
    REASONING_HARMONY /* the messages of harmony say it */
} reasoning_rule;

typedef struct reasoning_format {
    const char *name;
    reasoning_rule rule;
    const char *open[2], *close[2]; /* NULL: no second spelling */
    const char *drops[4];           /* marks around the answer */
} reasoning_format;

/* NULL: no such format. call_format_at(i), reasoning_format_at(i): row i; NULL past the
 * last. */
const call_format *call_format_named(const char *name);
const reasoning_format *reasoning_format_named(const char *name);
const call_format *call_format_at(size_t i);
const reasoning_format *reasoning_format_at(size_t i);

#endif
