/* Output parser: what a model writes, split into reasoning, content and tool calls while it streams.
 *
 *   text and special tokens --> reasoning part --> tool part --> events
 *
 * The parser reads one byte after the other and decides by what it has read, never by where a piece ends: every cut of a text gives the
 * same reasoning, content, calls and arguments. What may become a mark or a call is held back until it is one, so half a mark is never an
 * event. What turns out to be no call is content, so no text is lost. White space next to a call and around reasoning is dropped.
 *
 * The arguments of a call are JSON in every format, handed out as they come. Where a model's arguments break off or break the syntax,
 * they are completed (strings and brackets are closed), and what follows is content; only an answer that its length cut off leaves them
 * unfinished.
 *
 * A format is data: its marks and one of seven syntaxes (output_format.c has the table). The same rows say what a grammar of calls needs:
 * a call begins with a mark of role OPEN (behind SECTION where the format has one), and the body is a JSON object, a list of such objects,
 * a head with JSON arguments, tags, elements, Gemma's notation, Python calls, or harmony's messages.
 *
 * Time: linear in the text. Memory: at most max_held bytes are held back; a call attempt beyond that is content. One thread. */
#ifndef CHAT_OUTPUT_PARSER_H
#define CHAT_OUTPUT_PARSER_H

#include "base/str.h"
#include "json/json.h"

typedef struct output_parser output_parser;

typedef enum output_kind {
    OUTPUT_REASONING,  /* text */
    OUTPUT_CONTENT,    /* text */
    OUTPUT_CALL_BEGIN, /* text is the function's name, id the call's id as the model wrote it, or empty */
    OUTPUT_ARGUMENTS,  /* text is a piece of the arguments' JSON text */
    OUTPUT_CALL_END
} output_kind;

typedef struct output_event {
    output_kind kind;
    int32_t call;      /* of a call's events: its index, 0, 1, 2 .. */
    size_t text, n;    /* in output_events.text */
    size_t id, n_id;
} output_event;

/* Zero-initialised: none. Its owner clears it between feeds, or lets it grow. Neighbours of one kind are one event. */
typedef struct output_events {
    output_event *items;
    size_t n, cap;
    strbuf text;
} output_events;

void output_events_clear(output_events *e);
void output_events_deinit(output_events *e);
static inline str output_event_text(const output_events *e, size_t i) {
    return (str){e->text.p + e->items[i].text, e->items[i].n};
}

/* A function that the request offers. parameters: its JSON Schema, or NULL. Both are borrowed until the parser closes. */
typedef struct output_tool {
    str name;
    const json_value *parameters;
} output_tool;

typedef enum output_start {
    OUTPUT_START_UNKNOWN,  /* the format's own rule: most reasoning models begin to think at once */
    OUTPUT_START_REASONING,
    OUTPUT_START_CONTENT   /* thinking is off, or the prompt holds a closed block */
} output_start;

typedef enum output_choice {
    OUTPUT_CHOICE_AUTO,
    OUTPUT_CHOICE_NONE,     /* nothing is a call */
    OUTPUT_CHOICE_REQUIRED, /* an answer that is a JSON list of calls counts too */
    OUTPUT_CHOICE_NAMED     /* an answer that is the bare arguments of `named` counts too */
} output_choice;

typedef struct output_options {
    const char *tools_format, *reasoning_format; /* names of output_format.h; NULL: none */
    const output_tool *tools;
    size_t n_tools; /* 0: nothing is a call */
    output_choice choice;
    str named;
    output_start start;
    /* Whether a text is a special token of the vocabulary: such a mark counts only where it comes as that token. NULL: none is. */
    bool (*is_special)(const void *context, str text);
    const void *special_context;
    bool drops_specials; /* special tokens that are no marks are left out of content and reasoning */
    size_t max_held;     /* bytes; 0: OUTPUT_MAX_HELD */
} output_options;

#define OUTPUT_MAX_HELD ((size_t)1 << 20)

/* QUIRE_INVALID: a format that does not exist, named in *err. QUIRE_NO_MEMORY. The options' texts are borrowed. */
quire_err output_parser_open(const output_options *o, output_parser **out, quire_error *err);
void output_parser_close(output_parser *p);
/* Reads the next piece: whole characters, or, with is_special, one special token. Appends events. Bytes that are not UTF-8 become U+FFFD.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE (an event text beyond its strbuf's max): the parser is then of no further use. */
quire_err output_parser_feed(output_parser *p, str piece, bool is_special, output_events *out);
/* The answer ends. cut_off: by its length, so that the last call's arguments may stay unfinished. Errors as above. */
quire_err output_parser_finish(output_parser *p, bool cut_off, output_events *out);

/* How an answer begins behind a prompt that ends in `tail` (its last few hundred bytes): inside the reasoning, behind a closed block, or
 * unknown. reasoning_format as above. */
output_start output_start_behind(const char *reasoning_format, str tail);

/* The formats whose marks a chat template has; NULL: none of them. Borrowed, static. */
typedef struct output_formats {
    const char *tools, *reasoning;
} output_formats;
output_formats output_formats_of_template(str chat_template);

#endif
