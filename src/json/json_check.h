/* JSON text looked over without building anything: whether it is RFC 8259 to the letter, and how much it holds.
 *
 * A hostile text is refused here, before a tree of it takes a hundred times its bytes. Beyond the grammar: at most the depth and number of
 * values that the caller gives, and no name twice in an object and no NUL in a name, unless the caller takes that. Memory: a few bytes for
 * each name of the objects that are open. */
#ifndef JSON_CHECK_H
#define JSON_CHECK_H

#include "base/str.h"

#define JSON_MAX_DEPTH 512 /* a caller's limit is at most this */

typedef enum json_names {
    JSON_NAMES_UNIQUE, /* a name twice in an object, or with a NUL, is refused */
    JSON_NAMES_LAST    /* of equal names the last counts */
} json_names;

typedef struct json_limits {
    int max_depth;         /* arrays and objects inside each other */
    size_t max_values;     /* of every kind */
    size_t max_containers; /* arrays and objects among them: they cost most to build */
    size_t max_names;      /* of members, in all objects */
    json_names names;
} json_limits;

/* For files and settings that the operator names; json_limits_config takes equal names, as the programs do that write such files. */
extern const json_limits json_limits_file, json_limits_config;

typedef struct json_fault {
    size_t at;     /* the byte */
    char what[96]; /* a phrase for a person: "a number that begins with 0" */
} json_fault;

typedef struct json_counts {
    size_t n_values, n_containers, n_names;
    size_t n_wide;  /* integers that an int64 does not hold */
    size_t wide_at; /* where the first of them stands */
} json_counts;

/* Checks the one value that text holds, white space around it; json_check_value the one that begins at *at, and moves *at behind it.
 * counts may be NULL. QUIRE_BAD_FILE: no such text; QUIRE_TOO_LARGE: past a limit; QUIRE_NO_MEMORY. All fill *fault. O(n log n) at most,
 * where one object holds all names. Any thread. */
quire_err json_check(str text, const json_limits *limits, json_counts *counts, json_fault *fault);
quire_err json_check_value(str text, size_t *at, const json_limits *limits, json_counts *counts, json_fault *fault);

#endif
