/* JSON texts of any kind: the check, the tree's reader and the pull reader take the same
 * ones, and a tree that is written is read again as it was. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "json/json_out.h"
#include "json/json_scan.h"

/* Under the depth of json_limits_config, which the pull reader's spans go by. */
enum { DEPTH = 40, MANY = 1 << 20 };

static bool is_one_of(const json_fault *fault, const char *a, const char *b) {
    return strcmp(fault->what, a) == 0 || strcmp(fault->what, b) == 0;
}

/* Walks one value with the pull reader's calls; the counts are to be the check's. */
static bool walk(json_scan *s, strbuf *scratch, int depth, json_counts *n) {
    str text;
    bool more = true;
    json_scan_value number;
    char c = json_scan_peek(s);
    n->n_values++;
    if (c == '"') {
        return json_scan_string(s, scratch, &text) == QUIRE_OK && utf8_is_valid(text);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        bool taken = json_scan_number(s, &number) == QUIRE_OK;
        n->n_wide += taken && number.is_integer && !number.fits;
        return taken;
    }
    if (c != '{' && c != '[') {
        return json_scan_word(s, &text) == QUIRE_OK;
    }
    n->n_containers++;
    bool fine = depth > 0 && json_scan_open(s, c) == QUIRE_OK;
    while (fine && more) {
        fine = json_scan_more(s, c == '{' ? '}' : ']', &more) == QUIRE_OK;
        if (fine && more && c == '{') {
            fine = json_scan_key(s, scratch, &text) == QUIRE_OK && utf8_is_valid(text);
            n->n_names++;
        }
        fine = fine && (!more || walk(s, scratch, depth - 1, n));
    }
    return fine;
}

static void check_scan(str text, bool valid, const json_counts *counts) {
    json_scan s = {.text = text};
    json_counts n = {0};
    strbuf scratch = {0};
    str span;
    bool whole = walk(&s, &scratch, DEPTH, &n) && json_scan_peek(&s) == '\0' && s.at == text.n;
    fuzz_check(whole == valid);
    fuzz_check(!valid || (n.n_values == counts->n_values && n.n_containers == counts->n_containers &&
                          n.n_names == counts->n_names && n.n_wide == counts->n_wide));
    s = (json_scan){.text = text};
    fuzz_check(!valid ||
               (json_scan_span(&s, &span) == QUIRE_OK && json_scan_peek(&s) == '\0' && s.at == text.n));
    strbuf_deinit(&scratch);
}

/* The values of a tree, each looked at. */
static size_t count(const json_value *v, fuzz_sum *sum) {
    size_t n = 1;
    str s = json_str(v);
    fuzz_read(sum, s.p, s.n + 1);
    fuzz_check(utf8_is_valid(s) && isfinite(json_double(v)));
    for (size_t i = 0; json_is(v, JSON_KIND_ARRAY) && i < json_length(v); i++) {
        n += count(json_at(v, i), sum);
    }
    for (json_member m = {0}; json_next(v, &m);) {
        fuzz_check(json_has(v, m.name) && json_get(v, m.name) == m.value);
        n += count(m.value, sum);
    }
    return n;
}

static void check_writer(const json_value *v, const json_limits *limits, int indent) {
    strbuf text = {0};
    json_out o = {.to = &text, .indent = indent};
    json_value *again;
    json_fault fault;
    json_add(&o, v);
    fuzz_check(o.err == QUIRE_OK && o.depth == 0);
    fuzz_check(json_read((str){text.p, text.n}, limits, JSON_WIDE_REFUSED, &again, &fault) == QUIRE_OK);
    fuzz_check(json_same(v, again));
    json_drop(again);
    strbuf_deinit(&text);
}

static void check_read(str text, const json_limits *limits, json_wide wide, bool valid,
                       const json_counts *counts) {
    json_value *v;
    json_fault fault = {0};
    fuzz_sum sum = 0;
    quire_err e = json_read(text, limits, wide, &v, &fault);
    if (e != QUIRE_OK) {
        fuzz_check(v == NULL && fault.what[0] != 0 && fault.at <= text.n);
        bool by_width = wide == JSON_WIDE_REFUSED && counts->n_wide > 0;
        fuzz_check(!valid || (by_width ? fault.at == counts->wide_at &&
                                             is_one_of(&fault, "an integer that does not fit in 64 bits", "")
                                       : is_one_of(&fault, "a number too large for a double",
                                                   "a name with a NUL character")));
        return;
    }
    fuzz_check(valid && (wide == JSON_WIDE_REAL || counts->n_wide == 0));
    size_t n = count(v, &sum);
    fuzz_check(limits->names == JSON_NAMES_UNIQUE ? n == counts->n_values : n <= counts->n_values);
    check_writer(v, limits, 0);
    check_writer(v, limits, 2);
    json_drop(v);
    fuzz_keep(sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_limits limits = {.max_depth = DEPTH,
                          .max_values = MANY,
                          .max_containers = MANY,
                          .max_names = MANY,
                          .names = JSON_NAMES_LAST};
    str text = {(const char *)data, size};
    json_counts counts = {0}, unique = {0};
    json_fault fault = {0};
    quire_err e = json_check(text, &limits, &counts, &fault);
    if (e == QUIRE_TOO_LARGE || size > MANY) {
        return 0;
    }
    fuzz_check(e == QUIRE_OK || (e == QUIRE_BAD_FILE && fault.what[0] != 0 && fault.at <= size));
    check_scan(text, e == QUIRE_OK, &counts);
    check_read(text, &limits, JSON_WIDE_REAL, e == QUIRE_OK, &counts);
    check_read(text, &limits, JSON_WIDE_REFUSED, e == QUIRE_OK, &counts);
    limits.names = JSON_NAMES_UNIQUE;
    quire_err once = json_check(text, &limits, &unique, &fault);
    fuzz_check(once == QUIRE_OK ? e == QUIRE_OK : once == QUIRE_BAD_FILE);
    check_read(text, &limits, JSON_WIDE_REAL, once == QUIRE_OK, &unique);
    return 0;
}
