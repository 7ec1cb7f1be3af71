/* Checks JSON text without building a tree: whether it is strict RFC 8259, and how much
 * it holds.
 *
 * It refuses a hostile text before its tree could take a hundred times its bytes. Beyond
 * the grammar, the caller limits the depth and the number of values. A name twice in an
 * object and a NUL in a name are refused, unless the caller allows them. Memory: a few
 * bytes for each name of the open objects. */
#ifndef JSON_CHECK_H
#define JSON_CHECK_H

#include <stdbool.h>

#include "base/str.h"

#define JSON_MAX_DEPTH 512 /* the largest max_depth of a caller */

typedef enum json_names {
    JSON_NAMES_UNIQUE, /* a name twice in an object, or with a NUL, is refused */
    JSON_NAMES_LAST    /* the last of equal names counts */
} json_names;

typedef struct json_limits {
    int max_depth;         /* most nested arrays and objects */
    size_t max_values;     /* most values of all kinds */
    size_t max_containers; /* arrays and objects among them: they take the most memory */
    size_t max_names;      /* of members, in all objects */
    json_names names;
    bool takes_nul; /* in a name */
    /* the bare words NaN, Infinity and -Infinity, which Python's json writes:
     * json_read */
    bool takes_nonfinite;
    /* bytes of the value's text, without white space, quotes, and the excess of
     * escapes over their characters; 0: no bound. A longer string is refused within a
     * KB, a number at its end, so a check never takes longer than the bound and the
     * uncounted bytes. */
    size_t max_bytes;
    /* returns that limit for a member of the outermost object by its name, in place of
     * one for the whole; or NULL */
    size_t (*member_bytes)(void *user, str name);
    void *user;
} json_limits;

/* Limits for files and settings that the operator names. json_limits_config allows equal
 * names, as programs that write such files do. */
extern const json_limits json_limits_file, json_limits_config;
/* json_limits_config for a model's files, with the words for numbers that JSON does not
 * have. Never for requests. */
extern const json_limits json_limits_model;

typedef struct json_fault {
    size_t at;        /* the byte */
    char what[96];    /* a phrase for a person: "a number that begins with 0" */
    size_t max_bytes; /* the exceeded limit if it was one on bytes; otherwise 0 */
} json_fault;

typedef struct json_counts {
    size_t n_values, n_containers, n_names;
    size_t n_long;      /* numbers of over 15 digits or with an exponent: json.h */
    size_t n_wide;      /* integers that an int64 does not hold */
    size_t wide_at;     /* the offset of the first of them */
    size_t n_nonfinite; /* words for numbers */
} json_counts;

/* json_check checks the one value in text, with white space around it. json_check_value
 * checks the value that begins at *at, and moves *at after it. counts may be NULL.
 * QUIRE_BAD_FILE: invalid; QUIRE_TOO_LARGE: past a limit; QUIRE_NO_MEMORY. All of them
 * fill *fault. O(n log n) at most, where one object holds all names. Any thread. */
quire_err json_check(str text, const json_limits *limits, json_counts *counts, json_fault *fault);
quire_err json_check_value(str text, size_t *at, const json_limits *limits, json_counts *counts,
                           json_fault *fault);

#endif
