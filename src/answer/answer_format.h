/* Answer formats: how models write tool calls and reasoning. Each format is a table row.
 *
 * A row has writings: templates of the text that a model writes, with holes for the parts
 * that vary. All else is derived from them: which format a chat template uses, the
 * grammar of forced calls, the marks that a parser searches for, where reasoning ends,
 * and the text that closes it when a thinking budget is spent. Immutable; any thread. */
#ifndef ANSWER_ANSWER_FORMAT_H
#define ANSWER_ANSWER_FORMAT_H

#include "base/str.h"
#include "request/request_tools.h"

/* Characters with a special meaning in a writing; all others are literal text. */
enum {
    HOLE_NAME = 1,      /* the function's name */
    HOLE_ARGUMENTS = 2, /* the arguments as JSON */
    HOLE_KEY = 3,       /* one argument's name */
    HOLE_VALUE = 4,
    HOLE_ID = 5,      /* the call's id: nine letters and digits */
    HOLE_NUMBER = 6,  /* the call's index */
    HOLE_WORD = 7,    /* a word of letters, digits, _ . and - */
    HOLE_IS_TEXT = 8, /* whether the argument is a string: true or false */
    HOLE_TEXT = 11,   /* the reasoning */
    HOLE_ANSWER = 12,
    HOLE_SPACE = 14, /* a space that may be missing */
    HOLE_LINE = 15,  /* a newline that may be missing */
    EDGE_CALLS = 16, /* the text before this begins calls in free text */
    EDGE_PART = 17,  /* separates two adjacent marks */
    EDGE_EACH = 18,  /* the part up to EDGE_BETWEEN is repeated; then comes the separator */
    EDGE_BETWEEN = 19,
    EDGE_END = 20,
    EDGE_READS = 21, /* first in a writing: the parser accepts it, no grammar writes it */
    EDGE_WITH = 22   /* in seen_by: separates texts that must all occur */
};

typedef enum answer_syntax {
    SYNTAX_JSON, /* the SYNTAX_ values: tool calls, by how arguments are written */
    SYNTAX_TAGS,
    SYNTAX_ELEMENTS,
    SYNTAX_GEMMA,
    SYNTAX_PYTHON,
    SYNTAX_HARMONY,
    REASONING_FIRST,  /* the answer begins with reasoning, with or without a mark */
    REASONING_MARKED, /* only an opening mark begins reasoning */
    REASONING_KEPT,   /* reasoning stays in the content, after its opening mark */
    REASONING_HARMONY /* reasoning is a harmony message */
} answer_syntax;

/* Flags of what a parser accepts. Rows set the first four; writings imply the others. */
enum {
    FORMAT_IN_SECTION = 1 << 0,   /* calls outside a section are plain text */
    FORMAT_TYPED_QUOTES = 1 << 1, /* gemma: the schema gives the type of a quoted value */
    /* json: the answer begins inside a head; the name "all" in it means content */
    FORMAT_HEAD_FIRST = 1 << 2,
    FORMAT_FORCED_JSON = 1 << 3,  /* if a call is forced, the answer may be plain JSON */
    FORMAT_HEAD = 1 << 4,         /* json: the name comes before the arguments, outside the JSON */
    FORMAT_LISTED = 1 << 5,       /* json: name and arguments are members of one object */
    FORMAT_KEYED = 1 << 6,        /* json: {name: arguments} */
    FORMAT_BARE = 1 << 7,         /* json: a bracket anywhere, or in a section, may begin a call */
    FORMAT_BARE_FIRST = 1 << 8,   /* python: a bracket at the beginning of the answer may begin a call */
    FORMAT_SEMICOLON = 1 << 9,    /* semicolons may separate calls */
    FORMAT_LINES = 1 << 10,       /* python: calls need no brackets around them */
    FORMAT_VALUE_LINES = 1 << 11, /* tags: a newline on each side of a value is not part of it */
    FORMAT_NAME_TO_TAG = 1 << 12, /* tags: the name ends where the next mark begins */
    FORMAT_VALUE_APART = 1 << 13  /* tags: a mark separates a key's end from its value */
};

#define FORMAT_NAMES    17
#define FORMAT_WRITINGS 4
#define FORMAT_MARKS    16

typedef struct answer_format {
    const char *names[FORMAT_NAMES]; /* names for vLLM's --tool-call-parser or --reasoning-parser */
    answer_syntax syntax;
    unsigned flags;
    const char *writings[FORMAT_WRITINGS];
    /* texts that identify a chat template; none: the first opening mark identifies it */
    const char *seen_by[3];
} answer_format;

/* Finds a format of calls, or of reasoning, by one of its names; NULL: unknown. The _at
 * functions return the i-th such row of the table; NULL past the last. */
const answer_format *call_format_named(const char *name);
const answer_format *reasoning_format_named(const char *name);
const answer_format *call_format_at(size_t i);
const answer_format *reasoning_format_at(size_t i);
/* The row's own copy of `name`; NULL if it is none of the row's names. */
const char *answer_format_name(const answer_format *f, const char *name);

/* ---- what follows from the writings ---- */

