/* The tool part of an output parser: it splits text into content and calls. Private to
 * this room.
 *
 * Outside a call, text is content, and marks are searched for. A mark of role OPEN, or a
 * bracket in formats without marks, begins an attempt: the format's call_machine reads
 * the following bytes, which are held. Once the call's name is certain, the call begins
 * and the held bytes are dropped; if the syntax breaks earlier, they become content. */
#ifndef ANSWER_CALL_READER_H
#define ANSWER_CALL_READER_H

#include "answer/answer_format.h"
#include "answer/json_stream.h"
#include "answer/mark_set.h"
#include "answer/output_events.h"
#include "answer/typed_value.h"

typedef struct call_reader call_reader;

/* A syntax: the state machine that reads the calls of a format. */
typedef struct call_machine {
    /* Begins an attempt, after a mark of role OPEN or a bracket. */
    quire_err (*begin)(call_reader *r);
    /* Reads one byte, which the caller has added to r->held unless a call is open. */
    quire_err (*byte)(call_reader *r, char c);
    /* Handles the end of the text inside an attempt: completes the arguments of an open
     * call unless cut_off, and ends it. If no call has begun, r->held keeps its text. */
    quire_err (*end)(call_reader *r, bool cut_off);
    /* true: a special token that is a mark of the format ends the attempt wherever it
     * comes; all other special tokens are plain text */
    bool breaks_at_marks;
} call_machine;

typedef struct json_calls {
    uint8_t state;
    bool in_list, in_function; /* inside the list of calls; inside the member "function" */
    bool is_bare;              /* the JSON text is the arguments alone */
    bool has_name, has_arguments;
    bool has_other;      /* an unknown member with a value other than null was read */
    bool text_is_whole;  /* arguments inside a string are complete, so only white space may follow */
    bool is_name_key;    /* the current member is the name */
    bool is_escaped;     /* the name or value being read has escapes */
    json_stream skipped; /* reads members' names, the function's name, and ignored members */
} json_calls;

typedef struct tag_calls {
    uint8_t state;
    bool has_members;                /* an argument was written */
    bool has_text;                   /* text of the current value was read */
    bool has_newline, waits_newline; /* the value began with a newline; a newline at its end is held back */
} tag_calls;

#define ELEMENT_DEPTH (JSON_STREAM_DEPTH + 1) /* nested objects and lists, and a value in the innermost */

typedef struct element_calls {
    uint8_t state;
    uint8_t depth;
    struct {
        uint8_t kind;
        bool has_items;
        bool is_homonym; /* the key equals the name of an element of the notation itself */
        const json_value *schema;
    } open[ELEMENT_DEPTH];
} element_calls;

typedef struct gemma_calls {
    uint8_t state;
    bool is_typed;
} gemma_calls;

typedef struct python_calls {
    uint8_t state;
    bool in_list, has_members;
    python_literal value;
} python_calls;

typedef struct harmony_messages {
    /* kind: what this message's text is; last_kind: kind of the last text emitted */
    uint8_t state, kind, last_kind;
    bool is_first;      /* no mark and no text has been read yet */
    bool waits_newline; /* a newline is due before this message's text */
} harmony_messages;

