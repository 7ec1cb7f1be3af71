#include "json/json_check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/turn.h"
#include "json/json_lex.h"

#define FILE_LIMITS                                                                                          \
    .max_depth = 64, .max_values = (size_t)1 << 26, .max_containers = (size_t)1 << 22,                       \
    .max_names = (size_t)1 << 24
const json_limits json_limits_file = {FILE_LIMITS, .names = JSON_NAMES_UNIQUE};
const json_limits json_limits_config = {FILE_LIMITS, .names = JSON_NAMES_LAST};
const json_limits json_limits_model = {FILE_LIMITS, .names = JSON_NAMES_LAST, .takes_nonfinite = true};

/* A name of an open object. */
typedef struct name_seen {
    uint64_t hash;
    size_t at; /* offset of its opening quote */
} name_seen;

/* The state of one check. frames[0..depth) are the open containers. */
typedef struct walk {
    str text;
    size_t at;
    const json_limits *limits;
    json_counts counts;
    json_fault *fault;
    name_seen *names; /* names in all open objects, the outermost object first */
    size_t n_names, cap_names;
    strbuf scratch, other;
    size_t n_free; /* bytes before `at` that do not count towards max_bytes */
    /* max_bytes now in force, and the value of json_check_counted at which it is reached;
     * SIZE_MAX: no bound */
    size_t max_bytes, end;
    int depth;
    struct {
        size_t first_name;
        bool is_object;
    } frames[JSON_MAX_DEPTH];
} walk;

static quire_err json_check_fail(walk *w, quire_err code, size_t at, const char *what) {
    *w->fault = (json_fault){.at = at};
    snprintf(w->fault->what, sizeof w->fault->what, "%s", what);
    return code;
}

static quire_err json_check_no_memory(walk *w) {
    return json_check_fail(w, QUIRE_NO_MEMORY, w->at, "out of memory");
}

/* ---- bytes ---- */

static size_t json_check_counted(const walk *w) {
    return w->at - w->n_free;
}

/* Limits the bytes counted from here on to max_bytes; 0: no bound. */
static void set_bound(walk *w, size_t max_bytes) {
    w->max_bytes = max_bytes;
    w->end = max_bytes > 0 && max_bytes < SIZE_MAX - json_check_counted(w) ? json_check_counted(w) + max_bytes
                                                                           : SIZE_MAX;
}

static quire_err json_check_too_long(walk *w) {
    char what[sizeof w->fault->what];
    snprintf(what, sizeof what, "over %zu bytes", w->max_bytes);
    quire_err e = json_check_fail(w, QUIRE_TOO_LARGE, w->at, what);
    w->fault->max_bytes = w->max_bytes;
    return e;
}

static quire_err check_bound(walk *w) {
    return json_check_counted(w) <= w->end ? QUIRE_OK : json_check_too_long(w);
}

static void json_check_skip_space(walk *w) {
    size_t at = json_lex_space(w->text, w->at);
    w->n_free += at - w->at;
    w->at = at;
}

static quire_err take_string(walk *w) {
    json_letters letters;
    const char *what = NULL;
    size_t start = w->at, left = w->end > json_check_counted(w) ? w->end - json_check_counted(w) : 0;
    quire_err e = json_lex_string(w->text, &w->at, left, &letters, &what);
    if (e != QUIRE_OK) {
        return what != NULL ? json_check_fail(w, e, w->at, what) : json_check_too_long(w);
    }
    w->n_free += w->at - start - letters.n_bytes;
    return QUIRE_OK;
}

/* ---- names ---- */

/* Decodes the name whose opening quote is at `at`, like json_lex_text. */
static quire_err json_check_name_at(const walk *w, size_t at, strbuf *scratch, str *out) {
    return json_lex_text(w->text, &at, scratch, out);
}

/* Records the name whose opening quote is at start. */
static quire_err json_check_note_name(walk *w, size_t start) {
    str name;
    if (json_check_name_at(w, start, &w->scratch, &name) != QUIRE_OK) {
        return json_check_no_memory(w);
    }
    if (!w->limits->takes_nul && name.n > 0 && memchr(name.p, 0, name.n) != NULL) {
        return json_check_fail(w, QUIRE_BAD_FILE, start, "a name with a NUL character");
    }
    if (mem_grow(&w->names, &w->cap_names, w->n_names + 1, sizeof *w->names) != QUIRE_OK) {
        return json_check_no_memory(w);
    }
    w->names[w->n_names++] = (name_seen){str_hash(STR_HASH_START, name), start};
    return QUIRE_OK;
}

