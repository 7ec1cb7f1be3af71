#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/turn.h"

#define MAX_PATTERN_BYTES 65536u
#define MATCH_LIMIT       20000000u /* steps of one search: tens of milliseconds */
#define DEPTH_LIMIT       100000u
#define HEAP_LIMIT_KIB    65536u

struct regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

static quire_err compile(regex *r, const strbuf *source, str pattern, quire_error *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    r->limits = pcre2_match_context_create(NULL);
    if (context == NULL || r->limits == NULL) {
        pcre2_compile_context_free(context);
        return QUIRE_NO_MEMORY;
    }
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    (void)pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    int code;
    PCRE2_SIZE at;
    r->code = pcre2_compile((PCRE2_SPTR)source->p, source->n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at,
                            context);
    pcre2_compile_context_free(context);
    if (r->code == NULL) {
        PCRE2_UCHAR words[128] = {0};
        (void)pcre2_get_error_message(code, words, sizeof words);
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer: the regular expression %.*s: %s", (int)(pattern.n < 200 ? pattern.n : 200),
                       pattern.p, (const char *)words);
    }
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* where there is none, the interpreter gives the same matches */
    return QUIRE_OK;
}

bool regex_is_script(str name) {
    char source[64];
    int code, n = name.n == 0 || name.n > 40 ? 0 : snprintf(source, sizeof source, "\\p{sc:%.*s}", (int)name.n, name.p);
    PCRE2_SIZE at;
    pcre2_code *script = n == 0 ? NULL : pcre2_compile((PCRE2_SPTR)source, (PCRE2_SIZE)n, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(script);
    return script != NULL;
}

quire_err regex_open(str pattern, regex **out, quire_error *err) {
    return regex_open_as(pattern, REGEX_ONIGURUMA, out, err);
}

quire_err regex_open_as(str pattern, regex_syntax syntax, regex **out, quire_error *err) {
    if (pattern.n > MAX_PATTERN_BYTES) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "tokenizer: a regular expression of %zu bytes; at most %u", pattern.n, MAX_PATTERN_BYTES);
    }
    strbuf source = {.max = (size_t)64 * MAX_PATTERN_BYTES};
    regex *r = mem_new(1, sizeof *r);
    quire_err e = r == NULL ? QUIRE_NO_MEMORY : regex_translate(pattern, syntax, &source, err);
    if (e == QUIRE_OK) {
        e = compile(r, &source, pattern, err);
    }
    strbuf_deinit(&source);
    if (e != QUIRE_OK) {
        regex_close(r);
        return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "tokenizer: out of memory for a regular expression") : e;
    }
    *out = r;
    return QUIRE_OK;
}

void regex_close(regex *r) {
    if (r != NULL) {
        pcre2_code_free(r->code);
        pcre2_match_context_free(r->limits);
        mem_free(r);
    }
}

void regex_scratch_deinit(regex_scratch *s) {
    pcre2_match_data_free(s->match_data);
    s->match_data = NULL;
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

static quire_err search_regex(const regex *r, regex_scratch *s, match_iter *it, bool *found) {
    if (s->match_data == NULL) {
        s->match_data = pcre2_match_data_create(1, NULL);
        TRY(mem_check(s->match_data));
    }
    PCRE2_SPTR subject = (PCRE2_SPTR)(it->subject.n > 0 ? it->subject.p : "");
    int rc = pcre2_match(r->code, subject, it->subject.n, it->from, PCRE2_NO_UTF_CHECK, s->match_data, r->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(r->code, subject, it->subject.n, it->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match_data, r->limits);
    }
    *found = rc >= 0;
    if (rc < 0) {
        return rc == PCRE2_ERROR_NOMATCH ? QUIRE_OK : rc == PCRE2_ERROR_NOMEMORY ? QUIRE_NO_MEMORY : QUIRE_BAD_REQUEST;
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match_data);
    it->start = ends[0];
    it->end = ends[1];
    return it->start <= it->end ? QUIRE_OK : QUIRE_BAD_REQUEST; /* \K in a lookahead can reverse them */
}

static void search_literal(const matcher *m, match_iter *it, bool *found) {
    *found = false;
    if (m->n_literal == 0 || it->subject.n - it->from < m->n_literal) { /* an empty text may have no address */
        return;
    }
    const char *p = it->subject.p + it->from, *end = it->subject.p + it->subject.n;
    while ((size_t)(end - p) >= m->n_literal) {
        p = memchr(p, m->literal[0], (size_t)(end - p) - m->n_literal + 1);
        if (p == NULL) {
            return;
        }
        if (memcmp(p, m->literal, m->n_literal) == 0) {
            it->start = (size_t)(p - it->subject.p);
            it->end = it->start + m->n_literal;
            *found = true;
            return;
        }
        p++;
    }
}

/* Advances one character, so that a search after an empty match makes progress. */
static void skip_char(match_iter *it) {
    it->from++;
    while (it->from < it->subject.n && ((unsigned char)it->subject.p[it->from] & 0xC0) == 0x80) {
        it->from++;
    }
}

quire_err matcher_next(const matcher *m, regex_scratch *s, match_iter *it, bool *found) {
    *found = false;
    while (it->from <= it->subject.n) {
        if (m->re != NULL) {
            TRY(search_regex(m->re, s, it, found));
        } else {
            search_literal(m, it, found);
        }
        if (!*found) {
            return QUIRE_OK;
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
        TRY(upto > done ? strbuf_add(out, text.p + done, upto - done) : QUIRE_OK);
        if (!found) {
            return QUIRE_OK;
        }
        TRY(strbuf_add(out, by.p, by.n));
        done = it.end;
    }
}
