/* Jinja: compiles a template to a tree once, and renders it against a JSON object any
 * number of times.
 *
 * The language is Jinja 3.1 as Hugging Face's transformers configures it (sandboxed and
 * immutable, loop controls, its own tojson). Missing features give QUIRE_UNSUPPORTED, at
 * open if they can be detected there. An invalid template gives QUIRE_INVALID at open,
 * and QUIRE_BAD_REQUEST when rendered. Messages begin "line L, column C: ". A program is
 * immutable: any thread may render. A render has its own arena, freed at its end, and
 * limits on depth, steps and bytes. */
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/str.h"

#define JINJA_MAX_SOURCE  ((size_t)4 << 20) /* bytes of a template */
#define JINJA_MAX_NESTING 200               /* nesting of statements and expressions in a template */
#define JINJA_MAX_DEPTH   1200              /* nested evaluations in a render */
/* Steps of a render: nodes evaluated, elements visited, parts compared and hashed. */
#define JINJA_MAX_STEPS 20000000
/* Bytes that a render holds: values, texts and their origins, outputs. */
#define JINJA_MAX_BYTES  ((size_t)256 << 20)
#define JINJA_MAX_OUTPUT ((size_t)64 << 20)

typedef struct jinja_program jinja_program;

/* Where a byte of a text came from. A byte derived from another (in another case,
 * escaped) keeps its origin. */
enum { JINJA_TEMPLATE = 0, JINJA_INPUT = 1 /* the byte came from the variables */ };

/* The bytes [start, end) of a text. */
typedef struct jinja_span {
    size_t start, end;
} jinja_span;

/* The runs of bytes with origin JINJA_INPUT in a text: ascending, disjoint. */
typedef struct jinja_spans {
    jinja_span *spans;
    size_t n, cap;
} jinja_spans;

/* Texts from the variables that count as the template's: the values of members with this
 * name that are one of these words. The pointers must outlive the program. */
typedef struct jinja_words {
    const char *member; /* NULL: no text counts so */
    const char *const *words;
    size_t n;
} jinja_words;

/* Named templates that can include, import and extend one another. Owns none of them;
 * must not change during a render. */
#define JINJA_MAX_SET 32
typedef struct jinja_set {
    struct {
        str name;
        const jinja_program *program;
    } named[JINJA_MAX_SET];
    size_t n;
} jinja_set;

typedef struct jinja_options {
    bool trim_blocks;   /* drops a newline after a block or comment */
    bool lstrip_blocks; /* drops spaces and tabs before a block or comment that begins its line */
    jinja_words own;
    const jinja_set *set; /* NULL: include, import and extends fail when they are reached */
} jinja_options;

/* Compiles a copy of source. On failure *out is NULL. */
quire_err jinja_open(str source, jinja_options options, jinja_program **out, quire_error *err);
void jinja_close(jinja_program *p);
/* Whether the template includes, imports or extends another one. */
bool jinja_uses_others(const jinja_program *p);
/* Defines a text variable for all renders whose own variables lack the name. Call it
 * before the first render. Copies text. QUIRE_NO_MEMORY. */
quire_err jinja_define(jinja_program *p, const char *name, str text);
void jinja_spans_deinit(jinja_spans *s);
/* Renders with the members of the JSON object variables_json as variables. Appends to
 * *out. Sets *input (may be NULL; the caller zeroes and deinits it) to the runs of the
 * rendered text that came from the variables, as offsets in the rendered text. On failure
 * *out is unchanged and *input empty. now: the time for strftime_now; NULL: the local
 * time. */
quire_err jinja_render(const jinja_program *p, str variables_json, const struct tm *now, strbuf *out,
                       jinja_spans *input, quire_error *err);
/* Like jinja_render, with the local time and without spans, within *steps_left steps (0
 * to JINJA_MAX_STEPS). Subtracts the steps taken, also on failure. */
quire_err jinja_render_within(const jinja_program *p, str variables_json, int64_t *steps_left, strbuf *out,
                              quire_error *err);

#endif