/* Sets the bound of a member of the outermost object. start: its name's opening quote. */
static quire_err bound_member(walk *w, size_t start) {
    str name;
    if (json_check_name_at(w, start, &w->scratch, &name) != QUIRE_OK) {
        return json_check_no_memory(w);
    }
    set_bound(w, w->limits->member_bytes(w->limits->user, name));
    return QUIRE_OK;
}

static quire_err json_check_take_name(walk *w) {
    size_t start = w->at;
    bool is_bounded = w->depth == 1 && w->limits->member_bytes != NULL;
    if (is_bounded) {
        set_bound(w, 0); /* ends the bound of the previous member */
    }
    TRY(take_string(w));
    if (++w->counts.n_names > w->limits->max_names) {
        return json_check_fail(w, QUIRE_TOO_LARGE, start, "too many object members");
    }
    if (w->limits->names == JSON_NAMES_UNIQUE) {
        TRY(json_check_note_name(w, start));
    }
    json_check_skip_space(w);
    if (w->at == w->text.n || w->text.p[w->at] != ':') {
        return json_check_fail(w, QUIRE_BAD_FILE, w->at, "no colon after a name");
    }
    w->at++;
    json_check_skip_space(w);
    return is_bounded ? bound_member(w, start) : QUIRE_OK;
}

static int by_hash(const void *a, const void *b) {
    const name_seen *x = a, *y = b;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : x->at < y->at ? -1 : 1;
}

#define MOST_OF_A_HASH 8 /* most names with the same hash; by chance even two are unlikely */

/* Fails if an earlier entry with the same hash has the same name as entry i. */
static quire_err check_name(walk *w, const name_seen *n, size_t i) {
    str a, b;
    for (size_t k = i; k > 0 && n[k - 1].hash == n[i].hash; k--) {
        if (i - k == MOST_OF_A_HASH) {
            return json_check_fail(w, QUIRE_TOO_LARGE, n[i].at, "too many names with the same hash");
        }
        if (json_check_name_at(w, n[k - 1].at, &w->other, &a) != QUIRE_OK ||
            json_check_name_at(w, n[i].at, &w->scratch, &b) != QUIRE_OK) {
            return json_check_no_memory(w);
        }
        if (str_eq(a, b)) {
            char what[sizeof w->fault->what];
            snprintf(what, sizeof what, "the duplicate name \"%.*s\"", (int)(b.n < 40 ? b.n : 0), b.p);
            return json_check_fail(w, QUIRE_BAD_FILE, n[i].at, b.n < 40 ? what : "a duplicate name");
        }
    }
    return QUIRE_OK;
}

/* Fails if a name occurs twice in a complete object, whose names begin at `first`. */
static quire_err json_check_names(walk *w, size_t first) {
    size_t count = w->n_names - first;
    if (count < 2) {
        w->n_names = first;
        return QUIRE_OK;
    }
    name_seen *n = w->names + first;
    qsort(n, count, sizeof *n, by_hash);
    for (size_t i = 1; i < count; i++) {
        TRY(check_name(w, n, i));
    }
    w->n_names = first;
    return QUIRE_OK;
}

/* ---- values ---- */

static quire_err json_check_take_number(walk *w) {
    json_number number;
    const char *what;
    size_t start = w->at;
    quire_err e = json_lex_number(w->text, &w->at, &number, &what);
    if (e != QUIRE_OK) {
        return json_check_fail(w, e, w->at, what);
    }
    w->counts.n_long += number.is_long;
    if (number.is_integer && !number.fits && w->counts.n_wide++ == 0) {
        w->counts.wide_at = start;
    }
    return QUIRE_OK;
}

/* Opens the array or object whose bracket is at w->at. */
static quire_err open_container(walk *w, bool is_object) {
    if (w->depth >= w->limits->max_depth || w->depth >= JSON_MAX_DEPTH) {
        return json_check_fail(w, QUIRE_TOO_LARGE, w->at, "nested too deeply");
    }
    if (++w->counts.n_containers > w->limits->max_containers) {
        return json_check_fail(w, QUIRE_TOO_LARGE, w->at, "too many arrays and objects");
    }
    w->frames[w->depth].is_object = is_object;
    w->frames[w->depth++].first_name = w->n_names;
    w->at++;
    return check_bound(w);
}

