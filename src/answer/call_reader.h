/* The tool part of an output parser: content and calls. Private to this room.
 *
 * Outside a call, text is content and marks are looked for. A mark of role OPEN, or a
 * bracket in formats without marks, begins an attempt: the syntax of the format reads on,
 * and the bytes are held. Once the call's name is certain, the call begins and the held
 * bytes are dropped; if the syntax breaks before that, they are content. */
#ifndef ANSWER_CALL_READER_H
#define ANSWER_CALL_READER_H

#include "answer/answer_format.h"
#include "answer/json_stream.h"
#include "answer/mark_set.h"
#include "answer/output_events.h"
#include "answer/typed_value.h"

typedef struct call_reader call_reader;

/* A syntax: how the calls of a format are read. */
typedef struct call_machine {
    /* Begins an attempt, after a mark of role OPEN. */
    quire_err (*begin)(call_reader *r);
    /* Reads one byte. It was added to r->held, unless a call is open. */
    quire_err (*byte)(call_reader *r, char c);
    /* The text ends inside an attempt: completes the open call, unless cut_off; held text
     * stays. */
    quire_err (*end)(call_reader *r, bool cut_off);
    /* Special tokens that are marks of the format end the attempt wherever they stand;
     * others are plain text. */
    bool breaks_at_marks;
} call_machine;

typedef struct json_calls {
    uint8_t state;
    bool in_list, in_function; /* inside [ ], inside the member "function" */
    bool is_bare;              /* the arguments are the whole body */
    bool has_name, has_arguments;
    bool has_other;      /* a member came whose name has no meaning here, and not null */
    bool text_is_whole;  /* arguments inside a string are complete: only white space may follow */
    bool is_name_key;    /* the current member is the name */
    bool is_escaped;     /* the member's name or value being read has escapes */
    json_stream skipped; /* members' names, the name, and members that do not matter */
} json_calls;

typedef struct tag_calls {
    uint8_t state;
    bool has_members;                /* of the arguments */
    bool has_text;                   /* of the value */
    bool has_newline, waits_newline; /* a line end before it; one that may follow it */
} tag_calls;

#define ELEMENT_DEPTH (JSON_STREAM_DEPTH + 1) /* objects, lists, and a value inside */

typedef struct element_calls {
    uint8_t state;
    uint8_t depth;
    struct {
        uint8_t kind;
        bool has_items;
        bool is_homonym; /* has the same name as an element of the notation itself */
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
    uint8_t state, kind, last_kind; /* kind of this message's text; of the last text emitted */
    bool is_first;                  /* nothing has come yet */
    bool waits_newline;             /* before this message's text */
} harmony_messages;

struct call_reader {
    const answer_format *format;
    unsigned flags; /* FORMAT_* */
    const call_machine *machine;
    const output_options *options;
    mark_set marks;
    mark_match match;
    output_events *out;
    bool inside;     /* an attempt or a call */
    bool in_call;    /* a call has begun */
    bool has_called; /* a call of this attempt has begun, and perhaps ended */
    bool after_call; /* a call has ended, and only white space and closing marks came since */
    /* this call or an earlier one was opened by a mark that is not closed yet */
    bool may_close;
    bool in_section;     /* after ROLE_SECTION */
    bool section_is_new; /* and nothing has come since then */
    bool section_has_calls;
    bool has_content;     /* content other than white space came */
    bool has_mark;        /* a mark began an attempt */
    bool in_special;      /* text: between MARK_BEGIN and MARK_END */
    bool special_is_open; /* inside an attempt: the same */
    int32_t n_calls;
    strbuf held;    /* the bytes of an attempt */
    strbuf pending; /* white space, and marks that are dropped when a call follows */
    strbuf special; /* a special token inside a call; gemma's scratch */
    strbuf name, id;
    strbuf text;      /* the head, key or value being collected */
    size_t max_text;  /* bytes of text beyond which an open call ends */
    strbuf arguments; /* JSON that is not emitted yet */
    json_stream json; /* of the arguments */
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

/* format NULL: everything is content. options are borrowed. */
quire_err call_reader_init(call_reader *r, const answer_format *format, const output_options *options);
void call_reader_deinit(call_reader *r);
quire_err call_reader_push(call_reader *r, char c);
/* A token without text has come: held text of a mark, or of an attempt without a call so
 * far, becomes content, and later text is not the beginning of the answer. */
quire_err call_reader_break(call_reader *r);
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
/* Sets a buffer; QUIRE_TOO_LARGE past its max. */
quire_err call_set(strbuf *b, str s);
bool call_is_offered(const call_reader *r, str name);
/* Whether the held bytes are "[]" and no mark, which is text in formats in which a
 * bracket begins an attempt. */
bool call_is_empty_list(const call_reader *r);
/* Whether an object is a call only if its first member names an offered function: in
 * formats in which a bracket anywhere may begin a call, unless the answer began with
 * it. */
bool call_names_first(const call_reader *r);
/* Begins the call r->name with the id r->id, and drops the held text. */
quire_err call_begin(call_reader *r);
/* Emits the content of r->arguments, and empties it. */
quire_err call_flush_arguments(call_reader *r);
quire_err call_end(call_reader *r);
/* Ends a complete attempt, and drops the held text. */
void call_leave(call_reader *r);
/* Abandons the attempt because its last n bytes, p[0..n), do not fit: held text before
 * them becomes content, and they are read outside. An open call must have ended. */
quire_err call_reject(call_reader *r, const char *p, size_t n);
/* The same for the result of mark_push: text[0..n) and what r->match holds. */
quire_err call_reject_match(call_reader *r, const char *text, size_t n);
/* Appends a piece of reasoning or content, without MARK_BEGIN and MARK_END. */
quire_err call_text(call_reader *r, output_kind kind, const char *p, size_t n);
/* Text outside calls, with MARK_BEGIN and MARK_END. White space waits until it is known
 * whether a call follows. */
quire_err call_content(call_reader *r, const char *p, size_t n);

#endif
