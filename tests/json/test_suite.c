/* JSONTestSuite (Nicolas Seriot), all of its texts: y_ must be taken, n_ refused, and of
 * i_ the list below says what becomes of each. docs/json.md explains them. */
#include <stdio.h>
#include <stdlib.h>

#include <dirent.h>

#include "test.h"
#include "json/json.h"
#include "json/json_scan.h"

/* The room's largest depth, as the suite has a text of 500 arrays inside each other that
 * a reader may take. */
#define LIMITS                                                                                               \
    .max_depth = JSON_MAX_DEPTH, .max_values = 1 << 20, .max_containers = 1 << 20, .max_names = 1 << 20
static const json_limits names_twice = {LIMITS, .names = JSON_NAMES_LAST};
static const json_limits names_once = {LIMITS, .names = JSON_NAMES_UNIQUE};

typedef struct choice {
    const char *name; /* after i_ */
    const char *what; /* why a tree of it is refused; NULL: taken */
    size_t at;
} choice;

/* Where JSON's standard leaves the choice. An integer beyond 64 bits is taken where the
 * caller takes it as a real. */
#define PAIR   "an unpaired surrogate"
#define UTF8   "not UTF-8"
#define BEYOND "a number too large for a double"
static const choice choices[] = {
    {"number_double_huge_neg_exp", NULL, 0},
    {"number_huge_exp", BEYOND, 1},
    {"number_neg_int_huge_exp", BEYOND, 1},
    {"number_pos_double_huge_exp", BEYOND, 1},
    {"number_real_neg_overflow", BEYOND, 1},
    {"number_real_pos_overflow", BEYOND, 1},
    {"number_real_underflow", NULL, 0},
    {"number_too_big_neg_int", NULL, 0},
    {"number_too_big_pos_int", NULL, 0},
    {"number_very_big_negative_int", NULL, 0},
    {"object_key_lone_2nd_surrogate", PAIR, 2},
    {"string_1st_surrogate_but_2nd_missing", PAIR, 2},
    {"string_1st_valid_surrogate_2nd_invalid", PAIR, 2},
    {"string_UTF-16LE_with_BOM", "unexpected character", 0},
    {"string_UTF-8_invalid_sequence", UTF8, 7},
    {"string_UTF8_surrogate_U+D800", UTF8, 2},
    {"string_incomplete_surrogate_and_escape_valid", PAIR, 2},
    {"string_incomplete_surrogate_pair", PAIR, 2},
    {"string_incomplete_surrogates_escape_valid", PAIR, 2},
    {"string_invalid_lonely_surrogate", PAIR, 2},
    {"string_invalid_surrogate", PAIR, 2},
    {"string_invalid_utf-8", UTF8, 2},
    {"string_inverted_surrogates_U+1D11E", PAIR, 2},
    {"string_iso_latin_1", UTF8, 2},
    {"string_lone_second_surrogate", PAIR, 2},
    {"string_lone_utf8_continuation_byte", UTF8, 2},
    {"string_not_in_unicode_range", UTF8, 2},
    {"string_overlong_sequence_2_bytes", UTF8, 2},
    {"string_overlong_sequence_6_bytes", UTF8, 2},
    {"string_overlong_sequence_6_bytes_null", UTF8, 2},
    {"string_truncated-utf-8", UTF8, 2},
    {"string_utf16BE_no_BOM", "a NUL byte", 0},
    {"string_utf16LE_no_BOM", "a NUL byte", 1},
    {"structure_500_nested_arrays", NULL, 0},
    {"structure_UTF-8_BOM_empty_object", "unexpected character", 0},
};
enum { N_CHOICES = sizeof choices / sizeof *choices };

/* ---- the suite's files ---- */

static void suite_path(char out[1024], const char *name) {
    const char *root = getenv("QUIRE_SHARED");
    snprintf(out, 1024, "%s/data/json/JSONTestSuite/test_parsing/%s", root != NULL ? root : "../shared",
             name);
}

/* A file's bytes in an allocation that ends with them, so that a sanitizer sees a byte
 * read too many. */
static str read_text(const char *name) {
    char path[1024];
    suite_path(path, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(n > 0 ? n : 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, n, f), n);
    (void)fclose(f);
    return (str){p, n};
}

/* Calls judge for every text whose name begins with kind; the number of texts must be the
 * suite's. Skips where it is not there. */
