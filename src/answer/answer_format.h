/* Answer formats: how models write tool calls and reasoning, one row a format.
 *
 * A row has writings: texts as the model writes them, with holes for what differs.
 * Everything else is derived from these: which format a chat template has, the grammar of
 * forced calls, the marks that a parser looks for in a stream, where reasoning ends, and
 * what a spent budget writes there. Immutable; any thread. */
#ifndef ANSWER_ANSWER_FORMAT_H
#define ANSWER_ANSWER_FORMAT_H

#include "base/str.h"
#include "request/request_tools.h"

/* Characters of a writing with a meaning; all others stand for themselves. */
enum {
    HOLE_NAME = 1,      /* of the function */
    HOLE_ARGUMENTS = 2, /* as JSON */
    HOLE_KEY = 3,       /* of one argument */
    HOLE_VALUE = 4,
    HOLE_ID = 5,      /* nine letters and digits */
    HOLE_NUMBER = 6,  /* of the call */
    HOLE_WORD = 7,    /* a word of letters, digits, _ . and - */
    HOLE_IS_TEXT = 8, /* whether the argument is a string: true or false */
    HOLE_TEXT = 11,   /* the reasoning */
    HOLE_ANSWER = 12,
    HOLE_SPACE = 14, /* a space that may be missing */
    HOLE_LINE = 15,  /* a newline that may be missing */
    EDGE_CALLS = 16, /* the text before this begins calls in free text */
    EDGE_PART = 17,  /* two marks meet here */
    EDGE_EACH = 18,  /* the part up to EDGE_BETWEEN is repeated; then comes the separator */
    EDGE_BETWEEN = 19,
    EDGE_END = 20,
    EDGE_READS = 21, /* at the beginning: accepted by the parser, never written by a grammar */
    EDGE_WITH = 22   /* in seen_by: joins texts that must all occur */
};

typedef enum answer_syntax {
    SYNTAX_JSON, /* tool calls, by how their arguments are written */
    SYNTAX_TAGS,
    SYNTAX_ELEMENTS,
    SYNTAX_GEMMA,
    SYNTAX_PYTHON,
    SYNTAX_HARMONY,
    REASONING_FIRST,  /* an answer begins inside it, with or without a mark */
    REASONING_MARKED, /* only the mark begins it */
    REASONING_KEPT,   /* it remains content, with its opening mark before it */
    REASONING_HARMONY /* messages of harmony */
} answer_syntax;

/* What a parser accepts. Rows set the first four members; the others follow from the
 * writings. */
enum {
    FORMAT_IN_SECTION = 1 << 0,   /* calls count only in a section */
    FORMAT_TYPED_QUOTES = 1 << 1, /* gemma: a quoted text has the type that the schema gives */
    FORMAT_HEAD_FIRST = 1 << 2,   /* json: the answer begins inside a head; the head "all" means content */
    FORMAT_FORCED_JSON = 1 << 3,  /* with a forced choice the answer may be plain JSON */
    FORMAT_HEAD = 1 << 4,         /* json: the name stands before the arguments */
    FORMAT_LISTED = 1 << 5,       /* json: the name is a member of an object beside the arguments */
    FORMAT_KEYED = 1 << 6,        /* json: {name: arguments} */
    FORMAT_BARE = 1 << 7,         /* json: a bracket anywhere, or in a section, may begin a call */
    FORMAT_BARE_FIRST = 1 << 8,   /* python: so may one at the beginning of the answer */
    FORMAT_SEMICOLON = 1 << 9,    /* semicolons may separate calls */
    FORMAT_LINES = 1 << 10,       /* python: calls without brackets around them */
    FORMAT_VALUE_LINES = 1 << 11, /* tags: a newline on each side of a value is not part of it */
    FORMAT_NAME_TO_TAG = 1 << 12, /* tags: the name ends where the next mark begins */
    FORMAT_VALUE_APART = 1 << 13  /* tags: a mark stands between a key's end and its value */
};

#define FORMAT_NAMES    17
#define FORMAT_WRITINGS 4
#define FORMAT_MARKS    16

typedef struct answer_format {
    const char *names[FORMAT_NAMES]; /* names for vLLM's --tool-call-parser or --reasoning-parser */
    answer_syntax syntax;
    unsigned flags;
    const char *writings[FORMAT_WRITINGS];
    const char *seen_by[3]; /* texts by which a template is recognised; none: the first opening mark */
} answer_format;

/* Finds a format by name; NULL: unknown. .._at: row i; NULL past the last. */
const answer_format *call_format_named(const char *name);
const answer_format *reasoning_format_named(const char *name);
const answer_format *call_format_at(size_t i);
const answer_format *reasoning_format_at(size_t i);
/* The row's own copy of `name`; NULL if it is none of the row's names. */
const char *answer_format_name(const answer_format *f, const char *name);

/* ---- what follows from the writings ---- */

