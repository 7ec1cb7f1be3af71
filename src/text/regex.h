/* Regular expressions of tokenizer files, translated to PCRE2. They are written for
 * Oniguruma (with Ruby syntax), as the tokenizers library uses it. An expression without
 * an exact translation is refused, since several constructs would compile but mean
 * something else.
 *
 * A compiled expression is immutable: any thread may search with its own scratch.
 * Subjects are valid UTF-8 and untrusted. An attempt at one start is bounded, and the
 * thread's turn is polled between starts (base/turn.h), so that a long search can be
 * cancelled. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include "base/str.h"

typedef struct regex regex;

/* Working memory of searches, for one thread. Zeroed is valid; free it with
 * regex_scratch_deinit. */
typedef struct regex_scratch {
    void *match_data, *limits;
} regex_scratch;

void regex_scratch_deinit(regex_scratch *s);

/* The syntax of a pattern. */
typedef enum regex_syntax {
    REGEX_ONIGURUMA, /* the syntax that the tokenizers library uses */
    REGEX_RUST       /* tiktoken's: {n,m}+ is possessive, and ^ and $ match only at the ends of the text */
} regex_syntax;

/* Compiles a pattern. QUIRE_UNSUPPORTED: err names a construct without translation.
 * QUIRE_BAD_FILE: malformed. */
quire_err regex_open(str pattern, regex **out, quire_error *err);
quire_err regex_open_as(str pattern, regex_syntax syntax, regex **out, quire_error *err);
/* Whether Unicode has a script of this name. */
bool regex_is_script(str name);
/* Appends the pattern in PCRE2's syntax to *out. Errors as regex_open. */
quire_err regex_translate(str pattern, regex_syntax syntax, strbuf *out, quire_error *err);

/* What a tokenizer's step looks for: an expression, or if re is NULL a literal string. */
typedef struct matcher {
    regex *re;
    char *literal; /* owned */
    size_t n_literal;
} matcher;

quire_err matcher_open_literal(str literal, matcher *out);
void matcher_deinit(matcher *m);

/* Iterates over the matches in a subject. An empty match directly after a match is
 * skipped. Starts zeroed except for subject. */
typedef struct match_iter {
    str subject;
    size_t from, last_end;
    bool any;
    size_t start, end; /* result: the match found */
    /* starts between two looks at the clock, and how many are left before the next; pace
     * 0: no look yet */
    size_t pace, left;
    int64_t looked_us, took_us; /* time of the last look (clock_us); duration of the starts before it */
} match_iter;

/* Finds the next match; *found is false if there is none. QUIRE_NO_MEMORY;
 * QUIRE_BAD_REQUEST if matching takes too long; errors of turn_poll. */
quire_err matcher_next(const matcher *m, regex_scratch *s, match_iter *it, bool *found);

/* Appends text with every match replaced by `by`. Errors as matcher_next; *out then holds
 * a part. */
quire_err matcher_replace(const matcher *m, regex_scratch *s, str text, str by, strbuf *out);

#endif
