/* Jinja: a template compiled once to a tree and rendered against a JSON object any number
 * of times.
 *
 * The language is that of Jinja 3.1 as Hugging Face's transformers configures it
 * (sandboxed and immutable, loop controls, its own tojson). Features of it that are
 * missing here give QUIRE_UNSUPPORTED, at open wherever they can be detected there. A
 * wrong template gives QUIRE_INVALID at open and QUIRE_BAD_REQUEST when rendered.
 * Messages begin "line L, column C: ". A program is immutable: any thread may render. A
 * render owns an arena that is freed at its end, and has bounds on depth, steps and
 * bytes. */
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/str.h"

#define JINJA_MAX_SOURCE  ((size_t)4 << 20) /* bytes of a template */
#define JINJA_MAX_NESTING 200               /* of statements and expressions in it */
#define JINJA_MAX_DEPTH   1200              /* nested evaluations of a render */
/* of a render: nodes evaluated, elements visited, parts compared and hashed */
#define JINJA_MAX_STEPS 20000000
/* of all that a render holds: values, their texts and origins, outputs */
#define JINJA_MAX_BYTES  ((size_t)256 << 20)
#define JINJA_MAX_OUTPUT ((size_t)64 << 20)

typedef struct jinja_program jinja_program;

/* The origin of a byte of a text. Whatever is made from a byte (its other case, its
 * escape) keeps that byte's origin. */
enum { JINJA_TEMPLATE = 0, JINJA_INPUT = 1 /* of the variables */ };

/* Bytes [start, end) of a text. */
typedef struct jinja_span {
    size_t start, end;
} jinja_span;

/* The runs of bytes of origin JINJA_INPUT in a text, ascending and apart. */
typedef struct jinja_spans {
    jinja_span *spans;
    size_t n, cap;
} jinja_spans;

/* Where a member of this name in the variables has one of these words as its value,
 * that text counts as the template's. Its pointers live as long as the program. */
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
    const jinja_set *set; /* NULL: include, import and extends are an error where they are reached */
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
 * *out, and fills *input (NULL: not wanted), which the caller zeroes before and deinits,
 * with what of the rendering came in with the variables, from its first byte on; *out is
 * unchanged and *input empty on failure. now: the time of strftime_now, NULL for the
 * local time. */
quire_err jinja_render(const jinja_program *p, str variables_json, const struct tm *now, strbuf *out,
                       jinja_spans *input, quire_error *err);
/* The same, at the local time and without spans, within *steps_left steps (0 to
 * JINJA_MAX_STEPS), from which it subtracts those it took, also on failure. */
quire_err jinja_render_within(const jinja_program *p, str variables_json, int64_t *steps_left, strbuf *out,
                              quire_error *err);

#endif
