/* Regular expressions of tokenizer files, translated to PCRE2. They are written for
 * Oniguruma (its Ruby syntax), which the tokenizers library uses. An expression without
 * an exact translation is refused, since several constructs would compile and mean
 * something else.
 *
 * A compiled expression is immutable: any thread may search with its own scratch.
 * Subjects are valid UTF-8 and hostile: an attempt at one start is bounded, and between
 * starts the thread's turn is polled (base/turn.h), so that a search over many can be
 * cancelled. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include "base/str.h"

typedef struct regex regex;

/* Working memory of searches, for one thread. Zero-initialised is valid; freed by
 * regex_scratch_deinit. */
typedef struct regex_scratch {
    void *match_data, *limits;
} regex_scratch;

void regex_scratch_deinit(regex_scratch *s);

/* The syntax that a pattern is written in. */
typedef enum regex_syntax {
    REGEX_ONIGURUMA, /* of the tokenizers library */
    REGEX_RUST       /* of tiktoken: repetitions may be possessive, and ^ and $ are the ends of the text */
} regex_syntax;

/* Compiles a pattern. QUIRE_UNSUPPORTED: err names the construct that cannot be
 * translated; QUIRE_BAD_FILE: it is malformed. */
quire_err regex_open(str pattern, regex **out, quire_error *err);
quire_err regex_open_as(str pattern, regex_syntax syntax, regex **out, quire_error *err);
/* Whether Unicode has a script of this name. */
bool regex_is_script(str name);
/* Appends pattern in PCRE2's syntax to *out; errors as regex_open. */
quire_err regex_translate(str pattern, regex_syntax syntax, strbuf *out, quire_error *err);

/* The pattern of a tokenizer's step: an expression, or a literal string when re is
 * NULL. */
typedef struct matcher {
    regex *re;
    char *literal; /* owned */
    size_t n_literal;
} matcher;

quire_err matcher_open_literal(str literal, matcher *out);
void matcher_deinit(matcher *m);

/* An iteration over the matches in one subject. An empty match directly after a match
 * does not count. Starts zeroed except for subject. */
typedef struct match_iter {
    str subject;
    size_t from, last_end;
    bool any;
    size_t start, end; /* the match found */
    /* starts between two reads of the clock, and those that are left until the next; pace
     * 0: not read yet */
    size_t pace, left;
    int64_t looked_us, took_us; /* when the last look was, on clock_us; how long the starts before it took */
} match_iter;

/* Finds the next match; *found is false when there are no more. QUIRE_NO_MEMORY;
 * QUIRE_BAD_REQUEST when matching would take too long; errors of turn_poll. */
quire_err matcher_next(const matcher *m, regex_scratch *s, match_iter *it, bool *found);

/* Appends text with every match replaced by `by`. Errors as matcher_next, and *out then
 * holds a part. */
quire_err matcher_replace(const matcher *m, regex_scratch *s, str text, str by, strbuf *out);

#endif
