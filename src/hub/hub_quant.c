#include "hub/hub_quant.h"

#include <ctype.h>

#define SPLIT_BYTES 15 /* "-00001-of-00003" */

static char upper(char c) {
    return (char)toupper((unsigned char)c);
}

bool hub_quant_same(str a, str b) {
    bool same = a.n == b.n;
    for (size_t i = 0; same && i < a.n; i++) {
        same = upper(a.p[i]) == upper(b.p[i]);
    }
    return same;
}

static bool hub_quant_begins_with(str s, const char *with) {
    size_t n = strlen(with);
    return s.n >= n && hub_quant_same((str){s.p, n}, str_of(with));
}

static int32_t five_digits(const char *p) {
    int32_t v = 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)p[i])) {
            return -1;
        }
        v = v * 10 + (p[i] - '0');
    }
    return v;
}

static void hub_quant_read_split(hub_gguf *g) {
    g->part = g->n_parts = 1;
    if (g->stem.n <= SPLIT_BYTES) {
        return;
    }
    const char *tail = g->stem.p + g->stem.n - SPLIT_BYTES;
    int32_t part = tail[0] == '-' ? five_digits(tail + 1) : -1,
            n_parts = memcmp(tail + 6, "-of-", 4) == 0 ? five_digits(tail + 10) : -1;
    if (part >= 1 && n_parts >= part) {
        g->part = part;
        g->n_parts = n_parts;
        g->stem.n -= SPLIT_BYTES;
    }
}

/* Whether a word is a type's name: F16, BF16, MXFP4, Q8_0, IQ3_XXS, TQ1_0, Q4_K_M, Q4
 * .. */
static bool is_quant(str word) {
    static const char *const plain[] = {"F16", "F32", "BF16", "FP16", "FP32", "MXFP4"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (hub_quant_same(word, str_of(plain[i]))) {
            return true;
        }
    }
    if (hub_quant_begins_with(word, "MXFP4_")) {
        return true;
    }
    size_t q = hub_quant_begins_with(word, "IQ") || hub_quant_begins_with(word, "TQ") ? 2
               : hub_quant_begins_with(word, "Q")                                     ? 1
                                                                                      : 0;
    bool is = q > 0 && word.n > q && isdigit((unsigned char)word.p[q]) &&
              (word.n == q + 1 || (word.n >= q + 3 && word.p[q + 1] == '_'));
    for (size_t i = q; is && i < word.n; i++) {
        is = isalnum((unsigned char)word.p[i]) || word.p[i] == '_';
    }
    return is;
}

static bool hub_quant_ends_word(char c) {
    return c == '-' || c == '.' || c == '/';
}

/* The last word of the stem that is a type's name, with Unsloth's "UD-" before it. */
static str find_quant(str stem) {
    str found = {0};
    for (size_t from = 0; from < stem.n;) {
        size_t to = from;
        while (to < stem.n && !hub_quant_ends_word(stem.p[to])) {
            to++;
        }
        if (is_quant((str){stem.p + from, to - from})) {
            bool dynamic = from >= 3 && hub_quant_begins_with((str){stem.p + from - 3, 3}, "UD-");
            size_t begin = dynamic ? from - 3 : from;
            found = (str){stem.p + begin, to - begin};
        }
        from = to + 1;
    }
    return found;
}

bool hub_gguf_read(str path, hub_gguf *out) {
    if (path.n < 6 || !hub_quant_same((str){path.p + path.n - 5, 5}, str_of(".gguf"))) {
        return false;
    }
    size_t base = path.n;
    while (base > 0 && path.p[base - 1] != '/') {
        base--;
    }
    str name = {path.p + base, path.n - base};
    if (hub_quant_begins_with(name, "mmproj") || hub_quant_begins_with(name, "imatrix") ||
        str_contains(name, str_of("imatrix.gguf"))) {
        return false;
    }
    *out = (hub_gguf){.stem = {path.p, path.n - 5}};
    hub_quant_read_split(out);
    out->quant = find_quant(out->stem);
    return true;
}
