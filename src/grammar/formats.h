/* The formats of JSON Schema as regexes. Private to this room. */
#ifndef GRAMMAR_FORMATS_H
#define GRAMMAR_FORMATS_H

typedef struct schema_format {
    const char *name;
    const char *regex; /* of the whole text; NULL: a format of the standard that has none */
} schema_format;

/* NULL: the standard has no such format. */
const schema_format *schema_format_find(const char *name);

#endif
