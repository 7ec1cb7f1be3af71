#include "hub/hub_name.h"

#include <assert.h>
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "file/show.h"
#include "quire_hub.h"

#define MAX_WORD  96 /* longest ORG and NAME that the hub allows */
#define MAX_DEPTH 8
#define MAX_PATH  1000
#define MAX_PART  255

bool hub_is_hex(str text, size_t n) {
    bool is = text.n == n;
    for (size_t i = 0; is && i < n; i++) {
        is = (text.p[i] >= '0' && text.p[i] <= '9') || (text.p[i] >= 'a' && text.p[i] <= 'f');
    }
    return is;
}

bool hub_is_digest(str text) {
    return hub_is_hex(text, 40) || hub_is_hex(text, 64);
}

bool hub_path_is_safe(str path) {
    size_t depth = 1, from = 0;
    if (path.n == 0 || path.n > MAX_PATH) {
        return false;
    }
    for (size_t i = 0; i <= path.n; i++) {
        unsigned char c = i < path.n ? (unsigned char)path.p[i] : '/';
        if (c < 0x20 || c == 0x7f || c == '\\') {
            return false;
        }
        if (c == '/') {
            if (i == from || i - from > MAX_PART || path.p[from] == '.') {
                return false;
            }
            depth += i < path.n;
            from = i + 1;
        }
    }
    return depth <= MAX_DEPTH;
}

bool hub_path_is_hostile(str path) {
    bool hostile = path.n == 0 || path.p[0] == '/' || str_is(path, "..") || str_begins(path, "../") ||
                   str_ends(path, "/..") || str_contains(path, str_of("/../"));
    for (size_t i = 0; i < path.n && !hostile; i++) {
        unsigned char c = (unsigned char)path.p[i];
        hostile = c < 0x20 || c == 0x7f || c == '\\';
    }
    return hostile;
}

/* Length of a word of letters, digits, '-', '_' and '.' that begins with a letter or
 * digit; 0: there is none. */
static size_t word_length(const char *p) {
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || (n > 0 && (p[n] == '-' || p[n] == '_' || p[n] == '.'))) {
        n++;
    }
    return n <= MAX_WORD && n > 0 && p[n - 1] != '.' && p[n - 1] != '-' ? n : 0;
}

/* Length of "ORG/NAME" at the beginning of text; 0: there is none. Neither part may have
 * "--", which separates them in the cache's names. */
static size_t repo_length(const char *text) {
    size_t org = word_length(text), name = org > 0 && text[org] == '/' ? word_length(text + org + 1) : 0,
           n = org + 1 + name;
    bool has_dashes = name > 0 && (str_contains((str){text, n}, str_of("--")) ||
                                   str_contains((str){text, n}, str_of("..")));
    return name > 0 && !has_dashes ? n : 0;
}

static bool hub_name_copy(str from, char *to, size_t n) {
    if (from.n >= n) {
        return false;
    }
    memcpy(to, from.p, from.n);
    to[from.n] = 0;
    return true;
}

static bool hub_hub_name_parse(const char *text, hub_name *out) {
    size_t n = repo_length(text);
    const char *rest = text + n, *at = strchr(rest, '@');
    str pick = {rest, at ? (size_t)(at - rest) : strlen(rest)},
        revision = at ? str_of(at + 1) : str_of("main");
    if (n == 0 || (pick.n > 0 && pick.p[0] != ':') || pick.n == 1) {
        return false;
    }
    pick = pick.n > 0 ? (str){pick.p + 1, pick.n - 1} : pick;
    return (pick.n == 0 || hub_path_is_safe(pick)) && hub_path_is_safe(revision) &&
           hub_name_copy((str){text, n}, out->repo, sizeof out->repo) &&
           hub_name_copy(pick, out->pick, sizeof out->pick) &&
           hub_name_copy(revision, out->revision, sizeof out->revision);
}

quire_err hub_name_parse(const char *text, hub_name *out, quire_error *err) {
    hub_name name = {.repo = ""};
    if (!hub_hub_name_parse(text, &name)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: not a model name; it must be ORG/NAME, ORG/NAME:QUANT or ORG/NAME:FILE.gguf, and "
                       "may end in @REVISION",
                       show_name(str_of(text)).text);
    }
    *out = name;
    return QUIRE_OK;
}

bool quire_hub_is_name(const char *text) {
    static const char *const files[] = {".gguf", ".quire", ".safetensors", ".json", ".model", ".bin"};
    hub_name name;
    bool is_file = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        is_file = is_file || str_ends(str_of(text), files[i]);
    }
    return hub_hub_name_parse(text, &name) && !(is_file && name.pick[0] == 0);
}

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

/* Whether a word names a weight type: F16, BF16, MXFP4, Q8_0, IQ3_XXS, TQ1_0, Q4_K_M, Q4
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

/* Last word of the stem that names a weight type, with Unsloth's "UD-" before it. */
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

/* ---- options ---- */

#define LEAST_SIZE (offsetof(quire_hub_options, cache) + sizeof(const char *))
#define MAX_SIZE   4096

static const quire_hub_options defaults = {.size = sizeof(quire_hub_options), .stall_s = 30, .n_at_once = 4};

void quire_hub_options_init_sized(quire_hub_options *o, size_t size) {
    if (size < sizeof o->size) {
        return;
    }
    memset(o, 0, size);
    memcpy(o, &defaults, size < sizeof defaults ? size : sizeof defaults);
    o->size = size;
}

quire_err hub_options_read(const quire_hub_options *given, quire_hub_options *out, quire_error *err) {
    assert(given != NULL);
    size_t size = given->size;
    if (size < LEAST_SIZE || size > MAX_SIZE) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire_hub_options: the size is wrong; call quire_hub_options_init first");
    }
    *out = defaults;
    memcpy(out, given, size < sizeof *out ? size : sizeof *out);
    out->size = sizeof *out;
    if (out->cache == NULL || out->cache[0] == 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "there is no directory for models: set HF_HUB_CACHE, HF_HOME or HOME");
    }
    if (out->stall_s < 1 || out->stall_s > 86400 || out->n_at_once < 1 || out->n_at_once > HUB_MAX_AT_ONCE) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire_hub_options: stall_s must be from 1 to 86400, n_at_once from 1 to %d",
                       HUB_MAX_AT_ONCE);
    }
    return QUIRE_OK;
}