static void each(char kind, int expected, void (*judge)(const char *name, str text)) {
    char path[1024];
    suite_path(path, "");
    DIR *d = opendir(path);
    int n = 0;
    if (d == NULL) {
        printf("SKIP: %s is not there (set QUIRE_SHARED)\n", path);
        skip();
    }
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == kind && e->d_name[1] == '_') {
            str text = read_text(e->d_name);
            judge(e->d_name, text);
            free((char *)(uintptr_t)text.p);
            n++;
        }
    }
    closedir(d);
    assert_int_equal(n, expected);
}

/* ---- what becomes of a text ---- */

static bool check_takes(str text, const json_limits *limits, json_fault *fault) {
    json_counts counts;
    *fault = (json_fault){0};
    quire_err e = json_check(text, limits, &counts, fault);
    assert_true(e == QUIRE_OK || ((e == QUIRE_BAD_FILE || e == QUIRE_TOO_LARGE) && fault->what[0] != 0 &&
                                  fault->at <= text.n));
    return e == QUIRE_OK;
}

static bool read_takes(str text, const json_limits *limits, json_wide wide, json_fault *fault) {
    json_value *v;
    *fault = (json_fault){0};
    quire_err e = json_read(text, limits, wide, &v, fault);
    assert_true(e == QUIRE_OK || ((e == QUIRE_BAD_FILE || e == QUIRE_TOO_LARGE) && v == NULL &&
                                  fault->what[0] != 0 && fault->at <= text.n));
    json_drop(v);
    return e == QUIRE_OK;
}

/* The pull reader's view of a whole text. */
static bool scan_takes(str text) {
    json_scan s = {.text = text};
    str span;
    return json_scan_span(&s, &span) == QUIRE_OK && json_scan_peek(&s) == '\0' && s.at == text.n;
}

#define HOLDS(condition, name)                                                                               \
    if (!(condition)) {                                                                                      \
        fail_msg("%s: not so: %s (%s at byte %zu)", name, #condition, fault.what, fault.at);                 \
    }

static void must_be_taken(const char *name, str text) {
    json_fault fault;
    bool twice = strcmp(name, "y_object_duplicated_key.json") == 0 ||
                 strcmp(name, "y_object_duplicated_key_and_value.json") == 0;
    bool nul = strcmp(name, "y_object_escaped_null_in_key.json") == 0;
    HOLDS(check_takes(text, &names_twice, &fault), name);
    HOLDS(check_takes(text, &names_once, &fault) == (!twice && !nul), name);
    HOLDS(!twice || strstr(fault.what, "duplicate name") != NULL, name);
    HOLDS(read_takes(text, &names_twice, JSON_WIDE_REFUSED, &fault) == !nul, name);
    HOLDS(!nul || strcmp(fault.what, "a name with a NUL character") == 0, name);
    HOLDS(!nul || fault.at == 1, name);
    HOLDS(scan_takes(text), name);
}

static void must_be_refused(const char *name, str text) {
    json_fault fault;
    HOLDS(!check_takes(text, &names_twice, &fault), name);
    HOLDS(!check_takes(text, &names_once, &fault), name);
    HOLDS(!read_takes(text, &names_twice, JSON_WIDE_REAL, &fault), name);
    HOLDS(!scan_takes(text), name);
}

static void may_be_either(const char *name, str text) {
    json_fault fault = {0};
    const choice *c = choices;
    size_t n = strlen(name) - strlen("i_.json");
    while (c < choices + N_CHOICES && !(strlen(c->name) == n && memcmp(c->name, name + 2, n) == 0)) {
        c++;
    }
    HOLDS(c < choices + N_CHOICES, name);
    bool taken = c->what == NULL, beyond = !taken && strcmp(c->what, BEYOND) == 0,
         wide = strstr(name, "_int.json") != NULL;
    HOLDS(read_takes(text, &names_once, JSON_WIDE_REAL, &fault) == taken, name);
    HOLDS(taken || (strcmp(fault.what, c->what) == 0 && fault.at == c->at), name);
    HOLDS(check_takes(text, &names_once, &fault) == (taken || beyond), name);
    HOLDS(read_takes(text, &names_once, JSON_WIDE_REFUSED, &fault) == (taken && !wide), name);
    HOLDS(!wide || strcmp(fault.what, "an integer that does not fit in 64 bits") == 0, name);
}

TEST(what_must_be_taken_is_taken) {
    each('y', 95, must_be_taken);
}

TEST(what_must_be_refused_is_refused) {
    each('n', 188, must_be_refused);
}

TEST(what_may_be_either_is_as_documented) {
    each('i', N_CHOICES, may_be_either);
}

TEST_MAIN(NULL, NULL)