struct call_reader {
    const answer_format *format;
    unsigned flags; /* FORMAT_* */
    const call_machine *machine;
    const output_options *options;
    mark_set marks;
    mark_match match;
    output_events *out;
    bool inside;     /* in an attempt or a call */
    bool in_call;    /* a call has begun */
    bool has_called; /* a call of this attempt has begun, and perhaps ended */
    bool after_call; /* a call has ended, and only white space and closing marks came since */
    /* a mark opened this call or an earlier one and is not closed yet */
    bool may_close;
    bool in_section;     /* a mark of role SECTION was read, and its section has not ended */
    bool section_is_new; /* nothing was read since the mark of role SECTION */
    bool section_has_calls;
    bool has_content;     /* content other than white space came */
    bool has_mark;        /* a mark began an attempt */
    bool in_special;      /* in text passed to call_text, between MARK_BEGIN and MARK_END */
    bool special_is_open; /* in an attempt, between MARK_BEGIN and MARK_END */
    int32_t n_calls;
    strbuf held;    /* the bytes of an attempt */
    strbuf pending; /* white space and section marks, dropped if a call follows */
    strbuf special; /* a special token inside a call; Gemma's reader uses it as scratch space */
    strbuf name, id;
    strbuf text;      /* the head, key or value being collected */
    size_t max_text;  /* an open call ends once `text` has more bytes than this */
    strbuf arguments; /* JSON that is not emitted yet */
    json_stream json; /* state of the arguments' JSON */
    typed_value value;
    const json_value *schema; /* schema of the open call's parameters */
    union {
        json_calls j;
        tag_calls t;
        element_calls e;
        gemma_calls g;
        python_calls p;
        harmony_messages h;
    } u;
};

extern const call_machine json_machine, tag_machine, element_machine, gemma_machine, python_machine,
    harmony_machine;

/* Initialises a reader; format NULL: everything is content. options are borrowed until
 * call_reader_deinit. QUIRE_INTERNAL: a mark of the format does not fit a mark_set. The
 * owner sets r->out, which receives the events of the calls below. */
quire_err call_reader_init(call_reader *r, const answer_format *format, const output_options *options);
void call_reader_deinit(call_reader *r);
/* Reads one byte of the answer and emits its events. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err call_reader_push(call_reader *r, char c);
/* Handles a token without text: text held for a mark, or for an attempt without a call so
 * far, becomes content, and later text does not count as the beginning of the answer. */
quire_err call_reader_break(call_reader *r);
/* Ends the answer, as output_parser_finish. */
quire_err call_reader_finish(call_reader *r, bool cut_off);

/* ---- for the machines ---- */

static inline bool call_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
static inline mark_roles call_roles(uint32_t any, uint32_t special) {
    return (mark_roles){any, special};
}
#define ROLE(name) ((uint32_t)1 << ROLE_##name)

str call_trim(str s);
static inline str call_str(const strbuf *b) {
    return (str){b->p != NULL ? b->p : "", b->n};
}
/* Replaces a buffer's text by s. QUIRE_NO_MEMORY; QUIRE_TOO_LARGE: longer than b->max. */
quire_err call_set(strbuf *b, str s);
bool call_is_offered(const call_reader *r, str name);
/* Whether the held text begins with an empty list, "[]", and no mark. That is content in
 * formats in which a bracket may begin an attempt. */
bool call_is_empty_list(const call_reader *r);
/* Whether an object is a call only if its first member is the name of an offered
 * function: true where any bracket may begin a call, unless the answer began with it. */
bool call_names_first(const call_reader *r);
/* Emits the beginning of a call with r->name and r->id, and drops the held text. */
quire_err call_begin(call_reader *r);
/* Emits the text of r->arguments, if any, and empties it. */
quire_err call_flush_arguments(call_reader *r);
/* Emits the remaining arguments and the end of the open call. */
quire_err call_end(call_reader *r);
/* Ends an attempt that was read completely, and drops the held text. */
void call_leave(call_reader *r);
/* Abandons the attempt because its last n bytes, p[0..n), do not fit: the held text
 * before them becomes content, and they are read again outside. No call may be open. */
quire_err call_reject(call_reader *r, const char *p, size_t n);
/* As call_reject, for mark_push's result: the bytes are text[0..n), then those of
 * r->match. */
quire_err call_reject_match(call_reader *r, const char *text, size_t n);
/* Emits a piece of reasoning or content without MARK_BEGIN and MARK_END, and without
 * special tokens if the options drop them. */
quire_err call_text(call_reader *r, output_kind kind, const char *p, size_t n);
/* Emits text outside calls, which may contain MARK_BEGIN and MARK_END. White space is
 * held in r->pending until other text or a call follows. */
quire_err call_content(call_reader *r, const char *p, size_t n);

#endif
