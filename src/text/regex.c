#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/turn.h"

#define MAX_PATTERN_BYTES 65536u
#define MATCH_LIMIT       20000000u /* steps of an attempt at one start: tens of milliseconds */
#define DEPTH_LIMIT       100000u
#define HEAP_LIMIT_KIB    65536u

#define SHORT_SUBJECT  64u   /* bytes; searches in shorter subjects are not paced */
#define FIRST_PACE     16u   /* starts before the first look at the clock */
#define MOST_PACE      256u  /* most starts between two looks */
#define MOST_FLAT_PACE 1024u /* most if more starts take no longer */
#define MATCH_STARTS   16u   /* a match counts as this many starts */
#define LOOK_US        100   /* target time between two looks at the clock */
#define US_WORK        10    /* units of turn_poll per microsecond */
#define BYTES_COMPARED 1024u /* bytes compared by memcmp per unit of turn_poll */

struct regex {
    pcre2_code *code;
    bool anchored; /* only the first start can match */
};

/* Expressions of common models that read a whole run from each of its characters, which
 * takes quadratic time. The replacements read a run once, and have the same matches if a
 * subject is searched from its start, match by match:
 *
 *   Spaces before an end of line: if the first space of a run begins no match, none does.
 *   Digits in threes from the right: a digit after a digit begins a match only where the
 *   last match has ended, so whole groups are left. */
static const struct {
    const char *given, *quick;
} quicker[] = {
    {"\\s+$", "(?<!\\s)\\s+$"},
    {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
     "(?<!\\p{N})\\p{N}{1,3}(?=(?:\\p{N}{3})*+(?!\\p{N}))|(?<=\\p{N})\\p{N}{3}"},
};

static str quick_of(str pattern) {
    for (size_t i = 0; i < sizeof quicker / sizeof *quicker; i++) {
        if (str_is(pattern, quicker[i].given)) {
            return str_of(quicker[i].quick);
        }
    }
    return pattern;
}

static quire_err regex_compile(regex *r, const strbuf *source, str pattern, quire_error *err) {
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    TRY(mem_check(context));
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code;
    PCRE2_SIZE at;
    r->code = pcre2_compile((PCRE2_SPTR)source->p, source->n, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (r->code == NULL) {
        PCRE2_UCHAR words[128] = {0};
        (void)pcre2_get_error_message(code, words, sizeof words);
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer: the regular expression %.*s: %s",
                       (int)(pattern.n < 200 ? pattern.n : 200), pattern.p, (const char *)words);
    }
    uint32_t all = 0;
    (void)pcre2_pattern_info(r->code, PCRE2_INFO_ALLOPTIONS, &all);
    r->anchored = (all & PCRE2_ANCHORED) != 0;
    /* without the JIT, the interpreter gives the same matches */
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    return QUIRE_OK;
}

bool regex_is_script(str name) {
    char source[64];
    int code, n = name.n == 0 || name.n > 40
                      ? 0
                      : snprintf(source, sizeof source, "\\p{sc:%.*s}", (int)name.n, name.p);
    PCRE2_SIZE at;
    pcre2_code *script =
        n == 0 ? NULL : pcre2_compile((PCRE2_SPTR)source, (PCRE2_SIZE)n, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(script);
    return script != NULL;
}

quire_err regex_open(str pattern, regex **out, quire_error *err) {
    return regex_open_as(pattern, REGEX_ONIGURUMA, out, err);
}

static void regex_close(regex *r) {
    if (r != NULL) {
        pcre2_code_free(r->code);
        mem_free(r);
    }
}

quire_err regex_open_as(str pattern, regex_syntax syntax, regex **out, quire_error *err) {
    if (pattern.n > MAX_PATTERN_BYTES) {
        return err_set(err, QUIRE_TOO_LARGE, -1,
                       "tokenizer: a regular expression has %zu bytes; at most %u are allowed", pattern.n,
                       MAX_PATTERN_BYTES);
    }
    strbuf source = {.max = (size_t)64 * MAX_PATTERN_BYTES};
    regex *r = mem_new(1, sizeof *r);
    str quick = syntax == REGEX_ONIGURUMA ? quick_of(pattern) : pattern;
    quire_err e = r == NULL ? QUIRE_NO_MEMORY : regex_translate(quick, syntax, &source, err);
    if (e == QUIRE_OK) {
        e = regex_compile(r, &source, pattern, err);
    }
    strbuf_deinit(&source);
    if (e != QUIRE_OK) {
        regex_close(r);
        return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "tokenizer: out of memory for a regular expression")
                                    : e;
    }
    *out = r;
    return QUIRE_OK;
}

