/* Jinja: a template compiled once to a tree and rendered against a JSON object any number
 * of times.
 *
 * The language is that of Jinja 3.1 as Hugging Face's transformers configures it
 * (sandboxed and immutable, loop controls, its own tojson). Missing features give
 * QUIRE_UNSUPPORTED, at open if they can be detected there. An invalid template gives
 * QUIRE_INVALID at open and QUIRE_BAD_REQUEST when rendered. Messages begin "line L,
 * column C: ". A program is immutable: any thread may render. A render owns an arena that
 * is freed at its end, and has bounds on depth, steps and bytes. */
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/str.h"

#define JINJA_MAX_SOURCE  ((size_t)4 << 20) /* bytes of a template */
#define JINJA_MAX_NESTING 200               /* statements and expressions of a template */
#define JINJA_MAX_DEPTH   1200              /* nested evaluations of a render */
/* steps of a render: nodes evaluated, elements visited, parts compared and hashed */
#define JINJA_MAX_STEPS 20000000
/* bytes that a render holds: values, their texts and origins, outputs */
#define JINJA_MAX_BYTES  ((size_t)256 << 20)
#define JINJA_MAX_OUTPUT ((size_t)64 << 20)

typedef struct jinja_program jinja_program;

/* The origin of a byte of a text. Bytes derived from it (in the other case, escaped) keep
 * its origin. */
enum { JINJA_TEMPLATE = 0, JINJA_INPUT = 1 /* from the variables */ };

/* Bytes [start, end) of a text. */
typedef struct jinja_span {
    size_t start, end;
} jinja_span;

/* The runs of bytes of origin JINJA_INPUT in a text, ascending and disjoint. */
typedef struct jinja_spans {
    jinja_span *spans;
    size_t n, cap;
} jinja_spans;

/* If a member of the variables with this name has one of these words as its value, the
 * text counts as the template's. The pointers must stay valid as long as the program. */
typedef struct jinja_words {
    const char *member; /* NULL: there are none */
    const char *const *words;
    size_t n;
} jinja_words;

/* Templates by name, which can include, import and extend one another. Owns none of them;
 * not changed while one renders. */
#define JINJA_MAX_SET 32
typedef struct jinja_set {
    struct {
        str name;
        const jinja_program *program;
    } named[JINJA_MAX_SET];
    size_t n;
} jinja_set;

typedef struct jinja_options {
    bool trim_blocks;   /* a newline after a block or comment is dropped */
    bool lstrip_blocks; /* blanks before a block or comment that begins its line are dropped */
    jinja_words own;
    const jinja_set *set; /* NULL: include, import and extends are errors when they are reached */
} jinja_options;

/* Compiles; the source is copied. On failure *out is NULL. */
quire_err jinja_open(str source, jinja_options options, jinja_program **out, quire_error *err);
void jinja_close(jinja_program *p);
/* Whether it includes, imports or extends another template. */
bool jinja_uses_others(const jinja_program *p);
/* Defines a text variable for all renders whose own variables lack that name. Called
 * before the first render. text is copied. QUIRE_NO_MEMORY. */
quire_err jinja_define(jinja_program *p, const char *name, str text);
void jinja_spans_deinit(jinja_spans *s);
/* Renders with the members of the JSON object variables_json as variables. Appends to
 * *out, and fills *input (NULL: not wanted; zeroed and deinited by the caller) with the
 * runs of the rendered text that came from the variables, counted from its first byte. On
 * failure *out is unchanged and *input empty. now: the time of strftime_now; NULL: the
 * local time. */
quire_err jinja_render(const jinja_program *p, str variables_json, const struct tm *now, strbuf *out,
                       jinja_spans *input, quire_error *err);
/* The same, at the local time and without spans, within *steps_left steps (0 to
 * JINJA_MAX_STEPS), from which it subtracts those it took, also on failure. */
quire_err jinja_render_within(const jinja_program *p, str variables_json, int64_t *steps_left, strbuf *out,
                              quire_error *err);

#endif
