/* Output: a growing text with the runs of bytes that came in with the variables. Its
 * memory counts in the arena's budget. */
#ifndef JINJA_JINJA_OUT_H
#define JINJA_JINJA_OUT_H

#include "jinja/jinja_arena.h"

typedef struct jout {
    strbuf text;       /* at most JINJA_MAX_OUTPUT bytes */
    jinja_spans input; /* likewise */
    jarena *arena;     /* of the texts that are added */
    uint8_t origin;    /* of the bytes that jout_str, jout_char and jout_f add */
} jout;

void jout_deinit(jout *o);
void jout_clear(jout *o);
/* Append. QUIRE_TOO_LARGE: a limit; QUIRE_CANCELLED; arena->refused names both.
 * QUIRE_NO_MEMORY. */
quire_err jout_add(jout *o, str s); /* with the origins of s */
quire_err jout_str(jout *o, const char *s);
quire_err jout_char(jout *o, char c);
quire_err jout_f(jout *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds bytes of one origin. */
quire_err jout_add_as(jout *o, str s, uint8_t origin);
/* Copies what was written into the arena; false when out of memory. */
bool jout_take(const jout *o, str *out);

#endif
