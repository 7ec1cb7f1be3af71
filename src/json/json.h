/* A JSON text as a tree of values (DOM). jansson parses it after json_check.h's check,
 * which is strict and bounded.
 *
 * JSON's null is the NULL pointer everywhere: as a whole text, as an item, as a member.
 * json_has distinguishes a null member from a missing one. A tree is immutable, so any
 * number of threads may read it. Texts are borrowed from it and end with a 0 byte (they
 * may contain others). Names of this room begin with json_ like jansson's own exported
 * ones. None may be equal, as the linker would confuse them. */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "json/json_check.h"

struct json_t;
typedef struct json_t json_value;

typedef enum json_kind {
    JSON_KIND_NULL,
    JSON_KIND_BOOL,
    JSON_KIND_INT,
    JSON_KIND_REAL,
    JSON_KIND_TEXT,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT,
    JSON_KIND_WIDE /* an integer that does not fit int64, kept as its digits: JSON_WIDE_KEPT */
} json_kind;

/* The treatment of an integer that does not fit int64. */
typedef enum json_wide {
    JSON_WIDE_REFUSED, /* QUIRE_BAD_FILE */
    JSON_WIDE_REAL,    /* the nearest double: other programs write 1e30 with all its digits */
    JSON_WIDE_KEPT     /* its digits, any number of them */
} json_wide;

/* ---- reading ---- */

/* If the limits allow the words NaN, Infinity and -Infinity, the tree has an object
 * {"__float__": "NaN"} for each, which is how transformers writes them in strict JSON.
 *
 * Parses text to a tree *out, owned by the caller (json_drop). Errors as json_check, and
 * QUIRE_BAD_FILE for a number beyond a double and for a NUL in a name; *out is then NULL.
 * Takes up to about 240 bytes per object, 130 per array, 32 per number. */
quire_err json_read(str text, const json_limits *limits, json_wide wide, json_value **out, json_fault *fault);
/* The same; *counts is what json_check has counted. */
quire_err json_read_counted(str text, const json_limits *limits, json_wide wide, json_value **out,
                            json_counts *counts, json_fault *fault);
/* The same within json_limits_config and with wide integers as reals, for texts that the
 * operator names. NULL for invalid JSON, and for null. */
json_value *json_document(str text);
/* The same within json_limits_model, for a model's files. */
json_value *json_model_document(str text);
/* Adds a reference to the value (NULL too) and returns it. Each reference needs a
 * json_drop. Counting is atomic. */
json_value *json_share(json_value *v);
void json_drop(json_value *v);

/* ---- reading values ---- */

json_kind json_kind_of(const json_value *v);
static inline bool json_is(const json_value *v, json_kind kind) {
    return json_kind_of(v) == kind;
}
/* True for true; false for everything else. */
bool json_truth(const json_value *v);
/* An integer; 0 for other kinds. */
int64_t json_int64(const json_value *v);
/* An integer of any size, or a real. */
bool json_numeric(const json_value *v);
/* An integer or real; for a wide integer the nearest double, which may be infinite; 0 for
 * other kinds. */
double json_double(const json_value *v);
/* The digits of a wide integer, with its sign; empty for other kinds. Ends with a 0 byte.
 * Equal integers have equal digits. */
str json_wide_str(const json_value *v);
/* An integer, written as one or as a real without a fraction under 2^53. false for
 * everything else. */
bool json_whole(const json_value *v, int64_t *out);
/* A text; empty for other kinds. */
str json_str(const json_value *v);
/* Items of an array, members of an object; 0 for other kinds. */
size_t json_length(const json_value *v);
/* Item i of an array; NULL past its end and for other kinds. */
json_value *json_at(const json_value *v, size_t i);
/* A member; NULL if absent, and for other kinds. */
json_value *json_get(const json_value *v, const char *name);
bool json_has(const json_value *v, const char *name);
/* Members with defaults. A member of another kind counts as missing. The text is
 * borrowed, empty where missing. */
str json_get_str(const json_value *v, const char *name);
bool json_get_bool(const json_value *v, const char *name, bool otherwise);
/* returns `otherwise` also if the value is out of range */
int32_t json_get_int32(const json_value *v, const char *name, int32_t otherwise);
/* Compares values: objects in any order are equal, an integer and a real are not. */
bool json_same(const json_value *a, const json_value *b);

/* Iterates over members in the order of the text: json_member m = {0}; while
 * (json_next(object, &m)) {..} None for other kinds. */
typedef struct json_member {
    const char *name; /* no NUL inside */
    json_value *value;
    void *at; /* used by json_next */
} json_member;
bool json_next(const json_value *object, json_member *m);

/* The digits of numbers that a double may not hold: a table from the values of a tree to
 * their places in its text.
 *
 * A tree's real is the double nearest to the written number. Code that needs the exact
 * number looks here first. Owner: its maker; one thread makes it, then it is
 * immutable. */

typedef struct json_digits json_digits;

/* Searches the text from which json_read made root, in which json_counts found n_long
 * numbers. *out is NULL on failure. QUIRE_NO_MEMORY, QUIRE_CANCELLED, QUIRE_TOO_LARGE.
 * Takes 72 bytes for each of them at most; its texts are borrowed from `text`. */
quire_err json_digits_find(str text, const json_value *root, size_t n_long, json_digits **out);
void json_digits_drop(json_digits *d);
/* The number as it is written; empty: the value is exact. d may be NULL. */
str json_digits_of(const json_digits *d, const json_value *v);

#endif