/* What a mark does in the text of an answer. */
typedef enum mark_role {
    ROLE_NONE,
    ROLE_OPEN,    /* begins a call, or a list of calls */
    ROLE_CLOSE,   /* ends what ROLE_OPEN began; dropped after a call */
    ROLE_SECTION, /* begins a section of calls; dropped if a call follows */
    ROLE_SECTION_END,
    ROLE_END,       /* tags, elements: the end of a call */
    ROLE_NAME_END,  /* tags: the end of the name */
    ROLE_PARAMETER, /* tags: before a parameter's name */
    ROLE_VALUE,     /* tags: between a parameter's name and its value */
    ROLE_VALUE_END,
    ROLE_NEXT,    /* tags: the next parameter, if values have no end mark */
    ROLE_QUOTE,   /* gemma: both ends of a string */
    ROLE_TAG,     /* elements: precedes every tag */
    ROLE_MESSAGE, /* harmony: ends a message's header */
    ROLE_MESSAGE_END,
    ROLE_START,     /* harmony: begins a header */
    ROLE_CHANNEL,   /* harmony: precedes the channel's name in a header */
    ROLE_CONSTRAIN, /* harmony: precedes the content type in a header */
    ROLE_DROP,      /* dropped wherever it occurs */
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
/* Derives the marks and flags of a format of calls; texts are borrowed from its row. */
void answer_format_shape(const answer_format *calls, format_shape *out);
/* The text of the first mark with this role; empty: none. */
str format_shape_mark(const format_shape *s, mark_role role);

/* A parsed writing of calls. Its texts may contain holes.
 *
 *   open before NAME name_end ARGUMENTS end [separator again NAME name_end ARGUMENTS
 *   end]* close */
typedef struct call_writing {
    const answer_format *format;
    str open, before, name_end, end, separator, again, close;
    str head;       /* the text from a call's opening mark to its arguments, if is_head */
    bool only_read; /* only the parser uses it; no grammar writes it */
    bool repeats;   /* true: several calls may follow each other */
    bool is_first;  /* it begins with a bracket, which begins a call only at the start of the answer */
    bool is_head;   /* json: the name comes before the arguments, outside the JSON */
    /* text around arguments that are tags:
     *   [tag_before KEY tag_middle VALUE tag_behind tag_between]* */
    str tag_before, tag_middle, tag_behind, tag_between;
    bool has_elements; /* the closing tag is tag_behind, the key and ">" */
} call_writing;
/* Parses writing i of a format of calls into *out, which borrows the row's text. False:
 * the format has no writing i. */
bool call_writing_at(const answer_format *calls, size_t i, call_writing *out);
/* As call_writing_at, but counts only the writings that a grammar writes. */
bool call_written_at(const answer_format *calls, size_t i, call_writing *out);
/* Removes the next piece from *text: a literal (*hole is 0), or a hole with *literal
 * empty. False: no piece is left. */
bool writing_next(str *text, str *literal, char *hole);
/* The first literal of a writing's text; empty: none. */
str writing_first(str text);

/* Whether a function with this name can be called in this writing. */
bool call_writing_takes(const call_writing *w, str name);

/* The marks around reasoning and answer. open, close: [n] spellings. before, behind:
 * marks that may precede and follow the answer. In harmony `before` begins the answer,
 * and `next` separates two messages of reasoning; elsewhere `before` is optional. */
enum { REASONING_SPELLINGS = 2 };
typedef struct reasoning_marks {
    str open[REASONING_SPELLINGS], close[REASONING_SPELLINGS];
    str before[REASONING_SPELLINGS], behind[REASONING_SPELLINGS];
    int n, n_before, n_behind;
    str next;
} reasoning_marks;
/* Derives the marks of a format of reasoning; texts are borrowed from its row. */
void reasoning_format_marks(const answer_format *reasoning, reasoning_marks *out);

/* ---- formats of a model ---- */

typedef enum output_start {
    OUTPUT_START_UNKNOWN, /* the format decides: most reasoning models begin with reasoning */
    OUTPUT_START_REASONING,
    OUTPUT_START_CONTENT, /* the prompt closes a reasoning block; an opening mark may begin another */
    OUTPUT_START_MARKED   /* an opening mark, which the model may omit, begins reasoning */
} output_start;
/* How an answer begins, given `tail`, the prompt's text after the last message: inside
 * reasoning, after a closed block, or `otherwise` if the tail has no mark. `otherwise`
 * should be OUTPUT_START_MARKED for a format found in the template, since such a template
 * opens the reasoning itself or leaves the mark to the model, and OUTPUT_START_UNKNOWN
 * for a format that an option names. */
output_start output_start_behind(const char *reasoning_format, str tail, output_start otherwise);

/* Finds the formats that a chat template uses; a member is NULL if none is recognised. */
output_formats output_formats_of_template(str chat_template);
/* Lists the marks of both formats of f in marks[] and returns their number. */
enum { OUTPUT_FORMAT_MARKS = FORMAT_MARKS + 4 * REASONING_SPELLINGS };
int output_formats_marks(const output_formats *f, str marks[OUTPUT_FORMAT_MARKS]);

/* What a request tells the parser of its answer: formats, tools, choice and limits. */

#define OUTPUT_MAX_HELD ((size_t)1 << 20)

/* Tools and texts are borrowed until the parser is closed. */
typedef struct output_options {
    const char *tools_format, *reasoning_format; /* names of answer_format.h; NULL: none */
    const output_tool *tools;
    size_t n_tools; /* 0: nothing is a call */
    output_choice choice;
    str named;
    output_start start;
    /* Whether a text is an added token of the vocabulary (control or user-defined). A
     * mark that is one matches only as that token. NULL: no text is one. */
    bool (*is_special)(const void *context, str text);
    const void *special_context;
    bool drops_specials; /* removes special tokens that are not marks from content and reasoning */
    size_t max_held;     /* most bytes held back, raised to two marks if less; 0: OUTPUT_MAX_HELD */
} output_options;

#endif
