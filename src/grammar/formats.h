/* The formats of JSON Schema as regexes. Private to this room. */
#ifndef GRAMMAR_FORMATS_H
#define GRAMMAR_FORMATS_H

#include <stdbool.h>

/* A second of this number is one where it is 23:59 in UTC. The regexes of times have it
 * in UTC alone. */
#define FORMAT_LEAP ":60"

typedef struct schema_format {
    const char *name;
    const char *regex; /* of the whole text; NULL: a format of the standard that has none */
    bool is_loose;     /* the format has more texts, all of them with FORMAT_LEAP in them: string_part */
} schema_format;

/* Finds a format; NULL: the standard has none of that name. */
const schema_format *schema_format_find(const char *name);

#endif
