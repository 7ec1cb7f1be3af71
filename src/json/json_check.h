/* Checks JSON text without building a tree: that it is strict RFC 8259, and how many
 * values it holds.
 *
 * A hostile text is refused here, because its tree could take a hundred times its bytes.
 * The caller limits the depth and the number of values. A name that occurs twice in an
 * object and a NUL in a name are refused unless the caller allows them. Memory: a few
 * bytes for each name of the open objects. */
#ifndef JSON_CHECK_H
#define JSON_CHECK_H

#include <stdbool.h>

#include "base/str.h"

#define JSON_MAX_DEPTH 512 /* upper bound of json_limits.max_depth */

typedef enum json_names {
    JSON_NAMES_UNIQUE, /* refuses equal names in one object, and a NUL in a name */
    JSON_NAMES_LAST    /* the last of equal names wins */
} json_names;

typedef struct json_limits {
    int max_depth;         /* deepest nesting of arrays and objects */
    size_t max_values;     /* most values, arrays and objects included */
    size_t max_containers; /* most arrays and objects, the values that take the most memory */
    size_t max_names;      /* most members of all objects together */
    json_names names;
    bool takes_nul; /* with JSON_NAMES_UNIQUE: allows a NUL in a name */
    /* allows the bare words NaN, Infinity and -Infinity, which Python's json writes */
    bool takes_nonfinite;
    /* most bytes of the value's text; 0: no bound. White space, quotes and the bytes that
     * escapes add are not counted. A longer string is refused within 1 KB, a longer
     * number at its end, so a check never takes longer than the bound and the uncounted
     * bytes. */
    size_t max_bytes;
    /* returns max_bytes for a named member of the outermost object; NULL: max_bytes
     * bounds the whole text */
    size_t (*member_bytes)(void *user, str name);
    void *user;
} json_limits;

/* Limits for files and settings that the operator names. Only json_limits_config allows
 * equal names, which some programs write. */
extern const json_limits json_limits_file, json_limits_config;
/* Like json_limits_config, and allows NaN and Infinity, for a model's files. Never for
 * requests. */
extern const json_limits json_limits_model;

typedef struct json_fault {
    size_t at;        /* offset of the error in the text */
    char what[96];    /* a phrase for a person: "a number that begins with 0" */
    size_t max_bytes; /* the exceeded limit on bytes; 0: another error */
} json_fault;

typedef struct json_counts {
    size_t n_values, n_containers, n_names;
    size_t n_long;      /* numbers of over 15 digits or with an exponent (json_digits_find) */
    size_t n_wide;      /* integers that do not fit int64 */
    size_t wide_at;     /* offset of the first such integer */
    size_t n_nonfinite; /* words NaN, Infinity and -Infinity */
} json_counts;

/* json_check checks a text of one value, with white space around it. json_check_value
 * checks the value at *at and moves *at after it. counts may be NULL. QUIRE_BAD_FILE:
 * invalid; QUIRE_TOO_LARGE: over a limit; QUIRE_NO_MEMORY. Every error fills *fault. At
 * most O(n log n), when one object holds all names. Any thread. */
quire_err json_check(str text, const json_limits *limits, json_counts *counts, json_fault *fault);
quire_err json_check_value(str text, size_t *at, const json_limits *limits, json_counts *counts,
                           json_fault *fault);

#endif