void regex_scratch_deinit(regex_scratch *s) {
    pcre2_match_data_free(s->match_data);
    pcre2_match_context_free(s->limits);
    *s = (regex_scratch){0};
}

static quire_err scratch_init(regex_scratch *s) {
    if (s->match_data == NULL) {
        s->match_data = pcre2_match_data_create(1, NULL);
        TRY(mem_check(s->match_data));
    }
    if (s->limits == NULL) {
        s->limits = pcre2_match_context_create(NULL);
        TRY(mem_check(s->limits));
        (void)pcre2_set_match_limit(s->limits, MATCH_LIMIT);
        (void)pcre2_set_depth_limit(s->limits, DEPTH_LIMIT);
        (void)pcre2_set_heap_limit(s->limits, HEAP_LIMIT_KIB);
    }
    return QUIRE_OK;
}

quire_err matcher_open_literal(str literal, matcher *out) {
    char *copy = mem_dup(literal.p, literal.n);
    TRY(mem_check(copy));
    *out = (matcher){.literal = copy, .n_literal = literal.n};
    return QUIRE_OK;
}

void matcher_deinit(matcher *m) {
    regex_close(m->re);
    mem_free(m->literal);
    *m = (matcher){0};
}

/* Finds the first match that starts in from..last. */
static quire_err search_starts(const regex *r, regex_scratch *s, match_iter *it, size_t from, size_t last,
                               bool *found) {
    PCRE2_SPTR subject = (PCRE2_SPTR)(it->subject.n > 0 ? it->subject.p : "");
    (void)pcre2_set_offset_limit(s->limits, last);
    int rc = pcre2_match(r->code, subject, it->subject.n, from, PCRE2_NO_UTF_CHECK, s->match_data, s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(r->code, subject, it->subject.n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         s->match_data, s->limits);
    }
    *found = rc >= 0;
    if (rc < 0) {
        return rc == PCRE2_ERROR_NOMATCH    ? QUIRE_OK
               : rc == PCRE2_ERROR_NOMEMORY ? QUIRE_NO_MEMORY
                                            : QUIRE_BAD_REQUEST;
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match_data);
    it->start = ends[0];
    it->end = ends[1];
    /* \K in a lookahead can put the start after the end */
    return it->start <= it->end ? QUIRE_OK : QUIRE_BAD_REQUEST;
}

/* How many starts to try before the next look at the clock, given that the last ones took
 * `us`. PCRE2's compiled code remembers within a call where a repetition failed, so more
 * starts may take no longer; then they are better tried together. */
static size_t next_pace(const match_iter *it, int64_t us) {
    size_t most = it->pace > MOST_PACE ? it->pace : MOST_PACE;
    if (us <= LOOK_US) {
        return it->pace < most / 2 ? 2 * it->pace : most;
    }
    if (us <= it->took_us + it->took_us / 2) {
        return it->pace < MOST_FLAT_PACE / 2 ? 2 * it->pace : MOST_FLAT_PACE;
    }
    size_t fewer = it->pace * LOOK_US / (size_t)us;
    return fewer > 0 ? fewer : 1;
}

