/* Parses JSON text into a tree of values (DOM). jansson builds the tree, after the strict
 * and bounded check of json_check.h.
 *
 * The NULL pointer stands for JSON null everywhere: as a whole text, an item or a member.
 * json_has distinguishes a null member from a missing one. A tree is immutable, so any
 * number of threads may read it. Texts are borrowed from the tree and end with a 0 byte,
 * but may contain others. Names of this room begin with json_, as jansson's exported
 * names do; no two may be equal, or the linker would confuse them. */
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
    JSON_KIND_WIDE /* an integer outside int64, kept as its digits; only with JSON_WIDE_KEPT */
} json_kind;

/* What json_read does with an integer that does not fit int64. */
typedef enum json_wide {
    JSON_WIDE_REFUSED, /* fails with QUIRE_BAD_FILE */
    JSON_WIDE_REAL,    /* becomes the nearest double, because other programs write 1e30 with all its digits */
    JSON_WIDE_KEPT     /* keeps all its digits */
} json_wide;

/* ---- reading ---- */

/* Parses text into a tree *out, owned by the caller (json_drop). Errors are those of
 * json_check, and QUIRE_BAD_FILE for a number beyond a double or a NUL in a name; *out is
 * then NULL. Takes up to about 240 bytes per object, 130 per array, 32 per number.
 *
 * If the limits allow the words NaN, Infinity and -Infinity, each becomes an object
 * {"__float__": "NaN"}, the form in which transformers writes it in strict JSON. */
quire_err json_read(str text, const json_limits *limits, json_wide wide, json_value **out, json_fault *fault);
/* Like json_read; also sets *counts to the counts of json_check. */
quire_err json_read_counted(str text, const json_limits *limits, json_wide wide, json_value **out,
                            json_counts *counts, json_fault *fault);
/* Like json_read within json_limits_config and with JSON_WIDE_REAL, for texts that the
 * operator names. NULL for invalid JSON, and for null. */
json_value *json_document(str text);
/* Like json_document, but within json_limits_model, for a model's files. */
json_value *json_model_document(str text);
/* Adds a reference to the value, which may be NULL, and returns it. Each reference needs
 * a json_drop. The count is atomic. */
json_value *json_share(json_value *v);
/* Drops a reference; the last one frees the tree. NULL does nothing. */
void json_drop(json_value *v);

/* ---- reading values ---- */

json_kind json_kind_of(const json_value *v);
static inline bool json_is(const json_value *v, json_kind kind) {
    return json_kind_of(v) == kind;
}
/* True for JSON's true; false for every other value. */
bool json_truth(const json_value *v);
/* The value of an integer; 0 for other kinds. */
int64_t json_int64(const json_value *v);
/* Whether v is a number: an integer of any size, or a real. */
bool json_numeric(const json_value *v);
/* The value of an integer or real; for a wide integer the nearest double, which may be
 * infinite; 0 for other kinds. */
double json_double(const json_value *v);
/* The digits of a wide integer, with its sign; empty for other kinds. Ends with a 0 byte.
 * Equal integers have equal digits. */
str json_wide_str(const json_value *v);
/* Gets a whole number, written as an integer or as a real without a fraction below 2^53.
 * False for all other values. */
bool json_whole(const json_value *v, int64_t *out);
/* The bytes of a text; empty for other kinds. */
str json_str(const json_value *v);
/* Number of items of an array or members of an object; 0 for other kinds. */
size_t json_length(const json_value *v);
/* Item i of an array; NULL past its end and for other kinds. */
json_value *json_at(const json_value *v, size_t i);
/* The member of that name; NULL if it is absent or v is no object. */
json_value *json_get(const json_value *v, const char *name);
/* Whether v has a member of that name, which may be null. */
bool json_has(const json_value *v, const char *name);
/* Read a member of one kind, or a default if it is missing or of another kind.
 * json_get_str borrows the text; its default is empty. */
str json_get_str(const json_value *v, const char *name);
bool json_get_bool(const json_value *v, const char *name, bool otherwise);
/* returns `otherwise` also if the value is out of range */
int32_t json_get_int32(const json_value *v, const char *name, int32_t otherwise);
/* Compares values. The order of members does not matter; an integer never equals a
 * real. */
bool json_same(const json_value *a, const json_value *b);

/* Iterates over an object's members in the order of the text; other kinds have none:
 * json_member m = {0}; while (json_next(object, &m)) {..} */
typedef struct json_member {
    const char *name; /* has no NUL inside */
    json_value *value;
    void *at; /* position, private to json_next */
} json_member;
bool json_next(const json_value *object, json_member *m);

/* The digits of numbers that a double may not hold exactly: a table from the values of a
 * tree to their digits in its text.
 *
 * A real in the tree is the double nearest to the written number, so code that needs the
 * exact number looks here first. Owned by its creator. Immutable once made. */

typedef struct json_digits json_digits;

/* Finds the digits in `text`, from which json_read made root; n_long is the count of
 * json_counts. Borrows from `text`; takes at most 72 bytes for each of n_long numbers.
 * QUIRE_NO_MEMORY, QUIRE_CANCELLED, QUIRE_TOO_LARGE; *out is then NULL. */
quire_err json_digits_find(str text, const json_value *root, size_t n_long, json_digits **out);
void json_digits_drop(json_digits *d);
/* The number as written; empty: the double is exact. d may be NULL. */
str json_digits_of(const json_digits *d, const json_value *v);

#endif
