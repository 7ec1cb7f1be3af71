/* What a request says to the parser of its answer. */
#ifndef ANSWER_OUTPUT_OPTIONS_H
#define ANSWER_OUTPUT_OPTIONS_H

#include "answer/answer_format.h"
#include "json/json.h"

#define OUTPUT_MAX_HELD ((size_t)1 << 20)

/* A function that the request offers. parameters: its JSON Schema, or NULL. All is
 * borrowed until the parser closes. */
typedef struct output_tool {
    str name;
    const json_value *parameters;
    bool is_strict; /* its schema is enforced or the request refused */
    /* of a custom tool: the grammar of its one argument, OUTPUT_TOOL_INPUT; empty: there
     * is none */
    str lark;
} output_tool;

#define OUTPUT_TOOL_INPUT "input" /* a custom tool's only argument */

typedef enum output_choice {
    OUTPUT_CHOICE_AUTO,
    OUTPUT_CHOICE_NONE,     /* nothing is a call */
    OUTPUT_CHOICE_REQUIRED, /* an answer that is a JSON list of calls counts too */
    OUTPUT_CHOICE_NAMED     /* an answer that is the bare arguments of `named` counts too */
} output_choice;

typedef struct output_options {
    const char *tools_format, *reasoning_format; /* names of answer_format.h; NULL: none */
    const output_tool *tools;
    size_t n_tools; /* 0: nothing is a call */
    output_choice choice;
    str named;
    output_start start;
    /* Whether a text is a token that the vocabulary adds to its ordinary ones (control or
     * user-defined): such a mark counts only where it is fed as a special token. NULL:
     * none is. */
    bool (*is_special)(const void *context, str text);
    const void *special_context;
    bool drops_specials; /* special tokens that are no marks are left out of content and reasoning */
    size_t max_held;     /* bytes; 0: OUTPUT_MAX_HELD. At least two marks fit in any case */
} output_options;

#endif