/* Reads a scalar, or opens a container; *scalar is true for a scalar. */
static quire_err json_check_take_value(walk *w, bool *scalar) {
    const char *what;
    *scalar = true;
    quire_err e = turn_poll(1);
    if (e != QUIRE_OK) {
        return json_check_fail(w, e, w->at, "given up");
    }
    if (w->at == w->text.n) {
        return json_check_fail(w, QUIRE_BAD_FILE, w->at, "the text ends where a value is expected");
    }
    if (++w->counts.n_values > w->limits->max_values) {
        return json_check_fail(w, QUIRE_TOO_LARGE, w->at, "too many values");
    }
    char c = w->text.p[w->at];
    if (c == '{' || c == '[') {
        *scalar = false;
        return open_container(w, c == '{');
    }
    if (c == '"') {
        return take_string(w);
    }
    size_t n_word = w->limits->takes_nonfinite ? json_lex_nonfinite(w->text, w->at) : 0;
    if (n_word > 0) {
        w->counts.n_nonfinite++;
        w->at += n_word;
        return check_bound(w);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        TRY(json_check_take_number(w));
        return check_bound(w);
    }
    e = json_lex_word(w->text, &w->at, &what);
    return e == QUIRE_OK ? check_bound(w) : json_check_fail(w, e, w->at, what);
}

/* Closes, after a value, every container that ends here. *more: another member of an open
 * container follows. */
static quire_err close_containers(walk *w, bool *more) {
    *more = false;
    while (w->depth > 0) {
        bool is_object = w->frames[w->depth - 1].is_object;
        json_check_skip_space(w);
        char c = w->at < w->text.n ? w->text.p[w->at] : '\0';
        if (c == ',') {
            w->at++;
            json_check_skip_space(w);
            *more = true;
            return QUIRE_OK;
        }
        if (c != (is_object ? '}' : ']')) {
            return json_check_fail(w, QUIRE_BAD_FILE, w->at,
                                   w->at == w->text.n ? "the text ends inside an array or object"
                                                      : "a comma or the closing bracket is missing");
        }
        if (is_object) {
            TRY(json_check_names(w, w->frames[w->depth - 1].first_name));
        }
        w->at++;
        w->depth--;
    }
    return QUIRE_OK;
}

/* Checks one value and everything in it, without recursion. */
static quire_err walk_value(walk *w) {
    bool more = true, first = false; /* first: a container was just opened and may be empty */
    while (more) {
        bool scalar;
        if (w->depth > 0) {
            bool is_object = w->frames[w->depth - 1].is_object;
            json_check_skip_space(w);
            if (first && w->at < w->text.n && w->text.p[w->at] == (is_object ? '}' : ']')) {
                first = false;
                TRY(close_containers(w, &more));
                continue;
            }
            if (is_object) {
                if (w->at == w->text.n || w->text.p[w->at] != '"') {
                    return json_check_fail(w, QUIRE_BAD_FILE, w->at, "a name in double quotes is expected");
                }
                TRY(json_check_take_name(w));
            }
        }
        TRY(json_check_take_value(w, &scalar));
        first = !scalar;
        if (scalar) {
            TRY(close_containers(w, &more));
        }
    }
    return QUIRE_OK;
}

quire_err json_check_value(str text, size_t *at, const json_limits *limits, json_counts *counts,
                           json_fault *fault) {
    walk *w = mem_new(1, sizeof *w);
    if (w == NULL) {
        *fault = (json_fault){.at = *at, .what = "out of memory"};
        return QUIRE_NO_MEMORY;
    }
    w->text = text;
    w->at = json_lex_space(text, *at);
    w->limits = limits;
    w->fault = fault;
    set_bound(w, limits->member_bytes == NULL ? limits->max_bytes : 0);
    quire_err e = walk_value(w);
    *at = w->at;
    if (counts != NULL) {
        *counts = w->counts;
    }
    mem_free(w->names);
    strbuf_deinit(&w->scratch);
    strbuf_deinit(&w->other);
    mem_free(w);
    return e;
}

quire_err json_check(str text, const json_limits *limits, json_counts *counts, json_fault *fault) {
    size_t at = 0;
    TRY(json_check_value(text, &at, limits, counts, fault));
    at = json_lex_space(text, at);
    if (at < text.n) {
        *fault = (json_fault){.at = at, .what = "text follows the value"};
        return QUIRE_BAD_FILE;
    }
    return QUIRE_OK;
}
