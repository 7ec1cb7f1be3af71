/* Format: one value by a format specification, as Python's format() and the % operator
 * have it. */
#ifndef JINJA_JINJA_FORMAT_H
#define JINJA_JINJA_FORMAT_H

#include "jinja/jinja_run.h"

#define JFORMAT_MAX_WIDTH 1000000

typedef struct jformat_spec {
    str fill;          /* one character */
    char align;        /* '<', '>', '^', '=', or 0: by the kind of value */
    char sign;         /* '+', ' ' or '-' */
    bool alternate;    /* 0x before the digits, a point after them */
    char group;        /* ',' or '_' between digits, or 0 */
    int64_t width;     /* the minimum number of characters */
    int64_t precision; /* -1: not given */
    char type;         /* 0: by the kind of value */
} jformat_spec;

/* Escapes what is not ASCII, as Python's ascii() does of a repr. */
quire_err jformat_ascii(jrun *r, jvalue *text);
/* Appends v, a number, a text or what str() makes of another value. QUIRE_BAD_REQUEST for
 * a type that v does not have. */
quire_err jformat_value(jrun *r, jvalue v, const jformat_spec *spec, jout *out);

#endif
