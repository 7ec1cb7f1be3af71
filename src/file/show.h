/* Formats values for error messages: numbers with separators for thousands, and names
 * from hostile files made printable and short.
 *
 * Both functions return a small struct by value, so that `show_count(n).text` can be an
 * argument of err_set. Any thread. */
#ifndef FILE_SHOW_H
#define FILE_SHOW_H

#include <stdint.h>

#include "base/str.h"

#define SHOW_BYTES 80

typedef struct shown {
    char text[SHOW_BYTES];
} shown;

/* 91226112 is "91,226,112". */
shown show_count(uint64_t v);
/* The name with '?' for every byte outside printable ASCII, cut with "..." if it is
 * long. */
shown show_name(str name);

#endif