/* What a mark does. */
typedef enum mark_role {
    ROLE_NONE,
    ROLE_OPEN,    /* begins a call, or a list of calls */
    ROLE_CLOSE,   /* ends it; dropped after a call */
    ROLE_SECTION, /* stands before the calls; dropped where one follows */
    ROLE_SECTION_END,
    ROLE_END,       /* tags, elements: the end of a call */
    ROLE_NAME_END,  /* tags: the end of the name */
    ROLE_PARAMETER, /* tags: before a parameter's name */
    ROLE_VALUE,     /* tags: between a parameter's name and its value */
    ROLE_VALUE_END,
    ROLE_NEXT,    /* tags: the next parameter, if values have no end mark */
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

typedef struct format_mark {
    mark_role role;
    str text;
} format_mark;

/* The marks that a parser of calls looks for. */
typedef struct format_shape {
    unsigned flags; /* FORMAT_* */
    int n;
    format_mark marks[FORMAT_MARKS];
} format_shape;
void answer_format_shape(const answer_format *calls, format_shape *out);
/* The first mark of that role; empty: none. */
str format_shape_mark(const format_shape *s, mark_role role);

/* One writing of calls, taken apart. Its texts may have holes.
 *
 *   open before NAME name_end ARGUMENTS end [separator again NAME name_end ARGUMENTS
 *   end]* close */
typedef struct call_writing {
    const answer_format *format;
    str open, before, name_end, end, separator, again, close;
    str head;       /* if is_head: from the opening mark of a call to its arguments */
    bool only_read; /* no grammar writes it */
    bool repeats;   /* false: one call */
    bool is_first;  /* it begins with a bracket: a call only where the answer begins with it */
    bool is_head;   /* json: the name stands before the arguments */
    /* arguments as tags: [tag_before KEY tag_middle VALUE tag_behind tag_between]* */
    str tag_before, tag_middle, tag_behind, tag_between;
    bool has_elements; /* tag_behind continues with the key and > */
} call_writing;
/* Writing i of a format of calls; false: it has no more. */
bool call_writing_at(const answer_format *calls, size_t i, call_writing *out);
/* The same, for the writings that a grammar writes. */
bool call_written_at(const answer_format *calls, size_t i, call_writing *out);
/* Removes the next piece from *text: a literal (*hole is 0) or a hole. False if there is
 * none. */
bool writing_next(str *text, str *literal, char *hole);
/* The first literal; empty: none. */
str writing_first(str text);

/* Whether a function of that name can be written in this form. */
bool call_writing_takes(const call_writing *w, str name);

/* The texts around reasoning and answer. In harmony `before` begins the answer, and
 * `next` comes between reasoning and more reasoning; in other formats `before` may be
 * missing. */
enum { REASONING_SPELLINGS = 2 };
typedef struct reasoning_marks {
    str open[REASONING_SPELLINGS], close[REASONING_SPELLINGS];
    str before[REASONING_SPELLINGS], behind[REASONING_SPELLINGS];
    int n, n_before, n_behind;
    str next;
} reasoning_marks;
void reasoning_format_marks(const answer_format *reasoning, reasoning_marks *out);

/* ---- formats of a model ---- */

typedef enum output_start {
    OUTPUT_START_UNKNOWN, /* decided by the format: most reasoning models begin to think at once */
    OUTPUT_START_REASONING,
    OUTPUT_START_CONTENT, /* the prompt contains a closed block; an opening mark still begins reasoning */
    OUTPUT_START_MARKED   /* only an opening mark begins reasoning, and the model is free to write it */
} output_start;
/* How an answer begins after a prompt whose text after the last message is `tail`: inside
 * the reasoning, after a closed block, or `otherwise` if the tail has no mark. That is
 * OUTPUT_START_MARKED for a format found in the template, since such a template opens the
 * reasoning itself or leaves the mark to the model, and OUTPUT_START_UNKNOWN for a format
 * that an option names. */
output_start output_start_behind(const char *reasoning_format, str tail, output_start otherwise);

/* The formats recognised in a chat template. */
output_formats output_formats_of_template(str chat_template);
/* All marks of the two; returns how many. */
enum { OUTPUT_FORMAT_MARKS = FORMAT_MARKS + 4 * REASONING_SPELLINGS };
int output_formats_marks(const output_formats *f, str marks[OUTPUT_FORMAT_MARKS]);

/* ---- what a request says to the parser ---- */

/* What a request tells the parser of its answer. */

#define OUTPUT_MAX_HELD ((size_t)1 << 20)

/* Tools and texts are borrowed until the parser closes. */
typedef struct output_options {
    const char *tools_format, *reasoning_format; /* names of answer_format.h; NULL: none */
    const output_tool *tools;
    size_t n_tools; /* 0: nothing is a call */
    output_choice choice;
    str named;
    output_start start;
    /* Whether a text is an added token of the vocabulary (control or user-defined).
     * Such a mark counts only as that token. NULL: no text is. */
    bool (*is_special)(const void *context, str text);
    const void *special_context;
    bool drops_specials; /* special tokens that are not marks are left out of content and reasoning */
    size_t max_held;     /* bytes; 0: OUTPUT_MAX_HELD. At least two marks fit in any case */
} output_options;

#endif
