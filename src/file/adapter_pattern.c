#include "file/adapter_pattern.h"

#include <stdio.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"
#include "file/show.h"

#define MAX_KEY_BYTES 1024
#define MAX_PATTERNS  65536
#define MAX_COMPILED  64 /* expressions that are more than names */
#define MATCH_LIMIT   20000
#define DEPTH_LIMIT   1000
#define HEAP_KIB      1024

void adapter_patterns_deinit(adapter_patterns *p) {
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->list[i].plain);
        pcre2_code_free(p->list[i].code);
    }
    mem_free(p->list);
    *p = (adapter_patterns){0};
}

/* A key without operators but '.', as text: its escapes of characters that are no letters
 * are resolved ('.' that is escaped becomes \1). NULL: it has operators, or there is no
 * memory. */
static char *pattern_plain(str key) {
    char *out = mem_new(key.n + 1, 1);
    size_t n = 0;
    for (size_t i = 0; out != NULL && i < key.n; i++) {
        char c = key.p[i];
        const bool escapes = c == '\\' && i + 1 < key.n;
        c = escapes ? key.p[++i] : c;
        const bool letter =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (escapes ? letter : !letter && c != '.' && c != '-') {
            mem_free(out);
            return NULL;
        }
        out[n++] = (char)(escapes && c == '.' ? 1 : c);
    }
    return out;
}

static quire_err pattern_compile(adapter_patterns *p, str key, const char *where, void **out,
                                 quire_error *err) {
    char text[MAX_KEY_BYTES + 32], words[96];
    int code, n = snprintf(text, sizeof text, "(?:.*\\.)?(?:%.*s)$", (int)key.n, key.p);
    PCRE2_SIZE at;
    if (p->n_compiled == MAX_COMPILED) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: over %d keys are regular expressions", where,
                       MAX_COMPILED);
    }
    *out = pcre2_compile((PCRE2_SPTR)text, (PCRE2_SIZE)n,
                         PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (*out == NULL) {
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)words, sizeof words);
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: key %s is no regular expression: %s", where,
                       show_name(key).text, words);
    }
    p->n_compiled++;
    return QUIRE_OK;
}

quire_err adapter_patterns_add(adapter_patterns *p, str key, double value, const char *where,
                               quire_error *err) {
    adapter_pattern made = {.value = value};
    if (key.n == 0 || key.n > MAX_KEY_BYTES || memchr(key.p, 0, key.n) != NULL || p->n >= MAX_PATTERNS) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: at most %d keys of 1 to %d bytes are read", where,
                       MAX_PATTERNS, MAX_KEY_BYTES);
    }
    if (mem_grow(&p->list, &p->cap, p->n + 1, sizeof *p->list) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", where);
    }
    made.plain = pattern_plain(key);
    if (made.plain == NULL) {
        TRY(pattern_compile(p, key, where, &made.code, err));
    }
    p->list[p->n++] = made;
    return QUIRE_OK;
}

static bool pattern_matches_plain(const char *plain, str name) {
    const size_t n = strlen(plain);
    if (n > name.n || (n < name.n && name.p[name.n - n - 1] != '.')) {
        return false;
    }
    const char *end = name.p + name.n - n;
    for (size_t i = 0; i < n; i++) {
        if (plain[i] != '.' && (plain[i] == 1 ? '.' : plain[i]) != end[i]) {
            return false;
        }
    }
    return true;
}

static bool pattern_matches_code(const pcre2_code *code, str name) {
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    bool is = false;
    if (limits != NULL && data != NULL) {
        (void)pcre2_set_match_limit(limits, MATCH_LIMIT);
        (void)pcre2_set_depth_limit(limits, DEPTH_LIMIT);
        (void)pcre2_set_heap_limit(limits, HEAP_KIB);
        is = pcre2_match(code, (PCRE2_SPTR)name.p, name.n, 0, 0, data, limits) >= 0;
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
    return is;
}

bool adapter_patterns_find(const adapter_patterns *p, str name, double *value) {
    for (size_t i = 0; i < p->n; i++) {
        const adapter_pattern *a = &p->list[i];
        if (a->plain != NULL ? pattern_matches_plain(a->plain, name) : pattern_matches_code(a->code, name)) {
            *value = a->value;
            return true;
        }
    }
    return false;
}