/* Looks at the clock if it is time, and counts the time since the last look as work. */
static quire_err keep_pace(match_iter *it) {
    if (it->left > 0) {
        return QUIRE_OK;
    }
    if (it->pace == 0) {
        it->pace = FIRST_PACE;
    } else {
        int64_t us = clock_us() - it->looked_us;
        us = us < 0 ? 0 : us < 1000000 ? us : 1000000;
        it->pace = next_pace(it, us);
        it->took_us = us;
        TRY(turn_poll((uint32_t)us * US_WORK));
    }
    it->left = it->pace;
    it->looked_us = clock_us();
    return QUIRE_OK;
}

/* The position of the first character at or after `at`. */
static size_t char_from(str text, size_t at) {
    while (at < text.n && ((unsigned char)text.p[at] & 0xC0) == 0x80) {
        at++;
    }
    return at;
}

/* Tries a few starts per call of PCRE2, since each attempt may read all of the text and
 * fail. */
static quire_err search_regex(const regex *r, regex_scratch *s, match_iter *it, bool *found) {
    TRY(scratch_init(s));
    size_t n = it->subject.n;
    if (n <= SHORT_SUBJECT || r->anchored) {
        return search_starts(r, s, it, it->from, n, found);
    }
    for (size_t from = it->from;;) {
        TRY(keep_pace(it));
        size_t last = n - from < it->left ? n : from + it->left - 1;
        TRY(search_starts(r, s, it, from, last, found));
        size_t tried = *found ? it->start - from + MATCH_STARTS : last - from + 1;
        it->left -= tried < it->left ? tried : it->left;
        if (*found || last == n) {
            return QUIRE_OK;
        }
        from = char_from(it->subject, last + 1);
    }
}

static quire_err search_literal(const matcher *m, match_iter *it, bool *found) {
    *found = false;
    /* the address of an empty text may be NULL */
    if (m->n_literal == 0 || it->subject.n - it->from < m->n_literal) {
        return QUIRE_OK;
    }
    const char *p = it->subject.p + it->from, *end = it->subject.p + it->subject.n;
    while ((size_t)(end - p) >= m->n_literal) {
        p = memchr(p, m->literal[0], (size_t)(end - p) - m->n_literal + 1);
        if (p == NULL) {
            return QUIRE_OK;
        }
        if (memcmp(p, m->literal, m->n_literal) == 0) {
            it->start = (size_t)(p - it->subject.p);
            it->end = it->start + m->n_literal;
            *found = true;
            return QUIRE_OK;
        }
        TRY(turn_poll(1 + (uint32_t)(m->n_literal / BYTES_COMPARED)));
        p++;
    }
    return QUIRE_OK;
}

/* Skips a character, so that a search after an empty match makes progress. */
static void skip_char(match_iter *it) {
    it->from = char_from(it->subject, it->from + 1);
}

quire_err matcher_next(const matcher *m, regex_scratch *s, match_iter *it, bool *found) {
    assert(it != NULL);
    *found = false;
    while (it->from <= it->subject.n) {
        TRY(m->re != NULL ? search_regex(m->re, s, it, found) : search_literal(m, it, found));
        if (!*found) {
            return turn_poll((uint32_t)((it->subject.n - it->from) / 16 + 1));
        }
        if (it->start == it->end && it->any && it->last_end == it->end) {
            *found = false;
            skip_char(it);
            continue;
        }
        uint32_t passed = (uint32_t)(it->end - it->from);
        it->from = it->end;
        it->last_end = it->end;
        it->any = true;
        return turn_poll(passed + 1);
    }
    return QUIRE_OK;
}

quire_err matcher_replace(const matcher *m, regex_scratch *s, str text, str by, strbuf *out) {
    match_iter it = {.subject = text};
    size_t done = 0;
    bool found;
    for (;;) {
        TRY(matcher_next(m, s, &it, &found));
        size_t upto = found ? it.start : text.n;
        if (upto > done) {
            TRY(strbuf_add(out, text.p + done, upto - done));
        }
        if (!found) {
            return QUIRE_OK;
        }
        TRY(strbuf_add(out, by.p, by.n));
        done = it.end;
    }
}
