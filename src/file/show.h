/* Formats values for error messages: numbers with separators for thousands, and names
 * from untrusted files made printable and short.
 *
 * Both functions return a small struct by value, so `show_count(n).text` can be an
 * argument of err_set. Any thread. */
#ifndef FILE_SHOW_H
#define FILE_SHOW_H

#include <stdint.h>

#include "base/str.h"

#define SHOW_BYTES 80

typedef struct shown {
    char text[SHOW_BYTES];
} shown;

/* Formats a number: "91,226,112" for 91226112. */
shown show_count(uint64_t v);
/* Returns the name with '?' for every byte outside printable ASCII; a long name is cut
 * and ends with "...". */
shown show_name(str name);

#endif
